"""Collects which fields of a tool's result a program certainly reads, and takes for granted.

Loaded by path in locked workers: imports nothing of the package. What the program asks for before it relies on it
(`if (result.error)`, `result.next ?? ""`, `const { error } = ...; if (error)`) is no fact, nor is a result that
anything else could have changed. What it reads beside that is told with what it asks for: it may never get there.
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
MAX_ALL_USES = 2048
MAX_LOOKS = 128
MAX_CLIMB = 16
MAX_BEFORE = 64
MAX_GUARDS = 8
MAX_TRIES = 64
MAX_FUNCTIONS = 256
BEFORE_CALL = b"( \t\r\n"
MAX_NAME_BYTES = 256

WRAPPERS = ("parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression")
OPERATIONS = ("binary_expression", "augmented_assignment_expression")
GUARDS = ("||", "&&", "??", "||=", "&&=", "??=", "==", "===", "!=", "!==", "in", "instanceof")
# What is false of a field that is not there, and fails of none.
ORDERS = ("<", "<=", ">", ">=")
GUARDED = ("if_statement", "while_statement", "do_statement", "for_statement", "switch_statement", "switch_case")
# Calls that only ask what a value is, and those of a name that surely take it for granted.
ASKING = (b"Array.isArray", b"Boolean", b"Number.isFinite", b"Number.isInteger", b"Number.isNaN", b"isFinite", b"isNaN")
TAKING = (b"BigInt", b"Number", b"String", b"parseFloat", b"parseInt", b"encodeURIComponent")
OWN_ASKING = (b"hasOwnProperty", b"propertyIsEnumerable")
# Methods that only ask so, and those whose arguments are surely taken for granted, by what they are methods of.
ASKING_METHODS = (b"has", b"includes", b"indexOf", b"is", b"lastIndexOf", b"test")
TAKERS = (b"tools", b"Date", b"JSON", b"Math", b"Object", b"console")
TARGETS = (
    "assignment_expression",
    "augmented_assignment_expression",
    "update_expression",
    "for_in_statement",
    *("array_pattern", "pair_pattern", "assignment_pattern", "rest_pattern"),
)
# Where what is not there may be meant: whoever calls or catches it may ask.
DOUBTFUL = ("arrow_function", "throw_statement")
# Where nothing but reading is meant.
PLAIN_HOLDERS = ("pair", "return_statement", "template_substitution")
STANDINGS = {
    **dict.fromkeys(GUARDED, "guarded"),
    **dict.fromkeys(DOUBTFUL, "doubtful"),
    **dict.fromkeys(PLAIN_HOLDERS, "read"),
    "variable_declarator": "renamed",
}
LET_OUT = ("arguments", *PLAIN_HOLDERS)
# What a name stands in that means something else.
OTHER_WORDS = ("property_identifier", "string_fragment", "comment", "statement_identifier", "regex_pattern")
# Who is given the whole and changes nothing of it.
READERS = (b"console.log", b"console.info", b"console.warn", b"console.error")
FUNCTIONS = ("arrow_function", "function_declaration", "function_expression", "method_definition")
# What a function throws may be caught where it is called.
CATCHES = re.compile(rb"\.\s*(?:catch|allSettled)\b")


class Result:
    """One result: which of its fields are read, and which the program asks for.

    A read is a field, the name that it has in the program from then on, and whether it is doubtful: whoever is given it
    may ask.
    """

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.reads: list[tuple[Node, Node | None, bool]] = []
        self.asked: set[bytes] = set()

    def see(self, member: Node) -> bool:
        """Take a member of the result; False where something may be put there."""
        field, standing = member.child_by_field_name("property"), _standing(member)
        if field is None or standing == "target" or field.text in OWN_ASKING:
            return False
        if standing == "guarded" or _read_field(member) is None:
            self.asked.add(field.text or b"")
        else:
            self.reads.append((field, _local_of(member), standing == "doubtful"))
        return True


class ResultReads:
    """Collects one program's reads; it hears of each call of a tool."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._results_left = MAX_RESULTS
        self._results: list[Result] = []
        self._constants: list[tuple[Node, Result]] = []
        self._tried: list[tuple[int, int]] = []  # the bodies of `try` statements that catch
        self._functions: list[tuple[int, int]] = []
        self._looks_left, self._uses_left = MAX_LOOKS, MAX_ALL_USES

    def handlers(self) -> dict[str, Handler]:
        """Handlers by node kind; each tells whether the walk goes on into the node."""
        functions = dict.fromkeys(FUNCTIONS, self._function)
        return {"program": self._program, "try_statement": self._try, **functions}

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
        result = Result(tool)
        if holder.type == "member_expression" and _is_field(holder, "object", awaited):
            if result.see(holder):
                self._results.append(result)
        elif holder.type == "variable_declarator" and _is_field(holder, "value", awaited):
            self._declared(holder, result)

    def reads(self, data: bytes) -> list[dict[str, Any]]:
        """``[{"tool", "name", "at"}]``, the places as byte offsets; ``data`` is the program.

        ``"asked"`` are the names of the same result that the program asks for; ``"doubtful"`` is there where whoever is
        given a field may ask, or what fails is caught.
        """
        if len(self._tried) >= MAX_TRIES or len(self._functions) >= MAX_FUNCTIONS:
            self._tried = [(0, len(data))]
        elif self._tried or CATCHES.search(data):
            self._tried += self._functions
        is_plain = b"\\u" not in data  # else a name may be written in another way
        for name, result in self._constants if is_plain else ():
            uses = self._uses(data, name)
            if uses is not None and all(_see_use(use, result) for use in uses):
                self._results.append(result)
        return [fact for result in self._results for fact in self._facts(result, data, is_plain)][:MAX_READS]

    def _program(self, node: Node) -> bool:
        self._root = node
        return True

    def _try(self, node: Node) -> bool:
        body = node.child_by_field_name("body")
        if body is not None and node.child_by_field_name("handler") is not None and len(self._tried) < MAX_TRIES:
            self._tried.append((body.start_byte, body.end_byte))
        return True

    def _function(self, node: Node) -> bool:
        if len(self._functions) < MAX_FUNCTIONS:
            self._functions.append((node.start_byte, node.end_byte))
        return True

    def _declared(self, declarator: Node, result: Result) -> None:
        name, statement = declarator.child_by_field_name("name"), declarator.parent
        if name is None or statement is None:
            return
        if name.type == "object_pattern":
            result.reads += _pattern_fields(name)
            self._results.append(result)
        elif name.type == "identifier" and statement.type == "lexical_declaration":
            kind = statement.child_by_field_name("kind")
            if kind is not None and kind.type == "const":
                self._constants.append((name, result))

    def _uses(self, data: bytes, name: Node) -> list[Node] | None:
        """The other places of a name; None of what has too many, and behind too many names."""
        self._looks_left -= 1
        if self._looks_left < 0:
            return None
        text = re.escape(name.text or b"")
        found = list(re.finditer(rb"(?<![\w$\x80-\xff])" + text + rb"(?![\w$\x80-\xff])", data))
        self._uses_left -= len(found)
        if self._root is None or len(found) > MAX_USES or self._uses_left < 0:
            return None
        uses = [self._root.descendant_for_byte_range(place.start(), place.end()) for place in found]
        return [use for use in uses if use is not None and _is_use(use) and use.start_byte != name.start_byte]

    def _facts(self, result: Result, data: bytes, is_plain: bool) -> list[dict[str, Any]]:
        sure: list[tuple[Node, bool]] = []
        for field, local, is_doubtful in result.reads:
            uses = None if local is None or not is_plain else self._uses(data, local)
            stands = {_standing(use) for use in uses or ()}
            if not stands.isdisjoint(("guarded", "target")):
                result.asked.add(field.text or b"")
            is_lost = (uses is None and local is not None) or not stands.isdisjoint(("doubtful", "renamed"))
            sure.append((field, is_doubtful or is_lost or self._is_tried(field)))
        asked = [name.decode() for name in sorted(result.asked) if len(name) <= MAX_NAME_BYTES][:MAX_GUARDS]
        return [
            {
                "tool": result.tool,
                "name": (field.text or b"").decode(),
                "at": field.start_byte,
                **({"asked": asked} if asked else {}),
                **({"doubtful": True} if is_doubtful else {}),
            }
            for field, is_doubtful in sure
            if field.text not in result.asked
        ]

    def _is_tried(self, field: Node) -> bool:
        return any(start <= field.start_byte < end for start, end in self._tried)


