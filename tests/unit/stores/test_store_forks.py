"""A fork in the middle of what a thread does with a store: the child is not held up by it, nor sees half of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import os, signal, threading

from codemode.stores import MemoryInterruptStore, SqliteInterruptStore

store = MemoryInterruptStore() if {memory} else SqliteInterruptStore("pauses.sqlite")
inside, forked = threading.Event(), threading.Event()


def kept():
    with store._database.transaction(writes=False) as session:
        return [name for (name,) in session.fetch_all("SELECT name FROM sqlite_master WHERE name LIKE 'half%'")]


def wait_for_the_fork():
    inside.set()
    return forked.wait(60)


def write_half(session):
    session._cursor.connection.create_function("wait_for_the_fork", 0, wait_for_the_fork)
    session.fetch_all("CREATE TABLE half (one INTEGER)")
    {wait}


def work():
    with store._database.transaction(writes=True) as session:
        write_half(session)


with store._database.transaction(writes=True):
    pass
thread = threading.Thread(target=work)
thread.start()
assert inside.wait(60)
child = os.fork()
if not child:
    signal.alarm(60)  # a child that hangs is not left behind
    print("child", kept(), flush=True)
    raise SystemExit
status = os.waitpid(child, 0)[1]
forked.set()
thread.join()
print(status, kept())
"""


@pytest.mark.parametrize("wait", ["session.fetch_all('SELECT wait_for_the_fork()')", "wait_for_the_fork()"])
@pytest.mark.parametrize("memory", ["True", "False"])
def test_a_child_goes_on_without_a_thread_of_its_parent(memory, wait, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.replace("{memory}", memory).replace("{wait}", wait)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["child []", "0 ['half']"]
