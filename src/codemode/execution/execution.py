"""Run one program on one worker, from its text to its outcome."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from ..cached_property import cached_property
from ..continuations.guard import ClaimRenewal
from ..data.content import resolve_content_references
from ..data.json_shape import run_off_loop_if_large
from ..data.json_values import (
    MAX_DEPTH,
    NOT_GIVEN,
    count_utf8_bytes,
    decode_json,
    encode_canonical_json,
    nests_deeper_than,
    require_max_values_in_json_text,
)
from ..data.large_strings import may_have_references
from ..data.rich_values import TAG_START, from_tagged_json, tagged_to_plain_json
from ..errors import (
    CallSummary,
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeTimeoutError,
    CodeModeWorkerError,
)
from ..host.clock import now_ms
from ..host.threads import (
    LARGE_CHARACTERS,
    InvocationThreads,
    InvocationThreadsScope,
    current_threads,
    run_in_thread_if_large_or_slow,
)
from ..interrupts.interrupt import Interrupt
from ..observe.call_events import CallRecord, measure_and_hash_source
from ..observe.reporter import InvocationReporter
from ..options.parts import CodeModeOptions, ExecutionPolicy
from ..profile import SurfaceSettings
from ..protocol import events
from ..protocol.call_status import get_displayed_call_id, summarize_calls
from ..protocol.invocation import Invocation
from ..protocol.ledger import Ledger, LedgerEntry
from ..protocol.references import ContentRegistry, LargeStringRegistry
from ..protocol.settings import InvocationSettings
from ..tools.catalog import ToolCatalog
from ..tools.prepared import PreparedTool
from ..trace.events import ConsoleEvent
from ..workers.lease import PooledWorkerLease, compute_nesting_depth
from ..workers.pool import WorkerPool, get_pool_or_default
from .call_content import InvocationContent
from .call_context import OuterCallSettings
from .call_values import AnsweredPause
from .direct_call import DirectCall, DirectCallWorkerStandIn
from .identity import ProgramAlreadyRan, is_continued_elsewhere, make_salt_and_seed_deriver
from .nested_call import NestedCalls
from .optional_parts import NO_PARTS, make_optional_parts
from .outcome import RunOutcome
from .outcome_texts import describe_unhandled_failures
from .programs import LARGE_SOURCE_CHARACTERS, ProgramChecker, accept_checked_program, validate_source
from .recovery import (
    RecoveryLedgerBuilder,
    RecoveryPoint,
    build_ledger_with_started_calls,
    is_read_only_call,
    make_lapsed_resume_error,
)
from .runner import Runner

if TYPE_CHECKING:
    from .journal_opening import RunJournaling


_RESULT_LABEL = "the program's result"
_MAX_INLINE_CHARACTERS = 4096


async def decode_and_measure_result(text: str | None, max_values: int, ledger: Ledger) -> tuple[Any, int | None]:
    """Return a program's value and its bytes of JSON; None is undefined. Raises `CodeModeSerializationError`."""
    if text is None:
        return None, None
    sidecar, contents = ledger.sidecar, ledger.contents
    if contents is not None and contents.parts and (contents.reference_key in text or "\\u" in text):
        return await run_in_thread_if_large_or_slow(
            len(text), lambda: _decode_with_content(text, max_values, contents)
        ), count_utf8_bytes(text)
    if sidecar is None or not may_have_references(text):
        if len(text) <= _MAX_INLINE_CHARACTERS:
            return decode_program_value(text, max_values), count_utf8_bytes(text)
        return await run_in_thread_if_large_or_slow(
            len(text), lambda: decode_program_value(text, max_values)
        ), count_utf8_bytes(text)
    return await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS,
        lambda: (decode_program_value(text, max_values, sidecar), sidecar.measure_restored_bytes(text)),
    )


def _decode_with_content(text: str, max_values: int, contents: ContentRegistry) -> Any:
    return resolve_content_references(decode_program_value(text, max_values), contents, contents.register)


