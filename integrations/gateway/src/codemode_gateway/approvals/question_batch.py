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
from ..page_urls import is_page, page_host
from ..passthrough.client_requests import told_by
from .pending_store import RunsOf, definition_in, waiting_in
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
    form_of,
    kind_of,
    message_of,
)
from .remembered import KnownTool, Remembered, Scope

Way = Literal["retry", "session", "store"]
"""By `InputRequiredResult` and a second call; within the session; by the store, where people decide elsewhere."""

FIRST_IN_STORE = 8
"""From this pause of one call on people decide elsewhere: clients end a chain of retries after about ten rounds."""


@dataclass(frozen=True)
class ClientFacts:
    """What is known of a client. ``is_modern`` is protocol 2026-07-28; ``form`` and ``url`` are how it can be asked.

    ``has_channel``: a request can be sent to it now. ``by_console``: the operator says that it is not to be asked.
    ``has_session``: what holds for its session ends with it; a request that stands for itself over HTTP has none.
    """

    is_modern: bool
    form: bool
    url: bool
    has_channel: bool
    by_console: bool = False
    has_session: bool = True


def way_of(facts: ClientFacts, pause: int, *, needs: Literal["form", "url"] = "form") -> Way:
    """Return how a person is asked in the n-th ``pause`` of one call, counted from 1."""
    can_show = facts.form if needs == "form" else facts.url
    if facts.by_console or not can_show or pause >= FIRST_IN_STORE:
        return "store"
    if facts.is_modern:
        return "retry"
    return "session" if facts.has_channel else "store"


Pause = Interrupt | Record
"""What waits: in the hands of the call, or in the store."""
Before = Mapping[str, Mapping[str, Any]]
"""What is known of requests beside their pause, by id: ``definition``, ``problem``, ``tries``."""


