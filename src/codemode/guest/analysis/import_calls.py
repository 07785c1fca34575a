"""Collects a module program's `import()` calls, and calls of imported namespaces' members.

Loaded by path in locked workers. Knows no module. Only what is certain is a fact.
"""

from __future__ import annotations

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tree_sitter import Node

    from .edits import BlankedGap
    from .parse import Handler

MAX_LOADS = 256
MAX_LOOKUPS = 64
MAX_IDENTIFIERS = 65536
MAX_CALLS = 4096
MAX_NAMESPACE_CALLS = 512
IMPORT_KEYWORD_BYTES = 6  # of `import`
MEMBER_NODES = ("member_expression", "subscript_expression", "non_null_expression")
WORD = compile_lazily(rb"[\w$\x80-\xff]+")
# What is read of a name by a member's name, which is not assembled.
MEMBER_READ = compile_lazily(
    rb"""(?:\s*\.\s*([\w$\x80-\xff]+)(?![\w$\x80-\xff\\])|\s*\[\s*("[^"\\\r\n]*"|'[^'\\\r\n]*')\s*\])"""
)


class DynamicImport:
    """A call of `import()`: its place, the text that it certainly imports, and what stands in for its keyword."""

    __slots__ = ("at", "gap", "specifier")

    def __init__(self, at: int, specifier: str | None, gap: BlankedGap) -> None:
        self.at, self.specifier, self.gap = at, specifier, gap


