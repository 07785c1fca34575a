"""Collects facts about a program: tool calls by literal name and input, uses of modules.

Loaded by path in locked workers: imports nothing. Knows no tool. Only what is certain is a fact.
"""

from __future__ import annotations

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from tree_sitter import Node

    from .parse import Handler
    from .result_reads import ResultReadCollector

MAX_CALLS = 512
MAX_MODULE_USES = 64
MAX_NAME_PARTS = 8
MAX_NAME_BYTES = 256
MAX_LITERALS = 4096
MAX_LITERAL_DEPTH = 8
MAX_KEYS = 64
MAX_STRING_BYTES = 256
MAX_WRAPPERS = 16
# Beyond this a number is not an exact integer in JavaScript.
MAX_SAFE_INTEGER = 2**53 - 1

IDENTIFIERS = (
    "identifier",
    "type_identifier",
    "shorthand_property_identifier",
    "shorthand_property_identifier_pattern",
)
WRAPPER_NODES = ("parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression")
# Tokens that may follow the name `tools` in a read.
MEMBER_ACCESS = (b".", b"[", b"?.", b"!.", b"![")
# Tokens before and behind it on one line where its names are read.
BEFORE_LISTED_TOOLS = compile_lazily(
    rb"(?<![\w$.])(?:Object\.(?:keys|values|entries|hasOwn)\(|Reflect\.(?:ownKeys|has)\(|in )[ \t]*$"
)
AFTER_LISTED_TOOLS = (b")", b",", b"?", b"&", b"|", b";", b"}", b":")
MAX_LISTING_BYTES = 64


