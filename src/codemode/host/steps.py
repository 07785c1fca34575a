"""Count the steps of checks by schemas, so that they can leave the loop, take turns and be stopped."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")

# A step is some microseconds: these are about a millisecond, and what a turn in a thread is looked at after.
LOOP_STEPS = 250
TURN_STEPS = 250


class LoopBudgetExceeded(BaseException):
    """Work that was begun on the event loop belongs into a thread. Not an `Exception`: nothing may swallow it."""


class WorkLimitError(Exception):
    """Work on a value would take out of proportion long."""


class WorkStopped(BaseException):
    """Nobody waits for this work any more."""


def _unlimited() -> int:
    return 1 << 62


class _Meter:
    __slots__ = ("on_exhausted", "remaining")

    def __init__(self) -> None:
        self.remaining = 1 << 62
        self.on_exhausted: Callable[[], int] = _unlimited


class _Thread(threading.local):
    def __init__(self) -> None:
        # An object of its own: each name that is looked up in the thread costs as much as a call.
        self.meter = _Meter()


_thread_state = _Thread()


def count_steps(steps: int = 1) -> None:
    """Account for so many steps of the work that runs in this thread. May raise what ends it."""
    meter = _thread_state.meter
    meter.remaining -= steps
    if meter.remaining < 0:
        meter.remaining = meter.on_exhausted()


def _raise_loop_budget_exceeded() -> int:
    raise LoopBudgetExceeded


def run_metered(
    work: Callable[[], ResultT], steps: int = LOOP_STEPS, on_exhausted: Callable[[], int] = _raise_loop_budget_exceeded
) -> ResultT:
    """Run ``work``; when it has taken ``steps``, ``on_exhausted`` raises or grants more.

    By default it is what may run on an event loop: for about a millisecond, then it raises `LoopBudgetExceeded`.
    """
    meter = _thread_state.meter
    previous = meter.remaining, meter.on_exhausted
    meter.remaining, meter.on_exhausted = steps, on_exhausted
    try:
        return work()
    finally:
        meter.remaining, meter.on_exhausted = previous


_collector_users: set[object] = set()  # a mark for each that has switched it off


def run_without_gc(work: Callable[[], ResultT]) -> ResultT:
    """Run what builds very many objects that are in no circle, in one call into C.

    The garbage collector would go through all of them again and again, five times as long as it takes to make them.
    """
    if not gc.isenabled():
        return work()
    token = object()
    _collector_users.add(token)
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
        _collector_users.discard(token)


def _enable_gc_after_fork() -> None:
    """In a forked child: who has switched the collector off is not in it, or switches it on once more."""
    if _collector_users:
        _collector_users.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enable_gc_after_fork)
