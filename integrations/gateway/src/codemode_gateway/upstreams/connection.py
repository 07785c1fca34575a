"""One connection to a server, from its transport to its end: a session of the SDK in a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import listen
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from codemode.data.json_shape import has_more_values_than
from codemode.data.narrowing import is_array, is_mapping
from codemode.errors import CodeModeAuthenticationError
from codemode.trace.failures import group_members
from codemode.trace.visible_text import one_line

from .connection_errors import Lost, NotStartedError, UpstreamFailure
from .jsonrpc_lines import NO_OBJECT, UNREADABLE, shorten
from .session_streams import SENDING, Refusal, Sending, Silence, Told, Watched

LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
"""From that of which there is most to that of which there is least."""

ASK_SECONDS = 10.0
_log = logging.getLogger("codemode.mcp")


def lowest(levels: Iterable[types.LoggingLevel | None]) -> types.LoggingLevel | None:
    """Return the level of which there is most; None: there is none among them."""
    wanted = {*levels}
    return next((one for one in LEVELS if one in wanted), None)


def with_level(params: Mapping[str, Any] | None, wanted: Callable[[], str | None]) -> Mapping[str, Any] | None:
    """Return the params of a request with the level that is ``wanted``, where its revision has a place for it."""
    meta = (params or {}).get("_meta")
    if not meta or types.PROTOCOL_VERSION_META_KEY not in meta or (level := wanted()) is None:
        return params
    return {**(params or {}), "_meta": {**meta, types.LOG_LEVEL_META_KEY: level}}


class LogLevel:
    """The level of one server. ``wanted`` gives that from which on somebody hears now, None where nobody does."""

    def __init__(self, wanted: Callable[[], types.LoggingLevel | None]) -> None:
        self.wanted = wanted
        self._told: tuple[ClientSession, str] | None = None

    async def tell(self, session: ClientSession) -> None:
        """Ask a server of the handshake revisions that has a log for this level, once. Whatever it answers, it goes on.

        No revision has a level at which a server says nothing: what nobody hears any more is dropped here.
        """
        level, said = self.wanted(), session.server_capabilities
        if level is None or said is None or said.logging is None or self._told == (session, level):
            return
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        self._told = session, level
        request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
        try:
            await session.send_request(request, types.EmptyResult, request_read_timeout_seconds=ASK_SECONDS)
        except Exception as error:  # noqa: BLE001 - without its log it is as good as with it
            _log.debug("a server was not told from which level on to log: %s", type(error).__name__)


HANDSHAKES = ("initialize", "server/discover")
_NO_NAME = "unnamed"


def read_handshake(method: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the answer to a handshake as the SDK accepts it, and notes on the fields that were wrong.

    A capability of a wrong type counts as one without fields. Raises `Lost` for an answer that names no revision of the
    protocol.
    """
    notes: list[str] = []
    result = dict(given)
    if method == "initialize" and not isinstance(given.get("protocolVersion"), str):
        raise unreadable_handshake(method, "protocolVersion", given, "protocolVersion" in given)
    if method == "server/discover" and not is_array(given.get("supportedVersions")):
        raise unreadable_handshake(method, "supportedVersions", given, "supportedVersions" in given)
    result["capabilities"] = _capabilities(given.get("capabilities"), notes)
    if method == "initialize":
        result["serverInfo"] = _server_info(given.get("serverInfo"), notes)
    if not isinstance(given.get("instructions", ""), str):
        if given["instructions"] is not None:
            notes.append(f"instructions is {shorten(given['instructions'])}")
        del result["instructions"]
    if not is_mapping(given.get("_meta", {})):
        del result["_meta"]
    return result, notes


def unreadable_handshake(method: str, field: str, given: Mapping[str, Any], is_there: bool) -> Lost:
    """Return the reason to raise for a field without which a server cannot be connected to."""
    if is_there:
        what = f"{field} is {shorten(given[field])}"
    elif list(given) == [NO_OBJECT]:
        what = f"it is {shorten(given[NO_OBJECT])}"
    else:
        what = f"{field} is missing in {shorten(given)}"
    return Lost(f"its answer to {method} cannot be read: {what}", never_arrived=True, is_final=True)


def why_invalid(error: ValidationError) -> str:
    """Return the first wrong field of a value, with what it holds."""
    first = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"])) or "it"
    if first["type"] == "missing":
        return f"{where} is missing"
    return f"{where} is {shorten(first['input'])}"


def _capabilities(given: Any, notes: list[str]) -> dict[str, Any]:
    if not is_mapping(given):
        if given is not None:
            notes.append(f"capabilities is {shorten(given)}")
        return {}
    result: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or value is False:
            continue
        try:
            types.ServerCapabilities.model_validate({name: value}, by_name=False)
        except ValidationError:
            notes.append(f"capabilities.{shorten(name)} is {shorten(value)}")
            result[str(name)] = {}
        else:
            result[str(name)] = value
    return result


