"""Find the read that failed where the engine records no place for it: one from `this` or from a literal.

Loaded by path in locked workers: imports nothing of the package. The engine names the last place before such a read, or
the beginning of its function. The read is then the first one behind that place, in the same function, that fits the
engine's message.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tree_sitter import Node, Tree

    Function = tuple[int, int, int, bool]  # first byte, first byte of the body, end, whether it makes a field


MAX_TEXT_BYTES = 256 << 10
MAX_CHAIN = 64
NOWHERE = -1  # what the engine says, as line 0, of the fields of a class before the first place in them
NEAR_BYTES = 2  # where the engine names the end of the statement before
THREW = 'X{"name":"TypeError","message":"'
STACK = '","stack":"'
PLACE = re.compile(r"program\.js:(\d{1,7}):(\d{1,7})")
READ = re.compile(r"cannot read property '(.{1,256})' of (?:undefined|null)", re.DOTALL)
ITERATION = ("cannot read property 'Symbol.iterator' of ", "value is not iterable")
DESTRUCTURING = "Cannot convert undefined or null to object"

FUNCTIONS = (
    *("arrow_function", "function_declaration", "function_expression", "generator_function"),
    *("generator_function_declaration", "method_definition", "public_field_definition", "class_static_block"),
)
READS = ("member_expression", "subscript_expression")
ITERATED = ("for_in_statement", "spread_element", "variable_declarator", "assignment_expression", "yield_expression")
DESTRUCTURED = ("variable_declarator", "assignment_expression", "required_parameter", "assignment_pattern")
WRAPPERS = ("parenthesized_expression", "non_null_expression", "as_expression", "satisfies_expression")
# What a chain may begin with that has no place of its own. Names, calls and `await` have one.
UNPLACED = (
    *("this", "super", "null", "true", "false", "number", "string", "template_string", "regex", "array", "object"),
    *("meta_property", "undefined", "function_expression", "arrow_function", "class", "generator_function"),
)
LITERALS = ("string", "number")


class ReadPlaces:
    """Corrects the line in which a program says what it threw. ``parts`` are this folder's, by name."""

    def __init__(self, symbols: dict[str, list[int]], parts: dict[str, Any]) -> None:
        self._symbols, self._parse, self._places = symbols, parts["parse"], parts["places"]
        self._repair = parts["program_repair"]

    def corrected(
        self, line: str, text: str, parse: Callable[[bytes], Tree | None], rows: list[list[int]] | None = None
    ) -> str:
        """Return the kernel's line about what was thrown, with another place where ``text`` shows a better one.

        ``rows`` are those of `program_repair.places`, where the kernel says places of the text that was repaired.
        """
        stack = line.find(STACK) + len(STACK)
        told = PLACE.search(line, stack, line.find('"', stack)) if line.startswith(THREW) and STACK in line else None
        if told is None:
            return line
        data = text.encode("utf-8", "replace")
        message = json.loads(line[1:])["message"]
        tree = parse(data) if len(data) <= MAX_TEXT_BYTES else None
        at = int(told[1]), int(told[2])
        if rows is not None:
            at = self._repair.place_in_program(*at, rows)
        place = None if tree is None else self._place(tree, data, message, *at)
        if place is None:
            return line
        if rows is not None:
            place = self._repair.place_in_source(*place, rows)
        return f"{line[: told.start()]}program.js:{place[0]}:{place[1]}{line[told.end() :]}"

    def _place(self, tree: Tree, data: bytes, message: str, line: int, column: int) -> tuple[int, int] | None:
        told = _offset(data, line, column)
        if told is None or (kinds := _kinds(message)) is None:
            return None
        search = _Search(data, told, *kinds)
        names = (*FUNCTIONS, *READS, *ITERATED, *DESTRUCTURED)
        handlers = self._parse.handlers_by_symbol(self._symbols, [dict.fromkeys(names, search.see)])
        self._parse.walk(tree, handlers)
        at = search.found()
        return None if at is None else next(self._places.places(data, [at]))


def _kinds(message: str) -> tuple[tuple[str, ...], str] | None:
    """Return the kinds of nodes in which this may fail, and the name of the property that was read, if any."""
    if message.startswith(ITERATION):
        return ITERATED, ""
    if message.startswith(DESTRUCTURING):
        return DESTRUCTURED, ""
    read = READ.match(message)
    return None if read is None else (READS, read[1])


