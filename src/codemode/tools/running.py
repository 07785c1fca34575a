"""Call a tool's function on the event loop or in a thread, and read its iterators."""

from __future__ import annotations

import asyncio
import copy
import inspect
import io
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from ..data.json_shape import SCALARS, get_child_values
from ..data.narrowing import is_mapping
from ..errors import CodeModeSerializationError
from ..host.forks import create_fork_safe_lock
from ..options.parts import ExecutionPolicy
from ..trace.failures import log_late_failure
from .context import ToolCallContext
from .parameters import classify_function
from .prepared import PreparedTool

if TYPE_CHECKING:
    from ..host.threads import InvocationThreads


class UnreadIteratorError(Exception):
    """An output contains an iterator."""


def require_no_iterators(output: Any, *, is_declared: bool) -> None:
    """Raise `UnreadIteratorError` for an iterator in an output; without a schema only generators count."""
    pending, seen = [output], set[int]()
    while pending:
        item = pending.pop()
        if type(item) in SCALARS or id(item) in seen:
            continue
        seen.add(id(item))
        if _must_read_as_list(item, is_declared=is_declared):
            raise UnreadIteratorError
        children = get_child_values(item)
        if not SCALARS.issuperset(map(type, children)):
            pending += children


def replace_iterators_with_lists(output: Any, policy: ExecutionPolicy, what: str, *, is_declared: bool) -> Any:
    """Return an output with its iterators as lists, of at most one value more than the policy allows.

    Raises `CodeModeSerializationError` if they contain more text than an output may have.
    """
    return _IteratorReader(policy, what, is_declared=is_declared).replace_iterators(output)


def _must_read_as_list(item: Any, *, is_declared: bool) -> bool:
    if isinstance(item, GeneratorType):
        return True
    return is_declared and isinstance(item, Iterator) and not isinstance(item, io.IOBase)


class _IteratorReader:
    def __init__(self, policy: ExecutionPolicy, what: str, *, is_declared: bool) -> None:
        self._values_left = policy.max_values
        self._max_bytes = self._characters_left = policy.max_tool_output_bytes
        self._what = what
        self._is_declared = is_declared

    def replace_iterators(self, value: Any) -> Any:
        if type(value) in SCALARS:
            return value
        if _must_read_as_list(value, is_declared=self._is_declared):
            return self._read_iterator(value)
        if is_mapping(value):
            return self._replace_in_mapping(value)
        if isinstance(value, list | tuple | set | frozenset | deque):
            return self._replace_in_sequence(cast("Collection[Any]", value))
        if hasattr(cast("Any", type(value)), "__pydantic_fields__"):
            return self._replace_in_model(value)
        return self._replace_in_dataclass(value) if is_dataclass(value) else value

    def _read_iterator(self, iterator: Iterator[Any]) -> list[Any]:
        items: list[Any] = []
        for item in iterator:
            self._count_against_limits(item)
            items.append(self.replace_iterators(item))
            if self._values_left < 0:
                break
        return items

    def _count_against_limits(self, item: Any) -> None:
        pending = [item]
        while pending and self._values_left >= 0:
            value = pending.pop()
            self._values_left -= 1
            if isinstance(value, str | bytes):
                self._characters_left -= len(value)
            else:
                pending += get_child_values(value)
        if self._characters_left < 0:
            raise CodeModeSerializationError(
                f"{self._what} is more than {self._max_bytes} bytes of JSON, the limit.",
                details={"max_bytes": self._max_bytes},
            )

    def _replace_and_select_changed(self, items: Mapping[Any, Any]) -> dict[Any, Any]:
        replaced = {name: self.replace_iterators(item) for name, item in items.items()}
        return {name: item for name, item in replaced.items() if item is not items[name]}

    def _replace_in_mapping(self, value: Mapping[Any, Any]) -> Any:
        changed = self._replace_and_select_changed(value)
        return {**value, **changed} if changed else value

    def _replace_in_sequence(self, value: Collection[Any]) -> Any:
        changed = self._replace_and_select_changed(dict(enumerate(value)))
        return [changed.get(index, item) for index, item in enumerate(value)] if changed else value

    def _replace_in_model(self, value: Any) -> Any:
        changed = self._replace_and_select_changed(
            {**value.__dict__, **(getattr(value, "__pydantic_extra__", None) or {})}
        )
        return value.model_copy(update=changed) if changed and hasattr(value, "model_copy") else value

    def _replace_in_dataclass(self, value: Any) -> Any:
        changed = self._replace_and_select_changed(
            {dataclass_field.name: getattr(value, dataclass_field.name, None) for dataclass_field in fields(value)}
        )
        if changed:
            value = copy.copy(value)
            for name, item in changed.items():
                object.__setattr__(value, name, item)
        return value


