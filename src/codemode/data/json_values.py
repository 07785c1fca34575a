"""Encode JSON with byte limits, and decode untrusted JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NoReturn, cast

from ..cached_property import cached_property
from ..errors import CodeModeSerializationError
from ..host.steps import run_without_gc
from .json_shape import estimate_json_length, find_exceeded_limit, has_longer_digit_run, has_more_values_than
from .plain_json import (
    MAX_DEPTH,
    MAX_INT_DIGITS,
    MAX_PLAIN_VALUES,
    can_encode_with_orjson,
    describe_encoding_failure,
    encode_json_in_steps,
    encode_small,
    encode_small_sorted,
    encode_strict_json,
    encode_with_orjson_or_in_steps,
    encode_with_pydantic_fallback,
    has_cycle,
)

_SMALL_CHARACTERS = 1 << 9
_LARGE_TEXT_CHARACTERS = 1 << 16
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SPLIT_PAIR_EXCESS = 8  # two escapes are written for what is four bytes
_ESCAPE_CHARACTERS = 6
_MAX_BYTES_PER_CHARACTER = 6  # as `count_utf8_bytes` counts
# Some milliseconds, where every character is half a pair.
_CHUNK_CHARACTERS = 1 << 14
NOT_GIVEN: Any = object()
"""A missing argument, where None is a value."""


def count_utf8_bytes(text: str) -> int:
    """Count the UTF-8 bytes of ``text``; a lone surrogate counts six, as ``JSON.stringify`` escapes it."""
    if text.isascii():
        return len(text)
    if len(text) <= _LARGE_TEXT_CHARACTERS:
        return len(text.encode("utf-8", "backslashreplace"))
    pieces = (text[start : start + _LARGE_TEXT_CHARACTERS] for start in range(0, len(text), _LARGE_TEXT_CHARACTERS))
    return sum(map(count_utf8_bytes, pieces))


def replace_lone_surrogates(text: str) -> str:
    """Replace lone surrogates, which no encoding takes, by U+FFFD."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


# --- decoding ---


def decode_json(text: str, *, max_depth: int = MAX_DEPTH) -> Any:
    """Parse untrusted JSON text.

    The last of duplicate keys wins, as in JavaScript. Escaped lone surrogates become U+FFFD. Raises `ValueError` for
    invalid JSON (``NaN``, ``Infinity``), a number that overflows a double (``1e999``), an integer of more than 1000
    digits, or nesting beyond ``max_depth``.
    """
    if len(text) > max_depth and nests_deeper_than(text, max_depth):
        raise ValueError(f"JSON nests deeper than {max_depth} levels")
    try:
        value = _decode_text(text) if len(text) <= MAX_INT_DIGITS else _decode_long_text(text)
    except RecursionError:
        # The caller may already be deep in its own stack.
        raise ValueError("JSON nests too deeply for the current stack") from None
    if "\\ud" in text or "\\uD" in text:
        return _replace_nested_surrogates(value)
    return value


def decode_json_replacing_floats(read_number: Callable[[str], Any], text: str) -> Any:
    """Parse untrusted JSON text; ``read_number`` may return a replacement for a number, or None.

    It gets numbers with a fraction or an exponent. Lone surrogates stay.
    """
    if nests_deeper_than(text, MAX_DEPTH):
        raise ValueError(f"JSON nests deeper than {MAX_DEPTH} levels")
    _require_max_int_digits(text)

    def decode_number(number: str) -> Any:
        replacement = read_number(number)
        return _parse_finite_float(number) if replacement is None else replacement

    decoder = json.JSONDecoder(parse_float=decode_number, parse_constant=_refuse_constant)
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("JSON nests too deeply for the current stack") from None


def _decode_long_text(text: str) -> Any:
    _require_max_int_digits(text)
    return _decode_text(text) if len(text) < _LARGE_TEXT_CHARACTERS else run_without_gc(lambda: _decode_text(text))


def _decode_text(text: str) -> Any:
    # Most texts have no surrounding white space, which the decoder would look for first.
    try:
        value, end = _scan_once(text, 0)
    except StopIteration:
        value, end = None, -1
    return value if end == len(text) else _DECODER.decode(text)


