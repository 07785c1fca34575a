"""Forward requests of servers to the client, with labels and limits."""

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
from codemode.trace.visible_text import clip_text, escape_invisible

from ..gateway.principals import CallOrigin, count_current_request
from ..page_urls import PageURLError, require_safe_page_host

MAX_MESSAGE_CHARACTERS = 4_000
MAX_FORM_CHARACTERS = 32_000
MAX_FIELDS = 40
MAX_SAMPLING_CHARACTERS = 2_000_000


class RequestDeclinedError(Exception):
    """A server's request is not forwarded; the text tells the server why."""


def to_client_request(server: str, method: str, params: Mapping[str, Any]) -> types.InputRequest:
    """Return a server's request as the client receives it. Raises `RequestDeclinedError`."""
    try:
        if method == "elicitation/create":
            return types.ElicitRequest(params=_to_elicitation_params(server, params))
        if method == "sampling/createMessage":
            return types.CreateMessageRequest(params=_to_sampling_params(server, params))
    except ValidationError:
        raise RequestDeclinedError(f"the params of {method} are invalid") from None
    if method == "roots/list":
        return types.ListRootsRequest()
    raise RequestDeclinedError(f"{method} is not a request to a client")


def clip_and_add_server_label(server: str, text: str) -> str:
    """Return a server's text with its name at the start of each line, so that no other source can be claimed."""
    lines = escape_invisible(clip_text(text, MAX_MESSAGE_CHARACTERS), keep="\n").split("\n")
    return "\n".join(f"[{escape_invisible(server)}] {line}" for line in lines)


def may_have_server_label(message: str) -> bool:
    """Return whether a message has a server label, as `clip_and_add_server_label` writes it."""
    return message.startswith("[")


def get_unsupported_reason(request: types.InputRequest, capabilities: types.ClientCapabilities | None) -> str | None:
    """Return why a client cannot answer a request, or None if it can."""
    client = capabilities or types.ClientCapabilities()
    if isinstance(request, types.ListRootsRequest):
        return None if client.roots is not None else "does not support roots"
    if isinstance(request, types.CreateMessageRequest):
        if client.sampling is None:
            return "does not support sampling"
        wants_tools = request.params.tools is not None or request.params.tool_choice is not None
        return "does not support sampling with tools" if wants_tools and client.sampling.tools is None else None
    if client.elicitation is None:
        return "does not support elicitation"
    # A capability without a mode means forms, as in the revision without modes.
    modes = client.elicitation
    if isinstance(request.params, types.ElicitRequestURLParams):
        return None if modes.url is not None else "does not support URL elicitation"
    return None if modes.form is not None or modes.url is None else "does not support form elicitation"


def _to_elicitation_params(server: str, params: Mapping[str, Any]) -> types.ElicitRequestParams:
    message = clip_and_add_server_label(server, str(params.get("message") or ""))
    if params.get("mode") == "url":
        url = str(params.get("url"))
        try:
            host = require_safe_page_host(url)
        except PageURLError as error:
            raise RequestDeclinedError(f"a URL to open {error}") from None
        text = f"{message}\n[{escape_invisible(server)}] opens {host}"
        return types.ElicitRequestURLParams(message=text, url=url, elicitation_id=params.get("elicitationId"))
    schema = params.get("requestedSchema")
    if not is_mapping(schema) or estimate_json_length(schema, MAX_FORM_CHARACTERS) >= MAX_FORM_CHARACTERS:
        raise RequestDeclinedError(f"a form must have a requestedSchema of at most {MAX_FORM_CHARACTERS:,} characters")
    if len(mapping_or_empty(schema.get("properties"))) > MAX_FIELDS:
        raise RequestDeclinedError(f"a form may have at most {MAX_FIELDS} fields")
    return types.ElicitRequestFormParams(message=message, requested_schema=dict(schema))


def _to_sampling_params(server: str, params: Mapping[str, Any]) -> types.CreateMessageRequestParams:
    if estimate_json_length(params, MAX_SAMPLING_CHARACTERS) >= MAX_SAMPLING_CHARACTERS:
        raise RequestDeclinedError(f"a sampling request may have at most {MAX_SAMPLING_CHARACTERS:,} characters")
    supported = {key: value for key, value in params.items() if key not in ("_meta", "task")}
    request = types.CreateMessageRequestParams.model_validate(supported)
    prompt = f"The MCP server {json.dumps(escape_invisible(server))} sends this request through a gateway."
    request.system_prompt = f"{prompt}\n\n{request.system_prompt}" if request.system_prompt else prompt
    request.include_context = None  # the client's context covers all servers behind the gateway
    return request


