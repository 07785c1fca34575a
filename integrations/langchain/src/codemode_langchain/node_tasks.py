"""Start LangGraph tasks in a running node with stable numbers, names and own threads."""

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

from .langgraph_internals import CALL, HIDDEN, NAMESPACE, SCRATCHPAD, get_node_context, is_in_node

_TASK_NUMBER_BYTES = 6


def compute_task_number(*parts: str) -> int:
    """Return the task number under which the checkpoint stores a result; a function of the parts."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return int.from_bytes(digest[:_TASK_NUMBER_BYTES], "big") << 16


def compute_digest(value: Any) -> str:
    """Return the SHA-256 of a value's JSON."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()


def make_call_id(config: RunnableConfig, key: str) -> str:
    """Return an id for a call without one: stable when the node runs again, unique in the node."""
    node = get_node_context(config)
    index = 0 if node is None else node.scratchpad.call_counter()
    return f"code-mode-{index}-{key[:16]}"


def compute_node_id(config: RunnableConfig) -> str | None:
    """Return an id of thread and node, stable when the node runs again; None outside a stored thread."""
    configurable = config.get("configurable", {})
    thread = configurable.get("thread_id")
    if thread is None or not is_in_node(config):
        return None
    return json.dumps([str(thread), configurable.get(NAMESPACE, "")])


def start_task(config: RunnableConfig, number: int, function: Callable[[], Any], name: str) -> Any:
    """Start a LangGraph task and return its future; a recorded result is returned without calling ``function``.

    LangGraph matches tasks with records by their order in a node. Concurrent outer calls have no order, so ``number``
    replaces the counter.
    """
    from langgraph.func import task  # pyright: ignore[reportMissingTypeStubs]

    task_config = {
        "configurable": make_numbered_task_configurable(config, lambda: number, hide=True),
        "callbacks": _copy_callbacks(config.get("callbacks")),
    }
    config_with_task = cast("RunnableConfig", {**config, **task_config})
    with set_config_context(config_with_task) as context:
        return context.run(cast("Any", task)(name=name)(function))


def to_coroutine_function(work: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return a coroutine function, as LangGraph tasks require."""

    async def run() -> Any:
        return await work()

    return run


def _copy_callbacks(callbacks: Any) -> Any:
    """Copy the callbacks: LangGraph adds a task's tags to them."""
    return callbacks.copy() if callable(getattr(callbacks, "copy", None)) else callbacks


def make_numbered_task_configurable(
    config: RunnableConfig,
    counter: Callable[[], int],
    *,
    hide: bool,
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
) -> dict[str, Any]:
    """Return the configurable part with tasks numbered by ``counter``; unchanged after the node's end."""
    configurable: dict[str, Any] = config.get("configurable", {})
    node_context = get_node_context(config)
    if node_context is None or (node := node_context.node) is None:
        return configurable
    scratchpad = replace(node.config["configurable"][SCRATCHPAD], call_counter=counter)
    tags = [*(node.config.get("tags") or ()), *([HIDDEN] if hide else ())]
    node_configurable = {**node.config["configurable"], SCRATCHPAD: scratchpad}
    numbered_node = replace(node, config={**node.config, "tags": tags, "configurable": node_configurable})
    start = node_context.start if wrap is None else _WrappingTaskStarter(node_context.start, wrap)
    start_numbered = partial(
        start, weakref.ref(numbered_node), *node_context.call_args, **_with_dedicated_threads(node_context.call_kwargs)
    )
    start_numbered.__dict__["node"] = numbered_node  # the reference above is weak
    return {**configurable, CALL: start_numbered}


def _with_dedicated_threads(call_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Run blocking tasks outside the graph's thread pool, whose threads wait for tasks."""
    if "submit" not in call_kwargs or "loop" in call_kwargs:
        return {**call_kwargs}
    futures: Callable[[], Any] = call_kwargs["futures"]
    return {
        **call_kwargs,
        "submit": lambda: start_in_dedicated_thread,
        "futures": lambda: _ThreadSafeFutures(futures()),
    }


@dataclass(frozen=True)
class _ThreadSafeFutures:
    """The futures of a step, safe against additions by other threads: LangGraph iterates without a lock."""

    futures: Any

    def items(self) -> list[tuple[Any, Any]]:
        """Return a snapshot of the items."""
        while True:
            try:
                return [*self.futures.items()]
            except RuntimeError:  # changed during iteration
                continue

    def __setitem__(self, future: Any, task: Any) -> None:
        self.futures[future] = task


def start_in_dedicated_thread(function: Callable[..., Any], *args: Any, **all_kwargs: Any) -> Future[Any]:
    """Run a function in a new thread with the caller's context."""
    future: Future[Any] = Future()
    context = copy_context()
    kwargs = {name: value for name, value in all_kwargs.items() if not name.startswith("__")}

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - set on the future
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="codemode-task", daemon=True).start()
    return future


@dataclass(frozen=True)
class _WrappingTaskStarter:
    """Starts LangGraph tasks with wrapped functions."""

    start: Callable[..., Any]
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]]

    def __call__(self, node: Any, function: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        return self.start(node, self.wrap(function), *args, **settings)
