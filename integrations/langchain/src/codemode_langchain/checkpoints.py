"""Read a node's checkpoint, and save results and call outputs next to it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from codemode.plugins import create_fork_safe_lock

from .langgraph_internals import (
    CHECKPOINTER,
    CHECKPOINTS,
    INTERRUPT,
    NAMESPACE,
    RESUME,
    RETURN,
    RUN_TASK_ID,
    TASK_ID,
    get_node_context,
)
from .node_tasks import compute_node_id, start_task

_log = logging.getLogger("codemode.approvals")

# Checkpoint ids are UUIDs of version 6, which count ticks of 100 ns from 1582.
_TIME_UUID_VERSION = 6
_UUID_EPOCH = 0x01B21DD213814000


def warn_if_graph_cannot_resume(config: RunnableConfig) -> None:
    """Log a warning, once per process, for a question in a graph that LangGraph cannot resume."""
    # A graph inside another one has the outer graph's checkpointer here.
    if config.get("configurable", {}).get(CHECKPOINTER) is None:
        _warn_about_missing_checkpointer()


@cache
def _warn_about_missing_checkpointer() -> None:
    _log.warning(
        "a call waits for approval in a graph without a checkpointer, which LangGraph cannot resume. Add one,"
        " create_agent(..., checkpointer=InMemorySaver()) or one of a database, and call the agent with"
        ' {"configurable": {"thread_id": ...}}'
    )


def get_step_time_ms(config: RunnableConfig) -> int | None:
    """Return when the node's step was recorded, in Unix milliseconds; the same when the node runs again."""
    _, checkpoint = _find_namespace_and_checkpoint_id(config)
    try:
        checkpoint_uuid = UUID(checkpoint)
    except (ValueError, TypeError, AttributeError):
        return None
    if checkpoint_uuid.version != _TIME_UUID_VERSION:
        return None
    ticks = int(checkpoint_uuid.hex[:12] + checkpoint_uuid.hex[13:16], 16) - _UUID_EPOCH
    return ticks // 10_000


def get_checkpoint_write_future(config: RunnableConfig) -> Any:
    """Return the future of LangGraph's background write of the node's checkpoint, or None."""
    node = get_node_context(config)
    return None if node is None else getattr(node.loop, "_put_checkpoint_fut", None)


def save_task_result(config: RunnableConfig, result: Any) -> None:
    """Save the result of the current task immediately; LangGraph would do so in the background."""
    saver, task_id, checkpoint_config = _find_task_result_location(config)
    if saver is not None:
        saver.put_writes(checkpoint_config, [(RETURN, result)], task_id)


async def save_task_result_async(config: RunnableConfig, result: Any) -> None:
    """Do what `save_task_result` does without blocking."""
    saver, task_id, checkpoint_config = _find_task_result_location(config)
    if saver is not None:
        await saver.aput_writes(checkpoint_config, [(RETURN, result)], task_id)


def save_extra_value(config: RunnableConfig, name: str, value: Any) -> None:
    """Save a value next to the checkpoint, under a name of no task, which LangGraph ignores."""
    saver, checkpoint_config = _find_checkpoint_location(config)
    if saver is not None:
        saver.put_writes(checkpoint_config, [(RETURN, value)], name)


async def save_extra_value_async(config: RunnableConfig, name: str, value: Any) -> None:
    """Do what `save_extra_value` does without blocking."""
    saver, checkpoint_config = _find_checkpoint_location(config)
    if saver is not None:
        await saver.aput_writes(checkpoint_config, [(RETURN, value)], name)


def clear_interrupt(config: RunnableConfig) -> None:
    """Clear a node's pending interrupt, which LangGraph keeps until the next one or the node's end."""
    saver, task_id, checkpoint_config = _find_task_result_location(config)
    if saver is not None:
        saver.put_writes(checkpoint_config, [(INTERRUPT, ())], task_id)


async def clear_interrupt_async(config: RunnableConfig) -> None:
    """Do what `clear_interrupt` does without blocking."""
    saver, task_id, checkpoint_config = _find_task_result_location(config)
    if saver is not None:
        await saver.aput_writes(checkpoint_config, [(INTERRUPT, ())], task_id)


def clear_resume_value(loop: Any) -> None:
    """Clear a run's plain answer, so that later runs do not find it."""
    loop.checkpointer.put_writes(_make_loop_checkpoint_config(loop), [(RESUME, None)], RUN_TASK_ID)


async def clear_resume_value_async(loop: Any) -> None:
    """Do what `clear_resume_value` does without blocking."""
    await loop.checkpointer.aput_writes(_make_loop_checkpoint_config(loop), [(RESUME, None)], RUN_TASK_ID)


def read_saved_values(config: RunnableConfig) -> list[Any]:
    """Return all result values saved next to the checkpoint."""
    saver, checkpoint_config = _find_checkpoint_location(config)
    return _list_result_values(None if saver is None else saver.get_tuple(checkpoint_config))


