"""Report literal locales and options that the engine does not have.

Loaded by path in locked workers. A computed argument throws when the call is reached: `kernel/locale.js` accepts the
same values.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tree_sitter import Node, Tree

# Which argument of each method is the locale.
METHODS = {
    "toLocaleString": 0,
    "toLocaleDateString": 0,
    "toLocaleTimeString": 0,
    "toLocaleLowerCase": 0,
    "toLocaleUpperCase": 0,
    "localeCompare": 1,
}
ENGLISH = ("en", "en-us")
# Letters of these have other cases than everywhere else.
OTHER_CASES = ("tr", "az", "lt", "el")
# Options that have an effect, each with the literals under which the text is that of en-US in UTC.
ONLY = {
    "timeZone": ("UTC", "Etc/UTC", "GMT"),
    "style": ("decimal",),
    "notation": ("standard",),
    "calendar": ("gregory",),
    "numberingSystem": ("latn",),
    "hourCycle": ("h12",),
    "signDisplay": ("auto",),
    "usage": ("sort",),
    "caseFirst": ("false",),
    **dict.fromkeys(("currency", "unit", "dateStyle", "timeStyle", "weekday", "era", "dayPeriod", "timeZoneName"), ()),
    **dict.fromkeys(("hour", "minute", "second"), ()),
    **dict.fromkeys(("year", "month", "day"), ("numeric",)),
}
ONLY_TRUE = ("hour12",)
FEW = "is not available here: there is only en-US, with dates in UTC. Build the text in the program"
CALLS = re.compile(rb"\.\s*(" + "|".join(METHODS).encode() + rb")\s*\(")
MAX_PROBLEMS = 16


class LocaleCalls:
    """Looks through the trees of programs that name one of the methods. ``parts`` are this folder's, by name."""

    def __init__(self, symbols: dict[str, list[int]], parts: dict[str, Any]) -> None:
        self._symbols, self._parts = symbols, parts

    def problems(self, tree: Tree, data: bytes) -> list[tuple[int, str]]:
        """The place and the message of each literal argument that would be ignored, outside of any `try`."""
        if b"toLocale" not in data and b"localeCompare" not in data:
            return []
        calls = (_call_at(tree, match.start(1), match.end(1)) for match in CALLS.finditer(data))
        found = [problem for call in calls if call is not None and (problem := self._problem(call, data)) is not None]
        if not found:
            return []
        tries: list[tuple[int, int]] = self._parts["parse"].try_ranges(tree, data, self._symbols)
        outside = [one for one in found if not any(start <= one[0] < end for start, end in tries)]
        return outside[:MAX_PROBLEMS]

    def _problem(self, node: Node, data: bytes) -> tuple[int, str] | None:
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        name = None if callee is None or callee.type != "member_expression" else callee.child_by_field_name("property")
        method = "" if name is None else (name.text or b"").decode()
        if name is None or arguments is None or method not in METHODS or _is_declared(method, data):
            return None
        facts = self._parts["facts"]
        given = [child for child in arguments.children if child.is_named and child.type != "comment"]
        if any(child.type == "spread_element" for child in given):
            return None
        locales, options, *_ = [*given[METHODS[method] :], None, None]
        locale = None if locales is None else _first_text(facts, locales)
        if locale is not None and _is_foreign(method, locale):
            return name.start_byte, f"{method}: the locale {locale[:50]!r} {FEW}"
        option = None if options is None else _ignored_option(facts, options)
        return None if option is None else (name.start_byte, f"{method}: the option {option} {FEW}")


def _call_at(tree: Tree, start: int, end: int) -> Node | None:
    """The call of the member whose name stands there."""
    name = tree.root_node.descendant_for_byte_range(start, end)
    member = None if name is None or name.type != "property_identifier" else name.parent
    call = None if member is None or member.type != "member_expression" else member.parent
    return call if call is not None and call.type == "call_expression" else None


def _is_declared(method: str, data: bytes) -> bool:
    """Whether a program has a method of this name of its own."""
    return re.search(rb"(?<![\w$.])" + method.encode() + rb"\s*[(:=]|\." + method.encode() + rb"\s*=", data) is not None


def _first_text(facts: Any, node: Node) -> str | None:
    node = facts.unwrapped(node)
    if node.type == "array":
        first = facts.first_named(node)
        return None if first is None else facts.quoted_text(first)
    return facts.quoted_text(node)


def _is_foreign(method: str, locale: str) -> bool:
    language = locale[:2].lower()
    if method.endswith("Case"):
        return language in OTHER_CASES
    return language != "en" if method == "localeCompare" else locale.lower() not in ENGLISH


def _ignored_option(facts: Any, node: Node) -> str | None:
    """The first option of an object literal that is not what the engine does anyway."""
    node = facts.unwrapped(node)
    if node.type != "object":
        return None
    for child in node.children:
        name, value = facts.entry(child) if child.is_named and child.type == "pair" else (None, None)
        if name is None or value is None:
            continue
        value = facts.unwrapped(value)
        text = facts.quoted_text(value)
        if (text is not None and name in ONLY and text not in ONLY[name]) or (
            value.type == "false" and name in ONLY_TRUE
        ):
            return f"{name} ({(value.text or b'').decode()[:50]})"
    return None
