"""Collects every name and loop of a program, and whether the list is certainly complete.

Loaded by path in locked workers. Knows no rule. A name can be missed only where the parser reads other tokens than the
engine does; any ambiguity of that kind leaves the names unknown.
"""

from __future__ import annotations

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tree_sitter import Node

    from .parse import Handler
    from .parse_ambiguities import ParseAmbiguityFinder

MAX_NAMES = 4096
MAX_USES = 16384
# More than the rules ever report.
MAX_PLACES_PER_NAME = 64
MAX_LOOPS = 64

IDENTIFIERS = (
    "identifier",
    "type_identifier",
    "shorthand_property_identifier",
    "shorthand_property_identifier_pattern",
    "undefined",
)
LOOP_KINDS = {"for_statement": "for", "while_statement": "while", "do_statement": "do"}
FOR_IN_KINDS = {"in": "for-in", "of": "for-of"}

PLAIN_NAME = compile_lazily(rb"[\w$]+")
PLAIN_NAMES = compile_lazily(rb"[\w$\s]*")
WORD = compile_lazily(rb"((?<!\.)\.)?((?:[\w$\x80-\xff]|\\u[0-9a-fA-F]{4}|\\u\{[0-9a-fA-F]+\})+)")
ESCAPE = compile_lazily(r"\\u(?:([0-9a-fA-F]{4})|\{0*([0-9a-fA-F]{1,6})\})")
# Joiners may stand in a name, though in none of Python's.
JOINERS = dict.fromkeys(map(ord, "$\u200c\u200d"), "a")


class NameCollector:
    """Collects one program's names and loops from its nodes; places are byte offsets.

    ``ambiguities`` are the same program's.
    """

    def __init__(self, ambiguities: ParseAmbiguityFinder) -> None:
        self._ambiguities = ambiguities
        self._identifiers: list[Node] = []
        self._methods: list[Node] = []
        self._loops: list[dict[str, Any]] = []

    def get_handlers_by_kind(self) -> dict[str, Handler]:
        """Handlers by node kind; each returns whether the walk enters the node."""
        return {
            # Nothing but an append, which keeps out of these leaves: there is one for every fifth node.
            **dict.fromkeys(IDENTIFIERS, self._identifiers.append),
            **self._ambiguities.get_handlers_by_kind(),
            **dict.fromkeys((*LOOP_KINDS, "for_in_statement"), self._on_loop),
            "method_definition": self._on_method,
        }

    def list_loops(self) -> list[dict[str, Any]]:
        """The loops, each ``{"kind", "at"}``, the kind as in `for-await`."""
        return self._loops

    def find_name_offsets(self, code: bytes, unread: list[Node]) -> dict[str, list[int]] | None:
        """The places of each name in ``code``, escapes decoded; None: not certain, or too many.

        ``code`` is the text with types and comments blank; ``unread`` are nodes whose words are names unless they are
        blank.
        """
        if len(self._identifiers) > MAX_USES or self._ambiguities.find_first_ambiguity(code, self._methods) is not None:
            return None
        offsets_by_text: dict[bytes, list[int]] = {}
        find = offsets_by_text.get
        for node in self._identifiers:
            start, end = node.byte_range
            word = code[start:end]
            offsets = find(word)
            if offsets is None:
                offsets_by_text[word] = [start]
            else:
                offsets.append(start)
        if unread:
            for node in unread:
                _add_words_of_node(code, node, offsets_by_text)
            for offsets in offsets_by_text.values():
                offsets.sort()
        # To the grammar `let` may be a variable, and what it declares one that is divided.
        if len(offsets_by_text) > MAX_NAMES or (b"let" in offsets_by_text and self._ambiguities.slash_nodes):
            return None
        return _decode_names(offsets_by_text)

    def limit_offsets_per_name(self, names: dict[str, list[int]]) -> dict[str, list[int]]:
        """Return at most ``MAX_PLACES_PER_NAME`` offsets for each name."""
        return {name: offsets[:MAX_PLACES_PER_NAME] for name, offsets in names.items()}

    def _on_method(self, node: Node) -> bool:
        self._methods.append(node)
        return True

    def _on_loop(self, node: Node) -> bool:
        if len(self._loops) < MAX_LOOPS:
            kind = LOOP_KINDS.get(node.type)
            if kind is None:
                operator = node.child_by_field_name("operator")
                is_awaited = any(child.type == "await" for child in node.children)
                kind = (
                    "for-await" if is_awaited else FOR_IN_KINDS.get("" if operator is None else operator.type, "for-of")
                )
            self._loops.append({"kind": kind, "at": node.start_byte})
        return True


def _add_words_of_node(code: bytes, node: Node, offsets_by_text: dict[bytes, list[int]]) -> None:
    for word in WORD.finditer(code, node.start_byte, node.end_byte):
        if word[1] is None:  # else a property
            offsets_by_text.setdefault(word[2], []).append(word.start())


def _decode_names(offsets_by_text: dict[bytes, list[int]]) -> dict[str, list[int]] | None:
    if PLAIN_NAMES.fullmatch(b" ".join(offsets_by_text)):
        return {word.decode(): places for word, places in offsets_by_text.items() if not word.isspace()}
    names: dict[str, list[int]] = {}
    for word, places in offsets_by_text.items():
        if word.isspace():
            continue  # it was only a type
        name = word.decode() if PLAIN_NAME.fullmatch(word) else _decode_name(word.decode())
        if name is None:
            return None
        merged = names.setdefault(name, places)
        if merged is not places:
            merged += places
            merged.sort()
    return names


def _decode_name(word: str) -> str | None:
    """A name without escapes; None when it can be none: what is not understood here, the engine may divide."""
    try:
        name = ESCAPE.sub(lambda found: chr(int(found[1] or found[2], 16)), word)
    except ValueError:
        return None
    return name if ("a" + name.translate(JOINERS)).isidentifier() else None