class ImportCallCollector:
    """Collects one program's calls from its nodes; places are byte offsets.

    ``clauses`` and ``facts`` are those parts; ``identifiers`` and ``functions`` the kinds of nodes that are names and
    functions. ``dynamic_imports`` are the calls of `import()`; ``methods`` are the methods of that name.
    """

    def __init__(
        self,
        clauses: Any,
        facts: Any,
        gap: type[BlankedGap],
        *,
        identifiers: tuple[str, ...],
        functions: tuple[str, ...],
    ) -> None:
        self.data = b""
        self._kinds, self._functions = identifiers, functions
        self._clauses, self._facts, self._gap = clauses, facts, gap
        self.identifiers: list[Node] = []
        self.methods: list[Node] = []
        self.dynamic_imports: list[DynamicImport] = []
        self._namespaces_loaded: list[tuple[str, int, str]] = []  # name, its place, specifier
        self._calls: dict[int, tuple[Node, bool, bool]] = {}  # in a `try`, in a function; by their places
        # Nodes come in document order: a place before these is inside one.
        self._functions_end = self._tries_end = 0

    def get_handlers_by_kind(self) -> dict[str, Handler]:
        """Handlers by node kind; each returns whether the walk enters the node."""
        return {
            # Nothing but an append, which keeps out of these leaves: there is one for every fifth node.
            **dict.fromkeys(self._kinds, self.identifiers.append),
            **dict.fromkeys(self._functions, self._on_function),
            "method_definition": self._on_method,
            "try_statement": self._on_try,
            "call_expression": self._on_call,
        }

    def find_first_name_use(self, word: bytes) -> int | None:
        """Return the first place of a name without escapes."""
        ranges = (node.byte_range for node in self.identifiers)
        return next((start for start, end in ranges if self.data[start:end] == word), None)

    def collect_names_in_skipped_nodes(self, code: bytes, unread: list[Node]) -> set[str]:
        """The words of nodes that the walk was kept out of, as far as they are not blank."""
        return {word.decode() for node in unread for word in WORD.findall(code, node.start_byte, node.end_byte)}

    def may_have_namespace_calls(self, namespaces: dict[str, str]) -> bool:
        """Return whether the program may contain further calls of namespace members."""
        return bool(self._calls) and bool(namespaces or self._namespaces_loaded)

    def find_namespace_calls(
        self, namespaces: dict[str, str], excluded_names: set[str], code: bytes
    ) -> list[dict[str, Any]]:
        """Calls that read a member of a namespace and do nothing else with it: ``{"from", "name", "at"}``.

        ``namespaces`` are the specifiers of those that statements import, by local name; ``excluded_names`` are
        the names that are
        used where no identifier stands. ``code`` is the text with types and comments blank. A call is there when its
        member is read in no other way, the namespace itself is only read from, and no `try` could be around it.
        """
        declared = {name: (-1, specifier) for name, specifier in namespaces.items()}
        for name, at, specifier in self._namespaces_loaded:
            declared[name] = (at, specifier) if name not in declared else (-1, "")
        if not declared or not self._calls or len(self.identifiers) > MAX_IDENTIFIERS:
            return []
        offsets_by_name = self._find_name_offsets(declared)
        calls: list[dict[str, Any]] = []
        for name, (at, specifier) in declared.items():
            if specifier and name not in excluded_names and offsets_by_name is not None:
                calls += self._find_certain_calls(
                    specifier, [place for place in offsets_by_name[name] if place != at], code
                )
        return sorted(calls, key=lambda call: call["at"])[:MAX_NAMESPACE_CALLS]

    # -- what the walk tells

    def _on_function(self, node: Node) -> bool:
        self._functions_end = max(self._functions_end, node.end_byte)
        return True

    def _on_method(self, node: Node) -> bool:
        name = node.child_by_field_name("name")
        if name is not None and self.data[name.start_byte : name.end_byte] == b"import":
            self.methods.append(node)
        return self._on_function(node)

    def _on_try(self, node: Node) -> bool:
        self._tries_end = max(self._tries_end, node.end_byte)
        return True

    def _on_call(self, node: Node) -> bool:
        callee = node.child_by_field_name("function")
        if callee is None:
            return True
        kind = callee.type
        if kind == "import":
            self._add_dynamic_import(node, callee.start_byte)
        elif kind in MEMBER_NODES and len(self._calls) < MAX_CALLS:
            at = node.start_byte
            # The innermost of several calls at one place comes last: `name.member()` of `name.member().then()`.
            self._calls[at] = (node, at < self._tries_end, at < self._functions_end)
        return True

    def _add_dynamic_import(self, node: Node, at: int) -> None:
        arguments = node.child_by_field_name("arguments")
        first = None if arguments is None else self._facts.find_first_named_non_comment_child(arguments)
        literal = None if first is None else self._read_specifier(self._facts.unwrap_parentheses_and_types(first))
        self.dynamic_imports.append(DynamicImport(at, literal, self._gap(at, at + IMPORT_KEYWORD_BYTES)))
        if literal is not None and len(self.dynamic_imports) <= MAX_LOOKUPS:
            self._record_namespace(node, literal)

    def _read_specifier(self, node: Node) -> str | None:
        is_template = node.type == "template_string"
        if not is_template and node.type != "string":
            return None
        if is_template and any(child.type == "template_substitution" for child in node.children):
            return None
        inside = self.data[node.start_byte + 1 : node.end_byte - 1].decode()
        text = self._clauses.decode_string_literal(inside, is_template=is_template)
        return None if text is None else self._clauses.replace_lone_surrogates(text)

    def _record_namespace(self, node: Node, specifier: str) -> None:
        """`const name = await import("specifier")`."""
        awaited = node.parent
        declarator = awaited.parent if awaited is not None and awaited.type == "await_expression" else None
        name = (
            None
            if declarator is None or declarator.type != "variable_declarator"
            else declarator.child_by_field_name("name")
        )
        if name is not None and name.type == "identifier":
            text = self.data[name.start_byte : name.end_byte].decode()
            self._namespaces_loaded.append((text, name.start_byte, specifier))

    # -- what is certain of it

    def _find_name_offsets(self, names: dict[str, Any]) -> dict[str, list[int]] | None:
        """Return the places of these names; None when a name is written with escapes."""
        offsets_by_name: dict[str, list[int]] = {name: [] for name in names}
        wanted = {name.encode(): offsets for name, offsets in offsets_by_name.items()}
        data = self.data
        for node in self.identifiers:
            start, end = node.byte_range
            word = data[start:end]
            offsets = wanted.get(word)
            if offsets is not None:
                offsets.append(start)
            elif b"\\" in word:
                return None
        return offsets_by_name

    def _find_certain_calls(self, specifier: str, offsets: list[int], code: bytes) -> Iterator[dict[str, Any]]:
        read_members: set[str] = set()
        called: list[tuple[str, int]] = []
        for offset in offsets:
            if code[offset : offset + 1].isspace():
                continue  # it was only a type
            name = self._read_member_name(offset, code)
            if name is None:
                return
            node, is_tried, is_nested = self._calls.get(offset, (None, False, False))
            if node is None or not self._is_plain_call(node, offset):
                read_members.add(name)
            elif not is_tried and not (is_nested and self._tries_end):  # a `try` may call the function
                called.append((name, offset))
        for name, at in called:
            if name not in read_members:
                yield {"from": specifier, "name": name, "at": at}

    def _read_member_name(self, offset: int, code: bytes) -> str | None:
        """The member of the name at a place that is read there; None when something else is done with it."""
        word = WORD.match(code, offset)
        match = None if word is None else MEMBER_READ.match(code, word.end())
        if match is None:
            return None
        return match[1].decode() if match[1] is not None else match[2][1:-1].decode()

    def _is_plain_call(self, node: Node, offset: int) -> bool:
        """Return whether a call is of the member itself, and does not ask whether there is one."""
        callee = node.child_by_field_name("function")
        object_node = (
            None if callee is None else self._facts.unwrap_parentheses_and_types(callee).child_by_field_name("object")
        )
        arguments = node.child_by_field_name("arguments")
        return (
            object_node is not None
            and object_node.type == "identifier"
            and object_node.start_byte == offset
            and arguments is not None
            and arguments.type == "arguments"
            and not any(child.type in ("?.", "optional_chain") for child in node.children)
        )
