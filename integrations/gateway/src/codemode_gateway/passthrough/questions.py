"""Asks clients what servers ask: one question at a time and so many for each call. Declined is what nobody answers."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import ValidationError

from codemode.data.json_shape import weigh
from codemode.trace.visible_text import clipped

from ..upstreams.origins import CallOrigin
from .held import ANSWER_SECONDS, HELD
from .worded import Declined, refusal, worded

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
        with self._room(weigh(params, MAX_OPEN_CHARACTERS)):
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
        return clipped(self._hide(text), _MAX_ERROR_CHARACTERS)


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
