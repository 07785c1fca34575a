"""Read and update a running graph's state from nested calls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, cast

from langchain_core.messages import BaseMessage, ToolMessage, convert_to_messages
from langchain_core.runnables import RunnableConfig

from codemode.plugins import BufferedStateBackend

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

# The graph applies updates at the end of a node. Until then a program reads its own writes, which a replay after a
# pause writes again.

SHOWN_TOOLS_CHANNEL = "code_mode_shown"
_STATE_CHANNEL = "code_mode_state"


def merge_values_and_drop_none(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Reducer of state channels: the last write wins, None deletes a key."""
    return {key: value for key, value in {**left, **right}.items() if value is not None}


def keep_latest_value(_left: Any, right: Any) -> Any:
    """Reducer that keeps the latest value."""
    return right


def return_no_backend_for_graph_state(_conversation_id: str | None) -> None:
    """Value of the option ``state`` for state kept in the graph. Returns None: each call passes its own backend."""


def make_state_backend(state: Any, tool_call_id: str) -> BufferedStateBackend:
    """Return the state backend of an outer call's program, from the graph's state."""
    values: dict[str, Any] = {**cast("Mapping[str, Any]", state)} if isinstance(state, Mapping) else {}
    stored_values = cast("Mapping[str, Any]", values.get(_STATE_CHANNEL) or {})
    texts = {key: value for key, value in stored_values.items() if isinstance(value, str)}
    # Calls of one step start with the same state: their additions need different numbers.
    return BufferedStateBackend(texts, number_offset=_find_call_index(values.get("messages"), tool_call_id))


def _find_call_index(messages: Any, tool_call_id: str) -> int:
    for message in reversed(cast("Sequence[Any]", messages) if isinstance(messages, list) else ()):
        call_ids = [call.get("id") for call in getattr(message, "tool_calls", None) or ()]
        if tool_call_id in call_ids:
            return call_ids.index(tool_call_id)
    return 0


def make_state_commands(call: Any) -> tuple[Any, ...]:
    """Return a command with the state that a call's program wrote; none without a state backend."""
    backend = getattr(call, "backend", None)
    if not isinstance(backend, BufferedStateBackend) or not backend.updates:
        return ()
    from langgraph.types import Command  # LangGraph is installed if there is a backend

    return (Command(update={_STATE_CHANNEL: dict(backend.updates)}),)


# The model made one call, so one message answers it: messages of nested calls in commands are readdressed to it.

ChannelWrites: TypeAlias = list[tuple[str, Any]]
"""Channels and the values written to them, in order."""

MessageChange: TypeAlias = Callable[[list[Any]], list[Any]]
_ROOT_CHANNEL = "__root__"
_MESSAGES_CHANNEL = "messages"
_REMOVE_ALL_ID = "__remove_all__"


def readdress_and_extract_answer(
    command: Any, tool_call_id: str, outer_tool_call_id: str
) -> tuple[Any, ToolMessage | None]:
    """Readdress a nested call's message to the outer call; return the command and the original message."""
    answer_messages: list[ToolMessage] = []

    def readdress_message(item: Any) -> Any:
        if not _is_answer_to(item, tool_call_id):
            return item
        message = cast("ToolMessage", convert_to_messages([item])[0])
        answer_messages.append(message)
        return message.model_copy(update={"tool_call_id": outer_tool_call_id})

    command = _map_messages(command, lambda messages: [readdress_message(item) for item in messages])
    return command, answer_messages[-1] if answer_messages else None


def readdress_messages(command: Any, tool_call_id: str, new_tool_call_id: str) -> Any:
    """Return a command whose messages to one outer call are readdressed to another."""

    def readdress_message(item: Any) -> Any:
        if not _is_answer_to(item, tool_call_id):
            return item
        return cast("ToolMessage", convert_to_messages([item])[0]).model_copy(update={"tool_call_id": new_tool_call_id})

    return _map_messages(command, lambda messages: [readdress_message(item) for item in messages])


def list_graph_writes_without_answers(commands: Iterable[Any], outer_tool_call_id: str) -> ChannelWrites:
    """Return the writes of commands to the current graph, without answers to the outer call."""

    def remove_answers(messages: list[Any]) -> list[Any]:
        return [item for item in messages if not _is_answer_to(item, outer_tool_call_id)]

    return _list_update_pairs(_map_messages(item, remove_answers) for item in commands if item.graph is None)


def make_outer_result(message: ToolMessage, commands: Sequence[Any], write: Callable[[str, list[Any]], Any]) -> Any:
    """Return the outer call's result: its message, or one command that joins it with the nested calls' commands.

    ``write``: combines several values of one channel, oldest first, into one.
    """
    parent_commands = [item for item in commands if item.graph is not None]
    if not commands:
        return message
    # LangGraph drops updates of a node's own graph when the node hands over to a parent graph.
    used_commands = parent_commands or commands
    joined_update = _join_writes(
        _list_update_pairs(used_commands), write if not parent_commands else lambda _channel, values: values[-1]
    )
    command = replace(used_commands[0], update=joined_update, goto=_join_goto_targets(used_commands))
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
    """Apply a change to the message lists of a command's update and sends."""
    update: Any = command.update
    if update is not None:
        update = {key: _map_value_messages(value, change) for key, value in _list_update_pairs([command])}
    goto = [_map_send_messages(target, change) for target in _list_goto_targets(command)]
    return replace(command, update=update, goto=_to_same_sequence_type(command.goto, goto))


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


def _list_update_pairs(commands: Iterable[Any]) -> ChannelWrites:
    # LangGraph's own conversion of update shapes; a list of messages is the whole state.
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


