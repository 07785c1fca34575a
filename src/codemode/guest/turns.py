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
# An answer that has a value, and where that begins at the latest.
VALUE, HEAD = ',"value":', 64
AGAIN = "again"  # the kernel has asked what became of the program, and is told so in a job
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
        self._until = 0.0  # when its time is over, for a program that is to be stopped here
        self._stands_still = False  # between turns
        self._ended = 0.0

    # What each first run of a function costs in a forked process is more than what it does: so there are few.
    def bound(self, milliseconds: int, counts_waiting: bool) -> None:
        """Let the program take no longer. The turn in which this is said has begun."""
        self._until, self._stands_still = self._now() + milliseconds / 1000, not counts_waiting
        self._context.set_time_limit(milliseconds / 1000)

    def reset(self) -> None:
        """Forget a rehearsed program."""
        self.tell("reset", "")
        if self._until:
            self._until = 0.0
            self._context.set_time_limit(NO_LIMIT)

    def stood_still(self, milliseconds: int) -> None:
        """Let the program take so much longer: the host's clock stood still between two of its turns."""
        if self._until:
            self._until += milliseconds / 1000

    def take(self, operation: str, text: str) -> tuple[str, bool]:
        """Take a turn: the lines that the kernel has to say, and whether the program has ended."""
        if self._until:
            if self._stands_still:
                self._until += self._now() - self._ended
            if VALUE not in text[:HEAD]:  # that of a timer runs its callback at once
                self._limit()
        return self.go_on(operation, text)

    def go_on(self, operation: str, argument: object) -> tuple[str, bool]:
        """Take the rest of a turn that has begun."""
        try:
            if self._until and self._is_over():
                return self._stopped()
            self.tell(operation, argument)
            if self._until:
                self._limit()
            if self._run_jobs():
                return self._stopped()
        except Exception:  # which the engine raises when it has stopped a program
            if self._is_over():
                return self._stopped()
            raise
        if self._until:
            if self._stands_still:
                self._ended = self._now()
            self._context.set_time_limit(NO_LIMIT)
        lines = self._flat(self._kernel("drain", ""))
        if lines == AGAIN:
            self._run_jobs()
            lines = self._flat(self._kernel("drain", ""))
        # The kernel says T last, unless the program has ended.
        return lines, not lines.startswith("T", lines.rfind("\n") + 1)

    def has_room(self, memory_limit_bytes: int) -> bool:
        """Whether the engine may take more than a thousandth of its limit still. Asked so that no memory is written."""
        if self._until:
            self._context.set_time_limit(NO_LIMIT)
        self._context.set_memory_limit(memory_limit_bytes - (memory_limit_bytes >> 10))
        try:
            self._kernel("finished", "")
        except Exception:  # noqa: BLE001 -- the engine's class has no name here
            return False
        else:
            return True
        finally:
            self._context.set_memory_limit(memory_limit_bytes)

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

    def _limit(self) -> None:
        """Let the engine stop the program, which it does by processor time of one entry.

        It asks the system for that at each entry, so it is let do so only where the program's own code may run.
        """
        self._context.set_time_limit(max(self._until - self._now(), SHORTEST_SECONDS))

    def _is_over(self) -> bool:
        return 0 < self._until <= self._now()

    def _stopped(self) -> tuple[str, bool]:
        """What the program has written. What it asks for does not count."""
        self._context.set_time_limit(NO_LIMIT)
        lines = self._flat(self._kernel("drain", "")).split("\n")
        return "\n".join([*(line for line in lines if line.startswith("L")), STOPPED]), True