def decode_program_value(
    text: str, max_values: int, sidecar: LargeStringRegistry | None = None, label: str = _RESULT_LABEL
) -> Any:
    """Decode a value of the program from its JSON text.

    Raises `CodeModeSerializationError` for a value that is too deep or too large, `CodeModeProtocolError` for text
    that is not JSON.
    """
    if len(text) > min(MAX_DEPTH, max_values):  # a shorter text is neither too deep nor too large
        require_max_values_in_json_text(text, max_values, label)
        if nests_deeper_than(text, MAX_DEPTH):
            raise CodeModeSerializationError(f"{label} nests deeper than {MAX_DEPTH} levels")
    try:
        return (
            decode_json(text, max_depth=len(text)) if sidecar is None else sidecar.decode_json_with_strings(text, label)
        )
    except ValueError as error:
        raise CodeModeProtocolError(f"{label} cannot be read: {error}") from error


def _convert_tagged_value(convert: Callable[[Any], Any], value: Any) -> Any:
    """Convert the tags of a result. Raises `CodeModeSerializationError` for an unknown tag."""
    try:
        return convert(value)
    except ValueError as error:
        raise CodeModeSerializationError(f"{_RESULT_LABEL} cannot be read: {error}") from None


_SALT_SLICE, _SEED_SLICE = slice(16, 32), slice(32, None)


def make_invocation_and_id(
    machine_type: type[Invocation],
    profile: SurfaceSettings,
    catalog: ToolCatalog[PreparedTool],
    options: CodeModeOptions,
    outer: OuterCallSettings,
    answered_pause: AnsweredPause | None,
    invocation_data: Mapping[str, Any] | None,
) -> tuple[Invocation, str]:
    """Return the state machine and the id by which listeners know this run."""
    call = outer.call
    random = secrets.token_hex(32)
    invocation_id = "code-mode-" + random[:16]
    calls_directly = invocation_data is not None and is_direct_call(invocation_data)
    settings = InvocationSettings(
        outer_tool_call_id=call.tool_call_id if call.tool_call_id is not None else invocation_id,
        salt=random[_SALT_SLICE],
        seed=random[_SEED_SLICE],
        started_ms=call.started_at_ms or now_ms(),
        limits=_without_rich_values(options.execution_policy) if calls_directly else options.execution_policy,
        profile=_with_untruncated_result(profile) if calls_directly else profile,
        language_names=catalog.paths_named_like_javascript_members,
        fetch="fetch" in profile.request_kinds and options.fetch_policy is not None,
        state="state" in profile.request_kinds and (options.has_state or call.state is not None),
        hides_inputs=options.pipeline.before is not None,
        # Each program gets invocation data of its own.
        invocation_data_json=encode_canonical_json(invocation_data) if calls_directly else None,
    )
    if answered_pause is None:
        identify = (
            make_salt_and_seed_deriver(options.continuation, call, invocation_data) if call.tool_call_id else None
        )
        return machine_type(settings, identify=identify), invocation_id
    continuation = answered_pause.continuation
    resolved = answered_pause.answers.keys()
    machine = machine_type(continuation.restore_settings(settings), recorded=continuation.ledger, answered_ids=resolved)
    return machine, invocation_id


def is_direct_call(invocation_data: Mapping[str, Any]) -> bool:
    """Return True if the invocation data describe one call without a program."""
    return invocation_data.get("source") == "invoke"


def _with_untruncated_result(profile: SurfaceSettings) -> SurfaceSettings:
    """Return the profile for one call: no script has seen its output, so nothing of it is cut."""
    return replace(profile, guest=replace(profile.guest, result="json"))


def _without_rich_values(policy: ExecutionPolicy) -> ExecutionPolicy:
    """Return the limits for one call, whose input and output are plain JSON."""
    return policy if policy.values == "json" else replace(policy, values="json")


ResultT = TypeVar("ResultT")


