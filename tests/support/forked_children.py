"""A forked child of the tests: it does one thing, and a child that hangs ends and fails its test."""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

CHILD_SECONDS = 60


def in_a_child(work: Callable[[], object], seconds: int = CHILD_SECONDS) -> None:
    """Fork, and do something in the child alone. Raises `AssertionError` where it fails, or does not end in time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 and later warn of forks beside threads, which are what is tested
        pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    late = threading.Timer(seconds, os.kill, (pid, signal.SIGKILL))  # it may hang before it has begun anything
    late.start()
    try:
        status = os.waitpid(pid, 0)[1]
    finally:
        late.cancel()
        late.join()
    assert os.waitstatus_to_exitcode(status) == 0


@contextmanager
def held_elsewhere(locks: Iterable[Any]) -> Generator[None]:
    """Let another thread have all these locks meanwhile."""
    held, free = threading.Event(), threading.Event()
    wanted, late = list(locks), []

    def hold() -> None:
        mine = [one for one in wanted if one.acquire(timeout=CHILD_SECONDS)]
        late.extend(wanted[len(mine) :])
        held.set()
        free.wait(2 * CHILD_SECONDS)
        for one in mine:
            one.release()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(CHILD_SECONDS), "some lock is never free"
        assert not late
        yield
    finally:
        free.set()
        thread.join(CHILD_SECONDS)