async def read_saved_values_async(config: RunnableConfig) -> list[Any]:
    """Do what `read_saved_values` does without blocking."""
    saver, checkpoint_config = _find_checkpoint_location(config)
    return _list_result_values(None if saver is None else await saver.aget_tuple(checkpoint_config))


def _list_result_values(checkpoint_tuple: Any) -> list[Any]:
    # None while the checkpoint is being written.
    return (
        []
        if checkpoint_tuple is None
        else [value for _, channel, value in checkpoint_tuple.pending_writes or () if channel == RETURN]
    )


def _find_task_result_location(config: RunnableConfig) -> tuple[Any, str, dict[str, Any]]:
    saver, checkpoint_config = _find_checkpoint_location(config)
    return saver, config.get("configurable", {}).get(TASK_ID, ""), checkpoint_config


def _make_loop_checkpoint_config(loop: Any) -> dict[str, Any]:
    configurable = loop.checkpoint_config["configurable"]
    checkpoint_fields = {
        NAMESPACE: loop.config["configurable"].get(NAMESPACE, ""),
        "checkpoint_id": loop.checkpoint["id"],
    }
    return {"configurable": {**configurable, **checkpoint_fields}}


def _find_checkpoint_location(config: RunnableConfig) -> tuple[Any, dict[str, Any]]:
    """Return the checkpointer, and the configuration that identifies the checkpoint."""
    configurable = config.get("configurable", {})
    namespace, checkpoint_id = _find_namespace_and_checkpoint_id(config)
    checkpoint_fields = {
        "thread_id": str(configurable.get("thread_id")),
        NAMESPACE: namespace,
        "checkpoint_id": checkpoint_id,
    }
    return configurable.get(CHECKPOINTER), {"configurable": checkpoint_fields}


def _find_namespace_and_checkpoint_id(config: RunnableConfig) -> tuple[str, Any]:
    """Return namespace and id of the checkpoint of a node's or task's graph."""
    configurable = config.get("configurable", {})
    checkpoints: Mapping[str, Any] = configurable.get(CHECKPOINTS) or {}
    namespace = str(configurable.get(NAMESPACE, ""))
    while namespace:
        namespace, _, _ = namespace.rpartition("|")
        if namespace in checkpoints:
            break
    checkpoint_id = checkpoints.get(namespace)
    # A task's namespace is below that of its node, which is listed with its graph's checkpoint.
    namespaces = [name for name, other_id in checkpoints.items() if other_id == checkpoint_id]
    return min(namespaces, key=len, default=""), checkpoint_id


# With a journal, another process can continue a segment without running finished calls again. Their state updates, and
# the questions of waiting calls, are saved here.

_OUTER_CALL_KEY = "codemode"


@dataclass(kw_only=True)
class CallSideOutput:
    """Output of one nested call besides its value: state commands, an artifact, its pending questions.

    ``counted``: the tool's name, if limits apply and the call ran. Field names are stored.
    """

    commands: list[Any] = field(default_factory=list[Any])
    artifact: Mapping[str, Any] | None = None
    asked: Mapping[str, Any] | None = None
    counted: str | None = None

    def __bool__(self) -> bool:
        return bool(self.commands or self.artifact is not None or self.asked is not None or self.counted)