class Execution:
    """Runs one program on one worker, once, from its source or from an answered pause.

    ``invocation_data`` is plain JSON for this invocation alone; a pause has its own. Its ``warnings`` are reported
    with the outcome. ``journaling`` has the open journal of a pause; that of a program opens when it starts.
    Options are checked in the constructor, before anything is claimed. `start` or `resume` then takes a worker,
    compares the program with the tools and runs the invocation in a `Runner`; at the end calls are cancelled and
    the worker is released. Then a value is decoded, and a pause, or a failure with calls left, gets its one
    interrupt (`RecoveryPoint`). Listeners get the end last.
    """

    _machine_type: ClassVar[type[Invocation]] = Invocation

    def __init__(
        self,
        profile: SurfaceSettings,
        catalog: ToolCatalog[PreparedTool],
        options: CodeModeOptions,
        outer: OuterCallSettings,
        pool: WorkerPool | None,
        answered: AnsweredPause | None = None,
        invocation_data: Mapping[str, Any] | None = None,
        journaling: RunJournaling | None = None,
    ) -> None:
        self._profile = profile
        self._invocation_data = invocation_data if answered is None else answered.continuation.invocation_data
        self._is_direct = self._invocation_data is not None and is_direct_call(self._invocation_data)
        self._initial_warnings: tuple[str, ...] = (
            () if self._invocation_data is None else tuple(self._invocation_data.get("warnings", ()))
        )
        self._output_warnings: list[str] = []
        # An answered pause was checked with the current tools already.
        self._program: ProgramChecker | None = None
        self._catalog = catalog = (
            catalog.for_invocation(invocation_data) if answered is None and invocation_data is not None else catalog
        )
        if profile.limits.explicit_names - options.execution_policy.explicit_names:  # most surfaces set them once
            options = options.with_default_limits(profile.limits)
        self._options = options
        self._outer = outer
        self._answered = answered
        self._claim_renewal: ClaimRenewal | None = None
        self._pool = get_pool_or_default(None) if pool is None else pool
        self._threads = InvocationThreads(self._pool.threads, compute_nesting_depth())
        self._optional_parts = parts = NO_PARTS
        if options.uses_optional_parts or outer.call.state is not None:
            self._optional_parts = parts = make_optional_parts(
                options, outer, catalog, profile, is_direct=self._is_direct
            )
        self._make_machine = partial(
            make_invocation_and_id,
            self._machine_type,
            profile,
            catalog,
            options,
            outer,
            answered,
            self._invocation_data,
        )
        self._machine, invocation_id = self._make_machine()
        self._direct_worker: DirectCallWorkerStandIn | None = None  # of a call without a program
        self._saved_inputs: dict[int, str] = {}
        self._journaling = journaling if answered else parts.journaling
        settings, listeners = self._machine.settings, (*parts.listeners, *outer.listeners)
        more: Any = {"hides_inputs": settings.hides_inputs, "kinds": (outer.tool_kind, outer.tool_input_kind)}
        self._reporter = InvocationReporter(
            options.lifecycle, invocation_id, settings.outer_tool_call_id, listeners, **more
        )

    async def start(self, js: str) -> RunOutcome:
        """Run a program. Raises `ValueError` if it is not text; errors of the program are in the outcome."""
        policy = self._options.execution_policy
        try:
            check = partial(validate_source, js, policy)
            is_large = isinstance(js, str) and len(js) > LARGE_SOURCE_CHARACTERS  # pyright: ignore[reportUnnecessaryIsInstance]
            source = await self._run_in_thread(check) if is_large else check()
        except CodeModeError as error:
            return await self._run_and_report(js, error)
        return await self._run_and_report(source)

    async def call_tool(self, name: str, value: Any = NOT_GIVEN, *, text: str | None = None) -> RunOutcome:
        """Make one call with a plain JSON input, as if a program returned its result. It takes no worker.

        ``text`` is an input encoded by `encode_json`. Raises `CodeModeSerializationError` for an input that is
        not JSON.
        """
        max_bytes, make_call = (
            self._machine.settings.limits.max_tool_input_bytes,
            partial(DirectCall.from_value, name, value),
        )
        make_call = make_call if text is None else partial(DirectCall.from_json, name, text, max_bytes)
        call = await run_off_loop_if_large((value, text), make_call)
        self._direct_worker = DirectCallWorkerStandIn(call, self._threads)
        return await self._run_and_report(call.js)

    async def resume(self, renewal: ClaimRenewal | None = None) -> RunOutcome:
        """Resume the paused program. With ``renewal``, no call starts unless this host still owns the claim."""
        self._claim_renewal = renewal
        return await self._run_and_report(self._answered_pause.continuation.js)

    async def recover_lapsed_resume(self) -> RunOutcome:
        """Return the outcome of a resume whose host is gone, with the interrupt to continue from."""
        continuation, inputs, settings = (
            self._answered_pause.continuation,
            self._answered_pause.inputs,
            self._machine.settings,
        )
        started = build_ledger_with_started_calls(
            self._answered_pause, self._options.approval, now_ms(), self._profile.host_errors
        )
        displayed_inputs = {
            request_id: checked.displayed_input_json
            for request_id, checked in inputs.items()
            if checked.displayed_input_json is not None
        }
        recovery = RecoveryLedgerBuilder(self._catalog, displayed_inputs, settings.has_rich_values)
        error = make_lapsed_resume_error()
        error.calls = self._summarize_calls(started)
        ledger = partial(recovery.build_ledger, started, settings.salt)
        error.recovery = await self._recovery_point.get_or_create_interrupt(
            continuation.js, settings, ledger, continuation.engine
        )
        return self.make_failed_outcome(error)

    @cached_property
    def _recovery_point(self) -> RecoveryPoint:
        return RecoveryPoint(self._options.continuation, self._outer.call.conversation_id, self._threads)

    @property
    def _warnings(self) -> tuple[str, ...]:
        """Problems before the program ran, and repairs of its text."""
        return self._initial_warnings if self._program is None else (*self._initial_warnings, *self._program.repairs)

    @property
    def settings(self) -> InvocationSettings:
        """The settings under which it runs."""
        return self._machine.settings

    @property
    def is_suspended(self) -> bool:
        """True while the program is suspended and can be continued; only some profiles allow that."""
        return False

    @property
    def has_progressed(self) -> bool:
        """True once a tool started, a timer fired or a recovery exists: the resumed pause is used up."""
        ledger = self._machine.ledger
        has_started_call = self._recovery_point.has_interrupt or any(entry.is_started for entry in ledger.entries)
        return has_started_call or ledger.fired_timer_count > self._answered_pause.continuation.ledger.fired_timer_count

    async def get_or_create_recovery_interrupt(self) -> Interrupt | None:
        """Return the interrupt to continue from or to repeat the result; finished calls do not run again."""
        machine = self._machine
        if machine.js is None:
            return None
        if self._answered is not None and not self.has_progressed:
            return self._answered.interrupt
        settings, ledger = machine.settings, machine.ledger
        ledger = replace(ledger, entries=[*ledger.entries], deliveries=[*ledger.deliveries])
        recovery = RecoveryLedgerBuilder(self._catalog, self._saved_inputs, settings.has_rich_values)
        with suppress(CodeModeError):  # more content than a continuation carries
            return await self._recovery_point.get_or_create_interrupt(
                machine.js,
                settings,
                lambda: recovery.build_ledger(ledger, settings.salt),
                size=_estimate_invocation_size(machine),
            )
        return None

    def make_failed_outcome(self, error: CodeModeError) -> RunOutcome:
        """Return the outcome of a run that ended with this error."""
        return RunOutcome("failed", *self._outcome_fields, error=error, trace=error.trace, **self._warning_fields)

    async def _run_and_report(self, source: str, refusal: CodeModeError | None = None) -> RunOutcome:
        displayed_source, kind = source, "invoke" if self._is_direct else "script"
        if len(source) > LARGE_SOURCE_CHARACTERS:
            hashes = self._reporter.is_watched and not self._is_direct
            displayed_source = await self._run_in_thread(partial(measure_and_hash_source, source, hashes=hashes))
        self._reporter.report_start(displayed_source, source=kind, resumed=self._answered is not None)
        token = current_threads.set(self._threads)
        try:
            if refusal is not None:  # a refused program is reported as failed
                return self.make_failed_outcome(await self._complete_and_report_error(refusal))
            if self._journaling is not None:
                return await self._run_with_journal(lambda: self._run_until_stop(source), self._journaling)
            return await self._run_until_stop(source)
        except asyncio.CancelledError as cancelled:
            if cancelled.__cause__ is not None:
                raise
            # The cancellation arrived while async hooks ran. The record of finished calls must not be lost with the
            # caller.
            raise cancelled from await self._add_calls_and_recovery(
                CodeModeAbortedError("the invocation was cancelled")
            )
        finally:
            try:  # noqa: SIM105 - each run comes here, and a context manager is four calls more
                current_threads.reset(token)
            except ValueError:  # an abandoned coroutine is closed in another context
                pass

    async def _run_in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """Do work on a long text in a thread."""
        with InvocationThreadsScope(self._threads):
            return await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, work)

    async def _run_with_journal(
        self, work: Callable[[], Awaitable[RunOutcome]], journaling: RunJournaling
    ) -> RunOutcome:
        try:
            return await journaling.run_and_record_outcome(work, lambda: self.is_suspended, self._reset_machine)
        except ProgramAlreadyRan as before:
            await self._reporter.report_end_and_create_trace(
                error=before.outcome.error, interrupted_by=before.outcome.interrupt
            )
            return before.outcome
        except CodeModeAbortedError as error:  # the program has ended, and its outcome could not be written
            return self.make_failed_outcome(await self._add_calls_and_recovery(error))

    def _reset_machine(self) -> None:
        self._machine, _ = self._make_machine()

    async def _run_until_stop(self, source: str) -> RunOutcome:
        try:
            ending = await self._run_on_worker(source)
        except asyncio.CancelledError as cancelled:
            raise cancelled from await self._complete_and_report_error(
                CodeModeAbortedError("the invocation was cancelled")
            )
        except CodeModeError as error:  # there was no worker
            return self.make_failed_outcome(await self._complete_and_report_error(error))
        if isinstance(ending, events.Failed):
            return self.make_failed_outcome(await self._complete_and_report_error(ending.error))
        if isinstance(ending, events.Interrupted):
            return await self._report_end_and_make_interrupted_outcome()
        return await self._report_end_and_make_completed_outcome(ending)

    async def _run_on_worker(self, source: str) -> events.Ending:
        machine = self._machine
        lease = self._direct_worker if self._direct_worker is not None else await self._acquire_worker()
        try:
            program = self._make_program_checker(source, lease)
            first = None if program is not None else self._accept_unchecked_program(source)
            if self._journaling is not None and self._answered is None:
                self._journaling.waits_without_worker = first is None
                first = (
                    None if first is None else await self._journaling.open_journal_and_restore_progress(machine, first)
                )
            check = (accept_checked_program, None) if program is None else (program.check, program.prepare_tools)
            runner = Runner(machine, lease, self._make_nested_calls(), self._reporter, *check, self._journaling)
        except BaseException:
            lease.kill_and_release()
            raise
        loop = asyncio.get_running_loop()
        try:
            # The next invocation finds one spare worker; the others start after this one.
            if lease.needs_spare:
                loop.call_soon(lease.refill_spares, 1)
            runner.start(
                self._start_machine_and_get_effects(source, program) if first is None else machine.receive(first)
            )
            return await runner.ended
        finally:
            await runner.close()
            if not loop.is_closed():
                loop.call_soon(lease.refill_spares)

    def _start_machine_and_get_effects(self, source: str, program: ProgramChecker | None) -> list[events.Effect]:
        """Return the first effects: check the program, unless an earlier check still holds."""
        if (
            program is not None
            and self._journaling is None
            and (accepted := program.prepare_and_find_earlier_acceptance()) is not None
        ):
            return self._machine.receive(accepted)
        known = None if program is None else program.known
        check = None if known is None else events.CheckProgram(known.js, known.facts)
        return self._machine.start(source, analysis_ms=self._profile.static_rules.analysis_ms, known=check)

    def _accept_unchecked_program(self, js: str) -> events.ProgramAccepted:
        """Accept a program that needs no check: it was checked before, or is a direct call."""
        return events.ProgramAccepted(js, reports_locations=self._catalog.may_wait_for_person)

    async def _acquire_worker(self) -> PooledWorkerLease:
        policy, limits = self._options.execution_policy, self._machine.settings.limits
        lease = await self._pool.acquire(limits.memory_limit_bytes, policy.on_saturation, limits.timeout_ms)
        lease.threads = self._threads
        if self._reporter.is_watched:
            try:
                self._reporter.report_worker_acquired()
            except BaseException:
                lease.kill_and_release()
                raise
        return lease

    async def _report_end_and_make_completed_outcome(self, ending: events.Completed) -> RunOutcome:
        text, max_values = ending.value_json, self._options.execution_policy.max_values
        try:
            value, result_bytes = await decode_and_measure_result(text, max_values, self._machine.ledger)
            has_tags = text is not None and TAG_START in text and self._machine.settings.has_tagged_result
            if has_tags and not self._profile.returns_rich_values:
                value, has_tags = (
                    await run_in_thread_if_large_or_slow(
                        len(text or ""), partial(_convert_tagged_value, tagged_to_plain_json, value)
                    ),
                    False,
                )
            elif has_tags:
                await run_in_thread_if_large_or_slow(
                    len(text or ""), partial(_convert_tagged_value, from_tagged_json, value)
                )
        except CodeModeError as error:
            return self.make_failed_outcome(await self._complete_and_report_error(error))
        warnings, output_warnings = self._warnings, tuple(self._output_warnings)
        unhandled_failures: tuple[CallSummary, ...] = ()
        self._reporter.notes = (*warnings, *output_warnings)
        if ending.abandoned:
            unhandled_failures = self._summarize_unhandled_failures(ending)
            self._reporter.notes += tuple(describe_unhandled_failures(unhandled_failures))
        trace: Any = None
        if self._reporter.is_watched:
            trace = await self._reporter.report_end_and_create_trace(result_bytes=result_bytes)
        elif self._outer.is_traced:
            trace = self._reporter.close_calls_and_create_lazy_trace(result_bytes)
        more: dict[str, Any] = {"output_warnings": output_warnings, "abandoned": ending.abandoned}
        more["warnings"] = (*ending.warnings, *warnings)
        more["unhandled_failures"] = unhandled_failures
        more["is_tagged"] = has_tags
        if text is None and not self._is_direct:
            more |= {"returned_nothing": True, "last_value": ending.last_value or ""}
            more["summaries"] = self._summarize_calls(self._machine.ledger)
        machine, reporter = self._machine, self._reporter
        record = machine.settings.outer_tool_call_id, reporter.console, machine.ledger, reporter.calls
        return RunOutcome("completed", *record, value=value, trace=trace, result_bytes=result_bytes, **more)

    async def _report_end_and_make_interrupted_outcome(self) -> RunOutcome:
        machine = self._machine
        try:
            ledger, size = machine.ledger, _estimate_invocation_size(machine)
            interrupt = await self._recovery_point.get_or_create_interrupt(
                machine.js or "", machine.settings, lambda: ledger, size=size
            )
        except CodeModeError as error:
            return self.make_failed_outcome(await self._complete_and_report_error(error))
        for entry in machine.ledger.waiting_entries:
            self._reporter.report_still_waiting_call(entry)
        self._reporter.report_interrupt(interrupt)
        trace = await self._reporter.report_end_and_create_trace(interrupted_by=interrupt)
        summaries = self._summarize_calls(machine.ledger)
        return RunOutcome("interrupted", *self._outcome_fields, interrupt=interrupt, trace=trace, summaries=summaries)

    async def _complete_and_report_error(self, error: CodeModeError) -> CodeModeError:
        self._reporter.notes = (*self._warnings, *self._output_warnings)
        error.trace = await self._reporter.report_end_and_create_trace(error=await self._add_calls_and_recovery(error))
        return error

    async def _add_calls_and_recovery(self, error: CodeModeError) -> CodeModeError:
        """Add the calls so far and the recovery, if any, to the error."""
        error.calls = self._summarize_calls(self._machine.ledger)
        if self._answered is not None:
            error.details["is_resumed"] = True
        if isinstance(error, CodeModeTimeoutError | CodeModeAbortedError | CodeModeWorkerError):
            error.recovery = (
                None
                if is_continued_elsewhere(error, is_resumed=self._answered is not None)
                else await self.get_or_create_recovery_interrupt()
            )
        return error

    def _summarize_unhandled_failures(self, ending: events.Completed) -> tuple[CallSummary, ...]:
        """Return the summaries of failed calls whose errors the program did not handle."""
        ids = {call["id"] for call in ending.abandoned if call["status"] == "failed"}
        if not ids:
            return ()
        entries = [entry for entry in self._machine.ledger.entries if get_displayed_call_id(entry) in ids]
        return self._summarize_entries(entries)

    def _summarize_calls(self, ledger: Ledger) -> tuple[CallSummary, ...]:
        """Return the summaries of the program's calls, including those before a pause."""
        entries, answered = ledger.entries, self._answered
        if answered is not None:
            entries = [*entries, *answered.continuation.ledger.entries[len(entries) :]]
        return self._summarize_entries(entries)

    def _summarize_entries(self, entries: Sequence[LedgerEntry]) -> tuple[CallSummary, ...]:
        harmless = partial(is_read_only_call, self._catalog)
        return summarize_calls(entries, harmless, hides_inputs=self._machine.settings.hides_inputs)

    @property
    def _outcome_fields(self) -> tuple[str, Sequence[ConsoleEvent], Ledger, Sequence[CallRecord]]:
        machine = self._machine
        return machine.settings.outer_tool_call_id, self._reporter.console, machine.ledger, self._reporter.calls

    @property
    def _warning_fields(self) -> dict[str, Any]:
        return {"warnings": self._warnings, "output_warnings": tuple(self._output_warnings)}

    @property
    def _answered_pause(self) -> AnsweredPause:
        return cast("AnsweredPause", self._answered)

    def _make_program_checker(
        self, source: str, lease: PooledWorkerLease | DirectCallWorkerStandIn
    ) -> ProgramChecker | None:
        if self._answered is not None or isinstance(lease, DirectCallWorkerStandIn):
            return None  # checked before the pause, or nothing to check
        flags = {"checks_tools": self._options.execution_policy.check_program, "is_trusted": not lease.has_run_program}
        flags["replaces_outputs"] = self._options.pipeline.after is not None
        flags["has_fetch"] = self._machine.settings.fetch
        flags["has_rich_values"] = self._machine.settings.has_rich_values
        self._program = ProgramChecker(source, self._profile, self._catalog, self._invocation_data, **flags)
        return self._program

    def _make_nested_calls(self) -> NestedCalls:
        machine, answered, continuation_options = self._machine, self._answered, self._options.continuation
        return NestedCalls(
            catalog=self._catalog,
            options=self._options,
            outer_tool_call_id=machine.settings.outer_tool_call_id,
            messages=self._outer.call.messages,
            context=self._outer.call.context,
            aborted=asyncio.Event(),
            now_ms=self._outer.call.clock_ms or now_ms,
            output_warnings=self._output_warnings,
            machine=machine,
            answers={} if answered is None else answered.answers,
            threads=self._threads,
            fetcher=self._optional_parts.fetcher,
            saved_inputs=self._saved_inputs,
            checked={} if answered is None else answered.inputs,
            source="invoke" if self._is_direct else "script",
            host_errors=self._profile.host_errors,
            sidecar=machine.ledger.sidecar,
            content=InvocationContent(
                machine.ledger.contents, continuation_options, partial(getattr, self._journaling, "key", None)
            ),
            renewal=self._claim_renewal,
            state=self._optional_parts.state,
        )


def _estimate_invocation_size(machine: Invocation) -> int:
    """Estimate the characters of the program and ledger of an invocation."""
    return len(machine.js or "") + machine.ledger_bytes