def nests_deeper_than(text: str, max_depth: int) -> bool:
    """Tell whether JSON text nests deeper than ``max_depth``, in linear time and without recursion."""
    return len(text) > max_depth and find_exceeded_limit(text, max_depth=max_depth) is not None


def require_max_values_in_json_text(text: str, max_values: int, what: str) -> None:
    """Raise `CodeModeSerializationError` for a JSON text of more than ``max_values`` containers and scalars.

    Each of them costs some thirty times its text once it is decoded, so this comes first.
    """
    # Two characters at the least for each value.
    if len(text) > 2 * max_values and find_exceeded_limit(text, max_values=max_values) is not None:
        raise create_too_many_values_error(max_values, what)


def require_json_text_within_limits(text: str, max_bytes: int, max_values: int, what: str) -> None:
    """Raise `CodeModeSerializationError` for a JSON text of more than ``max_bytes`` or ``max_values``."""
    if _MAX_BYTES_PER_CHARACTER * len(text) > max_bytes:
        require_max_bytes(count_utf8_bytes(text), max_bytes, what)
    require_max_values_in_json_text(text, max_values, what)


def create_too_many_values_error(max_values: int, what: str) -> CodeModeSerializationError:
    """Return the error for a value of more than ``max_values`` containers and scalars."""
    return CodeModeSerializationError(
        f"{what} holds more than {max_values} values (objects, arrays and what is in them), the limit that "
        "execution_policy.max_values sets: pass less at a time, or much of it as one string.",
        details={"max_values": max_values},
    )


def _require_max_int_digits(text: str) -> None:
    # Reading one takes time quadratic in its digits, and Python's own limit may have been lifted for the process.
    if len(text) > MAX_INT_DIGITS and has_longer_digit_run(text, MAX_INT_DIGITS):
        raise ValueError(f"JSON holds a number of more than {MAX_INT_DIGITS} digits")


def _replace_nested_surrogates(value: Any) -> Any:
    return json.loads(_LONE_SURROGATE.sub("\ufffd", json.dumps(value, ensure_ascii=False)))


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("JSON holds a number too large for a double")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_parse_finite_float, parse_constant=_refuse_constant)
_scan_once = cast("Callable[[str, int], tuple[Any, int]]", vars(_DECODER)["scan_once"])

# --- encoding ---


class CachedJsonObject(dict[str, Any]):
    """A plain JSON object that does not change any more: its canonical text is computed once."""

    @cached_property
    def canonical_text(self) -> str:
        """What `encode_canonical_json` gives of it."""
        return encode_canonical_json({**self})


def encode_canonical_object(members: Mapping[str, Any]) -> str:
    """Encode an object as `encode_canonical_json` does, with the cached text of a `CachedJsonObject`."""
    if CachedJsonObject not in map(type, members.values()):
        return encode_canonical_json(members)
    texts: list[str] = []
    for key, value in sorted(members.items()):
        text = value.canonical_text if type(value) is CachedJsonObject else encode_canonical_json(value)
        texts.append(f"{encode_canonical_json(key)}:{text}")
    return f"{{{','.join(texts)}}}"


def encode_canonical_json(value: Any) -> str:
    """Encode plain JSON in the form that is signed and compared: sorted keys, ASCII, no spaces.

    Raises `ValueError` for NaN and infinities, `TypeError` for values that are not plain JSON.
    """
    # A small value is not nested deeply and has no integer that is too long.
    if estimate_json_length(value, _SMALL_CHARACTERS) < _SMALL_CHARACTERS:
        with suppress(TypeError, ValueError):
            return encode_small_sorted(value)
    return encode_strict_json(value, sort_keys=True)


