"""Parses program text with tree-sitter's TypeScript grammar under a deadline; walks trees.

Loaded by path in locked workers: imports nothing but the machinery that finds the two extension modules.
"""

from __future__ import annotations

from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tree_sitter import Node, Parser, Tree

    Handler = Callable[[Node], bool | None]

READ_CHUNK_BYTES = 16384
ERROR_SYMBOL = 0xFFFF  # outside the range the grammar counts
OPERATORS = ("/", "/=")
SPACE_BYTES = b" \t\r\n"


def load_parser(site_paths: list[str]) -> Parser:
    """A parser of the TypeScript grammar, its extensions found under ``site_paths``. Raises ImportError."""
    binding = _load_extension("tree_sitter", site_paths)
    grammar = _load_extension("tree_sitter_typescript", site_paths)
    return binding.Parser(binding.Language(grammar.language_typescript()))


def _load_extension(package: str, site_paths: list[str]) -> Any:
    # The packages' own __init__ files import tempfile, pathlib and more: every fork pays for them.
    spec = PathFinder.find_spec("_binding", [f"{path}/{package}" for path in site_paths])
    if spec is None or spec.loader is None:
        raise ImportError(f"{package} has no extension module under {site_paths}")
    module = spec.loader.create_module(spec)
    if module is None:
        raise ImportError(f"{package}/_binding is not an extension module")
    spec.loader.exec_module(module)
    return module


def parse(parser: Parser, data: bytes, end: float, clock: Callable[[], float]) -> Tree | None:
    """The tree of ``data`` (UTF-8), or None when ``clock``, which gives seconds, passed ``end`` first."""
    is_parsing = True

    def read_chunk(offset: int, _point: object) -> bytes:
        # The parser polls between tokens only; an early end of input also stops it inside an endless one. Later the
        # texts of the tree's nodes are read through this too, and would wait for ever for what does not come.
        return b"" if is_parsing and clock() > end else data[offset : offset + READ_CHUNK_BYTES]

    def is_late(_offset: int, _has_error: object) -> bool:
        return clock() > end

    try:
        tree: Tree | None = parser.parse(read_chunk, encoding="utf8", progress_callback=is_late)
    except ValueError:  # how the binding reports a cancelled parse
        tree = None
    finally:
        is_parsing = False
        parser.reset()  # a cancelled parse would otherwise be resumed by the next one
    return None if clock() > end else tree


def map_symbols_by_kind(parser: Parser) -> dict[str, list[int]]:
    """The grammar's symbol numbers of each kind of named node, and of the operators that have handlers."""
    language = parser.language
    if language is None:
        raise ValueError("the parser has no language")
    symbols: dict[str, list[int]] = {"ERROR": [ERROR_SYMBOL]}
    for number in range(language.node_kind_count):
        kind = language.node_kind_for_id(number)
        if kind is not None and (language.node_kind_is_named(number) or kind in OPERATORS):
            symbols.setdefault(kind, []).append(number)
    return symbols


def map_handlers_by_symbol(symbols: dict[str, list[int]], tables: list[dict[str, Handler]]) -> dict[int, Handler]:
    """The tables' handlers by symbol number; where two have a kind in common the later runs if the earlier agrees."""
    merged: dict[str, Handler] = {}
    for table in tables:
        for kind, handler in table.items():
            earlier = merged.get(kind)
            merged[kind] = handler if earlier is None else _combine_handlers(earlier, handler)
    return {number: handler for kind, handler in merged.items() for number in symbols.get(kind, ())}


def _combine_handlers(first: Handler, second: Handler) -> Handler:
    return lambda node: first(node) and second(node)


def walk_tree(tree: Tree, handlers: dict[int, Handler]) -> None:
    """Calls each node's handler, in document order; one that returns False keeps the walk out of the node.

    Iterative: hostile text makes trees 100,000 levels deep.
    """
    cursor = tree.walk()
    down, across, up = cursor.goto_first_child, cursor.goto_next_sibling, cursor.goto_parent
    find = handlers.get
    while True:
        node = cursor.node
        assert node is not None  # noqa: S101 - a cursor always stands on a node
        handler = find(node.kind_id)
        if (handler is None or handler(node)) and down():
            continue
        while not across():
            if not up():
                return


def find_try_ranges(tree: Tree, data: bytes, symbols: dict[str, list[int]]) -> list[tuple[int, int]]:
    """The bytes between which each `try` statement of a tree of ``data`` stands."""
    ranges: list[tuple[int, int]] = []
    if b"try" not in data:
        return ranges

    def add_range(node: Node) -> bool:
        ranges.append(node.byte_range)
        return True

    walk_tree(tree, map_handlers_by_symbol(symbols, [{"try_statement": add_range}]))
    return ranges


def find_first_error(tree: Tree, data: bytes) -> int | None:
    """The byte at which the grammar first does not understand a tree of ``data``; None where there is no such place."""
    cursor = tree.walk()
    while True:
        node = cursor.node
        assert node is not None  # noqa: S101 - a cursor always stands on a node
        if node.is_error or (node.is_missing and not _is_optional_semicolon(node, data)):
            return node.start_byte
        if node.has_error and cursor.goto_first_child():
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return None


def _is_optional_semicolon(missing: Node, data: bytes) -> bool:
    # The grammar's scanner wants a semicolon before a `}` that a colon follows, lest it be an object's; the language
    # wants none before any `}`.
    at = missing.end_byte
    while data[at : at + 1] and data[at] in SPACE_BYTES:
        at += 1
    return missing.type == ";" and data[at : at + 1] == b"}"
