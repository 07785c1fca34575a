"""Keep waiting programs of exec, and end them with their graph run."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool

from codemode import ToolCallContext
from codemode.plugins import create_fork_safe_lock

from .approvals import DirectToolCaller
from .arguments import ValidatedArguments
from .langgraph_internals import CHECKPOINTER, get_node_context, is_in_node
from .nested import NestedCalls
from .node_tasks import start_in_dedicated_thread

# No call may outlive the caller's clients. The end of a run is hooked into LangGraph's loop, because nothing else is
# notified of errors, cancellation and the step limit.

EndProgram = Callable[[], Awaitable[Any]]
RunBlocking = Callable[[Any], Any]
_log = logging.getLogger("codemode.tools")
_lock = create_fork_safe_lock()
_graph_runs: weakref.WeakKeyDictionary[Any, GraphRun] = weakref.WeakKeyDictionary()


class GraphRun:
    """One run of a graph, from its first step to its return, also for an interrupt."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._waiting: dict[str, tuple[EndProgram, RunBlocking]] = {}
        self._is_closed = False

    def add_program(self, run_id: str, end: EndProgram, block: RunBlocking) -> bool:
        """Add a waiting program: ``end`` ends it; ``block`` runs that synchronously. False if the run is over."""
        with _lock:
            if not self._is_closed:
                self._waiting[run_id] = end, block
            return not self._is_closed

    def remove_program(self, run_id: Any) -> None:
        """Remove a program that no longer waits."""
        with _lock:
            if isinstance(run_id, str):
                self._waiting.pop(run_id, None)

    def close(self) -> None:
        """End the waiting programs."""
        for end, block in self._close_and_take_programs():
            try:
                block(end())
            except Exception:  # noqa: BLE001 - end the other programs, and keep the agent's outcome
                _log.warning("a waiting program could not be ended", exc_info=True)

    async def aclose(self) -> None:
        """Do what `close` does without blocking."""
        results = await asyncio.gather(*(end() for end, _ in self._close_and_take_programs()), return_exceptions=True)
        for error in results:
            if isinstance(error, Exception):
                _log.warning("a waiting program could not be ended", exc_info=error)

    def _close_and_take_programs(self) -> list[tuple[EndProgram, RunBlocking]]:
        with _lock:
            self._is_closed = True
            programs, self._waiting = [*self._waiting.values()], {}
            return programs


def get_or_create_graph_run(config: RunnableConfig) -> GraphRun | None:
    """Return the graph run of a node, closed with LangGraph's loop; None outside a node or with unknown internals."""
    node = get_node_context(config)
    loop = None if node is None else node.loop
    stack = getattr(loop, "stack", None)
    if not isinstance(stack, ExitStack | AsyncExitStack):
        return None
    with _lock:
        graph_run = _graph_runs.get(loop)
        if graph_run is None:
            graph_run = _graph_runs[loop] = GraphRun()
            if isinstance(stack, AsyncExitStack):
                stack.push_async_callback(graph_run.aclose)
            else:
                stack.callback(graph_run.close)
        return graph_run


def find_program_scope_and_lifetime(config: RunnableConfig, run: GraphRun | None) -> tuple[str, bool]:
    """Return the scope of a call's programs, and whether a later run may continue them.

    The scope is the thread, or the graph run if the thread is not stored.
    """
    configurable = config.get("configurable", {})
    thread = configurable.get("thread_id")
    if not is_in_node(config):
        return "" if thread is None else str(thread), True
    if thread is not None and configurable.get(CHECKPOINTER):
        return str(thread), True
    return f"run:{secrets.token_hex(16) if run is None else run.token}", False


_MAX_PROGRAMS = 10_000


