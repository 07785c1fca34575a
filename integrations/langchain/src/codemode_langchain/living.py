"""Programs of exec that go on from one call of the model to the next: whose inner calls are made where, and by whom.

Knows no agent and no checkpoint.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool

from codemode import ToolCallContext
from codemode.plugins import forkable_lock

from .arguments import Arguments
from .callers import DirectCaller
from .graph import on_own_thread
from .nested import NestedRun

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
