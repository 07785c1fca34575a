"""Run programs, and ask people about pending calls through the client or the store."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from codemode.errors import CodeModeConcurrencyError, CodeModeProtocolError
from codemode.execution.call_context import CallContext
from codemode.host.cancellation import shield_until_done
from codemode.interrupts.interrupt import Interrupt
from codemode.observe.request_telemetry import count_approvals_while_waiting, record_requested_approvals
from codemode.stores.errors import AnswerRefusedError, StoreError, StoreUnavailableError
from codemode.stores.interrupt_store import InterruptStore
from codemode.stores.records import Record
from codemode.surfaces.modules.response import RunResponse
from codemode.surfaces.modules.run_tool import RunTool
from codemode.trace.visible_text import clip_to_visible_line

from ..config.locations import GATEWAY_COMMAND
from ..config.model import GatewaySettings, ServerConfig
from ..gateway.options import APP_NAME
from ..gateway.principals import CallOrigin, Principal
from .client_questions import (
    MAX_STATE_CHARACTERS,
    ApprovalQuestions,
    AskChannel,
    BatchAnswers,
    ClientCall,
    ClientCapabilities,
    Pause,
    StateSealer,
    ask_in_session,
    can_be_asked,
    choose_ask_channel,
    create_elicitation,
    create_page_elicitation,
    show_page_in_session,
)
from .pending_store import PendingStore, PrincipalRunResumer, ReportSteps, StoredRunResumer
from .questions import (
    UNKNOWN_KEY_MESSAGE,
    Question,
    bad_request_response,
    create_waiting_field,
    not_resumed_response,
    run_not_found_response,
    store_unavailable_response,
    too_many_waiting_programs_response,
    waiting_response,
)
from .remembered_answers import RememberedAnswers

# Security: a decision comes from the client's user or from the store, never from text that the model wrote.

ToolReply = RunResponse | types.InputRequiredResult
_ASK_TIMEOUT_SECONDS = 600.0
_MAX_NAMES_CHARACTERS = 500
_log = logging.getLogger("codemode.mcp")


def read_client_capabilities(ctx: Any, *, is_asked_in_console: bool = False) -> ClientCapabilities:
    """Return how the client of a request can be asked. ``ctx`` is the SDK's ``ServerRequestContext``."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    url = elicitation is not None and elicitation.url is not None
    # Clients of protocol versions without modes declare neither; they support forms.
    form = elicitation is not None and (elicitation.form is not None or not url)
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    # A pipe has one client. Over HTTP only a session identifies one client of a user.
    has_session = not is_modern or getattr(ctx, "request", None) is None
    return ClientCapabilities(is_modern, form, url, ctx.session.can_send_request, is_asked_in_console, has_session)


