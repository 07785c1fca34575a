"""Runs of a graph and what is left waiting in them: with a run end the programs that have calls in flight.

No call may outlive the clients that it uses, and these are the caller's. Reaches LangGraph's loop over the steps of a
graph, for nothing else is told of errors, cancellation and the limit of steps.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from langchain_core.runnables import RunnableConfig

from codemode.plugins import forkable_lock

from .pregel import CHECKPOINTER, inside, is_in_node

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
