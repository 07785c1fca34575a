"""One execution of the codeMode tool: from a program to its value. Knows order and bookkeeping, no rule of the run."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Mapping
from typing import Any, cast
from weakref import ref

from ..continuations.key_warnings import warn_if_unshared
from ..continuations.sealing import pack
from ..data.json_values import MAX_DEPTH, check_values, decode_json, nests_deeper_than, utf8_length, well_formed
from ..errors import (
    CALL_TIMEOUT,
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeTimeoutError,
    CodeModeWorkerError,
)
from ..host.cancellation import to_its_end
from ..host.threads import run_check
from ..interrupts.interrupt import Interrupt, pending_requests
from ..interrupts.resolutions import Answer
from ..observe.reporter import Reporter
from ..options.parts import CodeModeOptions
from ..profile import Profile
from ..protocol import events
from ..protocol.continuation import Continuation, texts_of
from ..protocol.invocation import Invocation
from ..protocol.ledger import Ledger, LedgerEntry, Rejected
from ..protocol.settings import Settings
from ..source.cache import AnalysedProgram, ProgramCache
from ..source.checks import check_program
from ..tools.catalog import Catalog
from ..tools.tool import Tool
from ..workers import nesting
from ..workers.image import engine_version
from ..workers.pool import WorkerPool, pool_or_default
from .allowed_input import CheckedInput
from .identity import derived_identity
from .nested_call import NestedCalls
from .optional_parts import fetches_of, require_cipher, telemetry_listeners
from .outer_call import OuterCall
from .program_text import check_source
from .recovery import Recovery, begun_ledger
from .runner import Runner

_ANALYSIS_MS = 50
_programs = ProgramCache()


class Execution:
    """Runs one program, from its source or from a continuation, on one worker."""

    def __init__(
        self,
        profile: Profile,
        catalog: Catalog[Tool],
        options: CodeModeOptions,
        outer: OuterCall,
        pool: WorkerPool | None,
    ) -> None:
        self._profile = profile
        self._catalog = catalog
        self._options = options = options.under(profile.limits)
        self._outer = outer
        self._pool = pool_or_default(pool)
        self._threads = self._pool.threads.of_invocation(nesting.depth())
        self._fetches = fetches_of(options)
        require_cipher(options)
        self._source = ""
        self._known: AnalysedProgram | None = None
        self._answers: Mapping[int, Answer] = {}
        self._inputs: Mapping[int, CheckedInput] = {}
        self._machine: Invocation | None = None
        self._kept_inputs: dict[int, str] = {}
        self._resumed: Interrupt | None = None
        self._engine: str | None = None  # that of a pause which is given on as it is
        self._way_on: Interrupt | None = None
        self._random = secrets.token_hex(32)
        invocation_id = "code-mode-" + self._random[:16]
        self._outer_tool_call_id = outer.tool_call_id if outer.tool_call_id is not None else invocation_id
        listeners = telemetry_listeners(options, self._catalog.get, profile.outer_tool)
        self._reporter = Reporter(options.lifecycle, invocation_id, self._outer_tool_call_id, listeners)

    async def start(self, js: str) -> Any:
        """Run a program. Returns its value, or an `Interrupt`."""
        check_source(js, self._options.execution_policy)
        self._source = well_formed(js)
        continuation, outer = self._options.continuation, self._outer
        identify = derived_identity(continuation, outer.tool_call_id, outer.context_binding, outer.started_at_ms)
        return await self._run(Invocation(self._settings(), identify=identify))

    async def resume(
        self,
        continuation: Continuation,
        answers: Mapping[int, Answer],
        inputs: Mapping[int, CheckedInput],
        interrupt: Interrupt,
    ) -> Any:
        """Go on with a paused program, whose ``interrupt`` it was, with what the answered calls run with.

        Returns its value, or the next `Interrupt`.
        """
        self._answers, self._inputs, self._resumed = answers, inputs, interrupt
        machine = Invocation(
            continuation.settings(self._settings()), recorded=continuation.ledger, resolved=answers.keys()
        )
        return await self._run(machine, continuation.js)

    async def lapsed(
        self, continuation: Continuation, answers: Mapping[int, Answer], inputs: Mapping[int, CheckedInput]
    ) -> CodeModeError:
        """Return the error for a resume with these answers whose host is gone, with the way to go on from there."""
        machine = Invocation(continuation.settings(self._settings()))
        machine.js, self._engine = continuation.js, continuation.engine
        policy = self._options.approval
        machine.ledger = begun_ledger(continuation.ledger, answers, inputs, policy, now_ms())
        shown = {request_id: one.shown_json for request_id, one in inputs.items() if one.shown_json is not None}
        ledger = Recovery(self._catalog, shown).ledger(machine.ledger, machine.settings.salt)
        error = CodeModeAbortedError(
            "the host that went on with this program is gone and did not say how it ended: what was answered may have"
            " run, and its outcome is unknown",
            details={"is_resumed": True, "origin": "continuation"},
        )
        error.calls = tuple(_call_status(entry) for entry in machine.ledger.entries)
        error.recovery = await self._interrupt(machine, ledger)
        return error

    @property
    def has_gone_on(self) -> bool:
        """True once a tool was begun or somebody was given a new way to go on: what was resumed is used up."""
        entries = self._machine.ledger.entries if self._machine is not None else ()
        return self._way_on is not None or any(entry.is_started for entry in entries)

    async def way_on(self) -> Interrupt | None:
        """Return from where to go on, or to come to the same result again: what has run does not run again."""
        return None if self._machine is None else await self._recovery(self._machine)

    async def _run(self, machine: Invocation, js: str | None = None) -> Any:
        self._machine = machine
        self._reporter.started(self._source if js is None else js)
        try:
            with self._threads.serving():
                return await self._run_to_its_end(machine, js)
        except asyncio.CancelledError as cancelled:
            if cancelled.__cause__ is not None:
                raise
            # It came while async hooks were awaited. What has happened must not be lost with the caller.
            raise cancelled from await self._told(CodeModeAbortedError("the invocation was cancelled"), machine)

    async def _run_to_its_end(self, machine: Invocation, js: str | None) -> Any:
        try:
            ending = await self._drive(machine, js)
        except asyncio.CancelledError as cancelled:
            raise cancelled from await self._failed(CodeModeAbortedError("the invocation was cancelled"), machine)
        except CodeModeError as error:  # there was no worker
            await self._failed(error, machine)
            raise
        if isinstance(ending, events.Failed):
            raise await self._failed(ending.error, machine)
        if isinstance(ending, events.Interrupted):
            return await self._interrupted(machine)
        try:
            value = await self._read_result(ending.value_json)
        except CodeModeError as error:
            await self._failed(error, machine)
            raise
        if self._reporter.is_watched or self._outer.on_result is not None:
            text = ending.value_json
            trace = await self._reporter.ended(result_bytes=None if text is None else utf8_length(text))
            if self._outer.on_result is not None:
                self._outer.on_result(self._outer_tool_call_id, value, trace)
        return value

    async def _read_result(self, text: str | None) -> Any:
        if text is None:
            return None
        max_values = self._options.execution_policy.max_values
        return await run_check(len(text), lambda: _decoded_result(text, max_values))

    async def _drive(self, machine: Invocation, js: str | None) -> events.Ending:
        on_saturation = self._options.execution_policy.on_saturation
        lease = await self._pool.acquire(machine.settings.memory_limit_bytes, on_saturation)
        lease.wait_for(self._threads)
        try:
            self._reporter.worker_taken()
            runner = Runner(machine, lease, self._nested_calls(machine), self._reporter, self._check)
        except BaseException:
            lease.leave()
            raise
        loop = asyncio.get_running_loop()
        try:
            # The next invocation finds one spare; the rest is started when this one no longer needs the processors.
            loop.call_soon(lease.refill, 1)
            runner.start(self._first_effects(machine) if js is None else machine.start(js, analysis_ms=None))
            return await runner.ended
        finally:
            await runner.close()
            if not loop.is_closed():
                loop.call_soon(lease.refill)

    def _first_effects(self, machine: Invocation) -> list[events.Effect]:
        self._known = _programs.get(self._source, self._profile.name)
        if self._known is not None:
            return [events.CheckProgram(self._known.js, self._known.facts)]
        return machine.start(self._source, analysis_ms=_ANALYSIS_MS)

    def _check(self, js: str, facts: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], ...]:
        if self._known is None and facts is not None:
            _programs.put(self._source, AnalysedProgram(js, facts), self._profile.name)
        if facts is None or not self._options.execution_policy.check_program:
            return ()
        if self._known is not None and self._known.fits(self._catalog):
            return ()
        problems = tuple(check_program(facts, self._catalog, self._input_schema))
        if self._known is not None and not problems:
            self._known.fitted = ref(self._catalog)
        return problems

    def _input_schema(self, name: str) -> Any:
        tool = self._catalog.get(name)
        return None if tool is None else tool.input_json_schema

    def _nested_calls(self, machine: Invocation) -> NestedCalls:
        return NestedCalls(
            catalog=self._catalog,
            options=self._options,
            outer_tool_call_id=machine.settings.outer_tool_call_id,
            messages=self._outer.messages,
            context=self._outer.context,
            aborted=asyncio.Event(),
            now_ms=self._outer.clock_ms or now_ms,
            salt=lambda: machine.settings.salt,
            answers=self._answers,
            threads=self._threads,
            fetches=self._fetches,
            kept_inputs=self._kept_inputs,
            checked=self._inputs,
        )

    async def _interrupted(self, machine: Invocation) -> Interrupt:
        interrupt = await self._interrupt(machine, machine.ledger)
        for entry in machine.ledger.waiting:
            self._reporter.still_waiting(entry)
        self._reporter.interrupted(interrupt)
        await self._reporter.ended(interrupted_by=interrupt)
        return interrupt

    async def _failed(self, error: CodeModeError, machine: Invocation) -> CodeModeError:
        error.trace = await self._reporter.ended(error=await self._told(error, machine))
        return error

    async def _told(self, error: CodeModeError, machine: Invocation) -> CodeModeError:
        """Return the error with what had happened by then, and the way to go on where there is one."""
        error.calls = tuple(_call_status(entry) for entry in machine.ledger.entries)
        if self._resumed is not None:
            error.details["is_resumed"] = True
        if isinstance(error, CodeModeTimeoutError | CodeModeAbortedError | CodeModeWorkerError):
            error.recovery = await self._recovery(machine)
        return error

    async def _recovery(self, machine: Invocation) -> Interrupt | None:
        if machine.js is None:
            return None
        if self._resumed is not None and not self.has_gone_on:
            return self._resumed
        recovery = Recovery(self._catalog, self._kept_inputs)
        return await self._interrupt(machine, recovery.ledger(machine.ledger, machine.settings.salt))

    async def _interrupt(self, machine: Invocation, ledger: Ledger) -> Interrupt:
        """Return the one way to go on from this run: with two of them the calls that are left could run twice."""
        if self._way_on is None:
            with self._threads.serving():
                await to_its_end(self._keep_way_on(machine, ledger))
        return cast("Interrupt", self._way_on)

    async def _keep_way_on(self, machine: Invocation, ledger: Ledger) -> None:
        # Kept here, where no cancellation of the caller reaches: whoever comes next must not make another one.
        self._way_on = await run_check(0, lambda: self._paused(machine, ledger))

    def _paused(self, machine: Invocation, ledger: Ledger) -> Interrupt:
        warn_if_unshared(self._options.continuation)
        continuation = Continuation.of(machine.js or "", self._engine or engine_version(), machine.settings, ledger)
        texts, binding = texts_of(continuation.to_dict()), self._outer.context_binding
        return Interrupt(
            requests=pending_requests(ledger.waiting),
            outer_tool_call_id=machine.settings.outer_tool_call_id,
            continuation=pack(texts, self._options.continuation, now_ms(), binding),
        )

    def _settings(self) -> Settings:
        policy = self._options.execution_policy
        return Settings(
            outer_tool_call_id=self._outer_tool_call_id,
            salt=self._random[16:32],
            seed=self._random[32:],
            started_ms=self._outer.started_at_ms or now_ms(),
            timeout_ms=policy.timeout_ms,
            max_result_bytes=policy.max_result_bytes,
            max_tool_input_bytes=policy.max_tool_input_bytes,
            max_bridge_requests=policy.max_bridge_requests,
            max_in_flight_bridge_requests=policy.max_in_flight_bridge_requests,
            max_catalog_requests=policy.max_catalog_requests,
            max_console_bytes=policy.max_console_bytes,
            max_ledger_bytes=policy.max_ledger_bytes,
            memory_limit_bytes=policy.memory_limit_bytes,
            max_stack_size_bytes=policy.max_stack_size_bytes,
            profile=self._profile,
            language_names=self._catalog.language_names,
            clock=policy.clock,
            fetch=self._fetches is not None,
        )


def now_ms() -> int:
    """Return the host's wall clock in milliseconds."""
    return time.time_ns() // 1_000_000


def _decoded_result(text: str, max_values: int) -> Any:
    check_values(text, max_values, "the program's result")
    if nests_deeper_than(text, MAX_DEPTH):
        raise CodeModeSerializationError(f"the program's result nests deeper than {MAX_DEPTH} levels")
    try:
        return decode_json(text, max_depth=len(text))
    except ValueError as error:
        raise CodeModeProtocolError(f"the program's result cannot be read: {error}") from error


def _call_status(entry: LedgerEntry) -> dict[str, Any]:
    outcome = entry.outcome
    is_unknown = outcome is None or (isinstance(outcome, Rejected) and outcome.code == CALL_TIMEOUT)
    status = "unknown" if is_unknown else type(outcome).__name__.lower()
    begun = entry.is_started or outcome is not None
    return {"id": entry.tool_call_id or str(entry.id), "name": entry.name, "status": status, "is_started": begun}


def _forget_programs() -> None:  # in a forked child of the host: a thread that is not in it may hold the cache's lock
    global _programs  # noqa: PLW0603 - one cache for the process
    _programs = ProgramCache()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_programs)