class ApprovalFlow:
    """Runs and resumes the programs of one principal, and asks people about pending calls.

    ``store`` returns the store; it is called when the first pause is stored. ``page_url`` returns the page for
    decisions about a record id, without credentials, because models read it; without a page people type ``command``.
    ``servers`` set how long a call waits in the store. ``start_resuming`` is the gateway's `StoredRunResumer.start`,
    awaited when a run is in the store; without it this object resumes the runs of its principal until `aclose`.
    """

    def __init__(
        self,
        run_tool: RunTool,
        settings: GatewaySettings,
        store: Callable[[], InterruptStore],
        principal: Principal,
        remembered: RememberedAnswers,
        *,
        start_resuming: Callable[[], Awaitable[None]] | None = None,
        servers: Sequence[ServerConfig] = (),
        page_url: Callable[[str], str | None] | None = None,
        command: str = GATEWAY_COMMAND,
        app: str = APP_NAME,
        ask_timeout_seconds: float = _ASK_TIMEOUT_SECONDS,
        report_steps: ReportSteps = lambda _outer_id: nullcontext(),
    ) -> None:
        self.principal = principal
        self._run_tool = run_tool
        self._wait_ms = settings.approval_wait_ms
        self._max_waiting = settings.max_waiting
        self._server_wait_ms = {
            server.name: server.approval_wait_ms for server in servers if server.approval_wait_ms is not None
        }
        self._page_url: Callable[[str], str | None] = page_url or (lambda _record_id: None)
        self._command = command
        self._ask_timeout_seconds = ask_timeout_seconds
        self._report_steps = report_steps
        self.runs = PrincipalRunResumer(run_tool, principal, report_steps)
        self._local_resumer = StoredRunResumer(store, lambda _: nullcontext(self.runs), app, tenant=principal.id)
        self._start_resuming = start_resuming or self._local_resumer.start
        self._pending_store = PendingStore(
            store, principal, app, self.runs, remembered.compute_session_digest(principal), settings.max_waiting
        )
        self._questions = ApprovalQuestions(self.runs, remembered, principal)
        self._sealed_state = StateSealer(run_tool.settings.continuation, principal)

    async def handle_call(
        self,
        ctx: Any,
        params: types.CallToolRequestParams,
        arguments: Mapping[str, Any],
        *,
        origin: CallOrigin | None = None,
        is_asked_in_console: bool = False,
    ) -> ToolReply:
        """Serve one call of the tool: start a program, continue a retried call, or return a stored run (``resume``).

        ``ctx`` is the SDK's context of the request. ``is_asked_in_console``: do not ask through this client.
        """
        call_origin = origin or CallOrigin(self.principal, secrets.token_hex(16), ctx.session)
        client_call = ClientCall(
            ctx, read_client_capabilities(ctx, is_asked_in_console=is_asked_in_console), arguments, call_origin
        )
        try:
            return await self._start_or_resume(client_call, params)
        except StoreUnavailableError:
            return store_unavailable_response()
        except CodeModeProtocolError as error:
            return not_resumed_response(UNKNOWN_KEY_MESSAGE if error.details.get("unknown_key") else error.message)

    async def aclose(self) -> None:
        """Stop resuming stored runs, and wait a few seconds for those in progress."""
        await self._local_resumer.aclose()

    async def _start_or_resume(self, client_call: ClientCall, params: types.CallToolRequestParams) -> ToolReply:
        code, resume = client_call.arguments.get("code"), client_call.arguments.get("resume")
        if resume is not None and (code or not isinstance(resume, str)):
            message = "use code or resume, not both" if code else "resume must be a string"
            return bad_request_response(message, "/resume")
        client_call.code = code if isinstance(code, str) else ""
        if params.request_state is not None:
            return await self._handle_retried_call(client_call, params.request_state, params.input_responses or {})
        if isinstance(resume, str):
            record = await self._pending_store.find_record(resume)
            return (
                run_not_found_response() if record is None else await self._ask_and_wait_for_record(client_call, record)
            )
        if client_call.code and self._run_tool.may_wait_for_person:
            await self._start_resuming()  # also resumes runs decided before this gateway started
            if (open_record := await self._pending_store.find_open_run(client_call.code)) is not None:
                return await self._ask_and_wait_for_record(client_call, open_record)
            if await self._pending_store.is_full():
                return too_many_waiting_programs_response(self._max_waiting, self._command)
        client_call.is_new = True
        call_context = CallContext(
            tool_call_id=client_call.origin.outer_id, context=client_call.origin, conversation_id=self.principal.id
        )
        with self._report_steps(client_call.origin.outer_id):
            outcome = await self._run_tool.execute(client_call.arguments, call_context)
        return await self._ask_until_finished(client_call, outcome)

    async def _handle_retried_call(
        self, client_call: ClientCall, request_state: str, responses: Mapping[str, Any]
    ) -> ToolReply:
        state = await self._sealed_state.unseal(request_state, client_call.arguments)
        client_call.restore_state_and_count_pause(state)
        # Security: accept only answers to questions of this call, from a client that may be asked.
        responses = {
            key: response
            for key, response in responses.items()
            if key in client_call.notes and not client_call.client.is_asked_in_console
        }
        if "record" not in state:
            interrupt = Interrupt.from_dict(state.get("interrupt"))
            return await self._ask_until_finished(
                client_call, await self._read_answers_and_resume(client_call, interrupt, responses)
            )
        record = await self._pending_store.find_record(state["record"])
        if record is None:
            return run_not_found_response()
        return await self._ask_and_wait_for_record(client_call, record, responses)

    async def _ask_until_finished(self, client_call: ClientCall, outcome: Any) -> ToolReply:
        """Ask about pending calls until the run ends, or until the questions go to a retry or to the store."""
        while isinstance(outcome, Interrupt):
            questions = self._questions.build_questions(outcome, client_call.notes)
            not_askable = [
                question for question in questions if not can_be_asked(question, url=client_call.client.can_open_pages)
            ]
            if not_askable:
                declined = {question.interrupt_id: {"action": "decline"} for question in not_askable}
                outcome = await self._resume_with_answers_or_save(client_call, outcome, BatchAnswers(declined))
                continue
            channel = self._choose_channel(client_call, questions)
            record_requested_approvals(channel, len(questions))
            if channel == "session":
                outcome = await self._ask_in_session_and_resume(client_call, outcome, questions)
            elif channel == "retry":
                return await self._ask_by_retry_and_save_if_large(client_call, outcome, questions)
            else:
                return await self._save_pause_and_wait(client_call, outcome, questions)
        if isinstance(outcome, Record):
            return await self._ask_and_wait_for_record(client_call, outcome)
        recovery = outcome.recovery
        return outcome if recovery is None else await self._save_interrupted_run(client_call, outcome, recovery)

    async def _ask_in_session_and_resume(
        self, client_call: ClientCall, interrupt: Interrupt, questions: list[Question]
    ) -> Any:
        try:
            with count_approvals_while_waiting("session", len(questions)):
                responses = await ask_in_session(client_call, questions, self._ask_timeout_seconds)
        except asyncio.CancelledError:
            if not _is_cancelled_by_client(client_call):  # the client disconnected: people can still decide
                await self._save_for_disconnected_client(client_call, interrupt, questions)
            raise
        if len(responses) < len(questions):
            client_call.client = replace(client_call.client, can_receive_requests=False)
        client_call.pause += 1
        return await self._read_answers_and_resume(client_call, interrupt, responses)

    async def _read_answers_and_resume(
        self, client_call: ClientCall, interrupt: Interrupt, responses: Mapping[str, Any]
    ) -> Any:
        """Resume with the answers. Calls without a usable answer stay pending."""
        client_call.is_new = False
        answers = await self._questions.parse_and_remember_answers(
            client_call, self._questions.build_questions(interrupt, client_call.notes), responses
        )
        if answers.has_unanswered_outcome:
            client_call.client = replace(client_call.client, is_asked_in_console=True)
        if not answers.resolutions:
            return interrupt
        try:
            return await self._resume_with_answers_or_save(client_call, interrupt, answers)
        except CodeModeProtocolError as error:
            await self._questions.forget_remembered_answers(answers)
            if not self._questions.record_refused_edits_and_count_tries(client_call, answers, error):
                raise
            return interrupt

    async def _resume_with_answers_or_save(
        self, client_call: ClientCall, interrupt: Interrupt, answers: BatchAnswers
    ) -> Any:
        """Resume with answers. If no worker is free, store the run; the resumer continues it later.

        A run interrupted by a disconnected client is stored too: an approved call may have started.
        """
        try:
            outcome = await self.runs.resume_with_answers(interrupt, answers.resolutions, client_call.origin)
        except asyncio.CancelledError as cancelled:
            recovery = getattr(cancelled.__cause__, "recovery", None)
            if isinstance(recovery, Interrupt) and not _is_cancelled_by_client(client_call):
                await self._save_for_disconnected_client(
                    client_call, recovery, self._questions.build_questions(recovery)
                )
            raise
        if not isinstance(outcome, RunResponse) or not isinstance(outcome.exception, CodeModeConcurrencyError):
            return outcome
        record_id = await self._save_pause_and_start_resuming(
            client_call, interrupt, self._questions.build_questions(interrupt, client_call.notes)
        )
        await self._save_decisions_or_forget_answers(answers)
        return await self._pending_store.find_record(record_id) or interrupt

    async def _save_decisions_or_forget_answers(self, answers: BatchAnswers) -> None:
        try:
            await self._pending_store.save_decisions(answers.resolutions)
        except (StoreUnavailableError, AnswerRefusedError):
            raise
        except StoreError:  # another decision came first and counts
            await self._questions.forget_remembered_answers(answers)

    async def _ask_by_retry_and_save_if_large(
        self, client_call: ClientCall, pause: Pause, questions: list[Question]
    ) -> ToolReply:
        for question in questions:
            client_call.add_notes(question.interrupt_id, definition=question.definition_digest)
        client_call.drop_notes_except(question.interrupt_id for question in questions)
        pause_state = {"record": pause.id} if isinstance(pause, Record) else {"interrupt": pause.to_dict()}
        sealed_state = await self._sealed_state.seal(client_call.to_state(pause_state), client_call.arguments)
        if len(sealed_state) > MAX_STATE_CHARACTERS and isinstance(pause, Interrupt):
            record_id = await self._save_pause_and_start_resuming(client_call, pause, questions)
            sealed_state = await self._sealed_state.seal(
                client_call.to_state({"record": record_id}), client_call.arguments
            )
        requests = {question.interrupt_id: create_elicitation(question, client_call) for question in questions}
        return types.InputRequiredResult(input_requests={**requests}, request_state=sealed_state)

    async def _save_pause_and_wait(
        self, client_call: ClientCall, interrupt: Interrupt, questions: list[Question]
    ) -> ToolReply:
        # The same program may have been sent twice before either was stored; store one.
        record_id = await self._save_pause_and_start_resuming(
            client_call, interrupt, questions, is_new=client_call.is_new
        )
        return await self._show_page_or_wait_for_decision(
            client_call, record_id, {question.server for question in questions}
        )

    async def _ask_and_wait_for_record(
        self, client_call: ClientCall, record: Record, responses: Mapping[str, Any] | None = None
    ) -> ToolReply:
        """Ask about a stored run if the client supports it, and wait for its outcome."""
        client_call.code = record.source or client_call.code
        await self._start_resuming()
        while True:
            response = await self._pending_store.get_final_response(record)
            if response is not None:
                return response
            questions = [
                question
                for question in self._questions.build_questions(record, client_call.notes)
                if can_be_asked(question, url=client_call.client.can_open_pages)
            ]
            channel = self._choose_channel(client_call, questions) if questions else "store"
            if responses is None and channel == "retry":
                return await self._ask_by_retry_and_save_if_large(client_call, record, questions)
            if responses is None and channel == "session":
                with count_approvals_while_waiting("session", len(questions)):
                    responses = await ask_in_session(client_call, questions, self._ask_timeout_seconds)
                client_call.pause += 1
                if len(responses) < len(questions):
                    client_call.client = replace(client_call.client, can_receive_requests=False)
            if responses is None or not questions:
                return await self._show_page_or_wait_for_decision(
                    client_call, record.id, self._questions.get_server_ids(record)
                )
            answers, responses = await self._parse_and_save_answers(client_call, questions, responses), None
            if answers.resolutions:
                outcome = await self._pending_store.wait_for_end_or_new_questions(
                    record.id, self._ask_timeout_seconds * 1000, record.version
                )
                if not isinstance(outcome, Record):
                    return outcome or run_not_found_response()
                record = outcome

    async def _parse_and_save_answers(
        self, client_call: ClientCall, questions: list[Question], responses: Mapping[str, Any]
    ) -> BatchAnswers:
        answers = await self._questions.parse_and_remember_answers(client_call, questions, responses)
        if answers.has_unanswered_outcome:
            client_call.client = replace(client_call.client, is_asked_in_console=True)
        if answers.resolutions:
            try:
                await self._save_decisions_or_forget_answers(answers)
            except AnswerRefusedError as error:
                await self._questions.forget_remembered_answers(answers)
                self._questions.record_refused_edits_and_count_tries(client_call, answers, error)
                answers.resolutions = {}
        return answers

    async def _save_interrupted_run(
        self, client_call: ClientCall, response: RunResponse, recovery: object
    ) -> RunResponse:
        """Store an interrupted run, so that it can resume once people say what happened."""
        if not isinstance(recovery, Interrupt) or not (recovery.requests or _has_started_calls(response)):
            return response
        questions = self._questions.build_questions(recovery)
        record_id = await self._save_pause_and_start_resuming(client_call, recovery, questions)
        record = await self._pending_store.find_record(record_id)
        if record is not None:
            response["waiting"] = create_waiting_field(
                record_id, questions, record.expires_at_ms, self._page_url(record_id)
            )
        return response

    async def _save_pause_and_start_resuming(
        self, client_call: ClientCall, interrupt: Interrupt, questions: list[Question], *, is_new: bool = False
    ) -> str:
        record_id = await self._pending_store.save(
            interrupt, questions, client_call.code, has_session=client_call.client.has_session, is_new=is_new
        )
        await self._start_resuming()
        return record_id

    async def _save_for_disconnected_client(
        self, client_call: ClientCall, interrupt: Interrupt, questions: list[Question]
    ) -> None:
        """Store the run of a disconnected client; a failure can only be logged."""

        async def save_or_log() -> None:
            try:
                await self._save_pause_and_start_resuming(client_call, interrupt, questions)
            except Exception:  # noqa: BLE001 - the client is gone, so every error is logged
                call_names = (
                    ", ".join(dict.fromkeys(f"{question.server}.{question.tool}" for question in questions))
                    or "its calls"
                )
                displayed_names = clip_to_visible_line(call_names, _MAX_NAMES_CHARACTERS)
                _log.exception(
                    "a client disconnected, and its program cannot be stored: no decision on %s", displayed_names
                )

        await shield_until_done(save_or_log())

    async def _show_page_or_wait_for_decision(
        self, client_call: ClientCall, record_id: str, servers: set[str]
    ) -> ToolReply:
        """Wait for the servers' approval wait time, then return the state of the run. The client may show the page."""
        page_url = self._page_url(record_id)
        if page_url and client_call.client.can_open_pages and client_call.client.is_modern and not client_call.has_page:
            client_call.has_page = True
            sealed_state = await self._sealed_state.seal(
                client_call.to_state({"record": record_id}), client_call.arguments
            )
            return types.InputRequiredResult(
                input_requests={record_id: create_page_elicitation(page_url, record_id)}, request_state=sealed_state
            )
        wait_ms = min([self._server_wait_ms.get(server, self._wait_ms) for server in servers], default=self._wait_ms)
        async with show_page_in_session(client_call, page_url, record_id):
            with count_approvals_while_waiting("store", 1):
                outcome = await self._pending_store.wait_for_end_or_new_questions(record_id, wait_ms)
        if not isinstance(outcome, Record):
            return outcome or run_not_found_response()
        questions, not_resumable = self._questions.build_questions(outcome), outcome.not_resumable
        return waiting_response(
            record_id, questions, outcome.expires_at_ms, page_url, not_resumable, command=self._command
        )

    def _choose_channel(self, client_call: ClientCall, questions: list[Question]) -> AskChannel:
        needs_form = any(question.kind != "sign-in" for question in questions)
        return choose_ask_channel(client_call.client, client_call.pause, needs="form" if needs_form else "url")


def _has_started_calls(response: RunResponse) -> bool:
    """Return whether the run was interrupted during calls that the journal repeats without asking."""
    calls = getattr(response.exception, "calls", ())
    return any(call.get("status") == "unknown" and call.get("is_started") for call in calls)


def _is_cancelled_by_client(client_call: ClientCall) -> bool:
    """Return whether the client cancelled its call, rather than disconnected."""
    cancel_requested = getattr(getattr(client_call.ctx.session, "_request_outbound", None), "cancel_requested", None)
    return cancel_requested is not None and cancel_requested.is_set()
