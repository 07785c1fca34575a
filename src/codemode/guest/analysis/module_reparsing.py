"""Rewrites module syntax that the grammar does not know, in place, for a second parse.

Loaded by path in locked workers. Only the parser sees the rewritten text, in which nothing has moved. The program that
runs and its facts come from the original. The engine decides whether a text is a module at all.
"""

from __future__ import annotations

import re

from .lazy_patterns import compile_lazily

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
WIDE_BREAK = compile_lazily(rb"\xe2\x80[\xa8\xa9]")
WIDE_BLANK = compile_lazily(rb"\xef\xbb\xbf|\xc2\xa0|\xe1\x9a\x80|\xe2\x80[\x80-\x8a\xaf]|\xe2\x81\x9f|\xe3\x80\x80")
_IMPORT_SOURCE = rb"(?:\bfrom|^[ \t]*import)(?:\s|/\*[^*]*\*/)*(?:\"[^\"\r\n]*\"|'[^'\r\n]*')"
ATTRIBUTES = compile_lazily(rb"(" + _IMPORT_SOURCE + rb")(\s*with\s*\{[\w\s,:\"'./-]*\})", re.MULTILINE)
# Names, and a comma with none behind it, are read from the original.
NAME_LIST = compile_lazily(
    rb"((?:^|;|\*/)[ \t]*(?:import|export)\b(?:[ \t]*type\b)?[ \t]*(?:[\w$]+\s*,\s*)?\{)"
    rb"([\w$\s,\"'\\\x80-\xff.-]*)(?=\})",
    re.MULTILINE,
)
TRAILING_COMMA = compile_lazily(rb"((?:^|;|\*/)[ \t]*import\s+[\w$]+\s*),(?=\s*from\b)", re.MULTILINE)
TYPE_STAR = compile_lazily(rb"(\bexport\s+)type(?=\s*\*)")
TYPE_FROM = compile_lazily(rb"(\bimport\s+type\s+)from(?=\s+from\b)")
BEFORE_TEMPLATE = compile_lazily(rb"(^[ \t]*export\b[ \t]*\{[^{}()`]*\}[ \t]*)\r?\n(?=\s*`)", re.MULTILINE)
NOT_BREAK = compile_lazily(rb"[^\r\n]")
_LINE_BREAK = rb"(?:\r\n|[\r\n]|\xe2\x80[\xa8\xa9])"
LINE_COMMENT = compile_lazily(rb"//(?:(?!" + _LINE_BREAK + rb").)*" + _LINE_BREAK, re.DOTALL)
LINE_BREAK = compile_lazily(_LINE_BREAK)
FROM_KEYWORD = compile_lazily(rb"from(?![\w$\\\x80-\xff])")


def parse_module_rewriting_syntax(data: bytes, parse: Parse) -> tuple[bytes, Tree | None]:
    """The text as the parser sees it, and its tree; None when there is no time left."""
    parsed_text = data.replace(*HTML_COMMENT) if HTML_COMMENT[0] in data else data
    parsed_text, tree = _parse_joining_lines(parsed_text, parse)
    for number in range(MAX_ROUNDS):
        if tree is None or not tree.root_node.has_error:
            break
        rewritten = _insert_missing_semicolons(
            _rewrite_unsupported_syntax(parsed_text) if number == 0 else parsed_text, tree
        )
        if rewritten == parsed_text:
            break
        rewritten, new_tree = _parse_joining_lines(rewritten, parse)
        if new_tree is None:
            break
        parsed_text, tree = rewritten, new_tree
    return parsed_text, tree


def _parse_joining_lines(text: bytes, parse: Parse) -> tuple[bytes, Tree | None]:
    tree = parse(text)
    for _ in range(MAX_JOINS):
        if tree is None or b"export" not in text or (joined_text := _join_continued_statements(text, tree)) == text:
            break
        text, tree = joined_text, parse(joined_text)
    return text, tree


def find_html_comment(data: bytes, tree: Tree) -> int | None:
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


def _rewrite_unsupported_syntax(text: bytes) -> bytes:
    if not text.isascii():
        text = WIDE_BREAK.sub(b"  \n", text)
        text = WIDE_BLANK.sub(lambda found: b" " * len(found[0]), text)
    text = ATTRIBUTES.sub(lambda found: found[1] + NOT_BREAK.sub(b" ", found[2]), text)
    text = NAME_LIST.sub(lambda found: found[1] + NOT_BREAK.sub(b" ", found[2]), text)
    text = TRAILING_COMMA.sub(lambda found: found[1] + b" ", text)
    text = TYPE_STAR.sub(lambda found: found[1] + b"    ", text)
    text = TYPE_FROM.sub(lambda found: found[1] + b"From", text)
    return BEFORE_TEMPLATE.sub(lambda found: found[1] + b" " * (len(found[0]) - len(found[1]) - 1) + b";", text)


def _join_continued_statements(text: bytes, tree: Tree) -> bytes:
    """On one line what the language does not end at a line break, and the grammar does: `export`, and names `from`."""
    joined = bytearray(text)
    following: Node | None = None
    for node in reversed(tree.root_node.children):
        if node.type == "comment":
            continue
        start = None if following is None else _find_continuation_start(text, node, following)
        if following is not None and start is not None:
            between = LINE_COMMENT.sub(_to_blank_block_comment, text[start : following.start_byte])
            joined[start : following.start_byte] = LINE_BREAK.sub(lambda found: b" " * len(found[0]), between)
        following = node
    return bytes(joined)


def _to_blank_block_comment(comment: re.Match[bytes]) -> bytes:
    size = len(comment[0])
    return b" " * size if size < 4 else b"/*" + b" " * (size - 4) + b"*/"


def _find_continuation_start(text: bytes, node: Node, following: Node) -> int | None:
    """Return where a statement's rest may begin that continues with the next statement."""
    children = node.children
    if node.type == "expression_statement":
        first = children[0]
        return first.end_byte if text[first.start_byte : first.end_byte] == b"export" else None
    if node.type != "export_statement" or any(child.type in (";", "from") for child in children):
        return None
    clause = next((child for child in children if child.type == "export_clause"), None)
    return None if clause is None or FROM_KEYWORD.match(text, following.start_byte) is None else clause.end_byte


def _insert_missing_semicolons(text: bytes, tree: Tree) -> bytes:
    """Return the text with each `;` that the grammar misses before a line that cannot continue the statement."""
    completed = bytearray(text)
    for node in tree.root_node.children:
        if node.type in STATEMENTS and node.has_error:
            at = _find_missing_semicolon(node)
            if at is not None and completed[at : at + 1].isspace():
                completed[at : at + 1] = b";"
    return bytes(completed)


def _find_missing_semicolon(statement: Node) -> int | None:
    """Return the place of a missing `;`."""
    children = statement.children
    last = children[-1] if children else None
    return last.start_byte if last is not None and last.is_missing and last.type == ";" else None
