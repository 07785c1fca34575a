"""The state of a running graph as nested calls read it, write it and return updates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, cast

from langchain_core.messages import BaseMessage, ToolMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig

from codemode.plugins import LatePlace

from .pregel import INTERNAL, OVERWRITE, READ, RESUME, SEND, TASKS, Inside, inside

# The graph takes updates when a node has ended: until then a program reads its own writes, and what a pause interrupts
# is written again from its ledger.

SHOWN = "code_mode_shown"
_KEY = "code_mode_state"


def merged(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with what was written; None has deleted one. The reducer of the channel: the last write wins."""
    return {key: value for key, value in {**left, **right}.items() if value is not None}


def newest(_left: Any, right: Any) -> Any:
    """Return the newest value, of calls that end at the same time too."""
    return right


def in_graph(_conversation_id: str | None) -> None:
    """Stand for the graph's own state among the options: it is there with each call, and nowhere else."""


def place_in(state: Any, tool_call_id: str) -> LatePlace:
    """Return where a program reads and writes that a call of the model runs, whose graph has this state."""
    given: dict[str, Any] = {**cast("Mapping[str, Any]", state)} if isinstance(state, Mapping) else {}
    kept = cast("Mapping[str, Any]", given.get(_KEY) or {})
    texts = {key: value for key, value in kept.items() if isinstance(value, str)}
    # Calls of one step all begin with the same state: what each adds must have a number of its own.
    return LatePlace(texts, ahead=_place_among(given.get("messages"), tool_call_id))


def _place_among(messages: Any, tool_call_id: str) -> int:
    for message in reversed(cast("Sequence[Any]", messages) if isinstance(messages, list) else ()):
        ids = [call.get("id") for call in getattr(message, "tool_calls", None) or ()]
        if tool_call_id in ids:
            return ids.index(tool_call_id)
    return 0


def left_by(call: Any) -> tuple[Any, ...]:
    """Return what the graph is to keep of the writes of a call's program, where it has a ``place``: one command."""
    place = getattr(call, "place", None)
    if not isinstance(place, LatePlace) or not place.updates:
        return ()
    from langgraph.types import Command  # without a graph there is no such place

    return (Command(update={_KEY: dict(place.updates)}),)


# The model made one call, so one message answers it: the message of a nested call in a command stands for that one.
# Knows LangGraph's commands by their fields alone.

Pairs: TypeAlias = list[tuple[str, Any]]
"""Channels and what is written to them, in order."""

Change: TypeAlias = Callable[[list[Any]], list[Any]]
_ROOT = "__root__"
_MESSAGES = "messages"
_REMOVE_ALL = "__remove_all__"


def kept(command: Any, tool_call_id: str, outer_tool_call_id: str) -> tuple[Any, ToolMessage | None]:
    """Return a nested call's command with the outer call's id on its message, and that message as it was."""
    found: list[ToolMessage] = []

    def renamed(one: Any) -> Any:
        if not _answers(one, tool_call_id):
            return one
        message = cast("ToolMessage", convert_to_messages([one])[0])
        found.append(message)
        return message.model_copy(update={"tool_call_id": outer_tool_call_id})

    command = _changed(command, lambda messages: [renamed(one) for one in messages])
    return command, found[-1] if found else None


def readdressed(command: Any, tool_call_id: str, other: str) -> Any:
    """Return a command whose messages that answer one outer call answer another one."""

    def renamed(one: Any) -> Any:
        if not _answers(one, tool_call_id):
            return one
        return cast("ToolMessage", convert_to_messages([one])[0]).model_copy(update={"tool_call_id": other})

    return _changed(command, lambda messages: [renamed(one) for one in messages])


def pairs_of(commands: Iterable[Any], outer_tool_call_id: str) -> Pairs:
    """Return what commands write into the current graph's state while the outer call has no answer yet."""

    def unanswered(messages: list[Any]) -> list[Any]:
        return [one for one in messages if not _answers(one, outer_tool_call_id)]

    return _pairs(_changed(one, unanswered) for one in commands if one.graph is None)


def one_result(message: ToolMessage, commands: Sequence[Any], write: Callable[[str, list[Any]], Any]) -> Any:
    """Return what answers the outer call: its message, or one command with it and all that the nested calls left.

    A command has one value for each channel; ``write`` gets several, oldest first, and returns the one for it.
    """
    away = [one for one in commands if one.graph is not None]
    if not commands:
        return message
    # LangGraph drops what a node writes into its own graph when it hands over to another.
    chosen = away or commands
    joined = _joined(_pairs(chosen), write if not away else lambda _channel, values: values[-1])
    command = replace(chosen[0], update=joined, goto=_joined_goto(chosen))
    answering = _changed(command, lambda messages: _answered(messages, message))
    if away:
        return answering
    key = next((key for key, value in joined.items() if _has_answer(value, message.tool_call_id)), None)
    key = key or (_ROOT if _ROOT in joined else _MESSAGES)
    update = dict(answering.update)
    if not any(one is message for one in update.get(key, ())):
        update[key] = _with_answer(update.get(key, []), message)
    return replace(answering, update=update[_ROOT] if set(update) == {_ROOT} else update)