def _server_info(given: Any, notes: list[str]) -> dict[str, Any]:
    try:
        types.Implementation.model_validate(given, by_name=False)
    except ValidationError:
        notes.append("serverInfo is missing" if given is None else f"serverInfo is {shorten(given)}")
    else:
        return dict(given)
    info: Mapping[str, Any] = given if is_mapping(given) else {}
    name, version = info.get("name"), info.get("version")
    return {
        "name": name if isinstance(name, str) else _NO_NAME,
        "version": "" if version is None or is_mapping(version) or is_array(version) else str(version),
    }


Era = Literal["handshake", "modern"]
MAX_ANSWER_VALUES = 50_000
"""Of what the SDK reads of a server on the event loop: all but lists and results of tools."""

_CLOSE_SECONDS = 15.0
_MAX_NOTES_CHARACTERS = 500
# How the SDK's transport over HTTP words that there is no answer, as if the server had said so.
_OF_THE_SDK = ("SSE stream ", "Failed to parse ")


class LostRequestError(MCPError):
    """A request has no answer. An error that the server itself answers is any other `MCPError`."""

    def __init__(self, lost: Lost) -> None:
        super().__init__(types.INTERNAL_ERROR, lost.reason)
        self.lost = lost


@dataclass(frozen=True)
class Transport:
    """How a server is reached: its streams, and what is known of their end once it has come.

    ``tells_sending``: the streams say whether a request has left (`streams.SENDING`); they are those of a process.
    ``last_words``: what that process wrote last. ``is_unread``: whether it has ended without reading what was written
    behind so many bytes.
    """

    streams: AbstractAsyncContextManager[tuple[Any, Any]]
    ending: Callable[[], UpstreamFailure | None]
    tells_sending: bool
    last_words: Callable[[], str] = str
    is_unread: Callable[[int], bool] = lambda _cut_at: False


