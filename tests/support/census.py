"""Counts what of a process is alive, to find what every call leaves behind."""

from __future__ import annotations

import asyncio
import gc
import heapq
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any

from codemode.host.job_threads import JobThreads

PATIENCE_SECONDS = 60.0

_COLLECTIONS = 10
_BESIDE = ("mcp.server.", "starlette.")
# Uvicorn's own, and what is its: a connection that its client resets is held for as long as it might be used.
_A_WHILE = (".TimeoutProtocol", ".http_timeouts._SendTimeout")


def census(*beside: str) -> Counter[str]:
    """Return how many objects there are of each class of ours, and of those that requests are made of.

    ``beside`` is how the names of other classes begin that are counted.
    """
    _forget_timers()
    _await_idle_threads()
    # What goes may have been all that kept something else: a table that forgets a thing when it is gone.
    for _ in range(_COLLECTIONS):
        if not gc.collect():
            break
    found: Counter[str] = Counter()
    for one in gc.get_objects():
        kind = type(one)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name.startswith(("codemode", *_BESIDE, *beside)) and not name.endswith(_A_WHILE):
            found[name] += 1
    return found


def left_by_each(run: Callable[[], object], runs: int, *beside: str, bounded: Collection[str] = ()) -> dict[str, int]:
    """Make these runs, after a first one, and return what each has left behind, by class: see `census` and `left_by`.

    ``bounded`` are classes of which some are kept on purpose, and no more than some number.
    """
    gc.freeze()  # all that is there before is passed over, which takes its time in a process that has run many tests
    run()
    before = census(*beside)
    for _ in range(runs):
        run()
    return {name: more for name, more in left_by(runs, before, census(*beside)).items() if name not in bounded}


def _forget_timers() -> None:
    """Let go of timers that were cancelled: asyncio keeps them, with their contexts, until there are a hundred."""
    try:
        loop: Any = asyncio.get_running_loop()
    except RuntimeError:
        return
    loop._scheduled = [one for one in loop._scheduled if not one.cancelled()]
    heapq.heapify(loop._scheduled)


def _await_idle_threads() -> None:
    """Wait until no thread has a job: it lets go of one a moment after it has told what came of it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    for one in threading.enumerate():
        loop: Any = getattr(one, "loop", None)  # anyio's know whose they are, and nobody waits for their end
        if loop is not None and loop.is_closed():
            one.join(PATIENCE_SECONDS)
    while any(map(_has_job, sys._current_frames().values())):
        assert time.monotonic() < deadline, [one.name for one in threading.enumerate()]
        time.sleep(0.001)


def _has_job(frame: FrameType) -> bool:
    running = {one.f_code for one, _ in traceback.walk_stack(frame)}
    return JobThreads._run_jobs.__code__ in running and JobThreads._wait_and_take_job.__code__ not in running


def left_by(calls: int, before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """Return what each of ``calls`` has left behind, by class: how many more there are, one for each call or more."""
    return {name: more for name, more in (after - before).items() if more >= calls}
