"""Walks a program's tree once, for its types and the facts about it.

Loaded by path in locked workers. Knows no rule; it only connects the listeners of the walk.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .strip_types import TypeStripper

    Facts = dict[str, Any]


class WalkListeners:
    """Those who listen to the walk of one program, and who hears of which symbol of the grammar."""

    def __init__(self, handlers: dict[int, Any], stripper: TypeStripper, collector: Any, *name_listeners: Any) -> None:
        self.handlers, self.stripper, self.name_listeners = handlers, stripper, name_listeners
        self._collector = collector

    def build_facts(self, code: Callable[[], bytes]) -> Facts:
        """Return the facts of `facts.FactCollector`, and with listeners for them those about names, loops and calls.

        ``code`` gives the program with types and comments blank.
        """
        collector = self._collector
        if not self.name_listeners:
            return collector.build_facts()
        names, named_calls = self.name_listeners
        text = code()
        places = names.find_name_offsets(text, self.stripper.skipped_nodes)
        uses: dict[str, list[int]] = {} if places is None else places
        collector.add_identifier_offsets(uses.get("tools", ()), uses.get("require", ()))
        return {
            **collector.build_facts(),
            "names": None if places is None else names.limit_offsets_per_name(places),
            "loops": names.list_loops(),
            "named_calls": named_calls.find_named_calls(text, uses.get("callTool", [])),
            "definitions": named_calls.list_requested_definitions(),
        }

    def set_program(self, data: bytes) -> None:
        """Take the program."""
        self.stripper.data = self._collector.data = data


class WalkListenerFactory:
    """Makes the listeners of each walk. ``symbols`` are the grammar's; ``parts`` are this folder's, by name.

    Each program has listeners of its own, so that nothing of one is in the next; those of the first are made ahead.
    """

    def __init__(self, symbols: dict[str, list[int]], parts: dict[str, Any]) -> None:
        self._symbols, self._parts = symbols, parts
        self._prepared: dict[bool, WalkListeners] = {}

    def prepare_first_listeners(self) -> None:
        """Make what listens to the first program, whether its names are wanted or not."""
        self._prepared = {wants_names: self._create_listeners(wants_names) for wants_names in (False, True)}

    def take_listeners(self, data: bytes, wants_names: bool, is_warm_up: bool = False) -> WalkListeners:
        """Return those for one program. A warm-up makes others ahead, in memory that it has written to itself."""
        listeners = self._prepared.pop(wants_names, None) or self._create_listeners(wants_names)
        if is_warm_up:
            self._prepared[wants_names] = self._create_listeners(wants_names)
        listeners.set_program(data)
        return listeners

    def _create_listeners(self, wants_names: bool) -> WalkListeners:
        parts, facts = self._parts, self._parts["facts"]
        stripper = parts["strip_types"].TypeStripper(b"", parts["edits"].BlankedGap)
        if not wants_names:
            results = parts["result_reads"].ResultReadCollector()
            collector = facts.FactCollector(b"", result_reads=results)
            return WalkListeners(self._merge_handlers(collector, results, stripper), stripper, collector)
        names = parts["names"].NameCollector(
            parts["parse_ambiguities"].ParseAmbiguityFinder(parts["edits"].blank_spans)
        )
        named_calls = parts["named_calls"].NamedCallCollector(facts.read_first_string_and_arguments)
        collector = facts.FactCollector(b"", named_calls.on_named_call)
        table = self._merge_handlers(collector, named_calls, names, stripper)
        return WalkListeners(table, stripper, collector, names, named_calls)

    def _merge_handlers(self, *listeners: Any) -> dict[int, Any]:
        tables = [listener.get_handlers_by_kind() for listener in listeners]
        return self._parts["parse"].map_handlers_by_symbol(self._symbols, tables)