class SavedCallOutputs:
    """Saved outputs of the nested calls of one outer call, by segment number. Empty before `load`."""

    def __init__(self, config: RunnableConfig, outer_tool_call_id: str) -> None:
        self._config = config
        self._outer_id = outer_tool_call_id
        self._outputs: dict[int, dict[str, CallSideOutput]] = {}
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._order = itertools.count()

    def load(self) -> None:
        """Load what other processes, and earlier runs of this one, have saved."""
        self._add_loaded_entries(read_saved_values(self._config))

    async def aload(self) -> None:
        """Do what `load` does without blocking."""
        self._add_loaded_entries(await read_saved_values_async(self._config))

    def get_outputs(self, step: int) -> dict[str, CallSideOutput]:
        """Return the loaded outputs of a segment by call id, oldest first."""
        return dict(self._outputs.get(step, {}))

    def get_answers(self, step: int) -> Mapping[str, Any] | None:
        """Return the saved answers of a segment by question key; None if it has not started."""
        return self._answers.get(step)

    def save(self, step: int, call_id: str, output: CallSideOutput) -> None:
        """Save the output of a call."""
        save_extra_value(self._config, _generate_write_name(), self._make_output_entry(step, call_id, output))

    async def asave(self, step: int, call_id: str, output: CallSideOutput) -> None:
        """Do what `save` does without blocking."""
        await save_extra_value_async(
            self._config, _generate_write_name(), self._make_output_entry(step, call_id, output)
        )

    def save_answers(self, step: int, answers: Mapping[str, Any]) -> None:
        """Save the answers of a segment before it starts, so that it is continued with the same ones."""
        if answers and step not in self._answers:
            save_extra_value(self._config, _generate_write_name(), self._make_answers_entry(step, answers))

    async def asave_answers(self, step: int, answers: Mapping[str, Any]) -> None:
        """Do what `save_answers` does without blocking."""
        if answers and step not in self._answers:
            await save_extra_value_async(self._config, _generate_write_name(), self._make_answers_entry(step, answers))

    def _make_output_entry(self, step: int, call_id: str, output: CallSideOutput) -> dict[str, Any]:
        output_fields = {
            "commands": output.commands,
            "artifact": output.artifact,
            "asked": output.asked,
            "counted": output.counted,
        }
        return {
            _OUTER_CALL_KEY: self._outer_id,
            "step": step,
            "order": next(self._order),
            "call": call_id,
            "left": output_fields,
        }

    def _make_answers_entry(self, step: int, answers: Mapping[str, Any]) -> dict[str, Any]:
        return {_OUTER_CALL_KEY: self._outer_id, "step": step, "order": next(self._order), "answers": dict(answers)}

    def _add_loaded_entries(self, values: Iterable[Any]) -> None:
        call_entries: list[dict[str, Any]] = [entry for entry in values if _belongs_to_call(entry, self._outer_id)]
        # A repeated call has several outputs: the latest counts.
        for entry in sorted(call_entries, key=lambda entry: entry["order"]):
            if "answers" in entry:
                self._answers.setdefault(entry["step"], entry["answers"])
                continue
            outputs = self._outputs.setdefault(entry["step"], {})
            outputs.pop(entry["call"], None)
            outputs[entry["call"]] = CallSideOutput(**entry["left"])
        self._order = itertools.count(1 + max((entry["order"] for entry in call_entries), default=-1))


def _belongs_to_call(value: Any, outer_tool_call_id: str) -> bool:
    return isinstance(value, dict) and cast("dict[str, Any]", value).get(_OUTER_CALL_KEY) == outer_tool_call_id


def _generate_write_name() -> str:
    # LangGraph keeps only the first write under a name.
    return f"codemode-{secrets.token_hex(16)}"


# A segment whose process died has no result. Which of its calls ran is unknown without a journal.

_START_TASK_NAME = "begun"
_JOURNALED_PREFIX = "journal:"


class SegmentStartMarker:
    """Marker that a segment has started, saved before its first call.

    ``is_journaled``: a journal has the outcome of its calls, if the process that started it had one too.
    """

    def __init__(self, config: RunnableConfig, number: int, *, is_journaled: bool = False) -> None:
        self._config = config
        self._number = number
        self._is_journaled = is_journaled
        self._marker_id = f"{_JOURNALED_PREFIX if is_journaled else ''}{secrets.token_hex(8)}"
        self._lock = create_fork_safe_lock()
        self._has_checkpoint = compute_node_id(config) is not None
        self._is_first_start: bool | None = None
        self._start_task: asyncio.Task[bool] | None = None

    @property
    def was_checked(self) -> bool:
        """True if this process has read or saved the marker."""
        return self._is_first_start is not None or self._start_task is not None

    def claim_start(self) -> bool:
        """Save the marker, and return False if another process started this segment and its progress is unknown."""
        if not self._has_checkpoint:
            return True
        with self._lock:
            if self._is_first_start is None:
                self._is_first_start = self._is_local_or_journaled(self._start_marker_task(self._save_marker).result())
            return self._is_first_start

    async def aclaim_start(self) -> bool:
        """Do what `claim_start` does without blocking."""
        if not self._has_checkpoint:
            return True
        if self._start_task is None:
            self._start_task = asyncio.create_task(self._aclaim_saved_start())
        return await asyncio.shield(self._start_task)

    async def _aclaim_saved_start(self) -> bool:
        return self._is_local_or_journaled(await self._start_marker_task(self._asave_marker))

    def _is_local_or_journaled(self, recorded_id: str) -> bool:
        return recorded_id == self._marker_id or (self._is_journaled and recorded_id.startswith(_JOURNALED_PREFIX))

    def _start_marker_task(self, function: Callable[[], Any]) -> Any:
        return start_task(self._config, self._number, function, _START_TASK_NAME)

    # LangGraph saves results in the background, and this process may die in the first call.

    def _save_marker(self) -> str:
        if (checkpoint_write := get_checkpoint_write_future(self._config)) is not None:
            wait([checkpoint_write])
        save_task_result(ensure_config(), self._marker_id)
        return self._marker_id

    async def _asave_marker(self) -> str:
        if (checkpoint_write := get_checkpoint_write_future(self._config)) is not None:
            await asyncio.wait([checkpoint_write])
        await save_task_result_async(ensure_config(), self._marker_id)
        return self._marker_id
