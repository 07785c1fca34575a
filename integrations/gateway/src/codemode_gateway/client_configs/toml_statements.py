"""The statements of a TOML text with their places: headers of tables and keys with values. Pure.

Reads just so much that each statement's beginning and end are known; what is no TOML is for `tomllib` to say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

_GAP = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_KEY = re.compile(r'[ \t]*(?:([A-Za-z0-9_-]+)|"((?:[^"\\\r\n]|\\.)*)"|\'([^\'\r\n]*)\')[ \t]*')
_PIECE = re.compile(
    r"""
    \"{3}(?:[^\\]|\\.)*?\"{3,5} | '{3}.*?'{3,5}   # of several lines: one or two quotes more belong to the text
    | "(?:[^"\\\r\n]|\\.)*" | '[^'\r\n]*'
    | \#[^\r\n]* | [^"'\#\[\]{}\r\n]+ | .
    """,
    re.DOTALL | re.VERBOSE,
)
_END = re.compile(r"[ \t]*(?:#[^\r\n]*)?(?:\r\n|\r|\n|\Z)")


@dataclass(frozen=True)
class Statement:
    """One statement from ``start`` to ``end``, its line end included. ``keys`` is the full path of what it says."""

    start: int
    end: int
    keys: tuple[str, ...]
    is_header: bool


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a text that is TOML."""
    table: tuple[str, ...] = ()
    at = _after(_GAP, text, 0)
    while at < len(text):
        start = at
        is_header = text[at] == "["
        if is_header:
            depth = 2 if text.startswith("[[", at) else 1
            keys, at = _keys(text, at + depth)
            at, table = at + depth, keys
        else:
            said, at = _keys(text, at)
            keys, at = (*table, *said), _value_end(text, at + 1)
        at = _after(_END, text, at)
        yield Statement(start, at, keys, is_header)
        at = _after(_GAP, text, at)


def _keys(text: str, at: int) -> tuple[tuple[str, ...], int]:
    found = list[str]()
    while True:
        one = _KEY.match(text, at)
        if one is None:
            raise ValueError("no key of TOML")
        bare, basic, literal = one.groups()
        found.append(bare if bare is not None else literal if literal is not None else _unescaped(basic))
        at = one.end()
        if not text.startswith(".", at):
            return tuple(found), at
        at += 1


def _unescaped(written: str) -> str:
    # What TOML escapes with eight digits JSON does not know.
    short = re.sub(r"\\U([0-9A-Fa-f]{8})", lambda one: json.dumps(chr(int(one[1], 16)))[1:-1], written)
    return json.loads(f'"{short}"', strict=False)


def _value_end(text: str, at: int) -> int:
    depth = 0
    while at < len(text):
        if depth == 0 and text[at] in "\r\n#":
            return at
        piece = _PIECE.match(text, at)
        if piece is None:
            return len(text)
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(piece[0], 0)
        at = piece.end()
    return at


def _after(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at
