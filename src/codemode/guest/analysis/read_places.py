"""Finds the failed read where the engine records no position: from `this` or a literal.

Loaded by path in locked workers: imports nothing of the package. The engine names the last position before such a read,
or the beginning of its function. The read is then the first one behind that position, in the same function, that fits
the engine's message.
"""

from __future__ import annotations

import json
import re

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tree_sitter import Node, Tree

    Function = tuple[int, int, int, bool]  # first byte, first byte of the body, end, whether it makes a field


MAX_TEXT_BYTES = 256 << 10
MAX_CHAIN = 64
NO_OFFSET = -1  # what the engine says, as line 0, of the fields of a class before the first place in them
MAX_NEAR_BYTES = 2  # where the engine names the end of the statement before
TYPE_ERROR_PREFIX = 'X{"name":"TypeError","message":"'
STACK_KEY = '","stack":"'
PLACE = compile_lazily(r"program\.js:(\d{1,7}):(\d{1,7})")
READ = compile_lazily(r"cannot read property '(.{1,256})' of (?:undefined|null)", re.DOTALL)
ITERATION = ("cannot read property 'Symbol.iterator' of ", "value is not iterable")
DESTRUCTURING = "Cannot convert undefined or null to object"

FUNCTIONS = (
    *("arrow_function", "function_declaration", "function_expression", "generator_function"),
    *("generator_function_declaration", "method_definition", "public_field_definition", "class_static_block"),
)
READS = ("member_expression", "subscript_expression")
ITERATING_NODES = (
    "for_in_statement",
    "spread_element",
    "variable_declarator",
    "assignment_expression",
    "yield_expression",
)
DESTRUCTURING_NODES = ("variable_declarator", "assignment_expression", "required_parameter", "assignment_pattern")
WRAPPERS = ("parenthesized_expression", "non_null_expression", "as_expression", "satisfies_expression")
# Beginnings of a chain without a position. Names, calls and `await` have a position.
UNPLACED_NODES = (
    *("this", "super", "null", "true", "false", "number", "string", "template_string", "regex", "array", "object"),
    *("meta_property", "undefined", "function_expression", "arrow_function", "class", "generator_function"),
)
LITERAL_NODES = ("string", "number")


class ErrorLocationCorrector:
    """Corrects the line in which a program says what it threw. ``parts`` are this folder's, by name."""

    def __init__(self, symbols: dict[str, list[int]], parts: dict[str, Any]) -> None:
        self._symbols, self._parse, self._places = symbols, parts["parse"], parts["source_positions"]
        self._repair = parts["program_repair"]

    def correct_error_location(
        self, line: str, text: str, parse: Callable[[bytes], Tree | None], rows: list[list[int]] | None = None
    ) -> str:
        """Return the kernel's line about what was thrown, with another place where ``text`` shows a better one.

        ``rows`` are those of `program_repair.build_location_rows`, if the text was repaired.
        """
        stack = line.find(STACK_KEY) + len(STACK_KEY)
        reported = (
            PLACE.search(line, stack, line.find('"', stack))
            if line.startswith(TYPE_ERROR_PREFIX) and STACK_KEY in line
            else None
        )
        if reported is None:
            return line
        data = text.encode("utf-8", "replace")
        message = json.loads(line[1:])["message"]
        tree = parse(data) if len(data) <= MAX_TEXT_BYTES else None
        reported_place = int(reported[1]), int(reported[2])
        if rows is not None:
            reported_place = self._repair.to_repaired_location(*reported_place, rows)
        found_place = None if tree is None else self._find_location(tree, data, message, *reported_place)
        if found_place is None:
            return line
        if rows is not None:
            found_place = self._repair.to_source_location(*found_place, rows)
        return f"{line[: reported.start()]}program.js:{found_place[0]}:{found_place[1]}{line[reported.end() :]}"

    def _find_location(self, tree: Tree, data: bytes, message: str, line: int, column: int) -> tuple[int, int] | None:
        reported_offset = _to_byte_offset(data, line, column)
        if reported_offset is None or (kinds := _to_failing_node_kinds_and_property(message)) is None:
            return None
        search = _FailingNodeSearch(data, reported_offset, *kinds)
        names = (*FUNCTIONS, *READS, *ITERATING_NODES, *DESTRUCTURING_NODES)
        handlers = self._parse.map_handlers_by_symbol(self._symbols, [dict.fromkeys(names, search.visit_node)])
        self._parse.walk_tree(tree, handlers)
        at = search.find_corrected_offset_or_none()
        return None if at is None else next(self._places.iterate_locations(data, [at]))


def _to_failing_node_kinds_and_property(message: str) -> tuple[tuple[str, ...], str] | None:
    """Return the kinds of nodes in which this may fail, and the name of the property that was read, if any."""
    if message.startswith(ITERATION):
        return ITERATING_NODES, ""
    if message.startswith(DESTRUCTURING):
        return DESTRUCTURING_NODES, ""
    read = READ.match(message)
    return None if read is None else (READS, read[1])


