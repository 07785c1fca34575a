"""The checkpoint that a node runs from, and what calls write next to it."""

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

from codemode.plugins import forkable_lock

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
from .node_tasks import find_node_binding, start_task

_log = logging.getLogger("codemode.approvals")

# Checkpoints are named by UUIDs of version 6, which count ticks of 100 ns from 1582.
_TIME_UUID_VERSION = 6
_UUID_EPOCH = 0x01B21DD213814000


def warn_if_unanswerable(config: RunnableConfig) -> None:
    """Log a warning, once in a process, where a person is asked in a graph that LangGraph cannot go on with."""
    # A graph inside of another has that one's here, also where it was made with none of its own.
    if config.get("configurable", {}).get(CHECKPOINTER) is None:
        _warn_about_missing_checkpointer()


@cache
def _warn_about_missing_checkpointer() -> None:
    _log.warning(
        "a person is asked in a graph without a checkpointer: the answer cannot be given, for LangGraph keeps nothing"
        " to go on with. Add one, create_agent(..., checkpointer=InMemorySaver()) or one of a database, and call the"
        ' agent with {"configurable": {"thread_id": ...}}'
    )


def get_step_time_ms(config: RunnableConfig) -> int | None:
    """Return when the step of the graph was recorded that the node belongs to, the same when it runs again."""
    _, checkpoint = _find_checkpoint(config)
    try:
        checkpoint_uuid = UUID(checkpoint)
    except (ValueError, TypeError, AttributeError):
        return None
    if checkpoint_uuid.version != _TIME_UUID_VERSION:
        return None
    ticks = int(checkpoint_uuid.hex[:12] + checkpoint_uuid.hex[13:16], 16) - _UUID_EPOCH
    return ticks // 10_000


def get_checkpoint_write(config: RunnableConfig) -> Any:
    """Return the future of the write of the node's own checkpoint, which LangGraph does in the background; or None."""
    node = get_node_context(config)
    return None if node is None else getattr(node.loop, "_put_checkpoint_fut", None)


def save_result(config: RunnableConfig, result: Any) -> None:
    """Write the result of the task that runs with this configuration at once: LangGraph writes it in the background."""
    saver, task_id, checkpoint_config = _result_location(config)
    if saver is not None:
        saver.put_writes(checkpoint_config, [(RETURN, result)], task_id)


async def save_result_async(config: RunnableConfig, result: Any) -> None:
    """Do what `save_now` does without blocking."""
    saver, task_id, checkpoint_config = _result_location(config)
    if saver is not None:
        await saver.aput_writes(checkpoint_config, [(RETURN, result)], task_id)


def save_extra_write(config: RunnableConfig, name: str, value: Any) -> None:
    """Write a value beside the checkpoint at once, under a name that is no task's: LangGraph passes over it."""
    saver, checkpoint_config = _checkpoint_location(config)
    if saver is not None:
        saver.put_writes(checkpoint_config, [(RETURN, value)], name)


async def save_extra_write_async(config: RunnableConfig, name: str, value: Any) -> None:
    """Do what `save_beside` does without blocking."""
    saver, checkpoint_config = _checkpoint_location(config)
    if saver is not None:
        await saver.aput_writes(checkpoint_config, [(RETURN, value)], name)


def clear_interrupt(config: RunnableConfig) -> None:
    """Let a node wait for no answer: LangGraph keeps what it asked last, until it asks something else or ends."""
    saver, task_id, checkpoint_config = _result_location(config)
    if saver is not None:
        saver.put_writes(checkpoint_config, [(INTERRUPT, ())], task_id)


async def clear_interrupt_async(config: RunnableConfig) -> None:
    """Do what `forget_interrupt` does without blocking."""
    saver, task_id, checkpoint_config = _result_location(config)
    if saver is not None:
        await saver.aput_writes(checkpoint_config, [(INTERRUPT, ())], task_id)


def clear_plain_answer(loop: Any) -> None:
    """Let no later run find the plain answer that a run of a graph was given."""
    loop.checkpointer.put_writes(_loop_checkpoint_config(loop), [(RESUME, None)], RUN_TASK_ID)


async def clear_plain_answer_async(loop: Any) -> None:
    """Do what `forget_plain_answer` does without blocking."""
    await loop.checkpointer.aput_writes(_loop_checkpoint_config(loop), [(RESUME, None)], RUN_TASK_ID)


