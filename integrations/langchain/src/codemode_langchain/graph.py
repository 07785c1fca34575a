"""Tasks of a running LangGraph node, numbered by us: how they are named, started and kept apart.

Knows no program, no tool and no question.
"""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import set_config_context

from .pregel import CALL, HIDDEN, NAMESPACE, SCRATCHPAD, inside, is_in_node

_NUMBER_BYTES = 6


def number_of(*parts: str) -> int:
    """Return the number under which the checkpoint keeps a result: the same parts give the same number."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return int.from_bytes(digest[:_NUMBER_BYTES], "big") << 16


def digest(value: Any) -> str:
    """Return what tells a value from another."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def name_in_node(config: RunnableConfig, what: str) -> str:
    """Name a call that has no id by its digest: the same when the node runs again, another for each call in it."""
    node = inside(config)
    place = 0 if node is None else node.scratchpad.call_counter()
    return f"code-mode-{place}-{what[:16]}"


def binding_in_node(config: RunnableConfig) -> str | None:
    """Name the thread and the node that runs in it, the same when it runs again; None where nothing is kept."""
    configurable = config.get("configurable", {})
    thread = configurable.get("thread_id")
    if thread is None or not is_in_node(config):
        return None
    return json.dumps([str(thread), configurable.get(NAMESPACE, "")])


def start_task(config: RunnableConfig, number: int, function: Callable[[], Any], name: str) -> Any:
    """Start a LangGraph task and return its future; a recorded result is served without calling ``function``.

    LangGraph matches a task with its record by the order of the calls in a node. Two calls of codeMode in one node
    have no order, so the task gets a number of its own in place of the next one.
    """
    from langgraph.func import task  # pyright: ignore[reportMissingTypeStubs]

    own = {"configurable": renumbered(config, lambda: number, hide=True), "callbacks": _own(config.get("callbacks"))}
    numbered = cast("RunnableConfig", {**config, **own})
    with set_config_context(numbered) as context:
        return context.run(cast("Any", task)(name=name)(function))


def awaited(work: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return a coroutine function of its own, as tasks of LangGraph have to be."""

    async def run() -> Any:
        return await work()

    return run


def _own(callbacks: Any) -> Any:
    """Return callbacks that are this task's alone: LangGraph writes a task's tags into those it is given."""
    return callbacks.copy() if callable(getattr(callbacks, "copy", None)) else callbacks


def renumbered(
    config: RunnableConfig,
    counter: Callable[[], int],
    *,
    hide: bool,
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> dict[str, Any]:
    """Return the configurable part with tasks numbered by ``counter``; unchanged where the node has ended."""
    configurable: dict[str, Any] = config.get("configurable", {})
    found = inside(config)
    if found is None or (node := found.node) is None:
        return configurable
    scratchpad = replace(node.config["configurable"][SCRATCHPAD], call_counter=counter)
    tags = [*(node.config.get("tags") or ()), *([HIDDEN] if hide else ())]
    node_configurable = {**node.config["configurable"], SCRATCHPAD: scratchpad}
    own = replace(node, config={**node.config, "tags": tags, "configurable": node_configurable})
    start = found.start if wrap is None else _Wrapping(found.start, wrap)
    renumbered = partial(start, weakref.ref(own), *found.rest, **_with_own_threads(found.settings))
    renumbered.__dict__["node"] = own  # the reference above is weak
    return {**configurable, CALL: renumbered}


def _with_own_threads(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Let tasks that block run beside the threads of the graph: its nodes hold those while they wait for tasks."""
    if "submit" not in settings or "loop" in settings:
        return {**settings}
    futures: Callable[[], Any] = settings["futures"]
    return {**settings, "submit": lambda: on_own_thread, "futures": lambda: _Futures(futures())}


@dataclass(frozen=True)
class _Futures:
    """The tasks of a step of a graph, to which several threads add: LangGraph goes through them without a lock."""

    of: Any

    def items(self) -> list[tuple[Any, Any]]:
        """Return all there are at one time."""
        while True:
            try:
                return [*self.of.items()]
            except RuntimeError:  # one was added or taken away meanwhile
                continue

    def __setitem__(self, future: Any, task: Any) -> None:
        self.of[future] = task


def on_own_thread(function: Callable[..., Any], *args: Any, **settings: Any) -> Future[Any]:
    """Run a function in a thread that is its alone, with the context of the caller."""
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
