"""The checkpoint that a node runs from: when it was made, what is written beside it at once. Starts no task."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any
from uuid import UUID

from langchain_core.runnables import RunnableConfig

from .pregel import CHECKPOINTER, CHECKPOINTS, INTERRUPT, NAMESPACE, RESUME, RETURN, RUN, TASK_ID, inside

_log = logging.getLogger("codemode.approvals")

# Checkpoints are named by UUIDs of version 6, which count ticks of 100 ns from 1582.
_UUID_WITH_TIME = 6
_UUID_EPOCH = 0x01B21DD213814000


def warn_if_unanswerable(config: RunnableConfig) -> None:
    """Log a warning, once in a process, where a person is asked in a graph that LangGraph cannot go on with."""
    # A graph inside of another has that one's here, also where it was made with none of its own.
    if config.get("configurable", {}).get(CHECKPOINTER) is None:
        _warn_of_no_checkpointer()


@cache
def _warn_of_no_checkpointer() -> None:
    _log.warning(
        "a person is asked in a graph without a checkpointer: the answer cannot be given, for LangGraph keeps nothing"
        " to go on with. Add one, create_agent(..., checkpointer=InMemorySaver()) or one of a database, and call the"
        ' agent with {"configurable": {"thread_id": ...}}'
    )


def time_of_step_ms(config: RunnableConfig) -> int | None:
    """Return when the step of the graph was recorded that the node belongs to, the same when it runs again."""
    _, checkpoint = _checkpoint_of(config)
    try:
        own = UUID(checkpoint)
    except (ValueError, TypeError, AttributeError):
        return None
    if own.version != _UUID_WITH_TIME:
        return None
    ticks = int(own.hex[:12] + own.hex[13:16], 16) - _UUID_EPOCH
    return ticks // 10_000


def checkpoint_being_saved(config: RunnableConfig) -> Any:
    """Return the future of the write of the node's own checkpoint, which LangGraph does in the background; or None."""
    node = inside(config)
    return None if node is None else getattr(node.loop, "_put_checkpoint_fut", None)


def save_now(config: RunnableConfig, result: Any) -> None:
    """Write the result of the task that runs with this configuration at once: LangGraph writes it in the background."""
    saver, task_id, place = _place_of_result(config)
    if saver is not None:
        saver.put_writes(place, [(RETURN, result)], task_id)


async def save_now_async(config: RunnableConfig, result: Any) -> None:
    """Do what `save_now` does without blocking."""
    saver, task_id, place = _place_of_result(config)
    if saver is not None:
        await saver.aput_writes(place, [(RETURN, result)], task_id)


def save_beside(config: RunnableConfig, name: str, value: Any) -> None:
    """Write a value beside the checkpoint at once, under a name that is no task's: LangGraph passes over it."""
    saver, place = _place(config)
    if saver is not None:
        saver.put_writes(place, [(RETURN, value)], name)


async def save_beside_async(config: RunnableConfig, name: str, value: Any) -> None:
    """Do what `save_beside` does without blocking."""
    saver, place = _place(config)
    if saver is not None:
        await saver.aput_writes(place, [(RETURN, value)], name)


def forget_interrupt(config: RunnableConfig) -> None:
    """Let a node wait for no answer: LangGraph keeps what it asked last, until it asks something else or ends."""
    saver, task_id, place = _place_of_result(config)
    if saver is not None:
        saver.put_writes(place, [(INTERRUPT, ())], task_id)


async def forget_interrupt_async(config: RunnableConfig) -> None:
    """Do what `forget_interrupt` does without blocking."""
    saver, task_id, place = _place_of_result(config)
    if saver is not None:
        await saver.aput_writes(place, [(INTERRUPT, ())], task_id)


def forget_plain_answer(loop: Any) -> None:
    """Let no later run find the plain answer that a run of a graph was given."""
    loop.checkpointer.put_writes(_place_of_loop(loop), [(RESUME, None)], RUN)


async def forget_plain_answer_async(loop: Any) -> None:
    """Do what `forget_plain_answer` does without blocking."""
    await loop.checkpointer.aput_writes(_place_of_loop(loop), [(RESUME, None)], RUN)


def read_writes(config: RunnableConfig) -> list[Any]:
    """Return all values that were written beside the checkpoint as results."""
    saver, place = _place(config)
    return _results(None if saver is None else saver.get_tuple(place))


async def read_writes_async(config: RunnableConfig) -> list[Any]:
    """Do what `read_writes` does without blocking."""
    saver, place = _place(config)
    return _results(None if saver is None else await saver.aget_tuple(place))


def _results(found: Any) -> list[Any]:
    # There is nothing while the checkpoint itself is being written.
    return [] if found is None else [value for _, channel, value in found.pending_writes or () if channel == RETURN]


def _place_of_result(config: RunnableConfig) -> tuple[Any, str, dict[str, Any]]:
    saver, place = _place(config)
    return saver, config.get("configurable", {}).get(TASK_ID, ""), place


def _place_of_loop(loop: Any) -> dict[str, Any]:
    configurable = loop.checkpoint_config["configurable"]
    named = {NAMESPACE: loop.config["configurable"].get(NAMESPACE, ""), "checkpoint_id": loop.checkpoint["id"]}
    return {"configurable": {**configurable, **named}}


def _place(config: RunnableConfig) -> tuple[Any, dict[str, Any]]:
    """Return the checkpointer, and what names the checkpoint for it."""
    configurable = config.get("configurable", {})
    namespace, checkpoint = _checkpoint_of(config)
    place = {"thread_id": str(configurable.get("thread_id")), NAMESPACE: namespace, "checkpoint_id": checkpoint}
    return configurable.get(CHECKPOINTER), {"configurable": place}


def _checkpoint_of(config: RunnableConfig) -> tuple[str, Any]:
    """Return the namespace of the graph that a node or task belongs to, and the id of its checkpoint."""
    configurable = config.get("configurable", {})
    checkpoints: Mapping[str, Any] = configurable.get(CHECKPOINTS) or {}
    place = str(configurable.get(NAMESPACE, ""))
    while place:
        place, _, _ = place.rpartition("|")
        if place in checkpoints:
            break
    checkpoint = checkpoints.get(place)
    # A task is named within the node that started it, which is listed with the checkpoint of its graph.
    same = [one for one, other in checkpoints.items() if other == checkpoint]
    return min(same, key=len, default=""), checkpoint
