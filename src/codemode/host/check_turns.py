"""Turns of the checks of values: in the whole process one thread at a time runs a check, for some milliseconds.

Checks hold the interpreter while they run: more of them at once would only keep the event loop longer. Knows nothing of
queues and of what is checked.
"""

from __future__ import annotations

import contextvars
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import field
from typing import Any, Protocol

from ..dataclass import dataclass
from . import steps
from .forks import forkable_lock

_TURN_SECONDS = 0.01
_SECONDS_BETWEEN_PAUSES = 0.0015
_PAUSE_SECONDS = 0.00005
HUNG_SECONDS = 2.0


class Job(Protocol):
    """Work that somebody waits for."""

    work: Callable[[], Any]
    variables: contextvars.Context

    @property
    def is_unwanted(self) -> bool:
        """True once nobody waits for it."""
        ...


@dataclass(slots=True, eq=False)
class _Turn:
    """The right of one thread to run a check, and when it was last seen to go on with it.

    ``replace_hung`` takes how many threads more there are to be beside it: 1 while it hangs, -1 when it goes on.
    """

    replace_hung: Callable[[int], None]
    seen_at: float = 0.0
    is_passed_over: bool = False
    gate: threading.Lock = field(default_factory=threading.Lock)


class _Turns:
    """Lets one thread at a time run checks, in order of arrival."""

    def __init__(self) -> None:
        self._lock = forkable_lock()
        self._holder: _Turn | None = None
        self._waiting: deque[_Turn] = deque()

    def take(self, turn: _Turn) -> None:
        """Wait for the turn."""
        with self._lock:
            if self._holder is None:
                self._give_to(turn)
                return
            turn.gate.acquire()
            self._waiting.append(turn)
        turn.gate.acquire()
        turn.gate.release()

    def give(self, turn: _Turn) -> None:
        """Hand the turn to whoever waits longest."""
        with self._lock:
            if self._holder is turn:
                self._hand_on()
        if turn.is_passed_over:
            turn.is_passed_over = False
            turn.replace_hung(-1)

    def yield_turn(self, turn: _Turn) -> None:
        """Let the others have theirs first."""
        if self._waiting or turn.is_passed_over:
            self.give(turn)
            self.take(turn)

    def pass_over_hung(self) -> None:
        """Hand the turn on when its holder has not gone on for long, as when a validator waits for something."""
        with self._lock:
            hung = self._holder
            if hung is None or time.monotonic() - hung.seen_at < HUNG_SECONDS:
                return
            hung.is_passed_over = True
            self._hand_on()
        hung.replace_hung(1)

    def _hand_on(self) -> None:
        self._holder = None
        if self._waiting:
            following = self._waiting.popleft()
            self._give_to(following)
            following.gate.release()

    def _give_to(self, turn: _Turn) -> None:
        self._holder, turn.seen_at = turn, time.monotonic()


def run_in_turn(job: Job, replace_hung: Callable[[int], None]) -> Any:
    """Run a job's work in this thread once its turn has come. It stops at its next step when nobody wants it."""
    turns, turn = _turns, _Turn(replace_hung)
    started = paused = 0.0

    def look() -> int:
        nonlocal started, paused
        if job.is_unwanted:
            raise steps.WorkStopped
        turn.seen_at = now = time.monotonic()
        if now - started > _TURN_SECONDS:
            turns.yield_turn(turn)
            started = time.monotonic()
        if now - paused > _SECONDS_BETWEEN_PAUSES:
            # An event loop asks for the interpreter after each system call, and would wait five milliseconds for it.
            time.sleep(_PAUSE_SECONDS)
            paused = time.monotonic()
        return steps.STEPS_BETWEEN_LOOKS

    turns.take(turn)
    try:
        started = paused = time.monotonic()
        return job.variables.run(steps.run_metered, job.work, steps.STEPS_BETWEEN_LOOKS, look)
    finally:
        turns.give(turn)


def pass_over_hung() -> None:
    """Let the next thread have its turn when the one whose turn it is hangs."""
    _turns.pass_over_hung()


_turns = _Turns()


def _forget() -> None:
    """In a forked child: the thread whose turn it was did not come along."""
    global _turns  # noqa: PLW0603 - one turn for the process
    _turns = _Turns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
