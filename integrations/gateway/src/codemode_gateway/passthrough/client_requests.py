"""Requests of servers to the client: labelled, bounded, and kept open while the client is asked."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from codemode.data.json_shape import estimate_json_length
from codemode.data.narrowing import is_mapping, mapping_or_empty
from codemode.trace.visible_text import clip_text, visible

from ..gateway.principals import CallOrigin, use_current_reservation
from ..page_urls import PageURLError, get_page_host

MAX_MESSAGE_CHARACTERS = 4_000
MAX_FORM_CHARACTERS = 32_000
MAX_FIELDS = 40
MAX_SAMPLING_CHARACTERS = 2_000_000


class Declined(Exception):  # noqa: N818 - an answer
    """A request of a server is not passed on; the text says why, to the server."""


def worded(server: str, method: str, params: Mapping[str, Any]) -> types.InputRequest:
    """Return a request of a server as a client gets it. Raises `Declined` for what no client is to be asked."""
    try:
        if method == "elicitation/create":
            return types.ElicitRequest(params=_elicitation(server, params))
        if method == "sampling/createMessage":
            return types.CreateMessageRequest(params=_sampling(server, params))
    except ValidationError:
        raise Declined(f"the params of {method} are not valid") from None
    if method == "roots/list":
        return types.ListRootsRequest()
    raise Declined(f"{method} is no request that a client answers")


def told_by(server: str, text: str) -> str:
    """Return a text of a server that can be taken for no one else's: each line begins with its name."""
    lines = visible(clip_text(text, MAX_MESSAGE_CHARACTERS), keep="\n").split("\n")
    return "\n".join(f"[{visible(server)}] {line}" for line in lines)


def is_from_server(message: str) -> bool:
    """Return whether a question comes from a server: its lines begin as `told_by` writes them, none of ours does."""
    return message.startswith("[")


def refusal(request: types.InputRequest, capabilities: types.ClientCapabilities | None) -> str | None:
    """Return why a client cannot be asked this; None: it can."""
    have = capabilities or types.ClientCapabilities()
    if isinstance(request, types.ListRootsRequest):
        return None if have.roots is not None else "has no roots"
    if isinstance(request, types.CreateMessageRequest):
        if have.sampling is None:
            return "does not sample"
        wants_tools = request.params.tools is not None or request.params.tool_choice is not None
        return "does not sample with tools" if wants_tools and have.sampling.tools is None else None
    if have.elicitation is None:
        return "asks its user nothing"
    # A capability without a mode is that of forms: the revision that had no modes says it so.
    modes = have.elicitation
    if isinstance(request.params, types.ElicitRequestURLParams):
        return None if modes.url is not None else "opens no URLs for its user"
    return None if modes.form is not None or modes.url is None else "shows its user no forms"


def _elicitation(server: str, params: Mapping[str, Any]) -> types.ElicitRequestParams:
    message = told_by(server, str(params.get("message") or ""))
    if params.get("mode") == "url":
        url = str(params.get("url"))
        try:
            host = get_page_host(url)
        except PageURLError as error:
            raise Declined(f"a URL to open {error}") from None
        said = f"{message}\n[{visible(server)}] opens {host}"
        return types.ElicitRequestURLParams(message=said, url=url, elicitation_id=params.get("elicitationId"))
    schema = params.get("requestedSchema")
    if not is_mapping(schema) or estimate_json_length(schema, MAX_FORM_CHARACTERS) >= MAX_FORM_CHARACTERS:
        raise Declined(f"a form needs a requestedSchema of at most {MAX_FORM_CHARACTERS:,} characters")
    if len(mapping_or_empty(schema.get("properties"))) > MAX_FIELDS:
        raise Declined(f"a form has at most {MAX_FIELDS} fields")
    return types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))


