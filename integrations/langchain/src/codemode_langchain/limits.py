"""Limits of calls that a `ToolCallLimitMiddleware` of the agent sets, held over nested calls too.

It counts the calls of the model itself. Nested calls are counted here: while a step runs by what its programs have
called, by their ids, so that none is counted twice; when the model is asked next they go to its own counts.
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
from codemode.plugins import forkable_lock

from .pregel import Inside

CALLS = "code_mode_calls"
END = "code_mode_end"
LIMIT_KIND = "langchain-call-limit"
_COUNTED = "counted"
_THREAD = "thread_tool_call_count"
_RUN = "run_tool_call_count"
_ALL = "__all__"

Limit: TypeAlias = ToolCallLimitMiddleware[Any, Any]
_lock = forkable_lock()
_steps: weakref.WeakKeyDictionary[Any, tuple[int, _Step]] = weakref.WeakKeyDictionary()


class _Step:
    """The nested calls that programs of one step have made in this process, by their ids; what stopped them all."""

    def __init__(self) -> None:
        self.calls: dict[str, str] = {}
        self.stop: dict[str, Any] | None = None


class Limits:
    """The limits of an agent, for the nested calls of one program."""

    def __init__(self, limits: Sequence[Limit], node: Inside, state: Any) -> None:
        self._limits = limits
        self._node = node
        self._before = {
            _key(one): (_in(state, _THREAD).get(_key(one), 0), _in(state, _RUN).get(_key(one), 0)) for one in limits
        }
        self._not_told = Counter[str]()
        for calls in _in(state, CALLS).values():
            self._not_told.update(calls)
        self._own: dict[str, str] = {}

    def admit(self, tool: str, call_id: str) -> None:
        """Count a call that is about to be made; one that has been counted is not again.

        Raise `CodeModeToolError` for one that is too much, or pause the program for good where that ends the run.
        """
        with _lock:
            step = self._step()
            if step.stop is None and call_id not in (counted := self._counted(step)):
                step.stop = self._refused(tool, counted)
            if step.stop is None:
                self._own[call_id] = step.calls[call_id] = tool
        if step.stop is not None:
            request_interrupt(step.stop)

    def recall(self, calls: Mapping[str, str]) -> None:
        """Count calls that a process has made which ended in the middle: their tools, by their ids."""
        with _lock:
            self._own.update(calls)
            self._step().calls.update(calls)

    @property
    def record(self) -> dict[str, Any]:
        """What a part of the program keeps of the calls that it has made."""
        with _lock:
            return {_COUNTED: dict(self._own)}

    def end(self, interrupt: Interrupt) -> tuple[str, Any] | None:
        """Return what answers a program that was stopped for good, and the command that ends the agent's run.

        None for one that waits for a person. Raises `ToolCallLimitExceededError` where the limit says so.
        """
        stop = next((one.payload for one in interrupt.requests if one.payload.get("kind") == LIMIT_KIND), None)
        if stop is None:
            return None
        exceeded: dict[str, Any] = dict(stop["exceeded"])
        error = ToolCallLimitExceededError(**exceeded)
        if stop["exit_behavior"] == "error":
            raise error
        return _told(exceeded["tool_name"]), Command(update={END: str(error)})

    def counted(self, records: Sequence[Mapping[str, Any]], tool_call_id: str) -> list[Any]:
        """Return the commands that tell the graph what all parts of a program have called."""
        calls = {key: tool for record in records for key, tool in record.get(_COUNTED, {}).items()}
        return [Command(update={CALLS: {tool_call_id: dict(Counter(calls.values()))}})] if calls else []

    def _refused(self, tool: str, counted: Mapping[str, str]) -> dict[str, Any] | None:
        for limit in self._limits:
            if limit.tool_name not in (None, tool):
                continue
            made = Counter(counted.values()) + self._not_told
            nested = 1 + (made.total() if limit.tool_name is None else made[tool])
            thread, run = (before + nested for before in self._before[_key(limit)])
            if not (_is_beyond(thread, limit.thread_limit) or _is_beyond(run, limit.run_limit)):
                continue
            if limit.exit_behavior == "continue":
                raise CodeModeToolError(_told(limit.tool_name))
            return {
                "kind": LIMIT_KIND,
                "exit_behavior": limit.exit_behavior,
                "exceeded": {
                    "thread_count": thread,
                    "run_count": run,
                    "thread_limit": limit.thread_limit,
                    "run_limit": limit.run_limit,
                    "tool_name": limit.tool_name,
                },
            }
        return None

    def _step(self) -> _Step:
        loop, number = self._node.place
        found = _steps.get(loop)
        if found is None or found[0] != number:
            found = _steps[loop] = number, _Step()
        return found[1]

    def _counted(self, step: _Step) -> dict[str, str]:
        """Return the calls of all programs of this step, by their ids, also those made before a pause."""
        earlier = [_in(one, _COUNTED) for one in self._node.written_in_step() if isinstance(one, dict)]
        return {key: tool for calls in earlier for key, tool in calls.items()} | step.calls


def passed_on(state: Any, limits: Sequence[Limit]) -> dict[str, Any]:
    """Return the update of the state that passes nested calls on to the counts of these limits."""
    calls = _in(state, CALLS)
    if not calls or not limits:
        return {}
    made = Counter[str]()
    for one in calls.values():
        made.update(one)
    thread, run = dict(_in(state, _THREAD)), dict(_in(state, _RUN))
    for key in {_key(one) for one in limits}:
        more = made.total() if key == _ALL else made[key]
        thread[key], run[key] = thread.get(key, 0) + more, run.get(key, 0) + more
    return {CALLS: dict.fromkeys(calls), _THREAD: thread, _RUN: run}


def end_in(state: Any) -> str | None:
    """Return what is said in the model's place where a limit has ended the run."""
    return _value(state, END) or None


def limits_among(listed: Iterable[Any]) -> list[Limit]:
    """Return the limits among the middleware of an agent."""
    return [one for one in listed if isinstance(one, ToolCallLimitMiddleware)]


def _told(tool_name: str | None) -> str:
    what = "make additional tool calls" if tool_name is None else f"call {tool_name!r} again"
    return f"Tool call limit exceeded. Do not {what}."


def _key(limit: Any) -> str:
    return limit.tool_name or _ALL


def _is_beyond(count: int, limit: int | None) -> bool:
    return limit is not None and count > limit


def _in(state: Any, key: str) -> Mapping[str, Any]:
    return _value(state, key) or {}


def _value(state: Any, key: str) -> Any:
    return cast("Any", state).get(key) if isinstance(state, Mapping) else getattr(state, key, None)
