"""A SQLite file that several hosts open for the first time in the same moment."""

from __future__ import annotations

import sqlite3
import threading
from types import SimpleNamespace

from codemode.stores import sqlite_file
from codemode.stores.sqlite_file import open_wal_connection


def test_a_file_whose_log_another_host_is_turning_on_is_waited_for(tmp_path, monkeypatch):
    path, tries = str(tmp_path / "store"), 0
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE first (one)")
    other.execute("BEGIN EXCLUSIVE")

    def sleep(_seconds: float) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            other.execute("COMMIT")

    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(sqlite_file, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0))
    connection = open_wal_connection(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert tries >= 3
    connection.close()
    other.close()


def test_all_who_open_it_at_once_have_it(tmp_path):
    barrier, failures = threading.Barrier(4, timeout=60), []

    def opened() -> None:
        for number in range(20):
            barrier.wait()
            try:
                open_wal_connection(str(tmp_path / f"store{number}")).close()
            except sqlite3.Error as error:
                failures.append(error)

    threads = [threading.Thread(target=opened) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