def _sampling(server: str, params: Mapping[str, Any]) -> types.CreateMessageRequestParams:
    if estimate_json_length(params, MAX_SAMPLING_CHARACTERS) >= MAX_SAMPLING_CHARACTERS:
        raise Declined(f"a request to sample has at most {MAX_SAMPLING_CHARACTERS:,} characters")
    kept = {key: value for key, value in params.items() if key not in ("_meta", "task")}
    asked = types.CreateMessageRequestParams.model_validate(kept)
    prompt = f"The MCP server {json.dumps(visible(server))} asks for this through a gateway."
    asked.system_prompt = f"{prompt}\n\n{asked.system_prompt}" if asked.system_prompt else prompt
    asked.include_context = None  # it would be that of all servers behind the gateway
    return asked


# The question of a server is the result of the request in which it came; the client's next request brings the answer.
# What runs meanwhile stays in this process, for a server holds a call open while it asks.

STATE = "codemode-held:"
"""What a ``request_state`` of ours begins with."""

ANSWER_SECONDS = 600.0
MAX_HELD = 256
MAX_ROUNDS = 6
_GONE = "what this request waited for is no longer here: send the request again without requestState"

ResultT = TypeVar("ResultT")
_answers_of: dict[type[Any], tuple[type[Any], ...]] = {
    types.ElicitRequest: (types.ElicitResult,),
    types.CreateMessageRequest: (types.CreateMessageResult, types.CreateMessageResultWithTools),
    types.ListRootsRequest: (types.ListRootsResult,),
}


class Held:
    """One request that goes on in rounds. ``id`` is that of the round which the client has not answered yet."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.id = ""
        self.rounds = 0
        self.expiry: asyncio.TimerHandle | None = None
        self.has_question = asyncio.Event()
        self._open: dict[str, tuple[types.InputRequest, asyncio.Future[types.InputResponse]]] = {}
        self._count = 0

    async def ask(self, request: types.InputRequest) -> types.InputResponse:
        """Ask the client in the next round. Raises `Declined` when there is none, or no answer in time."""
        if self.rounds >= MAX_ROUNDS:
            raise Declined("the client has been asked too often in this call")
        self._count += 1
        key = f"question-{self._count}"
        answer: asyncio.Future[types.InputResponse] = asyncio.get_running_loop().create_future()
        self._open[key] = request, answer
        self.has_question.set()
        try:
            return await answer
        finally:
            self._open.pop(key, None)
            if not self._open:
                self.has_question.clear()

    def questions(self) -> types.InputRequests:
        """Return what is to be answered."""
        return {key: request for key, (request, answer) in self._open.items() if not answer.done()}

    def take(self, responses: types.InputResponses | None) -> None:
        """Let those go on who asked what is answered here. Unanswered questions are asked again."""
        for key, response in (responses or {}).items():
            request, answer = self._open.get(key, (None, None))
            if answer is None or answer.done():
                continue
            if isinstance(response, _answers_of[type(request)]):
                answer.set_result(response)
            else:
                answer.set_exception(Declined("the client's answer is not valid"))
            del self._open[key]
        if not self._open:
            self.has_question.clear()

    def give_up(self) -> None:
        """Decline all that is open: nobody answers any more."""
        self.rounds = MAX_ROUNDS
        for _, answer in self._open.values():
            if not answer.done():
                answer.set_exception(Declined("the client did not answer in time"))


HELD: dict[CallOrigin, Held] = {}
"""The request of each origin that is served in rounds: servers that several users share ask by its origin alone.

