"""Plain JSON as the engine writes it, and as JavaScript that says it. Runs no code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..data.narrowing import is_array, is_object
from ..host import steps

_LAST_EXACT = 2**53
_LAST_INDEX = 2**32 - 2
_SAID_OTHERWISE = re.compile("[0-9]{16}|__proto__")
# What Python's own encoder writes as the engine does, at once where a container holds nothing else.
_ALIKE = frozenset({str, int, bool, type(None)})
_encoded = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def engine_texts(value: Any) -> tuple[str, str]:
    """Return a value as the engine's JSON has it, which a replay compares; and as a literal, nearly always the same.

    In the literal an integer that no number holds is a BigInt, and ``__proto__`` a key like any other.
    """
    text = _text(value, is_literal=False)
    return text, _text(value, is_literal=True) if _SAID_OTHERWISE.search(text) else text


def _text(value: Any, *, is_literal: bool) -> str:
    parts: list[str] = []
    _write(value, parts.append, is_literal=is_literal)
    return "".join(parts)


def _write(value: Any, put: Callable[[str], object], *, is_literal: bool) -> None:
    steps.take()
    if is_object(value) and not (_is_alike(value.values(), is_literal=is_literal) and _is_in_order(value)):
        put("{")
        for at, key in enumerate(_in_order(value)):
            shown = string_text(key)
            put(f"{',' if at else ''}{f'[{shown}]' if is_literal and key == '__proto__' else shown}:")
            _write(value[key], put, is_literal=is_literal)
        put("}")
    elif is_array(value) and not _is_alike(value, is_literal=is_literal):
        put("[")
        for at, item in enumerate(value):
            if at:
                put(",")
            _write(item, put, is_literal=is_literal)
        put("]")
    elif isinstance(value, float):
        put(_number(value))
    elif is_literal and type(value) is int and abs(value) > _LAST_EXACT:
        put(f"{value}n")
    else:
        put(_encoded(value))


def _is_alike(values: Collection[Any], *, is_literal: bool) -> bool:
    """Tell whether values are scalars that are written as Python writes them."""
    steps.take(len(values) >> 6)
    kinds = set(map(type, values))
    if not kinds <= _ALIKE:
        return False
    return not (is_literal and int in kinds and any(type(one) is int and abs(one) > _LAST_EXACT for one in values))


def _is_in_order(value: Mapping[str, Any]) -> bool:
    """Tell whether an object has its members as they stand, and no key that a literal says otherwise."""
    return "__proto__" not in value and not any(map(str.isdigit, value))


def _in_order(value: Mapping[str, Any]) -> list[str]:
    """Return the keys as an object has them: first those that are indices, by number."""
    indices = [key for key in value if _is_index(key)]
    return sorted(indices, key=int) + [key for key in value if not _is_index(key)] if indices else list(value)


def _is_index(key: str) -> bool:
    is_plain = key.isascii() and key.isdigit() and (key == "0" or key[0] != "0")
    return is_plain and len(key) <= 10 and int(key) <= _LAST_INDEX


def string_text(text: str) -> str:
    """Return a text as a string of JSON, and of JavaScript."""
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number as ECMAScript writes it (Number::toString): with the digits that Python has, in other forms."""
    mantissa, has_exponent, exponent_text = repr(value).partition("e")
    if not has_exponent:
        return "0" if value == 0 else mantissa.removesuffix(".0")
    sign, exponent = "-" if value < 0 else "", int(exponent_text)
    digits = mantissa.lstrip("-").replace(".", "")
    if exponent > 20 or exponent < -6:
        point = "." if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{point}{digits[1:]}e{exponent:+d}"
    zeros = "0" * (-exponent - 1)
    return f"{sign}0.{zeros}{digits}" if exponent < 0 else f"{sign}{digits}{'0' * (exponent + 1 - len(digits))}"