def _join_goto_targets(commands: Sequence[Any]) -> Any:
    goto: list[Any] = []
    for command in commands:
        goto += [target for target in _list_goto_targets(command) if not isinstance(target, str) or target not in goto]
    return _to_same_sequence_type(commands[0].goto if len(commands) == 1 else (), goto)


def _list_goto_targets(command: Any) -> list[Any]:
    """Return a command's targets: node names and sends."""
    goto = command.goto
    return [goto] if isinstance(goto, str) or hasattr(goto, "arg") else list(goto)


def _to_same_sequence_type(original: Any, targets: list[Any]) -> Any:
    # The tool node joins handovers in lists, and drops their updates.
    return targets if isinstance(original, list) else tuple(targets)


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
    """Replace nested answers by the outer call's message, or insert it after the unanswered call."""
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
    # Providers require the answer right after the call; RemoveMessage(all) removes messages before it.
    if any(getattr(item, "id", None) == _REMOVE_ALL_ID for item in messages):
        return [*messages, message]
    return [message, *messages]


@dataclass(frozen=True)
class NestedWriteRecorder:
    """Writes of a nested call. ``add_command``: records one; ``get_pairs``: returns the writes so far."""

    add_command: Callable[[Any], None]
    get_pairs: Callable[[], ChannelWrites]


def get_state_with_nested_writes(config: RunnableConfig, state: Any) -> Any:
    """Return a node's state with the writes of nested calls since."""
    node = get_node_context(config)
    task = None if node is None else node.task
    if node is None or not isinstance(task, _TaskWithNestedWrites) or not isinstance(state, dict):
        return state
    written_channels = {channel for channel, _ in task.nested_writes} & task.channels.keys()
    current_values: dict[str, Any] = node.read(sorted(written_channels), True) if written_channels else {}
    return {**cast("dict[str, Any]", state), **current_values}


def get_graph_state(config: RunnableConfig, state: Any) -> Any:
    """Return the graph's own state before a node; ``state``, which middleware may have changed, outside an agent.

    Since langgraph-prebuilt 1.1.3 a call with a changed state has no other access to it.
    """
    node = get_node_context(config)
    if node is None or SHOWN_TOOLS_CHANNEL not in node.channels:
        return state
    return node.read([name for name in node.channels if not name.startswith(INTERNAL_CHANNEL_PREFIXES)])


def write_earlier_and_return_last_value(config: RunnableConfig, channel: str, values: list[Any]) -> Any:
    """Write all but the last of a channel's values, and return the last: a command has one value per channel."""
    node = get_node_context(config)
    *earlier, last = _combine_writes(None if node is None else node.channels.get(channel), values)
    if node is not None and earlier:
        node.send([(channel, value) for value in earlier])
    return last


@dataclass(frozen=True)
class _TaskWithNestedWrites:
    """A node's task with the writes of nested calls, which LangGraph gets at the node's end."""

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


def make_state_access_config(node: NodeContext, writes: NestedWriteRecorder) -> dict[str, Any]:
    """Return the configuration for a nested call's state access: writes are visible to later calls immediately.

    Writes are stored with the segment's record, because a segment from the checkpoint does not run again.
    """
    task = _TaskWithNestedWrites(node.task, node.channels, writes.get_pairs)
    read_state = partial(node.read.func, *node.read.args[:3], task)
    return {SEND: _make_recording_send(node.send, node.channels, writes.add_command), READ: read_state}


def _make_recording_send(
    send: Callable[..., Any], channels: Mapping[str, Any], keep: Callable[[Any], None]
) -> Callable[[Iterable[tuple[str, Any]]], None]:
    from langgraph.types import Command

    def record_writes(writes: Iterable[tuple[str, Any]]) -> None:
        other_writes: ChannelWrites = []
        for channel, value in writes:
            if channel == TASKS:
                keep(Command(goto=[value]))
            elif channel in channels and not channel.startswith(INTERNAL_CHANNEL_PREFIXES):
                keep(Command(update={channel: value}))
            elif channel != RESUME:  # answers belong to the node
                other_writes.append((channel, value))
        if other_writes:
            send(other_writes)

    return record_writes


def _combine_writes(channel: Any, values: list[Any]) -> list[Any]:
    """Combine successive values of a channel to what one step may write; for most channels the last value."""
    from langgraph.types import Overwrite

    if len(values) > 1 and channel is not None and any(map(_is_overwrite, values)):
        # LangGraph allows one Overwrite per step, and nothing after it.
        folded_channel = channel.copy()
        for value in values:
            folded_channel.update([value])
        return [Overwrite(folded_channel.get())]
    return values if _accepts_several_values(channel, values) else values[-1:]


def _is_overwrite(value: Any) -> bool:
    from langgraph.types import Overwrite

    is_overwrite_dict = isinstance(value, dict) and (OVERWRITE in value or cast("Any", value).get("type") == OVERWRITE)
    return isinstance(value, Overwrite) or is_overwrite_dict


def _accepts_several_values(channel: Any, values: Sequence[Any]) -> bool:
    from langgraph.channels.binop import BinaryOperatorAggregate  # pyright: ignore[reportMissingTypeStubs]
    from langgraph.errors import InvalidUpdateError

    if channel is None or len(values) < 2:
        return channel is not None
    if isinstance(channel, BinaryOperatorAggregate):
        return True  # its reducer may change the state in place: do not try it
    try:
        channel.copy().update(list(values))
    except InvalidUpdateError:
        return False
    return True
