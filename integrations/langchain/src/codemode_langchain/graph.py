"""What a running LangGraph node offers beyond its public functions: numbered tasks, a scratchpad per nested call.

The only module that knows LangGraph's private configuration keys. Knows no program and no tool.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context

from .state_updates import Pairs

_CALL = "__pregel_call"
_SCRATCHPAD = "__pregel_scratchpad"
_SEND = "__pregel_send"
_READ = "__pregel_read"
_TASKS = "__pregel_tasks"
_RESUME = "__resume__"
_HIDDEN = "langsmith:hidden"
_NUMBER_BYTES = 6


def is_in_node(config: RunnableConfig) -> bool:
    """True inside a LangGraph node, where results can be kept in the checkpoint."""
    return _CALL in config.get("configurable", {})


def number_of(*parts: str) -> int:
    """Return the number under which the checkpoint keeps a result: the same parts give the same number."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return int.from_bytes(digest[:_NUMBER_BYTES], "big") << 16


def name_in_node(config: RunnableConfig, js: str) -> str:
    """Name a call that has no id: the same again when the node runs again, another for each call in it."""
    place = config.get("configurable", {})[_SCRATCHPAD].call_counter()
    return f"code-mode-{place}-{hashlib.sha256(js.encode('utf-8', 'replace')).hexdigest()[:16]}"


def start_task(config: RunnableConfig, number: int, function: Callable[[], Any], name: str) -> Any:
    """Start a LangGraph task and return its future; a recorded result is served without calling ``function``.

    LangGraph matches a task with its record by the order of the calls in a node. Two calls of codeMode in one node
    have no order, so the task gets a number of its own in place of the next one.
    """
    from langgraph.func import task  # pyright: ignore[reportMissingTypeStubs]

    own = {"configurable": _renumbered(config, lambda: number, hide=True), "callbacks": _own(config.get("callbacks"))}
    numbered = cast("RunnableConfig", {**config, **own})
    with set_config_context(numbered) as context:
        return context.run(cast("Any", task)(name=name)(function))


def _own(callbacks: Any) -> Any:
    """Return callbacks that are this task's alone: LangGraph writes a task's tags into those it is given."""
    return callbacks.copy() if callable(getattr(callbacks, "copy", None)) else callbacks


def ask_person(request_id: str, value: Any, response_schema: Any) -> dict[str, Any]:
    """Wait for the answer to one question, as the function of a task of its own; ``of`` tells which it answers."""
    from langgraph.types import interrupt

    return {"of": request_id, "answer": interrupt(value, response_schema=response_schema)}


def raise_interrupts(interrupts: Sequence[Any]) -> NoReturn:
    """End the node with these interrupts."""
    from langgraph.errors import GraphInterrupt

    raise GraphInterrupt(tuple(interrupts))


def _renumbered(config: RunnableConfig, counter: Callable[[], int], *, hide: bool) -> dict[str, Any]:
    """Return the configurable part with tasks numbered by ``counter``; unchanged when LangGraph looks different."""
    configurable: dict[str, Any] = config.get("configurable", {})
    call: Any = configurable[_CALL]
    try:
        node: Any = call.args[0]()
        scratchpad = replace(node.config["configurable"][_SCRATCHPAD], call_counter=counter)
        tags = [*(node.config.get("tags") or ()), *([_HIDDEN] if hide else ())]
        node_configurable = {**node.config["configurable"], _SCRATCHPAD: scratchpad}
        own = replace(node, config={**node.config, "tags": tags, "configurable": node_configurable})
        renumbered = partial(call.func, weakref.ref(own), *call.args[1:], **call.keywords)
    except (AttributeError, IndexError, KeyError, TypeError):
        # Calls are then matched by order alone, and whoever reads a record finds out when it is not the right one.
        return configurable
    renumbered.__dict__["node"] = own  # the reference above is weak
    return {**configurable, _CALL: renumbered}


def interrupts_in(error: BaseException) -> tuple[Any, ...] | None:
    """Return what an ``interrupt()`` raised, None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphInterrupt):
        return None
    return tuple(error.args[0]) if error.args else ()


def command_in(error: BaseException) -> Any:
    """Return the command with which a graph inside a tool hands over to this one, None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.ParentCommand):
        return None
    return replace(error.args[0], graph=None)


def is_wrong_answer(error: BaseException) -> bool:
    """True for the error of an answer that does not fit the response schema of its ``interrupt()``."""
    errors = sys.modules.get("langgraph.errors")
    return errors is not None and bool(errors.is_invalid_resume(error))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a person answered to one ``interrupt()`` of a call. ``is_own``: the tool's, not a graph's inside it."""

    value: Any
    is_own: bool


@dataclass(frozen=True)
class Writes:
    """Where a nested call's writes go. ``keep`` takes one as a command; ``pairs`` is what calls have written so far."""

    keep: Callable[[Any], None]
    pairs: Callable[[], Pairs]


@dataclass
class NestedScratchpad:
    """Makes ``interrupt()`` inside one nested call count from zero and find the answers to this call, no others."""

    key: str
    writes: Writes
    answers: Sequence[Answer] = ()
    _asked: int = field(default=0, init=False)

    @property
    def asked_itself(self) -> bool:
        """True when the tool has asked more than was answered: the interrupt it raised is its own."""
        return self._asked > len(self._own_answers)

    def applied_to(self, config: RunnableConfig) -> RunnableConfig:
        """Return the configuration for the nested call; unchanged outside a node."""
        if not is_in_node(config):
            return config
        first = number_of("nested", self.key)
        configurable = _renumbered(config, itertools.count(first).__next__, hide=False)
        foreign = [answer.value for answer in self.answers if not answer.is_own]
        scratchpad = replace(
            configurable[_SCRATCHPAD],
            call_counter=itertools.count(first).__next__,
            subgraph_counter=itertools.count(first).__next__,
            interrupt_counter=self._next_interrupt,
            resume=self._own_answers,
            # A graph inside the tool remembers its earlier answers and asks its parent for the newest.
            get_null_resume=_once(foreign[-1:] if self.answers and not self.answers[-1].is_own else []),
        )
        own = {_SCRATCHPAD: scratchpad, **_own_state(configurable, self.writes)}
        return cast("RunnableConfig", {**config, "configurable": {**configurable, **own}})

    @property
    def _own_answers(self) -> list[Any]:
        return [answer.value for answer in self.answers if answer.is_own]

    def _next_interrupt(self) -> int:
        self._asked += 1
        return self._asked - 1


def _once(values: list[Any]) -> Callable[..., Any]:
    def take(consume: bool = False) -> Any:
        if not values:
            return None
        return values.pop() if consume else values[-1]

    return take


# --- the state, as nested calls read and write it ---


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


def _own_state(configurable: Mapping[str, Any], writes: Writes) -> dict[str, Any]:
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
