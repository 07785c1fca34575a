"""Walks a program's tree once, for its types and for the facts about it, with its names or without.

Loaded by path in locked workers. Knows no rule; it only brings together those who listen to the walk.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .strip_types import TypeStripper

    Facts = dict[str, Any]


class Listeners:
    """Those who listen to the walk of one program, and who hears of which symbol of the grammar."""

    def __init__(self, handlers: dict[int, Any], stripper: TypeStripper, collector: Any, *of_names: Any) -> None:
        self.handlers, self.stripper, self.of_names = handlers, stripper, of_names
        self._collector = collector

    def facts(self, code: Callable[[], bytes]) -> Facts:
        """Return the facts of `facts.FactCollector`, and with listeners for them those about names, loops and calls.

        ``code`` gives the program with types and comments blank.
        """
        collector = self._collector
        if not self.of_names:
            return collector.facts()
        names, named_calls = self.of_names
        text = code()
        places = names.names(text, self.stripper.unread)
        uses: dict[str, list[int]] = {} if places is None else places
        collector.add_identifiers(uses.get("tools", ()), uses.get("require", ()))
        return {
            **collector.facts(),
            "names": None if places is None else names.first_places(places),
            "loops": names.loops(),
            "named_calls": named_calls.calls(text, uses.get("callTool", [])),
            "definitions": named_calls.definitions(),
        }

    def begin(self, data: bytes) -> None:
        """Take the program."""
        self.stripper.data = self._collector.data = data


class FactWalk:
    """Collects the facts of trees. ``symbols`` are the grammar's; ``parts`` are this folder's, by name.

    Each program has listeners of its own, so that nothing of one is in the next; those of the first are made ahead.
    """

    def __init__(self, symbols: dict[str, list[int]], parts: dict[str, Any]) -> None:
        self._symbols, self._parts = symbols, parts
        self._ahead: dict[bool, Listeners] = {}

    def prepare(self) -> None:
        """Make what listens to the first program, whether its names are wanted or not."""
        self._ahead = {wants_names: self._listeners(wants_names) for wants_names in (False, True)}

    def listeners(self, data: bytes, wants_names: bool, is_rehearsal: bool = False) -> Listeners:
        """Return those for one program. A rehearsal makes others ahead, in memory that it has written to itself."""
        listeners = self._ahead.pop(wants_names, None) or self._listeners(wants_names)
        if is_rehearsal:
            self._ahead[wants_names] = self._listeners(wants_names)
        listeners.begin(data)
        return listeners

    def _listeners(self, wants_names: bool) -> Listeners:
        parts, facts = self._parts, self._parts["facts"]
        stripper = parts["strip_types"].TypeStripper(b"", parts["edits"].Gap)
        if not wants_names:
            results = parts["result_reads"].ResultReads()
            collector = facts.FactCollector(b"", results=results)
            return Listeners(self._table(collector, results, stripper), stripper, collector)
        names = parts["names"].NameCollector(parts["doubts"].Doubts(parts["edits"].without))
        named_calls = parts["named_calls"].NamedCalls(facts.literal_arguments)
        collector = facts.FactCollector(b"", named_calls.see)
        table = self._table(collector, named_calls, names, stripper)
        return Listeners(table, stripper, collector, names, named_calls)

    def _table(self, *listeners: Any) -> dict[int, Any]:
        tables = [listener.handlers() for listener in listeners]
        return self._parts["parse"].handlers_by_symbol(self._symbols, tables)