class FactCollector:
    """Collects one program's facts from its nodes; places are byte offsets under ``"at"``.

    ``on_named_call`` gets each call of a plain name and that name. With it the caller collects identifiers, and passes
    the places of `tools` and `require` (`add_identifier_offsets`). ``result_reads`` gets each call of a tool.
    """

    def __init__(
        self,
        data: bytes,
        on_named_call: Callable[[Node, Node], None] | None = None,
        result_reads: ResultReadCollector | None = None,
    ) -> None:
        self.data = data
        self._on_named_call = on_named_call
        self._result_reads = result_reads
        self._calls: list[dict[str, Any]] = []
        self._modules: list[dict[str, Any]] = []
        self._require_uses: set[int] = set()
        self._require_calls: list[int] = []
        self._is_shadowed = self._lists_tools = False
        self._literals_left = MAX_LITERALS

    def get_handlers_by_kind(self) -> dict[str, Handler]:
        """Handlers by node kind; each returns whether the walk enters the node."""
        return {
            **dict.fromkeys(IDENTIFIERS if self._on_named_call is None else (), self._on_identifier),
            "meta_property": self._on_meta_property,
            "with_statement": self._on_with,
            "call_expression": self._on_call_expression,
            "import_statement": lambda node: self._add_module_use("import", node.start_byte),
            "export_statement": lambda node: self._add_module_use("export", node.start_byte),
        }

    def build_facts(self) -> dict[str, Any]:
        """``{"calls": [{"name", "input", "at"}], "modules": [{"kind", "at"}], "shadowed": bool}``.

        With them ``"lists": True`` and ``"reads"``, those of `result_reads.ResultReadCollector`, where there are any.

        ``lists`` tells that the names on `tools` are read; ``shadowed`` that the name `tools` may mean something else
        somewhere; no call is a fact then. ``input`` is None without an argument, else what is known of it:
        ``{"type": "object", "keys": {name: known}, "open": bool}`` (open: more keys are possible) or ``{"type":
        "array" | "string" | "number" | "boolean" | "null" | "undefined" | "unknown"}``, an array with its ``"items"``
        when these are few, a string or a number with its ``"value"`` when that is short and exact, and an integer that
        no number holds as it is ``"written"``.
        """
        if self._require_uses == set(self._require_calls):  # else the program has a `require` of its own
            for at in self._require_calls:
                self._add_module_use("require()", at)
        calls = [] if self._is_shadowed else self._calls
        found: dict[str, Any] = {"calls": calls, "modules": self._modules, "shadowed": self._is_shadowed}
        if calls and self._result_reads is not None and (reads := self._result_reads.find_unguarded_reads(self.data)):
            found["reads"] = reads
        return {**found, "lists": True} if self._lists_tools else found

    def add_identifier_offsets(self, tools: Iterable[int], requires: Iterable[int]) -> None:
        """Tell where the names `tools` and `require` stand."""
        for start in tools:
            self._classify_tools_use(start)
        self._require_uses.update(requires)

    def _classify_tools_use(self, start: int) -> None:
        following = self.data[start + 5 : start + 69].lstrip()
        if following.startswith(MEMBER_ACCESS):
            return
        if (
            following.startswith(AFTER_LISTED_TOOLS)
            and BEFORE_LISTED_TOOLS.search(self.data, max(0, start - MAX_LISTING_BYTES), start) is not None
        ):
            self._lists_tools = True
        else:
            self._is_shadowed = True

    def _on_identifier(self, node: Node) -> bool:
        start, end = node.start_byte, node.end_byte
        if end - start == 5 and self.data[start:end] == b"tools":
            self._classify_tools_use(start)
        elif end - start == 7 and self.data[start:end] == b"require":
            self._require_uses.add(start)
        return True

    def _on_with(self, _node: Node) -> bool:
        self._is_shadowed = True
        return True

    def _on_meta_property(self, node: Node) -> bool:
        if self.data.startswith(b"import", node.start_byte):
            self._add_module_use("import.meta", node.start_byte)
        return True

    def _add_module_use(self, kind: str, at: int) -> bool:
        if len(self._modules) < MAX_MODULE_USES:
            self._modules.append({"kind": kind, "at": at})
        return True

    def _on_call_expression(self, node: Node) -> bool:
        callee = node.child_by_field_name("function")
        if callee is None:
            return True
        if callee.type == "import":
            self._add_module_use("import()", node.start_byte)
        elif callee.type == "identifier":
            if callee.text == b"require":
                self._require_calls.append(callee.start_byte)
            elif self._on_named_call is not None:
                self._on_named_call(node, callee)
        elif callee.type in ("member_expression", "subscript_expression", *WRAPPER_NODES):
            self._add_tool_call(node, callee)
        return True

    def _add_tool_call(self, node: Node, callee: Node) -> None:
        if len(self._calls) >= MAX_CALLS or any(child.type in ("?.", "optional_chain") for child in node.children):
            return
        name = _read_tool_name(callee)
        if name is not None:
            arguments = node.child_by_field_name("arguments")
            self._calls.append({"name": name, "input": self._describe_first_argument(arguments), "at": node.start_byte})
            if self._result_reads is not None:
                self._result_reads.on_tool_call(node, name, self.data)

    def _describe_first_argument(self, arguments: Node | None) -> dict[str, Any] | None:
        if arguments is None or arguments.type != "arguments":  # a tagged template
            return {"type": "unknown"}
        first = find_first_named_non_comment_child(arguments)
        if first is None:
            return None
        if first.type == "undefined":
            return {"type": "undefined"}
        if first.type == "assignment_expression" and (left := first.child_by_field_name("left")) is not None:
            # `f(name="x")` of Python: JavaScript would assign to a variable.
            return {"type": "keyword", "name": (left.text or b"").decode()[:MAX_NAME_BYTES]}
        return self._describe_literal_and_count_limit(first, 0)

    def _describe_literal_and_count_limit(self, node: Node, depth: int) -> dict[str, Any]:
        self._literals_left -= 1
        node = unwrap_parentheses_and_types(node)
        if self._literals_left < 0 or depth > MAX_LITERAL_DEPTH:
            return {"type": "unknown"}
        if node.type == "object":
            return self._describe_object(node, depth)
        if node.type == "array":
            return self._describe_array(node, depth)
        if node.type == "null":
            return {"type": "null"}
        if node.type in ("true", "false"):
            return {"type": "boolean"}
        if node.type in ("string", "template_string"):
            return _describe_string(node)
        return _describe_number(node)

    def _describe_array(self, node: Node, depth: int) -> dict[str, Any]:
        elements = [child for child in node.children if child.is_named and child.type != "comment"]
        if not elements or len(elements) > MAX_KEYS or any(child.type == "spread_element" for child in elements):
            return {"type": "array"}
        return {
            "type": "array",
            "items": [self._describe_literal_and_count_limit(child, depth + 1) for child in elements],
        }

    def _describe_object(self, node: Node, depth: int) -> dict[str, Any]:
        keys: dict[str, Any] = {}
        is_open = False
        for child in node.children:
            if not child.is_named or child.type == "comment":
                continue
            name, value = read_object_entry(child)
            if name == "toJSON":  # decides by itself what is sent
                return {"type": "unknown"}
            if name is None or name == "__proto__" or len(keys) >= MAX_KEYS:
                is_open = True
            else:
                keys[name] = (
                    {"type": "unknown"} if value is None else self._describe_literal_and_count_limit(value, depth + 1)
                )
        return {"type": "object", "keys": keys, "open": is_open}


