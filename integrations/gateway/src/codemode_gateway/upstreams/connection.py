"""Run one connection to a server: an SDK session in its own task."""

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
from pydantic import BaseModel, ValidationError

from codemode.data.json_shape import has_more_values_than
from codemode.data.narrowing import is_array, is_mapping
from codemode.errors import CodeModeAuthenticationError
from codemode.tools.server_lists import OmittedEntries, describe_json_type, format_entry_label, log_omitted_entries
from codemode.trace.failures import get_group_members
from codemode.trace.visible_text import clip_to_visible_line

from .connection_errors import ServerNotStartedError, UnansweredRequestError, UpstreamUnavailableError
from .jsonrpc_lines import NON_OBJECT_FIELD, UNREADABLE_MESSAGE, to_short_text
from .session_streams import (
    SENDING,
    BoundedSender,
    MonitoredReceiver,
    RequestSendState,
    SilenceTimer,
    WrappedErrorData,
)

LOG_LEVELS_BY_VERBOSITY: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
"""The log levels from most to least verbose."""

SET_LEVEL_TIMEOUT_SECONDS = 10.0
_log = logging.getLogger("codemode.mcp")


def find_most_verbose_level(levels: Iterable[types.LoggingLevel | None]) -> types.LoggingLevel | None:
    """Return the most verbose of the levels, or None."""
    requested = {*levels}
    return next((level for level in LOG_LEVELS_BY_VERBOSITY if level in requested), None)


def add_log_level(params: Mapping[str, Any] | None, get_level: Callable[[], str | None]) -> Mapping[str, Any] | None:
    """Return the params of a request with the log level, if its revision supports one."""
    meta = (params or {}).get("_meta")
    if not meta or types.PROTOCOL_VERSION_META_KEY not in meta or (level := get_level()) is None:
        return params
    return {**(params or {}), "_meta": {**meta, types.LOG_LEVEL_META_KEY: level}}


class UpstreamLogLevel:
    """The log level of one server. ``get_level`` returns the subscribed level, or None."""

    def __init__(self, wanted: Callable[[], types.LoggingLevel | None]) -> None:
        self.get_level = wanted
        self._last_sent: tuple[ClientSession, str] | None = None

    async def send_if_changed(self, session: ClientSession) -> None:
        """Send the level to a server of the handshake revisions, once. Failures are ignored.

        No revision can turn logging off; unsubscribed messages are dropped here.
        """
        level, capabilities = self.get_level(), session.server_capabilities
        if level is None or capabilities is None or capabilities.logging is None or self._last_sent == (session, level):
            return
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        self._last_sent = session, level
        request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
        try:
            await session.send_request(
                request, types.EmptyResult, request_read_timeout_seconds=SET_LEVEL_TIMEOUT_SECONDS
            )
        except Exception as error:  # noqa: BLE001 - the server is usable without its log
            _log.debug("the log level of a server could not be set: %s", type(error).__name__)


HANDSHAKES = ("initialize", "server/discover")
_NO_NAME = "unnamed"


