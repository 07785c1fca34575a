"""Finds where the parser may have read other tokens than the engine does.

Loaded by path in locked workers. That depends on which `/` begins a regular expression and on HTML-like comments: each
is checked here again, and counts as ambiguous unless it is certain.
"""

from __future__ import annotations

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tree_sitter import Node

    from .parse import Handler

MAX_SLASHES = 16384
MAX_LOOKUPS = 256
MAX_PARENTS = 8

TEXT_NODES = ("string", "string_fragment", "regex", "hash_bang_line")
HEAD_STATEMENTS = ("if_statement", "while_statement", "with_statement")
FOR_STATEMENTS = ("for_statement", "for_in_statement")
# A word of the language leads these: what their block ends is a statement.
BLOCK_STATEMENTS = (
    *HEAD_STATEMENTS,
    *FOR_STATEMENTS,
    "else_clause",
    "try_statement",
    "catch_clause",
    "finally_clause",
    "switch_statement",
)
# These end a statement where they stand like one.
DECLARATIONS = ("function_declaration", "generator_function_declaration", "class_declaration")
# These end an expression where they are one; after an arrow function's block there is nothing more.
BLOCK_EXPRESSIONS = ("object", "function_expression", "generator_function", "class")
BLOCK_NODES = ("statement_block", "class_body", "switch_body")

LAST_WORD = compile_lazily(rb"(?:\.[ \t]*|\\)?[\w$\x80-\xff]+\Z")
MAX_WORD_BYTES = 64
# Joiners may stand in a name, though in none of Python's.
JOINERS = dict.fromkeys(map(ord, "$\u200c\u200d"), "a")

OPERAND_ENDS = b")]'\"`"
CHARACTERS_BEFORE_REGEX = b"(,=:[!&|?{;*%~^<>"
# The grammar finds flags behind a comment.
REGEX = compile_lazily(rb"/(?![*/])(?:[^/\\\[\r\n]|\\[^\r\n]|\[(?:[^\]\\\r\n]|\\[^\r\n])*\])+/[a-zA-Z]*")
CHARACTERS_BEFORE_OBJECT = (b"(", b",", b"=", b"[", b"&", b"|", b"?")
WORDS_BEFORE_OBJECT = frozenset((b"return", b"throw"))
WORDS_BEFORE_REGEX = frozenset(b"return typeof case do else in instanceof void delete throw".split())
# Words that are not operands, or only sometimes.
NON_OPERAND_WORDS = WORDS_BEFORE_REGEX | frozenset(
    b"await yield of let static new extends default break continue".split()
)


