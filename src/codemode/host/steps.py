"""Count the steps of checks by schemas, so that they can leave the loop, take turns and be stopped."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import TypeVar

ResultT = TypeVar("ResultT")

# A step is some microseconds: these are about a millisecond, and what a turn in a thread is looked at after.
STEPS_ON_THE_LOOP = 250
STEPS_BETWEEN_LOOKS = 250


class TooLongForTheLoop(BaseException):
    """Work that was begun on the event loop belongs into a thread. Not an `Exception`: nothing may swallow it."""


class TooMuchWork(Exception):  # noqa: N818 - never leaves this package
    """Work on a value would take out of proportion long."""


class WorkStopped(BaseException):
    """Nobody waits for this work any more."""


def _unlimited() -> int:
    return 1 << 62


class _Meter:
    __slots__ = ("left", "on_spent")

    def __init__(self) -> None:
        self.left = 1 << 62
        self.on_spent: Callable[[], int] = _unlimited


class _Thread(threading.local):
    def __init__(self) -> None:
        # An object of its own: each name that is looked up in the thread costs as much as a call.
        self.meter = _Meter()


_this_thread = _Thread()


def take(steps: int = 1) -> None:
    """Account for so many steps of the work that runs in this thread. May raise what ends it."""
    meter = _this_thread.meter
    meter.left -= steps
    if meter.left < 0:
        meter.left = meter.on_spent()


def _leave_the_loop() -> int:
    raise TooLongForTheLoop


def run_metered(
    work: Callable[[], ResultT], steps: int = STEPS_ON_THE_LOOP, on_spent: Callable[[], int] = _leave_the_loop
) -> ResultT:
    """Run ``work``; when it has taken ``steps``, ``on_spent`` raises or grants more.

    By default it is what may run on an event loop: for about a millisecond, then it raises `TooLongForTheLoop`.
    """
    meter = _this_thread.meter
    before = meter.left, meter.on_spent
    meter.left, meter.on_spent = steps, on_spent
    try:
        return work()
    finally:
        meter.left, meter.on_spent = before


_without_collector: set[object] = set()  # a mark for each that has switched it off


def without_collector(work: Callable[[], ResultT]) -> ResultT:
    """Run what builds very many objects that are in no circle, in one call into C.

    The garbage collector would go through all of them again and again, five times as long as it takes to make them.
    """
    if not gc.isenabled():
        return work()
    mine = object()
    _without_collector.add(mine)
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()
        _without_collector.discard(mine)


def _collect_again() -> None:
    """In a forked child: who has switched the collector off is not in it, or switches it on once more."""
    if _without_collector:
        _without_collector.clear()
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_collect_again)