def repair_handshake_answer_with_notes(method: str, answer: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the answer to a handshake with its invalid fields repaired for the SDK, and notes on them.

    A capability of a wrong type counts as one without fields. Raises `UnansweredRequestError` for an answer
    without a protocol revision.
    """
    notes: list[str] = []
    result = dict(answer)
    if method == "initialize" and not isinstance(answer.get("protocolVersion"), str):
        raise unreadable_handshake_error(method, "protocolVersion", answer, "protocolVersion" in answer)
    if method == "server/discover" and not is_array(answer.get("supportedVersions")):
        raise unreadable_handshake_error(method, "supportedVersions", answer, "supportedVersions" in answer)
    result["capabilities"] = _repair_capabilities(answer.get("capabilities"), notes)
    if method == "initialize":
        result["serverInfo"] = _repair_server_info(answer.get("serverInfo"), notes)
    if not isinstance(answer.get("instructions", ""), str):
        if answer["instructions"] is not None:
            notes.append(f"instructions is {to_short_text(answer['instructions'])}")
        del result["instructions"]
    if not is_mapping(answer.get("_meta", {})):
        del result["_meta"]
    return result, notes


def unreadable_handshake_error(
    method: str, field: str, answer: Mapping[str, Any], is_present: bool
) -> UnansweredRequestError:
    """Return the error for an invalid field that is required to connect."""
    if is_present:
        problem = f"{field} is {to_short_text(answer[field])}"
    elif list(answer) == [NON_OBJECT_FIELD]:
        problem = f"it is {to_short_text(answer[NON_OBJECT_FIELD])}"
    else:
        problem = f"{field} is missing in {to_short_text(answer)}"
    return UnansweredRequestError(
        f"its answer to {method} cannot be read: {problem}", never_arrived=True, is_final=True
    )


def describe_validation_error(error: ValidationError) -> str:
    """Return the first invalid field of a value, with its content."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(map(str, first["loc"])) or "it"
    if first["type"] == "missing":
        return f"{field} is missing"
    return f"{field} is {to_short_text(first['input'])}"


def _repair_capabilities(capabilities: Any, notes: list[str]) -> dict[str, Any]:
    if not is_mapping(capabilities):
        if capabilities is not None:
            notes.append(f"capabilities is {to_short_text(capabilities)}")
        return {}
    result: dict[str, Any] = {}
    for name, value in capabilities.items():
        if value is None or value is False:
            continue
        try:
            types.ServerCapabilities.model_validate({name: value}, by_name=False)
        except ValidationError:
            notes.append(f"capabilities.{to_short_text(name)} is {to_short_text(value)}")
            result[str(name)] = {}
        else:
            result[str(name)] = value
    return result


def _repair_server_info(value: Any, notes: list[str]) -> dict[str, Any]:
    try:
        types.Implementation.model_validate(value, by_name=False)
    except ValidationError:
        notes.append("serverInfo is missing" if value is None else f"serverInfo is {to_short_text(value)}")
    else:
        return dict(value)
    info: Mapping[str, Any] = value if is_mapping(value) else {}
    name, version = info.get("name"), info.get("version")
    return {
        "name": name if isinstance(name, str) else _NO_NAME,
        "version": "" if version is None or is_mapping(version) or is_array(version) else str(version),
    }


_LISTED_ITEMS: Mapping[str, tuple[str, str, type[BaseModel]]] = {
    "prompts/list": ("prompts", "prompts", types.Prompt),
    "resources/list": ("resources", "resources", types.Resource),
    "resources/templates/list": ("resourceTemplates", "resource templates", types.ResourceTemplate),
}
_DISPLAY_FIELDS = frozenset({"title", "description", "mimeType", "size", "icons", "annotations", "_meta"})


def remove_invalid_items_with_notes(method: str, answer: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a list of prompts, resources or templates without its invalid items, and notes on them.

    An item of which only fields for display are invalid loses just these fields.
    """
    field, _, item_type = _LISTED_ITEMS[method]
    listed = answer.get(field)
    if not is_array(listed):
        return answer, ()
    items: list[Any] = []
    left_out = OmittedEntries()
    for position, item in enumerate(listed, 1):
        if not is_mapping(item):
            left_out.add_entry(f"{describe_json_type(item)}, not an object", format_entry_label(item, position))
            continue
        problems = _find_invalid_fields(item_type, item)
        if problems.keys() <= _DISPLAY_FIELDS:
            items.append({name: value for name, value in item.items() if name not in problems})
            if problems:
                left_out.add_entry(f"used without invalid fields: {', '.join(problems)}", _format_label(item, position))
        else:
            left_out.add_entry("; ".join(problems.values()), _format_label(item, position))
    return {**answer, field: items}, left_out.notes


def _find_invalid_fields(item_type: type[BaseModel], item: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with the invalid fields of an item, by field."""
    try:
        item_type.model_validate(item, by_name=False)
    except ValidationError as error:
        fields = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors(include_url=False))
        return {
            name: f"{name} is {to_short_text(item[name])}" if name in item else f"{name} is missing" for name in fields
        }
    return {}


def _format_label(item: Mapping[str, Any], position: int) -> str:
    names = (item.get(key) for key in ("name", "uri", "uriTemplate"))
    return format_entry_label({"name": next((name for name in names if isinstance(name, str)), None)}, position)


Era = Literal["handshake", "modern"]
MAX_ANSWER_VALUES = 50_000
"""Limit for answers that the SDK parses on the event loop: all but tool lists and results."""

_CLOSE_SECONDS = 15.0
_MAX_NOTES_CHARACTERS = 500
# The SDK's HTTP transport reports missing answers with these texts, as if they came from the server.
_SDK_LOSS_PREFIXES = ("SSE stream ", "Failed to parse ")


class UnansweredRequestMCPError(MCPError):
    """A request has no answer. Errors that the server answers are other `MCPError`s."""

    def __init__(self, lost: UnansweredRequestError) -> None:
        super().__init__(types.INTERNAL_ERROR, lost.reason)
        self.lost = lost


@dataclass(frozen=True)
class Transport:
    """The streams of a server and the reason for their end.

    ``tracks_sending``: the streams report whether a request left, as process streams do. ``get_last_output``: the
    last output of the process. ``ended_without_reading_past``: whether the process ended before reading what was
    written after so many bytes.
    """

    streams: AbstractAsyncContextManager[tuple[Any, Any]]
    get_failure: Callable[[], UpstreamUnavailableError | None]
    tracks_sending: bool
    get_last_output: Callable[[], str] = str
    ended_without_reading_past: Callable[[int], bool] = lambda _cut_at: False


class RequestDispatcher(JSONRPCDispatcher):
    """Sends requests to a server and counts those in flight; a server with one is not idle."""

    def __init__(self, read: Any, write: Any, transport: Transport, name: str) -> None:
        self._transport = transport
        self._name = name
        self.in_flight = 0
        self._idle = asyncio.Event()
        self.last_used = 0.0
        self.silence = SilenceTimer()
        self.ended = asyncio.Event()
        self.hide: Callable[[Any], Awaitable[Any]] | None = None
        """Redacts answers, except for tool lists and results, which are redacted elsewhere."""
        self.log_level: Callable[[], str | None] = lambda: None
        self._list_notes: dict[str, tuple[str, ...]] = {}
        monitored: Any = MonitoredReceiver(read, self.ended, self.silence)
        bounded: Any = BoundedSender(write, self.ended)
        super().__init__(monitored, bounded)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **extra: Any
    ) -> dict[str, Any]:
        """Send a request and return the raw answer. Listening requests do not count as use."""
        if method == "subscriptions/listen":
            return await self._send_and_translate_errors(method, params, opts, **extra)
        self.in_flight += 1
        self.silence.on_request()
        current = SENDING.get()
        sending = RequestSendState() if current is None or current.is_begun else current
        sending.is_begun = True
        token = SENDING.set(sending)
        try:
            result = await self._send_and_translate_errors(method, add_log_level(params, self.log_level), opts, **extra)
            if method.startswith("tools/"):
                return result
            if has_more_values_than(result, MAX_ANSWER_VALUES):
                raise UnansweredRequestMCPError(
                    UnansweredRequestError(f"its answer to {method} has more than {MAX_ANSWER_VALUES} values")
                )
            result = result if self.hide is None else await self.hide(result)
            if method in HANDSHAKES:
                return self._repair_and_log_handshake(method, result)
            return self._repair_and_log_list(method, result) if method in _LISTED_ITEMS else result
        finally:
            sending.end_caller_wait()
            SENDING.reset(token)
            self.in_flight -= 1
            self.last_used = asyncio.get_running_loop().time()
            if not self.in_flight:
                self._idle.set()

    async def wait_until_idle(self, seconds: float) -> None:
        """Wait until no request is in flight, for a limited time."""
        if self.in_flight:
            self._idle.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), seconds)

    def _repair_and_log_handshake(self, method: str, answer: dict[str, Any]) -> dict[str, Any]:
        try:
            result, notes = repair_handshake_answer_with_notes(method, answer)
        except UnansweredRequestError as lost:
            raise UnansweredRequestMCPError(lost) from None
        if notes:
            message = "server %r answers %s with invalid fields, which are ignored: %s"
            _log.warning(message, self._name, method, clip_to_visible_line("; ".join(notes), _MAX_NOTES_CHARACTERS))
        return result

    def _repair_and_log_list(self, method: str, answer: dict[str, Any]) -> dict[str, Any]:
        result, notes = remove_invalid_items_with_notes(method, answer)
        if notes and notes != self._list_notes.get(method):
            self._list_notes[method] = notes
            log_omitted_entries(_log, self._name, notes, _LISTED_ITEMS[method][1])
        return result

    async def _send_and_translate_errors(
        self, method: str, params: Any, opts: CallOptions | None, **more: Any
    ) -> dict[str, Any]:
        """Send a request. Raises the server's own refusal, or `UnansweredRequestMCPError`."""
        options: CallOptions = {**(opts or {})}
        if method in HANDSHAKES:  # the connecting caller sets the timeout
            options.pop("timeout", None)
        try:
            return await super().send_raw_request(method, params, options, **more)
        except MCPError as error:
            lost = self._diagnose_and_end_if_lost(error)
            if lost is not None:
                raise UnansweredRequestMCPError(lost) from None
            refusal: WrappedErrorData = error.error.data
            raise MCPError(refusal.error.code, refusal.error.message, refusal.error.data) from None

    def _diagnose_and_end_if_lost(self, error: MCPError) -> UnansweredRequestError | None:
        """Return why a request has no answer, or None for a server's own error."""
        sending, refusal = SENDING.get() or RequestSendState(), error.error.data
        if sending.lost is not None:
            return sending.lost
        if isinstance(refusal, WrappedErrorData):
            message = refusal.error.message
            if is_mapping(refusal.error.data) and UNREADABLE_MESSAGE in refusal.error.data:
                return UnansweredRequestError("its answer cannot be read or is too large")
            if not self._transport.tracks_sending and message.startswith(_SDK_LOSS_PREFIXES):
                return UnansweredRequestError("its answer is incomplete or cannot be read")
            return None
        never_arrived = self._transport.tracks_sending and not sending.has_left
        if error.error.code == types.REQUEST_TIMEOUT:
            return UnansweredRequestError("it did not answer in time", never_arrived=never_arrived, is_late=True)
        self.ended.set()
        return UnansweredRequestError(
            "its connection was lost", never_arrived=never_arrived, is_over=True, sent_bytes=sending.begins_at
        )


