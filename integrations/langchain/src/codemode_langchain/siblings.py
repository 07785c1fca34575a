"""Calls that share one node of a graph, as all of a plain ``ToolNode`` do: none ends it while another is at work.

The first that raises an interrupt ends the node, and LangGraph cancels what runs in it. Knows no program.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from langchain_core.runnables import RunnableConfig

from .pregel import SCRATCHPAD

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
