"""Runs programs whose calls wait for people, and asks those people in the best way that the client has."""

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
from codemode.host.cancellation import to_its_end
from codemode.interrupts.interrupt import Interrupt
from codemode.observe.request_telemetry import approvals_asked, approvals_waiting
from codemode.stores.errors import AnswerRefusedError, StoreError, StoreUnavailableError
from codemode.stores.interrupt_store import InterruptStore
from codemode.stores.records import Record
from codemode.surfaces.modules.response import RunResponse
from codemode.surfaces.modules.run_tool import RunTool
from codemode.trace.visible_text import one_line

from ..config.model import GatewaySettings, ServerConfig
from ..config.places import COMMAND
from ..gateway.options import APP_NAME
from ..gateway.principals import CallOrigin, Principal
from .pending_store import Keeping, ReportSteps, Resuming, RunsOf
from .question_batch import (
    MAX_STATE_CHARACTERS,
    Bundles,
    ClientFacts,
    Leg,
    Pause,
    Said,
    SealedState,
    Way,
    asked_in_session,
    can_be_shown,
    elicitation,
    shown_in_session,
    to_page,
    way_of,
)
from .questions import (
    OTHER_KEYS,
    Question,
    bad_request,
    not_resumed,
    store_away,
    too_many_waiting,
    unknown_run,
    waiting,
    waiting_of,
)
from .remembered import Remembered

# Nothing that a model writes decides: answers come from the client's person, or from the store.

Answer = RunResponse | types.InputRequiredResult
_ASK_SECONDS = 600.0
_MAX_NAMES_CHARACTERS = 500
_log = logging.getLogger("codemode.mcp")


def facts_of(ctx: Any, *, by_console: bool = False) -> ClientFacts:
    """Return what is known of the client of a request, ``ctx`` being the SDK's ``ServerRequestContext``."""
    capabilities = ctx.session.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    url = elicitation is not None and elicitation.url is not None
    # Before there were two modes a client said nothing about them.
    form = elicitation is not None and (elicitation.form is not None or not url)
    is_modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    # A pipe is one client's; over HTTP nothing but a session tells one client of a user from the others.
    has_session = not is_modern or getattr(ctx, "request", None) is None
    return ClientFacts(is_modern, form, url, ctx.session.can_send_request, by_console, has_session)


