"""One client call across its retries: its sealed state, and the questions that are asked at once."""

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

from codemode.continuations.sealing import pack, unpack
from codemode.data.json_shape import weigh
from codemode.data.json_values import canonical_json, decode_json
from codemode.data.narrowing import is_object, mapping_or_empty, string_or_empty
from codemode.errors import CodeModeProtocolError, CodeModeToolError
from codemode.host.cancellation import alongside, is_ended_from_outside
from codemode.host.clock import now_ms
from codemode.host.threads import run_check
from codemode.interrupts.interrupt import Interrupt, PendingRequest, same_json
from codemode.options.parts import ContinuationOptions
from codemode.stores.records import Record, StoredRequest

from ..gateway.principals import CallOrigin, Principal, disconnect_event_of
from ..page_urls import get_page_host, is_page_url
from ..passthrough.client_requests import told_by
from .pending_store import PrincipalRuns, get_definition_digest, get_waiting_requests
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
"""By `InputRequiredResult` and a second call; within the session; by the store, where people decide elsewhere."""

FIRST_PAUSE_IN_STORE = 8
"""From this pause of one call on people decide elsewhere: clients end a chain of retries after about ten rounds."""


@dataclass(frozen=True)
class ClientCapabilities:
    """What is known of a client. ``is_modern`` is protocol 2026-07-28; ``form`` and ``url`` are how it can be asked.

    ``has_channel``: a request can be sent to it now. ``by_console``: the operator says that it is not to be asked.
    ``has_session``: what holds for its session ends with it; a request that stands for itself over HTTP has none.
    """

    is_modern: bool
    can_show_forms: bool
    can_open_pages: bool
    can_receive_requests: bool
    is_asked_in_console: bool = False
    has_session: bool = True


def choose_ask_channel(client: ClientCapabilities, pause: int, *, needs: Literal["form", "url"] = "form") -> AskChannel:
    """Return how a person is asked in the n-th ``pause`` of one call, counted from 1."""
    is_supported = client.can_show_forms if needs == "form" else client.can_open_pages
    if client.is_asked_in_console or not is_supported or pause >= FIRST_PAUSE_IN_STORE:
        return "store"
    if client.is_modern:
        return "retry"
    return "session" if client.can_receive_requests else "store"


Pause = Interrupt | Record
"""What waits: in the hands of the call, or in the store."""
NotesById = Mapping[str, Mapping[str, Any]]
"""What is known of requests beside their pause, by id: ``definition``, ``problem``, ``tries``."""


@dataclass
class ClientCall:
    """One request of a client, and the call that it belongs to. ``pause`` counts the questions of the call, from 1.

    ``code`` is what was sent, for people to read a line of. ``has_page``: the client was shown where people decide.
    ``is_new``: the program has begun in this request, and nobody was asked yet.
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
        """Return what the next request of this call needs to know."""
        return {"pause": self.pause, "said": self.notes, "page": self.has_page, **pause_state}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of the request before."""
        pause = state.get("pause")
        self.pause = pause + 1 if type(pause) is int else 1
        self.has_page = state.get("page") is True
        self.notes = {key: dict(mapping_or_empty(notes)) for key, notes in mapping_or_empty(state.get("said")).items()}

    def note(self, interrupt_id: str, **details: Any) -> None:
        """Keep what is known of one request."""
        self.notes.setdefault(interrupt_id, {}).update(details)

    def prune_notes(self, interrupt_ids: Iterable[str]) -> None:
        """Forget what was said of requests that wait no longer."""
        open_ids = set(interrupt_ids)
        self.notes = {key: notes for key, notes in self.notes.items() if key in open_ids}


# What comes back is hostile: nothing of it is read before its signature is known to be right, and that one does not fit
# another principal, another program or other keys.

MAX_STATE_CHARACTERS = 256 << 10
"""A longer one stays in the store, and only its name goes to the client."""
_MAX_WEIGHT = 1 << 20


