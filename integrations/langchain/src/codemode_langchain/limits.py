"""Apply the agent's `ToolCallLimitMiddleware` to nested calls.

The middleware counts only the model's calls. Nested calls of a step are counted here by id, so that none counts twice,
and are added to the middleware's counts before the next model call.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from langchain.agents.middleware import ToolCallLimitMiddleware
from langchain.agents.middleware.tool_call_limit import ToolCallLimitExceededError
from langgraph.types import Command

from codemode import CodeModeToolError, Interrupt, request_interrupt
from codemode.plugins import create_fork_safe_lock

from .langgraph_internals import NodeContext

CALLS_CHANNEL = "code_mode_calls"
END_CHANNEL = "code_mode_end"
LIMIT_KIND = "langchain-call-limit"
_COUNTED_KEY = "counted"
_THREAD_COUNT_CHANNEL = "thread_tool_call_count"
_RUN_COUNT_CHANNEL = "run_tool_call_count"
_ALL_TOOLS_KEY = "__all__"

Limit: TypeAlias = ToolCallLimitMiddleware[Any, Any]
_lock = create_fork_safe_lock()
_step_calls: weakref.WeakKeyDictionary[Any, tuple[int, _StepCalls]] = weakref.WeakKeyDictionary()


class _StepCalls:
    """The nested calls of one step in this process, by id, and the payload of the limit that stopped them."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}
        self.stop_payload: dict[str, Any] | None = None


class NestedCallLimits:
    """The limits of an agent, for the nested calls of one program."""

    def __init__(self, limits: Sequence[Limit], node: NodeContext, state: Any) -> None:
        self._limits = limits
        self._node = node
        self._counts_before = {
            _get_limit_key(limit): (
                _get_state_mapping(state, _THREAD_COUNT_CHANNEL).get(_get_limit_key(limit), 0),
                _get_state_mapping(state, _RUN_COUNT_CHANNEL).get(_get_limit_key(limit), 0),
            )
            for limit in limits
        }
        self._uncounted = Counter[str]()
        for calls in _get_state_mapping(state, CALLS_CHANNEL).values():
            self._uncounted.update(calls)
        self._counted_calls: dict[str, str] = {}

    def count_call_or_stop(self, tool: str, call_id: str) -> None:
        """Count a call that is about to run, once.

        Raises `CodeModeToolError` if it exceeds a limit, or pauses the program for good if that ends the agent's run.
        """
        with _lock:
            step = self._get_or_create_step_calls()
            if step.stop_payload is None and call_id not in (counted_calls := self._list_counted_calls(step)):
                step.stop_payload = self._find_stop_payload_or_raise(tool, counted_calls)
            if step.stop_payload is None:
                self._counted_calls[call_id] = step.calls[call_id] = tool
        if step.stop_payload is not None:
            request_interrupt(step.stop_payload)

    def restore_counted_calls(self, calls: Mapping[str, str]) -> None:
        """Count calls of a process that died: tool names by call id."""
        with _lock:
            self._counted_calls.update(calls)
            self._get_or_create_step_calls().calls.update(calls)

    @property
    def segment_record_fields(self) -> dict[str, Any]:
        """The calls of a segment, for its record."""
        with _lock:
            return {_COUNTED_KEY: dict(self._counted_calls)}

    def make_stop_result_or_raise(self, interrupt: Interrupt) -> tuple[str, Any] | None:
        """Return the text of a program stopped by a limit, and the command that ends the agent's run.

        None for a program that waits for approval. Raises `ToolCallLimitExceededError` for ``exit_behavior="error"``.
        """
        stop_payload = next(
            (request.payload for request in interrupt.requests if request.payload.get("kind") == LIMIT_KIND), None
        )
        if stop_payload is None:
            return None
        exceeded_fields: dict[str, Any] = dict(stop_payload["exceeded"])
        error = ToolCallLimitExceededError(**exceeded_fields)
        if stop_payload["exit_behavior"] == "error":
            raise error
        return _format_limit_message(exceeded_fields["tool_name"]), Command(update={END_CHANNEL: str(error)})

    def make_call_count_commands(self, records: Sequence[Mapping[str, Any]], tool_call_id: str) -> list[Any]:
        """Return the commands that report the calls of all segments to the graph."""
        calls = {key: tool for record in records for key, tool in record.get(_COUNTED_KEY, {}).items()}
        return [Command(update={CALLS_CHANNEL: {tool_call_id: dict(Counter(calls.values()))}})] if calls else []

    def _find_stop_payload_or_raise(self, tool: str, counted_calls: Mapping[str, str]) -> dict[str, Any] | None:
        for limit in self._limits:
            if limit.tool_name not in (None, tool):
                continue
            call_counts = Counter(counted_calls.values()) + self._uncounted
            nested_count = 1 + (call_counts.total() if limit.tool_name is None else call_counts[tool])
            thread_count, run_count = (before + nested_count for before in self._counts_before[_get_limit_key(limit)])
            if not (_exceeds(thread_count, limit.thread_limit) or _exceeds(run_count, limit.run_limit)):
                continue
            if limit.exit_behavior == "continue":
                raise CodeModeToolError(_format_limit_message(limit.tool_name))
            return {
                "kind": LIMIT_KIND,
                "exit_behavior": limit.exit_behavior,
                "exceeded": {
                    "thread_count": thread_count,
                    "run_count": run_count,
                    "thread_limit": limit.thread_limit,
                    "run_limit": limit.run_limit,
                    "tool_name": limit.tool_name,
                },
            }
        return None

    def _get_or_create_step_calls(self) -> _StepCalls:
        loop, step_number = self._node.step_id
        entry = _step_calls.get(loop)
        if entry is None or entry[0] != step_number:
            entry = _step_calls[loop] = step_number, _StepCalls()
        return entry[1]

    def _list_counted_calls(self, step: _StepCalls) -> dict[str, str]:
        """Return the calls of all programs of this step by id, including those before a pause."""
        earlier_calls = [
            _get_state_mapping(result, _COUNTED_KEY)
            for result in self._node.get_step_results()
            if isinstance(result, dict)
        ]
        return {key: tool for calls in earlier_calls for key, tool in calls.items()} | step.calls


