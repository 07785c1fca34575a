"""Ask a client's user about pending calls, parse answers, and seal retry state."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import mcp_types as types
from pydantic import ValidationError

from codemode.continuations.sealing import encode_and_sign_continuation, verify_and_decode_continuation
from codemode.data.json_shape import estimate_json_length
from codemode.data.json_values import decode_json, encode_canonical_json
from codemode.data.narrowing import is_object, mapping_or_empty, string_or_empty
from codemode.errors import CodeModeProtocolError, CodeModeToolError
from codemode.host.cancellation import is_cancelled_from_outside, run_alongside_block
from codemode.host.clock import now_ms
from codemode.host.threads import run_in_thread_if_large_or_slow
from codemode.interrupts.interrupt import Interrupt, PendingRequest, is_same_json
from codemode.options.parts import ContinuationOptions
from codemode.stores.records import Record, StoredRequest
from codemode.trace.visible_text import clip_to_visible_line

from ..gateway.principals import CallOrigin, Principal, get_disconnect_event
from ..page_urls import is_safe_page_url, require_safe_page_host
from ..passthrough.client_requests import clip_and_add_server_label
from .pending_store import PrincipalRunResumer, get_definition_digest, get_waiting_requests
from .questions import (
    ALWAYS,
    DENY,
    FAILED,
    HAPPENED,
    MAX_INPUT_CHARACTERS,
    ONCE,
    RUN_AGAIN,
    SESSION,
    Question,
    create_form_schema,
    create_question_message,
    to_question_kind,
)
from .remembered_answers import RememberedAnswers, Scope, ToolIdentity

AskChannel = Literal["retry", "session", "store"]
"""Through `InputRequiredResult` and a retried call; within the session; or in the store, decided elsewhere."""

FIRST_PAUSE_IN_STORE = 8
"""From this pause of a call on, people decide in the store: clients stop retrying after about ten rounds."""


@dataclass(frozen=True)
class ClientCapabilities:
    """How a client can be asked. ``is_modern``: it speaks protocol 2026-07-28.

    ``can_receive_requests``: the gateway can send it a request now. ``is_asked_in_console``: the operator configured
    that people decide in the console instead. ``has_session``: False for a stateless request over HTTP.
    """

    is_modern: bool
    can_show_forms: bool
    can_open_pages: bool
    can_receive_requests: bool
    is_asked_in_console: bool = False
    has_session: bool = True


def choose_ask_channel(client: ClientCapabilities, pause: int, *, needs: Literal["form", "url"] = "form") -> AskChannel:
    """Return how to ask a person in the ``pause``-th pause of a call, from 1."""
    is_supported = client.can_show_forms if needs == "form" else client.can_open_pages
    if client.is_asked_in_console or not is_supported or pause >= FIRST_PAUSE_IN_STORE:
        return "store"
    if client.is_modern:
        return "retry"
    return "session" if client.can_receive_requests else "store"


Pause = Interrupt | Record
"""A paused run: held by the call, or in the store."""
NotesById = Mapping[str, Mapping[str, Any]]
"""Notes about requests that their pause does not have, by id: ``definition``, ``problem``, ``tries``."""


@dataclass
class ClientCall:
    """One request of a client, with the state of its call across retries. ``pause`` counts the pauses, from 1.

    ``code`` is the program, whose lines questions quote. ``has_page``: the client got the page for decisions.
    ``is_new``: the program started in this request, and no question was asked yet.
    """

    ctx: Any
    client: ClientCapabilities
    arguments: Mapping[str, Any]
    origin: CallOrigin
    code: str = ""
    pause: int = 1
    notes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    has_page: bool = False
    is_new: bool = False

    def to_state(self, pause_state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state that the next request of this call needs."""
        return {"pause": self.pause, "said": self.notes, "page": self.has_page, **pause_state}

    def restore_state_and_count_pause(self, state: Mapping[str, Any]) -> None:
        """Restore the state of the previous request."""
        pause = state.get("pause")
        self.pause = pause + 1 if type(pause) is int else 1
        self.has_page = state.get("page") is True
        self.notes = {key: dict(mapping_or_empty(notes)) for key, notes in mapping_or_empty(state.get("said")).items()}

    def add_notes(self, interrupt_id: str, **details: Any) -> None:
        """Add notes about a pending request."""
        self.notes.setdefault(interrupt_id, {}).update(details)

    def drop_notes_except(self, interrupt_ids: Iterable[str]) -> None:
        """Drop the notes about requests that are no longer pending."""
        open_ids = set(interrupt_ids)
        self.notes = {key: notes for key, notes in self.notes.items() if key in open_ids}


