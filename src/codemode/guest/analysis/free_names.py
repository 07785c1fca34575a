"""Collects names that a program uses and certainly does not declare.

Loaded by path in locked workers. Knows no tool and no surface: the host decides which names exist. Names that are
declared anywhere, tested with `typeof`, or used only in a `try` are left out.
"""

from __future__ import annotations

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tree_sitter import Node, Tree

MAX_NAMES = 64
MAX_USES = 64
MAX_PROGRAM_BYTES = 1 << 17
# Names of other hosts, found in every use; all other names are found where they are called.
OF_OTHER_HOSTS = (
    "AbortController", "Blob", "Buffer", "Bun", "Deno", "EventSource", "FormData", "Headers", "Intl", "Request",
    "Response", "Temporal", "WebSocket", "XMLHttpRequest", "axios", "clearInterval", "crypto", "document", "fetch",
    "localStorage", "navigator", "performance", "process", "require", "setImmediate", "setInterval", "setTimeout",
    "structuredClone", "tools", "window",
)  # fmt: skip
# Functions of the language, and its own words that a parenthesis may follow.
LANGUAGE_NAMES = frozenset(
    name.encode()
    for name in (
        "Object", "Function", "Error", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError",
        "URIError", "AggregateError", "Array", "parseInt", "parseFloat", "isNaN", "isFinite", "decodeURI",
        "decodeURIComponent", "encodeURI", "encodeURIComponent", "escape", "unescape", "Number", "Boolean",
        "String", "Symbol", "BigInt", "Date", "RegExp", "Proxy", "Map", "Set", "WeakMap", "WeakSet", "Promise",
        "btoa", "atob", "queueMicrotask", "eval", "if", "for", "while", "switch", "catch", "with", "function",
        "return", "typeof", "await", "void", "delete", "in", "of", "instanceof", "new", "super", "import", "throw",
        "yield", "else", "do", "case", "async",
    )
)  # fmt: skip
NAMES_OF_OTHER_HOSTS = frozenset(name.encode() for name in OF_OTHER_HOSTS)
NAMES_OF_OTHER_HOSTS_BUT_TOOLS = NAMES_OF_OTHER_HOSTS - {b"tools"}
OTHER_HOST_NAME = compile_lazily(
    rb"(?<![\w$.#\x80-\xff])(?:" + "|".join(OF_OTHER_HOSTS).encode() + rb")(?![\w$\x80-\xff])"
)
CALLED_NAME = compile_lazily(rb"(?<![\w$.#\x80-\xff])([A-Za-z_$][\w$]{0,99})\s*\(")
# Most names of a program's own; the others are told by the places where they stand.
DECLARED = compile_lazily(rb"(?<![\w$.])(?:const|let|var|function|class)\s+([\w$]+)")
WORD = compile_lazily(rb"[\w$\x80-\xff]+")
# Names that a program looks up before it uses them, or puts on the global object.
LOOKED_UP_NAME = compile_lazily(
    rb"""(?:globalThis|this|self)\s*(?:\?\.|\.)\s*([\w$]+)|["'`]([\w$]+)["'`]\s*(?:\]|in\b)"""
)
# A name's node under these parents is only read; with a field it is, where it is that field.
READING_PARENTS = {
    "call_expression": "function",
    "member_expression": "object",
    "subscript_expression": "object",
    "new_expression": "constructor",
    "arguments": "",
    "await_expression": "",
    "return_statement": "",
    "template_substitution": "",
    "spread_element": "",
    "expression_statement": "",
}
NON_NAME_NODES = (
    "comment", "property_identifier", "private_property_identifier", "string", "string_fragment", "template_string",
    "regex_pattern", "regex", "statement_identifier", "shorthand_property_identifier",
)  # fmt: skip


class UndefinedNameFinder:
    """Looks through the trees of programs. ``parts`` are this folder's, by name; ``symbols`` the grammar's."""

    def __init__(self, symbols: dict[str, list[int]], parts: dict[str, Any]) -> None:
        self._symbols, self._parts = symbols, parts

    def find_certainly_undefined_names(
        self, tree: Tree, data: bytes, *, has_tools: bool = False
    ) -> list[dict[str, Any]]:
        """The names that are certainly not there, each ``{"name", "called", "at"}`` with the place of its first use.

        Uses in a `try` do not count. ``has_tools`` leaves out the name `tools`, which nearly every program has.
        """
        known = NAMES_OF_OTHER_HOSTS_BUT_TOOLS if has_tools else NAMES_OF_OTHER_HOSTS
        # Most programs name none of them, and the search for each costs as much as all else here.
        other_host_names = [] if known.isdisjoint(WORD.findall(data)) else OTHER_HOST_NAME.findall(data)
        names = [name for name in dict.fromkeys(other_host_names) if name in known]
        names += [
            name
            for name in dict.fromkeys(CALLED_NAME.findall(data))
            if name not in LANGUAGE_NAMES and name not in names
        ]
        if not names or len(data) > MAX_PROGRAM_BYTES:
            return []
        declared = set(DECLARED.findall(data))
        names = [name for name in names if name not in declared][:MAX_NAMES]
        if not names:
            return []
        offsets_by_name: dict[bytes, list[int]] = {name: [] for name in names}
        for match in WORD.finditer(data):
            if match[0] in offsets_by_name:
                offsets_by_name[match[0]].append(match.start())
        for match in LOOKED_UP_NAME.finditer(data):
            offsets_by_name.pop(match[1] or match[2], None)
        tries = self._parts["parse"].find_try_ranges(tree, data, self._symbols)
        uses = (
            _find_first_use_if_undefined(tree, name, at, tries)
            for name, at in offsets_by_name.items()
            if len(at) <= MAX_USES
        )
        return [use for use in uses if use is not None]


def _find_first_use_if_undefined(
    tree: Tree, name: bytes, offsets: list[int], tries: list[tuple[int, int]]
) -> dict[str, Any] | None:
    """The first use of a name outside of any `try`; None where the program may have it, or asks for it first."""
    first: dict[str, Any] | None = None
    for at in offsets:
        node = tree.root_node.descendant_for_byte_range(at, at + len(name))
        if node is None or node.type in NON_NAME_NODES:
            continue
        if node.type != "identifier" or node.byte_range != (at, at + len(name)):
            return None
        read_field = _get_parent_field_if_only_read(node)
        if read_field is None:
            return None
        if first is None and not any(start <= at < end for start, end in tries):
            first = {"name": name.decode(), "called": read_field == "function", "at": at}
    return first


def _get_parent_field_if_only_read(node: Node) -> str | None:
    """As which field a name is only read; None where it may be declared, assigned or asked for."""
    parent = node.parent
    field = None if parent is None else READING_PARENTS.get(parent.type)
    if parent is None or field is None:
        return None
    child = parent.child_by_field_name(field) if field else node
    return field if child is not None and child.byte_range == node.byte_range else None
