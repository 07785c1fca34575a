"""Collects `callTool("name")` calls, and whether the program catches their failure.

Loaded by path in locked workers. Knows no tool. Only what is certain is a fact.
"""

from __future__ import annotations

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tree_sitter import Node

    from .parse import Handler

MAX_CALLS = 512
MAX_DEFINITIONS = 256
FUNCTIONS = (
    "arrow_function",
    "class_body",
    "function_declaration",
    "function_expression",
    "generator_function",
    "generator_function_declaration",
    "method_definition",
)
# A program that handles a failure contains one of these, unless it is written with escapes.
CATCHING_WORDS = (b"catch", b"then", b"finally", b"allSettled", b"any", b"race", b"\\u", b"\\x")
CATCHING_WORD = compile_lazily(rb"\b(?:catch|then|finally|allSettled|any|race)\b|\\[ux]")
BEFORE_AWAITED = compile_lazily(rb"(?<![\w$.#\x80-\xff])await\s*\Z")
# Operators that make a call only the first part of the awaited expression.
AFTER_CHAINED = compile_lazily(rb"\s*(?:\.|\?\.|[\[(`])")
MAX_INPUT_ARGUMENTS = 2
# Options under which a call throws, as without any.
THROWING_OPTIONS = compile_lazily(rb"\{\s*(?:throwOnError\s*:\s*true\s*,?\s*)?\}|null")
MAX_OPTIONS_BYTES = 64


class NamedCallCollector:
    """Collects one program's calls of `callTool` and `getTool` by literal name; places are byte offsets."""

    def __init__(self, literal_arguments: Callable[[Node], tuple[str | None, list[Node]]]) -> None:
        self._literal_arguments = literal_arguments
        self._calls: list[dict[str, Any]] = []
        self._callees: list[int] = []
        self._definitions: dict[str, None] = {}
        # Nodes come in document order: a place before these is inside one.
        self._functions_end = self._tries_end = 0

    def get_handlers_by_kind(self) -> dict[str, Handler]:
        """Handlers by node kind; each returns whether the walk enters the node."""
        return {**dict.fromkeys(FUNCTIONS, self._on_function), "try_statement": self._on_try}

    def on_named_call(self, node: Node, callee: Node) -> None:
        """Hear of a call of a plain name."""
        name = callee.text
        if name == b"callTool":
            self._add_call(node, callee)
        elif name == b"getTool" and len(self._definitions) < MAX_DEFINITIONS:
            literal = self._literal_arguments(node)[0]
            if literal is not None:
                self._definitions[literal] = None

    def list_requested_definitions(self) -> list[str]:
        """The literal names that `getTool` is called with."""
        return list(self._definitions)

    def find_named_calls(self, code: bytes, uses: list[int]) -> list[dict[str, Any]]:
        """Return the calls in ``code`` (without comments), each ``{"name", "caught", "at"}``.

        ``uses``: every `callTool`. ``caught``: the program may continue after a failure. The list is empty when the
        name may have another meaning somewhere.
        """
        if not self._calls or sorted(self._callees) != uses:
            return []
        has_catchers = self._tries_end > 0 or _has_catching_word(code)
        return [
            {
                "name": call["name"],
                "at": call["at"],
                "caught": call["caught"] or (has_catchers and (call["nested"] or not _is_directly_awaited(code, call))),
            }
            for call in self._calls
        ]

    def _on_function(self, node: Node) -> bool:
        self._functions_end = max(self._functions_end, node.end_byte)
        return True

    def _on_try(self, node: Node) -> bool:
        self._tries_end = max(self._tries_end, node.end_byte)
        return True

    def _add_call(self, node: Node, callee: Node) -> None:
        at = node.start_byte
        self._callees.append(callee.start_byte)
        name, arguments = self._literal_arguments(node)
        if name is None or len(self._calls) >= MAX_CALLS:
            return
        may_return = any(argument.type == "spread_element" for argument in arguments)
        self._calls.append(
            {
                "name": name,
                "at": at,
                "end": node.end_byte,
                "nested": at < self._functions_end,
                "caught": at < self._tries_end or may_return or _may_suppress_errors(arguments),
            }
        )


def _may_suppress_errors(arguments: list[Node]) -> bool:
    """Return whether the options of a call may keep it from throwing."""
    if len(arguments) <= MAX_INPUT_ARGUMENTS:
        return False
    options = arguments[MAX_INPUT_ARGUMENTS]
    if options.end_byte - options.start_byte > MAX_OPTIONS_BYTES:
        return True
    return THROWING_OPTIONS.fullmatch(options.text or b"") is None


def _has_catching_word(code: bytes) -> bool:
    return any(word in code for word in CATCHING_WORDS) and CATCHING_WORD.search(code) is not None


def _is_directly_awaited(code: bytes, call: dict[str, Any]) -> bool:
    """Return whether a call is awaited where it stands, and nothing else is done with its promise."""
    before = code[max(0, call["at"] - 64) : call["at"]]
    return BEFORE_AWAITED.search(before) is not None and AFTER_CHAINED.match(code, call["end"]) is None