# An async function runs on the event loop, a sync one in a thread.

_PLAIN_TYPES = SCALARS | {dict, list, tuple}


async def run_tool(
    tool: PreparedTool, value: Any, context: ToolCallContext | None, threads: InvocationThreads, call_id: str
) -> Any:
    """Call a tool with a validated value and return its output; of an async iterator the last item.

    Other iterators are not read yet.
    """
    if tool.execute_kind == "async":
        result = await tool.call(value, context)
        if type(result) in _PLAIN_TYPES:
            return result
    elif tool.execute_kind == "async_iterator":
        result = tool.call(value, context)
    else:
        result = await _run_in_thread(tool, call_id, threads, partial(tool.call, value, context))
        if type(result) in _PLAIN_TYPES:
            return result
        if inspect.isawaitable(result):
            result = await result
    return await _read_last_item(result) if _is_async_iterator(result) else result


async def read_output_iterators(
    tool: PreparedTool, output: Any, policy: ExecutionPolicy, threads: InvocationThreads, call_id: str
) -> Any:
    """Return an output with its iterators as lists, read where the tool runs."""
    what, is_declared = f"the output of tool {tool.name!r}", tool.output_json_schema is not None
    work = partial(replace_iterators_with_lists, output, policy, what, is_declared=is_declared)
    return await _run_in_thread(tool, call_id, threads, work)


async def run_hook(
    hook: Callable[..., Any], arguments: tuple[Any, ...], threads: InvocationThreads, tool_name: str, call_id: str
) -> Any:
    """Call a host's hook for a tool call and return its result. A sync hook runs in a thread, as tools do."""
    if classify_function(hook) == "async":
        return await hook(*arguments)
    answer = await _ThreadCall(tool_name, call_id, partial(hook, *arguments)).run_in_thread(threads.run_tool)
    return await answer if inspect.isawaitable(answer) else answer


def _run_in_thread(
    tool: PreparedTool, call_id: str, threads: InvocationThreads, work: Callable[[], Any]
) -> Coroutine[Any, Any, Any]:
    return _ThreadCall(tool.name, call_id, work).run_in_thread(threads.run_tool)


def _is_async_iterator(value: Any) -> TypeGuard[AsyncIterable[Any]]:
    return type(value) not in _PLAIN_TYPES and isinstance(value, AsyncIterable)


async def _read_last_item(items: AsyncIterable[Any]) -> Any:
    last: Any = None
    async for last in items:  # noqa: B007 - the last item is what is wanted
        pass
    return last


class _ThreadCall:
    """A tool's work in a thread, which cannot be stopped when its invocation ends.

    Exceptions after that are logged.
    """

    def __init__(self, tool_name: str, call_id: str, work: Callable[[], Any]) -> None:
        self._tool_name = tool_name
        self._call_id = call_id
        self._work = work
        self._lock = create_fork_safe_lock()
        self._is_abandoned = False
        self._late_error: BaseException | None = None

    async def run_in_thread(self, run_tool: Callable[[Callable[[], Any]], Awaitable[Any]]) -> Any:
        """Return the result of the work, run by ``run_tool``."""
        try:
            return await run_tool(self._run_work)
        except asyncio.CancelledError:
            self._abandon_work()
            raise
        finally:
            self._late_error = None  # its traceback holds this object

    def _run_work(self) -> Any:
        try:
            return self._work()
        except (StopIteration, GeneratorExit) as error:
            # A future cannot carry StopIteration, and GeneratorExit ends tasks: the call would never end.
            self._store_or_log_error(error)
            raise RuntimeError(f"a tool raised {type(error).__name__}") from error
        except BaseException as error:
            self._store_or_log_error(error)
            raise

    def _abandon_work(self) -> None:
        with self._lock:
            self._is_abandoned = True
            raised, self._late_error = self._late_error, None
        if raised is not None:
            log_late_failure(self._tool_name, self._call_id, raised)

    def _store_or_log_error(self, error: BaseException) -> None:
        with self._lock:
            if not self._is_abandoned:
                self._late_error = error
                return
        log_late_failure(self._tool_name, self._call_id, error)
