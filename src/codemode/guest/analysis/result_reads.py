"""Collects which fields of a tool's result a program certainly reads, and takes for granted.

Loaded by path in locked workers: imports nothing of the package. What the program asks for before it relies on it
(`if (result.error)`, `result.next ?? ""`) is no fact, nor is a result that anything else could have changed.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tree_sitter import Node

    from .parse import Handler

MAX_RESULTS = 64
MAX_READS = 256
MAX_USES = 128
MAX_CLIMB = 16
MAX_BEFORE = 64
BEFORE_CALL = b"( \t\r\n"
MAX_NAME_BYTES = 256

WRAPPERS = ("parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression")
GUARDS = ("||", "&&", "??", "==", "===", "!=", "!==", "in", "instanceof")
GUARDED = ("if_statement", "while_statement", "do_statement")
TARGETS = (
    "assignment_expression",
    "augmented_assignment_expression",
    "update_expression",
    "for_in_statement",
    "array_pattern",
    "pair_pattern",
    "assignment_pattern",
    "rest_pattern",
)
# Where nothing but reading is meant.
PLAIN_HOLDERS = ("arguments", "array", "pair", "return_statement", "template_substitution", "variable_declarator")
# What a name stands in that means something else.
OTHER_WORDS = ("property_identifier", "string_fragment", "comment", "statement_identifier", "regex_pattern")
# Who is given the whole and changes nothing of it.
READERS = (b"console.log", b"console.info", b"console.warn", b"console.error", b"JSON.stringify")


class ResultReads:
    """Collects one program's reads; it hears of each call of a tool."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._results_left = MAX_RESULTS
        self._reads: list[dict[str, Any]] = []
        self._constants: list[tuple[Node, str]] = []

    def handlers(self) -> dict[str, Handler]:
        """Handlers by node kind; each tells whether the walk goes on into the node."""
        return {"program": self._program}

    def see(self, call: Node, tool: str, data: bytes) -> None:
        """Hear of a call of a tool by its literal name in ``data``, the program."""
        self._results_left -= 1
        start = call.start_byte
        if not data[max(0, start - MAX_BEFORE) : start].rstrip(BEFORE_CALL).endswith(b"await"):
            return
        awaited, outer = _outside(call)
        if self._results_left < 0 or outer is None or outer.type != "await_expression":
            return
        awaited, holder = _outside(outer)
        if holder is None:
            return
        if holder.type == "member_expression" and _is_field(holder, "object", awaited):
            field = _read_field(holder)
            if field is not None and _standing(holder) == "read":
                self._add(tool, field)
        elif holder.type == "variable_declarator" and _is_field(holder, "value", awaited):
            self._declared(holder, tool)

    def reads(self, data: bytes) -> list[dict[str, Any]]:
        """``[{"tool", "name", "at"}]``, the places as byte offsets; ``data`` is the program."""
        if b"\\u" not in data:  # else a name may be written in another way
            for name, tool in self._constants:
                self._of_constant(data, name, tool)
        return self._reads[:MAX_READS]

    def _program(self, node: Node) -> bool:
        self._root = node
        return True

    def _add(self, tool: str, field: Node) -> None:
        self._reads.append({"tool": tool, "name": (field.text or b"").decode(), "at": field.start_byte})

    def _declared(self, declarator: Node, tool: str) -> None:
        name, statement = declarator.child_by_field_name("name"), declarator.parent
        if name is None or statement is None:
            return
        if name.type == "object_pattern":
            for field in _pattern_fields(name):
                self._add(tool, field)
        elif name.type == "identifier" and statement.type == "lexical_declaration":
            kind = statement.child_by_field_name("kind")
            if kind is not None and kind.type == "const":
                self._constants.append((name, tool))

    def _of_constant(self, data: bytes, name: Node, tool: str) -> None:
        text = re.escape(name.text or b"")
        found = list(re.finditer(rb"(?<![\w$\x80-\xff])" + text + rb"(?![\w$\x80-\xff])", data))
        if self._root is None or len(found) > MAX_USES:
            return
        fields: list[Node] = []
        guarded: set[bytes | None] = set()
        for place in found:
            use = self._root.descendant_for_byte_range(place.start(), place.end())
            if use is None:
                return
            if use.type in OTHER_WORDS or use.start_byte == name.start_byte:
                continue
            if use.type != "identifier" or not _see_use(use, fields, guarded):
                return
        for field in fields:
            if field.text not in guarded:
                self._add(tool, field)


