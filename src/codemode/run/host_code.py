"""Host code of a call, guarded: what a tool, or what decides about one, raises is hidden from the program.

Knows no order of calls.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from functools import partial
from typing import Any

from ..data.content import current
from ..errors import (
    HOST_BRIDGE_ERROR,
    HOST_FETCH_ERROR,
    HOST_TOOL_ERROR,
    CodeModeError,
    CodeModeHttpError,
    CodeModeSerializationError,
    CodeModeToolError,
    api_fields,
)
from ..host.cancellation import FAILURES, is_ended_from_outside
from ..host.threads import let_go, run_check
from ..interrupts import approval
from ..interrupts.interrupt import InterruptRequested, interrupt_within
from ..protocol.ledger import LedgerEntry
from ..protocol.references import Contents
from ..tools.context import ToolCallContext
from ..tools.prepared import PreparedTool, tool_failed
from ..tools.tool_result import ToolResult, blocks_of, failure_text, unwrapped

PIPELINE = "pipeline"
"""The ``origin`` of an error that a hook of the pipeline has caused."""


class HostRaised(Exception):  # noqa: N818 - carries an error, is none itself
    """What host code raised during a call, already as the error that the caller gets."""

    def __init__(self, error: CodeModeError) -> None:
        super().__init__(error.message)
        self.error = error


async def decided(entry: LedgerEntry, work: Awaitable[Any]) -> Any:
    """Await what decides about a call. Only the tool itself can pause the program."""
    try:
        return await guarded(entry, work)
    except HostRaised as thrown:
        approval.mark_undecided(thrown.error)
        raise
    except InterruptRequested as pause:
        misplaced = TypeError("request_interrupt works inside a tool, not in what decides about its approval")
        raise HostRaised(hidden(entry, misplaced)) from pause


async def hooked(entry: LedgerEntry, work: Awaitable[Any]) -> Any:
    """Await a hook of the pipeline. It refuses a call with a `CodeModeToolError`; all else that it raises is hidden."""
    try:
        return await guarded(entry, work)
    except HostRaised as thrown:
        raised = thrown.error
        if not isinstance(raised, CodeModeToolError):
            raise HostRaised(hidden_hook(entry, raised)) from raised
        if raised.code == HOST_TOOL_ERROR:
            raised.details["origin"] = PIPELINE
        raise
    except InterruptRequested as pause:
        misplaced = TypeError("request_interrupt works inside a tool, not in the pipeline around it")
        raise HostRaised(hidden_hook(entry, misplaced)) from pause


async def guarded(entry: LedgerEntry, work: Awaitable[Any]) -> Any:
    """Await host code. What it raises is hidden from the guest and kept for the host, whatever its class."""
    task = asyncio.current_task()
    try:
        return await work
    except CodeModeError as error:
        raise HostRaised(sound(entry, error)) from error
    except (Exception, SystemExit) as error:
        pause = interrupt_within(error)
        if pause is not None:
            raise pause from None
        raise HostRaised(hidden(entry, error)) from error
    except (asyncio.CancelledError, GeneratorExit) as error:
        if is_ended_from_outside(task):
            raise
        # Nobody cancelled or closed this call: something inside the tool raised it.
        raise HostRaised(hidden(entry, error)) from error
    except BaseExceptionGroup as group:
        pause = interrupt_within(group)
        if pause is not None:
            raise pause from None
        if group.split(FAILURES)[1] is not None or is_ended_from_outside(task):
            raise
        raise HostRaised(hidden(entry, group)) from group


def sound(entry: LedgerEntry, error: CodeModeError) -> CodeModeError:
    """Return what host code raised, or that it failed when its class has put other things into the fields of ours."""
    try:
        is_sound = isinstance(error.message, str) and isinstance(error.code, str) and isinstance(error.details, dict)  # pyright: ignore[reportUnnecessaryIsInstance]
        if is_sound:
            _make_plain(error)
    except Exception:  # noqa: BLE001 - they may be properties, or missing
        is_sound = False
    return error if is_sound else hidden(entry, error)


def _make_plain(error: CodeModeError) -> None:
    """Put plain values in the place of instances of subclasses, whose methods are host code too."""
    if type(error.message) is not str:
        error.message = str.__str__(error.message)
    if type(error.code) is not str:
        error.code = str.__str__(error.code)
    if type(error.details) is not dict:
        error.details = dict(error.details)


def hidden(entry: LedgerEntry, error: BaseException) -> CodeModeToolError:
    """Return the error that a program may see in place of what host code raised, which stays its cause."""
    return tool_failed(entry.name, error, tool_call_id=entry.tool_call_id)


def hidden_hook(entry: LedgerEntry, error: BaseException) -> CodeModeToolError:
    """Return the error that a program may see in place of what a hook of the pipeline did wrong."""
    failed = hidden(entry, error)
    failed.details["origin"] = PIPELINE
    return failed


async def unwrapped_output(entry: LedgerEntry, result: ToolResult) -> Any:
    """Return the value of what a tool has answered as an MCP server would.

    Raises `HostRaised` where it has failed, and `CodeModeSerializationError` for more content than there may be.
    """
    try:
        if not result.is_error:
            parts = current.get()
            room = parts.require_room if isinstance(parts, Contents) else None
            return await run_check(0, partial(unwrapped, result, room))
        text, blocks = await run_check(0, partial(_failure, result, entry.name))
    except CodeModeSerializationError:
        raise
    except Exception as error:
        raise HostRaised(hidden(entry, error)) from error
    details: dict[str, Any] = {"tool_name": entry.name, "tool_call_id": entry.tool_call_id, "content": blocks}
    if result.has_structured_content:
        details["structured_content"] = result.structured_content
    fields = api_fields(result.structured_content)
    error_class = CodeModeHttpError if fields else CodeModeToolError
    raise HostRaised(error_class(text, details={**details, **fields}))


def _failure(result: ToolResult, tool_name: str) -> tuple[str, list[dict[str, Any]]]:
    return failure_text(result, tool_name), blocks_of(result)


_FAILED_CODES = {"fetch": HOST_FETCH_ERROR, "catalog": HOST_BRIDGE_ERROR}


def told(entry: LedgerEntry, error: BaseException) -> CodeModeError:
    """Return what a request ended with when this was raised while it was performed."""
    if isinstance(error, HostRaised):
        return error.error
    if isinstance(error, CodeModeError):
        let_go(error)
        return error
    failed = hidden(entry, error)  # validators and serialisers of schemas are host code too
    failed.code = _FAILED_CODES.get(entry.kind, failed.code)
    return failed


async def needs_approval(tool: PreparedTool, value: Any, context: ToolCallContext) -> bool:
    """Ask the tool's own rule about a validated input."""
    answer = tool.asks_approval(value, context)
    return bool(await answer if inspect.isawaitable(answer) else answer)