@dataclass
class Leg:
    """One request of a client, and the call that it belongs to. ``pause`` counts the questions of the call, from 1.

    ``code`` is what was sent, for people to read a line of. ``has_page``: the client was shown where people decide.
    ``is_new``: the program has begun in this request, and nobody was asked yet.
    """

    ctx: Any
    facts: ClientFacts
    arguments: Mapping[str, Any]
    origin: CallOrigin
    code: str = ""
    pause: int = 1
    said: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    has_page: bool = False
    is_new: bool = False

    def state(self, going_on: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the next request of this call needs to know."""
        return {"pause": self.pause, "said": self.said, "page": self.has_page, **going_on}

    def take(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of the request before."""
        pause = state.get("pause")
        self.pause = pause + 1 if type(pause) is int else 1
        self.has_page = state.get("page") is True
        self.said = {key: dict(mapping_or_empty(one)) for key, one in mapping_or_empty(state.get("said")).items()}

    def note(self, interrupt_id: str, **said: Any) -> None:
        """Keep what is known of one request."""
        self.said.setdefault(interrupt_id, {}).update(said)

    def keep(self, interrupt_ids: Iterable[str]) -> None:
        """Forget what was said of requests that wait no longer."""
        open_ids = set(interrupt_ids)
        self.said = {key: one for key, one in self.said.items() if key in open_ids}


# What comes back is hostile: nothing of it is read before its signature is known to be right, and that one does not fit
# another principal, another program or other keys.

MAX_STATE_CHARACTERS = 256 << 10
"""A longer one stays in the store, and only its name goes to the client."""
_ENOUGH = 1 << 20


class SealedState:
    """Seals what a call goes on from, and opens it, for one principal, with the keys of continuations."""

    def __init__(self, options: ContinuationOptions, principal: Principal) -> None:
        self._options = replace(options, seal=True, compress=True)
        self._principal = principal

    async def sealed(self, state: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
        """Return the text of a state, for a call with these arguments."""

        def seal() -> str:
            packed = pack([json.dumps(state)], self._options, now_ms(), self._binding(arguments))
            return _written(packed)

        return await run_check(weigh(state, _ENOUGH), seal)

    async def opened(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the state in a text. Raises `CodeModeProtocolError` for one that this gateway did not make for this.

        This principal, this program, and these keys.
        """
        if len(text) > MAX_STATE_CHARACTERS:
            raise CodeModeProtocolError("the request state is longer than any of this gateway")
        return await run_check(len(text), lambda: self._open(text, arguments))

    def _open(self, text: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            packed = decode_json(text)
        except ValueError as error:
            raise CodeModeProtocolError("the request state is none of this gateway") from error
        # One state is one text: whatever was changed in it is refused.
        if not is_object(packed) or _written(packed) != text:
            raise CodeModeProtocolError("the request state is none of this gateway")
        texts, _ = unpack(packed, self._options, now_ms(), self._binding(arguments))
        state = decode_json("".join(texts))
        if not is_object(state):
            raise CodeModeProtocolError("the request state is none of this gateway")
        return state

    def _binding(self, arguments: Mapping[str, Any]) -> str:
        asked = {name: arguments.get(name) for name in ("code", "resume")}
        said = canonical_json(["request state", self._principal.id, asked])
        return "request state " + hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()


def _written(packed: Mapping[str, Any]) -> str:
    return json.dumps(packed, separators=(",", ":"))


DECLINED = types.ElicitResult(action="decline")
_PAGE_SECONDS = 3600.0
_NOBODY = frozenset({types.CONNECTION_CLOSED, types.METHOD_NOT_FOUND, types.INVALID_REQUEST})
_log = logging.getLogger("codemode.mcp")


def can_be_shown(question: Question, *, url: bool) -> bool:
    """Tell whether anybody can be asked this: a page to sign in on needs a client that opens pages."""
    if question.kind == "sign-in":
        return url and is_page(question.payload.get("url"))
    return question.kind in ("approval", "unknown")


def elicitation(question: Question, leg: Leg) -> types.ElicitRequest:
    """Return what asks one question."""
    if question.kind != "sign-in":
        schema = form_of(question, has_session=leg.facts.has_session)
        form = types.ElicitRequestFormParams(message=message_of(question, leg.code), requested_schema=schema)
        return types.ElicitRequest(params=form)
    url = string_or_empty(question.payload.get("url"))
    if question.payload.get("askedByServer"):
        # A page of the server's choice: the gateway does not vouch for it, and no client may accept for a person.
        message = told_by(question.server, f"wants this page to be opened before it takes the call: {page_host(url)}")
    else:
        message = f"Sign in to {question.server} at {page_host(url)}, and then say that it is done."
    return types.ElicitRequest(
        params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id=question.interrupt_id)
    )


def to_page(url: str, record_id: str) -> types.ElicitRequest:
    """Return what shows a person the page on which to decide about a run."""
    message = "A program waits for somebody to decide about its calls, on this page."
    return types.ElicitRequest(params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id=record_id))


@asynccontextmanager
async def shown_in_session(leg: Leg, url: str | None, record_id: str) -> AsyncGenerator[None]:
    """Let the client show the page while the block runs, where it can. Whatever it answers decides nothing."""
    if not url or not leg.facts.url or not leg.facts.has_channel or leg.facts.is_modern:
        yield
        return
    async with alongside(_sent(leg, to_page(url, record_id), _PAGE_SECONDS)):
        yield


async def asked_in_session(leg: Leg, questions: Sequence[Question], seconds: float) -> dict[str, Any]:
    """Ask all of it at once, and return the responses by request id, without those that nobody could be asked.

    A client that takes longer, or answers what is no answer, has declined; one that has left could not be asked.
    """
    told = await asyncio.gather(*(_one(leg, one, seconds) for one in questions))
    by_id = dict(zip((one.interrupt_id for one in questions), told, strict=True))
    return {key: one for key, one in by_id.items() if one is not None}


async def _one(leg: Leg, question: Question, seconds: float) -> types.ElicitResult | None:
    asked = asyncio.ensure_future(_sent(leg, elicitation(question, leg), seconds))
    left = disconnect_event_of(leg.ctx)
    if left is None:
        return await asked
    try:
        async with alongside(_ended_by(left, asked)):
            return await asked
    except asyncio.CancelledError:
        if is_ended_from_outside(asyncio.current_task()):
            raise
        return None


async def _ended_by(left: asyncio.Event, asked: asyncio.Future[Any]) -> None:
    await left.wait()
    asked.cancel()


async def _sent(leg: Leg, request: types.ElicitRequest, seconds: float) -> types.ElicitResult | None:
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import ServerMessageMetadata

    try:
        return await leg.ctx.session.send_request(
            request,
            types.ElicitResult,
            request_read_timeout_seconds=seconds,
            metadata=ServerMessageMetadata(related_request_id=leg.ctx.request_id),
        )
    except MCPError as error:
        if error.code in _NOBODY:
            return None
        _log.info("a question to the client failed: %s", error.code)
        return DECLINED
    except ValidationError:
        return DECLINED


MOST_TRIES = 3
"""How often an edit may be wrong before the call is denied."""

_MAX_ANSWER_CHARACTERS = 1 << 20
_MAX_REASON_CHARACTERS = 1_000
_MISSING = object()

Check = Callable[[Any], str | None]
"""Says what is wrong with an edited input, None for nothing."""


@dataclass(frozen=True)
class Answered:
    """What goes to the program's host. ``scope``: the answer holds for later calls of the tool too."""

    resolution: dict[str, Any]
    scope: Scope | None = None


@dataclass(frozen=True)
class AskAgain:
    """A person meant to answer, and what they wrote cannot be used."""

    problem: str


Answer = Answered | AskAgain | None
"""None: nobody has said anything that counts, and nothing is decided."""


def read_answer(question: Question, response: Any, check: Check) -> Answer:
    """Read what a client says its person has answered; ``response`` is whatever came in its place."""
    if question.kind == "sign-in":
        return Answered({"action": _action(response)})
    if question.kind == "unknown":
        return _what_happened(question, response)
    if question.kind != "approval":
        return Answered({"action": "decline"})  # nobody here knows how to ask it
    if _action(response) != "accept":
        return _denied("it was declined")
    return _decision(question, response.content, check)


def _action(response: Any) -> str:
    return response.action if isinstance(response, types.ElicitResult) else "decline"


def _decision(question: Question, content: Any, check: Check) -> Answer:
    said = mapping_or_empty(content)
    decision, reason = said.get("decision"), said.get("reason", "")
    if not isinstance(decision, str) or decision not in (ONCE, SESSION, ALWAYS, DENY):
        return _denied("the answer was malformed")
    if not isinstance(reason, str | None):
        return _denied("the answer was malformed")
    reason = (reason or "")[:_MAX_REASON_CHARACTERS]
    if decision == DENY:
        return _denied(reason)
    edited = said.get("input", _MISSING)
    resolution: dict[str, Any] = {"approved": True, **({"reason": reason} if reason else {})}
    scope: Scope | None = "session" if decision == SESSION else "always" if decision == ALWAYS else None
    if edited is _MISSING:
        return Answered(resolution, scope)
    if not isinstance(edited, str) or len(edited) > _MAX_ANSWER_CHARACTERS:
        return _denied("the answer was malformed")
    if len(question.shown_input) > MAX_INPUT_CHARACTERS:
        return _denied("an input of which only a part was shown was edited")
    return _with_edit(question, edited, resolution, scope, check)


def _with_edit(
    question: Question, edited: str, resolution: dict[str, Any], scope: Scope | None, check: Check
) -> Answer:
    try:
        value = decode_json(edited)
    except ValueError as error:
        return _again(question, f"the input is no JSON: {error}")
    if same_json(value, question.input):
        return Answered(resolution, scope)
    if question.tries >= MOST_TRIES:
        return _denied("its edited input was refused")
    problem = check(value)
    if problem is not None:
        return _again(question, problem)
    return Answered({**resolution, "input": value}, scope)


def _what_happened(question: Question, response: Any) -> Answer:
    if _action(response) != "accept":
        return None
    said = mapping_or_empty(response.content)
    decision, reason, value = said.get("decision"), said.get("reason") or "", said.get("value")
    if not isinstance(reason, str) or not isinstance(value, str | None) or len(value or "") > _MAX_ANSWER_CHARACTERS:
        return None
    if decision == RUN_AGAIN:
        return Answered({"runAgain": True})
    if decision == FAILED:
        return Answered({"error": {"message": reason[:_MAX_REASON_CHARACTERS] or "it did not happen"}})
    if decision != HAPPENED:
        return None
    try:
        return Answered({"value": decode_json(value) if value else None})
    except ValueError as error:
        return _again(question, f"what it gave is no JSON: {error}")


def _again(question: Question, problem: str) -> Answer:
    if question.tries + 1 < MOST_TRIES:
        return AskAgain(problem)
    return None if question.kind == "unknown" else _denied(problem)


def _denied(reason: str) -> Answered:
    return Answered({"approved": False, **({"reason": reason} if reason else {})})


@dataclass
class Said:
    """What people have said of one bundle. ``left``: somebody was asked what became of a call, and did not say."""

    resolutions: dict[str, Any] = field(default_factory=dict[str, Any])
    remembered: list[KnownTool] = field(default_factory=list[KnownTool])
    left: bool = False


class Bundles:
    """Makes questions of what waits and reads what is answered, for one principal."""

    def __init__(self, runs: RunsOf, remembered: Remembered, principal: Principal) -> None:
        self._runs = runs
        self._remembered = remembered
        self._principal = principal

    def questions(self, pause: Pause, before: Before | None = None) -> list[Question]:
        """Return what is to be asked, with what is known of each from the requests ``before``."""
        told = before or {}
        if isinstance(pause, Record):
            kept = [(one, definition_in(pause, one.interrupt_id)) for one in waiting_in(pause)]
            return [self._question(one, one.kind, definition, told) for one, definition in kept]
        return [self._question(one, one.payload.get("kind"), self._shown(one), told) for one in pause.requests]

    def servers(self, record: Record) -> set[str]:
        """Return the servers about whose calls a run asks, or has asked."""
        return {self._server(one.tool_name.partition(".")[0]) for one in record.requests}

    async def read(self, leg: Leg, questions: list[Question], responses: Mapping[str, Any]) -> Said:
        """Read the responses to these questions, and remember what holds for longer. Those without one are left out."""
        said = Said()
        for question in questions:
            response = responses.get(question.interrupt_id)
            if response is None:
                continue
            read = partial(read_answer, question, response, partial(self._problem, question))
            answer = await run_check(weigh(getattr(response, "content", None), _ENOUGH), read)
            if answer is None:
                said.left = True
            elif isinstance(answer, AskAgain):
                leg.note(question.interrupt_id, problem=answer.problem, tries=question.tries + 1)
            else:
                said.resolutions[question.interrupt_id] = answer.resolution
                await self._remember(leg, question, answer, said)
        return said

    async def forget(self, said: Said) -> None:
        """Take back what was remembered of answers that were refused."""
        for known in said.remembered:
            await self._remembered.forget(self._principal, known)

    async def _remember(self, leg: Leg, question: Question, answer: Answered, said: Said) -> None:
        if answer.scope is None or question.definition is None:
            return
        if answer.scope == "session" and not leg.facts.has_session:
            return  # it would hold for all clients of this user, for as long as the gateway runs
        known = KnownTool(question.server, question.tool, question.definition)
        if not await self._remembered.allows(self._principal, known):
            await self._remembered.remember(self._principal, known, answer.scope)
            said.remembered.append(known)

    def _question(
        self, request: PendingRequest | StoredRequest, kind: Any, definition: Any, before: Before
    ) -> Question:
        path, _, tool = request.tool_name.partition(".")
        said = before.get(request.interrupt_id, {})
        known = said.get("definition", definition)
        problem, tries = said.get("problem"), said.get("tries", 0)
        return Question(
            interrupt_id=request.interrupt_id,
            kind=kind_of(kind),
            tool_name=request.tool_name,
            server=self._server(path),
            tool=tool,
            input=request.input,
            payload=request.payload,
            line=request.line,
            program=request.program if isinstance(request, PendingRequest) else None,
            definition=known if isinstance(known, str) else None,
            problem=problem if isinstance(problem, str) else None,
            tries=tries if type(tries) is int else 0,
        )

    def _server(self, path: str) -> str:
        listed = self._runs.catalog.server(path)
        return path if listed is None else listed.server_id

    def _shown(self, request: PendingRequest) -> str | None:
        known = self._remembered.shown(request.tool_call_id)
        return None if known is None else known.definition

    def _problem(self, question: Question, edited: Any) -> str | None:
        """Say what is wrong with an edit, as far as the tools are known here; the resume looks again."""
        tool = self._runs.catalog.get(question.tool_name)
        if tool is None:
            return None
        try:
            tool.validate_input(edited)
        except CodeModeToolError as error:
            return error.message
        return None

    def blame(self, leg: Leg, said: Said, error: CodeModeProtocolError) -> bool:
        """Say of each edit that it was refused; False where none was made, or the fault is another."""
        edited = [key for key, one in said.resolutions.items() if "input" in one]
        if error.details.get("superseded") or error.details.get("not_resumable"):
            return False
        for key in edited:
            leg.note(key, problem=error.message, tries=int(leg.said.get(key, {}).get("tries", 0)) + 1)
        return bool(edited)
