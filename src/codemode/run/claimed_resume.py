"""One resume under its claim: run it, keep the claim alive, record what it came to. Knows no keys and no signatures."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ..continuations.guard import LAPSED, Claim, ResumeGuard
from ..continuations.renewal import ClaimLost, renewed
from ..errors import (
    CodeModeAbortedError,
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeWorkerError,
)
from ..host import steps
from ..host.cancellation import to_its_end
from ..host.threads import LARGE_CHARACTERS, run_check
from ..interrupts.interrupt import Interrupt
from ..interrupts.resolutions import Answer
from ..protocol.continuation import Continuation
from .allowed_input import CheckedInput
from .execution import Execution
from .outer_call import OuterCall
from .recorded_outcomes import RecordedOutcomes

_OUTSIDE_ERRORS = (
    CodeModeAbortedError,
    CodeModeConcurrencyError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeWorkerError,
)


@dataclass(frozen=True, slots=True)
class ClaimedResume:
    """A resume that was checked, and where its claim and its outcome are kept."""

    guard: ResumeGuard
    claim: Claim
    outcomes: RecordedOutcomes
    execution: Execution
    outer: OuterCall
    continuation: Continuation
    answers: Mapping[int, Answer]
    inputs: Mapping[int, CheckedInput]
    interrupt: Interrupt

    async def run(self) -> Any:
        """Go on with the program, whose claim is ours. Returns its value or the next interrupt."""
        try:
            async with renewed(self.guard, self.claim.key), _underway(self.claim.key):
                value = await self.execution.resume(self.continuation, self.answers, self.inputs, self.interrupt)
        except ClaimLost:
            return await self.as_claimed(await self.guard.claim(self.claim))
        except BaseException as error:
            await self._settle(error)
            raise
        return await self._recorded(value)

    async def as_claimed(self, standing: Any) -> Any:
        """Return, or raise, what somebody else's resume came to: its outcome, or that nobody knows it."""
        if standing is LAPSED:
            return await self._lapsed()
        if standing is None:
            raise CodeModeAbortedError("the claim of this resume was lost", details={"origin": "continuation"})
        value = await run_check(len(standing), lambda: self.outcomes.replayed(standing))
        if self.outer.on_result is not None and not isinstance(value, Interrupt):
            self.outer.on_result(self.continuation.kept["outer_tool_call_id"], value, None)
        return value

    async def _lapsed(self) -> Any:
        error = await self.execution.lapsed(self.continuation, self.answers, self.inputs)
        # The owner may have come back meanwhile: there is one outcome, and one way to go on.
        text, standing = await self._kept(self.outcomes.of_error, error)
        if isinstance(standing, str) and standing != text:
            return await self.as_claimed(standing)
        raise error

    async def _settle(self, error: BaseException) -> None:
        try:
            # Nothing was run and the program did not get to its end: as if nobody had tried.
            if not self.execution.has_gone_on and not _is_programs_end(error):
                await self.guard.release(self.claim.key)
            else:
                await self._kept(self.outcomes.of_error, error)
        except Exception as failure:  # noqa: BLE001 - a guard is host code; what it raises must not hide the recovery
            error.add_note(f"The resume guard failed too: {failure!r}")

    async def _recorded(self, value: Any) -> Any:
        try:
            text, standing = await self._kept(self.outcomes.of_value, value)
        except Exception as failure:
            error = CodeModeError("the program went on, but the resume guard did not take its outcome")
            error.recovery = await self.execution.way_on()
            raise error from failure
        # A guard that gives nothing back has kept it. Another outcome stands where this host stood still for too long.
        return await self.as_claimed(standing) if isinstance(standing, str) and standing != text else value

    async def _kept(self, write: Callable[[Any], str], outcome: Any) -> tuple[str, Any]:
        """Write an outcome and record it. Returns its text and what stands."""
        try:
            text = steps.run_on_the_loop(lambda: write(outcome))
        except steps.TooLongForTheLoop:
            # Whoever is cancelled meanwhile has recorded it nevertheless.
            return await to_its_end(self._kept_elsewhere(write, outcome))
        return text, await self.guard.record(self.claim.key, text)

    async def _kept_elsewhere(self, write: Callable[[Any], str], outcome: Any) -> tuple[str, Any]:
        text = await run_check(LARGE_CHARACTERS, lambda: write(outcome))
        return text, await self.guard.record(self.claim.key, text)


@dataclass(slots=True)
class _Underway:
    """A resume that the code in this context is part of, until it has ended."""

    key: str
    outer: _Underway | None
    has_ended: bool = False


_innermost: ContextVar[_Underway | None] = ContextVar("codemode_underway", default=None)


@asynccontextmanager
async def _underway(key: str) -> AsyncGenerator[None]:
    one = _Underway(key, _innermost.get())
    token = _innermost.set(one)
    try:
        yield
    finally:
        one.has_ended = True
        with suppress(ValueError):  # a coroutine that nobody awaits any more is closed in another context
            _innermost.reset(token)


def refuse_own(key: str) -> None:
    """Raise `CodeModeProtocolError` when what asks for a resume is part of it: it would wait for its own outcome."""
    one = _innermost.get()
    while one is not None:
        if one.key == key and not one.has_ended:
            raise CodeModeProtocolError(
                "this continuation is being resumed by the program whose call asks for it: it would wait for itself"
            )
        one = one.outer


def _is_programs_end(error: BaseException) -> bool:
    return isinstance(error, CodeModeError) and not isinstance(error, _OUTSIDE_ERRORS)