class SealedState:
    """Seals what a call goes on from, and opens it, for one principal, with the keys of continuations."""

    def __init__(self, options: ContinuationOptions, principal: Principal) -> None:
        self._options = replace(options, seal=True, compress=True)
        self._principal = principal

    async def seal(self, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
        """Return the text of a state, for a call with these arguments."""

        def pack_state() -> str:
            packed = pack([json.dumps(state)], self._options, now_ms(), self._binding(arguments))
            return _to_text(packed)

        return await run_check(weigh(state, _MAX_WEIGHT), pack_state)

    async def unseal(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state in a text. Raises `CodeModeProtocolError` for one that this gateway did not make for this.

        This principal, this program, and these keys.
        """
        if len(text) > MAX_STATE_CHARACTERS:
            raise CodeModeProtocolError("the request state is longer than any of this gateway")
        return await run_check(len(text), lambda: self._unseal(text, arguments))

    def _unseal(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            packed = decode_json(text)
        except ValueError as error:
            raise CodeModeProtocolError("the request state is none of this gateway") from error
        # One state is one text: whatever was changed in it is refused.
        if not is_object(packed) or _to_text(packed) != text:
            raise CodeModeProtocolError("the request state is none of this gateway")
        texts, _ = unpack(packed, self._options, now_ms(), self._binding(arguments))
        state = decode_json("".join(texts))
        if not is_object(state):
            raise CodeModeProtocolError("the request state is none of this gateway")
        return state

    def _binding(self, arguments: Mapping[str, Any]) -> str:
        call_arguments = {name: arguments.get(name) for name in ("code", "resume")}
        canonical = canonical_json(["request state", self._principal.id, call_arguments])
        return "request state " + hashlib.sha256(canonical.encode("utf-8", "replace")).hexdigest()


def _to_text(packed: Mapping[str, Any]) -> str:
    return json.dumps(packed, separators=(",", ":"))


DECLINED = types.ElicitResult(action="decline")
_PAGE_TIMEOUT_SECONDS = 3600.0
_CANNOT_ASK_CODES = frozenset({types.CONNECTION_CLOSED, types.METHOD_NOT_FOUND, types.INVALID_REQUEST})
_log = logging.getLogger("codemode.mcp")


def can_be_asked(question: Question, *, url: bool) -> bool:
    """Tell whether anybody can be asked this: a page to sign in on needs a client that opens pages."""
    if question.kind == "sign-in":
        return url and is_page_url(question.payload.get("url"))
    return question.kind in ("approval", "unknown")


def create_elicitation(question: Question, client_call: ClientCall) -> types.ElicitRequest:
    """Return what asks one question."""
    if question.kind != "sign-in":
        schema = create_form_schema(question, has_session=client_call.client.has_session)
        form = types.ElicitRequestFormParams(
            message=create_question_message(question, client_call.code), requested_schema=schema
        )
        return types.ElicitRequest(params=form)
    url = string_or_empty(question.payload.get("url"))
    if question.payload.get("askedByServer"):
        # A page of the server's choice: the gateway does not vouch for it, and no client may accept for a person.
        message = told_by(
            question.server, f"wants this page to be opened before it takes the call: {get_page_host(url)}"
        )
    else:
        message = f"Sign in to {question.server} at {get_page_host(url)}, and then say that it is done."
    return types.ElicitRequest(
        params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id=question.interrupt_id)
    )


def create_page_elicitation(url: str, record_id: str) -> types.ElicitRequest:
    """Return what shows a person the page on which to decide about a run."""
    message = "A program waits for somebody to decide about its calls, on this page."
    return types.ElicitRequest(params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id=record_id))


@asynccontextmanager
async def show_page_in_session(client_call: ClientCall, url: str | None, record_id: str) -> AsyncGenerator[None]:
    """Let the client show the page while the block runs, where it can. Whatever it answers decides nothing."""
    if (
        not url
        or not client_call.client.can_open_pages
        or not client_call.client.can_receive_requests
        or client_call.client.is_modern
    ):
        yield
        return
    async with alongside(
        _send_elicitation(client_call, create_page_elicitation(url, record_id), _PAGE_TIMEOUT_SECONDS)
    ):
        yield


async def ask_in_session(client_call: ClientCall, questions: Sequence[Question], seconds: float) -> dict[str, Any]:
    """Ask all of it at once, and return the responses by request id, without those that nobody could be asked.

    A client that takes longer, or answers what is no answer, has declined; one that has left could not be asked.
    """
    results = await asyncio.gather(*(_ask_one(client_call, item, seconds) for item in questions))
    results_by_id = dict(zip((item.interrupt_id for item in questions), results, strict=True))
    return {key: item for key, item in results_by_id.items() if item is not None}


async def _ask_one(client_call: ClientCall, question: Question, seconds: float) -> types.ElicitResult | None:
    request_task = asyncio.ensure_future(
        _send_elicitation(client_call, create_elicitation(question, client_call), seconds)
    )
    client_left = disconnect_event_of(client_call.ctx)
    if client_left is None:
        return await request_task
    try:
        async with alongside(_cancel_task_on(client_left, request_task)):
            return await request_task
    except asyncio.CancelledError:
        if is_ended_from_outside(asyncio.current_task()):
            raise
        return None


async def _cancel_task_on(event: asyncio.Event, task: asyncio.Future[Any]) -> None:
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
        if error.code in _CANNOT_ASK_CODES:
            return None
        _log.info("a question to the client failed: %s", error.code)
        return DECLINED
    except ValidationError:
        return DECLINED


MAX_TRIES = 3
"""How often an edit may be wrong before the call is denied."""

_MAX_ANSWER_CHARACTERS = 1 << 20
_MAX_REASON_CHARACTERS = 1_000
_MISSING = object()

InputCheck = Callable[[Any], str | None]
"""Says what is wrong with an edited input, None for nothing."""


@dataclass(frozen=True)
class Decision:
    """What goes to the program's host. ``scope``: the answer holds for later calls of the tool too."""

    resolution: dict[str, Any]
    scope: Scope | None = None


@dataclass(frozen=True)
class AskAgain:
    """A person meant to answer, and what they wrote cannot be used."""

    problem: str


ParsedAnswer = Decision | AskAgain | None
"""None: nobody has said anything that counts, and nothing is decided."""


def parse_answer(question: Question, response: Any, check: InputCheck) -> ParsedAnswer:
    """Read what a client says its person has answered; ``response`` is whatever came in its place."""
    if question.kind == "sign-in":
        return Decision({"action": _get_action(response)})
    if question.kind == "unknown":
        return _parse_outcome(question, response)
    if question.kind != "approval":
        return Decision({"action": "decline"})  # nobody here knows how to ask it
    if _get_action(response) != "accept":
        return _deny("it was declined")
    return _parse_approval(question, response.content, check)


def _get_action(response: Any) -> str:
    return response.action if isinstance(response, types.ElicitResult) else "decline"


def _parse_approval(question: Question, content: Any, check: InputCheck) -> ParsedAnswer:
    fields = mapping_or_empty(content)
    decision, reason = fields.get("decision"), fields.get("reason", "")
    if not isinstance(decision, str) or decision not in (ONCE, SESSION, ALWAYS, DENY):
        return _deny("the answer was malformed")
    if not isinstance(reason, str | None):
        return _deny("the answer was malformed")
    reason = (reason or "")[:_MAX_REASON_CHARACTERS]
    if decision == DENY:
        return _deny(reason)
    edited_text = fields.get("input", _MISSING)
    resolution: dict[str, Any] = {"approved": True, **({"reason": reason} if reason else {})}
    scope: Scope | None = "session" if decision == SESSION else "always" if decision == ALWAYS else None
    if edited_text is _MISSING:
        return Decision(resolution, scope)
    if not isinstance(edited_text, str) or len(edited_text) > _MAX_ANSWER_CHARACTERS:
        return _deny("the answer was malformed")
    if len(question.input_text) > MAX_INPUT_CHARACTERS:
        return _deny("an input of which only a part was shown was edited")
    return _parse_edited_input(question, edited_text, resolution, scope, check)


def _parse_edited_input(
    question: Question, edited_text: str, resolution: dict[str, Any], scope: Scope | None, check: InputCheck
) -> ParsedAnswer:
    try:
        value = decode_json(edited_text)
    except ValueError as error:
        return _ask_again_or_deny(question, f"the input is no JSON: {error}")
    if same_json(value, question.input):
        return Decision(resolution, scope)
    if question.tries >= MAX_TRIES:
        return _deny("its edited input was refused")
    problem = check(value)
    if problem is not None:
        return _ask_again_or_deny(question, problem)
    return Decision({**resolution, "input": value}, scope)


def _parse_outcome(question: Question, response: Any) -> ParsedAnswer:
    if _get_action(response) != "accept":
        return None
    fields = mapping_or_empty(response.content)
    decision, reason, value = fields.get("decision"), fields.get("reason") or "", fields.get("value")
    if not isinstance(reason, str) or not isinstance(value, str | None) or len(value or "") > _MAX_ANSWER_CHARACTERS:
        return None
    if decision == RUN_AGAIN:
        return Decision({"runAgain": True})
    if decision == FAILED:
        return Decision({"error": {"message": reason[:_MAX_REASON_CHARACTERS] or "it did not happen"}})
    if decision != HAPPENED:
        return None
    try:
        return Decision({"value": decode_json(value) if value else None})
    except ValueError as error:
        return _ask_again_or_deny(question, f"what it gave is no JSON: {error}")


def _ask_again_or_deny(question: Question, problem: str) -> ParsedAnswer:
    if question.tries + 1 < MAX_TRIES:
        return AskAgain(problem)
    return None if question.kind == "unknown" else _deny(problem)


def _deny(reason: str) -> Decision:
    return Decision({"approved": False, **({"reason": reason} if reason else {})})


@dataclass
class BatchAnswers:
    """What people have said of one bundle. ``left``: somebody was asked what became of a call, and did not say."""

    resolutions: dict[str, Any] = field(default_factory=dict[str, Any])
    remembered: list[ToolIdentity] = field(default_factory=list[ToolIdentity])
    has_unanswered_outcome: bool = False


class ApprovalQuestions:
    """Makes questions of what waits and reads what is answered, for one principal."""

    def __init__(self, runs: PrincipalRuns, remembered: RememberedAnswers, principal: Principal) -> None:
        self._runs = runs
        self._remembered = remembered
        self._principal = principal

    def build(self, pause: Pause, notes_by_id: NotesById | None = None) -> list[Question]:
        """Return what is to be asked, with what is known of each from the requests ``before``."""
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
            self._build_question(request, request.payload.get("kind"), self._get_displayed_digest(request), notes)
            for request in pause.requests
        ]

    def get_server_ids(self, record: Record) -> set[str]:
        """Return the servers about whose calls a run asks, or has asked."""
        return {self._get_server_id(request.tool_name.partition(".")[0]) for request in record.requests}

    async def read_answers(
        self, client_call: ClientCall, questions: list[Question], responses: Mapping[str, Any]
    ) -> BatchAnswers:
        """Read the responses to these questions, and remember what holds for longer. Those without one are left out."""
        answers = BatchAnswers()
        for question in questions:
            response = responses.get(question.interrupt_id)
            if response is None:
                continue
            parse = partial(parse_answer, question, response, partial(self._find_input_problem, question))
            answer = await run_check(weigh(getattr(response, "content", None), _MAX_WEIGHT), parse)
            if answer is None:
                answers.has_unanswered_outcome = True
            elif isinstance(answer, AskAgain):
                client_call.note(question.interrupt_id, problem=answer.problem, tries=question.tries + 1)
            else:
                answers.resolutions[question.interrupt_id] = answer.resolution
                await self._remember(client_call, question, answer, answers)
        return answers

    async def forget(self, answers: BatchAnswers) -> None:
        """Take back what was remembered of answers that were refused."""
        for tool in answers.remembered:
            await self._remembered.forget(self._principal, tool)

    async def _remember(
        self, client_call: ClientCall, question: Question, decision: Decision, answers: BatchAnswers
    ) -> None:
        if decision.scope is None or question.definition_digest is None:
            return
        if decision.scope == "session" and not client_call.client.has_session:
            return  # it would hold for all clients of this user, for as long as the gateway runs
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
        listed = self._runs.catalog.server(path)
        return path if listed is None else listed.server_id

    def _get_displayed_digest(self, request: PendingRequest) -> str | None:
        tool = self._remembered.get_displayed_tool(request.tool_call_id)
        return None if tool is None else tool.definition_digest

    def _find_input_problem(self, question: Question, edited: Any) -> str | None:
        """Say what is wrong with an edit, as far as the tools are known here; the resume looks again."""
        tool = self._runs.catalog.get(question.tool_name)
        if tool is None:
            return None
        try:
            tool.validate_input(edited)
        except CodeModeToolError as error:
            return error.message
        return None

    def note_refused_edits(self, client_call: ClientCall, answers: BatchAnswers, error: CodeModeProtocolError) -> bool:
        """Say of each edit that it was refused; False where none was made, or the fault is another."""
        edited_ids = [key for key, resolution in answers.resolutions.items() if "input" in resolution]
        if error.details.get("superseded") or error.details.get("not_resumable"):
            return False
        for key in edited_ids:
            client_call.note(key, problem=error.message, tries=int(client_call.notes.get(key, {}).get("tries", 0)) + 1)
        return bool(edited_ids)