class Requests(JSONRPCDispatcher):
    """Requests to a server and its own, counted: what is in flight keeps a server from being idle."""

    def __init__(self, read: Any, write: Any, transport: Transport, name: str) -> None:
        self._transport = transport
        self._name = name
        self.in_flight = 0
        self._unused = asyncio.Event()
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
            return await self._send(method, params, opts, **more)
        self.in_flight += 1
        self.silence.asked()
        known = SENDING.get()
        sending = Sending() if known is None or known.is_begun else known
        sending.is_begun = True
        token = SENDING.set(sending)
        try:
            given = await self._send(method, with_level(params, self.log_level), opts, **more)
            if method.startswith("tools/"):
                return given
            if has_more_values_than(given, MAX_ANSWER_VALUES):
                raise LostRequestError(Lost(f"its answer to {method} holds more than {MAX_ANSWER_VALUES} values"))
            given = given if self.hide is None else await self.hide(given)
            return self._read_handshake(method, given) if method in HANDSHAKES else given
        finally:
            sending.end()
            SENDING.reset(token)
            self.in_flight -= 1
            self.last_used = asyncio.get_running_loop().time()
            if not self.in_flight:
                self._unused.set()

    async def wait_until_unused(self, seconds: float) -> None:
        """Wait until no request is in flight, at most so long."""
        if self.in_flight:
            self._unused.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._unused.wait(), seconds)

    def _read_handshake(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        try:
            result, notes = read_handshake(method, given)
        except Lost as lost:
            raise LostRequestError(lost) from None
        if notes:
            said = "server %r answers %s with what the protocol does not have, and is used without it: %s"
            _log.warning(said, self._name, method, one_line("; ".join(notes), _MAX_NOTES_CHARACTERS))
        return result

    async def _send(self, method: str, params: Any, opts: CallOptions | None, **more: Any) -> dict[str, Any]:
        """Send a request, and raise a refusal as the server has worded it, or `LostRequestError`."""
        own: CallOptions = {**(opts or {})}
        if method in HANDSHAKES:  # whoever connects knows how long to wait
            own.pop("timeout", None)
        try:
            return await super().send_raw_request(method, params, own, **more)
        except MCPError as error:
            lost = self._find_loss(error)
            if lost is not None:
                raise LostRequestError(lost) from None
            said: Refusal = error.error.data
            raise MCPError(said.error.code, said.error.message, said.error.data) from None

    def _find_loss(self, error: MCPError) -> Lost | None:
        """Return why a request has no answer; None where the error is the server's own answer."""
        sending, refusal = SENDING.get() or Sending(), error.error.data
        if sending.lost is not None:
            return sending.lost
        if isinstance(refusal, Refusal):
            said = refusal.error.message
            if is_mapping(refusal.error.data) and UNREADABLE in refusal.error.data:
                return Lost("its answer cannot be read, or holds too much")
            if not self._transport.tells_sending and said.startswith(_OF_THE_SDK):
                return Lost("its answer broke off, or cannot be read")
            return None
        never_arrived = self._transport.tells_sending and not sending.has_left
        if error.error.code == types.REQUEST_TIMEOUT:
            return Lost("it did not answer in time", never_arrived=never_arrived, is_late=True)
        self.ended.set()
        return Lost("its connection was lost", never_arrived=never_arrived, is_over=True, cut_at=sending.begins_at)


class Connection:
    """A session with a server. ``open`` once, ``aclose`` once; both from any task of its loop."""

    session: ClientSession
    requests: Requests

    def __init__(self, transport: Transport, make_session: Callable[[Requests], ClientSession], name: str) -> None:
        self._transport = transport
        self._name = name
        self._make_session = make_session
        self._ready: asyncio.Future[None] | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self.era: Era = "handshake"
        self.tells_sending = transport.tells_sending

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
            reason = self._refusal(self._too_slow(seconds))
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

    def is_unread(self, cut_at: int) -> bool:
        """Tell whether its process has ended without reading what was written behind so many bytes."""
        return self._transport.is_unread(cut_at)

    def why(self, otherwise: str) -> UpstreamFailure:
        """Return why it has ended."""
        return self._refusal(otherwise)

    async def _serve(self, era: Era | None, ready: asyncio.Future[None]) -> None:
        try:
            async with self._transport.streams as (read, write):
                self.requests = Requests(read, write, self._transport, self._name)
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

    def _too_slow(self, seconds: float) -> str:
        said = f"it did not answer within {seconds:g} seconds (connectTimeoutMs; a larger one gives it more time)"
        words = self._transport.last_words()
        return f"{said}: {words}" if words else said

    def _refusal(self, otherwise: str) -> UpstreamFailure:
        """Return why it cannot be used. How a process ended counts only where it ended by itself."""
        ending = self._transport.ending()
        if ending is not None and ending.needs_sign_in:
            return ending  # whatever else it has refused: of what comes before a sign-in nothing else is known
        leaves = _leaves(self._failure)
        found = next((one for error in leaves if (one := _reason_of(error)) is not None), None)
        if found is not None:
            return found
        if ending is not None:
            return ending
        for error in leaves:
            if isinstance(error, CodeModeAuthenticationError):
                return UpstreamFailure(error.message, needs_sign_in=True, details=error.details)
            if isinstance(error, NotStartedError):
                return UpstreamFailure(str(error), told=error.told)
            if isinstance(error, ConnectionError):
                return UpstreamFailure(str(error)[:500] or otherwise)
        if self._failure is None or isinstance(leaves[0], LostRequestError):
            return UpstreamFailure(otherwise)
        said, kind = leaves[0], type(leaves[0]).__name__
        return UpstreamFailure(f"{otherwise} ({kind}: {str(said)[:300]})", told=f"{otherwise} ({kind})")


def _reason_of(error: BaseException) -> UpstreamFailure | None:
    """Return the reason that an error of connecting gives; None where it only says that the connection has ended."""
    if isinstance(error, LostRequestError):
        return None if error.lost.is_over or error.lost.is_late else UpstreamFailure.of(error.lost)
    if isinstance(error, MCPError):
        return UpstreamFailure(f"it refused to connect: {error.error.message[:500]}")
    if isinstance(error, ValidationError):
        return UpstreamFailure(f"what it answers cannot be read: {why_invalid(error)}")
    if isinstance(error, RuntimeError) and str(error):
        return UpstreamFailure(str(error)[:500])
    return None


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
        if isinstance(error, LostRequestError):
            raise
        try:
            await then()
        except (MCPError, RuntimeError):
            raise error from None
    return "modern" if session.protocol_version in MODERN_PROTOCOL_VERSIONS else "handshake"


def _leaves(error: BaseException | None) -> list[BaseException]:
    if error is None:
        return []
    members = group_members(error)
    return [leaf for one in members for leaf in _leaves(one)] if members else [error]


_ANSWER_SECONDS = 30.0
_AGAIN_SECONDS = 60.0


class Listening:
    """What one connection is told of. ``is_open``: nobody has to ask the server whether its tools have changed."""

    def __init__(self) -> None:
        self.is_open = False

    async def keep(self, connection: Connection, began: Callable[[], Awaitable[None]]) -> None:
        """Listen until the connection ends, or the server has none of it. Its events come as notifications do.

        ``began`` is awaited whenever it listens: what has changed before that was told to nobody.
        """
        has_listened = False
        while connection.is_open:
            try:
                await self._listen(connection, began)
                has_listened = True
            except (MCPError, OSError, RuntimeError, TimeoutError):  # the SDK's own are of these
                has_listened = has_listened or self.is_open
            finally:
                self.is_open = False
            if not has_listened:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(connection.requests.ended.wait(), _AGAIN_SECONDS)

    async def _listen(self, connection: Connection, began: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.timeout(_ANSWER_SECONDS) as limit:
            async with listen(connection.session, tools_list_changed=True) as stream:
                limit.reschedule(None)
                if not stream.honored.tools_list_changed:
                    raise TimeoutError
                self.is_open = True
                await began()
                async for _ in stream:
                    pass
