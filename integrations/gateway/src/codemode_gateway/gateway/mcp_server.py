"""Create the SDK's server and answer tool calls with progress, traces and media."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from codemode.data.json_shape import estimate_json_length
from codemode.data.narrowing import is_mapping, is_object
from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.observe.request_telemetry import record_call_end_and_get_trace_id, record_span_failure, request_span
from codemode.trace.events import InvocationEvent, NestedToolCallEvent
from codemode.trace.failures import log_failure

from ..config.model import OutputFormat
from ..passthrough.handlers import (
    GetPassthrough,
    add_log_level_handler,
    create_capability_and_log_middleware,
    create_handlers,
)
from .options import TOOL_NAMES, ClientProfile
from .principals import CURRENT_ORIGIN, CallOrigin, count_request_middleware
from .workspaces import INSTRUCTIONS

if TYPE_CHECKING:
    from .principals import Principal
    from .workspaces import Workspace


_MAX_MEDIA_BLOCKS = 64
_MIME_PATTERNS = {kind: re.compile(rf"{kind}/[A-Za-z0-9][A-Za-z0-9.+-]{{0,99}}") for kind in ("image", "audio")}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True)
class MediaBlock:
    """One block: its ``data`` in base64, its kind and its MIME type."""

    kind: Literal["image", "audio"]
    data: str
    mime_type: str


def split_result_and_media(result: Any) -> tuple[Any, list[MediaBlock]]:
    """Return a result without its images and audio, and the extracted media.

    A media block is an object with ``type`` image or audio, base64 ``data`` and a matching ``mimeType``. It is replaced
    by ``{"type", "mimeType", "block": <number from 1>}``; equal blocks are returned once.
    """
    numbers: dict[MediaBlock, int] = {}
    root: list[Any] = [None]
    stack: list[tuple[Any, Any, Any]] = [(result, root, 0)]
    while stack:
        value, container, key = stack.pop()
        if is_object(value):
            media = parse_media(value) if value.get("type") in ("image", "audio") else None
            if media is not None and (media in numbers or len(numbers) < _MAX_MEDIA_BLOCKS):
                number = numbers.setdefault(media, len(numbers) + 1)
                container[key] = {"type": media.kind, "mimeType": media.mime_type, "block": number}
                continue
            copy: Any = dict(value)
            for name, member in copy.items():
                stack.append((member, copy, name))
        elif isinstance(value, list):
            copy = list(cast("list[Any]", value))
            stack += [(copy[index], copy, index) for index in reversed(range(len(copy)))]
        else:
            copy = value
        container[key] = copy
    return (root[0], list(numbers)) if numbers else (result, [])


def parse_media(value: Mapping[str, Any]) -> MediaBlock | None:
    """Return the image or audio in an object, or None."""
    kind, data, mime_type = value.get("type"), value.get("data"), value.get("mimeType")
    if kind not in ("image", "audio") or not isinstance(data, str) or not isinstance(mime_type, str):
        return None
    if _MIME_PATTERNS[kind].fullmatch(mime_type) is None or len(data) % 4 or _BASE64.fullmatch(data) is None:
        return None
    return MediaBlock(kind, data, mime_type)


# Clients show their model either text or structured content, so each is complete. A failed program is no tool error.


def to_call_tool_result(response: Mapping[str, Any], output: OutputFormat = "both") -> types.CallToolResult:
    """Convert a program's response. Images and audio become content blocks.

    A result with media has no structured content, because clients show either one or the other to the model.
    """
    result, media = split_result_and_media(response.get("result"))
    body = {**response, "result": result} if media else dict(response)
    structured = None if media or output == "text" else body
    if output == "structured" and structured is not None:
        return types.CallToolResult(content=[], structured_content=structured)
    # Leave out empty fields, but never the result.
    visible = {name: value for name, value in body.items() if name == "result" or value not in ([], {}, "", None)}
    text = json.dumps(visible, ensure_ascii=False, separators=(",", ":"))
    blocks: list[types.ContentBlock] = [types.TextContent(type="text", text=text), *map(_to_content_block, media)]
    return types.CallToolResult(content=blocks, structured_content=structured)


def _to_content_block(media: MediaBlock) -> types.ContentBlock:
    if media.kind == "image":
        return types.ImageContent(type="image", data=media.data, mime_type=media.mime_type)
    return types.AudioContent(type="audio", data=media.data, mime_type=media.mime_type)


_PROGRESS_INTERVAL_SECONDS = 10.0
_STATUS_POLL_SECONDS = 0.5
_MAX_MESSAGE_CHARACTERS = 200
_MAX_QUEUED_STEPS = 64
_log = logging.getLogger("codemode.mcp")


class ProgressReporter:
    """Reports each step to the client, and a status at least every ten seconds.

    ``status`` returns the current wait reason, or None. Progress numbers only rise. A slow client misses steps, but not
    the last.
    """

    def __init__(
        self,
        session: Any,
        *,
        interval_seconds: float = _PROGRESS_INTERVAL_SECONDS,
        status: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._session = session
        self._interval = interval_seconds
        self._status = status
        self._last_status: str | None = None
        self._queue: deque[str | None] = deque(maxlen=_MAX_QUEUED_STEPS)
        self._updated = asyncio.Event()
        self._sent_count = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._send_queued_messages())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    def queue_message(self, message: str | None) -> None:
        """Queue a progress message."""
        self._queue.append(None if message is None else message[:_MAX_MESSAGE_CHARACTERS])
        self._updated.set()

    def on_event(self, event: InvocationEvent) -> None:
        """Report a tool call of the program, except replayed calls."""
        if type(event) is NestedToolCallEvent and not event.replayed:  # the result event is a subclass
            self.queue_message(event.tool_name)

    async def __call__(self, message: str | None) -> None:
        """Queue a progress message, as `queue_message` does."""
        self.queue_message(message)

    async def _send_queued_messages(self) -> None:
        try:
            while True:
                if not self._queue:
                    await self._wait_for_update()
                self._sent_count += 1
                message = self._queue.popleft() if self._queue else self._status() or "running"
                await self._session.report_progress(float(self._sent_count), None, message)
        except Exception as error:  # noqa: BLE001 - the client may have disconnected
            _log.debug("progress messages to a client stopped: %s", type(error).__name__)

    async def _wait_for_update(self) -> None:
        """Wait for a step, a new status or the end of the interval."""
        self._updated.clear()
        remaining = self._interval
        while remaining > 0 and not self._updated.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._updated.wait(), min(remaining, _STATUS_POLL_SECONDS))
            remaining -= _STATUS_POLL_SECONDS
            previous, self._last_status = self._last_status, self._status()
            if self._last_status not in (None, previous):
                return


# Replaces the SDK's middleware, whose spans contain unfiltered names, ids and error texts.

_TRACE_PATTERNS = {
    "traceparent": re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x21-\x7e]{0,100})?"),
    # Header values have no leading or trailing space.
    "tracestate": re.compile(r"(?! )[\x20-\x7e]{1,512}(?<! )"),
    "baggage": re.compile(r"(?! )[\x20-\x7e]{1,8192}(?<! )"),
}
_SDK_METHODS = ("initialize", "ping", "server/discover")


def parse_trace_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return valid W3C trace fields of ``_meta`` or headers. Other fields are never forwarded to servers."""
    trace: dict[str, str] = {}
    if fields.get("traceparent") is not None:
        for name, pattern in _TRACE_PATTERNS.items():
            text = fields.get(name)
            if isinstance(text, str) and pattern.fullmatch(text) is not None:
                trace[name] = text
    return trace if "traceparent" in trace else {}


