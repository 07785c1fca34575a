"""Collects what a module program calls: `import()`, and members of the namespaces that it has imported.

Loaded by path in locked workers. Knows no module; what is not certain is not a fact.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tree_sitter import Node

    from .edits import Gap
    from .parse import Handler

MAX_LOADS = 256
MAX_LOOKUPS = 64
MAX_IDENTIFIERS = 65536
MAX_CALLS = 4096
MAX_NAMESPACE_CALLS = 512
KEYWORD_BYTES = 6  # of `import`
MEMBERS = ("member_expression", "subscript_expression", "non_null_expression")
WORD = re.compile(rb"[\w$\x80-\xff]+")
# What is read of a name by a member's name, which is not assembled.
MEMBER = re.compile(
    rb"""(?:\s*\.\s*([\w$\x80-\xff]+)(?![\w$\x80-\xff\\])|\s*\[\s*("[^"\\\r\n]*"|'[^'\\\r\n]*')\s*\])"""
)


class Load:
    """A call of `import()`: its place, the text that it certainly imports, and what stands in for its keyword."""

    __slots__ = ("at", "gap", "specifier")

    def __init__(self, at: int, specifier: str | None, gap: Gap) -> None:
        self.at, self.specifier, self.gap = at, specifier, gap


class ImportCalls:
    """Collects one program's calls from its nodes; places are byte offsets.

    ``clauses`` and ``facts`` are those parts; ``identifiers`` and ``functions`` the kinds of nodes that are names and
    functions. ``loads`` are the calls of `import()`; ``methods`` are the methods of that name.
    """

    def __init__(
        self, clauses: Any, facts: Any, gap: type[Gap], *, identifiers: tuple[str, ...], functions: tuple[str, ...]
    ) -> None:
        self.data = b""
        self._kinds, self._functions = identifiers, functions
        self._clauses, self._facts, self._gap = clauses, facts, gap
        self.identifiers: list[Node] = []
        self.methods: list[Node] = []
        self.loads: list[Load] = []
        self._loaded: list[tuple[str, int, str]] = []  # name, its place, specifier
        self._calls: dict[int, tuple[Node, bool, bool]] = {}  # in a `try`, in a function; by their places
        # Nodes come in document order: a place before these is inside one.
        self._functions_end = self._tries_end = 0

    def handlers(self) -> dict[str, Handler]:
        """Handlers by node kind; each tells whether the walk goes on into the node."""
        return {
            # Nothing but an append, which keeps out of these leaves: there is one for every fifth node.
            **dict.fromkeys(self._kinds, self.identifiers.append),
            **dict.fromkeys(self._functions, self._function),
            "method_definition": self._method,
            "try_statement": self._try,
            "call_expression": self._call,
        }

    def first_place(self, word: bytes) -> int | None:
        """Where a name stands first, without escapes."""
        ranges = (node.byte_range for node in self.identifiers)
        return next((start for start, end in ranges if self.data[start:end] == word), None)

    def words(self, code: bytes, unread: list[Node]) -> set[str]:
        """The words of nodes that the walk was kept out of, as far as they are not blank."""
        return {word.decode() for node in unread for word in WORD.findall(code, node.start_byte, node.end_byte)}

    def may_read(self, namespaces: dict[str, str]) -> bool:
        """Whether there may be calls of members of namespaces, beside those that it has found itself."""
        return bool(self._calls) and bool(namespaces or self._loaded)

    def namespace_calls(self, namespaces: dict[str, str], taken: set[str], code: bytes) -> list[dict[str, Any]]:
        """Calls that read a member of a namespace and do nothing else with it: ``{"from", "name", "at"}``.

        ``namespaces`` are the specifiers of those that statements import, by local name; ``taken`` the names that are
        used where no identifier stands. ``code`` is the text with types and comments blank. A call is there when its
        member is read in no other way, the namespace itself is only read from, and no `try` could be around it.
        """
        declared = {name: (-1, specifier) for name, specifier in namespaces.items()}
        for name, at, specifier in self._loaded:
            declared[name] = (at, specifier) if name not in declared else (-1, "")
        if not declared or not self._calls or len(self.identifiers) > MAX_IDENTIFIERS:
            return []
        places = self._places(declared)
        found: list[dict[str, Any]] = []
        for name, (at, specifier) in declared.items():
            if specifier and name not in taken and places is not None:
                found += self._certain(specifier, [place for place in places[name] if place != at], code)
        return sorted(found, key=lambda call: call["at"])[:MAX_NAMESPACE_CALLS]

    # -- what the walk tells

    def _function(self, node: Node) -> bool:
        self._functions_end = max(self._functions_end, node.end_byte)
        return True

    def _method(self, node: Node) -> bool:
        name = node.child_by_field_name("name")
        if name is not None and self.data[name.start_byte : name.end_byte] == b"import":
            self.methods.append(node)
        return self._function(node)

    def _try(self, node: Node) -> bool:
        self._tries_end = max(self._tries_end, node.end_byte)
        return True

    def _call(self, node: Node) -> bool:
        callee = node.child_by_field_name("function")
        if callee is None:
            return True
        kind = callee.type
        if kind == "import":
            self._load(node, callee.start_byte)
        elif kind in MEMBERS and len(self._calls) < MAX_CALLS:
            at = node.start_byte
            # Of calls at one place the innermost comes last: `name.member()` of `name.member().then()`.
            self._calls[at] = (node, at < self._tries_end, at < self._functions_end)
        return True

    def _load(self, node: Node, at: int) -> None:
        arguments = node.child_by_field_name("arguments")
        first = None if arguments is None else self._facts.first_named(arguments)
        literal = None if first is None else self._literal(self._facts.unwrapped(first))
        self.loads.append(Load(at, literal, self._gap(at, at + KEYWORD_BYTES)))
        if literal is not None and len(self.loads) <= MAX_LOOKUPS:
            self._see_namespace(node, literal)

    def _literal(self, node: Node) -> str | None:
        is_template = node.type == "template_string"
        if not is_template and node.type != "string":
            return None
        if is_template and any(child.type == "template_substitution" for child in node.children):
            return None
        inside = self.data[node.start_byte + 1 : node.end_byte - 1].decode()
        said = self._clauses.string_value(inside, is_template=is_template)
        return None if said is None else self._clauses.well_formed(said)

    def _see_namespace(self, node: Node, specifier: str) -> None:
        """`const name = await import("specifier")`."""
        awaited = node.parent
        holder = awaited.parent if awaited is not None and awaited.type == "await_expression" else None
        name = None if holder is None or holder.type != "variable_declarator" else holder.child_by_field_name("name")
        if name is not None and name.type == "identifier":
            text = self.data[name.start_byte : name.end_byte].decode()
            self._loaded.append((text, name.start_byte, specifier))

    # -- what is certain of it

    def _places(self, names: dict[str, Any]) -> dict[str, list[int]] | None:
        """Where each of these names stands; None when a name is written with escapes."""
        places: dict[str, list[int]] = {name: [] for name in names}
        wanted = {name.encode(): found for name, found in places.items()}
        data = self.data
        for node in self.identifiers:
            start, end = node.byte_range
            word = data[start:end]
            found = wanted.get(word)
            if found is not None:
                found.append(start)
            elif b"\\" in word:
                return None
        return places

    def _certain(self, specifier: str, places: list[int], code: bytes) -> Iterator[dict[str, Any]]:
        looked: set[str] = set()
        called: list[tuple[str, int]] = []
        for place in places:
            if code[place : place + 1].isspace():
                continue  # it was only a type
            name = self._member(place, code)
            if name is None:
                return
            node, is_tried, is_nested = self._calls.get(place, (None, False, False))
            if node is None or not self._is_plain_call(node, place):
                looked.add(name)
            elif not is_tried and not (is_nested and self._tries_end):  # a `try` may call the function
                called.append((name, place))
        for name, at in called:
            if name not in looked:
                yield {"from": specifier, "name": name, "at": at}

    def _member(self, place: int, code: bytes) -> str | None:
        """The member of the name at a place that is read there; None when something else is done with it."""
        word = WORD.match(code, place)
        found = None if word is None else MEMBER.match(code, word.end())
        if found is None:
            return None
        return found[1].decode() if found[1] is not None else found[2][1:-1].decode()

    def _is_plain_call(self, node: Node, place: int) -> bool:
        """Whether a call is of the member itself, and does not ask whether there is one."""
        callee = node.child_by_field_name("function")
        held = None if callee is None else self._facts.unwrapped(callee).child_by_field_name("object")
        arguments = node.child_by_field_name("arguments")
        return (
            held is not None
            and held.type == "identifier"
            and held.start_byte == place
            and arguments is not None
            and arguments.type == "arguments"
            and not any(child.type in ("?.", "optional_chain") for child in node.children)
        )
