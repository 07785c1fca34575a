"""Walks a program's tree once, for its types and for the facts about it, with its names or without.

Loaded by path in locked workers. Knows no rule; it only brings together those who listen to the walk.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tree_sitter import Tree

    from .strip_types import TypeStripper

    Facts = dict[str, Any]


class FactWalk:
    """Collects the facts of trees. ``symbols`` are the grammar's; the rest are this folder's parts."""

    def __init__(
        self, symbols: dict[str, list[int]], *, parse: Any, edits: Any, facts: Any, names: Any, named_calls: Any
    ) -> None:
        self._symbols, self._parse, self._edits = symbols, parse, edits
        self._facts, self._names, self._named_calls = facts, names, named_calls

    def collect(self, data: bytes, tree: Tree, stripper: TypeStripper) -> Callable[[], Facts]:
        """Walk ``tree``; what is returned gives the facts of `facts.FactCollector`."""
        collector = self._facts.FactCollector(data)
        self._walk(tree, collector, stripper)
        return collector.facts

    def collect_with_names(self, data: bytes, tree: Tree, stripper: TypeStripper) -> Callable[[], Facts]:
        """Walk ``tree``; what is returned gives the same facts, and those about names, loops and calls by name."""
        names = self._names.NameCollector(self._edits.without)
        named_calls = self._named_calls.NamedCalls(self._facts.literal_arguments)
        collector = self._facts.FactCollector(data, named_calls.see)
        self._walk(tree, collector, named_calls, names, stripper)

        def facts() -> Facts:
            code = self._edits.code_of(data, stripper.gaps)
            places = names.names(code, stripper.unread)
            uses: dict[str, list[int]] = {} if places is None else places
            collector.add_identifiers(uses.get("tools", ()), uses.get("require", ()))
            return {
                **collector.facts(),
                "names": None if places is None else names.first_places(places),
                "loops": names.loops(),
                "named_calls": named_calls.calls(code, uses.get("callTool", [])),
                "definitions": named_calls.definitions(),
            }

        return facts

    def _walk(self, tree: Tree, *listeners: Any) -> None:
        handlers = self._parse.handlers_by_symbol(self._symbols, [listener.handlers() for listener in listeners])
        self._parse.walk(tree, handlers)
