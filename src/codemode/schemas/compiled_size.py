"""What memory a pattern takes once Rust's engine has compiled it, as an estimate that no pattern can be far above."""

from __future__ import annotations

import re

MOST_COMPILED_BYTES = 24 << 20
"""The engine refuses to compile what would take more."""

_MAX_READ_CHARACTERS = 8192
_MOST_OF_CAPTURES = 1 << 20
_FACTOR_OF_CAPTURES = 8
_LITERAL_BYTES, _CLASS_BYTES, _UNICODE_CLASS_BYTES = 512, 8 << 10, 80 << 10
_PART = re.compile(r"\\[pPxuU]\{[^}]*\}|\\[pP]?.|\{[0-9]{1,9}(?:,[0-9]{0,9})?\}|\[\^?\]?|\(\?[:<P]?|.", re.DOTALL)
_IGNORES_SPACE = re.compile(r"\(\?[A-Za-z-]*x")  # in which a comment may hold any bracket


def compiled_bytes(pattern: str) -> int:
    r"""Return about how many bytes a pattern takes that is written for this engine: what is repeated counts each time.

    A set such as ``\w`` is some 700 ranges of characters, in UTF-8.
    """
    if len(pattern) > _MAX_READ_CHARACTERS or _IGNORES_SPACE.search(pattern):
        return MOST_COMPILED_BYTES
    total, last, outer, depth = 0, 0, list[int](), 0
    for part in _PART.findall(pattern):
        if depth:  # a class is one part, whatever is in it
            last += _bytes_of(part)
            depth += (part[0] == "[") - (part == "]")
            total += 0 if depth else last
        elif part[0] == "{" and len(part) > 1:
            times = _times(part)
            total, last = total + last * (times - 1), last * times
        elif part[0] == "[":
            last, depth = _bytes_of(part), 1
        elif part[0] == "(":
            outer.append(total)
            total = 0
        elif part == ")" and outer:
            last, total = total, outer.pop() + total
        else:
            last = _bytes_of(part)
            total += last
    return _with_captures(pattern, len(pattern) * 4 + sum(outer) + total + last * bool(depth))


def _with_captures(pattern: str, size: int) -> int:
    """Add what the engine makes beside it to find where groups are."""
    more = min(size * _FACTOR_OF_CAPTURES, _MOST_OF_CAPTURES) if "(" in pattern.replace("(?:", "") else 0
    return min(size + more, MOST_COMPILED_BYTES)


def _times(repetition: str) -> int:
    least, comma, most = repetition[1:-1].partition(",")
    return max(int(most or least) + (1 if comma and not most else 0), 1)


def _bytes_of(part: str) -> int:
    if part[0] != "\\":
        return _LITERAL_BYTES
    if part[1:2] in tuple("wWpP"):
        return _UNICODE_CLASS_BYTES
    return _CLASS_BYTES if part[1:2] in tuple("dDsSbB") else _LITERAL_BYTES