# Security: a returned state is hostile. Its signature, which is bound to the principal, the program and the keys, is
# verified before anything else is read.

MAX_STATE_CHARACTERS = 256 << 10
"""A longer state stays in the store, and the client gets only the record id."""
_MAX_WEIGHT = 1 << 20


class StateSealer:
    """Seals and opens the state of a call for one principal, with the continuation keys."""

    def __init__(self, options: ContinuationOptions, principal: Principal) -> None:
        self._options = replace(options, seal=True, compress=True)
        self._principal = principal

    async def seal(self, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
        """Return a state as sealed text, bound to the arguments of the call."""

        def sign_and_encode_state() -> str:
            packed = encode_and_sign_continuation(
                [json.dumps(state)], self._options, now_ms(), self._compute_binding(arguments)
            )
            return _encode_packed_state(packed)

        return await run_in_thread_if_large_or_slow(estimate_json_length(state, _MAX_WEIGHT), sign_and_encode_state)

    async def unseal(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state in a sealed text.

        Raises `CodeModeProtocolError` unless it was sealed for this principal, this program and these keys.
        """
        if len(text) > MAX_STATE_CHARACTERS:
            raise CodeModeProtocolError("the request state is too long")
        return await run_in_thread_if_large_or_slow(len(text), lambda: self._verify_and_decode_state(text, arguments))

    def _verify_and_decode_state(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            packed = decode_json(text)
        except ValueError as error:
            raise CodeModeProtocolError("the request state is not from this gateway") from error
        # Security: each state has exactly one text, so any change is refused.
        if not is_object(packed) or _encode_packed_state(packed) != text:
            raise CodeModeProtocolError("the request state is not from this gateway")
        texts, _ = verify_and_decode_continuation(packed, self._options, now_ms(), self._compute_binding(arguments))
        state = decode_json("".join(texts))
        if not is_object(state):
            raise CodeModeProtocolError("the request state is not from this gateway")
        return state

    def _compute_binding(self, arguments: Mapping[str, Any]) -> str:
        call_arguments = {name: arguments.get(name) for name in ("code", "resume")}
        canonical = encode_canonical_json(["request state", self._principal.id, call_arguments])
        return "request state " + hashlib.sha256(canonical.encode("utf-8", "replace")).hexdigest()


def _encode_packed_state(packed: Mapping[str, Any]) -> str:
    return json.dumps(packed, separators=(",", ":"))


DECLINED = types.ElicitResult(action="decline")
_PAGE_TIMEOUT_SECONDS = 3600.0
_MAX_LOGGED_CHARACTERS = 500
_log = logging.getLogger("codemode.mcp")


def can_be_asked(question: Question, *, url: bool) -> bool:
    """Return whether a person can be asked. A sign-in page needs a client that opens URLs."""
    if question.kind == "sign-in":
        return url and is_safe_page_url(question.payload.get("url"))
    return question.kind in ("approval", "unknown")


def create_elicitation(question: Question, client_call: ClientCall) -> types.ElicitRequest:
    """Return the elicitation request for a question."""
    if question.kind != "sign-in":
        schema = create_form_schema(question, has_session=client_call.client.has_session)
        form = types.ElicitRequestFormParams(
            message=create_question_message(question, client_call.code), requested_schema=schema
        )
        return types.ElicitRequest(params=form)
    url = string_or_empty(question.payload.get("url"))
    if question.payload.get("askedByServer"):
        # Security: the server chose this page. The message says so, and the gateway does not recommend it.
        message = clip_and_add_server_label(
            question.server, f"asks you to open this page before it accepts the call: {require_safe_page_host(url)}"
        )
    else:
        message = f"Sign in to {question.server} at {require_safe_page_host(url)}, then confirm here."
    return types.ElicitRequest(
        params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id=question.interrupt_id)
    )


def create_page_elicitation(url: str, record_id: str) -> types.ElicitRequest:
    """Return the elicitation request that opens the page for decisions about a run."""
    message = "A program waits for your decision about its calls. Decide on this page."
    return types.ElicitRequest(params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id=record_id))


@asynccontextmanager
async def show_page_in_session(client_call: ClientCall, url: str | None, record_id: str) -> AsyncGenerator[None]:
    """Ask the client to show the page while the block runs, if supported. Its answer decides nothing."""
    if (
        not url
        or not client_call.client.can_open_pages
        or not client_call.client.can_receive_requests
        or client_call.client.is_modern
    ):
        yield
        return
    async with run_alongside_block(
        _send_elicitation(client_call, create_page_elicitation(url, record_id), _PAGE_TIMEOUT_SECONDS)
    ):
        yield


async def ask_in_session(client_call: ClientCall, questions: Sequence[Question], seconds: float) -> dict[str, Any]:
    """Ask all questions at once, and return the responses by request id, without unanswerable questions.

    A client that times out or sends an invalid answer has declined. One that disconnects or answers with an error
    could not ask.
    """
    results = await asyncio.gather(*(_ask_question(client_call, item, seconds) for item in questions))
    results_by_id = dict(zip((item.interrupt_id for item in questions), results, strict=True))
    return {key: item for key, item in results_by_id.items() if item is not None}


async def _ask_question(client_call: ClientCall, question: Question, seconds: float) -> types.ElicitResult | None:
    request_task = asyncio.ensure_future(
        _send_elicitation(client_call, create_elicitation(question, client_call), seconds)
    )
    client_left = get_disconnect_event(client_call.ctx)
    if client_left is None:
        return await request_task
    try:
        async with run_alongside_block(_cancel_task_when_set(client_left, request_task)):
            return await request_task
    except asyncio.CancelledError:
        if is_cancelled_from_outside(asyncio.current_task()):
            raise
        return None


async def _cancel_task_when_set(event: asyncio.Event, task: asyncio.Future[Any]) -> None:
    await event.wait()
    task.cancel()


async def _send_elicitation(
    client_call: ClientCall, request: types.ElicitRequest, seconds: float
) -> types.ElicitResult | None:
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import ServerMessageMetadata

    try:
        return await client_call.ctx.session.send_request(
            request,
            types.ElicitResult,
            request_read_timeout_seconds=seconds,
            metadata=ServerMessageMetadata(related_request_id=client_call.ctx.request_id),
        )
    except MCPError as error:
        text = clip_to_visible_line(error.error.message, _MAX_LOGGED_CHARACTERS)
        _log.info("a question to the client failed: %s (%s)", text, error.code)
        return DECLINED if error.code == types.REQUEST_TIMEOUT else None
    except ValidationError:
        return DECLINED


MAX_TRIES = 3
"""How many invalid edits deny the call."""

_MAX_ANSWER_CHARACTERS = 1 << 20
_MAX_REASON_CHARACTERS = 1_000
_MISSING = object()

InputCheck = Callable[[Any], str | None]
"""Returns what is wrong with an edited input, or None."""


@dataclass(frozen=True)
class ParsedDecision:
    """A decision about a call. With ``scope`` it holds for later calls of the tool too."""

    resolution: dict[str, Any]
    scope: Scope | None = None


@dataclass(frozen=True)
class UnusableAnswer:
    """An answer that cannot be used: the person is asked again."""

    problem: str


ParsedAnswer = ParsedDecision | UnusableAnswer | None
"""None: there is no valid answer, and nothing is decided."""


def parse_answer(question: Question, response: Any, check: InputCheck) -> ParsedAnswer:
    """Parse the answer of a client's user. ``response`` is untrusted."""
    if question.kind == "sign-in":
        return ParsedDecision({"action": _get_action(response)})
    if question.kind == "unknown":
        return _parse_outcome_answer(question, response)
    if question.kind != "approval":
        return ParsedDecision({"action": "decline"})  # an unknown kind of question
    if _get_action(response) != "accept":
        return _create_denial("it was declined")
    return _parse_approval(question, response.content, check)


def _get_action(response: Any) -> str:
    return response.action if isinstance(response, types.ElicitResult) else "decline"


def _parse_approval(question: Question, content: Any, check: InputCheck) -> ParsedAnswer:
    fields = mapping_or_empty(content)
    decision, reason = fields.get("decision"), fields.get("reason", "")
    if not isinstance(decision, str) or decision not in (ONCE, SESSION, ALWAYS, DENY):
        return _create_denial("the answer was malformed")
    if not isinstance(reason, str | None):
        return _create_denial("the answer was malformed")
    reason = (reason or "")[:_MAX_REASON_CHARACTERS]
    if decision == DENY:
        return _create_denial(reason)
    edited_text = fields.get("input", _MISSING)
    resolution: dict[str, Any] = {"approved": True, **({"reason": reason} if reason else {})}
    scope: Scope | None = "session" if decision == SESSION else "always" if decision == ALWAYS else None
    if edited_text is _MISSING:
        return ParsedDecision(resolution, scope)
    if not isinstance(edited_text, str) or len(edited_text) > _MAX_ANSWER_CHARACTERS:
        return _create_denial("the answer was malformed")
    if len(question.input_text) > MAX_INPUT_CHARACTERS:
        return _create_denial("an input that was shown only in part was edited")
    return _parse_edited_input(question, edited_text, resolution, scope, check)


def _parse_edited_input(
    question: Question, edited_text: str, resolution: dict[str, Any], scope: Scope | None, check: InputCheck
) -> ParsedAnswer:
    try:
        value = decode_json(edited_text)
    except ValueError as error:
        return _to_unusable_answer_or_denial(question, f"the input is not JSON: {error}")
    if is_same_json(value, question.input):
        return ParsedDecision(resolution, scope)
    if question.tries >= MAX_TRIES:
        return _create_denial("its edited input was refused")
    problem = check(value)
    if problem is not None:
        return _to_unusable_answer_or_denial(question, problem)
    return ParsedDecision({**resolution, "input": value}, scope)


def _parse_outcome_answer(question: Question, response: Any) -> ParsedAnswer:
    if _get_action(response) != "accept":
        return None
    fields = mapping_or_empty(response.content)
    decision, reason, value = fields.get("decision"), fields.get("reason") or "", fields.get("value")
    if not isinstance(reason, str) or not isinstance(value, str | None) or len(value or "") > _MAX_ANSWER_CHARACTERS:
        return None
    if decision == RUN_AGAIN:
        return ParsedDecision({"runAgain": True})
    if decision == FAILED:
        return ParsedDecision({"error": {"message": reason[:_MAX_REASON_CHARACTERS] or "it did not happen"}})
    if decision != HAPPENED:
        return None
    try:
        return ParsedDecision({"value": decode_json(value) if value else None})
    except ValueError as error:
        return _to_unusable_answer_or_denial(question, f"the result is not JSON: {error}")


def _to_unusable_answer_or_denial(question: Question, problem: str) -> ParsedAnswer:
    if question.tries + 1 < MAX_TRIES:
        return UnusableAnswer(problem)
    return None if question.kind == "unknown" else _create_denial(problem)


def _create_denial(reason: str) -> ParsedDecision:
    return ParsedDecision({"approved": False, **({"reason": reason} if reason else {})})


@dataclass
class BatchAnswers:
    """The answers to a batch of questions. ``has_unanswered_outcome``: an outcome was asked for and not given."""

    resolutions: dict[str, Any] = field(default_factory=dict[str, Any])
    remembered: list[ToolIdentity] = field(default_factory=list[ToolIdentity])
    has_unanswered_outcome: bool = False


class ApprovalQuestions:
    """Builds questions about pending calls and reads the answers, for one principal."""

    def __init__(self, runs: PrincipalRunResumer, remembered: RememberedAnswers, principal: Principal) -> None:
        self._runs = runs
        self._remembered = remembered
        self._principal = principal

    def build_questions(self, pause: Pause, notes_by_id: NotesById | None = None) -> list[Question]:
        """Return the questions of a pause, with the notes from previous requests."""
        notes = notes_by_id or {}
        if isinstance(pause, Record):
            stored_requests = [
                (request, get_definition_digest(pause, request.interrupt_id)) for request in get_waiting_requests(pause)
            ]
            return [
                self._build_question(request, request.kind, definition, notes)
                for request, definition in stored_requests
            ]
        return [
            self._build_question(
                request, request.payload.get("kind"), self._get_displayed_definition_digest(request), notes
            )
            for request in pause.requests
        ]

    def get_server_ids(self, record: Record) -> set[str]:
        """Return the ids of the servers whose calls a run asks or asked about."""
        return {self._get_server_id(request.tool_name.partition(".")[0]) for request in record.requests}

    async def parse_and_remember_answers(
        self, client_call: ClientCall, questions: list[Question], responses: Mapping[str, Any]
    ) -> BatchAnswers:
        """Parse the responses to these questions, and remember answers with a scope. Skip unanswered questions."""
        answers = BatchAnswers()
        for question in questions:
            response = responses.get(question.interrupt_id)
            if response is None:
                continue
            parse = partial(parse_answer, question, response, partial(self._find_input_problem, question))
            answer = await run_in_thread_if_large_or_slow(
                estimate_json_length(getattr(response, "content", None), _MAX_WEIGHT), parse
            )
            if answer is None:
                answers.has_unanswered_outcome = True
            elif isinstance(answer, UnusableAnswer):
                client_call.add_notes(question.interrupt_id, problem=answer.problem, tries=question.tries + 1)
            else:
                answers.resolutions[question.interrupt_id] = answer.resolution
                await self._remember_answer(client_call, question, answer, answers)
        return answers

    async def forget_remembered_answers(self, answers: BatchAnswers) -> None:
        """Forget the remembered answers among refused ones."""
        for tool in answers.remembered:
            await self._remembered.forget(self._principal, tool)

    async def _remember_answer(
        self, client_call: ClientCall, question: Question, decision: ParsedDecision, answers: BatchAnswers
    ) -> None:
        if decision.scope is None or question.definition_digest is None:
            return
        if decision.scope == "session" and not client_call.client.has_session:
            return  # it would hold for all clients of this user until the gateway stops
        tool = ToolIdentity(question.server, question.tool, question.definition_digest)
        if not await self._remembered.allows(self._principal, tool):
            await self._remembered.remember(self._principal, tool, decision.scope)
            answers.remembered.append(tool)

    def _build_question(
        self, request: PendingRequest | StoredRequest, kind: Any, definition: Any, notes_by_id: NotesById
    ) -> Question:
        path, _, tool = request.tool_name.partition(".")
        notes = notes_by_id.get(request.interrupt_id, {})
        definition_digest = notes.get("definition", definition)
        problem, tries = notes.get("problem"), notes.get("tries", 0)
        return Question(
            interrupt_id=request.interrupt_id,
            kind=to_question_kind(kind),
            tool_name=request.tool_name,
            server=self._get_server_id(path),
            tool=tool,
            input=request.input,
            payload=request.payload,
            line=request.line,
            program=request.program if isinstance(request, PendingRequest) else None,
            definition_digest=definition_digest if isinstance(definition_digest, str) else None,
            problem=problem if isinstance(problem, str) else None,
            tries=tries if type(tries) is int else 0,
        )

    def _get_server_id(self, path: str) -> str:
        listed = self._runs.catalog.get_server(path)
        return path if listed is None else listed.server_id

    def _get_displayed_definition_digest(self, request: PendingRequest) -> str | None:
        tool = self._remembered.get_displayed_tool(request.tool_call_id)
        return None if tool is None else tool.definition_digest

    def _find_input_problem(self, question: Question, edited: Any) -> str | None:
        """Return what is wrong with an edited input, if its tool is listed; the resume validates again."""
        tool = self._runs.catalog.get(question.tool_name)
        if tool is None:
            return None
        try:
            tool.validate_input(edited)
        except CodeModeToolError as error:
            return error.message
        return None

    def record_refused_edits_and_count_tries(
        self, client_call: ClientCall, answers: BatchAnswers, error: CodeModeProtocolError
    ) -> bool:
        """Note the refusal for each edited input. Return False without edits, or if the error has another cause."""
        edited_ids = [key for key, resolution in answers.resolutions.items() if "input" in resolution]
        if error.details.get("superseded") or error.details.get("not_resumable"):
            return False
        for key in edited_ids:
            client_call.add_notes(
                key, problem=error.message, tries=int(client_call.notes.get(key, {}).get("tries", 0)) + 1
            )
        return bool(edited_ids)
