"""One connection to a server, from its transport to its end: a session of the SDK in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...data.json_shape import holds_more_values_than
from ...errors import CodeModeAuthenticationError
from ...trace.failures import members_of
from .bounds import Refusal, Told, Watched
from .log_levels import with_level
from .losses import Lost, NotStartedError, UpstreamFailure
from .silence import Silence
from .streams import SENDING, Sending

Era = Literal["handshake", "modern"]
MAX_ANSWER_VALUES = 50_000
"""Of what the SDK reads of a server on the event loop: all but lists and results of tools."""

_CLOSE_SECONDS = 15.0


class Requests(JSONRPCDispatcher):
    """Requests to a server and its own, counted: what is in flight keeps a server from being idle."""

    def __init__(self, read: Any, write: Any) -> None:
        self.in_flight = 0
        self.last_used = 0.0
        self.silence = Silence()
        self.ended = asyncio.Event()
        self.hide: Callable[[Any], Awaitable[Any]] | None = None
        """Takes secrets out of what the server gives; out of lists and results of tools others do, who know more."""
        self.log_level: Callable[[], str | None] = lambda: None
        watched: Any = Watched(read, self.ended, self.silence)
        told: Any = Told(write, self.ended)
        super().__init__(watched, told)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        """Send a request and return what the server answers, as it is. Who listens keeps no server from being idle."""
        if method == "subscriptions/listen":
            return await self._in_its_words(method, params, opts, **more)
        self.in_flight += 1
        self.silence.asked()
        known = SENDING.get()
        sending = Sending() if known is None or known.is_begun else known
        sending.is_begun = True
        token = SENDING.set(sending)
        try:
            given = await self._in_its_words(method, with_level(params, self.log_level()), opts, **more)
            if method.startswith("tools/"):
                return given
            if holds_more_values_than(given, MAX_ANSWER_VALUES):
                said = f"its answer to {method} holds more than {MAX_ANSWER_VALUES} values"
                raise MCPError(types.INTERNAL_ERROR, said)
            return given if self.hide is None else await self.hide(given)
        finally:
            sending.end()
            SENDING.reset(token)
            self.in_flight -= 1
            self.last_used = asyncio.get_running_loop().time()

    async def _in_its_words(self, method: str, *request: Any, **more: Any) -> dict[str, Any]:
        """Send a request, and raise a refusal as the server has worded it."""
        try:
            return await super().send_raw_request(method, *request, **more)
        except MCPError as error:
            said = error.error.data
            if not isinstance(said, Refusal):
                raise
            raise MCPError(said.error.code, said.error.message, said.error.data) from None


@dataclass(frozen=True)
class Transport:
    """How a server is reached: its streams, and what is known of their end once it has come.

    ``tells_sending``: the streams say whether a request has left (`streams.SENDING`). ``lost`` knows from the data of
    an error that it stands for an answer that never came.
    """

    streams: AbstractAsyncContextManager[tuple[Any, Any]]
    ending: Callable[[], UpstreamFailure | None]
    tells_sending: bool
    lost: Callable[[Any], Lost | None] = lambda _data: None


class Connection:
    """A session with a server. ``open`` once, ``aclose`` once; both from any task of its loop."""

    session: ClientSession
    requests: Requests

    def __init__(self, transport: Transport, make_session: Callable[[Requests], ClientSession]) -> None:
        self._transport = transport
        self._make_session = make_session
        self._ready: asyncio.Future[None] | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self.era: Era = "handshake"
        self.tells_sending = transport.tells_sending
        self.lost = transport.lost

    @property
    def is_open(self) -> bool:
        """True while requests can be sent."""
        ready = self._ready
        return (
            ready is not None
            and ready.done()
            and not ready.cancelled()
            and ready.exception() is None
            and not self.requests.ended.is_set()
            and not self._closing.is_set()
        )

    async def open(self, era: Era | None, seconds: float) -> None:
        """Connect. Raises `UpstreamFailure`; in time, whatever the server does."""
        loop = asyncio.get_running_loop()
        ready = self._ready = loop.create_future()
        # What it goes on with belongs to no call: neither its variables nor its threads.
        self._task = loop.create_task(self._serve(era, ready), context=contextvars.Context())
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(ready)
        except TimeoutError:
            reason = self._refusal(f"it did not answer within {seconds:g} seconds")
            await self.aclose()
            raise reason from None
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End the connection and all that belongs to it."""
        self._closing.set()
        if self._ready is not None and not self._ready.done():
            self._ready.cancel()
            if self._task is not None:
                self._task.cancel()
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)
            if not done:
                self._task.cancel()
                await asyncio.wait([self._task], timeout=_CLOSE_SECONDS)

    async def ended(self) -> None:
        """Wait until all of it has ended."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def why(self, otherwise: str) -> UpstreamFailure:
        """Return why it has ended."""
        return self._refusal(otherwise)

    async def _serve(self, era: Era | None, ready: asyncio.Future[None]) -> None:
        try:
            async with self._transport.streams as (read, write):
                self.requests = Requests(read, write)
                async with self._make_session(self.requests) as self.session:
                    self.era = await _agreed(self.session, era)
                    self.requests.last_used = asyncio.get_running_loop().time()
                    if not ready.done():
                        ready.set_result(None)
                    closing = asyncio.ensure_future(self._closing.wait())
                    ended = asyncio.ensure_future(self.requests.ended.wait())
                    try:
                        await asyncio.wait([closing, ended], return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        closing.cancel()
                        ended.cancel()
        except asyncio.CancelledError:
            if not self._closing.is_set() and not ready.done():
                ready.set_exception(self._refusal("connecting was given up"))
            return
        except BaseException as error:  # noqa: BLE001 - whatever a transport raises, it has ended by it
            self._failure = error
        finally:
            if hasattr(self, "requests"):
                self.requests.ended.set()
        if not ready.done():
            ready.set_exception(self._refusal("it ended before it answered"))
            ready.exception()  # somebody may have stopped waiting

    def _refusal(self, otherwise: str) -> UpstreamFailure:
        told = self._transport.ending()
        if told is not None and told.needs_sign_in:
            return told  # whatever else it has refused: of what comes before a sign-in nothing else is known
        leaves = _leaves(self._failure)
        for error in leaves:
            # Its process is ended for that: how it ended says nothing.
            if isinstance(error, MCPError) and error.error.code != types.CONNECTION_CLOSED:
                return UpstreamFailure(f"it refused to connect: {error.error.message[:500]}")
            if isinstance(error, RuntimeError):
                return UpstreamFailure(str(error)[:500] or otherwise)
        if told is not None:
            return told
        for error in leaves:
            if isinstance(error, CodeModeAuthenticationError):
                return UpstreamFailure(error.message, needs_sign_in=True, details=error.details)
            if isinstance(error, NotStartedError):
                return UpstreamFailure(str(error), told=error.told)
            if isinstance(error, ConnectionError):
                return UpstreamFailure(str(error)[:500] or otherwise)
        if self._failure is None:
            return UpstreamFailure(otherwise)
        said, kind = leaves[0], type(leaves[0]).__name__
        return UpstreamFailure(f"{otherwise} ({kind}: {str(said)[:300]})", told=f"{otherwise} ({kind})")


async def _agreed(session: ClientSession, era: Era | None) -> Era:
    """Agree on a revision of the protocol.

    The handshake goes first: every server of today answers it, while some wait for ever, or end, when they are asked
    for what they do not know. Who knows the newer way alone says so, and is asked in that from the start next time.
    """
    first = session.discover if era == "modern" else session.initialize
    then = session.initialize if era == "modern" else session.discover
    try:
        await first()
    except (MCPError, RuntimeError) as error:
        if isinstance(error, MCPError) and error.code in (types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT):
            raise
        try:
            await then()
        except (MCPError, RuntimeError):
            raise error from None
    return "modern" if session.protocol_version in MODERN_PROTOCOL_VERSIONS else "handshake"


def _leaves(error: BaseException | None) -> list[BaseException]:
    if error is None:
        return []
    members = members_of(error)
    return [leaf for one in members for leaf in _leaves(one)] if members else [error]
