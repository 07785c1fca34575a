"""What a running LangGraph node offers beyond its public functions: numbered tasks, a scratchpad per nested call.

With `channels` the only module that knows LangGraph's private configuration keys. Knows no program and no tool.
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import json
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, NoReturn, cast
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context

from .channels import Writes, own_state

_CALL = "__pregel_call"
_SCRATCHPAD = "__pregel_scratchpad"
_RESUME_MAP = "__pregel_resume_map"
_NAMESPACE = "checkpoint_ns"
_CHECKPOINTER = "__pregel_checkpointer"
_TASK_ID = "__pregel_task_id"
_RETURN = "__return__"
_CHECKPOINTS = "checkpoint_map"
# Checkpoints are named by UUIDs of version 6, which count ticks of 100 ns from 1582.
_UUID_WITH_TIME = 6
_UUID_EPOCH = 0x01B21DD213814000
_HIDDEN = "langsmith:hidden"
_TAKEN = "codemode_interrupts"
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


def binding_in_node(config: RunnableConfig) -> str | None:
    """Name the thread and the node that runs in it, the same when it runs again; None where nothing is kept."""
    configurable = config.get("configurable", {})
    thread = configurable.get("thread_id")
    if thread is None or not is_in_node(config):
        return None
    return json.dumps([str(thread), configurable.get(_NAMESPACE, "")])


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
    call = config.get("configurable", {}).get(_CALL)
    loop = getattr(getattr(call, "keywords", {}).get("schedule_task"), "__self__", None)
    return getattr(loop, "_put_checkpoint_fut", None)


def save_now(config: RunnableConfig, result: Any) -> None:
    """Write the result of the task that runs with this configuration at once: LangGraph writes it in the background."""
    saver, task_id, place = _place_of_result(config)
    if saver is not None:
        saver.put_writes(place, [(_RETURN, result)], task_id)


async def save_now_async(config: RunnableConfig, result: Any) -> None:
    """Do what `save_now` does without blocking."""
    saver, task_id, place = _place_of_result(config)
    if saver is not None:
        await saver.aput_writes(place, [(_RETURN, result)], task_id)


def _place_of_result(config: RunnableConfig) -> tuple[Any, str, dict[str, Any]]:
    configurable = config.get("configurable", {})
    namespace, checkpoint = _checkpoint_of(config)
    place = {"thread_id": str(configurable.get("thread_id")), _NAMESPACE: namespace, "checkpoint_id": checkpoint}
    return configurable.get(_CHECKPOINTER), configurable.get(_TASK_ID, ""), {"configurable": place}


def _checkpoint_of(config: RunnableConfig) -> tuple[str, Any]:
    """Return the namespace of the graph that a node or task belongs to, and the id of its checkpoint."""
    configurable = config.get("configurable", {})
    checkpoints: Mapping[str, Any] = configurable.get(_CHECKPOINTS) or {}
    place = str(configurable.get(_NAMESPACE, ""))
    while place:
        place, _, _ = place.rpartition("|")
        if place in checkpoints:
            break
    checkpoint = checkpoints.get(place)
    # A task is named within the node that started it, which is listed with the checkpoint of its graph.
    same = [one for one, other in checkpoints.items() if other == checkpoint]
    return min(same, key=len, default=""), checkpoint


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


def _renumbered(
    config: RunnableConfig,
    counter: Callable[[], int],
    *,
    hide: bool,
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> dict[str, Any]:
    """Return the configurable part with tasks numbered by ``counter``; unchanged when LangGraph looks different."""
    configurable: dict[str, Any] = config.get("configurable", {})
    call: Any = configurable[_CALL]
    try:
        node: Any = call.args[0]()
        scratchpad = replace(node.config["configurable"][_SCRATCHPAD], call_counter=counter)
        tags = [*(node.config.get("tags") or ()), *([_HIDDEN] if hide else ())]
        node_configurable = {**node.config["configurable"], _SCRATCHPAD: scratchpad}
        own = replace(node, config={**node.config, "tags": tags, "configurable": node_configurable})
        start = call.func if wrap is None else _Wrapping(call.func, wrap)
        renumbered = partial(start, weakref.ref(own), *call.args[1:], **_with_own_threads(call.keywords))
    except (AttributeError, IndexError, KeyError, TypeError):
        # Calls are then matched by order alone, and whoever reads a record finds out when it is not the right one.
        return configurable
    renumbered.__dict__["node"] = own  # the reference above is weak
    return {**configurable, _CALL: renumbered}


def _with_own_threads(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Let tasks that block run beside the threads of the graph: its nodes hold those while they wait for tasks."""
    is_blocking = "submit" in settings and "loop" not in settings
    return {**settings, **({"submit": lambda: _on_own_thread} if is_blocking else {})}