class _Search:
    def __init__(self, data: bytes, told: int, kinds: tuple[str, ...], name: str) -> None:
        self._data, self._told, self._kinds, self._name = data, told, kinds, name.encode()
        self._functions: list[Function] = []
        self._open: list[Function] = []
        self._candidates: list[tuple[int, int, Function | None]] = []  # first byte, byte to name, function
        self._is_right = False  # the engine's place is in such a read itself

    def see(self, node: Node) -> bool:
        """Take the next node in document order."""
        while self._open and self._open[-1][2] <= node.start_byte:
            self._open.pop()
        if node.type in self._kinds:
            if self._kinds is READS:
                self._see_read(node)
            else:
                self._see_source(node)
        if node.type in FUNCTIONS:
            body = node.child_by_field_name("body") or node.child_by_field_name("value") or node
            is_field = node.type == "public_field_definition"
            self._open.append((node.start_byte, body.start_byte, node.end_byte, is_field))
            self._functions.append(self._open[-1])
        return True

    def found(self) -> int | None:
        """Return the byte to name; None where the engine's place is right, or nothing fits."""
        if self._is_right:
            return None
        around = [one for one in self._functions if one[0] <= self._told < one[2]]
        innermost = max(around, default=None)
        fitting = [
            (start, at)
            for start, at, function in self._candidates
            if self._told <= start and self._fits(function, innermost)
        ]
        if not fitting:
            return None
        start, at = min(fitting)
        is_near = start - self._told <= NEAR_BYTES and b"\n" not in self._data[self._told : start]
        return None if is_near else at

    def _fits(self, function: Function | None, innermost: Function | None) -> bool:
        """Tell whether the engine's place may be of this function: in it, or on its first line and before its body."""
        if self._told == NOWHERE:
            return function is not None and function[3]
        if function == innermost:
            return True
        if function is None or self._told > function[1]:
            return False
        return self._data.count(b"\n", self._told, max(function[0], self._told)) == 0

    def _see_read(self, node: Node) -> None:
        source = node.child_by_field_name("object")
        key = node.child_by_field_name("property") or node.child_by_field_name("index")
        if source is None or key is None:
            return
        is_computed = node.type == "subscript_expression" and key.type not in LITERALS
        if not is_computed and self._text(key).strip(b"'\"") != self._name:
            return
        if node.start_byte <= self._told < node.end_byte:
            self._is_right = True
        elif not is_computed and _is_unplaced(source):
            self._add(node, key.start_byte)

    def _see_source(self, node: Node) -> None:
        source = node.child_by_field_name("right") or node.child_by_field_name("value")
        if node.type in ("spread_element", "yield_expression"):
            source = node.named_children[-1] if node.named_child_count else None
        pattern = node.child_by_field_name("left") or node.child_by_field_name("name")
        pattern = pattern or node.child_by_field_name("pattern")
        wanted = "object_pattern" if self._kinds is DESTRUCTURED else "array_pattern"
        if source is None or (node.type in DESTRUCTURED and (pattern is None or pattern.type != wanted)):
            return
        if source.start_byte <= self._told < source.end_byte:
            self._is_right = True
        elif _is_unplaced(source):
            self._add(node, source.start_byte)

    def _add(self, node: Node, key_at: int) -> None:
        is_one_line = self._data.count(b"\n", node.start_byte, key_at) == 0
        at = node.start_byte if is_one_line else key_at
        self._candidates.append((node.start_byte, at, self._open[-1] if self._open else None))

    def _text(self, node: Node) -> bytes:
        return self._data[node.start_byte : node.end_byte]


def _is_unplaced(node: Node) -> bool:
    """Tell whether nothing in a chain of reads has a place that the engine would name."""
    at: Node | None = node
    for _ in range(MAX_CHAIN):
        if at is None or at.type in UNPLACED:
            return at is not None
        if at.type in WRAPPERS:
            at = at.named_children[0] if at.named_child_count else None
        elif at.type in READS:
            index = at.child_by_field_name("index")
            at = at.child_by_field_name("object") if index is None or index.type in LITERALS else None
        else:
            return False
    return False


def _offset(data: bytes, line: int, column: int) -> int | None:
    """Return the byte of a place, or None for one that the text has not."""
    start = 0
    if line == 0:
        return NOWHERE
    for _ in range(line - 1):
        start = data.find(b"\n", start) + 1
        if start == 0:
            return None
    end = data.find(b"\n", start)
    text = data[start : None if end < 0 else end].decode()
    units, length = 0, 0
    for character in text:
        if units >= column - 1:
            break
        units += 2 if character > "\uffff" else 1
        length += len(character.encode())
    return start + length