def _is_use(node: Node) -> bool:
    return node.type not in OTHER_WORDS


def _see_use(use: Node, result: Result) -> bool:
    """Take the fields that one use of a result reads; False where it may do anything else with it."""
    inner, holder = _outside(use)
    if use.type != "identifier" or holder is None:
        return False
    if holder.type == "member_expression" and _is_field(holder, "object", inner):
        return result.see(holder)
    if holder.type == "variable_declarator" and _is_field(holder, "value", inner):
        pattern = holder.child_by_field_name("name")
        if pattern is None or pattern.type != "object_pattern":
            return False
        result.reads += _pattern_fields(pattern)
        return True
    if holder.type == "arguments" and holder.parent is not None:
        callee = holder.parent.child_by_field_name("function")
        if callee is None or callee.text != b"JSON.stringify":
            return callee is not None and callee.text in READERS
        return _is_let_out(holder.parent)  # a program may look for a name in the text
    return holder.type == "return_statement"


def _local_of(member: Node) -> Node | None:
    """The name that a program gives to what it reads there."""
    inner, holder = _outside(member)
    if holder is None or holder.type != "variable_declarator" or not _is_field(holder, "value", inner):
        return None
    name = holder.child_by_field_name("name")
    return name if name is not None and name.type == "identifier" else None