def _on_own_thread(function: Callable[..., Any], *args: Any, **settings: Any) -> Future[Any]:
    future: Future[Any] = Future()
    variables = copy_context()
    own = {name: value for name, value in settings.items() if not name.startswith("__")}

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = variables.run(function, *args, **own)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="codemode-task", daemon=True).start()
    return future


@dataclass(frozen=True)
class _Wrapping:
    """Starts tasks as LangGraph does, their functions wrapped."""

    start: Callable[..., Any]
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]]

    def __call__(self, node: Any, function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        return self.start(node, self.wrap(function), *args, **settings)


def interrupts_in(error: BaseException) -> tuple[Any, ...] | None:
    """Return what ``interrupt()`` raised, each once, None for any other error."""
    errors = sys.modules.get("langgraph.errors")
    if errors is None or not isinstance(error, errors.GraphInterrupt):
        return None
    raised = getattr(error, _TAKEN, error.args[0] if error.args else ())
    # A graph inside a graph reports an interrupt of a task twice: from the task, and from the node that it raised in.
    return tuple({one.id: one for one in raised}.values())


def take_interrupts(error: BaseException) -> tuple[Any, ...] | None:
    """Take what ``interrupt()`` raised out of a task's error, for who waits for the task reports it.

    Taken before the task has ended, it is not in the checkpoint either. `interrupts_in` finds it still.
    """
    found = interrupts_in(error)
    if found is not None:
        setattr(error, _TAKEN, found)
        error.args = ((),)
    return found


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
    """What a person answered to one ``interrupt()`` of a call. ``is_own``: the tool's, not a graph's inside it.

    ``inside`` is the id of the interrupt in that graph; ``is_alone`` when nothing else was asked at the same time.
    """

    value: Any
    is_own: bool
    inside: str
    is_alone: bool


@dataclass
class NestedScratchpad:
    """Makes ``interrupt()`` inside one nested call count from zero and find the answers to this call, no others.

    ``answers`` come in batches, each given at one time.
    """

    key: str
    writes: Writes
    answers: Sequence[Sequence[Answer]] = ()
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
        # A graph inside the tool remembers its earlier answers, and finds the newest in a map. One without a memory
        # asks under another id each time: an answer that is alone goes to whoever asks first.
        newest = [answer for answer in (self.answers[-1] if self.answers else ()) if not answer.is_own]
        alone = [answer.value for answer in newest if answer.is_alone]
        by_id = {answer.inside: answer.value for answer in newest if not answer.is_alone}
        in_tasks = partial(_answered, answers=self._foreign_answers, alone=alone)
        configurable = _renumbered(config, itertools.count(first).__next__, hide=False, wrap=in_tasks)
        scratchpad = replace(
            configurable[_SCRATCHPAD],
            call_counter=itertools.count(first).__next__,
            subgraph_counter=itertools.count(first).__next__,
            interrupt_counter=self._next_interrupt,
            resume=self._own_answers,
            get_null_resume=_once(alone),
        )
        own = {_SCRATCHPAD: scratchpad, **own_state(configurable, self.writes), _RESUME_MAP: by_id}
        return cast("RunnableConfig", {**config, "configurable": {**configurable, **own}})

    @property
    def _own_answers(self) -> list[Any]:
        return [answer.value for batch in self.answers for answer in batch if answer.is_own]

    @property
    def _foreign_answers(self) -> dict[str, Any]:
        return {answer.inside: answer.value for batch in self.answers for answer in batch if not answer.is_own}

    def _next_interrupt(self) -> int:
        self._asked += 1
        return self._asked - 1


def _answered(function: Callable[..., Any], answers: Mapping[str, Any], alone: list[Any]) -> Callable[..., Any]:
    """Let the function of a task that a nested call starts find its answers, and keep its questions to that call.

    The task belongs to the node of codeMode, which would report what it asks beside what the call asks.
    """
    from langgraph.config import get_config

    def find() -> None:
        configurable = cast("Any", get_config())["configurable"]
        resume: list[Any] = configurable[_SCRATCHPAD].resume
        while (place := _interrupt_id(configurable[_NAMESPACE], len(resume))) in answers:
            resume.append(answers[place])
            alone.clear()

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        find()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            take_interrupts(error)
            raise

    @wraps(function)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        find()
        try:
            return await function(*args, **kwargs)
        except Exception as error:
            take_interrupts(error)
            raise

    return arun if inspect.iscoroutinefunction(function) else run


def _interrupt_id(namespace: str, answered: int) -> str:
    """Return the id of a task's next ``interrupt()``, as LangGraph makes it."""
    from langgraph.types import Interrupt

    return Interrupt.from_ns(None, ns=f"{namespace}|{answered}" if answered else namespace).id


def _once(values: list[Any]) -> Callable[..., Any]:
    def take(consume: bool = False) -> Any:
        if not values:
            return None
        return values.pop() if consume else values[-1]

    return take