# --- commands ---


def _changed(command: Any, change: Change) -> Any:
    """Return a command with its lists of messages changed, in its update and in what it sends to nodes."""
    update: Any = command.update
    if update is not None:
        update = {key: _changed_value(value, change) for key, value in _pairs([command])}
    goto = [_changed_send(one, change) for one in _places(command)]
    return replace(command, update=update, goto=_like(command.goto, goto))


def _changed_send(send: Any, change: Change) -> Any:
    arg: Any = getattr(send, "arg", None)
    if arg is None:
        return send
    changed = copy.copy(send)
    if isinstance(arg, dict):
        given = cast("dict[str, Any]", arg)
        changed.arg = {key: _changed_value(value, change) for key, value in given.items()}
    else:
        changed.arg = _changed_value(arg, change)
    return changed


def _changed_value(value: Any, change: Change) -> Any:
    if isinstance(value, BaseMessage):
        return change([value])
    return change(list(cast("Any", value))) if isinstance(value, list | tuple) else value


def _pairs(commands: Iterable[Any]) -> Pairs:
    # LangGraph's own reading of the shapes that an update may have; a list of messages is the whole state.
    return [pair for one in commands for pair in one._update_as_tuples()]  # noqa: SLF001


def _joined(pairs: Pairs, write: Callable[[str, list[Any]], Any]) -> dict[str, Any]:
    values: dict[str, list[Any]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    joined: dict[str, Any] = {}
    for key, given in values.items():
        if all(map(_holds_messages, given)):
            joined[key] = list(chain.from_iterable(given))
            continue
        joined[key] = write(key, given) if len(given) > 1 else given[0]
    return joined


def _joined_goto(commands: Sequence[Any]) -> Any:
    goto: list[Any] = []
    for command in commands:
        goto += [one for one in _places(command) if not isinstance(one, str) or one not in goto]
    return _like(commands[0].goto if len(commands) == 1 else (), goto)


def _places(command: Any) -> list[Any]:
    """Return where a command goes: names of nodes, and what is sent to nodes."""
    goto = command.goto
    return [goto] if isinstance(goto, str) or hasattr(goto, "arg") else list(goto)


def _like(given: Any, places: list[Any]) -> Any:
    # The tool node joins handovers that are lists, and then without their updates.
    return places if isinstance(given, list) else tuple(places)


# --- messages ---


def _holds_messages(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(one, BaseMessage) or (isinstance(one, Mapping) and "role" in one) for one in cast("Any", value)
    )


def _answers(one: Any, tool_call_id: str) -> bool:
    if isinstance(one, ToolMessage):
        return one.tool_call_id == tool_call_id
    if not isinstance(one, Mapping):
        return False
    given = cast("Mapping[str, Any]", one)
    return given.get("tool_call_id") == tool_call_id and "tool" in (given.get("role"), given.get("type"))


def _asks(one: Any, tool_call_id: str) -> bool:
    is_mapping = isinstance(one, Mapping)
    calls = cast("Any", one).get("tool_calls") if is_mapping else getattr(one, "tool_calls", None)
    return any(call.get("id") == tool_call_id for call in calls or ())


def _has_answer(value: Any, tool_call_id: str) -> bool:
    return isinstance(value, list) and any(_answers(one, tool_call_id) for one in cast("Any", value))


def _answered(messages: list[Any], message: ToolMessage) -> list[Any]:
    """Put the outer call's message where nested ones stood, once, or after the call when that has no answer."""
    place = next((place for place, one in enumerate(messages) if _answers(one, message.tool_call_id)), None)
    if place is None:
        asked = [place for place, one in enumerate(messages) if _asks(one, message.tool_call_id)]
        if not asked:
            return messages
        place = asked[-1] + 1
        return [*messages[:place], message, *messages[place:]]
    others = [one for one in messages[place + 1 :] if not _answers(one, message.tool_call_id)]
    return [*messages[:place], message, *others]


def _with_answer(messages: list[Any], message: ToolMessage) -> list[Any]:
    # Providers want the answer right after the call; what removes all messages removes those before it.
    if any(getattr(one, "id", None) == _REMOVE_ALL for one in messages):
        return [*messages, message]
    return [message, *messages]


# Knows no program and no tool.


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
