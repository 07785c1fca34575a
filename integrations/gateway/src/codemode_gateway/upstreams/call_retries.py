"""Send tool calls to a server, with retries, sign-in and input rounds."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from pydantic import TypeAdapter

from codemode.data.json_shape import estimate_json_length, run_off_loop_if_large
from codemode.data.narrowing import is_array, is_mapping
from codemode.errors import CodeModeAuthenticationError, CodeModeToolError
from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.observe.request_telemetry import get_propagation_headers, measure_server_call
from codemode.tools.tool_result import ToolResult, parse_server_result, to_program_value
from codemode.trace.visible_text import escape_invisible

from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from ..gateway.principals import LOCAL, CallOrigin, get_call_or_current_origin
from ..page_urls import is_safe_page_url
from .connection import Connection, RequestDispatcher, UnansweredRequestMCPError
from .connection_errors import UnansweredRequestError, UpstreamUnavailableError
from .hooks import UpstreamHooks
from .reconnecting import ReconnectingConnection
from .session_streams import SENDING, RequestSendState


class PausableTimeout:
    """A time limit for a call over all its rounds, paused while a person is asked."""

    def __init__(self, seconds: float) -> None:
        self._remaining = seconds
        self._pauses = 0
        self._deadline: asyncio.Timeout | None = None

    @property
    def has_passed(self) -> bool:
        """True once the time is over."""
        return self._deadline is not None and self._deadline.expired()

    @property
    def is_paused(self) -> bool:
        """True while the timeout is paused."""
        return self._deadline is not None and self._deadline.when() is None

    def start(self) -> asyncio.Timeout:
        """Return a context that raises `TimeoutError` when the time is over."""
        self._deadline = asyncio.timeout(self._remaining)
        return self._deadline

    def pause(self) -> None:
        """Pause the timeout."""
        self._pauses += 1
        when = None if self._deadline is None else self._deadline.when()
        if self._pauses == 1 and when is not None:
            self._remaining = max(when - asyncio.get_running_loop().time(), 0)
            self._reschedule(None)

    def resume(self) -> None:
        """Resume the timeout after the last pause ends."""
        self._pauses -= 1
        if not self._pauses:
            self._reschedule(asyncio.get_running_loop().time() + self._remaining)

    def _reschedule(self, when: float | None) -> None:
        with suppress(RuntimeError):  # the time is over, or the call has ended
            if self._deadline is not None:
                self._deadline.reschedule(when)


OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
TIMEOUT = "TIMEOUT"
_MAX_REFUSAL_CHARACTERS = 20_000


def add_metadata_and_create_options(
    connection: Connection, method: str, params: dict[str, Any], capabilities: Mapping[str, Any]
) -> CallOptions:
    """Add the metadata of a connection's revision to params, and return its request headers."""
    version = connection.session.protocol_version or ""
    headers = {MCP_PROTOCOL_VERSION_HEADER: version}
    if connection.era == "modern":
        params["_meta"] = {
            **params.get("_meta", {}),
            types.PROTOCOL_VERSION_META_KEY: version,
            types.CLIENT_INFO_META_KEY: create_gateway_client_info().model_dump(
                mode="json", by_alias=True, exclude_none=True
            ),
            types.CLIENT_CAPABILITIES_META_KEY: dict(capabilities),
        }
        headers[MCP_METHOD_HEADER] = method
        if "name" in params:
            headers[MCP_NAME_HEADER] = encode_header_value(params["name"])
    return {"headers": headers}


def supports_argument_headers(connection: Connection) -> bool:
    """Return whether tools may take arguments in headers: over HTTP from revision 2026-07-28."""
    return connection.era == "modern" and not connection.tracks_sending


