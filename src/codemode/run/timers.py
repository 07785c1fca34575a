"""The timers of one run on the event loop: each fires once its delay has passed, in the order in which they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from ..protocol.events import CallSettled
from ..protocol.in_flight import delay_ms
from ..protocol.ledger import Fulfilled, LedgerEntry

_AT_ONCE = 64  # that fire before something else has its turn on the loop


class Timers:
    """Calls ``fired`` with the outcome of each timer that is due, of equal ones in the order of their requests.

    ``now_ms`` is the clock that programs are told of: with a timer it is never behind the moment for which it was set.
    """

    def __init__(self, now_ms: Callable[[], int], fired: Callable[[CallSettled], None]) -> None:
        self._now_ms = now_ms
        self._fired = fired
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[float, int]] = []  # a heap; of those withdrawn too
        self._set: dict[int, int] = {}  # by request: the earliest time that its answer may show
        self._handle: asyncio.TimerHandle | None = None

    def set(self, entries: Iterable[LedgerEntry]) -> None:
        """Let timers run, all from this moment."""
        now, shown = self._loop.time(), self._now_ms()
        for entry in entries:
            delay = delay_ms(entry.name, entry.input_json)
            self._set[entry.id] = shown + delay
            heappush(self._due, (now + delay / 1000, entry.id))
        self._wait()

    def stop(self, request_id: int) -> None:
        """Let a timer run no more."""
        self._set.pop(request_id, None)
        self._wait()

    def close(self) -> None:
        """Stop all, and let go of what is to be told."""
        self._set.clear()
        self._wait()
        self._fired = _nobody

    def _wait(self) -> None:
        """Be called when the first is due, and for none that is withdrawn."""
        due = self._due
        while due and due[0][1] not in self._set:
            heappop(due)
        if self._handle is not None:
            if due and self._handle.when() == due[0][0]:
                return
            self._handle.cancel()
        self._handle = self._loop.call_at(due[0][0], self._ring) if due else None

    def _ring(self) -> None:
        self._handle = None
        # A loop calls what is due within its clock's resolution; those behind the first may be due by now too.
        now, left = max(self._loop.time(), self._due[0][0] if self._due else 0.0), _AT_ONCE
        while self._due and self._due[0][0] <= now and left:
            request_id = heappop(self._due)[1]
            shown = self._set.pop(request_id, None)
            if shown is not None:
                left -= 1
                self._fired(CallSettled(request_id, Fulfilled(None), max(self._now_ms(), shown)))
        self._wait()


def _nobody(_settled: CallSettled) -> None:
    """Stand in for what closed timers told."""