class Connection:
    """A session with a server. Call ``open`` and ``aclose`` once each, from any task of its loop."""

    session: ClientSession
    requests: RequestDispatcher

    def __init__(
        self, transport: Transport, make_session: Callable[[RequestDispatcher], ClientSession], name: str
    ) -> None:
        self._transport = transport
        self._name = name
        self._make_session = make_session
        self._ready: asyncio.Future[None] | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self.era: Era = "handshake"
        self.tracks_sending = transport.tracks_sending

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
        """Connect within ``seconds``. Raises `UpstreamUnavailableError`."""
        loop = asyncio.get_running_loop()
        ready = self._ready = loop.create_future()
        # An empty context: the connection must not keep the variables of the first call.
        self._task = loop.create_task(self._run_session(era, ready), context=contextvars.Context())
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(ready)
        except TimeoutError:
            reason = self._diagnose_failure(self._timeout_message(seconds))
            await self.aclose()
            raise reason from None
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """End the connection and its tasks."""
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

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def ended_without_reading_past(self, position: int) -> bool:
        """Return whether its process ended without reading past the first ``position`` bytes."""
        return self._transport.ended_without_reading_past(position)

    def get_failure_error(self, default: str) -> UpstreamUnavailableError:
        """Return why the connection has ended."""
        return self._diagnose_failure(default)

    async def _run_session(self, era: Era | None, ready: asyncio.Future[None]) -> None:
        try:
            async with self._transport.streams as (read, write):
                self.requests = RequestDispatcher(read, write, self._transport, self._name)
                async with self._make_session(self.requests) as self.session:
                    self.era = await self._negotiate_era(era)
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
                ready.set_exception(self._diagnose_failure("connecting was cancelled"))
            return
        except BaseException as error:  # noqa: BLE001 - any error of a transport ends the connection
            self._failure = error
        finally:
            if hasattr(self, "requests"):
                self.requests.ended.set()
        if not ready.done():
            ready.set_exception(self._diagnose_failure("it ended before it answered"))
            ready.exception()  # the caller may have stopped waiting

    async def _negotiate_era(self, era: Era | None) -> Era:
        """Negotiate the protocol revision.

        The handshake comes first: all current servers answer it, and some hang or exit on unknown requests. For a
        server that supports only the newer revision, later connections start with that.
        """
        session = self.session
        preferred = session.discover if era == "modern" else session.initialize
        fallback = session.initialize if era == "modern" else session.discover
        try:
            await preferred()
        except (MCPError, RuntimeError) as error:
            if isinstance(error, UnansweredRequestMCPError):
                raise
            if not isinstance(error, MCPError) or error.code != types.METHOD_NOT_FOUND:
                self._failure = error  # the reason if the fallback has no answer in time
            try:
                await fallback()
            except (MCPError, RuntimeError):
                raise error from None
            self._failure = None
        return "modern" if session.protocol_version in MODERN_PROTOCOL_VERSIONS else "handshake"

    def _timeout_message(self, seconds: float) -> str:
        message = f"it did not answer within {seconds:g} seconds (raise connectTimeoutMs to wait longer)"
        stderr_text = self._transport.get_last_output()
        return f"{message}: {stderr_text}" if stderr_text else message

    def _diagnose_failure(self, default: str) -> UpstreamUnavailableError:
        """Return why the connection failed. The exit of a process counts only if it ended by itself."""
        ending = self._transport.get_failure()
        if ending is not None and ending.needs_sign_in:
            return ending  # takes precedence: before a sign-in other errors mean nothing
        leaves = _list_leaf_errors(self._failure)
        reason = next((failure for error in leaves if (failure := _to_unavailable_error(error)) is not None), None)
        if reason is not None:
            return reason
        if ending is not None:
            return ending
        for error in leaves:
            if isinstance(error, CodeModeAuthenticationError):
                return UpstreamUnavailableError(error.message, needs_sign_in=True, details=error.details)
            if isinstance(error, ServerNotStartedError):
                return UpstreamUnavailableError(str(error), program_message=error.program_message)
            if isinstance(error, ConnectionError):
                return UpstreamUnavailableError(str(error)[:500] or default)
        if self._failure is None or isinstance(leaves[0], UnansweredRequestMCPError):
            return UpstreamUnavailableError(default)
        first, error_type = leaves[0], type(leaves[0]).__name__
        return UpstreamUnavailableError(
            f"{default} ({error_type}: {str(first)[:300]})", program_message=f"{default} ({error_type})"
        )