def parse_request_traces(ctx: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the trace fields of a request's ``_meta`` and of its headers."""
    request = getattr(ctx, "request", None)
    return parse_trace_fields(ctx.meta or {}), {} if request is None else parse_trace_fields(request.headers)


def create_tracing_middleware(server: Server[Any]) -> Any:
    """Return a middleware that records each request as a child span of the client's trace."""

    async def trace_request(ctx: Any, call_next: Any) -> Any:
        if ctx.request_id is None:
            return await call_next(ctx)
        meta_trace, header_trace = parse_request_traces(ctx)
        name, attributes = _describe_span(ctx, server)
        with request_span(name, attributes, request_carrier=meta_trace, transport_carrier=header_trace) as span:
            try:
                return await call_next(ctx)
            except MCPError as error:
                record_span_failure(span, str(error.error.code))
                raise
            except BaseException as error:
                record_span_failure(span, type(error).__name__)
                raise

    return trace_request


def _describe_span(ctx: Any, server: Server[Any]) -> tuple[str, dict[str, str | int | float | bool]]:
    is_known = ctx.method in _SDK_METHODS or server.get_request_handler(ctx.method) is not None
    method = ctx.method if is_known else "_OTHER"
    attributes: dict[str, str | int | float | bool] = {"mcp.method.name": method}
    if isinstance(ctx.protocol_version, str):
        attributes["mcp.protocol.version"] = ctx.protocol_version[:20]
    if method != "tools/call":
        return method, attributes
    attributes["gen_ai.operation.name"] = "execute_tool"
    tool = ctx.params.get("name") if is_mapping(ctx.params) else None
    if tool not in TOOL_NAMES:
        return method, attributes
    return f"{method} {tool}", {**attributes, "gen_ai.tool.name": tool}


_MAX_NAME_CHARACTERS = 100


class ActiveCalls:
    """The running tool calls of one gateway."""

    def __init__(self) -> None:
        self._reporters: dict[str, ProgressReporter] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def report_program_calls(self, outer_id: str | None) -> AbstractContextManager[None]:
        """Return a context manager that reports a program's calls to the client that asked for progress."""
        progress = None if outer_id is None else self._reporters.get(outer_id)
        if progress is None:
            return nullcontext()
        # Imported late: listing tools needs no code that runs programs.
        from codemode.observe.reporter import add_event_listener

        return add_event_listener(progress.on_event)

    async def call_tool(
        self,
        workspace: Workspace,
        caller: Principal,
        profile: ClientProfile,
        ctx: Any,
        params: types.CallToolRequestParams,
    ) -> Any:
        """Run a tool call. Raises `MCPError` for an unknown tool name."""
        if params.name not in TOOL_NAMES and params.name != profile.tool_name:
            quoted_name = json.dumps(params.name[:_MAX_NAME_CHARACTERS])
            explanation = f"this server has one tool, {profile.tool_name}"
            raise MCPError(types.INVALID_PARAMS, f"unknown tool {quoted_name}: {explanation}")
        task = asyncio.create_task(self._run_call(workspace, caller, profile, ctx, params))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The SDK cancels repeatedly, so the run ends in its own task.
            task.cancel()
            task.add_done_callback(_consume_exception)
            raise

    async def aclose(self) -> None:
        """Cancel all calls and wait for their end."""
        running = [*self._tasks]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _run_call(
        self,
        workspace: Workspace,
        caller: Principal,
        profile: ClientProfile,
        ctx: Any,
        params: types.CallToolRequestParams,
    ) -> Any:
        outer_id = f"gw-{secrets.token_hex(12)}"
        started_at = time.monotonic()
        async with AsyncExitStack() as stack:
            environment = await stack.enter_async_context(workspace.use_environment())
            meta_trace, header_trace = parse_request_traces(ctx)
            origin = CallOrigin(caller, outer_id, ctx.session, trace=meta_trace or header_trace)
            meta: Mapping[str, Any] = ctx.meta or {}
            if meta.get("progress_token") is not None or meta.get("progressToken") is not None:
                progress = await stack.enter_async_context(
                    ProgressReporter(ctx.session, status=environment.describe_startup)
                )
                self._reporters[outer_id] = progress
                stack.callback(self._reporters.pop, outer_id, None)
                origin = replace(origin, progress=progress)
            token = CURRENT_ORIGIN.set(origin)
            approval_flow = environment.get_or_create_approval_flow(caller)

            async def run_program() -> Any:
                # The run may outlast this request while the client is asked.
                async with workspace.use_environment(environment):
                    return await approval_flow.handle_call(
                        ctx,
                        params,
                        params.arguments or {},
                        origin=origin,
                        is_asked_in_console=profile.ask_mode == "console",
                    )

            try:
                response = await workspace.passthrough.paused_requests.run_in_rounds(origin, params, run_program)
            except BaseException as error:
                _log_and_record_call_end(outer_id, workspace, ctx, started_at, type(error).__name__, None)
                raise
            finally:
                CURRENT_ORIGIN.reset(token)
        if not is_mapping(response):  # the SDK's InputRequiredResult
            _log_and_record_call_end(outer_id, workspace, ctx, started_at, "input_required", None)
            return response
        _log_and_record_call_end(outer_id, workspace, ctx, started_at, "answered", response)
        size = estimate_json_length(response, LARGE_CHARACTERS)
        return await run_in_thread_if_large_or_slow(
            size, partial(to_call_tool_result, response, environment.config.settings.output)
        )


def _log_and_record_call_end(
    outer_id: str, workspace: Workspace, ctx: Any, started_at: float, outcome: str, response: Mapping[str, Any] | None
) -> None:
    """Log one line per call, without inputs and results."""
    client = getattr(ctx.session.client_params, "client_info", None)
    seconds = time.monotonic() - started_at
    diagnostics = None if response is None else response.get("diagnostics")
    codes = sorted({str(diagnostic.get("code")) for diagnostic in diagnostics}) if diagnostics else []
    entry: dict[str, Any] = {
        "event": "call",
        "id": outer_id,
        "principal": workspace.principal.id,
        "client": str(getattr(client, "name", ""))[:_MAX_NAME_CHARACTERS],
        "ended": outcome,
        "durationMs": round(seconds * 1000),
    }
    if response is not None:
        entry["calls"] = len(response.get("toolTrace") or ())
        entry["codes"] = codes
    if (trace := record_call_end_and_get_trace_id(outer_id, outcome, seconds, codes)) is not None:
        entry["trace"] = trace
    _log.info("%s", json.dumps(entry, ensure_ascii=True))


def _consume_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a cancelled call, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


_MAX_ERROR_CHARACTERS = 500


def create_server(
    list_tools: Any, call_tool: Any, get_passthrough: GetPassthrough, *, passes_through: bool
) -> Server[Any]:
    """Return the SDK's server. ``passes_through``: also offer prompts, resources and logs of servers."""
    passthrough_handlers = create_handlers(get_passthrough)
    subscription_handlers = {"on_subscriptions_listen": passthrough_handlers["on_subscriptions_listen"]}
    server: Server[Any] = Server(
        "codemode",
        version=metadata.version("codemode-toolkit"),
        title="codemode gateway",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        **(passthrough_handlers if passes_through else subscription_handlers),
    )
    server.middleware[:] = [count_request_middleware, create_tracing_middleware(server)]
    if passes_through:
        add_log_level_handler(server, get_passthrough)
        server.middleware.append(create_capability_and_log_middleware(get_passthrough))
    server.middleware.append(hide_internal_errors)
    return server


async def hide_internal_errors(ctx: Any, call_next: Any) -> Any:
    """Report invalid params without their values; log internal errors and hide their text."""
    try:
        return await call_next(ctx)
    except ValidationError as error:
        raise MCPError(types.INVALID_PARAMS, _describe_validation_error(error)) from None
    except MCPError:
        raise
    except Exception as error:  # noqa: BLE001 - the SDK would hand its text to the client
        log_failure(_log, "the request %s failed", (ctx.method,), error)
        raise MCPError(types.INTERNAL_ERROR, "the gateway failed to answer; its log has the cause") from None


def _describe_validation_error(error: ValidationError) -> str:
    problems = (
        f"{'.'.join(str(part)[:60] for part in error['loc'][:6]) or 'params'}: {error['msg'][:120]}"
        for error in error.errors(include_input=False, include_url=False, include_context=False)[:3]
    )
    return f"invalid params: {'; '.join(problems)}"[:_MAX_ERROR_CHARACTERS]
