"""The state of a running graph as nested calls read and write it: at once for later calls, for the graph at the end.

Knows no program and no tool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from langchain_core.runnables import RunnableConfig

from .graph_state import SHOWN
from .pregel import INTERNAL, OVERWRITE, READ, RESUME, SEND, TASKS, Inside, inside
from .state_updates import Pairs


@dataclass(frozen=True)
class Writes:
    """Where a nested call's writes go. ``keep`` takes one as a command; ``pairs`` is what calls have written so far."""

    keep: Callable[[Any], None]
    pairs: Callable[[], Pairs]


def state_now(config: RunnableConfig, state: Any) -> Any:
    """Return the state that a node was given with what nested calls have written since."""
    node = inside(config)
    task = None if node is None else node.task
    if node is None or not isinstance(task, _TaskNow) or not isinstance(state, dict):
        return state
    written = {channel for channel, _ in task.own} & task.channels.keys()
    now: dict[str, Any] = node.read(sorted(written), True) if written else {}
    return {**cast("dict[str, Any]", state), **now}


def graph_state(config: RunnableConfig, state: Any) -> Any:
    """Return what the graph itself holds before a node, where ``state`` is what other middleware has made of it.

    Since langgraph-prebuilt 1.1.3 a call that is given another state has the graph's own nowhere about it. Outside of
    an agent it is ``state``.
    """
    node = inside(config)
    if node is None or SHOWN not in node.channels:
        return state
    return node.read([name for name in node.channels if not name.startswith(INTERNAL)])


def write_earlier(config: RunnableConfig, channel: str, values: list[Any]) -> Any:
    """Write what several values come to but for the last one, and return that: a command has one for each channel."""
    node = inside(config)
    *earlier, last = _in_one_step(None if node is None else node.channels.get(channel), values)
    if node is not None and earlier:
        node.send([(channel, value) for value in earlier])
    return last


@dataclass(frozen=True)
class _TaskNow:
    """A node's task as it will be: with what nested calls have written, which LangGraph learns when the node ends."""

    task: Any
    channels: Mapping[str, Any]
    pairs: Callable[[], Pairs]

    @property
    def own(self) -> Pairs:
        values: dict[str, list[Any]] = {}
        for channel, value in self.pairs():
            values.setdefault(channel, []).append(value)
        return [
            (channel, value)
            for channel, given in values.items()
            for value in _in_one_step(self.channels.get(channel), given)
        ]

    @property
    def writes(self) -> Pairs:
        return [*self.task.writes, *self.own]


def own_state(node: Inside, writes: Writes) -> dict[str, Any]:
    """Return how a nested call reads and writes the state: at once for the calls after it, later for the graph.

    A segment that comes from the checkpoint writes nothing again, so what its calls wrote is kept with its record.
    """
    task = _TaskNow(node.task, node.channels, writes.pairs)
    reads = partial(node.read.func, *node.read.args[:3], task)
    return {SEND: _kept_writes(node.send, node.channels, writes.keep), READ: reads}


def _kept_writes(
    send: Callable[..., Any], channels: Mapping[str, Any], keep: Callable[[Any], None]
) -> Callable[[Iterable[tuple[str, Any]]], None]:
    from langgraph.types import Command

    def take(writes: Iterable[tuple[str, Any]]) -> None:
        others: Pairs = []
        for channel, value in writes:
            if channel == TASKS:
                keep(Command(goto=[value]))
            elif channel in channels and not channel.startswith(INTERNAL):
                keep(Command(update={channel: value}))
            elif channel != RESUME:  # the node counts its own answers by order too
                others.append((channel, value))
        if others:
            send(others)

    return take


def _in_one_step(channel: Any, values: list[Any]) -> list[Any]:
    """Return what one step writes to a channel for what came in one after the other; of most only the last counts."""
    from langgraph.types import Overwrite

    if len(values) > 1 and channel is not None and any(map(_replaces, values)):
        # LangGraph lets nothing come after the one that replaces, and only one of them in a step.
        folded = channel.copy()
        for value in values:
            folded.update([value])
        return [Overwrite(folded.get())]
    return values if _takes_several(channel, values) else values[-1:]


def _replaces(value: Any) -> bool:
    from langgraph.types import Overwrite

    is_marked = isinstance(value, dict) and (OVERWRITE in value or cast("Any", value).get("type") == OVERWRITE)
    return isinstance(value, Overwrite) or is_marked


def _takes_several(channel: Any, values: Sequence[Any]) -> bool:
    from langgraph.channels.binop import BinaryOperatorAggregate  # pyright: ignore[reportMissingTypeStubs]
    from langgraph.errors import InvalidUpdateError

    if channel is None or len(values) < 2:
        return channel is not None
    if isinstance(channel, BinaryOperatorAggregate):
        return True  # and its reducer, which may change the state in its place, is not tried out
    try:
        channel.copy().update(list(values))
    except InvalidUpdateError:
        return False
    return True
