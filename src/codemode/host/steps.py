"""Count steps of schema checks, so that they leave the event loop, take turns and stop."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")

# A step takes some microseconds: these are about a millisecond, and the length of a turn in a thread.
LOOP_STEPS = 250
TURN_STEPS = 250


class LoopBudgetExceeded(BaseException):
    """Work on the event loop has to move to a thread. Not an `Exception`, so that nothing swallows it."""


class WorkLimitError(Exception):
    """Work on a value would take disproportionately long."""


class WorkStopped(BaseException):
    """Nothing waits for this work any more."""


def _grant_unlimited_steps() -> int:
    return 1 << 62


class _StepMeter:
    __slots__ = ("on_exhausted", "remaining")

    def __init__(self) -> None:
        self.remaining = 1 << 62
        self.on_exhausted: Callable[[], int] = _grant_unlimited_steps


class _ThreadState(threading.local):
    def __init__(self) -> None:
        # An object: each lookup of a thread-local name costs as much as a call.
        self.meter = _StepMeter()


_thread_state = _ThreadState()


def count_steps(steps: int = 1) -> None:
    """Count steps of the current thread's work. May raise to end it."""
    meter = _thread_state.meter
    meter.remaining -= steps
    if meter.remaining < 0:
        meter.remaining = meter.on_exhausted()


def _raise_loop_budget_exceeded() -> int:
    raise LoopBudgetExceeded


def run_with_step_budget(
    work: Callable[[], ResultT], steps: int = LOOP_STEPS, on_exhausted: Callable[[], int] = _raise_loop_budget_exceeded
) -> ResultT:
    """Run ``work``; after ``steps``, ``on_exhausted`` raises or returns more.

    By default it runs as on an event loop: for about a millisecond, then it raises `LoopBudgetExceeded`.
    """
    meter = _thread_state.meter
    previous = meter.remaining, meter.on_exhausted
    meter.remaining, meter.on_exhausted = steps, on_exhausted
    try:
        return work()
    finally:
        meter.remaining, meter.on_exhausted = previous


_collector_users: set[object] = set()  # a token for each caller that disabled it


def run_without_gc(work: Callable[[], ResultT]) -> ResultT:
    """Run one C call that creates very many objects without cycles, with the garbage collector off.

    The collector would scan them repeatedly, for five times the time of creating them.
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
    """In a forked child: the thread that disabled the collector may not exist."""
    if _collector_users:
        _collector_users.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_enable_gc_after_fork)
