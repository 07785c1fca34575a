"""The SDK's server: answer calls of the tool, with progress, traces and media."""

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

from codemode.data.json_shape import weigh
from codemode.data.narrowing import is_mapping, is_object
from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.observe.request_telemetry import call_ended, record_failure, request_span
from codemode.trace.events import Event, NestedToolCallEvent
from codemode.trace.failures import log_failure

from ..config.model import Output
from ..passthrough.handlers import PassedOf, announcing, handlers, pass_logs
from .options import TOOL_NAMES, Announced
from .principal_sessions import INSTRUCTIONS
from .principals import ORIGIN, CallOrigin, kept_in_place

if TYPE_CHECKING:
    from .principal_sessions import Seat
    from .principals import Principal


_MOST_BLOCKS = 64
_MIME = {kind: re.compile(rf"{kind}/[A-Za-z0-9][A-Za-z0-9.+-]{{0,99}}") for kind in ("image", "audio")}
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


@dataclass(frozen=True)
class Media:
    """One block: its ``data`` in base64, its kind and its MIME type."""

    kind: Literal["image", "audio"]
    data: str
    mime_type: str


def taken_out(result: Any) -> tuple[Any, list[Media]]:
    """Return a result without its images and audio, and those. What has none is returned itself.

    A block is an object with the ``type`` image or audio, its ``data`` in base64 and a ``mimeType`` of that type;
    anything else stays what it is. Of equal ones there is one block. In the place of a block stands
    ``{"type", "mimeType", "block": <its number among those of the answer, from 1>}``.
    """
    found: dict[Media, int] = {}
    holder: list[Any] = [None]
    pending: list[tuple[Any, Any, Any]] = [(result, holder, 0)]
    while pending:
        value, into, at = pending.pop()
        if is_object(value):
            media = find_media(value) if value.get("type") in ("image", "audio") else None
            if media is not None and (media in found or len(found) < _MOST_BLOCKS):
                number = found.setdefault(media, len(found) + 1)
                into[at] = {"type": media.kind, "mimeType": media.mime_type, "block": number}
                continue
            copy: Any = dict(value)
            for name, member in copy.items():
                pending.append((member, copy, name))
        elif isinstance(value, list):
            copy = list(cast("list[Any]", value))
            pending += [(copy[index], copy, index) for index in reversed(range(len(copy)))]
        else:
            copy = value
        into[at] = copy
    return (holder[0], list(found)) if found else (result, [])


def find_media(value: Mapping[str, Any]) -> Media | None:
    """Return the image or audio that an object is; None for any other."""
    kind, data, mime_type = value.get("type"), value.get("data"), value.get("mimeType")
    if kind not in ("image", "audio") or not isinstance(data, str) or not isinstance(mime_type, str):
        return None
    if _MIME[kind].fullmatch(mime_type) is None or len(data) % 4 or _BASE64.fullmatch(data) is None:
        return None
    return Media(kind, data, mime_type)


# Clients show their model either of the two, so each says the whole of it. A program that failed is an answer as any.


def answer_of(response: Mapping[str, Any], output: Output = "both") -> types.CallToolResult:
    """Return the answer to a call. Images and audio in the result become content blocks.

    Such an answer has no structured content: clients that have some show their model nothing else.
    """
    result, media = taken_out(response.get("result"))
    said = {**response, "result": result} if media else dict(response)
    structured = None if media or output == "text" else said
    if output == "structured" and structured is not None:
        return types.CallToolResult(content=[], structured_content=structured)
    # What says nothing is left out; a result says something even where it is null or empty.
    shown = {name: value for name, value in said.items() if name == "result" or value not in ([], {}, "", None)}
    text = json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
    blocks: list[types.ContentBlock] = [types.TextContent(type="text", text=text), *map(_block, media)]
    return types.CallToolResult(content=blocks, structured_content=structured)


def _block(one: Media) -> types.ContentBlock:
    if one.kind == "image":
        return types.ImageContent(type="image", data=one.data, mime_type=one.mime_type)
    return types.AudioContent(type="audio", data=one.data, mime_type=one.mime_type)


_EVERY_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_MAX_MESSAGE_CHARACTERS = 200
_MOST_WAITING = 64
_log = logging.getLogger("codemode.mcp")