class Asking:
    """Runs and resumes programs of one principal, and asks people about calls that wait.

    ``store`` gives the store, which is opened when something is first kept. ``url`` gives the page on which people
    decide about a record, without credentials, for models read it; None: they type ``command`` and more. ``servers``
    say how long a call waits there. ``goes_on``, the gateway's `Resuming.start`, is awaited once something waits there;
    without it this goes on by itself with the runs of its principal, until `aclose`. ``runs`` are those that go on.
    """

    def __init__(
        self,
        run_tool: RunTool,
        settings: GatewaySettings,
        store: Callable[[], InterruptStore],
        principal: Principal,
        remembered: Remembered,
        *,
        goes_on: Callable[[], Awaitable[None]] | None = None,
        servers: Sequence[ServerConfig] = (),
        url: Callable[[str], str | None] | None = None,
        command: str = COMMAND,
        app: str = APP_NAME,
        ask_seconds: float = _ASK_SECONDS,
        report_steps: ReportSteps = lambda _outer_id: nullcontext(),
    ) -> None:
        self.principal = principal
        self._run_tool = run_tool
        self._wait_ms = settings.approval_wait_ms
        self._most_waiting = settings.max_waiting
        self._waits = {one.name: one.approval_wait_ms for one in servers if one.approval_wait_ms is not None}
        self._page: Callable[[str], str | None] = url or (lambda _record_id: None)
        self._command = command
        self._ask_seconds = ask_seconds
        self._report_steps = report_steps
        self.runs = RunsOf(run_tool, principal, report_steps)
        self._own = Resuming(store, lambda _: nullcontext(self.runs), app, tenant=principal.id)
        self._goes_on = goes_on or self._own.start
        self._keeping = Keeping(
            store, principal, app, self.runs, remembered.session_of(principal), settings.max_waiting
        )
        self._bundles = Bundles(self.runs, remembered, principal)
        self._state = SealedState(run_tool.settings.continuation, principal)

    async def run(
        self,
        ctx: Any,
        params: types.CallToolRequestParams,
        arguments: Mapping[str, Any],
        *,
        origin: CallOrigin | None = None,
        by_console: bool = False,
    ) -> Answer:
        """Serve one call of the tool: begin a program, go on with one, or tell what became of one (``resume``).

        ``ctx`` is the SDK's context of the request. ``by_console``: the operator says that this client is not asked.
        """
        made = origin or CallOrigin(self.principal, secrets.token_hex(16), ctx.session)
        leg = Leg(ctx, facts_of(ctx, by_console=by_console), arguments, made)
        try:
            return await self._served(leg, params)
        except StoreUnavailableError:
            return store_away()
        except CodeModeProtocolError as error:
            return not_resumed(OTHER_KEYS if error.details.get("unknown_key") else error.message)

    async def aclose(self) -> None:
        """Go on with nothing more by itself, and wait a while for what runs."""
        await self._own.aclose()

    async def _served(self, leg: Leg, params: types.CallToolRequestParams) -> Answer:
        code, resume = leg.arguments.get("code"), leg.arguments.get("resume")
        if resume is not None and (code or not isinstance(resume, str)):
            said = "code and resume exclude each other" if code else "resume must be a string"
            return bad_request(said, "/resume")
        leg.code = code if isinstance(code, str) else ""
        if params.request_state is not None:
            return await self._second(leg, params.request_state, params.input_responses or {})
        if isinstance(resume, str):
            record = await self._keeping.record(resume)
            return unknown_run() if record is None else await self._kept(leg, record)
        if leg.code and self._run_tool.may_ask:
            await self._goes_on()  # with what was decided before this gateway began, too
            if (same := await self._keeping.waits(leg.code)) is not None:
                return await self._kept(leg, same)
            if await self._keeping.is_full():
                return too_many_waiting(self._most_waiting, self._command)
        leg.is_new = True
        call = CallContext(tool_call_id=leg.origin.outer_id, context=leg.origin, conversation_id=self.principal.id)
        with self._report_steps(leg.origin.outer_id):
            outcome = await self._run_tool.execute(leg.arguments, call)
        return await self._gone_on(leg, outcome)

    async def _second(self, leg: Leg, request_state: str, responses: Mapping[str, Any]) -> Answer:
        state = await self._state.opened(request_state, leg.arguments)
        leg.take(state)
        # What was not asked in this call is not answered by it, nor by a client that is not to be asked.
        responses = {key: one for key, one in responses.items() if key in leg.said and not leg.facts.by_console}
        if "record" not in state:
            interrupt = Interrupt.from_dict(state.get("interrupt"))
            return await self._gone_on(leg, await self._answered(leg, interrupt, responses))
        record = await self._keeping.record(state["record"])
        if record is None:
            return unknown_run()
        return await self._kept(leg, record, responses)

    async def _gone_on(self, leg: Leg, outcome: Any) -> Answer:
        """Ask about what waits until nothing does, or until the question has left this call."""
        while isinstance(outcome, Interrupt):
            questions = self._bundles.questions(outcome, leg.said)
            hidden = [one for one in questions if not can_be_shown(one, url=leg.facts.url)]
            if hidden:
                declined = {one.interrupt_id: {"action": "decline"} for one in hidden}
                outcome = await self._with_answers(leg, outcome, Said(declined))
                continue
            way = self._way(leg, questions)
            approvals_asked(way, len(questions))
            if way == "session":
                outcome = await self._in_session(leg, outcome, questions)
            elif way == "retry":
                return await self._retry(leg, outcome, questions)
            else:
                return await self._left_to_store(leg, outcome, questions)
        if isinstance(outcome, Record):
            return await self._kept(leg, outcome)
        recovery = outcome.recovery
        return outcome if recovery is None else await self._ended(leg, outcome, recovery)

    async def _in_session(self, leg: Leg, interrupt: Interrupt, questions: list[Question]) -> Any:
        try:
            with approvals_waiting("session", len(questions)):
                responses = await asked_in_session(leg, questions, self._ask_seconds)
        except asyncio.CancelledError:
            if not _is_cancelled_by_client(leg):  # it has left: people may still decide
                await self._left(leg, interrupt, questions)
            raise
        if len(responses) < len(questions):
            leg.facts = replace(leg.facts, has_channel=False)
        leg.pause += 1
        return await self._answered(leg, interrupt, responses)

    async def _answered(self, leg: Leg, interrupt: Interrupt, responses: Mapping[str, Any]) -> Any:
        """Go on with what was answered. What was answered to no use, or not at all, waits as before."""
        leg.is_new = False
        said = await self._bundles.read(leg, self._bundles.questions(interrupt, leg.said), responses)
        if said.left:
            leg.facts = replace(leg.facts, by_console=True)
        if not said.resolutions:
            return interrupt
        try:
            return await self._with_answers(leg, interrupt, said)
        except CodeModeProtocolError as error:
            await self._bundles.forget(said)
            if not self._bundles.blame(leg, said, error):
                raise
            return interrupt

    async def _with_answers(self, leg: Leg, interrupt: Interrupt, said: Said) -> Any:
        """Go on with answers. Where no worker is free that is left to the store, which goes on once there is one.

        So is what is cut off because the client has left: what was approved may have been under way.
        """
        try:
            outcome = await self.runs.go_on(interrupt, said.resolutions, leg.origin)
        except asyncio.CancelledError as cancelled:
            way_on = getattr(cancelled.__cause__, "recovery", None)
            if isinstance(way_on, Interrupt) and not _is_cancelled_by_client(leg):
                await self._left(leg, way_on, self._bundles.questions(way_on))
            raise
        if not isinstance(outcome, RunResponse) or not isinstance(outcome.exception, CodeModeConcurrencyError):
            return outcome
        record_id = await self._keep(leg, interrupt, self._bundles.questions(interrupt, leg.said))
        await self._written(said)
        return await self._keeping.record(record_id) or interrupt

    async def _written(self, said: Said) -> None:
        try:
            await self._keeping.decide(said.resolutions)
        except (StoreUnavailableError, AnswerRefusedError):
            raise
        except StoreError:  # somebody was faster: what they said stands
            await self._bundles.forget(said)

    async def _retry(self, leg: Leg, pause: Pause, questions: list[Question]) -> Answer:
        for one in questions:
            leg.note(one.interrupt_id, definition=one.definition)
        leg.keep(one.interrupt_id for one in questions)
        going_on = {"record": pause.id} if isinstance(pause, Record) else {"interrupt": pause.to_dict()}
        text = await self._state.sealed(leg.state(going_on), leg.arguments)
        if len(text) > MAX_STATE_CHARACTERS and isinstance(pause, Interrupt):
            record_id = await self._keep(leg, pause, questions)
            text = await self._state.sealed(leg.state({"record": record_id}), leg.arguments)
        requests = {one.interrupt_id: elicitation(one, leg) for one in questions}
        return types.InputRequiredResult(input_requests={**requests}, request_state=text)

    async def _left_to_store(self, leg: Leg, interrupt: Interrupt, questions: list[Question]) -> Answer:
        # The same program may have been sent more than once before any of them waited: one of them is enough.
        record_id = await self._keep(leg, interrupt, questions, is_new=leg.is_new)
        return await self._waited(leg, record_id, {one.server for one in questions})

    async def _kept(self, leg: Leg, record: Record, responses: Mapping[str, Any] | None = None) -> Answer:
        """Go on with a run that is in the store: ask about it where the client can, and wait for what it comes to."""
        leg.code = record.source or leg.code
        await self._goes_on()
        while True:
            ended = await self._keeping.ended(record)
            if ended is not None:
                return ended
            questions = [
                one for one in self._bundles.questions(record, leg.said) if can_be_shown(one, url=leg.facts.url)
            ]
            way = self._way(leg, questions) if questions else "store"
            if responses is None and way == "retry":
                return await self._retry(leg, record, questions)
            if responses is None and way == "session":
                with approvals_waiting("session", len(questions)):
                    responses = await asked_in_session(leg, questions, self._ask_seconds)
                leg.pause += 1
                if len(responses) < len(questions):
                    leg.facts = replace(leg.facts, has_channel=False)
            if responses is None or not questions:
                return await self._waited(leg, record.id, self._bundles.servers(record))
            said, responses = await self._decided(leg, questions, responses), None
            if said.resolutions:
                found = await self._keeping.followed(record.id, self._ask_seconds * 1000, record.version)
                if not isinstance(found, Record):
                    return found or unknown_run()
                record = found

    async def _decided(self, leg: Leg, questions: list[Question], responses: Mapping[str, Any]) -> Said:
        said = await self._bundles.read(leg, questions, responses)
        if said.left:
            leg.facts = replace(leg.facts, by_console=True)
        if said.resolutions:
            try:
                await self._written(said)
            except AnswerRefusedError as error:
                await self._bundles.forget(said)
                self._bundles.blame(leg, said, error)
                said.resolutions = {}
        return said

    async def _ended(self, leg: Leg, response: RunResponse, recovery: object) -> RunResponse:
        """Keep what was cut off, so that it can go on once people have said what happened."""
        if not isinstance(recovery, Interrupt) or not (recovery.requests or _is_under_way(response)):
            return response
        questions = self._bundles.questions(recovery)
        record_id = await self._keep(leg, recovery, questions)
        record = await self._keeping.record(record_id)
        if record is not None:
            response["waiting"] = waiting_of(record_id, questions, record.expires_at_ms, self._page(record_id))
        return response

    async def _keep(self, leg: Leg, interrupt: Interrupt, questions: list[Question], *, is_new: bool = False) -> str:
        record_id = await self._keeping.keep(
            interrupt, questions, leg.code, has_session=leg.facts.has_session, is_new=is_new
        )
        await self._goes_on()
        return record_id

    async def _left(self, leg: Leg, interrupt: Interrupt, questions: list[Question]) -> None:
        """Keep a run whose client is gone: of what cannot be kept, the log alone is left to tell."""

        async def kept() -> None:
            try:
                await self._keep(leg, interrupt, questions)
            except Exception:  # noqa: BLE001 - whatever it is, the client can no longer be told
                names = ", ".join(dict.fromkeys(f"{one.server}.{one.tool}" for one in questions)) or "its calls"
                said = one_line(names, _MAX_NAMES_CHARACTERS)
                _log.exception("a client left, and its program cannot be kept: nobody is asked about %s", said)

        await to_its_end(kept())

    async def _waited(self, leg: Leg, record_id: str, servers: set[str]) -> Answer:
        """Wait as long as the servers say, and answer what there is then. Meanwhile the client may show the page."""
        page = self._page(record_id)
        if page and leg.facts.url and leg.facts.is_modern and not leg.has_page:
            leg.has_page = True
            text = await self._state.sealed(leg.state({"record": record_id}), leg.arguments)
            return types.InputRequiredResult(input_requests={record_id: to_page(page, record_id)}, request_state=text)
        wait_ms = min([self._waits.get(one, self._wait_ms) for one in servers], default=self._wait_ms)
        async with shown_in_session(leg, page, record_id):
            with approvals_waiting("store", 1):
                found = await self._keeping.followed(record_id, wait_ms)
        if not isinstance(found, Record):
            return found or unknown_run()
        questions, stuck = self._bundles.questions(found), found.not_resumable
        return waiting(record_id, questions, found.expires_at_ms, page, stuck, command=self._command)

    def _way(self, leg: Leg, questions: list[Question]) -> Way:
        forms = any(one.kind != "sign-in" for one in questions)
        return way_of(leg.facts, leg.pause, needs="form" if forms else "url")


def _is_under_way(response: RunResponse) -> bool:
    """Tell whether calls were cut off that are made again by themselves."""
    calls = getattr(response.exception, "calls", ())
    return any(one.get("status") == "unknown" and one.get("is_started") for one in calls)


def _is_cancelled_by_client(leg: Leg) -> bool:
    """Tell whether the client has taken its call back, and not left."""
    asked = getattr(getattr(leg.ctx.session, "_request_outbound", None), "cancel_requested", None)
    return asked is not None and asked.is_set()