def encode_json(
    value: Any,
    *,
    max_bytes: int | None = None,
    max_values: int | None = None,
    what: str,
    weight: int | None = None,
    plain: bool | None = None,
) -> str:
    """Write a host value as compact ASCII JSON.

    Besides plain JSON it takes what pydantic can turn into JSON: models, dataclasses, dates, UUIDs, decimals,
    enums, sets, UTF-8 bytes. NaN and infinities become null. Integers stay exact.
    ``max_bytes`` caps the UTF-8 bytes that ``JSON.stringify`` would need; it escapes less than is done here.
    ``max_values`` caps the containers and scalars, which are counted before anything is written.
    ``weight`` is the result of `estimate_json_length`, ``plain`` that of `can_encode_with_orjson`, where known.
    Raises `CodeModeSerializationError` whose message begins with ``what``.
    """
    # One look at what is small: it holds fewer values than characters, no integer that is too long, and not itself.
    is_small = (estimate_json_length(value, _SMALL_CHARACTERS) if weight is None else weight) < _SMALL_CHARACTERS
    try:
        if is_small and (max_values is None or max_values >= _SMALL_CHARACTERS):
            text = encode_small(value)
        elif (
            can_encode_with_orjson(value, MAX_PLAIN_VALUES if max_values is None else max_values)
            if plain is None
            else plain
        ):
            text = encode_with_orjson_or_in_steps(value, max_depth=MAX_DEPTH)
        else:
            if max_values is not None:
                require_max_values_in_host_value(value, max_values, what)
            text = encode_json_in_steps(value, max_depth=MAX_DEPTH)
    except (TypeError, ValueError, RecursionError):
        text = _encode_with_pydantic_within_limits(value, max_values, what)
    if max_bytes is not None and len(text) > max_bytes:
        require_max_bytes(count_stringified_bytes(text), max_bytes, what)
    return text


def require_max_values_in_host_value(value: Any, max_values: int, what: str) -> None:
    """Raise `CodeModeSerializationError` for a host value of more than ``max_values`` containers and scalars."""
    if has_more_values_than(value, max_values):
        if has_cycle(value):
            raise CodeModeSerializationError(f"{what} is not JSON: {describe_encoding_failure(value, ValueError())}.")
        raise create_too_many_values_error(max_values, what)


def count_stringified_bytes(text: str) -> int:
    """Count the UTF-8 bytes that ``JSON.stringify`` would need for the value of this ASCII JSON text."""
    if "\\u" not in text:
        return len(text)
    length, last_character = 0, ""
    for piece in _split_between_escapes(text):
        # Decoding it all would create every value.
        text_with_surrogates = piece.encode("ascii").decode("raw_unicode_escape")
        combined = text_with_surrogates.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        escapes = piece.replace("\\\\", "")  # what stays behind a backslash stays an escape
        length += count_utf8_bytes(combined) + 5 * (escapes.count("\\u000") + escapes.count("\\u001"))
        if last_character >= "\ud800" and _SURROGATE_PAIR.match(last_character + combined[0]):
            length -= _SPLIT_PAIR_EXCESS
        last_character = combined[-1]
    return length


def _split_between_escapes(text: str) -> Iterator[str]:
    """Cut JSON text into short pieces, no escape in two. A pair of surrogates may be."""
    start = 0
    while start < len(text):
        end = start + _CHUNK_CHARACTERS
        chunk = text[start:end]
        end += (len(chunk) - len(chunk.rstrip("\\"))) % 2
        next_escape = text.find("\\", end, end + _ESCAPE_CHARACTERS)
        end = next_escape if next_escape >= 0 else end + _ESCAPE_CHARACTERS
        yield text[start:end]
        start = end


def require_max_bytes(byte_count: int, max_bytes: int, what: str) -> None:
    """Raise `CodeModeSerializationError` when ``byte_count`` is more than ``max_bytes``."""
    if byte_count > max_bytes:
        raise CodeModeSerializationError(
            f"{what} is {byte_count} bytes of JSON; the limit is {max_bytes} bytes.",
            details={"bytes": byte_count, "max_bytes": max_bytes},
        )


def _encode_with_pydantic_within_limits(value: Any, max_values: int | None, what: str) -> str:
    try:
        text = encode_with_pydantic_fallback(value)
        if max_values is not None:
            require_max_values_in_json_text(text, max_values, what)
        if nests_deeper_than(text, MAX_DEPTH):
            raise CodeModeSerializationError(f"{what} nests deeper than {MAX_DEPTH} levels.")
    except CodeModeSerializationError:
        raise
    except Exception as error:
        # Serialisers are the tool author's code and may raise anything.
        raise CodeModeSerializationError(f"{what} is not JSON: {describe_encoding_failure(value, error)}.") from error
    return text
