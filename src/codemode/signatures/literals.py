"""Values and comments as JavaScript text that cannot be misread or broken out of."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from ..trace.unseen import BLANK_CHARACTERS, FORMAT_CHARACTERS

MAX_LITERAL_DEPTH = 8
MAX_LITERAL_ITEMS = 50
MAX_INTEGER_BITS = 1024
MAX_EXACT_INTEGER = 2**53
"""What lies beyond is a BigInt in a program."""
ELISION = "…"

_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")
# Read as the start of a construct signature, or refused by the TypeScript grammar that checks these texts.
_CONTEXTUAL_KEYWORDS = frozenset({"new", "abstract"})
# Controls, invisible and bidirectional characters (text that reads otherwise than it runs), lone surrogates.
_INVISIBLE_CHARACTERS = f"\x00-\x09\x0b-\x1f\x7f-\x9f\u202f\ud800-\udfff{FORMAT_CHARACTERS}{BLANK_CHARACTERS}"
_UNSAFE_CHARACTER = re.compile(f"[\n\u2028\u2029{_INVISIBLE_CHARACTERS}]")
_UNSAFE_EXCEPT_NEWLINE = re.compile(f"[{_INVISIBLE_CHARACTERS}]")


def is_identifier(name: str) -> bool:
    """Return whether ``tools.<name>`` can be written."""
    return _IDENTIFIER.match(name) is not None


def to_member_name(name: str) -> str:
    """``name`` as the key of a type member."""
    return name if is_identifier(name) and name not in _CONTEXTUAL_KEYWORDS else to_string_literal(name)


def to_member_access(target: str, name: str) -> str:
    """``target.name`` or ``target["na-me"]``."""
    return f"{target}.{name}" if is_identifier(name) else f"{target}[{to_string_literal(name)}]"


def to_string_literal(text: str) -> str:
    """A double-quoted literal."""
    return _UNSAFE_CHARACTER.sub(_escape_character, json.dumps(text, ensure_ascii=False))


def _escape_character(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\u{{{code:x}}}"


def to_number_literal(value: float) -> str | None:
    """A number, or ``None`` when JavaScript has no literal for it."""
    if isinstance(value, int):
        exact = "" if -MAX_EXACT_INTEGER <= value <= MAX_EXACT_INTEGER else "n"
        return f"{int(value)}{exact}" if value.bit_length() <= MAX_INTEGER_BITS else None
    return repr(float(value)) if math.isfinite(value) else None


class JavaScriptExpression(str):
    """An expression that stands as it is among values of a literal."""

    __slots__ = ()


def to_literal(value: Any, depth: int = 0) -> str:
    """A JavaScript expression for a JSON value; what is too deep, too long or no JSON is elided."""
    if type(value) is JavaScriptExpression:
        return value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return to_string_literal(value)
    if isinstance(value, int | float):
        return to_number_literal(value) or ELISION
    if depth >= MAX_LITERAL_DEPTH:
        return ELISION
    if isinstance(value, Mapping):
        return _to_object_literal(cast("Mapping[Any, Any]", value), depth + 1)
    if isinstance(value, list | tuple):
        return _to_array_literal(cast("Sequence[Any]", value), depth + 1)
    return ELISION


def _to_object_literal(value: Mapping[Any, Any], depth: int) -> str:
    entries = list(value.items())
    parts = [f"{_print_key(str(key))}: {to_literal(item, depth)}" for key, item in entries[:MAX_LITERAL_ITEMS]]
    if len(entries) > MAX_LITERAL_ITEMS:
        parts.append(ELISION)
    return f"{{ {', '.join(parts)} }}" if parts else "{}"


def _print_key(name: str) -> str:
    # Written plainly, this one key would set the prototype.
    if name == "__proto__":
        return '["__proto__"]'
    return name if is_identifier(name) else to_string_literal(name)


def _to_array_literal(value: Sequence[Any], depth: int) -> str:
    parts = [to_literal(item, depth) for item in value[:MAX_LITERAL_ITEMS]]
    if len(value) > MAX_LITERAL_ITEMS:
        parts.append(ELISION)
    return f"[{', '.join(parts)}]"


def clip_with_ellipsis(text: str, max_characters: int) -> str:
    """At most ``max_characters``, the last of them an ellipsis when something was cut."""
    return text if len(text) <= max_characters else text[: max_characters - 1].rstrip() + ELISION


def to_comment_lines(text: str, max_characters: int) -> list[str]:
    """The lines of a comment, safe inside ``/* */``: no line can end it, or be mistaken for code."""
    # Terminators are broken last: what the cleaning removes could have stood between their halves.
    visible = _UNSAFE_EXCEPT_NEWLINE.sub(
        " ", re.sub(r"\r\n?|[\u2028\u2029]", "\n", clip_with_ellipsis(text, max_characters))
    )
    lines = [line.rstrip().replace("*/", "*\\/") for line in visible.strip().split("\n")]
    return [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]


def to_comment_line(text: str, max_characters: int) -> str:
    """`to_comment_lines` on one line, runs of white space made one space."""
    return " ".join(" ".join(to_comment_lines(text, max_characters)).split())


def fence_typescript(code: str) -> str:
    """TypeScript as a block of Markdown that nothing inside can end."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
    return f"{fence}ts\n{code}\n{fence}"