def read_writes(config: RunnableConfig) -> list[Any]:
    """Return all values that were written beside the checkpoint as results."""
    saver, checkpoint_config = _checkpoint_location(config)
    return _result_values(None if saver is None else saver.get_tuple(checkpoint_config))


async def read_writes_async(config: RunnableConfig) -> list[Any]:
    """Do what `read_writes` does without blocking."""
    saver, checkpoint_config = _checkpoint_location(config)
    return _result_values(None if saver is None else await saver.aget_tuple(checkpoint_config))


def _result_values(checkpoint_tuple: Any) -> list[Any]:
    # There is nothing while the checkpoint itself is being written.
    return (
        []
        if checkpoint_tuple is None
        else [value for _, channel, value in checkpoint_tuple.pending_writes or () if channel == RETURN]
    )


def _result_location(config: RunnableConfig) -> tuple[Any, str, dict[str, Any]]:
    saver, checkpoint_config = _checkpoint_location(config)
    return saver, config.get("configurable", {}).get(TASK_ID, ""), checkpoint_config


def _loop_checkpoint_config(loop: Any) -> dict[str, Any]:
    configurable = loop.checkpoint_config["configurable"]
    checkpoint_fields = {
        NAMESPACE: loop.config["configurable"].get(NAMESPACE, ""),
        "checkpoint_id": loop.checkpoint["id"],
    }
    return {"configurable": {**configurable, **checkpoint_fields}}


def _checkpoint_location(config: RunnableConfig) -> tuple[Any, dict[str, Any]]:
    """Return the checkpointer, and what names the checkpoint for it."""
    configurable = config.get("configurable", {})
    namespace, checkpoint_id = _find_checkpoint(config)
    checkpoint_fields = {
        "thread_id": str(configurable.get("thread_id")),
        NAMESPACE: namespace,
        "checkpoint_id": checkpoint_id,
    }
    return configurable.get(CHECKPOINTER), {"configurable": checkpoint_fields}


def _find_checkpoint(config: RunnableConfig) -> tuple[str, Any]:
    """Return the namespace of the graph that a node or task belongs to, and the id of its checkpoint."""
    configurable = config.get("configurable", {})
    checkpoints: Mapping[str, Any] = configurable.get(CHECKPOINTS) or {}
    namespace = str(configurable.get(NAMESPACE, ""))
    while namespace:
        namespace, _, _ = namespace.rpartition("|")
        if namespace in checkpoints:
            break
    checkpoint_id = checkpoints.get(namespace)
    # A task is named within the node that started it, which is listed with the checkpoint of its graph.
    namespaces = [name for name, other_id in checkpoints.items() if other_id == checkpoint_id]
    return min(namespaces, key=len, default=""), checkpoint_id


# With a journal a part goes on in another process, where its finished calls do not run again. What they wrote into the
# graph's state, and what those that wait have asked, is then found here.

_OUTER_CALL_KEY = "codemode"


@dataclass(kw_only=True)
class CallOutput:
    """What one nested call left: commands for the graph's state, an artifact, and what it asks while it waits.

    ``counted`` is its tool, where something limits calls and it was made.
    """

    commands: list[Any] = field(default_factory=list[Any])
    artifact: Mapping[str, Any] | None = None
    asked: Mapping[str, Any] | None = None
    counted: str | None = None

    def __bool__(self) -> bool:
        return bool(self.commands or self.artifact is not None or self.asked is not None or self.counted)