class ExecProgram:
    """One program while it runs or waits; its nested calls run through the latest outer call.

    ``config``: `RunnableConfig` of that call. ``runtime``: its ``ToolRuntime`` in an agent.
    """

    def __init__(self) -> None:
        self._calls: NestedCalls | None = None
        self._home_loop: asyncio.AbstractEventLoop | None = None
        self._is_in_use = False
        self._lock = create_fork_safe_lock()

    @property
    def config(self) -> RunnableConfig:
        """The configuration of the latest outer call."""
        return self._current_or_new_calls.config

    @property
    def runtime(self) -> Any:
        """The ``ToolRuntime`` of the latest outer call; None outside an agent."""
        return getattr(self._current_or_new_calls.caller, "runtime", None)

    @property
    def _current_or_new_calls(self) -> NestedCalls:
        with self._lock:
            if self._calls is None:
                self._calls = NestedCalls(DirectToolCaller(), ensure_config())
                self._home_loop = _get_running_loop()
            return self._calls

    def attach_to_outer_call(self, run: NestedCalls, home_loop: asyncio.AbstractEventLoop | None) -> bool:
        """Continue in an outer call; ``home_loop`` is None if it blocks. False if another outer call is active."""
        with self._lock:
            if self._is_in_use:
                return False
            previous, self._calls, self._home_loop, self._is_in_use = self._calls, run, home_loop, True
        if previous is not None:
            previous.hand_over_to(run)
        return True

    def detach_from_outer_call(self) -> None:
        """Mark the program as not used by an outer call."""
        with self._lock:
            self._is_in_use = False

    def set_display_name_if_missing(self, call_id: str, name: str) -> None:
        """Set the displayed tool name of a call."""
        self._current_or_new_calls.display_names.setdefault(call_id, name)

    async def call(self, tool: BaseTool, arguments: ValidatedArguments, context: ToolCallContext) -> Any:
        """Run a nested call where the outer call runs: in a thread if that blocks, else on its loop."""
        run, home_loop = self._current_or_new_calls, self._home_loop
        if home_loop is None:
            return await asyncio.wrap_future(start_in_dedicated_thread(run.run, tool, arguments, context))
        coroutine = run.arun(tool, arguments, context)
        if home_loop is asyncio.get_running_loop():
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, home_loop))


def get_or_create_program(context: ToolCallContext) -> ExecProgram:
    """Return the program of a call; a new one for a resume without an outer call, as by a `Resumer`."""
    context_value = context.context
    return context_value if isinstance(context_value, ExecProgram) else ExecProgram()


@dataclass(frozen=True)
class WaitingProgram:
    """A waiting program with its surface, scope and expiry (monotonic seconds)."""

    surface: Any
    scope: str
    program: ExecProgram
    expires_at: float


class WaitingPrograms:
    """The waiting programs of this process by run id; expired ones are dropped."""

    def __init__(self) -> None:
        self._programs: OrderedDict[str, WaitingProgram] = OrderedDict()
        self._lock = create_fork_safe_lock()

    def add(self, run_id: str, surface: Any, scope: str, program: ExecProgram, seconds: float) -> None:
        """Add a program that waits for at most ``seconds``."""
        with self._lock:
            self._programs[run_id] = WaitingProgram(surface, scope, program, time.monotonic() + seconds)
            self._programs.move_to_end(run_id)
            while (
                len(self._programs) > _MAX_PROGRAMS or next(iter(self._programs.values())).expires_at < time.monotonic()
            ):
                self._programs.popitem(last=False)

    def find(self, run_id: Any, scope: str) -> WaitingProgram | None:
        """Return the program of a run, if it belongs to the scope."""
        with self._lock:
            waiting = self._programs.get(run_id) if isinstance(run_id, str) else None
            return waiting if waiting is not None and waiting.scope == scope else None

    def remove(self, run_id: Any, scope: str) -> None:
        """Remove the program of a run, if it belongs to the scope."""
        with self._lock:
            waiting = self._programs.get(run_id) if isinstance(run_id, str) else None
            if waiting is not None and waiting.scope == scope:
                del self._programs[run_id]

    def list_surfaces(self) -> list[Any]:
        """Return the surfaces of the programs, without duplicates."""
        with self._lock:
            return [*{id(waiting.surface): waiting.surface for waiting in self._programs.values()}.values()]


def _get_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
