"""A call of the one tool, from the client's request to its answer: progress, cancelling, one line in the log."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from codemode.data.narrowing import is_mapping
from codemode.host.threads import run_check
from codemode.observe.request_telemetry import call_ended, trace_id

from ..upstreams.origins import ORIGIN, CallOrigin
from .answers import answer_of
from .client_table import TOOL_NAMES, Announced
from .progress import Progress
from .tracing import trace_in

if TYPE_CHECKING:
    from .outfit import Outfit
    from .principals import Principal
    from .seat import Seat

_log = logging.getLogger("codemode.mcp")
_MOST_NAME_CHARACTERS = 100


class Calls:
    """The calls of one gateway that are under way."""

    def __init__(self) -> None:
        self._progress: dict[str, Progress] = {}
        self._running: set[asyncio.Task[Any]] = set()

    def on_step(self, outer_id: str, tool_name: str) -> None:
        """Tell the client of a call that its program calls a tool."""
        progress = self._progress.get(outer_id)
        if progress is not None:
            progress.step(tool_name)

    async def answer(
        self, seat: Seat, caller: Principal, known: Announced, ctx: Any, params: types.CallToolRequestParams
    ) -> Any:
        """Return the answer to a call. Raises `MCPError` for one that is none of this tool."""
        check_name(params.name, known)
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
            progress: Any = None
            if _wants_progress(ctx):
                told = Progress(ctx.session, status=outfit.waited_for)
                progress = self._progress[outer_id] = await stack.enter_async_context(told)
                stack.callback(self._progress.pop, outer_id, None)
            origin = _origin(caller, outer_id, ctx, progress)
            token = ORIGIN.set(origin)
            asking = outfit.asking_for(caller)

            async def run() -> Any:
                async with seat.run():  # it may go on behind this request, while the client is asked
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
        return await _answered(response, outfit, outer_id, seat, ctx, began)


async def _answered(response: Any, outfit: Outfit, outer_id: str, seat: Seat, ctx: Any, began: float) -> Any:
    if not is_mapping(response):  # the SDK's InputRequiredResult
        _note(outer_id, seat, ctx, began, "input_required", None)
        return response
    _note(outer_id, seat, ctx, began, "answered", response)
    return await run_check(0, partial(answer_of, response, outfit.config.settings.output))


def check_name(name: str, known: Announced) -> None:
    """Raise `MCPError` for the name of a tool that there is not."""
    if name not in TOOL_NAMES and name != known.tool_name:
        shown = json.dumps(name[:_MOST_NAME_CHARACTERS])
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {shown}: this server has one tool, {known.tool_name}")


def _origin(principal: Principal, outer_id: str, ctx: Any, progress: Progress | None) -> CallOrigin:
    said, brought = trace_in(ctx)
    trace = said or brought
    if progress is None:
        return CallOrigin(principal, outer_id, ctx.session, trace=trace)
    return CallOrigin(principal, outer_id, ctx.session, progress, trace)


def _wants_progress(ctx: Any) -> bool:
    meta: Mapping[str, Any] = ctx.meta or {}
    return meta.get("progress_token") is not None or meta.get("progressToken") is not None


def _note(outer_id: str, seat: Seat, ctx: Any, began: float, ended: str, response: Mapping[str, Any] | None) -> None:
    """Write the one line about a call: nothing of what went in, nothing of what came out."""
    client = getattr(ctx.session.client_params, "client_info", None)
    seconds = time.monotonic() - began
    codes = sorted({str(one.get("code")) for one in (response or {}).get("diagnostics") or ()})
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
    if (trace := trace_id()) is not None:
        said["trace"] = trace
    call_ended(outer_id, ended, seconds, codes)
    _log.info("%s", json.dumps(said, ensure_ascii=True))


def _read(task: asyncio.Task[Any]) -> None:
    """Look at what a cancelled call ended with, so that nobody is told that nobody did."""
    if not task.cancelled():
        task.exception()
