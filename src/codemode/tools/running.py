"""Runs one call of a tool's function, where it has to run, and reads what it gives. Knows no approval and no order.

An async function runs on the event loop, a sync one in a thread.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

from ..data.json_shape import SCALARS
from ..host.forks import forkable_lock
from ..trace.failures import log_late_failure
from .context import ToolCallContext
from .parameters import execute_kind
from .prepared import PreparedTool
from .unread_outputs import without_iterators

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads
    from ..options.parts import ExecutionPolicy

_PLAIN = SCALARS | {dict, list, tuple}


async def run_tool(
    tool: PreparedTool, value: Any, context: ToolCallContext | None, threads: InvocationThreads, call_id: str
) -> Any:
    """Call a tool with a validated value and return its output, of an async iterator the last item.

    Other iterators are still to be read.
    """
    if tool.execute_kind == "async":
        result = await tool.call(value, context)
    elif tool.execute_kind == "async_iterator":
        result = tool.call(value, context)
    else:
        result = await _in_thread(tool, call_id, threads, partial(tool.call, value, context))
        if type(result) in _PLAIN:
            return result
        if inspect.isawaitable(result):
            result = await result
    return await _last_item(result) if _is_async_iterator(result) else result


async def read_output(
    tool: PreparedTool, output: Any, policy: ExecutionPolicy, threads: InvocationThreads, call_id: str
) -> Any:
    """Return an output with lists in place of its iterators, read where the tool runs."""
    what, is_declared = f"the output of tool {tool.name!r}", tool.output_json_schema is not None
    work = partial(without_iterators, output, policy, what, is_declared=is_declared)
    return await _in_thread(tool, call_id, threads, work)


async def run_hook(
    hook: Callable[..., Any], arguments: tuple[Any, ...], threads: InvocationThreads, tool_name: str, call_id: str
) -> Any:
    """Call the host's own function about a call of a tool, and return what it says. A sync one runs as tools do."""
    if execute_kind(hook) == "async":
        return await hook(*arguments)
    answer = await _ThreadCall(tool_name, call_id, partial(hook, *arguments)).result(threads.run_tool)
    return await answer if inspect.isawaitable(answer) else answer


def _in_thread(
    tool: PreparedTool, call_id: str, threads: InvocationThreads, work: Callable[[], Any]
) -> Coroutine[Any, Any, Any]:
    return _ThreadCall(tool.name, call_id, work).result(threads.run_tool)


def _is_async_iterator(value: Any) -> TypeGuard[AsyncIterable[Any]]:
    return type(value) not in _PLAIN and isinstance(value, AsyncIterable)


async def _last_item(items: AsyncIterable[Any]) -> Any:
    last: Any = None
    async for last in items:  # noqa: B007 - the last item is what is wanted
        pass
    return last


class _ThreadCall:
    """Work of a tool to be done in a thread, which cannot be stopped when its invocation has ended.

    What it raises when nobody waits any more goes to the log.
    """

    def __init__(self, tool_name: str, call_id: str, work: Callable[[], Any]) -> None:
        self._tool_name = tool_name
        self._call_id = call_id
        self._work = work
        self._lock = forkable_lock()
        self._is_abandoned = False
        self._raised: BaseException | None = None

    async def result(self, run_tool: Callable[[Callable[[], Any]], Awaitable[Any]]) -> Any:
        """Return what the work returns, run by ``run_tool``."""
        try:
            return await run_tool(self._run)
        except asyncio.CancelledError:
            self._abandon()
            raise
        finally:
            self._raised = None  # its traceback holds this object

    def _run(self) -> Any:
        try:
            return self._work()
        except (StopIteration, GeneratorExit) as error:
            # A future cannot carry the one, and the other is how tasks end: the call would never end.
            self._note(error)
            raise RuntimeError(f"a tool raised {type(error).__name__}") from error
        except BaseException as error:
            self._note(error)
            raise

    def _abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            raised, self._raised = self._raised, None
        if raised is not None:
            log_late_failure(self._tool_name, self._call_id, raised)

    def _note(self, error: BaseException) -> None:
        with self._lock:
            if not self._is_abandoned:
                self._raised = error
                return
        log_late_failure(self._tool_name, self._call_id, error)
