"""A process that ends while a thread of a store is in its database, as one whose caller was cancelled may be."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import atexit, threading

inside, at_end = threading.Event(), threading.Event()


def after_the_finalizers():
    at_end.set()
    thread.join()
    print(found)


atexit.register(after_the_finalizers)  # they run in reverse order

from codemode.stores import MemoryInterruptStore, SqliteInterruptStore
from codemode.stores.transaction import Session

store = MemoryInterruptStore() if {memory} else SqliteInterruptStore("pauses.sqlite")
found = []


def wait_for_the_end():
    inside.set()
    return at_end.wait(60)


def look():
    with store._database.transaction(writes=True) as session:
        session._cursor.connection.create_function("wait_for_the_end", 0, wait_for_the_end)
        found.extend(session.fetch_all("SELECT wait_for_the_end()"))


thread = threading.Thread(target=look, daemon=True)
thread.start()
assert inside.wait(60)
"""


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_a_thread_does_as_its_process_ends_is_done(kind, tmp_path):
    script = _SCRIPT.replace("{memory}", str(kind == "memory"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[(1,)]\n", "")
