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

from .graph import binding_in_node, start_task
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


# With a journal a part goes on in another process, where its finished calls do not run again. What they wrote into the
# graph's state, and what those that wait have asked, is then found here.

_KEY = "codemode"


@dataclass(kw_only=True)
class Left:
    """What one nested call left: commands for the graph's state, an artifact, and what it asks while it waits.

    ``counted`` is its tool, where something limits calls and it was made.
    """

    commands: list[Any] = field(default_factory=list[Any])
    artifact: Mapping[str, Any] | None = None
    asked: Mapping[str, Any] | None = None
    counted: str | None = None

    def __bool__(self) -> bool:
        return bool(self.commands or self.artifact is not None or self.asked is not None or self.counted)


class Leavings:
    """All that is kept for one outer call, by the numbers of its parts. Nothing is found before `recall`."""

    def __init__(self, config: RunnableConfig, outer_tool_call_id: str) -> None:
        self._config = config
        self._outer_id = outer_tool_call_id
        self._left: dict[int, dict[str, Left]] = {}
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._order = itertools.count()

    def recall(self) -> None:
        """Find what other processes, and earlier runs of this one, have kept."""
        self._read(read_writes(self._config))

    async def arecall(self) -> None:
        """Do what `recall` does without blocking."""
        self._read(await read_writes_async(self._config))

    def of(self, step: int) -> dict[str, Left]:
        """Return what calls of a part had left when it was recalled, by their ids, the oldest first."""
        return dict(self._left.get(step, {}))

    def answers(self, step: int) -> Mapping[str, Any] | None:
        """Return the answers that a part had been given, by the keys of their questions; None when it had not begun."""
        return self._answers.get(step)

    def keep(self, step: int, call_id: str, left: Left) -> None:
        """Keep what a call left."""
        save_beside(self._config, _name(), self._of_call(step, call_id, left))

    async def akeep(self, step: int, call_id: str, left: Left) -> None:
        """Do what `keep` does without blocking."""
        await save_beside_async(self._config, _name(), self._of_call(step, call_id, left))

    def begin(self, step: int, answers: Mapping[str, Any]) -> None:
        """Keep what a part is given, before it begins: it goes on with the same, whatever has been answered since."""
        if answers and step not in self._answers:
            save_beside(self._config, _name(), self._of_part(step, answers))

    async def abegin(self, step: int, answers: Mapping[str, Any]) -> None:
        """Do what `begin` does without blocking."""
        if answers and step not in self._answers:
            await save_beside_async(self._config, _name(), self._of_part(step, answers))

    def _of_call(self, step: int, call_id: str, left: Left) -> dict[str, Any]:
        plain = {"commands": left.commands, "artifact": left.artifact, "asked": left.asked, "counted": left.counted}
        return {_KEY: self._outer_id, "step": step, "order": next(self._order), "call": call_id, "left": plain}

    def _of_part(self, step: int, answers: Mapping[str, Any]) -> dict[str, Any]:
        return {_KEY: self._outer_id, "step": step, "order": next(self._order), "answers": dict(answers)}

    def _read(self, values: Iterable[Any]) -> None:
        mine: list[dict[str, Any]] = [one for one in values if _is_of(one, self._outer_id)]
        # A call that was made again has left something twice: the newest counts.
        for one in sorted(mine, key=lambda one: one["order"]):
            if "answers" in one:
                self._answers.setdefault(one["step"], one["answers"])
                continue
            left = self._left.setdefault(one["step"], {})
            left.pop(one["call"], None)
            left[one["call"]] = Left(**one["left"])
        self._order = itertools.count(1 + max((one["order"] for one in mine), default=-1))


def _is_of(value: Any, outer_tool_call_id: str) -> bool:
    return isinstance(value, dict) and cast("dict[str, Any]", value).get(_KEY) == outer_tool_call_id


def _name() -> str:
    # LangGraph keeps what was written under a name for the first time.
    return f"codemode-{secrets.token_hex(16)}"


# A part whose process died in the middle has no result there. Which of its calls had happened nobody knows, unless they
# are in a journal.

_NAME = "begun"
_JOURNALED = "journal:"


class Beginning:
    """The beginning of one part of a program, noted before its first call and no later than that is made.

    ``is_journaled``: the journal knows what became of its calls, if whoever began it had one too.
    """

    def __init__(self, config: RunnableConfig, number: int, *, is_journaled: bool = False) -> None:
        self._config = config
        self._number = number
        self._is_journaled = is_journaled
        self._own = f"{_JOURNALED if is_journaled else ''}{secrets.token_hex(8)}"
        self._lock = forkable_lock()
        self._is_kept = binding_in_node(config) is not None
        self._noted: bool | None = None
        self._work: asyncio.Task[bool] | None = None

    @property
    def is_noted(self) -> bool:
        """True once it was looked for here."""
        return self._noted is not None or self._work is not None

    def is_first(self) -> bool:
        """Note it. False when somebody has begun this part before, and nobody knows how far that one came."""
        if not self._is_kept:
            return True
        with self._lock:
            if self._noted is None:
                self._noted = self._is_known(self._start(self._note).result())
            return self._noted

    async def ais_first(self) -> bool:
        """Do what `is_first` does without blocking."""
        if not self._is_kept:
            return True
        if self._work is None:
            self._work = asyncio.create_task(self._anoted())
        return await asyncio.shield(self._work)

    async def _anoted(self) -> bool:
        return self._is_known(await self._start(self._anote))

    def _is_known(self, noted: str) -> bool:
        return noted == self._own or (self._is_journaled and noted.startswith(_JOURNALED))

    def _start(self, function: Callable[[], Any]) -> Any:
        return start_task(self._config, self._number, function, _NAME)

    # LangGraph writes in the background, and the first call may be the last thing that this process does.

    def _note(self) -> str:
        if (writing := checkpoint_being_saved(self._config)) is not None:
            wait([writing])
        save_now(ensure_config(), self._own)
        return self._own

    async def _anote(self) -> str:
        if (writing := checkpoint_being_saved(self._config)) is not None:
            await asyncio.wait([writing])
        await save_now_async(ensure_config(), self._own)
        return self._own
