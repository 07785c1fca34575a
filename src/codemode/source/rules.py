"""Check the facts that a worker reported about a program against the rules of its surface.

If rules apply, a program with missing or malformed facts is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict

from ..data.narrowing import is_array, is_mapping, list_or_empty, mapping_or_empty

if TYPE_CHECKING:
    from ..profile import StaticRules

MAX_VIOLATIONS = 64
MAX_NAMED_CALLS = 512
MAX_DEFINITIONS = 256
MAX_NAME_LENGTH = 256
MAX_POSITION = 2**31

MODULE_KINDS = ("import", "export", "import()", "import.meta")
LOOP_KINDS = ("for", "for-in", "for-of", "for-await", "while", "do")


class Location(TypedDict):
    """A position in a program: both count from 1, columns in UTF-16 units."""

    line: int
    column: int


class Violation(TypedDict):
    """A rule that a program breaks. ``name`` is the forbidden name or statement."""

    kind: str
    name: NotRequired[str]
    location: Location


class UnknownToolCall(NamedTuple):
    """A literal name of an unknown tool, and where it is called."""

    name: str
    line: int
    column: int


class _MalformedFactsError(Exception):
    """The facts are malformed."""


def has_analysis_facts(facts: Any) -> bool:
    """Return whether the facts (untrusted) include names, loops and modules."""
    return all(check(mapping_or_empty(facts).get(key)) for key, check in _REQUIRED_FACTS.items())


def has_module_facts(facts: Any) -> bool:
    """Return whether the facts (untrusted) include the imports of a module."""
    module = mapping_or_empty(mapping_or_empty(facts).get("module"))
    prefix, take = module.get("prefix"), module.get("take", 0)
    if type(prefix) is not int or prefix < 0 or not isinstance(take, str | None):
        return False
    imports, dynamic, calls = module.get("imports"), module.get("dynamic"), module.get("namespace_calls")
    return isinstance(imports, list) and isinstance(dynamic, list) and isinstance(calls, list)


def create_not_analysable_violation() -> Violation:
    """Return the violation of a program without usable facts."""
    return {"kind": "NotAnalysable", "location": {"line": 1, "column": 1}}


def find_violations(facts: Any, rules: StaticRules, source: str) -> list[Violation]:
    """Return the first `MAX_VIOLATIONS` violations in order of location.

    ``facts`` is what the worker reported about ``source``, untrusted. Without rules in force the list is empty.
    """
    if rules.runs_unanalysed:
        return []
    if not has_analysis_facts(facts):
        return [create_not_analysable_violation()]
    try:
        broken_rules = list(_find_banned_name_violations(facts["names"], rules, source))
        broken_rules += _find_statement_violations(facts["modules"], "DisallowedImport", MODULE_KINDS)
        if not rules.allow_loops:
            broken_rules += _find_statement_violations(facts["loops"], "DisallowedLoop", LOOP_KINDS)
    except _MalformedFactsError:
        return [create_not_analysable_violation()]
    return sorted(broken_rules, key=_get_location)[:MAX_VIOLATIONS]


def find_uncaught_call_of_missing_tool(facts: Any, is_known: Callable[[str], bool]) -> UnknownToolCall | None:
    """Return the first uncaught call of an unknown tool by literal name.

    ``facts`` is what the worker reported, untrusted; malformed parts are ignored.
    """
    for call in islice(list_or_empty(mapping_or_empty(facts).get("named_calls")), MAX_NAMED_CALLS):
        name, location = mapping_or_empty(call).get("name"), _parse_location(call)
        if (
            not isinstance(name, str)
            or len(name) > MAX_NAME_LENGTH
            or location is None
            or call.get("caught") is not False
        ):
            continue
        if not is_known(name):
            return UnknownToolCall(name, location["line"], location["column"])
    return None


def list_requested_definition_names(facts: Any) -> list[str]:
    """Return the tools whose definitions the program requests by literal name, from untrusted facts."""
    names = islice(list_or_empty(mapping_or_empty(facts).get("definitions")), MAX_DEFINITIONS)
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and len(name) <= MAX_NAME_LENGTH))


def _find_banned_name_violations(names: Any, rules: StaticRules, source: str) -> Iterator[Violation]:
    kinds = dict.fromkeys(rules.disabled_globals, "DisallowedGlobal")
    kinds.update(dict.fromkeys(rules.disabled_builtins, "IllegalBuiltinAccess"))
    uses: list[tuple[int, str]] = []
    for name in kinds:
        if name in names:
            uses += ((offset, name) for offset in _require_offsets(names[name]))
    if uses:
        yield from _make_use_violations(sorted(uses)[:MAX_VIOLATIONS], kinds, source.encode(errors="replace"))


def _require_offsets(offsets: Any) -> list[int]:
    """Return the offsets of a name. Raises for malformed ones."""
    first_offsets = offsets[:MAX_VIOLATIONS] if is_array(offsets) else []
    if not first_offsets or not all(type(offset) is int and offset >= 0 for offset in first_offsets):
        raise _MalformedFactsError
    return first_offsets


def _make_use_violations(uses: list[tuple[int, str]], kinds: dict[str, str], data: bytes) -> Iterator[Violation]:
    position, line = 0, 1
    for offset, name in uses:
        if offset >= len(data):
            raise _MalformedFactsError
        line += data.count(b"\n", position, offset)
        position = offset
        line_start = data[data.rfind(b"\n", 0, offset) + 1 : offset].decode(errors="replace")
        column = 1 + len(line_start) + sum(character > "\uffff" for character in line_start)
        yield {"kind": kinds[name], "name": name, "location": {"line": line, "column": column}}


def _find_statement_violations(items: Any, violation_kind: str, kinds: tuple[str, ...]) -> Iterator[Violation]:
    """Yield violations by loops and module statements."""
    for item in islice(list_or_empty(items), MAX_VIOLATIONS):
        kind, location = mapping_or_empty(item).get("kind"), _parse_location(item)
        if kind == "require()":  # handled as a banned name, not as a statement
            continue
        if location is None or not isinstance(kind, str) or kind not in kinds:
            raise _MalformedFactsError
        yield {"kind": violation_kind, "name": kind, "location": location}


def _get_location(violation: Violation) -> tuple[int, int]:
    return violation["location"]["line"], violation["location"]["column"]


def _parse_location(item: Any) -> Location | None:
    fields = mapping_or_empty(item)
    line, column = fields.get("line"), fields.get("column")
    if type(line) is int and type(column) is int and 0 < line < MAX_POSITION and 0 < column < MAX_POSITION:
        return {"line": line, "column": column}
    return None


_REQUIRED_FACTS: dict[str, Callable[[Any], bool]] = {"names": is_mapping, "loops": is_array, "modules": is_array}
