"""Programs of exec that outlive one call of the model, and runs of a graph that end."""

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
from codemode.plugins import forkable_lock

from .approvals import DirectCaller
from .arguments import Arguments
from .graph import on_own_thread
from .nested import NestedRun
from .pregel import CHECKPOINTER, inside, is_in_node

# No call may outlive the clients that it uses, and these are the caller's. Reaches LangGraph's loop over the steps of a
# graph, for nothing else is told of errors, cancellation and the limit of steps.

End = Callable[[], Awaitable[Any]]
Block = Callable[[Any], Any]
_log = logging.getLogger("codemode.tools")
_lock = forkable_lock()
_runs: weakref.WeakKeyDictionary[Any, AgentRun] = weakref.WeakKeyDictionary()


class AgentRun:
    """One run of a graph, from its first step to its return: a pause for a person ends it too."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._left: dict[str, tuple[End, Block]] = {}
        self._is_over = False

    def leave(self, run_id: str, end: End, block: Block) -> bool:
        """Note a program that waits: ``end`` ends it, run by ``block`` in a thread. False: the run is over already."""
        with _lock:
            if not self._is_over:
                self._left[run_id] = end, block
            return not self._is_over

    def take(self, run_id: Any) -> None:
        """Note that a program waits no more."""
        with _lock:
            if isinstance(run_id, str):
                self._left.pop(run_id, None)

    def close(self) -> None:
        """End what was left waiting."""
        for end, block in self._taken():
            try:
                block(end())
            except Exception:  # noqa: BLE001 - the others have to end, and the agent's own outcome counts
                _log.warning("a waiting program could not be ended", exc_info=True)

    async def aclose(self) -> None:
        """Do what `close` does without blocking."""
        ended = await asyncio.gather(*(end() for end, _ in self._taken()), return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                _log.warning("a waiting program could not be ended", exc_info=error)

    def _taken(self) -> list[tuple[End, Block]]:
        with _lock:
            self._is_over = True
            left, self._left = [*self._left.values()], {}
            return left


def agent_run(config: RunnableConfig) -> AgentRun | None:
    """Return the run of the graph that a node belongs to; None outside of one, or when LangGraph looks different."""
    node = inside(config)
    loop = None if node is None else node.loop
    stack = getattr(loop, "stack", None)
    if not isinstance(stack, ExitStack | AsyncExitStack):
        return None
    with _lock:
        found = _runs.get(loop)
        if found is None:
            found = _runs[loop] = AgentRun()
            if isinstance(stack, AsyncExitStack):
                stack.push_async_callback(found.aclose)
            else:
                stack.callback(found.close)
        return found


def scope_of(config: RunnableConfig, run: AgentRun | None) -> tuple[str, bool]:
    """Return whose programs those of a call are, and whether a later run may go on with them.

    That is the thread; where nothing of it is kept, the run of the graph.
    """
    configurable = config.get("configurable", {})
    thread = configurable.get("thread_id")
    if not is_in_node(config):
        return "" if thread is None else str(thread), True
    if thread is not None and configurable.get(CHECKPOINTER):
        return str(thread), True
    return f"run:{secrets.token_hex(16) if run is None else run.token}", False


# Knows no agent and no checkpoint.

_MOST = 10_000


class Program:
    """One program, for as long as it runs or waits: its inner calls are made as the newest outer call makes them.

    ``config`` is the `RunnableConfig` of that one, ``runtime`` its ``ToolRuntime`` in an agent.
    """

    def __init__(self) -> None:
        self._run: NestedRun | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        self._is_busy = False
        self._lock = forkable_lock()

    @property
    def config(self) -> RunnableConfig:
        """The configuration of the outer call."""
        return self._current.config

    @property
    def runtime(self) -> Any:
        """What an agent gives the outer call; None outside of one."""
        return getattr(self._current.caller, "runtime", None)

    @property
    def _current(self) -> NestedRun:
        with self._lock:
            if self._run is None:
                self._run = NestedRun(DirectCaller(), ensure_config())
                self._home = _running_loop()
            return self._run

    def begin(self, run: NestedRun, home: asyncio.AbstractEventLoop | None) -> bool:
        """Let an outer call go on with it, on its loop, None for one that blocks. False: another one is on it."""
        with self._lock:
            if self._is_busy:
                return False
            before, self._run, self._home, self._is_busy = self._run, run, home, True
        if before is not None:
            before.pass_on(run)
        return True

    def end(self) -> None:
        """Note that the outer call has its answer."""
        with self._lock:
            self._is_busy = False

    def name(self, call_id: str, name: str) -> None:
        """Note what people know the tool of a call by."""
        self._current.names.setdefault(call_id, name)

    async def call(self, tool: BaseTool, arguments: Arguments, context: ToolCallContext) -> Any:
        """Make an inner call where the outer call is made: in a thread for one that blocks, else on its loop."""
        run, home = self._current, self._home
        if home is None:
            return await asyncio.wrap_future(on_own_thread(run.run, tool, arguments, context))
        work = run.arun(tool, arguments, context)
        if home is asyncio.get_running_loop():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))


def program_of(context: ToolCallContext) -> Program:
    """Return the program that makes a call; one of its own for who resumes without an outer call, as a `Resumer`."""
    found = context.context
    return found if isinstance(found, Program) else Program()


@dataclass(frozen=True)
class Waiting:
    """A program that waits, and where it was begun: over which tools, and whose it is."""

    face: Any
    scope: str
    program: Program
    until: float


class WaitingPrograms:
    """Programs that wait in this process, by the ids of their runs. Forgets those that nobody may come back for."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Waiting] = OrderedDict()
        self._lock = forkable_lock()

    def keep(self, run_id: str, face: Any, scope: str, program: Program, seconds: float) -> None:
        """Note a program that waits for at most so long."""
        with self._lock:
            self._known[run_id] = Waiting(face, scope, program, time.monotonic() + seconds)
            self._known.move_to_end(run_id)
            while len(self._known) > _MOST or next(iter(self._known.values())).until < time.monotonic():
                self._known.popitem(last=False)

    def find(self, run_id: Any, scope: str) -> Waiting | None:
        """Return the program of a run, for those whose it is."""
        with self._lock:
            found = self._known.get(run_id) if isinstance(run_id, str) else None
            return found if found is not None and found.scope == scope else None

    def forget(self, run_id: Any, scope: str) -> None:
        """Note that a program has ended; those whose it is not can say nothing of it."""
        with self._lock:
            found = self._known.get(run_id) if isinstance(run_id, str) else None
            if found is not None and found.scope == scope:
                del self._known[run_id]

    def faces(self) -> list[Any]:
        """Return what the programs were begun over, each once."""
        with self._lock:
            return [*{id(one.face): one.face for one in self._known.values()}.values()]


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
