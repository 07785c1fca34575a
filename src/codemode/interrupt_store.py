"""Which interrupt is the newest one that holds a pending request. In memory; resumes only through its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from .errors import CodeModeProtocolError
from .interrupts import Interrupt


class InterruptStore:
    """Lets requests of one pause be answered one at a time, in any order, from several places at once.

    Each answer makes a new interrupt with what still waits; an answer must go to the newest one. The answers to one
    invocation are therefore taken one after the other.
    """

    def __init__(self) -> None:
        self._newest: dict[str, Interrupt] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def put(self, interrupt: Interrupt) -> None:
        """Keep an interrupt as the newest one for each of its pending requests."""
        for request in interrupt.requests:
            self._newest[request.interrupt_id] = interrupt

    def get(self, interrupt_id: str) -> Interrupt | None:
        """Return the newest interrupt in which this request is pending."""
        return self._newest.get(interrupt_id)

    async def answer(
        self,
        interrupt_id: str,
        resolution: Any,
        resume: Callable[[Interrupt, Mapping[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Resume the newest interrupt with this one answer; an interrupt that comes back is kept.

        ``resume(interrupt, resolutions)`` does the work, for instance `CodeModeTool.resume`. Raises
        `CodeModeProtocolError` for a request that is not pending (any more).
        """
        known = self._pending(interrupt_id)
        lock = self._locks.setdefault(known.outer_tool_call_id, asyncio.Lock())
        async with lock:
            interrupt = self._pending(interrupt_id)
            result = await resume(interrupt, {interrupt_id: resolution})
            for request in interrupt.requests:
                self._newest.pop(request.interrupt_id, None)
            if isinstance(result, Interrupt):
                self.put(result)
            elif not lock.locked():
                self._locks.pop(known.outer_tool_call_id, None)
            return result

    def _pending(self, interrupt_id: str) -> Interrupt:
        interrupt = self._newest.get(interrupt_id)
        if interrupt is None:
            raise CodeModeProtocolError(f"{interrupt_id!r} is not pending")
        return interrupt