def make_call_count_update(state: Any, limits: Sequence[Limit]) -> dict[str, Any]:
    """Return the state update that adds nested calls to the counts of these limits."""
    calls = _get_state_mapping(state, CALLS_CHANNEL)
    if not calls or not limits:
        return {}
    call_counts = Counter[str]()
    for tool_counts in calls.values():
        call_counts.update(tool_counts)
    thread_counts, run_counts = (
        dict(_get_state_mapping(state, _THREAD_COUNT_CHANNEL)),
        dict(_get_state_mapping(state, _RUN_COUNT_CHANNEL)),
    )
    for key in {_get_limit_key(tool_counts) for tool_counts in limits}:
        added_count = call_counts.total() if key == _ALL_TOOLS_KEY else call_counts[key]
        thread_counts[key], run_counts[key] = (
            thread_counts.get(key, 0) + added_count,
            run_counts.get(key, 0) + added_count,
        )
    return {CALLS_CHANNEL: dict.fromkeys(calls), _THREAD_COUNT_CHANNEL: thread_counts, _RUN_COUNT_CHANNEL: run_counts}


def get_limit_end_message(state: Any) -> str | None:
    """Return the final message if a limit has ended the run."""
    return _get_state_value(state, END_CHANNEL) or None


def find_call_limits(middleware: Iterable[Any]) -> list[Limit]:
    """Return the limits among the middleware of an agent."""
    return [item for item in middleware if isinstance(item, ToolCallLimitMiddleware)]


def _format_limit_message(tool_name: str | None) -> str:
    action = "make additional tool calls" if tool_name is None else f"call {tool_name!r} again"
    return f"Tool call limit exceeded. Do not {action}."


def _get_limit_key(limit: Any) -> str:
    return limit.tool_name or _ALL_TOOLS_KEY


def _exceeds(count: int, limit: int | None) -> bool:
    return limit is not None and count > limit


def _get_state_mapping(state: Any, key: str) -> Mapping[str, Any]:
    return _get_state_value(state, key) or {}


def _get_state_value(state: Any, key: str) -> Any:
    return cast("Any", state).get(key) if isinstance(state, Mapping) else getattr(state, key, None)
