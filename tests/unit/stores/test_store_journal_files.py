"""What the journal of a file owes its lines: slow disks, threads, and connections that come back late."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from itertools import count

import pytest
from test_store_journal import journal_of
from waiting import until, within

from codemode.stores import SqliteInterruptStore, StoreUnavailableError, sqlite_file


def test_a_file_that_cannot_be_used_is_told_of(tmp_path):
    path = tmp_path / "other"
    path.write_text("no database " * 100, encoding="utf-8")
    journal = journal_of(SqliteInterruptStore(path))
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            within(journal.open("k", "h"))
    store = SqliteInterruptStore(tmp_path / "kept")

    async def scenario():
        opened = await journal_of(store).open("k", "h")
        await store._run_write(lambda session: session.run("DROP TABLE codemode_journal_lines"))
        for size in (1, 1 << 20):
            with pytest.raises(StoreUnavailableError):
                await journal_of(store).write(opened, ["x" * size])

    within(scenario())


def test_a_line_waits_for_others_off_the_event_loop(tmp_path):
    path = tmp_path / "pauses.sqlite"

    async def scenario():
        journal = journal_of(SqliteInterruptStore(path))
        opened = await journal.open("k", "h")
        assert await journal.write(opened, ["free"])
        busy = sqlite3.connect(path, isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        writing = [asyncio.create_task(one) for one in (journal.write(opened, ["l"]), journal.renew(opened))]
        opening = asyncio.create_task(journal.open("another", "h"))
        beats = []
        await until(lambda: beats.append(1) or len(beats) > 50)  # the loop goes on
        assert not [one for one in (*writing, opening) if one.done()]
        busy.execute("COMMIT")
        busy.close()
        assert [await one for one in writing] == [True, True]
        assert (await opening).lines == ()

    within(scenario())


def times_of(*seconds):
    times = iter([*seconds, *range(2, 100)])

    class Time:
        @staticmethod
        def monotonic():
            return float(next(times))

    return Time


def test_after_a_slow_disk_lines_are_written_off_the_event_loop(tmp_path, monkeypatch):
    waits = count()

    async def scenario():
        async with SqliteInterruptStore(tmp_path / "pauses.sqlite") as store:
            opened = await journal_of(store).open("k", "h")  # from a thread: nothing is open yet
            monkeypatch.setattr(sqlite_file, "time", times_of(0.0, 0.1, 0.11, 1.09, 1.2, 1.2001))
            monkeypatch.setattr(sqlite_file, "count_thread_waits", lambda: next(waits))
            connections = store._database._journals
            statement = "UPDATE codemode_journals SET is_awaited = 0"
            assert connections.run_statement_nowait(statement, ()) == 1  # it took 0.1 seconds
            assert connections.run_statement_nowait(statement, ()) is None
            assert connections.run_statement_nowait(statement, ()) is None
            assert connections.run_statement_nowait(statement, ()) == 1
            monkeypatch.undo()
            assert await journal_of(store).write(opened, ["l"])

    within(scenario())


def test_whom_others_keep_from_the_processor_goes_on_writing_on_the_event_loop(tmp_path, monkeypatch):
    async def scenario():
        async with SqliteInterruptStore(tmp_path / "pauses.sqlite") as store:
            opened = await journal_of(store).open("k", "h")
            monkeypatch.setattr(sqlite_file, "time", times_of(0.0, 0.1, 0.11, 0.12))
            monkeypatch.setattr(sqlite_file, "count_thread_waits", lambda: 7)
            connections = store._database._journals
            statement = "UPDATE codemode_journals SET is_awaited = 0"
            assert connections.run_statement_nowait(statement, ()) == 1  # it took 0.1 seconds, and waited for nothing
            assert connections.run_statement_nowait(statement, ()) == 1
            monkeypatch.undo()
            assert await journal_of(store).write(opened, ["l"])

    within(scenario())


def test_a_threads_waits_are_those_in_which_it_gave_the_processor_up():
    before = sqlite_file.count_thread_waits()
    if math.isnan(before):
        pytest.skip("the waits of a thread are not counted here")
    for _ in range(1000):  # a time that is over before the wait has begun is none that it waits
        threading.Event().wait(0.001)
        if sqlite_file.count_thread_waits() > before:
            return
    pytest.fail("none of its waits was counted")


def test_what_journals_write_is_brought_home_beside_them(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "_CHECKPOINT_WRITES", 20)
    monkeypatch.setattr(sqlite_file, "_MAX_WAL_PAGES", 50)
    path = tmp_path / "pauses.sqlite"

    async def scenario():
        async with SqliteInterruptStore(path) as store:
            journal = journal_of(store)
            opened = await journal.open("k", "h")

            written = 0
            while path.stat().st_size < 40 * 4096:
                assert await journal.write(opened, ["x" * 3000])
                written += 1
                assert written < 50_000
            await journal.release(opened)
            assert len((await journal.open("k", "h")).lines) == written

    within(scenario())


def test_where_it_is_asked_for_each_line_is_on_the_disk(tmp_path):
    async def scenario():
        for is_synced, level in ((False, 1), (True, 2)):
            async with SqliteInterruptStore(tmp_path / f"{is_synced}", syncs_journal=is_synced) as store:
                journal = journal_of(store)
                opened = await journal.open("k", "h")
                assert await journal.write(opened, ["l"])
                (connection, *_) = store._database._journals.idle
                assert connection.execute("PRAGMA synchronous").fetchone() == (level,)

    within(scenario())


def test_a_connection_that_comes_back_to_a_closed_store_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "SLOW_WRITE_SECONDS", math.inf)  # on a busy machine any line may take long

    async def scenario():
        async with SqliteInterruptStore(tmp_path / "pauses.sqlite") as store:
            assert await journal_of(store).write(await journal_of(store).open("k", "h"), ["l"])
            connections = store._database._journals
            lent = []
            assert connections.run_write_nowait(
                lambda connection: lent.append(connection) or store._database.close() or 1
            )
            assert not connections.idle
            with pytest.raises(sqlite3.ProgrammingError):
                lent[0].execute("SELECT 1")

    within(scenario())
