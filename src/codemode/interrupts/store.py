"""A store of interrupts: the newest one of each pending request. In memory; resumes only through its caller."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from ..errors import CodeModeError, CodeModeProtocolError, Resumable
from .interrupt import Interrupt


class InterruptStore:
    """Lets requests of one pause be answered one at a time, in any order, from several places at once.

    Each answer makes a new interrupt with what still waits; an answer must go to the newest one. The answers to one
    invocation are therefore taken one after the other.
    """

    def __init__(self) -> None:
        self._newest: dict[str, Interrupt] = {}
        # Whoever holds or awaits a lock keeps it alive.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def put(self, interrupt: Resumable) -> None:
        """Keep an interrupt, or an error's recovery, as the newest one for each of its pending requests."""
        kept = Interrupt.of(interrupt)
        for request in kept.requests:
            self._newest[request.interrupt_id] = kept

    def get(self, interrupt_id: str) -> Interrupt | None:
        """Return the newest interrupt in which this request is pending."""
        return self._newest.get(interrupt_id)

    async def answer(
        self,
        interrupt_id: str,
        resolution: Any,
        resume: Callable[..., Awaitable[Any]],
    ) -> Any:
        """Resume the newest interrupt with this one answer; an interrupt or a recovery that comes back is kept.

        ``resume(interrupt, resolutions=...)`` does the work, for instance `CodeModeTool.resume`; a function without a
        parameter ``resolutions`` is given them as its second argument. Raises `CodeModeProtocolError` for a request
        that is not pending (any more).
        """
        known = self._pending(interrupt_id)
        lock = self._locks.setdefault(known.outer_tool_call_id, asyncio.Lock())
        async with lock:
            interrupt = self._pending(interrupt_id)
            try:
                result = await _resumed(resume, interrupt, {interrupt_id: resolution})
            except (CodeModeError, asyncio.CancelledError) as error:
                # The other requests are pending still, and what was begun waits in the recovery.
                failure = error if isinstance(error, CodeModeError) else error.__cause__
                if isinstance(failure, CodeModeError) and failure.recovery is not None:
                    self._replace(interrupt, failure.recovery)
                raise
            self._replace(interrupt, result)
            return result

    def _replace(self, interrupt: Interrupt, result: Any) -> None:
        for request in interrupt.requests:
            self._newest.pop(request.interrupt_id, None)
        if isinstance(result, Interrupt):
            self.put(result)

    def _pending(self, interrupt_id: str) -> Interrupt:
        interrupt = self._newest.get(interrupt_id)
        if interrupt is None:
            raise CodeModeProtocolError(f"{interrupt_id!r} is not pending")
        return interrupt


def _resumed(resume: Callable[..., Awaitable[Any]], interrupt: Interrupt, answers: Mapping[str, Any]) -> Awaitable[Any]:
    # By name wherever it can be: the second argument of `CodeModeTool.resume` is one resolution.
    return resume(interrupt, resolutions=answers) if _takes_resolutions(resume) else resume(interrupt, answers)


def _takes_resolutions(resume: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(resume).parameters
    except (TypeError, ValueError):
        return True
    by_name = parameters.get("resolutions")
    if by_name is not None and by_name.kind is not by_name.POSITIONAL_ONLY:
        return True
    return any(one.kind is one.VAR_KEYWORD for one in parameters.values())
