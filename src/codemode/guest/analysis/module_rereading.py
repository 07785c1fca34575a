"""Rewrites, place for place, what the grammar does not know of modules, so that another parse understands it.

Loaded by path in locked workers. Only the parser sees the rewritten text, in which nothing has moved: what runs, and
what is known of it, is made of the original. The engine says whether a text is a module at all.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tree_sitter import Node, Tree

    Parse = Callable[[bytes], Tree | None]

MAX_ROUNDS = 3
MAX_JOINS = 2  # behind `export`, and before `from`
STATEMENTS = ("import_statement", "export_statement")
# No comment begins with this in a module; the grammar would read nothing of what stands behind it.
HTML_COMMENT = (b"<!--", b"< --")
MAX_HTML_COMMENTS = 256
WIDE_BREAK = re.compile(rb"\xe2\x80[\xa8\xa9]")
WIDE_BLANK = re.compile(rb"\xef\xbb\xbf|\xc2\xa0|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xaf]|\xe2\x81\x9f|\xe3\x80\x80")
_SOURCE = rb"(?:\bfrom|^[ \t]*import)(?:\s|/\*[^*]*\*/)*(?:\"[^\"\r\n]*\"|'[^'\r\n]*')"
ATTRIBUTES = re.compile(rb"(" + _SOURCE + rb")(\s*with\s*\{[\w\s,:\"'./-]*\})", re.MULTILINE)
# Names, and a comma with none behind it, are read from the original.
NAMES = re.compile(
    rb"((?:^|;|\*/)[ \t]*(?:import|export)\b(?:[ \t]*type\b)?[ \t]*(?:[\w$]+\s*,\s*)?\{)"
    rb"([\w$\s,\"'\\\x80-\xff.-]*)(?=\})",
    re.MULTILINE,
)
COMMA = re.compile(rb"((?:^|;|\*/)[ \t]*import\s+[\w$]+\s*),(?=\s*from\b)", re.MULTILINE)
TYPE_STAR = re.compile(rb"(\bexport\s+)type(?=\s*\*)")
TYPE_FROM = re.compile(rb"(\bimport\s+type\s+)from(?=\s+from\b)")
BEFORE_TEMPLATE = re.compile(rb"(^[ \t]*export\b[ \t]*\{[^{}()`]*\}[ \t]*)\r?\n(?=\s*`)", re.MULTILINE)
NOT_BREAK = re.compile(rb"[^\r\n]")
_BREAK = rb"(?:\r\n|[\r\n]|\xe2\x80[\xa8\xa9])"
LINE_COMMENT = re.compile(rb"//(?:(?!" + _BREAK + rb").)*" + _BREAK, re.DOTALL)
BREAK = re.compile(_BREAK)
FROM = re.compile(rb"from(?![\w$\\\x80-\xff])")


def parsed(data: bytes, parse: Parse) -> tuple[bytes, Tree | None]:
    """The text as the parser sees it, and its tree; None when there is no time left."""
    shown = data.replace(*HTML_COMMENT) if HTML_COMMENT[0] in data else data
    shown, tree = _read(shown, parse)
    for number in range(MAX_ROUNDS):
        if tree is None or not tree.root_node.has_error:
            break
        changed = _ended(_rewritten(shown) if number == 0 else shown, tree)
        if changed == shown:
            break
        changed, following = _read(changed, parse)
        if following is None:
            break
        shown, tree = changed, following
    return shown, tree


def _read(text: bytes, parse: Parse) -> tuple[bytes, Tree | None]:
    tree = parse(text)
    for _ in range(MAX_JOINS):
        if tree is None or b"export" not in text or (joined := _joined(text, tree)) == text:
            break
        text, tree = joined, parse(joined)
    return text, tree


def html_comment(data: bytes, tree: Tree) -> int | None:
    """The place of the first HTML-like comment that is not inside a text or a comment of the language."""
    at = data.find(HTML_COMMENT[0])
    for _ in range(MAX_HTML_COMMENTS):
        if at < 0:
            break
        node = tree.root_node.descendant_for_byte_range(at, at + 1)
        if node is not None and node.type == "<":
            return at
        at = data.find(HTML_COMMENT[0], at + 1)
    return None


def _rewritten(text: bytes) -> bytes:
    if not text.isascii():
        text = WIDE_BREAK.sub(b"  \n", text)
        text = WIDE_BLANK.sub(lambda found: b" " * len(found[0]), text)
    text = ATTRIBUTES.sub(lambda found: found[1] + NOT_BREAK.sub(b" ", found[2]), text)
    text = NAMES.sub(lambda found: found[1] + NOT_BREAK.sub(b" ", found[2]), text)
    text = COMMA.sub(lambda found: found[1] + b" ", text)
    text = TYPE_STAR.sub(lambda found: found[1] + b"    ", text)
    text = TYPE_FROM.sub(lambda found: found[1] + b"From", text)
    return BEFORE_TEMPLATE.sub(lambda found: found[1] + b" " * (len(found[0]) - len(found[1]) - 1) + b";", text)


def _joined(text: bytes, tree: Tree) -> bytes:
    """On one line what the language does not end at a line break, and the grammar does: `export`, and names `from`."""
    shown = bytearray(text)
    following: Node | None = None
    for node in reversed(tree.root_node.children):
        if node.type == "comment":
            continue
        start = None if following is None else _unended(text, node, following)
        if following is not None and start is not None:
            between = LINE_COMMENT.sub(_as_block_comment, text[start : following.start_byte])
            shown[start : following.start_byte] = BREAK.sub(lambda found: b" " * len(found[0]), between)
        following = node
    return bytes(shown)


def _as_block_comment(comment: re.Match[bytes]) -> bytes:
    size = len(comment[0])
    return b" " * size if size < 4 else b"/*" + b" " * (size - 4) + b"*/"


def _unended(text: bytes, node: Node, following: Node) -> int | None:
    """Where the rest of a statement may begin that goes on with the next one."""
    children = node.children
    if node.type == "expression_statement":
        first = children[0]
        return first.end_byte if text[first.start_byte : first.end_byte] == b"export" else None
    if node.type != "export_statement" or any(child.type in (";", "from") for child in children):
        return None
    clause = next((child for child in children if child.type == "export_clause"), None)
    return None if clause is None or FROM.match(text, following.start_byte) is None else clause.end_byte


def _ended(text: bytes, tree: Tree) -> bytes:
    """A `;` where the grammar misses one at the end of a statement, before a line that could not go on with it."""
    shown = bytearray(text)
    for node in tree.root_node.children:
        if node.type in STATEMENTS and node.has_error:
            at = _missing(node)
            if at is not None and shown[at : at + 1].isspace():
                shown[at : at + 1] = b";"
    return bytes(shown)


def _missing(statement: Node) -> int | None:
    """Where a `;` is missing."""
    children = statement.children
    last = children[-1] if children else None
    return last.start_byte if last is not None and last.is_missing and last.type == ";" else None