def create_argument_headers(
    connection: Connection, tool: types.Tool | None, arguments: Mapping[str, Any]
) -> dict[str, str]:
    """Return the headers for arguments that a tool also takes as headers."""
    if tool is None or not supports_argument_headers(connection):
        return {}
    if find_invalid_x_mcp_header(tool.input_schema) is not None:
        return {}
    return mcp_param_headers(x_mcp_header_map(tool.input_schema), arguments)


@cache
def create_gateway_client_info() -> types.Implementation:
    """Return the gateway's client info for servers."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        toolkit_version = version("codemode-toolkit")
    except PackageNotFoundError:
        toolkit_version = "0"
    return types.Implementation(name="codemode", version=toolkit_version)


def refused_call_error(config: ServerConfig, tool: str, error: MCPError) -> CodeModeToolError:
    """Return the error for a call that a server refuses, with the server's message."""
    message = (
        error.error.message[:_MAX_REFUSAL_CHARACTERS].strip() or f"server {config.name!r} refuses the call of {tool!r}"
    )
    return CodeModeToolError(message, details={"tool_name": tool, "rpc_code": error.error.code})


def get_elicitation_page_url(error: MCPError) -> str | None:
    """Return the page that the user must open before a call, or None."""
    if error.error.code != types.URL_ELICITATION_REQUIRED or not is_mapping(error.error.data):
        return None
    elicitations = error.error.data.get("elicitations")
    first = elicitations[0] if is_array(elicitations) and elicitations else None
    url = first.get("url") if is_mapping(first) else None
    return url if isinstance(url, str) and url.isascii() and is_safe_page_url(url) else None


def outcome_unknown_error(config: ServerConfig, tool: str, lost: UnansweredRequestError) -> CodeModeToolError:
    """Return the error for a call that may have run."""
    reason = f"it did not answer within {config.timeout_ms} ms" if lost.is_late else lost.reason
    text = (
        f"the outcome of {tool!r} of server {config.name!r} is unknown: {reason}, but the call may have run; check"
        " before you repeat it"
    )
    return CodeModeToolError(text, code=OUTCOME_UNKNOWN, details={"tool_name": tool})


def unanswered_call_error(config: ServerConfig, tool: str, lost: UnansweredRequestError) -> CodeModeToolError:
    """Return the error for an unanswered call that is safe to repeat."""
    if lost.is_late:
        text = f"{tool!r} of server {config.name!r} did not answer within {config.timeout_ms} ms"
        return CodeModeToolError(text, code=TIMEOUT, details={"tool_name": tool, "timeout_ms": config.timeout_ms})
    return CodeModeToolError(
        f"{tool!r} of server {config.name!r} failed: {lost.reason}", code="SERVER_LOST", details={"tool_name": tool}
    )


CallerKey = tuple[str, str]
"""A user and the program that calls for them."""