class ParseAmbiguityFinder:
    """Collects what may be ambiguous in one program; places are byte offsets.

    ``blank_spans`` is `edits.blank_spans`. Without ``has_html_comments`` the engine knows no HTML-like comments.
    """

    def __init__(
        self, blank_spans: Callable[[bytes, list[tuple[int, int]]], bytes], *, has_html_comments: bool = True
    ) -> None:
        self._blank_spans = blank_spans
        self._has_html_comments = has_html_comments
        self._text_nodes: list[Node] = []
        self.slash_nodes: list[Node] = []
        self._html_comments: list[Node] = []
        self._lookups_left = MAX_LOOKUPS

    def get_handlers_by_kind(self) -> dict[str, Handler]:
        """Handlers by node kind; each returns whether the walk enters the node."""
        return {
            **dict.fromkeys(TEXT_NODES if self._has_html_comments else ("regex",), self._text_nodes.append),
            **dict.fromkeys(("/", "/="), self.slash_nodes.append),
            "html_comment": self._on_html_comment,
        }

    def has_no_candidates_but_methods(self) -> bool:
        """True when there is nothing that could be doubtful but methods."""
        return not (self._text_nodes or self.slash_nodes or self._html_comments)

    def find_first_ambiguity(self, code: bytes, methods: list[Node]) -> int | None:
        """Return the first ambiguous place in ``code`` (types and comments blank), or None.

        ``methods`` are methods or calls before blocks.
        """
        return min(self._iterate_first_ambiguity_of_each_kind(code, methods), default=None)

    def _on_html_comment(self, node: Node) -> bool:
        self._html_comments.append(node)
        return True

    def _iterate_first_ambiguity_of_each_kind(self, code: bytes, methods: list[Node]) -> Iterator[int]:
        """Yield the first ambiguous place of each kind."""
        yield from (node.start_byte for node in self._html_comments[:1])
        if self._has_html_comments and (b"<!--" in code or b"-->" in code):
            bare = self._blank_spans(code, [(node.start_byte, node.end_byte) for node in self._text_nodes])
            if b"<!--" in bare or not _are_all_arrows_decrements(bare):
                yield 0
        if len(self.slash_nodes) > MAX_SLASHES:
            yield self.slash_nodes[MAX_SLASHES].start_byte
        for node in self.slash_nodes[:MAX_SLASHES]:
            if not (_is_division_at(code, node.start_byte) or _divides_block_expression(code, node)):
                yield node.start_byte
                break
        for node in self._text_nodes:
            if node.type == "regex" and not self._is_unambiguous_regex(code, node):
                yield node.start_byte
                break
        for node in methods:
            if not self._is_unambiguous_method(code, node):
                yield node.start_byte
                break

    def _is_unambiguous_method(self, code: bytes, method: Node) -> bool:
        """Return whether a method is real: the grammar reads alternating calls and blocks as an object."""
        holder = method.parent
        for _ in range(MAX_PARENTS):
            self._lookups_left -= 1
            if holder is None or self._lookups_left < 0:
                return False
            if holder.type != "object":
                return holder.type == "class_body"
            at = holder.start_byte
            before = _get_text_before(code, at)
            pair = holder.parent if before.endswith(b":") else None
            if pair is None or pair.type != "pair":
                return before.endswith(CHARACTERS_BEFORE_OBJECT) or _follows_keyword_on_line(
                    code, at, WORDS_BEFORE_OBJECT
                )
            holder = pair.parent
        return False

    def _is_unambiguous_regex(self, code: bytes, node: Node) -> bool:
        if REGEX.fullmatch(code, node.start_byte, node.end_byte) is None:
            return False
        before = _get_text_before(code, node.start_byte)
        last = before[-1:]
        if not last:
            return True
        if last in (b"+", b"-"):
            return before[-2:-1] != last
        if last == b")":
            return self._follows_statement_head(node)
        if last == b"}":
            return self._follows_statement_block(code, node)
        if last in CHARACTERS_BEFORE_REGEX:
            return True
        word = _get_last_word(before)
        return word in WORDS_BEFORE_REGEX or (word == b"of" and self._follows_of_keyword(node))

    def _follows_of_keyword(self, node: Node) -> bool:
        """Return whether the `of` before a regular expression is that of a loop's head."""
        before = self._find_previous_node(node)
        parent = None if before is None or before.type != "of" else before.parent
        return parent is not None and parent.type == "for_in_statement"

    def _follows_statement_head(self, node: Node) -> bool:
        """Return whether the `)` before a regular expression closes the head of an `if` or a loop."""
        before = self._find_previous_node(node)
        if before is None or before.type == "do_statement":
            return before is not None
        parent = "" if before.parent is None else before.parent.type
        return parent in (HEAD_STATEMENTS if before.type == "parenthesized_expression" else FOR_STATEMENTS)

    def _find_previous_node(self, node: Node) -> Node | None:
        """Return the token that ends before a node, without blanks and comments; None if the search takes too long."""
        self._lookups_left -= 1
        step: Node | None = node if self._lookups_left >= 0 else None
        for _ in range(MAX_PARENTS):
            before = step.prev_sibling if step is not None else None
            while before is not None and before.type == "comment":
                before = before.prev_sibling
            if before is not None or step is None:
                return before
            step = step.parent
        return None

    def _follows_statement_block(self, code: bytes, node: Node) -> bool:
        """Return whether the `}` before a regular expression ends a statement, beyond doubt, and no operand."""
        self._lookups_left -= 1
        step: Node | None = node
        while step is not None and step.type != "expression_statement":
            step = step.parent if step.start_byte == node.start_byte else None
        before = None if step is None else step.prev_named_sibling
        while before is not None and before.type == "comment":
            before = before.prev_named_sibling
        if before is None or self._lookups_left < 0 or code[before.end_byte : node.start_byte].strip():
            return False
        last: Node | None = before
        for _ in range(MAX_PARENTS):
            if last is None or last.type in BLOCK_NODES:
                break
            last = last.child(last.child_count - 1) if last.child_count else None
        owner = None if last is None or last.type not in BLOCK_NODES else last.parent
        if last is None or owner is None:
            return False
        if owner.type in BLOCK_STATEMENTS:
            return True
        if owner.type in DECLARATIONS:
            return _begins_statement(code, owner) or _ends_with_operand(_get_text_before(code, owner.start_byte))
        return last is before and _begins_statement(code, last)


