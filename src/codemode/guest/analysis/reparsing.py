"""Rewrites types that the grammar misreads as JavaScript, in place, for a second parse.

Loaded by path in locked workers. Only the parser sees the rewritten text, in which nothing has moved; the original
runs. A text is rewritten only where JavaScript has no other meaning, or where TypeScript's own rule makes these types:
`f<T>` before a template or at the end of a line.
"""

from __future__ import annotations

import re
from itertools import islice

from .lazy_patterns import compile_lazily

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tree_sitter import Tree

    Parse = Callable[[bytes], Tree | None]

MAX_TYPE_ARGUMENTS = 64
MAX_ARGUMENTS_BYTES = 2048
# `<in out T` and `, out T`: two names in a row, which no expression has.
VARIANCE = compile_lazily(rb"([<,]\s*(?:const[ \t]+)?)(in[ \t]+out|in|out)(?=[ \t]+[A-Za-z_$])")
# The grammar takes `x as A.B.C` for a member of `x as A.B`, and `x as A | B.C.D` for one of a union.
_NAME = rb"[\w$\x80-\xff]+(?:[ \t]*\.[ \t]*[\w$\x80-\xff]+)*"
CAST_TO_NAMES = compile_lazily(rb"\b(?:as|satisfies)[ \t]+" + _NAME + rb"(?:\s*[|&]\s*" + _NAME + rb")*")
DOT = compile_lazily(rb"[ \t]*\.[ \t]*")
# Names that the grammar has for words of its own: a variable, and a member of a class.
NAMED_LIKE_WORDS = compile_lazily(
    rb"(?:(?<=\blet )|(?<=\bvar )|(?<=\bconst ))(?:as|satisfies)\b|\babstract\b(?![ \t]+[\w$#\"'*\[])"
)
ARGUMENTS_END = compile_lazily(rb"(?<!=)>(?=\s*`|[ \t]*\r?\n\s*[^\s<>+\-(\[`])")
BRACKET = compile_lazily(rb"=>|<|>")
BRACKET_NODES = ("<", ">", ">>", ">>>", "ERROR")
ARGUMENT_NODES = ("type_arguments", "type_parameters")
NOT_BREAK = compile_lazily(rb"[^\r\n]")


def reparse_misread_types(data: bytes, tree: Tree, parse: Parse) -> tuple[Tree, list[tuple[int, int]]]:
    """The better tree of ``data``, and the places of the type arguments that stand in none of its nodes.

    ``parse`` gives None when there is no time left; the first tree is as good as any then.
    """
    type_argument_spans = list(_find_misread_type_arguments(data, tree, parse)) if b">" in data else []
    text = data
    if b"as" in data or b"satisfies" in data:  # most programs say neither
        text = CAST_TO_NAMES.sub(lambda found: DOT.sub(_to_underscores, found.group()), data)
    for start, end in type_argument_spans:
        text = text[:start] + NOT_BREAK.sub(b" ", text[start:end]) + text[end:]
    if tree.root_node.has_error:
        text = VARIANCE.sub(lambda found: found[1] + b" " * len(found[2]), text)
        text = NAMED_LIKE_WORDS.sub(lambda found: found.group().upper(), text)
    second_tree = None if text == data else parse(text)
    if second_tree is None or (second_tree.root_node.has_error and not tree.root_node.has_error):
        return tree, []
    return second_tree, type_argument_spans


def _to_underscores(match: re.Match[bytes]) -> bytes:
    return b"_" * len(match.group())


def _find_misread_type_arguments(data: bytes, tree: Tree, parse: Parse) -> Iterator[tuple[int, int]]:
    """Return the places where the tree has comparisons or errors instead of type arguments."""
    for match in islice(ARGUMENTS_END.finditer(data), MAX_TYPE_ARGUMENTS):
        end = match.end()
        start = _find_opening_bracket(data, end)
        if start is None or not (_is_misread_bracket(tree, start) and _is_misread_bracket(tree, end - 1)):
            continue
        inside = data[start + 1 : end - 1]
        if b"&&" in inside or b"||" in inside:
            continue  # which the grammar takes for `&` and a leading `&`
        types = parse(b"type T=[" + inside + b"]")
        if types is not None and not types.root_node.has_error:
            yield start, end


def _find_opening_bracket(data: bytes, end: int) -> int | None:
    """The place of the `<` that the `>` before ``end`` closes."""
    start, depth = max(0, end - MAX_ARGUMENTS_BYTES), 0
    for bracket in reversed(list(BRACKET.finditer(data, start, end))):
        depth += {b"<": -1, b">": 1}.get(bracket.group(), 0)
        if depth == 0 and bracket.group() == b"<":
            return bracket.start()
    return None


def _is_misread_bracket(tree: Tree, at: int) -> bool:
    """True for a bracket that the tree has as an operator, or for any bracket of a tree that has an error."""
    node = tree.root_node.descendant_for_byte_range(at, at + 1)
    if node is None or node.type not in BRACKET_NODES:
        return False
    return tree.root_node.has_error or node.parent is None or node.parent.type not in ARGUMENT_NODES