Each is taken out when its task ends: the task's context knows its origin, so that neither would ever go by itself.
"""


class HeldRequests:
    """The requests of one principal that go on in rounds."""

    def __init__(self) -> None:
        self._waiting: dict[str, Held] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def answered(
        self, origin: CallOrigin, params: types.InputResponseRequestParams, run: Callable[[], Awaitable[ResultT]]
    ) -> ResultT | types.InputRequiredResult:
        """Return what ``run`` gives, or a question that a server asks in it, as an ``InputRequiredResult``.

        The client's next request with the answer goes on with the same run. Raises `MCPError` for one that is gone.
        """
        state = params.request_state
        if state is not None and state.startswith(STATE):
            held = self._waiting.pop(state[len(STATE) :], None)
            if held is None:
                raise MCPError(types.INVALID_PARAMS, _GONE)
            held.take(params.input_responses)
        elif not _is_asked_in_rounds(origin.session) or len(self._running) >= MAX_HELD:
            return await run()
        else:
            held = Held(asyncio.ensure_future(_counted(run)))
            self._running.add(held.task)
            held.task.add_done_callback(partial(self._ended, origin))
            HELD[origin] = held
        return await self._round(held)

    async def aclose(self) -> None:
        """End all that goes on."""
        running = [*self._running]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _round(self, held: Held) -> Any:
        if held.expiry is not None:
            held.expiry.cancel()
        question = asyncio.ensure_future(held.has_question.wait())
        try:
            await asyncio.wait({held.task, question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            held.task.cancel()
            raise
        finally:
            question.cancel()
        if held.task.done():
            return held.task.result()
        held.rounds += 1
        held.id = secrets.token_urlsafe(24)
        self._waiting[held.id] = held
        held.expiry = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._expire, held)
        return types.InputRequiredResult(input_requests=held.questions(), request_state=STATE + held.id)

    def _expire(self, held: Held) -> None:
        self._waiting.pop(held.id, None)
        held.give_up()

    def _ended(self, origin: CallOrigin, task: asyncio.Task[Any]) -> None:
        HELD.pop(origin, None)
        self._running.discard(task)
        for held in [one for one in self._waiting.values() if one.task is task]:
            if held.expiry is not None:
                held.expiry.cancel()
            del self._waiting[held.id]
        if not task.cancelled():
            task.exception()  # there may be nobody to hear how it ended


async def _counted(run: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Run what goes on behind the answer that asks the client: its request counts until then."""
    with use_current_reservation():
        return await run()


def _is_asked_in_rounds(session: Any) -> bool:
    able = getattr(session, "client_capabilities", None)
    if able is None or session.can_send_request or session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    return able.elicitation is not None or able.sampling is not None or able.roots is not None


MAX_PER_CALL: Mapping[str, int] = {"elicitation/create": 8, "sampling/createMessage": 32, "roots/list": 32}
MAX_WAITING = 16
MAX_OPEN_CHARACTERS = 16_000_000
"""Of all that one principal is asked at a time: eight of the longest questions."""
MAX_ROOTS_A_MINUTE = 30
_MAX_ELICITATIONS = 1_000
_MAX_ID_CHARACTERS = 1_000  # of which a completion is passed on: a longer one is not kept
_MAX_ERROR_CHARACTERS = 1_000


def connection_of(session: Any) -> Any:
    """Return the connection that a request came on, which is the same for all of a client's; None: it is not known."""
    return getattr(session, "_connection", None)