class Progress:
    """Tells a client that asked for it of every step, and, while there is none, every ten seconds that all is well.

    ``status`` gives what is waited for, None for nothing; a new one is told soon. The numbers only rise. A client that
    reads slowly misses steps, never the last one.
    """

    def __init__(
        self,
        session: Any,
        *,
        every_seconds: float = _EVERY_SECONDS,
        status: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._session = session
        self._every = every_seconds
        self._status = status
        self._last_status: str | None = None
        self._waiting: deque[str | None] = deque(maxlen=_MOST_WAITING)
        self._news = asyncio.Event()
        self._told = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._tell())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    def step(self, message: str | None) -> None:
        """Tell of a step, soon."""
        self._waiting.append(None if message is None else message[:_MAX_MESSAGE_CHARACTERS])
        self._news.set()

    def on_event(self, event: Event) -> None:
        """Report that a program calls a tool; a replayed call was reported before."""
        if type(event) is NestedToolCallEvent and not event.replayed:  # that of its result is one too
            self.step(event.tool_name)

    async def __call__(self, message: str | None) -> None:
        """Do what `step` does."""
        self.step(message)

    async def _tell(self) -> None:
        try:
            while True:
                if not self._waiting:
                    await self._wait()
                self._told += 1
                message = self._waiting.popleft() if self._waiting else self._status() or "running"
                await self._session.report_progress(float(self._told), None, message)
        except Exception as error:  # noqa: BLE001 - a client that has gone misses nothing
            _log.debug("no more progress is told: %s", type(error).__name__)

    async def _wait(self) -> None:
        """Wait for a step or another status, at most as long as nothing may be told."""
        self._news.clear()
        left = self._every
        while left > 0 and not self._news.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left, _LOOK_SECONDS))
            left -= _LOOK_SECONDS
            before, self._last_status = self._last_status, self._status()
            if self._last_status not in (None, before):
                return


# In place of the SDK's own middleware, whose spans take names, ids and words of errors as they come.

_FORMS = {
    "traceparent": re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x21-\x7e]{0,100})?"),
    # A header neither begins nor ends with a space.
    "tracestate": re.compile(r"(?! )[\x20-\x7e]{1,512}(?<! )"),
    "baggage": re.compile(r"(?! )[\x20-\x7e]{1,8192}(?<! )"),
}
_OF_THE_SDK = ("initialize", "ping", "server/discover")


def trace_of(said: Mapping[str, Any]) -> dict[str, str]:
    """Return what of ``_meta``, or of headers, names a trace, where it has the form that W3C gives it.

    It goes on to servers, as headers too: whatever else somebody writes there goes nowhere.
    """
    fitting: dict[str, str] = {}
    if said.get("traceparent") is not None:
        for name, form in _FORMS.items():
            text = said.get(name)
            if isinstance(text, str) and form.fullmatch(text) is not None:
                fitting[name] = text
    return fitting if "traceparent" in fitting else {}


