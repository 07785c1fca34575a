"""Perform the calls of one invocation, each from its request to its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..continuations.guard import ClaimRenewal
from ..data.content import MediaContent, current_registry
from ..data.json_values import encode_json
from ..data.rich_values import is_rich
from ..errors import (
    HOST_TOOL_ERROR,
    CodeModeError,
    CodeModeFetchError,
    CodeModeProtocolError,
    CodeModeSerializationError,
)
from ..host.clock import PausableTimer
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..interrupts import approval
from ..interrupts.interrupt import APPROVAL_KIND, InterruptRequested
from ..interrupts.resolutions import (
    Answer,
    ApprovalAnswer,
    KnownOutcomeAnswer,
    ToolInterruptAnswer,
    allows_tool_to_run,
    has_edited_input,
    is_denial,
)
from ..observe.reporter import CallRecord, InvocationReporter
from ..options.parts import CodeModeOptions
from ..profile import HostErrorRules
from ..protocol import events
from ..protocol.events import CallSettled
from ..protocol.guest_errors import make_rejection
from ..protocol.invocation import Invocation
from ..protocol.ledger import Fulfilled, LedgerEntry, Waiting, get_displayed_input_json, make_waiting_outcome
from ..protocol.references import LargeStringRegistry
from ..records import record
from ..schemas.compiled import ValidatedInput
from ..tools.catalog import ToolCatalog
from ..tools.context import AnsweredInterrupt, PipelineCall, ToolCallContext
from ..tools.prepared import (
    PreparedTool,
    add_call_made_note,
    create_not_executable_error,
    format_mismatch_warning,
    redact_problems,
)
from ..tools.running import UnreadIteratorError, read_output_iterators, run_tool
from ..tools.tool_result import ToolResult
from ..trace.failures import log_schema_mismatch, log_tool_failure
from .call_content import InvocationContent
from .call_values import (
    CheckedInput,
    EncodedOutput,
    check_size_and_validate_input,
    decode_catalog_argument,
    decode_fetch_request,
    decode_json_async,
    encode_interrupt_payload,
    extract_strings_and_make_outcome,
    validate_output_and_encode,
)
from .host_code import (
    CallPipeline,
    HostCodeError,
    await_decision,
    await_host_code,
    ensure_plain_error,
    make_output_hook_error,
    needs_approval,
    to_call_error,
    unwrap_tool_result_or_raise,
)
from .program_state import ProgramState, perform_state_request
from .recovery import must_save_executed_input, to_surface_outcome

if TYPE_CHECKING:
    from ..fetch.fetcher import Fetcher
    from ..host.threads import LARGE_CHARACTERS, InvocationThreads
    from .journal import InvocationJournal


MAX_INLINE_TOOLS = 500
"""With more tools, an unknown name is compared with them in a thread."""
_MAX_WARNINGS = 16


class CallProgressListener(Protocol):
    """Receives the progress of one call."""

    def on_input_displayed(self, input_json: str | None) -> None:
        """The input is not hidden any more: listeners may see this text."""

    def on_person_asked(self) -> None:
        """A person is asked."""

    def on_person_answered(self) -> None:
        """The person has answered."""

    def on_starting(self, executed_input_json: str | None, *, is_approved: bool) -> Awaitable[None] | None:
        """The tool starts; if an awaitable is returned, only after it."""


@record
class NestedCalls:
    """Performs the calls of one invocation.

    ``aborted`` is set if the invocation ends before its calls. ``answers`` are those of a resume, by request id;
    ``checked`` are the validated inputs of answered calls. ``machine`` has the settings, which may change until the
    program starts; ``source`` is the caller. ``saved_inputs`` are validated inputs as JSON texts, by request id,
    for calls that `must_save_executed_input` names, until their outcome is known. ``output_warnings`` collects warnings
    about outputs that the surface reports with the outcome.
    """

    catalog: ToolCatalog[PreparedTool]
    options: CodeModeOptions
    outer_tool_call_id: str
    messages: Sequence[Any]
    context: Any
    aborted: asyncio.Event
    now_ms: Callable[[], int]
    machine: Invocation
    answers: Mapping[int, Answer]
    threads: InvocationThreads
    fetcher: Fetcher | None
    saved_inputs: dict[int, str]
    checked: Mapping[int, CheckedInput]
    host_errors: HostErrorRules
    sidecar: LargeStringRegistry | None
    content: InvocationContent
    output_warnings: list[str]
    source: Literal["script", "invoke"] = "script"
    renewal: ClaimRenewal | None = None
    state: ProgramState | None = None

    def add_output_warning(self, warning: str) -> None:
        """Add a warning to the outcome, unless it repeats one or there are too many."""
        if warning not in self.output_warnings and len(self.output_warnings) < _MAX_WARNINGS:
            self.output_warnings.append(warning)

    async def perform_request(self, entry: LedgerEntry, progress: CallProgressListener) -> CallSettled:
        """Return the outcome of a request. Raises `CodeModeProtocolError` if the host broke a rule."""
        answer = self.answers.get(entry.id)
        # In this task schemas know the handles and the value form of this program.
        current_registry.set(self.content.contents)
        is_rich.set(self.machine.settings.limits.values == "rich")
        try:
            if answer is not None:
                if not allows_tool_to_run(answer):
                    progress.on_input_displayed(get_displayed_input_json(entry))
                if isinstance(answer, KnownOutcomeAnswer):
                    outcome = to_surface_outcome(entry, answer, self.host_errors)
                    if self.sidecar is not None and isinstance(outcome, Fulfilled) and entry.kind == "tool":
                        outcome = await extract_strings_and_make_outcome(outcome.value_json, self.sidecar)
                    return CallSettled(entry.id, outcome, self.now_ms(), answer.error)
                if is_denial(answer):
                    request = approval.ApprovalRequest(entry.name, None, entry.tool_call_id or "")
                    raise approval.make_denial_error(request, answer.decision, self.options.approval)
            if entry.kind == "catalog":
                return CallSettled(entry.id, Fulfilled(await self._query_catalog(entry)), self.now_ms())
            if entry.kind == "fetch":
                return CallSettled(entry.id, Fulfilled(await self._fetch(entry, progress)), self.now_ms())
            if entry.kind == "state":
                await self.require_ownership()
                text = await perform_state_request(self.state, entry, self.options.execution_policy)
                return CallSettled(entry.id, Fulfilled(text), self.now_ms())
            tool = self.catalog.get(entry.name)
            if tool is None:
                size = LARGE_CHARACTERS if len(self.catalog) > MAX_INLINE_TOOLS else 0  # compared with all names
                raise await run_in_thread_if_large_or_slow(size, lambda: self.catalog.tool_not_found_error(entry.name))
            return await _ToolCall(self, entry, tool, answer, progress).perform_call()
        except CodeModeProtocolError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a call fails, and the program continues
            return self.reject_call(entry, to_call_error(entry, error), is_raised=isinstance(error, HostCodeError))

    def apply_replayed_request(self, entry: LedgerEntry) -> None:
        """Apply a request of state that a replay has answered."""
        if entry.kind == "state" and self.state is not None:
            self.state.apply_replayed_request(entry)

    def require_running(self) -> None:
        """Raise `asyncio.CancelledError` once the invocation has ended.

        A call that started after the end would not be recorded, and a recovery would start it again. A call
        gets here if the end and its permission arrive in one turn of the loop, or if its decision swallowed the
        cancellation.
        """
        if self.aborted.is_set():
            raise asyncio.CancelledError

    async def wait_for_start(self, may_start: Awaitable[None] | None) -> None:
        """Wait until a call may start. Raises as `require_running`."""
        if may_start is not None:
            await may_start
            self.require_running()

    async def require_ownership(self) -> None:
        """Raise if another host may own this call now, and `asyncio.CancelledError` as `require_running`."""
        if self.renewal is not None:
            await self.renewal.require_ownership_and_renew_if_stale()
        self.require_running()

    async def _fetch(self, entry: LedgerEntry, progress: CallProgressListener) -> str:
        if self.fetcher is None:
            raise CodeModeFetchError("fetch is not allowed")
        request = await decode_fetch_request(entry, self.options.execution_policy)
        await self.require_ownership()
        if request.is_unsafe_to_repeat:
            await self.wait_for_start(progress.on_starting(None, is_approved=False))
        return await self.fetcher.fetch_encoded_response(request)

    async def _query_catalog(self, entry: LedgerEntry) -> str:
        def query_and_encode() -> str:
            argument = decode_catalog_argument(entry, self.options.execution_policy)
            return encode_json(self.catalog.answer_query(entry.name, argument), what=f"the answer of {entry.name}")

        return await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, query_and_encode)

    def reject_call(self, entry: LedgerEntry, error: CodeModeError, *, is_raised: bool = False) -> CallSettled:
        """Return a request as rejected with this error, which host code may have raised."""
        error = ensure_plain_error(entry, error)
        if isinstance(error, CodeModeSerializationError):
            error.details.setdefault("kind", entry.kind)  # a value of the call, not the program's result
        outcome = make_rejection(entry, error, self.host_errors, is_raised=is_raised)
        return CallSettled(entry.id, outcome, self.now_ms(), error)


class _ToolCall:
    """One call of one tool, from lookup to outcome.

    The input is validated, and the pipeline may refuse or replace it. Then an approval from a resume allows the
    call, or the tool's own rule asks a person, who allows it, denies it or lets it wait. Only then is the call
    reported as started, with the allowed input, and the function runs; its output is validated, encoded and passed
    to the pipeline. A tool that requests an interrupt pauses the call with its original input. A displayed input
    runs as it was displayed: the pipeline gets it again only if a person edited it, and can then only refuse.
    """

    def __init__(
        self,
        calls: NestedCalls,
        entry: LedgerEntry,
        tool: PreparedTool,
        answer: Answer | None,
        progress: CallProgressListener,
    ) -> None:
        self._calls = calls
        self._entry = entry
        self._call_id = entry.tool_call_id or ""
        self._answer = answer
        self._progress = progress
        self._policy = calls.options.execution_policy
        self._tool = tool
        self._is_approved = entry.is_approved
        self._executed_input_json = entry.executed_input_json
        hooks = calls.options.pipeline
        self._edited_input: CheckedInput | None = None
        self._pipeline = None
        if hooks.before is not None or hooks.after is not None:
            self._pipeline = CallPipeline(calls.options, calls.threads, tool, entry, self._make_pipeline_call)

    async def perform_call(self) -> CallSettled:
        """Return the outcome of the call; raise the error for the guest."""
        entry, tool = self._entry, self._tool
        if tool.execute is None:
            raise create_not_executable_error(tool.name, tool_call_id=entry.tool_call_id)
        asks = tool.needs_approval is not False
        checked = await self._validate_input(is_displayed=asks)
        if self._pipeline is not None or (self._answer is not None and has_edited_input(self._answer)):
            checked = await self._apply_input_hook_and_report_display(checked)
        calls = self._calls
        displayed_input_json = checked.displayed_input_json
        if displayed_input_json is not None and must_save_executed_input(
            displayed_input_json, varies=tool.is_input_nondeterministic
        ):
            calls.saved_inputs[entry.id] = displayed_input_json
        if isinstance(self._answer, ApprovalAnswer):
            self._mark_approved(checked)
        if asks and not self._is_approved and await self._needs_approval(checked.validated):
            if calls.options.approval.mode == "interrupt":
                return await self._pause_call({"kind": APPROVAL_KIND}, checked)
            await self._obtain_approval_or_raise(checked)
        value = (
            await calls.content.replace_handles_with_parts(checked.validated)
            if MediaContent.has_instances
            else checked.validated.value
        )
        context = await self._make_tool_context() if tool.takes_context else None
        if calls.renewal is not None or calls.aborted.is_set():
            await calls.require_ownership()
        if (
            may_start := self._progress.on_starting(self._executed_input_json, is_approved=self._is_approved)
        ) is not None:
            await calls.wait_for_start(may_start)
        try:
            output = await await_host_code(entry, run_tool(tool, value, context, calls.threads, self._call_id))
            output_text_result = await self._convert_and_encode_output(output)
            if output_text_result.problems or output_text_result.failure is not None:
                self._report_output_problems(output_text_result)
            text = output_text_result.text
            if self._pipeline is not None:
                text = await self._apply_output_hook(self._pipeline, self._edited_input or checked, text)
        except InterruptRequested as pause:
            # The tool may have changed its input; display the original.
            displayed = (
                checked if checked.displayed_input_json is not None else await self._validate_input(is_displayed=True)
            )
            return await self._pause_call(pause.payload, displayed)
        outcome = (
            Fulfilled(text) if calls.sidecar is None else await extract_strings_and_make_outcome(text, calls.sidecar)
        )
        return CallSettled(entry.id, outcome, calls.now_ms())

    async def _apply_output_hook(self, pipeline: CallPipeline, checked: CheckedInput, text: str | None) -> str | None:
        try:
            return await pipeline.apply_after_hook(checked, text)
        except HostCodeError as failure:
            if failure.error.code != HOST_TOOL_ERROR:
                raise  # a refusal, in the words of the host
            error = make_output_hook_error(self._entry, failure.error)
            raise HostCodeError(add_call_made_note(error, self._tool)) from error.__cause__
        except CodeModeSerializationError as error:
            raise add_call_made_note(error, self._tool) from error.__cause__

    async def _convert_and_encode_output(self, output: Any) -> EncodedOutput:
        try:
            if isinstance(output, ToolResult):
                output = await unwrap_tool_result_or_raise(self._entry, output)
            if MediaContent.has_instances:
                output = await self._calls.content.save_and_replace_parts(output, self._policy.max_values)
            try:
                check = validate_output_and_encode(self._tool, output, self._policy)
                return await (
                    check if self._pipeline is None else self._pipeline.await_redacting_errors("output", check)
                )
            except UnreadIteratorError:
                read = read_output_iterators(self._tool, output, self._policy, self._calls.threads, self._call_id)
            check = validate_output_and_encode(self._tool, await await_host_code(self._entry, read), self._policy)
            return await (check if self._pipeline is None else self._pipeline.await_redacting_errors("output", check))
        except CodeModeSerializationError as error:
            raise add_call_made_note(error, self._tool) from error.__cause__

    def _report_output_problems(self, written: EncodedOutput) -> None:
        """Report the problems of an output to the log and the surface."""
        hides = self._pipeline is not None and self._pipeline.may_replace_outputs
        if written.failure is not None and hides:  # its message may quote the output
            log_schema_mismatch(f"the output type of tool {self._tool.name!r} fails: {type(written.failure).__name__}")
        elif written.failure is not None:
            log_tool_failure(f"the output type of tool {self._tool.name!r} fails", written.failure)
        if written.problems:
            problems = redact_problems(written.problems, self._tool, "output") if hides else written.problems
            log_schema_mismatch(warning := format_mismatch_warning(self._tool.name, problems))
            self._calls.add_output_warning(warning)

    async def _validate_input(self, *, is_displayed: bool) -> CheckedInput:
        entry, tool = self._entry, self._tool
        checked = self._calls.checked.get(entry.id)
        if checked is not None:
            return checked
        characters = len(entry.input_json or "")
        # A large input gets a text too: encoding it may take longer than the check itself.
        is_displayed = (
            is_displayed
            or tool.is_input_nondeterministic
            or self._pipeline is not None
            or characters >= LARGE_CHARACTERS
        )
        if entry.sidecar is not None:  # a recovery reads the displayed input from these
            characters = max(characters, LARGE_CHARACTERS)
        check = run_in_thread_if_large_or_slow(
            characters, partial(check_size_and_validate_input, tool, entry, self._policy, is_displayed=is_displayed)
        )
        return await (check if self._pipeline is None else self._pipeline.await_redacting_errors("input", check))

    async def _apply_input_hook_and_report_display(self, checked: CheckedInput) -> CheckedInput:
        """Run the pipeline for an input that was not displayed yet, or was edited."""
        pipeline = self._pipeline
        if pipeline is None:
            self._progress.on_input_displayed(checked.displayed_input_json)
            return checked
        if get_displayed_input_json(self._entry) is None:
            checked = await pipeline.apply_before_hook(checked)
        elif has_edited_input(self._answer):
            await pipeline.require_input_allowed(checked)
        self._progress.on_input_displayed(checked.displayed_input_json)
        if pipeline.may_replace_inputs:  # a repeated call uses this input, not the original
            self._executed_input_json = checked.displayed_input_json
        return checked

    def _make_pipeline_call(self, input_value: Any) -> PipelineCall:
        calls = self._calls
        return PipelineCall(
            tool_name=self._tool.name,
            input=input_value,
            tool_call_id=self._call_id,
            outer_tool_call_id=calls.outer_tool_call_id,
            source=calls.source,
            context=calls.context,
            tool_id=self._tool.id or self._entry.name,
        )

    def _mark_approved(self, checked: CheckedInput) -> None:
        """Allow the call with this input: a person has seen it."""
        self._is_approved = True
        self._executed_input_json = checked.displayed_input_json

    async def _make_tool_context(self) -> ToolCallContext:
        calls, entry = self._calls, self._entry
        answered = None
        if isinstance(self._answer, ToolInterruptAnswer) and isinstance(entry.outcome, Waiting):
            payload = await decode_json_async(entry.outcome.payload_json)
            answered = AnsweredInterrupt(
                id=entry.outcome.interrupt_id, payload=payload, resolution=self._answer.resolution
            )
        return ToolCallContext(
            tool_call_id=self._call_id,
            outer_tool_call_id=calls.outer_tool_call_id,
            messages=calls.messages,
            context=calls.context,
            aborted=calls.aborted,
            interrupt=answered,
            asking_person=self._asking_person,
            require_allowed=self._check_and_store_edited_input,
        )

    async def _check_and_store_edited_input(self, edited: Any) -> None:
        if self._pipeline is not None:
            try:
                checked = await self._pipeline.validate_edited_input(edited)
                await self._pipeline.require_input_allowed(checked)
            except HostCodeError as refused:
                raise refused.error from None
            self._edited_input = checked

    @contextmanager
    def _asking_person(self) -> Generator[None, None, None]:
        self._progress.on_person_asked()
        try:
            yield
        finally:
            self._progress.on_person_answered()

    async def _needs_approval(self, validated: ValidatedInput) -> bool:
        """Return True if a person must decide; only an approval allows the call."""
        value = await self._calls.content.replace_handles_with_parts(validated)
        return await await_decision(self._entry, needs_approval(self._tool, value, await self._make_tool_context()))

    async def _obtain_approval_or_raise(self, checked: CheckedInput) -> None:
        policy, entry = self._calls.options.approval, self._entry
        request = approval.ApprovalRequest(entry.name, checked.validated.json_value, self._call_id)
        self._progress.on_person_asked()
        try:
            answer = await await_decision(entry, approval.ask_callback(policy.on_approval_required, request))
        finally:
            self._progress.on_person_answered()
        decision = approval.parse_callback_answer_or_raise(answer, request)
        if not decision.approved:
            raise approval.make_denial_error(request, decision, policy)
        self._mark_approved(checked)

    async def _pause_call(self, payload: Mapping[str, Any], displayed: CheckedInput) -> CallSettled:
        entry, calls = self._entry, self._calls
        payload_json = await encode_interrupt_payload(entry.name, payload, self._policy)
        outcome = make_waiting_outcome(
            entry, "interrupt", calls.machine.settings.salt, payload_json, displayed.displayed_input_json
        )
        return CallSettled(entry.id, outcome, calls.now_ms())


@record
class CallProgressReporter:
    """Reports the progress of one call to the invocation."""

    feed: Callable[[events.HostEvent], None]
    reporter: InvocationReporter
    id: int
    record: CallRecord
    clock: PausableTimer | None

    def on_input_displayed(self, input_json: str | None) -> None:
        """See `CallProgressListener.on_input_displayed`."""
        self.reporter.report_delayed_call_start(self.record, input_json)

    def on_person_asked(self) -> None:
        """See `CallProgressListener.on_person_asked`."""
        if self.clock is not None:
            self.clock.pause()
        self.feed(events.PersonAsked(self.id))

    def on_person_answered(self) -> None:
        """See `CallProgressListener.on_person_answered`."""
        if self.clock is not None:
            self.clock.start()
        self.feed(events.PersonAnswered(self.id))

    def on_starting(self, executed_input_json: str | None, *, is_approved: bool) -> Awaitable[None] | None:
        """See `CallProgressListener.on_starting`."""
        self.feed(events.ToolStarted(self.id, executed_input_json, is_approved))
        return None


class JournaledCallProgressReporter:
    """The progress of a call that starts only after the journal has it."""

    __slots__ = ("_calls", "_entry", "_journal", "_progress")

    def __init__(
        self, progress: CallProgressReporter, entry: LedgerEntry, calls: NestedCalls, journal: InvocationJournal
    ) -> None:
        self._progress = progress
        self._entry = entry
        self._calls = calls
        self._journal = journal

    def on_input_displayed(self, input_json: str | None) -> None:
        """See `CallProgressListener.on_input_displayed`."""
        self._progress.on_input_displayed(input_json)

    def on_person_asked(self) -> None:
        """See `CallProgressListener.on_person_asked`."""
        self._progress.on_person_asked()

    def on_person_answered(self) -> None:
        """See `CallProgressListener.on_person_answered`."""
        self._progress.on_person_answered()

    def on_starting(self, executed_input_json: str | None, *, is_approved: bool) -> Awaitable[None] | None:
        """See `CallProgressListener.on_starting`."""
        request_id, text = self._entry.id, executed_input_json
        tool = self._calls.catalog.get(self._entry.name) if text is None and self._entry.kind == "tool" else None
        if tool is not None and tool.is_input_nondeterministic:  # which cannot be computed again
            text = self._calls.saved_inputs.get(request_id)

        def report_start() -> None:
            self._progress.on_starting(executed_input_json, is_approved=is_approved)

        return self._journal.write_call_start(request_id, text, is_approved=is_approved, on_written=report_start)