def _is_let_out(node: Node) -> bool:
    return getattr(_outside(node)[1], "type", "") in LET_OUT


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


def _standing(node: Node) -> str:
    """Return where a field, or a name that has it, stands.

    "target": something is put there; "guarded": the program asks before it relies; "doubtful": perhaps; "renamed":
    it has another name from then on; else "read".
    """
    inner, holder = _outside(node)
    if holder is None:
        return "target"
    kind = holder.type
    if kind in STANDINGS:
        return STANDINGS[kind]
    if kind in ("arguments", "array"):
        return _standing_given(holder)
    if kind in TARGETS:
        is_left = any(_is_field(holder, side, inner) for side in ("left", "value", "argument"))
        if is_left or kind in ("array_pattern", "rest_pattern"):
            return "target"
        if kind == "assignment_expression":
            return "doubtful"
    operator = holder.child_by_field_name("operator")
    if kind == "unary_expression":
        return "target" if operator is not None and operator.type == "delete" else "guarded"
    if operator is not None and kind in OPERATIONS:
        return "guarded" if operator.type in GUARDS else "doubtful" if operator.type in ORDERS else "read"
    if kind == "ternary_expression":
        return "guarded" if _is_field(holder, "condition", inner) else "read"
    if kind == "spread_element":
        return "doubtful" if getattr(holder.parent, "type", "") == "object" else "read"
    return "guarded" if any(child.type in ("?.", "optional_chain") for child in holder.children[:3]) else "read"


def _standing_given(holder: Node) -> str:
    """Where one of some arguments, or of an array, stands."""
    parent = holder.parent
    if parent is None:
        return "doubtful"
    if holder.type == "array":
        return "read" if parent.type in ("return_statement", "array", "pair") else "doubtful"
    callee = parent.child_by_field_name("function")
    if callee is None:  # what is made with `new`
        return "doubtful" if getattr(_outside(parent)[1], "type", "") in DOUBTFUL else "read"
    if callee.type == "member_expression":
        owner, method = callee.child_by_field_name("object"), callee.child_by_field_name("property")
        if callee.text in ASKING or (method is not None and method.text in ASKING_METHODS):
            return "guarded"
        return "read" if owner is not None and owner.text in TAKERS else "doubtful"
    return (
        "guarded" if callee.text in ASKING else "read" if callee.text in TAKING and _is_let_out(parent) else "doubtful"
    )


def _pattern_fields(pattern: Node) -> list[tuple[Node, Node | None, bool]]:
    """The names that a pattern takes without a value in their place, as `Result.reads` has them."""
    fields: list[tuple[Node, Node | None, bool]] = []
    for child in pattern.children:
        field: Node | None = child if child.type == "shorthand_property_identifier_pattern" else None
        local = field
        if child.type == "pair_pattern":
            key, value = child.child_by_field_name("key"), child.child_by_field_name("value")
            is_sure = key is not None and key.type == "property_identifier"
            field = key if is_sure and value is not None and value.type != "assignment_pattern" else None
            local = value if value is not None and value.type == "identifier" else None
        if field is not None and _is_plain(field):
            fields.append((field, local, False))
    return fields
