"""Collects the fields of a tool's result that a program certainly reads unchecked.

Loaded by path in locked workers: imports nothing of the package. Fields that the program tests before it relies on them
(`if (result.error)`, `result.next ?? ""`, `const { error } = ...; if (error)`) are no facts, nor are results that
other code could have changed. Other reads are reported together with these tests: they may never run.
"""

from __future__ import annotations

import re

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tree_sitter import Node

    from .parse import Handler

MAX_RESULTS = 64
MAX_READS = 256
MAX_USES = 128
MAX_ALL_USES = 2048
MAX_NAME_SEARCHES = 128
MAX_PARENTS = 16
MAX_BYTES_BEFORE_CALL = 64
MAX_GUARDS = 8
MAX_TRIES = 64
MAX_FUNCTIONS = 256
BEFORE_CALL = b"( \t\r\n"
MAX_NAME_BYTES = 256

WRAPPERS = ("parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression")
OPERATIONS = ("binary_expression", "augmented_assignment_expression")
GUARD_OPERATORS = ("||", "&&", "??", "||=", "&&=", "??=", "==", "===", "!=", "!==", "in", "instanceof")
# Comparisons that are false for a missing field; none of them throws.
ORDER_OPERATORS = ("<", "<=", ">", ">=")
GUARD_STATEMENTS = (
    "if_statement",
    "while_statement",
    "do_statement",
    "for_statement",
    "switch_statement",
    "switch_case",
)
# Calls that only ask what a value is, and those of a name that surely take it for granted.
TYPE_CHECK_CALLS = (
    b"Array.isArray",
    b"Boolean",
    b"Number.isFinite",
    b"Number.isInteger",
    b"Number.isNaN",
    b"isFinite",
    b"isNaN",
)
CONVERSION_CALLS = (b"BigInt", b"Number", b"String", b"parseFloat", b"parseInt", b"encodeURIComponent")
PROPERTY_CHECKS = (b"hasOwnProperty", b"propertyIsEnumerable")
# Methods that only ask so, and those whose arguments are surely taken for granted, by what they are methods of.
CHECK_METHODS = (b"has", b"includes", b"indexOf", b"is", b"lastIndexOf", b"test")
TRUSTING_OBJECTS = (b"tools", b"Date", b"JSON", b"Math", b"Object", b"console")
ASSIGNMENT_NODES = (
    "assignment_expression",
    "augmented_assignment_expression",
    "update_expression",
    "for_in_statement",
    *("array_pattern", "pair_pattern", "assignment_pattern", "rest_pattern"),
)
# Contexts that allow a missing value: the caller or a catch may test it.
DOUBTFUL_PARENTS = ("arrow_function", "throw_statement")
# Contexts that only read.
READING_PARENTS = ("pair", "return_statement", "template_substitution")
ROLE_BY_PARENT = {
    **dict.fromkeys(GUARD_STATEMENTS, "guarded"),
    **dict.fromkeys(DOUBTFUL_PARENTS, "doubtful"),
    **dict.fromkeys(READING_PARENTS, "read"),
    "variable_declarator": "renamed",
}
PASSED_ON_PARENTS = ("arguments", *READING_PARENTS)
# Parents that give a name another meaning.
NON_NAME_NODES = ("property_identifier", "string_fragment", "comment", "statement_identifier", "regex_pattern")
# Functions that get the whole and change nothing in it.
CONSOLE_METHODS = (b"console.log", b"console.info", b"console.warn", b"console.error")
FUNCTIONS = ("arrow_function", "function_declaration", "function_expression", "method_definition")
# An exception of a function may be caught at its call.
CATCHING_CALL = compile_lazily(rb"\.\s*(?:catch|allSettled)\b")


class TrackedToolResult:
    """One result: the fields that the program reads, and those that it tests.

    A read is a field, its name in the program from there, and whether it is doubtful: the function that gets it may
    test it.
    """

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.reads: list[tuple[Node, Node | None, bool]] = []
        self.guarded_fields: set[bytes] = set()

    def try_record_member_read(self, member: Node) -> bool:
        """Take a member of the result; False where something may be put there."""
        field, role = member.child_by_field_name("property"), _find_use_role(member)
        if field is None or role == "target" or field.text in PROPERTY_CHECKS:
            return False
        if role == "guarded" or _get_plain_property(member) is None:
            self.guarded_fields.add(field.text or b"")
        else:
            self.reads.append((field, _find_local_name(member), role == "doubtful"))
        return True