# A server's question is returned as the result of the client's request; the client's next request brings the answer.
# The call stays open in this process meanwhile, because the server waits in it.

STATE_PREFIX = "codemode-held:"
"""The prefix of the gateway's own ``request_state`` values."""

ANSWER_SECONDS = 600.0
MAX_PAUSED_REQUESTS = 256
MAX_ROUNDS = 6
_EXPIRED_MESSAGE = "the paused request has expired: send the request again without requestState"

ResultT = TypeVar("ResultT")
_ANSWER_TYPES: dict[type[Any], tuple[type[Any], ...]] = {
    types.ElicitRequest: (types.ElicitResult,),
    types.CreateMessageRequest: (types.CreateMessageResult, types.CreateMessageResultWithTools),
    types.ListRootsRequest: (types.ListRootsResult,),
}


class PausedRequest:
    """A request that continues in rounds. ``id`` identifies the round the client has not answered yet."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.id = ""
        self.rounds = 0
        self.expiry: asyncio.TimerHandle | None = None
        self.has_question = asyncio.Event()
        self._open: dict[str, tuple[types.InputRequest, asyncio.Future[types.InputResponse]]] = {}
        self._count = 0

    async def ask_in_next_round(self, request: types.InputRequest) -> types.InputResponse:
        """Ask the client in the next round. Raises `RequestDeclinedError` without an answer."""
        if self.rounds >= MAX_ROUNDS:
            raise RequestDeclinedError("the client was asked too often in this call")
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

    def list_open_questions(self) -> types.InputRequests:
        """Return the unanswered questions."""
        return {key: request for key, (request, answer) in self._open.items() if not answer.done()}

    def on_answers(self, responses: types.InputResponses | None) -> None:
        """Deliver answers. Unanswered questions are asked again."""
        for key, response in (responses or {}).items():
            request, answer = self._open.get(key, (None, None))
            if answer is None or answer.done():
                continue
            if isinstance(response, _ANSWER_TYPES[type(request)]):
                answer.set_result(response)
            else:
                answer.set_exception(RequestDeclinedError("the client's answer is invalid"))
            del self._open[key]
        if not self._open:
            self.has_question.clear()

    def decline_open_and_later_questions(self) -> None:
        """Decline all open questions."""
        self.rounds = MAX_ROUNDS
        for _, answer in self._open.values():
            if not answer.done():
                answer.set_exception(RequestDeclinedError("the client did not answer in time"))


PAUSED_REQUESTS: dict[CallOrigin, PausedRequest] = {}
"""The paused request of each origin; servers that several users share find it only by the origin.

An entry is removed when its task ends: the task's context refers to the origin, so neither is collected before.
"""


class PausedRequests:
    """The requests of one principal that continue in rounds."""

    def __init__(self) -> None:
        self._waiting: dict[str, PausedRequest] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def run_in_rounds(
        self, origin: CallOrigin, params: types.InputResponseRequestParams, run: Callable[[], Awaitable[ResultT]]
    ) -> ResultT | types.InputRequiredResult:
        """Return the result of ``run``, or a question as an ``InputRequiredResult``.

        The client's next request with the answer continues the same run. Raises `MCPError` for an expired run.
        """
        state = params.request_state
        if state is not None and state.startswith(STATE_PREFIX):
            paused = self._waiting.pop(state[len(STATE_PREFIX) :], None)
            if paused is None:
                raise MCPError(types.INVALID_PARAMS, _EXPIRED_MESSAGE)
            paused.on_answers(params.input_responses)
        elif not _is_asked_in_rounds(origin.session) or len(self._running) >= MAX_PAUSED_REQUESTS:
            return await run()
        else:
            paused = PausedRequest(asyncio.ensure_future(_run_with_reservation(run)))
            self._running.add(paused.task)
            paused.task.add_done_callback(partial(self._on_end, origin))
            PAUSED_REQUESTS[origin] = paused
        return await self._wait_for_result_or_question(paused)

    async def aclose(self) -> None:
        """Cancel all running requests."""
        running = [*self._running]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _wait_for_result_or_question(self, paused: PausedRequest) -> Any:
        if paused.expiry is not None:
            paused.expiry.cancel()
        question = asyncio.ensure_future(paused.has_question.wait())
        try:
            await asyncio.wait({paused.task, question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            paused.task.cancel()
            raise
        finally:
            question.cancel()
        if paused.task.done():
            return paused.task.result()
        paused.rounds += 1
        paused.id = secrets.token_urlsafe(24)
        self._waiting[paused.id] = paused
        paused.expiry = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._expire, paused)
        return types.InputRequiredResult(
            input_requests=paused.list_open_questions(), request_state=STATE_PREFIX + paused.id
        )

    def _expire(self, paused: PausedRequest) -> None:
        self._waiting.pop(paused.id, None)
        paused.decline_open_and_later_questions()

    def _on_end(self, origin: CallOrigin, task: asyncio.Task[Any]) -> None:
        PAUSED_REQUESTS.pop(origin, None)
        self._running.discard(task)
        for paused in [request for request in self._waiting.values() if request.task is task]:
            if paused.expiry is not None:
                paused.expiry.cancel()
            del self._waiting[paused.id]
        if not task.cancelled():
            task.exception()  # the caller may be gone


async def _run_with_reservation(run: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Run a request and count it for its user until it ends, also behind a question to the client."""
    with count_current_request():
        return await run()