class FairCallSlots:
    """At most ``limit`` concurrent calls, of which one user or program gets at most ``share``.

    Waiting users take turns, then their programs. A local user has no limit of its own.
    """

    def __init__(self, limit: int, share: int) -> None:
        self._free = limit
        self._share = share
        self._held = Counter[str | CallerKey]()
        self._waiting: dict[str, dict[str, deque[asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def hold_slot(self, caller: CallerKey) -> AsyncGenerator[None]:
        """Hold a slot while the block runs, once there is one."""
        # Callers that wait while a slot is free have used up their share.
        if self._free and self._is_within_share(caller):
            self._take_slot(caller)
        else:
            await self._wait_and_take_slot(caller)
        try:
            yield
        finally:
            self._release_slot(caller)

    async def _wait_and_take_slot(self, caller: CallerKey) -> None:
        user, program = caller
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, {}).setdefault(program, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release_slot(caller)
            else:
                self._remove_waiter(caller, turn)
            raise

    def _is_within_share(self, caller: CallerKey) -> bool:
        user = caller[0]
        return self._held[caller] < self._share and (user == LOCAL.id or self._held[user] < self._share)

    def _take_slot(self, caller: CallerKey) -> None:
        self._free -= 1
        self._held[caller] += 1
        self._held[caller[0]] += 1

    def _release_slot(self, caller: CallerKey) -> None:
        self._free += 1
        for holder in (caller, caller[0]):
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]
        while self._free and self._waiting and self._grant_next_slot():
            pass

    def _grant_next_slot(self) -> bool:
        """Give a slot to the next eligible caller; return False without one."""
        for user, programs in self._waiting.items():
            for program, turns in programs.items():
                if not self._is_within_share((user, program)):
                    continue
                turn = turns.popleft()
                del programs[program], self._waiting[user]  # to the end of both queues
                if turns:
                    programs[program] = turns
                if programs:
                    self._waiting[user] = programs
                if not turn.done():
                    self._take_slot((user, program))
                    turn.set_result(None)
                return True
        return False

    def _remove_waiter(self, caller: CallerKey, turn: asyncio.Future[None]) -> None:
        user, program = caller
        programs = self._waiting.get(user, {})
        if turn in (turns := programs.get(program, deque())):
            turns.remove(turn)
        if program in programs and not turns:
            del programs[program]
        if user in self._waiting and not programs:
            del self._waiting[user]


MAX_CONCURRENT_REQUESTS = 16

REQUESTING_CALL: ContextVar[Any] = ContextVar("codemode_mcp_asked_in", default=None)
"""The `ToolCallContext` of the call whose question is handled, if known."""


class ClientRequestCallbacks:
    """The callbacks of a session. Call timeouts are paused while a client is asked."""

    def __init__(self, config: ServerConfig, hooks: UpstreamHooks, secrets: SecretRedactor) -> None:
        self._config = config
        self._hooks = hooks
        self._secrets = secrets
        self._open_count = 0
        self._calls: dict[PausableTimeout, Any] = {}
        self.capabilities: dict[str, Any] = {}
        """The client capabilities for servers, as JSON."""
        if hooks.on_request is not None:
            self.capabilities = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}

    @property
    def call_timeouts(self) -> list[PausableTimeout]:
        """The timeouts of the calls in flight."""
        return [*self._calls]

    def create_session(self, requests: RequestDispatcher, on_message: Any) -> ClientSession:
        """Return a session whose questions come here and whose notifications go to ``on_message``."""
        can_ask = self._hooks.on_request is not None
        return ClientSession(
            dispatcher=requests,
            client_info=create_gateway_client_info(),
            message_handler=on_message,
            elicitation_callback=self._forward_elicitation if can_ask else None,
            sampling_callback=self._forward_sampling if can_ask else None,
            list_roots_callback=self._forward_roots_request if can_ask else None,
        )

    @contextmanager
    def track_call(self, context: Any, seconds: float) -> Generator[PausableTimeout]:
        """Register a call in flight and yield its timeout."""
        clock = PausableTimeout(seconds)
        self._calls[clock] = context
        try:
            yield clock
        finally:
            del self._calls[clock]

    async def _forward_elicitation(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the name is the SDK's
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        return await self._forward("elicitation/create", params, types.ElicitResult)

    async def _forward_sampling(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - likewise
        params: types.CreateMessageRequestParams,
    ) -> Any:
        return await self._forward("sampling/createMessage", params, types.CreateMessageResult)

    async def _forward_roots_request(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - likewise
    ) -> types.ListRootsResult | types.ErrorData:
        return await self._forward("roots/list", None, types.ListRootsResult)

    async def _forward(self, method: str, params: Any, result_type: Any) -> Any:
        if self._hooks.on_request is None or self._open_count >= MAX_CONCURRENT_REQUESTS:
            return types.ErrorData(code=types.INVALID_REQUEST, message=f"{method} cannot be answered now")
        json_params: Mapping[str, Any] = (
            {} if params is None else params.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        context = self._find_context()
        self._open_count += 1
        paused = self.call_timeouts
        for clock in paused:
            clock.pause()
        try:
            # Questions reach the client's user, and sampling requests reach its model.
            json_params = await self._secrets.redact_off_loop(json_params)
            answer = await self._hooks.on_request(self._config, method, json_params, context)
        finally:
            self._open_count -= 1
            for clock in paused:
                clock.resume()
        if isinstance(answer, Mapping):
            return result_type.model_validate(answer, by_name=False)
        return answer

    def _find_context(self) -> Any:
        """Return the context of the call that a question belongs to, or None if it is ambiguous."""
        current = REQUESTING_CALL.get()
        if current is not None:
            return current
        contexts = [*self._calls.values()]
        outer = {getattr(context, "outer_tool_call_id", None) for context in contexts}
        return contexts[0] if len(outer) == 1 else None


MAX_ROUNDS = 10
_MAX_ATTEMPTS = 3
_MAX_SESSIONS = 2
"""Sessions of one call over HTTP: a server that loses the second one would lose all."""
_SILENT_TIMEOUTS = 2
_PING_SECONDS = 5.0
_MAX_PROGRESS_CHARACTERS = 500
_MAX_READ_CHARACTERS = 20_000
_MAX_PROGRESS_A_SECOND = 20
_log = logging.getLogger("codemode.mcp")
_InputRequest: TypeAdapter[types.InputRequest] = TypeAdapter(types.InputRequest)


class ProgressForwarder:
    """Forwards a server's progress to the client, at most 20 messages per second."""

    def __init__(self, origin: CallOrigin, secrets: SecretRedactor) -> None:
        self._origin = origin
        self._secrets = secrets
        self._window = 0.0
        self._sent_count = 0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._window > 1:
            self._window, self._sent_count = now, 0
        self._sent_count += 1
        if self._sent_count <= _MAX_PROGRESS_A_SECOND:
            text = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
            await self._origin.progress(
                self._secrets.redact_text(text[:_MAX_READ_CHARACTERS])[:_MAX_PROGRESS_CHARACTERS]
            )


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool. ``context`` is its `ToolCallContext`, ``origin`` the client request behind it."""

    name: str
    tool: types.Tool | None
    arguments: dict[str, Any]
    context: Any
    origin: CallOrigin | None
    may_repeat: bool = False

    @property
    def caller(self) -> CallerKey:
        """The user and program that make the call."""
        if self.origin is None:
            return LOCAL.id, str(getattr(self.context, "outer_tool_call_id", None) or "")
        return self.origin.principal.id, self.origin.outer_id or ""


class CallSender:
    """Sends calls on the server's current connection.

    ``confirm`` is awaited with the connection and tool name before each call, and raises to refuse it.
    """

    def __init__(
        self,
        config: ServerConfig,
        hooks: UpstreamHooks,
        secrets: SecretRedactor,
        link: ReconnectingConnection,
        asking: ClientRequestCallbacks,
        *,
        confirm: Callable[[Connection, str], Awaitable[None]] | None = None,
    ) -> None:
        self._confirm = confirm
        self._config = config
        self._secrets = secrets
        self._link = link
        self._client_requests = asking
        self._on_result = None if hooks.on_result is UpstreamHooks().on_result else hooks.on_result
        self._on_signed_out = hooks.on_signed_out
        self._last_logged_message: str | None = None
        self._slots = FairCallSlots(config.max_concurrency, config.program_concurrency_limit)

    async def call_tool(
        self, name: str, tool: types.Tool | None, arguments: Any, context: Any, *, may_repeat: bool
    ) -> ToolResult:
        """Call a tool. It is retried only if it never arrived or ``may_repeat``."""
        self._link.require_same_loop()
        if arguments is not None and not is_mapping(arguments):
            raise CodeModeToolError(f"{name!r} expects an object", details={"tool_name": name})
        call = ToolCall(name, tool, dict(arguments or {}), context, get_call_or_current_origin(context), may_repeat)
        async with self._slots.hold_slot(call.caller):
            with measure_server_call(self._config.name):
                try:
                    raw = await self._call_with_retries(call)
                except CodeModeAuthenticationError:
                    # The server refused the call unread, so it is safe to send again.
                    if not await self._on_signed_out(self._config, context):
                        raise
                    self._link.allow_immediate_retry()
                    raw = await self._call_with_retries(call)
        self._link.reset_failures()
        self._last_logged_message = None
        schema = None if tool is None else tool.output_schema
        size = estimate_json_length(raw, LARGE_CHARACTERS)
        return await run_in_thread_if_large_or_slow(
            size, lambda: parse_server_result(self._secrets.redact(raw), schema)
        )

    async def report_and_unwrap_if_observed(self, name: str, result: ToolResult) -> Any:
        """Return the result for a program, after the ``on_result`` hook."""
        if self._on_result is None or result.is_error:
            return result
        value = result.structured_content
        if not result.has_structured_content:
            value = await run_off_loop_if_large(result.content, partial(to_program_value, result))
        self._on_result(self._config, name, value)
        return value

    async def _call_with_retries(self, call: ToolCall) -> dict[str, Any]:
        for attempt in range(_MAX_ATTEMPTS):
            connection = await self._link.get_or_open_connection()
            try:
                if self._confirm is not None:
                    await self._confirm(connection, call.name)
                with self._client_requests.track_call(call.context, self._config.timeout_ms / 1000) as clock:
                    return await self._send_with_input_rounds(connection, call, clock)
            except UnansweredRequestError as lost:
                max_attempts = _MAX_SESSIONS if lost.is_over and lost.sent_bytes is None else _MAX_ATTEMPTS
                if lost.is_over or (lost.is_late and await self._ping_and_detect_silence(connection)):
                    await self._link.discard_and_update_loss(connection, lost)
                if lost.needs_sign_in:
                    raise self._link.record_and_create_unavailable_error(
                        lost.reason, UpstreamUnavailableError.from_unanswered_request(lost)
                    ) from None
                is_harmless = lost.never_arrived or call.may_repeat
                if is_harmless and not (lost.is_late or lost.is_final) and attempt < max_attempts - 1:
                    continue
                error = self._redact_error(
                    (unanswered_call_error if is_harmless else outcome_unknown_error)(self._config, call.name, lost)
                )
                self._log_unless_repeated(error.message)
                raise error from None
            except MCPError as error:
                self._pause_for_web_page(get_elicitation_page_url(error), call.context)
                raise self._redact_error(refused_call_error(self._config, call.name, error)) from None
        raise AssertionError

    async def _ping_and_detect_silence(self, connection: Connection) -> bool:
        """Return whether a server process was silent for two call timeouts and ignores a ping.

        A remote HTTP server would not benefit from a new connection.
        """
        silence, min_silence_seconds = connection.requests.silence, _SILENT_TIMEOUTS * self._config.timeout_ms / 1000
        if not connection.tracks_sending or silence.seconds < min_silence_seconds:
            return False
        params: dict[str, Any] = {}
        opts = add_metadata_and_create_options(connection, "ping", params, self._client_requests.capabilities)
        with suppress(TimeoutError, MCPError, OSError, RuntimeError):  # a refusal is an answer too
            async with asyncio.timeout(_PING_SECONDS):
                await connection.requests.send_raw_request("ping", params, opts)
        if silence.seconds < min_silence_seconds:
            return False
        message = "server %r has not answered for %.0f seconds: it is stopped, and starts again on its next use"
        _log.warning(message, self._config.name, silence.seconds)
        return True

    def _pause_for_web_page(self, url: str | None, context: Any) -> None:
        """Pause the program until its user has opened a page, unless it was asked before.

        The server has refused the call, which is then sent again.
        """
        if url is None or context is None or context.interrupt is not None:
            return
        # Imported late: only running programs pause.
        from codemode.interrupts.interrupt import request_interrupt

        from ..oauth.login_manager import PAUSE_KIND

        message = f"{self._config.name!r} asks you to open a page."
        payload = {
            "kind": PAUSE_KIND,
            "server": self._config.name,
            "url": url,
            "message": message,
            "askedByServer": True,
        }
        request_interrupt(payload)

    async def _send_with_input_rounds(
        self, connection: Connection, call: ToolCall, clock: PausableTimeout
    ) -> dict[str, Any]:
        """Send a call, and repeat it with the answers that the server requests (revision 2026-07-28).

        Raises `UnansweredRequestError`, and `MCPError` when the server refuses the call. On timeout or cancellation the
        server gets a cancellation notification.
        """
        headers = create_argument_headers(connection, call.tool, call.arguments)
        answers: dict[str, Any] = {}
        for _ in range(MAX_ROUNDS):
            params: dict[str, Any] = {"name": call.name, "arguments": call.arguments, **answers}
            trace = get_propagation_headers() or ({} if call.origin is None else dict(call.origin.trace))
            if trace:
                params["_meta"] = dict(trace)
            opts = add_metadata_and_create_options(connection, "tools/call", params, self._client_requests.capabilities)
            opts["headers"] = {**opts.get("headers", {}), **headers, **trace}
            if call.origin is not None:
                opts["on_progress"] = ProgressForwarder(call.origin, self._secrets)
            sending = RequestSendState()
            sending.has_left = not connection.tracks_sending
            token = SENDING.set(sending)
            try:
                async with clock.start():
                    raw = await connection.requests.send_raw_request("tools/call", params, opts)
            except TimeoutError:
                if not clock.has_passed:
                    raise UnansweredRequestError(
                        "its connection is stuck", never_arrived=not sending.has_left
                    ) from None
                raise UnansweredRequestError(
                    "it did not answer in time", never_arrived=not sending.has_left, is_late=True
                ) from None
            except UnansweredRequestMCPError as error:
                raise error.lost from None
            except (OSError, RuntimeError):
                if connection.is_open:
                    raise
                raise UnansweredRequestError("its connection was lost", never_arrived=not sending.has_left) from None
            finally:
                SENDING.reset(token)
            if raw.get("resultType") != "input_required":
                return raw
            answers = await self._answer_input_requests(connection, raw, call.context)
        raise CodeModeToolError(f"{call.name!r} asks for input too often", details={"tool_name": call.name})

    async def _answer_input_requests(
        self, connection: Connection, raw: Mapping[str, Any], context: Any
    ) -> dict[str, Any]:
        requests = raw.get("inputRequests")
        responses: dict[str, Any] = {}
        token = REQUESTING_CALL.set(context)
        try:
            for key, raw_request in islice(requests.items() if is_mapping(requests) else (), MAX_CONCURRENT_REQUESTS):
                request = _InputRequest.validate_python(raw_request, by_name=False)
                request_context = ClientRequestContext(session=connection.session, request_id=key)
                answer = await connection.session.dispatch_input_request(request_context, request)
                if isinstance(answer, types.ErrorData):
                    raise CodeModeToolError(self._secrets.redact_text(answer.message))
                responses[key] = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
        except ValueError:
            raise CodeModeToolError("the server sent an invalid input request") from None
        finally:
            REQUESTING_CALL.reset(token)
        answers: dict[str, Any] = {"inputResponses": responses} if responses else {}
        if isinstance(raw.get("requestState"), str):
            answers["requestState"] = raw["requestState"]
        return answers

    def _log_unless_repeated(self, message: str) -> None:
        """Log why a call has no answer, unless the last logged reason was the same."""
        if message != self._last_logged_message:
            self._last_logged_message = message
            _log.warning("%s", escape_invisible(message))

    def _redact_error(self, error: CodeModeToolError) -> CodeModeToolError:
        error.message = self._secrets.redact_text(error.message)
        error.args = (error.message,)
        return error
