"""Calls that share one node of a graph, as all of a plain ``ToolNode`` do: none ends it while another is at work.

The first that raises an interrupt ends the node, and LangGraph cancels what runs in it. Knows no program.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig

from codemode.plugins import forkable_lock

from .answers import shown_digest
from .approvals import Question
from .pregel import SCRATCHPAD, inside

_lock = forkable_lock()
_asking: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()  # whose question waits, by the run's loop
_at_work: dict[int, set[Sibling]] = {}  # by the scratchpad of the node, which its calls hold


class Sibling:
    """One call in its node, where there is one. ``with`` it while the call is at work."""

    def __init__(self, config: RunnableConfig) -> None:
        self._scratchpad = config.get("configurable", {}).get(SCRATCHPAD)
        self.ended = asyncio.Event()

    def __enter__(self) -> Self:
        if self._scratchpad is not None:
            _at_work.setdefault(id(self._scratchpad), set()).add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._leave()

    async def others_ended(self) -> None:
        """Wait until no other call of the node is at work; this one no longer is."""
        self._leave()
        while others := _at_work.get(id(self._scratchpad)):
            await next(iter(others)).ended.wait()

    def _leave(self) -> None:
        at_work = _at_work.get(id(self._scratchpad), set())
        at_work.discard(self)
        if not at_work:
            _at_work.pop(id(self._scratchpad), None)
        self.ended.set()


def may_ask_now(config: RunnableConfig, tool_call_id: str, asked: Iterable[Question]) -> bool:
    """Tell whether a program may ask, where only one question of an agent's step may wait: none of another does.

    Only of an agent that is in no other graph: there a question that is asked always ends the run, and the program
    that may not ask now runs again when it is answered.
    """
    questions = list(asked)
    keys, mine = {one.key for one in questions}, {shown_digest(one.value) for one in questions}
    own = inside(config)
    if own is None or not own.keeps_checkpoints or inside(own.loop.config) is not None:
        return True
    if any(isinstance(one, dict) and cast("Any", one).get("of") in keys for one in own.written_in_step()):
        return True  # it was answered, and only finds the answers again
    waiting, given = own.waiting, own.resumed_with
    if any(shown_digest(one.value) in mine for one in waiting.values()):
        return True  # it has asked before
    if given is None or own.is_resumed_by_id:
        waiting = {key: one for key, one in waiting.items() if key not in (given or {})}
        if waiting:
            return False
    with _lock:
        return _asking.setdefault(own.loop, tool_call_id) == tool_call_id