def _is_asked_in_rounds(session: Any) -> bool:
    capabilities = getattr(session, "client_capabilities", None)
    if capabilities is None or session.can_send_request or session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    return capabilities.elicitation is not None or capabilities.sampling is not None or capabilities.roots is not None


MAX_REQUESTS_PER_CALL: Mapping[str, int] = {"elicitation/create": 8, "sampling/createMessage": 32, "roots/list": 32}
MAX_WAITING = 16
MAX_OPEN_CHARACTERS = 16_000_000
"""Limit for all open questions to one principal: eight of maximum length."""
MAX_ROOTS_PER_MINUTE = 30
_MAX_ELICITATIONS = 1_000
_MAX_ID_CHARACTERS = 1_000  # of an elicitation whose completion is forwarded; longer ids are not stored
_MAX_ERROR_CHARACTERS = 1_000


def get_client_connection(session: Any) -> Any:
    """Return the connection of a request, the same for all requests of a client, or None."""
    return getattr(session, "_connection", None)


class ClientRequestForwarder:
    """Questions of one principal's servers."""

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        self._hide = hide
        self._counts: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()
        self._semaphores: WeakKeyDictionary[Any, asyncio.Semaphore] = WeakKeyDictionary()
        self._waiting: Counter[int] = Counter()
        self._open_characters = 0
        self._roots_requested_at: list[float] = []
        self._open_urls: dict[tuple[str, str], tuple[str, Any]] = {}

    async def ask_client(
        self, server: str, method: str, params: Mapping[str, Any], origin: CallOrigin | None
    ) -> types.InputResponse:
        """Ask the client of a request. Raises `RequestDeclinedError` without an answer."""
        request = to_client_request(server, method, params)
        session = origin.session if origin is not None else None
        if origin is None or session is None:
            raise RequestDeclinedError(f"{method} belongs to no call of a client that can answer")
        reason = get_unsupported_reason(request, session.client_capabilities)
        if reason is not None:
            raise RequestDeclinedError(f"the client behind this gateway {reason}")
        self._count_or_decline(origin, method)
        self._redact_elicitation_message(request)
        with self._reserve_characters_or_decline(estimate_json_length(params, MAX_OPEN_CHARACTERS)):
            paused = PAUSED_REQUESTS.get(origin)
            if paused is not None:
                return await paused.ask_in_next_round(self._assign_and_register_local_id(request, server, session))
            if not session.can_send_request:
                raise RequestDeclinedError("the client behind this gateway cannot be asked during this request")
            async with self._create_client_turn(get_client_connection(session) or session):
                return await self._send(session, self._assign_and_register_local_id(request, server, session))

    async def ask_for_roots(self, connections: list[Any]) -> types.InputResponse:
        """Ask the only connected client for its roots, outside any call. Raises `RequestDeclinedError`."""
        now = asyncio.get_running_loop().time()
        self._roots_requested_at = [connection for connection in self._roots_requested_at if now - connection < 60.0]
        if len(self._roots_requested_at) >= MAX_ROOTS_PER_MINUTE:
            raise RequestDeclinedError("too many roots/list requests")
        self._roots_requested_at.append(now)
        capable = [
            connection
            for connection in connections
            if get_unsupported_reason(types.ListRootsRequest(), connection.client_capabilities) is None
        ]
        if len(capable) != 1:
            raise RequestDeclinedError(
                "no client of this gateway supports roots" if not capable else "several clients support roots"
            )
        try:
            return await capable[0].send_request(types.ListRootsRequest(), opts={"timeout": ANSWER_SECONDS})
        except (MCPError, ValidationError) as error:
            raise RequestDeclinedError(f"the client gave no roots: {self._describe_error(error)}") from None

    def pop_opened_elicitation(self, server: str, elicitation_id: str) -> tuple[str, Any] | None:
        """Remove an opened URL; return the client's id of it and the client's session, or None."""
        return self._open_urls.pop((server, elicitation_id), None)

    def _count_or_decline(self, origin: CallOrigin, method: str) -> None:
        counts = self._counts.setdefault(origin, Counter())
        counts[method] += 1
        if counts[method] > MAX_REQUESTS_PER_CALL[method]:
            raise RequestDeclinedError(f"too many {method} requests in one call")

    @contextmanager
    def _reserve_characters_or_decline(self, characters: int) -> Generator[None]:
        """Limit the size of open questions: one user may have many calls and connections."""
        if self._open_characters + characters > MAX_OPEN_CHARACTERS:
            raise RequestDeclinedError("the open questions to this user are too long already")
        self._open_characters += characters
        try:
            yield
        finally:
            self._open_characters -= characters

    def _create_client_turn(self, client: Any) -> _ClientTurn:
        semaphore = self._semaphores.get(client)
        if semaphore is None:
            semaphore = self._semaphores[client] = asyncio.Semaphore(1)
        return _ClientTurn(semaphore, self._waiting, id(client))

    def _redact_elicitation_message(self, request: types.InputRequest) -> None:
        if isinstance(request, types.ElicitRequest):
            request.params.message = self._hide(request.params.message)

    def _assign_and_register_local_id(
        self, request: types.InputRequest, server: str, session: Any
    ) -> types.InputRequest:
        """Give an opened URL a unique id: two servers may use the same."""
        params = request.params
        if isinstance(params, types.ElicitRequestURLParams):
            local_id = secrets.token_urlsafe(12)
            if params.elicitation_id is not None and len(params.elicitation_id) <= _MAX_ID_CHARACTERS:
                while len(self._open_urls) >= _MAX_ELICITATIONS:
                    del self._open_urls[next(iter(self._open_urls))]
                self._open_urls[server, params.elicitation_id] = local_id, session
            params.elicitation_id = local_id
        return request

    async def _send(self, session: Any, request: types.InputRequest) -> types.InputResponse:
        result_type: Any = types.ElicitResult
        if isinstance(request, types.CreateMessageRequest):
            result_type = types.CreateMessageResultWithTools if request.params.tools else types.CreateMessageResult
        elif isinstance(request, types.ListRootsRequest):
            result_type = types.ListRootsResult
        # Any id marks the question as part of the current request, which the SDK determines.
        metadata = ServerMessageMetadata(related_request_id="")
        try:
            return await session.send_request(
                request, result_type, request_read_timeout_seconds=ANSWER_SECONDS, metadata=metadata
            )
        except (MCPError, ValidationError) as error:
            raise RequestDeclinedError(f"the client did not answer: {self._describe_error(error)}") from None

    def _describe_error(self, error: MCPError | ValidationError) -> str:
        text = "its answer is invalid" if isinstance(error, ValidationError) else error.message
        return clip_text(self._hide(text), _MAX_ERROR_CHARACTERS)


class _ClientTurn:
    """Waits until no other question to the client is open. Raises `RequestDeclinedError` if too many wait."""

    def __init__(self, turn: asyncio.Semaphore, waiting: Counter[int], key: int) -> None:
        self._turn = turn
        self._waiting = waiting
        self._key = key

    async def __aenter__(self) -> None:
        if self._waiting[self._key] >= MAX_WAITING:
            raise RequestDeclinedError("too many questions are open at this client")
        self._waiting[self._key] += 1
        try:
            await self._turn.acquire()
        except BaseException:
            self._decrement_waiting()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._turn.release()
        self._decrement_waiting()

    def _decrement_waiting(self) -> None:
        self._waiting[self._key] -= 1
        if not self._waiting[self._key]:
            del self._waiting[self._key]