class ResultReadCollector:
    """Collects one program's reads; it hears of each call of a tool."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._results_left = MAX_RESULTS
        self._results: list[TrackedToolResult] = []
        self._constants: list[tuple[Node, TrackedToolResult]] = []
        self._try_spans: list[tuple[int, int]] = []  # the bodies of `try` statements that catch
        self._function_spans: list[tuple[int, int]] = []
        self._searches_left, self._uses_left = MAX_NAME_SEARCHES, MAX_ALL_USES

    def get_handlers_by_kind(self) -> dict[str, Handler]:
        """Handlers by node kind; each returns whether the walk enters the node."""
        functions = dict.fromkeys(FUNCTIONS, self._on_function)
        return {"program": self._on_program, "try_statement": self._on_try, **functions}

    def on_tool_call(self, call: Node, tool: str, data: bytes) -> None:
        """Hear of a call of a tool by its literal name in ``data``, the program."""
        self._results_left -= 1
        start = call.start_byte
        if not data[max(0, start - MAX_BYTES_BEFORE_CALL) : start].rstrip(BEFORE_CALL).endswith(b"await"):
            return
        awaited, outer = _find_outermost_wrapper_and_parent(call)
        if self._results_left < 0 or outer is None or outer.type != "await_expression":
            return
        awaited, parent_node = _find_outermost_wrapper_and_parent(outer)
        if parent_node is None:
            return
        result = TrackedToolResult(tool)
        if parent_node.type == "member_expression" and _is_child_field(parent_node, "object", awaited):
            if result.try_record_member_read(parent_node):
                self._results.append(result)
        elif parent_node.type == "variable_declarator" and _is_child_field(parent_node, "value", awaited):
            self._record_declarator(parent_node, result)

    def find_unguarded_reads(self, data: bytes) -> list[dict[str, Any]]:
        """Return ``[{"tool", "name", "at"}]``, the places as byte offsets; ``data`` is the program.

        ``"asked"`` are the names of the same result that the program tests; ``"doubtful"`` is set where a function that
        gets a field may test it, or where a failure is caught.
        """
        if len(self._try_spans) >= MAX_TRIES or len(self._function_spans) >= MAX_FUNCTIONS:
            self._try_spans = [(0, len(data))]
        elif self._try_spans or CATCHING_CALL.search(data):
            self._try_spans += self._function_spans
        is_plain = b"\\u" not in data  # else a name may be written in another way
        for name, result in self._constants if is_plain else ():
            uses = self._find_uses_and_count_limit(data, name)
            if uses is not None and all(_try_record_use(use, result) for use in uses):
                self._results.append(result)
        return [fact for result in self._results for fact in self._resolve_unguarded_reads(result, data, is_plain)][
            :MAX_READS
        ]

    def _on_program(self, node: Node) -> bool:
        self._root = node
        return True

    def _on_try(self, node: Node) -> bool:
        body = node.child_by_field_name("body")
        if body is not None and node.child_by_field_name("handler") is not None and len(self._try_spans) < MAX_TRIES:
            self._try_spans.append((body.start_byte, body.end_byte))
        return True

    def _on_function(self, node: Node) -> bool:
        if len(self._function_spans) < MAX_FUNCTIONS:
            self._function_spans.append((node.start_byte, node.end_byte))
        return True

    def _record_declarator(self, declarator: Node, result: TrackedToolResult) -> None:
        name, statement = declarator.child_by_field_name("name"), declarator.parent
        if name is None or statement is None:
            return
        if name.type == "object_pattern":
            result.reads += _list_destructured_fields(name)
            self._results.append(result)
        elif name.type == "identifier" and statement.type == "lexical_declaration":
            kind = statement.child_by_field_name("kind")
            if kind is not None and kind.type == "const":
                self._constants.append((name, result))

    def _find_uses_and_count_limit(self, data: bytes, name: Node) -> list[Node] | None:
        """The other places of a name; None of what has too many, and behind too many names."""
        self._searches_left -= 1
        if self._searches_left < 0:
            return None
        text = re.escape(name.text or b"")
        matches = list(re.finditer(rb"(?<![\w$\x80-\xff])" + text + rb"(?![\w$\x80-\xff])", data))
        self._uses_left -= len(matches)
        if self._root is None or len(matches) > MAX_USES or self._uses_left < 0:
            return None
        uses = [self._root.descendant_for_byte_range(place.start(), place.end()) for place in matches]
        return [use for use in uses if use is not None and _is_name_use(use) and use.start_byte != name.start_byte]

    def _resolve_unguarded_reads(self, result: TrackedToolResult, data: bytes, is_plain: bool) -> list[dict[str, Any]]:
        reads: list[tuple[Node, bool]] = []
        for field, local, is_doubtful in result.reads:
            uses = None if local is None or not is_plain else self._find_uses_and_count_limit(data, local)
            roles = {_find_use_role(use) for use in uses or ()}
            if not roles.isdisjoint(("guarded", "target")):
                result.guarded_fields.add(field.text or b"")
            is_lost = (uses is None and local is not None) or not roles.isdisjoint(("doubtful", "renamed"))
            reads.append((field, is_doubtful or is_lost or self._may_failure_be_caught(field)))
        guarded_names = [name.decode() for name in sorted(result.guarded_fields) if len(name) <= MAX_NAME_BYTES][
            :MAX_GUARDS
        ]
        return [
            {
                "tool": result.tool,
                "name": (field.text or b"").decode(),
                "at": field.start_byte,
                **({"asked": guarded_names} if guarded_names else {}),
                **({"doubtful": True} if is_doubtful else {}),
            }
            for field, is_doubtful in reads
            if field.text not in result.guarded_fields
        ]

    def _may_failure_be_caught(self, field: Node) -> bool:
        return any(start <= field.start_byte < end for start, end in self._try_spans)


def _is_name_use(node: Node) -> bool:
    return node.type not in NON_NAME_NODES


def _try_record_use(use: Node, result: TrackedToolResult) -> bool:
    """Take the fields that one use of a result reads; False where it may do anything else with it."""
    inner, parent_node = _find_outermost_wrapper_and_parent(use)
    if use.type != "identifier" or parent_node is None:
        return False
    if parent_node.type == "member_expression" and _is_child_field(parent_node, "object", inner):
        return result.try_record_member_read(parent_node)
    if parent_node.type == "variable_declarator" and _is_child_field(parent_node, "value", inner):
        pattern = parent_node.child_by_field_name("name")
        if pattern is None or pattern.type != "object_pattern":
            return False
        result.reads += _list_destructured_fields(pattern)
        return True
    if parent_node.type == "arguments" and parent_node.parent is not None:
        callee = parent_node.parent.child_by_field_name("function")
        if callee is None or callee.text != b"JSON.stringify":
            return callee is not None and callee.text in CONSOLE_METHODS
        return _is_value_passed_on(parent_node.parent)  # a program may look for a name in the text
    return parent_node.type == "return_statement"


def _find_local_name(member: Node) -> Node | None:
    """The name that a program gives to what it reads there."""
    inner, parent_node = _find_outermost_wrapper_and_parent(member)
    if (
        parent_node is None
        or parent_node.type != "variable_declarator"
        or not _is_child_field(parent_node, "value", inner)
    ):
        return None
    name = parent_node.child_by_field_name("name")
    return name if name is not None and name.type == "identifier" else None


def _is_value_passed_on(node: Node) -> bool:
    return getattr(_find_outermost_wrapper_and_parent(node)[1], "type", "") in PASSED_ON_PARENTS


def _find_outermost_wrapper_and_parent(node: Node) -> tuple[Node, Node | None]:
    """The node with the parentheses and types around it, and what holds that."""
    for _ in range(MAX_PARENTS):
        parent = node.parent
        if parent is None or parent.type not in WRAPPERS:
            return node, parent
        node = parent
    return node, None


def _is_child_field(parent_node: Node, field: str, node: Node) -> bool:
    found = parent_node.child_by_field_name(field)
    return found is not None and (found.start_byte, found.end_byte) == (node.start_byte, node.end_byte)


def _get_plain_property(member: Node) -> Node | None:
    """The property of `a.b`; None of what is conditional, long, private or written with escapes."""
    field = member.child_by_field_name("property")
    if field is None or field.type != "property_identifier" or member.child_by_field_name("optional_chain") is not None:
        return None
    return field if _is_plain_name(field) else None


def _is_plain_name(name: Node) -> bool:
    """Return whether a name is short, and written without escapes."""
    return name.end_byte - name.start_byte <= MAX_NAME_BYTES and b"\\" not in (name.text or b"")


def _find_use_role(node: Node) -> str:
    """Return where a field, or a name that has it, stands.

    "target": something is put there; "guarded": the program asks before it relies; "doubtful": perhaps; "renamed":
    it has another name from then on; else "read".
    """
    inner, parent_node = _find_outermost_wrapper_and_parent(node)
    if parent_node is None:
        return "target"
    kind = parent_node.type
    if kind in ROLE_BY_PARENT:
        return ROLE_BY_PARENT[kind]
    if kind in ("arguments", "array"):
        return _find_role_in_container(parent_node)
    if kind in ASSIGNMENT_NODES:
        is_left = any(_is_child_field(parent_node, side, inner) for side in ("left", "value", "argument"))
        if is_left or kind in ("array_pattern", "rest_pattern"):
            return "target"
        if kind == "assignment_expression":
            return "doubtful"
    operator = parent_node.child_by_field_name("operator")
    if kind == "unary_expression":
        return "target" if operator is not None and operator.type == "delete" else "guarded"
    if operator is not None and kind in OPERATIONS:
        return (
            "guarded"
            if operator.type in GUARD_OPERATORS
            else "doubtful"
            if operator.type in ORDER_OPERATORS
            else "read"
        )
    if kind == "ternary_expression":
        return "guarded" if _is_child_field(parent_node, "condition", inner) else "read"
    if kind == "spread_element":
        return "doubtful" if getattr(parent_node.parent, "type", "") == "object" else "read"
    return "guarded" if any(child.type in ("?.", "optional_chain") for child in parent_node.children[:3]) else "read"


def _find_role_in_container(container: Node) -> str:
    """Return the role of an argument of a call, or of an element of an array, as `_find_use_role` does."""
    parent = container.parent
    if parent is None:
        return "doubtful"
    if container.type == "array":
        return "read" if parent.type in ("return_statement", "array", "pair") else "doubtful"
    callee = parent.child_by_field_name("function")
    if callee is None:  # what is made with `new`
        return (
            "doubtful"
            if getattr(_find_outermost_wrapper_and_parent(parent)[1], "type", "") in DOUBTFUL_PARENTS
            else "read"
        )
    if callee.type == "member_expression":
        owner, method = callee.child_by_field_name("object"), callee.child_by_field_name("property")
        if callee.text in TYPE_CHECK_CALLS or (method is not None and method.text in CHECK_METHODS):
            return "guarded"
        return "read" if owner is not None and owner.text in TRUSTING_OBJECTS else "doubtful"
    return (
        "guarded"
        if callee.text in TYPE_CHECK_CALLS
        else "read"
        if callee.text in CONVERSION_CALLS and _is_value_passed_on(parent)
        else "doubtful"
    )


def _list_destructured_fields(pattern: Node) -> list[tuple[Node, Node | None, bool]]:
    """The names that a pattern takes without a value in their place, as `TrackedToolResult.reads` has them."""
    fields: list[tuple[Node, Node | None, bool]] = []
    for child in pattern.children:
        field: Node | None = child if child.type == "shorthand_property_identifier_pattern" else None
        local = field
        if child.type == "pair_pattern":
            key, value = child.child_by_field_name("key"), child.child_by_field_name("value")
            is_sure = key is not None and key.type == "property_identifier"
            field = key if is_sure and value is not None and value.type != "assignment_pattern" else None
            local = value if value is not None and value.type == "identifier" else None
        if field is not None and _is_plain_name(field):
            fields.append((field, local, False))
    return fields