def read_first_string_and_arguments(node: Node) -> tuple[str | None, list[Node]]:
    """The literal text that is a call's first argument, and all of its arguments."""
    argument_list = node.child_by_field_name("arguments")
    if (
        argument_list is None
        or argument_list.type != "arguments"
        or find_first_named_non_comment_child(argument_list) is None
    ):
        return None, []
    arguments = [child for child in argument_list.children if child.is_named and child.type != "comment"]
    return read_string_literal(unwrap_parentheses_and_types(arguments[0])), arguments


def find_first_named_non_comment_child(node: Node) -> Node | None:
    return next((child for child in node.children if child.is_named and child.type != "comment"), None)


def unwrap_parentheses_and_types(node: Node) -> Node:
    for _ in range(MAX_WRAPPERS):
        inner = find_first_named_non_comment_child(node) if node.type in WRAPPER_NODES else None
        if inner is None:
            break
        node = inner
    return node


def _read_tool_name(callee: Node) -> str | None:
    """`a.b` of `tools.a.b` and `tools["a"].b`; None for what is no such chain, or a conditional one."""
    parts: list[str] = []
    node: Node | None = unwrap_parentheses_and_types(callee)
    for _ in range(MAX_NAME_PARTS):
        if node is None or node.child_by_field_name("optional_chain") is not None:
            return None
        if node.type == "member_expression":
            part = _read_plain_text(node.child_by_field_name("property"), "property_identifier")
        elif node.type == "subscript_expression":
            part = read_string_literal(node.child_by_field_name("index"))
        else:
            break
        if part is None:
            return None
        parts.append(part)
        object_node = node.child_by_field_name("object")
        node = None if object_node is None else unwrap_parentheses_and_types(object_node)
    if node is None or not parts or node.type != "identifier" or node.text != b"tools":
        return None
    return ".".join(reversed(parts))


def _read_plain_text(node: Node | None, kind: str) -> str | None:
    """The node's text, unless it is of another kind, long, or written with escapes."""
    if node is None or node.type != kind or node.end_byte - node.start_byte > MAX_NAME_BYTES:
        return None
    text = (node.text or b"").decode()
    return None if "\\" in text else text


def read_string_literal(node: Node | None) -> str | None:
    """The text of a string literal without escapes; None for what is no such literal."""
    if node is None or node.type not in ("string", "template_string"):
        return None
    parts = [child for child in node.children if child.is_named]
    return "" if not parts else _read_plain_text(parts[0], "string_fragment") if len(parts) == 1 else None


def read_object_entry(node: Node) -> tuple[str | None, Node | None]:
    """Key and value of one entry of an object literal, each None when it is not literal."""
    if node.type == "shorthand_property_identifier":
        return _read_plain_text(node, node.type), None
    key = node.child_by_field_name("name" if node.type == "method_definition" else "key")
    if key is None:
        return None, None
    name = read_string_literal(key) if key.type == "string" else _read_plain_text(key, "property_identifier")
    return name, node.child_by_field_name("value") if node.type == "pair" else None


def _describe_string(node: Node) -> dict[str, Any]:
    if node.end_byte - node.start_byte > MAX_STRING_BYTES:
        return {"type": "string"}
    text = read_string_literal(node)
    return {"type": "string"} if text is None else {"type": "string", "value": text}


def _describe_number(node: Node) -> dict[str, Any]:
    sign = 1
    if node.type == "unary_expression" and node.children[0].type in ("-", "+"):
        sign, node = -1 if node.children[0].type == "-" else 1, node.children[-1]
    text = node.text if node.type == "number" and node.end_byte - node.start_byte <= MAX_NAME_BYTES else None
    if text is None or text.endswith(b"n"):  # a BigInt is an integer, and some validators take one for other types too
        return {"type": "unknown"}
    digits = text.replace(b"_", b"")
    if digits[:1] == b"0" and digits[1:].isdigit():  # octal, if all of them are such digits
        return {"type": "number"}
    try:
        integer = int(digits, 0) if digits.isdigit() or digits[:2].lower() in (b"0x", b"0o", b"0b") else None
        value = sign * float(digits if integer is None else integer)
    except ValueError:  # no number, which the engine will say
        return {"type": "number"}
    if value - value != 0:  # infinite, and sent as null
        return {"type": "unknown"}
    if not digits.isdigit() and integer == abs(value):
        return {"type": "number"}
    if value.is_integer() and abs(value) <= MAX_SAFE_INTEGER:
        return {"type": "number", "value": int(value)}
    description = {"type": "number", "value": value}
    if integer is not None and integer != abs(value):  # the engine rounds it
        description["written"] = ("-" if sign < 0 else "") + digits.decode()
    return description