class _FailingNodeSearch:
    def __init__(self, data: bytes, reported_offset: int, kinds: tuple[str, ...], name: str) -> None:
        self._data, self._reported_offset, self._kinds, self._name = data, reported_offset, kinds, name.encode()
        self._functions: list[Function] = []
        self._open_functions: list[Function] = []
        self._candidates: list[tuple[int, int, Function | None]] = []  # first byte, byte to name, function
        self._is_place_right = False  # the engine's place is in such a read itself

    def visit_node(self, node: Node) -> bool:
        """Take the next node in document order."""
        while self._open_functions and self._open_functions[-1][2] <= node.start_byte:
            self._open_functions.pop()
        if node.type in self._kinds:
            if self._kinds is READS:
                self._visit_read(node)
            else:
                self._visit_iteration_or_destructuring(node)
        if node.type in FUNCTIONS:
            body = node.child_by_field_name("body") or node.child_by_field_name("value") or node
            is_field = node.type == "public_field_definition"
            self._open_functions.append((node.start_byte, body.start_byte, node.end_byte, is_field))
            self._functions.append(self._open_functions[-1])
        return True

    def find_corrected_offset_or_none(self) -> int | None:
        """Return the byte to name; None where the engine's place is right, or nothing fits."""
        if self._is_place_right:
            return None
        enclosing = [span for span in self._functions if span[0] <= self._reported_offset < span[2]]
        innermost = max(enclosing, default=None)
        fitting = [
            (start, at)
            for start, at, function in self._candidates
            if self._reported_offset <= start and self._may_contain_reported_location(function, innermost)
        ]
        if not fitting:
            return None
        start, at = min(fitting)
        is_near = (
            start - self._reported_offset <= MAX_NEAR_BYTES and b"\n" not in self._data[self._reported_offset : start]
        )
        return None if is_near else at

    def _may_contain_reported_location(self, function: Function | None, innermost: Function | None) -> bool:
        """Tell whether the engine's place may be of this function: in it, or on its first line and before its body."""
        if self._reported_offset == NO_OFFSET:
            return function is not None and function[3]
        if function == innermost:
            return True
        if function is None or self._reported_offset > function[1]:
            return False
        return self._data.count(b"\n", self._reported_offset, max(function[0], self._reported_offset)) == 0

    def _visit_read(self, node: Node) -> None:
        source = node.child_by_field_name("object")
        key = node.child_by_field_name("property") or node.child_by_field_name("index")
        if source is None or key is None:
            return
        is_computed = node.type == "subscript_expression" and key.type not in LITERAL_NODES
        if not is_computed and self._get_node_text(key).strip(b"'\"") != self._name:
            return
        if node.start_byte <= self._reported_offset < node.end_byte:
            self._is_place_right = True
        elif not is_computed and _has_no_engine_location(source):
            self._add_candidate(node, key.start_byte)

    def _visit_iteration_or_destructuring(self, node: Node) -> None:
        source = node.child_by_field_name("right") or node.child_by_field_name("value")
        if node.type in ("spread_element", "yield_expression"):
            source = node.named_children[-1] if node.named_child_count else None
        pattern = node.child_by_field_name("left") or node.child_by_field_name("name")
        pattern = pattern or node.child_by_field_name("pattern")
        pattern_kind = "object_pattern" if self._kinds is DESTRUCTURING_NODES else "array_pattern"
        if source is None or (node.type in DESTRUCTURING_NODES and (pattern is None or pattern.type != pattern_kind)):
            return
        if source.start_byte <= self._reported_offset < source.end_byte:
            self._is_place_right = True
        elif _has_no_engine_location(source):
            self._add_candidate(node, source.start_byte)

    def _add_candidate(self, node: Node, key_at: int) -> None:
        is_one_line = self._data.count(b"\n", node.start_byte, key_at) == 0
        at = node.start_byte if is_one_line else key_at
        self._candidates.append((node.start_byte, at, self._open_functions[-1] if self._open_functions else None))

    def _get_node_text(self, node: Node) -> bytes:
        return self._data[node.start_byte : node.end_byte]


def _has_no_engine_location(node: Node) -> bool:
    """Tell whether nothing in a chain of reads has a place that the engine would name."""
    at: Node | None = node
    for _ in range(MAX_CHAIN):
        if at is None or at.type in UNPLACED_NODES:
            return at is not None
        if at.type in WRAPPERS:
            at = at.named_children[0] if at.named_child_count else None
        elif at.type in READS:
            index = at.child_by_field_name("index")
            at = at.child_by_field_name("object") if index is None or index.type in LITERAL_NODES else None
        else:
            return False
    return False


def _to_byte_offset(data: bytes, line: int, column: int) -> int | None:
    """Return the byte of a place, or None for one that the text has not."""
    start = 0
    if line == 0:
        return NO_OFFSET
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