def _begins_statement(code: bytes, node: Node) -> bool:
    """Return whether a node, in a block or the program itself, follows what only a statement follows."""
    parent = node.parent
    before = _get_text_before(code, node.start_byte)
    is_in_block = parent is not None and parent.type in ("program", "statement_block")
    return is_in_block and (not before or (before.endswith((b";", b"{", b"}")) and not before.endswith(b"${")))


def _get_text_before(code: bytes, at: int) -> bytes:
    """A little of what stands before a place, without the blanks between."""
    size = MAX_WORD_BYTES
    while True:
        start = max(0, at - size)
        text = code[start:at].rstrip()
        if len(text) >= MAX_WORD_BYTES // 2 or start == 0:
            return text
        size *= 4


def _get_last_word(before: bytes) -> bytes:
    match = LAST_WORD.search(before)
    return b"" if match is None else match.group()


def _follows_keyword_on_line(code: bytes, at: int, keywords: frozenset[bytes]) -> bool:
    """Return whether one of these words stands before a place, on the same line."""
    return _get_last_word(code[max(0, at - MAX_WORD_BYTES) : at].rstrip(b" \t")) in keywords


def _is_division_at(code: bytes, at: int) -> bool:
    before = _get_text_before(code, at)
    last = before[-1:]
    if last in (b"+", b"-"):  # a step behind its operand, on the operand's line
        return before[-2:-1] == last and _ends_with_operand(before[:-2].rstrip(b" \t"))
    return _ends_with_operand(before)


def _divides_block_expression(code: bytes, slash: Node) -> bool:
    """Return whether what a `}` ends before a `/` stands where only an expression can: the engine divides it, too.

    On a line of its own the `/` must be none that could begin a regular expression either.
    """
    operand = slash.prev_sibling
    while operand is not None and operand.type == "comment":
        operand = operand.prev_sibling
    if slash.type != "/" or operand is None or operand.type not in BLOCK_EXPRESSIONS:
        return False
    between = code[operand.end_byte : slash.start_byte]
    if between.strip() or (between.strip(b" \t") and REGEX.match(code, slash.start_byte)):
        return False
    at = operand.start_byte
    return _get_text_before(code, at).endswith(CHARACTERS_BEFORE_OBJECT) or _follows_keyword_on_line(
        code, at, WORDS_BEFORE_OBJECT
    )


def _ends_with_operand(before: bytes) -> bool:
    last = before[-1:]
    if not last:
        return False
    if last in OPERAND_ENDS:
        return True
    word = _get_last_word(before)
    if word.isascii():
        return bool(word) and word not in NON_OPERAND_WORDS and not word.startswith(b"\\")
    # A space of another alphabet ends a word too.
    return ("a" + word.lstrip(b". \t").decode(errors="replace").translate(JOINERS)).isidentifier()


def _are_all_arrows_decrements(code: bytes) -> bool:
    """Return whether every `-->` is a step and a comparison: what stands first in its line begins a comment."""
    at = code.find(b"-->")
    while at >= 0:
        if not _ends_with_operand(code[max(0, at - MAX_WORD_BYTES) : at].rstrip(b" \t")):
            return False
        at = code.find(b"-->", at + 3)
    return True