def trace_in(ctx: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Return the trace that the message of a `ServerRequestContext` names in its ``_meta``, and in its headers."""
    request = getattr(ctx, "request", None)
    return trace_of(ctx.meta or {}), {} if request is None else trace_of(request.headers)


def traced(server: Server[Any]) -> Any:
    """Return a middleware that records each request as a span, below the one that the request names."""

    async def trace(ctx: Any, call_next: Any) -> Any:
        if ctx.request_id is None:
            return await call_next(ctx)
        said, brought = trace_in(ctx)
        name, attributes = _described(ctx, server)
        with request_span(name, attributes, said=said, brought=brought) as span:
            try:
                return await call_next(ctx)
            except MCPError as error:
                record_failure(span, str(error.error.code))
                raise
            except BaseException as error:
                record_failure(span, type(error).__name__)
                raise

    return trace


def _described(ctx: Any, server: Server[Any]) -> tuple[str, dict[str, str | int | float | bool]]:
    is_known = ctx.method in _OF_THE_SDK or server.get_request_handler(ctx.method) is not None
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


_MOST_NAME_CHARACTERS = 100


class Calls:
    """The calls of one gateway that are under way."""

    def __init__(self) -> None:
        self._progress: dict[str, Progress] = {}
        self._running: set[asyncio.Task[Any]] = set()

    def report_steps(self, outer_id: str | None) -> AbstractContextManager[None]:
        """Return what, while it is entered, has programs report their calls to the client of a request that asked."""
        progress = None if outer_id is None else self._progress.get(outer_id)
        if progress is None:
            return nullcontext()
        # Late: a list of tools needs nothing that runs programs.
        from codemode.observe.reporter import add_event_listener

        return add_event_listener(progress.on_event)

    async def answer(
        self, seat: Seat, caller: Principal, known: Announced, ctx: Any, params: types.CallToolRequestParams
    ) -> Any:
        """Return the answer to a call. Raises `MCPError` for the name of a tool that there is not."""
        if params.name not in TOOL_NAMES and params.name != known.tool_name:
            shown = json.dumps(params.name[:_MOST_NAME_CHARACTERS])
            only = f"this server has one tool, {known.tool_name}"
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {shown}: {only}")
        task = asyncio.create_task(self._served(seat, caller, known, ctx, params))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # The SDK cancels whatever is awaited, again and again: the run ends in a task of its own.
            task.cancel()
            task.add_done_callback(_read)
            raise

    async def aclose(self) -> None:
        """End all calls, and wait for that."""
        running = [*self._running]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _served(
        self, seat: Seat, caller: Principal, known: Announced, ctx: Any, params: types.CallToolRequestParams
    ) -> Any:
        outer_id = f"gw-{secrets.token_hex(12)}"
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            outfit = await stack.enter_async_context(seat.run())
            said, brought = trace_in(ctx)
            origin = CallOrigin(caller, outer_id, ctx.session, trace=said or brought)
            meta: Mapping[str, Any] = ctx.meta or {}
            if meta.get("progress_token") is not None or meta.get("progressToken") is not None:
                progress = await stack.enter_async_context(Progress(ctx.session, status=outfit.waited_for))
                self._progress[outer_id] = progress
                stack.callback(self._progress.pop, outer_id, None)
                origin = replace(origin, progress=progress)
            token = ORIGIN.set(origin)
            asking = outfit.asking_for(caller)

            async def run() -> Any:
                async with seat.run(outfit):  # it may go on behind this request, while the client is asked
                    return await asking.run(
                        ctx, params, params.arguments or {}, origin=origin, by_console=known.asks == "console"
                    )

            try:
                response = await seat.passed.held.answered(origin, params, run)
            except BaseException as error:
                _note(outer_id, seat, ctx, began, type(error).__name__, None)
                raise
            finally:
                ORIGIN.reset(token)
        if not is_mapping(response):  # the SDK's InputRequiredResult
            _note(outer_id, seat, ctx, began, "input_required", None)
            return response
        _note(outer_id, seat, ctx, began, "answered", response)
        size = weigh(response, LARGE_CHARACTERS)
        return await run_check(size, partial(answer_of, response, outfit.config.settings.output))


def _note(outer_id: str, seat: Seat, ctx: Any, began: float, ended: str, response: Mapping[str, Any] | None) -> None:
    """Write the one line about a call: nothing of what went in, nothing of what came out."""
    client = getattr(ctx.session.client_params, "client_info", None)
    seconds = time.monotonic() - began
    diagnostics = None if response is None else response.get("diagnostics")
    codes = sorted({str(one.get("code")) for one in diagnostics}) if diagnostics else []
    said: dict[str, Any] = {
        "event": "call",
        "id": outer_id,
        "principal": seat.principal.id,
        "client": str(getattr(client, "name", ""))[:_MOST_NAME_CHARACTERS],
        "ended": ended,
        "durationMs": round(seconds * 1000),
    }
    if response is not None:
        said["calls"] = len(response.get("toolTrace") or ())
        said["codes"] = codes
    if (trace := call_ended(outer_id, ended, seconds, codes)) is not None:
        said["trace"] = trace
    _log.info("%s", json.dumps(said, ensure_ascii=True))


def _read(task: asyncio.Task[Any]) -> None:
    """Look at what a cancelled call ended with, so that nobody is told that nobody did."""
    if not task.cancelled():
        task.exception()


_MAX_ERROR_CHARACTERS = 500


def made_server(list_tools: Any, call_tool: Any, passed_of: PassedOf, *, passes: bool) -> Server[Any]:
    """Return a server that answers with what these say. ``passes``: what servers have beside tools too."""
    passing = handlers(passed_of)
    told = {"on_subscriptions_listen": passing["on_subscriptions_listen"]}
    server: Server[Any] = Server(
        "codemode",
        version=metadata.version("codemode-toolkit"),
        title="codemode gateway",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        **(passing if passes else told),
    )
    server.middleware[:] = [kept_in_place, traced(server)]
    if passes:
        pass_logs(server, passed_of)
        server.middleware.append(announcing(passed_of))
    server.middleware.append(_says_what_is_wrong)
    return server


async def _says_what_is_wrong(ctx: Any, call_next: Any) -> Any:
    """Name what of a request does not fit, without its values; what is the gateway's own fault is for its log."""
    try:
        return await call_next(ctx)
    except ValidationError as error:
        raise MCPError(types.INVALID_PARAMS, _said(error)) from None
    except MCPError:
        raise
    except Exception as error:  # noqa: BLE001 - the SDK would hand its text to the client
        log_failure(_log, "a request could not be answered: %s", (ctx.method,), error)
        raise MCPError(types.INTERNAL_ERROR, "the gateway could not answer this request; its log says why") from None


def _said(error: ValidationError) -> str:
    wrong = (
        f"{'.'.join(str(part)[:60] for part in one['loc'][:6]) or 'params'}: {one['msg'][:120]}"
        for one in error.errors(include_input=False, include_url=False, include_context=False)[:3]
    )
    return f"the params of this request are not valid: {'; '.join(wrong)}"[:_MAX_ERROR_CHARACTERS]
