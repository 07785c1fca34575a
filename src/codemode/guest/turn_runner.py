"""Runs the turns of a program in its engine, within its time limit per turn.

Output that a stopped program wrote in its last turn is still sent. The host has the last word, and kills a worker that
does not stop. Loaded by path in locked workers: imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

JOBS_PER_CHECK = 64
MIN_LIMIT_SECONDS = 0.005
NO_LIMIT = -1
# An answer that has a value, and where that begins at the latest.
VALUE_KEY, MAX_VALUE_OFFSET = ',"value":', 64
RUN_JOBS_AGAIN = "again"  # the guest runtime asked how the program ended, and gets the answer in a job
STOPPED_MESSAGE = 'F{"message": "stopped", "origin": "time"}'


class TurnRunner:
    """Takes the turns of one program: each begins with a call of the guest runtime and ends when nothing is left to do.

    ``error_class`` is raised for an invalid answer of the guest runtime; ``clock`` and ``processor_clock`` return
    seconds. The engine stops a program by its processor time, which may run ahead of an adjusted ``clock``.
    """

    def __init__(
        self,
        context: Any,
        runtime: Callable[..., object],
        error_class: type[Exception],
        clock: Callable[[], float],
        processor_clock: Callable[[], float],
    ) -> None:
        self._context = context
        self._runtime = runtime
        self._error_class = error_class
        self._clock = clock
        self._processor_clock = processor_clock
        self._deadline = 0.0  # when its time is over, for a program that is to be stopped here
        self._engine_deadline = 0.0  # the processor time at which the engine may stop the turn that has begun
        self._excludes_waiting = False  # between turns
        self._turn_ended_at = 0.0

    # The first run of a function costs more in a forked process than its work: so there are few functions.
    def set_time_limit(self, milliseconds: int, counts_waiting: bool) -> None:
        """Set the program's time limit. The turn in which this is called has begun."""
        self._deadline, self._excludes_waiting = self._clock() + milliseconds / 1000, not counts_waiting
        self._set_engine_deadline()

    def reset_after_warm_up(self) -> None:
        """Remove the warm-up program and its time limit."""
        self.call_runtime("reset", "")
        if self._deadline:
            self._deadline = self._engine_deadline = 0.0
            self._context.set_time_limit(NO_LIMIT)

    def extend_deadline(self, milliseconds: int) -> None:
        """Let the program take so much longer: the host's clock stood still between two of its turns."""
        if self._deadline:
            self._deadline += milliseconds / 1000

    def run_turn(self, operation: str, text: str) -> tuple[str, bool]:
        """Take a turn: return the output lines of the guest runtime, and whether the program has ended."""
        if self._deadline:
            if self._excludes_waiting:
                self._deadline += self._clock() - self._turn_ended_at
            if VALUE_KEY not in text[:MAX_VALUE_OFFSET]:  # that of a timer runs its callback at once
                self._set_engine_deadline()
        return self.finish_turn(operation, text)

    def finish_turn(self, operation: str, argument: object) -> tuple[str, bool]:
        """Take the rest of a turn that has begun."""
        try:
            if self._deadline and self._is_overdue():
                return self._collect_stopped_output()
            self.call_runtime(operation, argument)
            if self._deadline:
                self._set_engine_deadline()
            if self._run_jobs_until_overdue():
                return self._collect_stopped_output()
        except Exception:  # which the engine raises when it has stopped a program
            if self._is_overdue():
                return self._collect_stopped_output()
            raise
        if self._deadline:
            if self._excludes_waiting:
                self._turn_ended_at = self._clock()
            self._engine_deadline = 0.0
            self._context.set_time_limit(NO_LIMIT)
        lines = self._require_text(self._runtime("drain", ""))
        if lines == RUN_JOBS_AGAIN:
            self._run_jobs_until_overdue()
            lines = self._require_text(self._runtime("drain", ""))
        # The last line of the guest runtime is T, unless the program has ended.
        return lines, not lines.startswith("T", lines.rfind("\n") + 1)

    def probe_free_memory(self, memory_limit_bytes: int) -> bool:
        """Return whether the engine may take more than a thousandth of its limit. Writes no memory."""
        if self._deadline:
            self._context.set_time_limit(NO_LIMIT)
        self._context.set_memory_limit(memory_limit_bytes - (memory_limit_bytes >> 10))
        try:
            self._runtime("finished", "")
        except Exception:  # noqa: BLE001 -- the engine's class has no name here
            return False
        else:
            return True
        finally:
            self._context.set_memory_limit(memory_limit_bytes)

    def call_runtime(self, operation: str, argument: object) -> None:
        """Call an operation of the guest runtime that returns "ok"."""
        answer = self._runtime(operation, argument)
        if answer != "ok":
            raise self._error_class(self._require_text(answer))

    def _require_text(self, answer: object) -> str:
        if type(answer) is not str:
            raise self._error_class("the kernel returned no text")
        return answer

    def _run_jobs_until_overdue(self) -> bool:
        """Run what is to be run until there is nothing more, or the program has ended; True: its time is over."""
        execute_pending_job, jobs = self._context.execute_pending_job, 0
        while execute_pending_job():
            jobs += 1
            if jobs % JOBS_PER_CHECK:
                continue
            # Jobs that run forever after the end must not hold back the result.
            if self._runtime("finished", "") == "1":
                break
            if self._is_overdue():
                return True
        return False

    def _set_engine_deadline(self) -> None:
        """Allow the engine to stop the program by the processor time of one entry.

        The engine asks the system for that time at each entry, so only entries that may run the program's own code
        allow it.
        """
        seconds = max(self._deadline - self._clock(), MIN_LIMIT_SECONDS)
        self._engine_deadline = self._processor_clock() + seconds
        self._context.set_time_limit(seconds)

    def _is_overdue(self) -> bool:
        return self._deadline > 0 and (
            self._deadline <= self._clock() or 0 < self._engine_deadline <= self._processor_clock()
        )

    def _collect_stopped_output(self) -> tuple[str, bool]:
        """Return the program's output. Its requests do not count."""
        self._context.set_time_limit(NO_LIMIT)
        lines = self._require_text(self._runtime("drain", "")).split("\n")
        return "\n".join([*(line for line in lines if line.startswith("L")), STOPPED_MESSAGE]), True
