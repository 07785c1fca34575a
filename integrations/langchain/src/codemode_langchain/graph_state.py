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

from .langgraph_internals import (
    INTERNAL_CHANNEL_PREFIXES,
    OVERWRITE,
    READ,
    RESUME,
    SEND,
    TASKS,
    NodeContext,
    get_node_context,
)

# The graph takes updates when a node has ended: until then a program reads its own writes, and what a pause interrupts
# is written again from its ledger.

SHOWN_TOOLS_CHANNEL = "code_mode_shown"
_STATE_CHANNEL = "code_mode_state"


def merge_values(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with what was written; None has deleted one. The reducer of the channel: the last write wins."""
    return {key: value for key, value in {**left, **right}.items() if value is not None}


def take_newest(_left: Any, right: Any) -> Any:
    """Return the newest value, of calls that end at the same time too."""
    return right


def use_graph_state(_conversation_id: str | None) -> None:
    """Stand for the graph's own state among the options: it is there with each call, and nowhere else."""


def make_state_backend(state: Any, tool_call_id: str) -> LatePlace:
    """Return where a program reads and writes that a call of the model runs, whose graph has this state."""
    values: dict[str, Any] = {**cast("Mapping[str, Any]", state)} if isinstance(state, Mapping) else {}
    stored_values = cast("Mapping[str, Any]", values.get(_STATE_CHANNEL) or {})
    texts = {key: value for key, value in stored_values.items() if isinstance(value, str)}
    # Calls of one step all begin with the same state: what each adds must have a number of its own.
    return LatePlace(texts, number_offset=_find_call_index(values.get("messages"), tool_call_id))


def _find_call_index(messages: Any, tool_call_id: str) -> int:
    for message in reversed(cast("Sequence[Any]", messages) if isinstance(messages, list) else ()):
        call_ids = [call.get("id") for call in getattr(message, "tool_calls", None) or ()]
        if tool_call_id in call_ids:
            return call_ids.index(tool_call_id)
    return 0


def make_state_commands(call: Any) -> tuple[Any, ...]:
    """Return what the graph is to keep of the writes of a call's program, where it has a ``place``: one command."""
    backend = getattr(call, "backend", None)
    if not isinstance(backend, LatePlace) or not backend.updates:
        return ()
    from langgraph.types import Command  # without a graph there is no such place

    return (Command(update={_STATE_CHANNEL: dict(backend.updates)}),)


# The model made one call, so one message answers it: the message of a nested call in a command stands for that one.
# Knows LangGraph's commands by their fields alone.

ChannelWrites: TypeAlias = list[tuple[str, Any]]
"""Channels and what is written to them, in order."""

MessageChange: TypeAlias = Callable[[list[Any]], list[Any]]
_ROOT_CHANNEL = "__root__"
_MESSAGES_CHANNEL = "messages"
_REMOVE_ALL_ID = "__remove_all__"


def readdress_answer(command: Any, tool_call_id: str, outer_tool_call_id: str) -> tuple[Any, ToolMessage | None]:
    """Return a nested call's command with the outer call's id on its message, and that message as it was."""
    answer_messages: list[ToolMessage] = []

    def readdress_message(item: Any) -> Any:
        if not _is_answer_to(item, tool_call_id):
            return item
        message = cast("ToolMessage", convert_to_messages([item])[0])
        answer_messages.append(message)
        return message.model_copy(update={"tool_call_id": outer_tool_call_id})

    command = _map_messages(command, lambda messages: [readdress_message(item) for item in messages])
    return command, answer_messages[-1] if answer_messages else None


def readdress_commands(command: Any, tool_call_id: str, new_tool_call_id: str) -> Any:
    """Return a command whose messages that answer one outer call answer another one."""

    def readdress_message(item: Any) -> Any:
        if not _is_answer_to(item, tool_call_id):
            return item
        return cast("ToolMessage", convert_to_messages([item])[0]).model_copy(update={"tool_call_id": new_tool_call_id})

    return _map_messages(command, lambda messages: [readdress_message(item) for item in messages])


def list_writes(commands: Iterable[Any], outer_tool_call_id: str) -> ChannelWrites:
    """Return what commands write into the current graph's state while the outer call has no answer yet."""

    def remove_answers(messages: list[Any]) -> list[Any]:
        return [item for item in messages if not _is_answer_to(item, outer_tool_call_id)]

    return _update_pairs(_map_messages(item, remove_answers) for item in commands if item.graph is None)


def make_outer_result(message: ToolMessage, commands: Sequence[Any], write: Callable[[str, list[Any]], Any]) -> Any:
    """Return what answers the outer call: its message, or one command with it and all that the nested calls left.

    A command has one value for each channel; ``write`` gets several, oldest first, and returns the one for it.
    """
    parent_commands = [item for item in commands if item.graph is not None]
    if not commands:
        return message
    # LangGraph drops what a node writes into its own graph when it hands over to another.
    used_commands = parent_commands or commands
    joined_update = _join_writes(
        _update_pairs(used_commands), write if not parent_commands else lambda _channel, values: values[-1]
    )
    command = replace(used_commands[0], update=joined_update, goto=_join_goto(used_commands))
    answered_command = _map_messages(command, lambda messages: _insert_answer(messages, message))
    if parent_commands:
        return answered_command
    key = next((key for key, value in joined_update.items() if _has_answer(value, message.tool_call_id)), None)
    key = key or (_ROOT_CHANNEL if _ROOT_CHANNEL in joined_update else _MESSAGES_CHANNEL)
    update = dict(answered_command.update)
    if not any(item is message for item in update.get(key, ())):
        update[key] = _prepend_answer(update.get(key, []), message)
    return replace(answered_command, update=update[_ROOT_CHANNEL] if set(update) == {_ROOT_CHANNEL} else update)


# --- commands ---


def _map_messages(command: Any, change: MessageChange) -> Any:
    """Return a command with its lists of messages changed, in its update and in what it sends to nodes."""
    update: Any = command.update
    if update is not None:
        update = {key: _map_value_messages(value, change) for key, value in _update_pairs([command])}
    goto = [_map_send_messages(target, change) for target in _goto_targets(command)]
    return replace(command, update=update, goto=_with_same_type(command.goto, goto))


def _map_send_messages(send: Any, change: MessageChange) -> Any:
    arg: Any = getattr(send, "arg", None)
    if arg is None:
        return send
    changed = copy.copy(send)
    if isinstance(arg, dict):
        fields = cast("dict[str, Any]", arg)
        changed.arg = {key: _map_value_messages(value, change) for key, value in fields.items()}
    else:
        changed.arg = _map_value_messages(arg, change)
    return changed


def _map_value_messages(value: Any, change: MessageChange) -> Any:
    if isinstance(value, BaseMessage):
        return change([value])
    return change(list(cast("Any", value))) if isinstance(value, list | tuple) else value


def _update_pairs(commands: Iterable[Any]) -> ChannelWrites:
    # LangGraph's own reading of the shapes that an update may have; a list of messages is the whole state.
    return [pair for command in commands for pair in command._update_as_tuples()]  # noqa: SLF001


def _join_writes(pairs: ChannelWrites, write: Callable[[str, list[Any]], Any]) -> dict[str, Any]:
    values: dict[str, list[Any]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    joined: dict[str, Any] = {}
    for key, channel_values in values.items():
        if all(map(_holds_messages, channel_values)):
            joined[key] = list(chain.from_iterable(channel_values))
            continue
        joined[key] = write(key, channel_values) if len(channel_values) > 1 else channel_values[0]
    return joined


def _join_goto(commands: Sequence[Any]) -> Any:
    goto: list[Any] = []
    for command in commands:
        goto += [target for target in _goto_targets(command) if not isinstance(target, str) or target not in goto]
    return _with_same_type(commands[0].goto if len(commands) == 1 else (), goto)


def _goto_targets(command: Any) -> list[Any]:
    """Return where a command goes: names of nodes, and what is sent to nodes."""
    goto = command.goto
    return [goto] if isinstance(goto, str) or hasattr(goto, "arg") else list(goto)


def _with_same_type(given: Any, places: list[Any]) -> Any:
    # The tool node joins handovers that are lists, and then without their updates.
    return places if isinstance(given, list) else tuple(places)


# --- messages ---


def _holds_messages(value: Any) -> bool:
    return isinstance(value, list) and any(
        isinstance(item, BaseMessage) or (isinstance(item, Mapping) and "role" in item) for item in cast("Any", value)
    )


def _is_answer_to(item: Any, tool_call_id: str) -> bool:
    if isinstance(item, ToolMessage):
        return item.tool_call_id == tool_call_id
    if not isinstance(item, Mapping):
        return False
    fields = cast("Mapping[str, Any]", item)
    return fields.get("tool_call_id") == tool_call_id and "tool" in (fields.get("role"), fields.get("type"))


def _makes_call(item: Any, tool_call_id: str) -> bool:
    is_mapping = isinstance(item, Mapping)
    calls = cast("Any", item).get("tool_calls") if is_mapping else getattr(item, "tool_calls", None)
    return any(call.get("id") == tool_call_id for call in calls or ())


def _has_answer(value: Any, tool_call_id: str) -> bool:
    return isinstance(value, list) and any(_is_answer_to(item, tool_call_id) for item in cast("Any", value))


def _insert_answer(messages: list[Any], message: ToolMessage) -> list[Any]:
    """Put the outer call's message where nested ones stood, once, or after the call when that has no answer."""
    index = next((index for index, item in enumerate(messages) if _is_answer_to(item, message.tool_call_id)), None)
    if index is None:
        call_indexes = [index for index, item in enumerate(messages) if _makes_call(item, message.tool_call_id)]
        if not call_indexes:
            return messages
        index = call_indexes[-1] + 1
        return [*messages[:index], message, *messages[index:]]
    other_messages = [item for item in messages[index + 1 :] if not _is_answer_to(item, message.tool_call_id)]
    return [*messages[:index], message, *other_messages]


def _prepend_answer(messages: list[Any], message: ToolMessage) -> list[Any]:
    # Providers want the answer right after the call; what removes all messages removes those before it.
    if any(getattr(item, "id", None) == _REMOVE_ALL_ID for item in messages):
        return [*messages, message]
    return [message, *messages]


# Knows no program and no tool.


@dataclass(frozen=True)
class NestedWrites:
    """Where a nested call's writes go. ``keep`` takes one as a command; ``pairs`` is what calls have written so far."""

    add_command: Callable[[Any], None]
    get_pairs: Callable[[], ChannelWrites]


def get_current_state(config: RunnableConfig, state: Any) -> Any:
    """Return the state that a node was given with what nested calls have written since."""
    node = get_node_context(config)
    task = None if node is None else node.task
    if node is None or not isinstance(task, _TaskWithWrites) or not isinstance(state, dict):
        return state
    written_channels = {channel for channel, _ in task.nested_writes} & task.channels.keys()
    current_values: dict[str, Any] = node.read(sorted(written_channels), True) if written_channels else {}
    return {**cast("dict[str, Any]", state), **current_values}


def get_graph_state(config: RunnableConfig, state: Any) -> Any:
    """Return what the graph itself holds before a node, where ``state`` is what other middleware has made of it.

    Since langgraph-prebuilt 1.1.3 a call that is given another state has the graph's own nowhere about it. Outside of
    an agent it is ``state``.
    """
    node = get_node_context(config)
    if node is None or SHOWN_TOOLS_CHANNEL not in node.channels:
        return state
    return node.read([name for name in node.channels if not name.startswith(INTERNAL_CHANNEL_PREFIXES)])


def write_earlier(config: RunnableConfig, channel: str, values: list[Any]) -> Any:
    """Write what several values come to but for the last one, and return that: a command has one for each channel."""
    node = get_node_context(config)
    *earlier, last = _combine_writes(None if node is None else node.channels.get(channel), values)
    if node is not None and earlier:
        node.send([(channel, value) for value in earlier])
    return last


@dataclass(frozen=True)
class _TaskWithWrites:
    """A node's task as it will be: with what nested calls have written, which LangGraph learns when the node ends."""

    task: Any
    channels: Mapping[str, Any]
    get_pairs: Callable[[], ChannelWrites]

    @property
    def nested_writes(self) -> ChannelWrites:
        values: dict[str, list[Any]] = {}
        for channel, value in self.get_pairs():
            values.setdefault(channel, []).append(value)
        return [
            (channel, value)
            for channel, channel_values in values.items()
            for value in _combine_writes(self.channels.get(channel), channel_values)
        ]

    @property
    def writes(self) -> ChannelWrites:
        return [*self.task.writes, *self.nested_writes]


def make_state_access(node: NodeContext, writes: NestedWrites) -> dict[str, Any]:
    """Return how a nested call reads and writes the state: at once for the calls after it, later for the graph.

    A segment that comes from the checkpoint writes nothing again, so what its calls wrote is kept with its record.
    """
    task = _TaskWithWrites(node.task, node.channels, writes.get_pairs)
    read_state = partial(node.read.func, *node.read.args[:3], task)
    return {SEND: _make_send(node.send, node.channels, writes.add_command), READ: read_state}


def _make_send(
    send: Callable[..., Any], channels: Mapping[str, Any], keep: Callable[[Any], None]
) -> Callable[[Iterable[tuple[str, Any]]], None]:
    from langgraph.types import Command

    def handle_writes(writes: Iterable[tuple[str, Any]]) -> None:
        other_writes: ChannelWrites = []
        for channel, value in writes:
            if channel == TASKS:
                keep(Command(goto=[value]))
            elif channel in channels and not channel.startswith(INTERNAL_CHANNEL_PREFIXES):
                keep(Command(update={channel: value}))
            elif channel != RESUME:  # the node counts its own answers by order too
                other_writes.append((channel, value))
        if other_writes:
            send(other_writes)

    return handle_writes


def _combine_writes(channel: Any, values: list[Any]) -> list[Any]:
    """Return what one step writes to a channel for what came in one after the other; of most only the last counts."""
    from langgraph.types import Overwrite

    if len(values) > 1 and channel is not None and any(map(_is_overwrite, values)):
        # LangGraph lets nothing come after the one that replaces, and only one of them in a step.
        folded_channel = channel.copy()
        for value in values:
            folded_channel.update([value])
        return [Overwrite(folded_channel.get())]
    return values if _accepts_several(channel, values) else values[-1:]


def _is_overwrite(value: Any) -> bool:
    from langgraph.types import Overwrite

    is_overwrite_dict = isinstance(value, dict) and (OVERWRITE in value or cast("Any", value).get("type") == OVERWRITE)
    return isinstance(value, Overwrite) or is_overwrite_dict


def _accepts_several(channel: Any, values: Sequence[Any]) -> bool:
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
