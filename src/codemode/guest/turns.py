"""The turns of a program in its engine, and how long it may take in them before its own worker stops it.

A program that is stopped here has not written in vain: what it wrote in the turn goes out. The host has the last word,
and kills whoever does not stop. Loaded by path in locked workers: imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

JOBS_PER_CHECK = 64
SHORTEST_SECONDS = 0.005
NO_LIMIT = -1
STOPPED = 'F{"message": "stopped", "origin": "time"}'


class Turns:
    """Takes the turns of one program: each begins with a word to the kernel and ends when nothing is left to do.

    ``failed`` is what is raised for what the kernel should not have said; ``now`` gives seconds.
    """

    def __init__(
        self, context: Any, kernel: Callable[..., object], failed: type[Exception], now: Callable[[], float]
    ) -> None:
        self._context = context
        self._kernel = kernel
        self._failed = failed
        self._now = now
        self._time: TurnTime | None = None

    def bound(self, milliseconds: int, counts_waiting: bool) -> None:
        """Let the program take no longer. The turn in which this is said has begun."""
        self._time = TurnTime(milliseconds / 1000, counts_waiting, self._context.set_time_limit, self._now)
        self._time.begin()

    def take(self, operation: str, argument: object) -> tuple[str, bool]:
        """Take a turn: the lines that the kernel has to say, and whether the program has ended."""
        if self._time is not None:
            self._time.begin()
        return self.go_on(operation, argument)

    def go_on(self, operation: str, argument: object) -> tuple[str, bool]:
        """Take the rest of a turn that has begun."""
        try:
            if self._is_over():
                return self._stopped()
            self.tell(operation, argument)
            if self._run_jobs():
                return self._stopped()
        except Exception:  # which the engine raises when it has stopped a program
            if self._is_over():
                return self._stopped()
            raise
        if self._time is not None:
            self._time.end()
        lines = self._flat(self._kernel("drain", ""))
        # The kernel says T last, unless the program has ended.
        return lines, not lines.startswith("T", lines.rfind("\n") + 1)

    def tell(self, operation: str, argument: object) -> None:
        """Tell the kernel something to which it has nothing to say."""
        said = self._kernel(operation, argument)
        if said != "ok":
            raise self._failed(self._flat(said))

    def _flat(self, said: object) -> str:
        if type(said) is not str:
            raise self._failed("the kernel returned no text")
        return said

    def _run_jobs(self) -> bool:
        """Run what is to be run until there is nothing more, or the program has ended; True: its time is over."""
        execute_pending_job, jobs = self._context.execute_pending_job, 0
        while execute_pending_job():
            jobs += 1
            if jobs % JOBS_PER_CHECK:
                continue
            # Jobs that go on for ever after the end must not hold back the result.
            if self._kernel("finished", "") == "1":
                break
            if self._is_over():
                return True
        return False

    def _is_over(self) -> bool:
        return self._time is not None and self._time.is_over()

    def _stopped(self) -> tuple[str, bool]:
        """What the program has written. What it asks for does not count."""
        self._context.set_time_limit(NO_LIMIT)
        lines = self._flat(self._kernel("drain", "")).split("\n")
        return "\n".join([*(line for line in lines if line.startswith("L")), STOPPED]), True


class TurnTime:
    """What is left of some ``seconds``. With ``counts_waiting`` the time between turns is spent too.

    ``set_time_limit`` is the engine's, which counts processor time of one entry; ``now`` gives seconds.
    """

    def __init__(
        self, seconds: float, counts_waiting: bool, set_time_limit: Callable[[float], None], now: Callable[[], float]
    ) -> None:
        self._left = seconds
        self._counts_waiting = counts_waiting
        self._set_time_limit = set_time_limit
        self._now = now
        self._began = self._ended = now()

    def begin(self) -> None:
        """Begin a turn: the engine stops what takes longer than what is left."""
        now = self._now()
        if self._counts_waiting:
            self._left -= now - self._ended
        self._began = now
        self._set_time_limit(max(self._left, SHORTEST_SECONDS))

    def is_over(self) -> bool:
        """Whether this turn has taken more than what was left."""
        return self._now() - self._began >= max(self._left, SHORTEST_SECONDS)

    def end(self) -> None:
        """End a turn."""
        self._ended = self._now()
        self._left -= self._ended - self._began