def _see_use(use: Node, fields: list[Node], guarded: set[bytes | None]) -> bool:
    """Take the fields that one use of a result reads; False where it may do anything else with it."""
    inner, holder = _outside(use)
    if holder is None:
        return False
    if holder.type == "member_expression" and _is_field(holder, "object", inner):
        field, standing = holder.child_by_field_name("property"), _standing(holder)
        if field is None or standing == "target":
            return False
        if standing == "guarded" or _read_field(holder) is None:
            guarded.add(field.text)
        else:
            fields.append(field)
        return True
    if holder.type == "variable_declarator" and _is_field(holder, "value", inner):
        pattern = holder.child_by_field_name("name")
        if pattern is None or pattern.type != "object_pattern":
            return False
        fields += _pattern_fields(pattern)
        return True
    if holder.type == "arguments" and holder.parent is not None:
        callee = holder.parent.child_by_field_name("function")
        return callee is not None and callee.text in READERS
    return holder.type == "return_statement"


def _outside(node: Node) -> tuple[Node, Node | None]:
    """The node with the parentheses and types around it, and what holds that."""
    for _ in range(MAX_CLIMB):
        parent = node.parent
        if parent is None or parent.type not in WRAPPERS:
            return node, parent
        node = parent
    return node, None


def _is_field(holder: Node, field: str, node: Node) -> bool:
    found = holder.child_by_field_name(field)
    return found is not None and (found.start_byte, found.end_byte) == (node.start_byte, node.end_byte)


def _read_field(member: Node) -> Node | None:
    """The property of `a.b`; None of what is conditional, long, private or written with escapes."""
    field = member.child_by_field_name("property")
    if field is None or field.type != "property_identifier" or member.child_by_field_name("optional_chain") is not None:
        return None
    return field if _is_plain(field) else None


def _is_plain(name: Node) -> bool:
    """Whether a name is short, and written without escapes."""
    return name.end_byte - name.start_byte <= MAX_NAME_BYTES and b"\\" not in (name.text or b"")


def _standing(member: Node) -> str:
    """Return "target" where something is put there, "guarded" where the program asks before it relies, else "read"."""
    inner, holder = _outside(member)
    kind = "" if holder is None else holder.type
    if holder is None or kind in PLAIN_HOLDERS:
        return "read" if holder is not None else "target"
    if kind in TARGETS:
        is_left = any(_is_field(holder, side, inner) for side in ("left", "value", "argument"))
        if is_left or kind in ("array_pattern", "rest_pattern"):
            return "target"
    if kind == "unary_expression":
        operator = holder.child_by_field_name("operator")
        return "target" if operator is not None and operator.type == "delete" else "guarded"
    if kind in GUARDED:
        return "guarded"
    if kind == "binary_expression":
        operator = holder.child_by_field_name("operator")
        return "guarded" if operator is None or operator.type in GUARDS else "read"
    if kind == "ternary_expression":
        return "guarded" if _is_field(holder, "condition", inner) else "read"
    return "guarded" if any(child.type in ("?.", "optional_chain") for child in holder.children[:3]) else "read"


def _pattern_fields(pattern: Node) -> list[Node]:
    """The names that a pattern takes without a value in their place."""
    fields: list[Node] = []
    for child in pattern.children:
        field: Node | None = child if child.type == "shorthand_property_identifier_pattern" else None
        if child.type == "pair_pattern":
            key, value = child.child_by_field_name("key"), child.child_by_field_name("value")
            is_sure = key is not None and key.type == "property_identifier"
            field = key if is_sure and value is not None and value.type != "assignment_pattern" else None
        if (
            field is not None
            and field.end_byte - field.start_byte <= MAX_NAME_BYTES
            and b"\\" not in (field.text or b"")
        ):
            fields.append(field)
    return fields
