"""Reports literal locales and options that the engine does not support.

Loaded by path in locked workers. A computed argument throws when the call runs: `kernel/locale.js` accepts the same
values.
"""

from __future__ import annotations

import re

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tree_sitter import Node, Tree

# Which argument of each method is the locale.
LOCALE_ARGUMENT_INDEX = {
    "toLocaleString": 0,
    "toLocaleDateString": 0,
    "toLocaleTimeString": 0,
    "toLocaleLowerCase": 0,
    "toLocaleUpperCase": 0,
    "localeCompare": 1,
}
ENGLISH_LOCALES = ("en", "en-us")
# Letters of these have other cases than everywhere else.
LANGUAGES_WITH_OTHER_CASES = ("tr", "az", "lt", "el")
# Options that have an effect, each with the literals under which the text is that of en-US in UTC.
SUPPORTED_OPTION_VALUES = {
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
TRUE_ONLY_OPTIONS = ("hour12",)
UNSUPPORTED = "is not available here: there is only en-US, with dates in UTC. Build the text in the program"
LOCALE_CALL = compile_lazily(rb"\.\s*(" + "|".join(LOCALE_ARGUMENT_INDEX).encode() + rb")\s*\(")
MAX_PROBLEMS = 16


class LocaleCallCheck:
    """Looks through the trees of programs that name one of the methods. ``parts`` are this folder's, by name."""

    def __init__(self, symbols: dict[str, list[int]], parts: dict[str, Any]) -> None:
        self._symbols, self._parts = symbols, parts

    def find_problems(self, tree: Tree, data: bytes) -> list[tuple[int, str]]:
        """The place and the message of each literal argument that would be ignored, outside of any `try`."""
        if b"toLocale" not in data and b"localeCompare" not in data:
            return []
        calls = (_find_call_of_member(tree, match.start(1), match.end(1)) for match in LOCALE_CALL.finditer(data))
        problems_found = [
            problem
            for call in calls
            if call is not None and (problem := self._find_call_problem(call, data)) is not None
        ]
        if not problems_found:
            return []
        tries: list[tuple[int, int]] = self._parts["parse"].find_try_ranges(tree, data, self._symbols)
        outside = [found for found in problems_found if not any(start <= found[0] < end for start, end in tries)]
        return outside[:MAX_PROBLEMS]

    def _find_call_problem(self, node: Node, data: bytes) -> tuple[int, str] | None:
        callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        name = None if callee is None or callee.type != "member_expression" else callee.child_by_field_name("property")
        method = "" if name is None else (name.text or b"").decode()
        if name is None or arguments is None or method not in LOCALE_ARGUMENT_INDEX or _defines_method(method, data):
            return None
        facts = self._parts["facts"]
        argument_nodes = [child for child in arguments.children if child.is_named and child.type != "comment"]
        if any(child.type == "spread_element" for child in argument_nodes):
            return None
        locales, options, *_ = [*argument_nodes[LOCALE_ARGUMENT_INDEX[method] :], None, None]
        locale = None if locales is None else _read_first_locale(facts, locales)
        if locale is not None and _is_unsupported_locale(method, locale):
            return name.start_byte, f"{method}: the locale {locale[:50]!r} {UNSUPPORTED}"
        option = None if options is None else _find_unsupported_option(facts, options)
        return None if option is None else (name.start_byte, f"{method}: the option {option} {UNSUPPORTED}")


def _find_call_of_member(tree: Tree, start: int, end: int) -> Node | None:
    """The call of the member whose name stands there."""
    name = tree.root_node.descendant_for_byte_range(start, end)
    member = None if name is None or name.type != "property_identifier" else name.parent
    call = None if member is None or member.type != "member_expression" else member.parent
    return call if call is not None and call.type == "call_expression" else None


def _defines_method(method: str, data: bytes) -> bool:
    """Return whether a program has a method of this name of its own."""
    return re.search(rb"(?<![\w$.])" + method.encode() + rb"\s*[(:=]|\." + method.encode() + rb"\s*=", data) is not None


def _read_first_locale(facts: Any, node: Node) -> str | None:
    node = facts.unwrap_parentheses_and_types(node)
    if node.type == "array":
        first = facts.find_first_named_non_comment_child(node)
        return None if first is None else facts.read_string_literal(first)
    return facts.read_string_literal(node)


def _is_unsupported_locale(method: str, locale: str) -> bool:
    language = locale[:2].lower()
    if method.endswith("Case"):
        return language in LANGUAGES_WITH_OTHER_CASES
    return language != "en" if method == "localeCompare" else locale.lower() not in ENGLISH_LOCALES


def _find_unsupported_option(facts: Any, node: Node) -> str | None:
    """The first option of an object literal that is not what the engine does anyway."""
    node = facts.unwrap_parentheses_and_types(node)
    if node.type != "object":
        return None
    for child in node.children:
        name, value = facts.read_object_entry(child) if child.is_named and child.type == "pair" else (None, None)
        if name is None or value is None:
            continue
        value = facts.unwrap_parentheses_and_types(value)
        text = facts.read_string_literal(value)
        if (text is not None and name in SUPPORTED_OPTION_VALUES and text not in SUPPORTED_OPTION_VALUES[name]) or (
            value.type == "false" and name in TRUE_ONLY_OPTIONS
        ):
            return f"{name} ({(value.text or b'').decode()[:50]})"
    return None