class Questions:
    """What the servers of one principal ask."""

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        self._hide = hide
        self._counts: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()
        self._turns: WeakKeyDictionary[Any, asyncio.Semaphore] = WeakKeyDictionary()
        self._waiting: Counter[int] = Counter()
        self._open_characters = 0
        self._unasked: list[float] = []
        self._opened: dict[tuple[str, str], tuple[str, Any]] = {}

    async def ask(
        self, server: str, method: str, params: Mapping[str, Any], origin: CallOrigin | None
    ) -> types.InputResponse:
        """Ask the client of a request. Raises `Declined` when it cannot be asked or does not answer."""
        request = worded(server, method, params)
        session = origin.session if origin is not None else None
        if origin is None or session is None:
            raise Declined(f"{method} came in no call of a client that could be asked")
        why = refusal(request, session.client_capabilities)
        if why is not None:
            raise Declined(f"the client behind this gateway {why}")
        self._count(origin, method)
        self._hide_in(request)
        with self._room(estimate_json_length(params, MAX_OPEN_CHARACTERS)):
            held = HELD.get(origin)
            if held is not None:
                return await held.ask(self._named(request, server, session))
            if not session.can_send_request:
                raise Declined("the client behind this gateway cannot be asked within this request")
            async with self._turn(connection_of(session) or session):
                return await self._sent(session, self._named(request, server, session))

    async def roots(self, connections: list[Any]) -> types.InputResponse:
        """Ask for roots outside any call: of the one client that is there. Raises `Declined`."""
        now = asyncio.get_running_loop().time()
        self._unasked = [one for one in self._unasked if now - one < 60.0]
        if len(self._unasked) >= MAX_ROOTS_A_MINUTE:
            raise Declined("roots/list came too often")
        self._unasked.append(now)
        able = [one for one in connections if refusal(types.ListRootsRequest(), one.client_capabilities) is None]
        if len(able) != 1:
            raise Declined("no one client of this gateway has roots" if not able else "several clients have roots")
        try:
            return await able[0].send_request(types.ListRootsRequest(), opts={"timeout": ANSWER_SECONDS})
        except (MCPError, ValidationError) as error:
            raise Declined(f"the client gave no roots: {self._said(error)}") from None

    def completed(self, server: str, elicitation_id: str) -> tuple[str, Any] | None:
        """Return what the client knows an opened URL by, and the client's session; None: it was told of none."""
        return self._opened.pop((server, elicitation_id), None)

    def _count(self, origin: CallOrigin, method: str) -> None:
        counts = self._counts.setdefault(origin, Counter())
        counts[method] += 1
        if counts[method] > MAX_PER_CALL[method]:
            raise Declined(f"{method} came too often in one call")

    @contextmanager
    def _room(self, characters: int) -> Generator[None]:
        """Count what is asked for as long as it is open: calls and connections of one user may be many."""
        if self._open_characters + characters > MAX_OPEN_CHARACTERS:
            raise Declined("the questions that wait for this user are too long already")
        self._open_characters += characters
        try:
            yield
        finally:
            self._open_characters -= characters

    def _turn(self, client: Any) -> _Turn:
        turn = self._turns.get(client)
        if turn is None:
            turn = self._turns[client] = asyncio.Semaphore(1)
        return _Turn(turn, self._waiting, id(client))

    def _hide_in(self, request: types.InputRequest) -> None:
        if isinstance(request, types.ElicitRequest):
            request.params.message = self._hide(request.params.message)

    def _named(self, request: types.InputRequest, server: str, session: Any) -> types.InputRequest:
        """Give a URL that is opened an id of its own: two servers may well use the same."""
        params = request.params
        if isinstance(params, types.ElicitRequestURLParams):
            own = secrets.token_urlsafe(12)
            if params.elicitation_id is not None and len(params.elicitation_id) <= _MAX_ID_CHARACTERS:
                while len(self._opened) >= _MAX_ELICITATIONS:
                    del self._opened[next(iter(self._opened))]
                self._opened[server, params.elicitation_id] = own, session
            params.elicitation_id = own
        return request

    async def _sent(self, session: Any, request: types.InputRequest) -> types.InputResponse:
        given: Any = types.ElicitResult
        if isinstance(request, types.CreateMessageRequest):
            given = types.CreateMessageResultWithTools if request.params.tools else types.CreateMessageResult
        elif isinstance(request, types.ListRootsRequest):
            given = types.ListRootsResult
        # Any id says that the question belongs to the request in which it came; the SDK knows which.
        metadata = ServerMessageMetadata(related_request_id="")
        try:
            return await session.send_request(
                request, given, request_read_timeout_seconds=ANSWER_SECONDS, metadata=metadata
            )
        except (MCPError, ValidationError) as error:
            raise Declined(f"the client did not answer: {self._said(error)}") from None

    def _said(self, error: MCPError | ValidationError) -> str:
        text = "its answer is not valid" if isinstance(error, ValidationError) else error.message
        return clip_text(self._hide(text), _MAX_ERROR_CHARACTERS)


class _Turn:
    """Waits until a client is asked nothing else. Raises `Declined` when too many wait already."""

    def __init__(self, turn: asyncio.Semaphore, waiting: Counter[int], key: int) -> None:
        self._turn = turn
        self._waiting = waiting
        self._key = key

    async def __aenter__(self) -> None:
        if self._waiting[self._key] >= MAX_WAITING:
            raise Declined("too many questions wait for this client already")
        self._waiting[self._key] += 1
        try:
            await self._turn.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._turn.release()
        self._leave()

    def _leave(self) -> None:
        self._waiting[self._key] -= 1
        if not self._waiting[self._key]:
            del self._waiting[self._key]
