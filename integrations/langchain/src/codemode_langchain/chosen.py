"""Which of an agent's tools are in programs, and which the model calls itself, by ``tools`` and ``keep``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from langchain_core.tools import BaseTool

from codemode.plugins import Places, Selection, places

from .neighbours import HidingWords
from .offered_tools import offered_name
from .shown_tools import name_of

Kept: TypeAlias = Collection[str] | Mapping[str, Any] | Callable[[BaseTool], bool]
"""Names, what a tool's metadata holds, or a function of a tool."""
InPrograms: TypeAlias = Kept | Literal["all"]
"""The same, or all tools."""


class Chosen:
    """What an agent says of its tools. Raises `ValueError` for what says nothing of any."""

    def __init__(self, tools: InPrograms | None, keep: Kept, words: HidingWords) -> None:
        self._tools = None if tools is None else Selection(tools, "tools", may_be_all=True)
        self._keep = Selection(keep, words.keep)
        self._words = words
        for path, one in (("tools", self._tools), (words.keep, self._keep)):
            if one is not None and (own := sorted(filter(words.is_own, one.names))):
                raise ValueError(f"{path} names {own[0]!r}, which is shown in the place of all others")

    @property
    def kept_names(self) -> frozenset[str]:
        """The names that were said to stay with the model."""
        return self._keep.names

    @property
    def alone_names(self) -> frozenset[str]:
        """Those of them that no program can call either, whatever tools of these names turn out to be."""
        if self._tools is None:
            return self._keep.names
        return self._keep.names - self._tools.names if self._tools.is_by_name else frozenset()

    def places(self, one: BaseTool) -> Places:
        """Return where a tool is called. What no program can call stays with the model."""
        if not self._words.is_callable(one.name):
            return places(is_kept=True, is_named=None)
        named = None if self._tools is None else _has(self._tools, one)
        return places(is_kept=_has(self._keep, one), is_named=named)

    def is_kept(self, name: str, tool: BaseTool | None) -> bool:
        """Tell whether the model calls the tool of this name itself: of one that nobody has, its name alone tells."""
        if tool is not None:
            return self.places(tool).directly
        return name in self._keep.names or not self._words.is_callable(name)

    def require_known(self, tools: Iterable[Any]) -> None:
        """Raise `ValueError` for a name that fits none of these tools."""
        there = names_of(tools)
        for one in (self._tools, self._keep):
            if one is not None:
                one.require_known(there)


def names_of(tools: Iterable[Any]) -> set[str]:
    """Return the names by which people and models know these tools."""
    return {name for one in tools for name in (name_of(one), offered_name(one)) if name is not None}


def _has(selection: Selection, one: BaseTool) -> bool:
    if selection.predicate is None:
        return selection.has(one.name, one.metadata)
    answer = selection.predicate(one)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise ValueError("the function that tells which tools are meant must not be async: it is asked at once")
    return bool(answer)