def _to_unavailable_error(error: BaseException) -> UpstreamUnavailableError | None:
    """Return the reason in an error of connecting, or None if it only reports a closed connection."""
    if isinstance(error, UnansweredRequestMCPError):
        return (
            None
            if error.lost.is_over or error.lost.is_late
            else UpstreamUnavailableError.from_unanswered_request(error.lost)
        )
    if isinstance(error, MCPError):
        return UpstreamUnavailableError(f"it refused to connect: {error.error.message[:500]}")
    if isinstance(error, ValidationError):
        return UpstreamUnavailableError(f"its answer cannot be read: {describe_validation_error(error)}")
    if isinstance(error, RuntimeError) and str(error):
        return UpstreamUnavailableError(str(error)[:500])
    return None


def _list_leaf_errors(error: BaseException | None) -> list[BaseException]:
    if error is None:
        return []
    members = get_group_members(error)
    return [leaf for member in members for leaf in _list_leaf_errors(member)] if members else [error]


_ANSWER_SECONDS = 30.0
_RETRY_SECONDS = 60.0


class ToolChangeListener:
    """A subscription to tool list changes. ``is_open``: the server need not be polled."""

    def __init__(self) -> None:
        self.is_open = False

    async def keep_listening(self, connection: Connection, on_listening: Callable[[], Awaitable[None]]) -> None:
        """Listen until the connection ends or the server refuses. Events arrive as notifications.

        ``on_listening`` is awaited at each start: earlier changes were not announced.
        """
        has_listened = False
        while connection.is_open:
            try:
                await self._listen_once(connection, on_listening)
                has_listened = True
            except (MCPError, OSError, RuntimeError, TimeoutError):  # the SDK raises these
                has_listened = has_listened or self.is_open
            finally:
                self.is_open = False
            if not has_listened:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(connection.requests.ended.wait(), _RETRY_SECONDS)

    async def _listen_once(self, connection: Connection, on_listening: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.timeout(_ANSWER_SECONDS) as limit:
            async with listen(connection.session, tools_list_changed=True) as stream:
                limit.reschedule(None)
                if not stream.honored.tools_list_changed:
                    raise TimeoutError
                self.is_open = True
                await on_listening()
                async for _ in stream:
                    pass