class SavedCallOutputs:
    """All that is kept for one outer call, by the numbers of its parts. Nothing is found before `recall`."""

    def __init__(self, config: RunnableConfig, outer_tool_call_id: str) -> None:
        self._config = config
        self._outer_id = outer_tool_call_id
        self._outputs: dict[int, dict[str, CallOutput]] = {}
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._order = itertools.count()

    def load(self) -> None:
        """Find what other processes, and earlier runs of this one, have kept."""
        self._read(read_writes(self._config))

    async def aload(self) -> None:
        """Do what `recall` does without blocking."""
        self._read(await read_writes_async(self._config))

    def get_outputs(self, step: int) -> dict[str, CallOutput]:
        """Return what calls of a part had left when it was recalled, by their ids, the oldest first."""
        return dict(self._outputs.get(step, {}))

    def get_answers(self, step: int) -> Mapping[str, Any] | None:
        """Return the answers that a part had been given, by the keys of their questions; None when it had not begun."""
        return self._answers.get(step)

    def save(self, step: int, call_id: str, output: CallOutput) -> None:
        """Keep what a call left."""
        save_extra_write(self._config, _new_write_name(), self._make_output_entry(step, call_id, output))

    async def asave(self, step: int, call_id: str, output: CallOutput) -> None:
        """Do what `keep` does without blocking."""
        await save_extra_write_async(self._config, _new_write_name(), self._make_output_entry(step, call_id, output))

    def save_answers(self, step: int, answers: Mapping[str, Any]) -> None:
        """Keep what a part is given, before it begins: it goes on with the same, whatever has been answered since."""
        if answers and step not in self._answers:
            save_extra_write(self._config, _new_write_name(), self._make_answers_entry(step, answers))

    async def asave_answers(self, step: int, answers: Mapping[str, Any]) -> None:
        """Do what `begin` does without blocking."""
        if answers and step not in self._answers:
            await save_extra_write_async(self._config, _new_write_name(), self._make_answers_entry(step, answers))

    def _make_output_entry(self, step: int, call_id: str, output: CallOutput) -> dict[str, Any]:
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

    def _read(self, values: Iterable[Any]) -> None:
        own_entries: list[dict[str, Any]] = [entry for entry in values if _belongs_to_call(entry, self._outer_id)]
        # A call that was made again has left something twice: the newest counts.
        for entry in sorted(own_entries, key=lambda entry: entry["order"]):
            if "answers" in entry:
                self._answers.setdefault(entry["step"], entry["answers"])
                continue
            outputs = self._outputs.setdefault(entry["step"], {})
            outputs.pop(entry["call"], None)
            outputs[entry["call"]] = CallOutput(**entry["left"])
        self._order = itertools.count(1 + max((entry["order"] for entry in own_entries), default=-1))


def _belongs_to_call(value: Any, outer_tool_call_id: str) -> bool:
    return isinstance(value, dict) and cast("dict[str, Any]", value).get(_OUTER_CALL_KEY) == outer_tool_call_id


def _new_write_name() -> str:
    # LangGraph keeps what was written under a name for the first time.
    return f"codemode-{secrets.token_hex(16)}"


# A part whose process died in the middle has no result there. Which of its calls had happened nobody knows, unless they
# are in a journal.

_START_TASK_NAME = "begun"
_JOURNALED_PREFIX = "journal:"


class StartMarker:
    """The beginning of one part of a program, noted before its first call and no later than that is made.

    ``is_journaled``: the journal knows what became of its calls, if whoever began it had one too.
    """

    def __init__(self, config: RunnableConfig, number: int, *, is_journaled: bool = False) -> None:
        self._config = config
        self._number = number
        self._is_journaled = is_journaled
        self._marker_id = f"{_JOURNALED_PREFIX if is_journaled else ''}{secrets.token_hex(8)}"
        self._lock = forkable_lock()
        self._has_checkpoint = find_node_binding(config) is not None
        self._is_first_start: bool | None = None
        self._start_task: asyncio.Task[bool] | None = None

    @property
    def was_checked(self) -> bool:
        """True once it was looked for here."""
        return self._is_first_start is not None or self._start_task is not None

    def is_first(self) -> bool:
        """Note it. False when somebody has begun this part before, and nobody knows how far that one came."""
        if not self._has_checkpoint:
            return True
        with self._lock:
            if self._is_first_start is None:
                self._is_first_start = self._is_own_or_journaled(self._run_task(self._record).result())
            return self._is_first_start

    async def ais_first(self) -> bool:
        """Do what `is_first` does without blocking."""
        if not self._has_checkpoint:
            return True
        if self._start_task is None:
            self._start_task = asyncio.create_task(self._acheck())
        return await asyncio.shield(self._start_task)

    async def _acheck(self) -> bool:
        return self._is_own_or_journaled(await self._run_task(self._arecord))

    def _is_own_or_journaled(self, recorded_id: str) -> bool:
        return recorded_id == self._marker_id or (self._is_journaled and recorded_id.startswith(_JOURNALED_PREFIX))

    def _run_task(self, function: Callable[[], Any]) -> Any:
        return start_task(self._config, self._number, function, _START_TASK_NAME)

    # LangGraph writes in the background, and the first call may be the last thing that this process does.

    def _record(self) -> str:
        if (checkpoint_write := get_checkpoint_write(self._config)) is not None:
            wait([checkpoint_write])
        save_result(ensure_config(), self._marker_id)
        return self._marker_id

    async def _arecord(self) -> str:
        if (checkpoint_write := get_checkpoint_write(self._config)) is not None:
            await asyncio.wait([checkpoint_write])
        await save_result_async(ensure_config(), self._marker_id)
        return self._marker_id
