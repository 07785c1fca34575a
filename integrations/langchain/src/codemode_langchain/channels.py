"""The state of a running graph as nested calls read and write it: at once for later calls, for the graph at the end.

With `configuration_keys` the only module that knows LangGraph's private configuration keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from langchain_core.runnables import RunnableConfig

from .state_updates import Pairs

_SEND = "__pregel_send"
_READ = "__pregel_read"
_TASKS = "__pregel_tasks"
_RESUME = "__resume__"


@dataclass(frozen=True)
class Writes:
    """Where a nested call's writes go. ``keep`` takes one as a command; ``pairs`` is what calls have written so far."""

    keep: Callable[[Any], None]
    pairs: Callable[[], Pairs]


def state_now(config: RunnableConfig, state: Any) -> Any:
    """Return the state that a node was given with what nested calls have written since."""
    configurable = config.get("configurable", {})
    task = _task(configurable)
    if not isinstance(task, _TaskNow) or not isinstance(state, dict):
        return state
    written = {channel for channel, _ in task.own} & task.channels.keys()
    now: dict[str, Any] = configurable[_READ](sorted(written), True) if written else {}
    return {**cast("dict[str, Any]", state), **now}


def write_earlier(config: RunnableConfig, channel: str, values: list[Any]) -> None:
    """Write all values but the last to a channel that takes several in one step; of others only the last counts."""
    configurable = config.get("configurable", {})
    if _takes_several(_channels(configurable).get(channel), values):
        configurable[_SEND]([(channel, value) for value in values[:-1]])


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
            for value in (given if _takes_several(self.channels.get(channel), given) else given[-1:])
        ]

    @property
    def writes(self) -> Pairs:
        return [*self.task.writes, *self.own]


def own_state(configurable: Mapping[str, Any], writes: Writes) -> dict[str, Any]:
    """Return how a nested call reads and writes the state: at once for the calls after it, later for the graph.

    A segment that comes from the checkpoint writes nothing again, so what its calls wrote is kept with its record.
    """
    channels, task = _channels(configurable), _task(configurable)
    own: dict[str, Any] = {_SEND: _kept_writes(configurable[_SEND], channels, writes.keep)}
    if task is not None:
        read = configurable[_READ]
        own[_READ] = partial(read.func, *read.args[:3], _TaskNow(task, channels, writes.pairs))
    return own


def _kept_writes(
    send: Callable[..., Any], channels: Mapping[str, Any], keep: Callable[[Any], None]
) -> Callable[[Iterable[tuple[str, Any]]], None]:
    from langgraph.types import Command

    def take(writes: Iterable[tuple[str, Any]]) -> None:
        others: Pairs = []
        for channel, value in writes:
            if channel == _TASKS:
                keep(Command(goto=[value]))
            elif channel in channels and not channel.startswith(("__", "branch:")):
                keep(Command(update={channel: value}))
            elif channel != _RESUME:  # the node counts its own answers by order too
                others.append((channel, value))
        if others:
            send(others)

    return take


def _channels(configurable: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the channels of the graph, none when LangGraph looks different."""
    read = configurable.get(_READ)
    args: Any = getattr(read, "args", ())
    return args[1] if len(args) > 3 and isinstance(args[1], Mapping) else {}


def _task(configurable: Mapping[str, Any]) -> Any:
    return configurable[_READ].args[3] if _channels(configurable) else None


def _takes_several(channel: Any, values: Sequence[Any]) -> bool:
    from langgraph.errors import InvalidUpdateError

    if channel is None or len(values) < 2:
        return channel is not None
    try:
        channel.copy().update(list(values))
    except InvalidUpdateError:
        return False
    return True
