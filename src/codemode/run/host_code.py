"""Runs a tool's code, and that which decides about it. What it raises is hidden from the program. Knows no order."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..errors import HOST_TOOL_ERROR, CodeModeError, CodeModeToolError
from ..host.cancellation import is_ended_from_outside
from ..interrupts import approval
from ..interrupts.interrupt import InterruptRequested, interrupt_within
from ..protocol.ledger import LedgerEntry
from ..tools.context import ToolCallContext
from ..tools.tool import Tool, ValidatedInput
from .thread_call import ThreadCall
from .unread_outputs import without_iterators

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads
    from ..options.parts import ExecutionPolicy


class HostRaised(Exception):  # noqa: N818 - carries an error, is none itself
    """What host code raised during a call, already as the error that the caller gets."""

    def __init__(self, error: CodeModeError) -> None:
        super().__init__(error.message)
        self.error = error


async def executed(
    tool: Tool,
    validated: ValidatedInput,
    context: ToolCallContext | None,
    threads: InvocationThreads,
    entry: LedgerEntry,
) -> Any:
    """Call the tool and return its output, of an async iterator the last item. Other iterators are still to be read."""
    if tool.execute_kind == "async":
        result = await tool.call(validated.value, context)
    elif tool.execute_kind == "async_iterator":
        result = tool.call(validated.value, context)
    else:
        result = await _in_thread(tool, entry, threads, partial(tool.call, validated.value, context))
        if inspect.isawaitable(result):
            result = await result
    return await _last_item(cast("AsyncIterable[Any]", result)) if isinstance(result, AsyncIterable) else result


async def read_output(
    tool: Tool, output: Any, policy: ExecutionPolicy, threads: InvocationThreads, entry: LedgerEntry
) -> Any:
    """Return an output with lists in place of its iterators, read where the tool runs."""
    what, is_declared = f"the output of tool {tool.name!r}", tool.output_json_schema is not None
    work = partial(without_iterators, output, policy, what, is_declared=is_declared)
    return await _in_thread(tool, entry, threads, work)


async def _in_thread(tool: Tool, entry: LedgerEntry, threads: InvocationThreads, work: Callable[[], Any]) -> Any:
    return await ThreadCall(tool.name, entry.tool_call_id or "", work).result(threads.run_tool)


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
        if group.split(_FAILURES)[1] is not None or is_ended_from_outside(task):
            raise
        raise HostRaised(hidden(entry, group)) from group


# What ends neither the host nor whoever tests it when a tool raises it.
_FAILURES = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError)


def sound(entry: LedgerEntry, error: CodeModeError) -> CodeModeError:
    """Return what host code raised, or that it failed when its class has put other things into the fields of ours."""
    try:
        is_sound = isinstance(error.message, str) and isinstance(error.code, str) and isinstance(error.details, dict)  # pyright: ignore[reportUnnecessaryIsInstance]
    except Exception:  # noqa: BLE001 - they may be properties, or missing
        is_sound = False
    return error if is_sound else hidden(entry, error)


def hidden(entry: LedgerEntry, error: BaseException) -> CodeModeToolError:
    """Return the error that a program may see in place of what host code raised, which stays its cause."""
    hidden = CodeModeToolError(
        f"tool {entry.name!r} failed",
        code=HOST_TOOL_ERROR,
        details={"tool_name": entry.name, "tool_call_id": entry.tool_call_id},
    )
    hidden.__cause__ = error
    return hidden


async def _last_item(items: AsyncIterable[Any]) -> Any:
    last: Any = None
    async for last in items:  # noqa: B007 - the last item is what is wanted
        pass
    return last


async def needs_approval(tool: Tool, value: Any, context: ToolCallContext) -> bool:
    """Ask the tool's own rule about a validated input."""
    answer = tool.asks_approval(value, context)
    return bool(await answer if inspect.isawaitable(answer) else answer)
