"""Dates, bytes and sets as tagged JSON and back, for ``execution_policy.values="rich"``."""

from __future__ import annotations

import binascii
import dataclasses
import re
from base64 import b64encode
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

from ..errors import CodeModeSerializationError
from .json_shape import SCALARS
from .json_values import create_too_many_values_error

if TYPE_CHECKING:
    from datetime import date, datetime

TAG = "$rich"
TAG_START = '"$'
"""JSON text without it has no tags, and nothing that was escaped."""

is_rich: ContextVar[bool] = ContextVar("codemode_rich_values", default=False)
"""True while values of a program in rich mode are read or written, and its tools are described."""

MAX_VALUES = 1 << 22
_MAX_DEPTH = 200  # of host values, each level of which takes three frames
_SCALARS = SCALARS - {bytes}
_MAX_SELF_HASHED = 1 << 60  # a smaller integer is its own hash
_MAX_LONG_INTEGERS = 1000
_TAG_KEY = re.compile(r"\$+rich")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")


@contextmanager
def using_rich_values(enabled: bool) -> Generator[None, None, None]:
    """Make values rich, or plain, while the block runs."""
    token = is_rich.set(enabled)
    try:
        yield
    finally:
        is_rich.reset(token)


def is_tag_or_escaped_object(value: Mapping[Any, Any]) -> bool:
    """Return True for an object that is a tag, or data that was escaped for it looks like one."""
    if len(value) != 1:
        return False
    (key,) = value
    return type(key) is str and _TAG_KEY.fullmatch(key) is not None


def to_tagged_json(value: Any, *, escapes: bool = True, max_values: int = MAX_VALUES, what: str = "a value") -> Any:
    """Return a host value with tags in place of its dates, bytes and sets; all else is left as it is.

    ``escapes`` False is for JSON that has tags already. Raises `CodeModeSerializationError` for what nests too deeply,
    holds itself or more than ``max_values``, and for a date that has no place in the years 1 to 9999 of UTC: its
    message begins with ``what``.
    """
    tagging = _Tagger(escapes, max_values, what)
    try:
        return tagging.tag_value(value, 0)
    except RecursionError:
        raise tagging.create_too_deep_error() from None


def sort_set_items(items: list[Any]) -> list[Any]:
    """Return the JSON of a set's items in an order that all processes agree on: that of strings differs in each."""
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=lambda item: f"{type(item).__name__} {item}")


class _Tagger:
    def __init__(self, escapes: bool, max_values: int, what: str) -> None:
        from datetime import date  # late: a cold start has no dates

        self._date_class = date
        self._escapes = escapes
        self._what = what
        self._values_left = self._max_values = max_values

    def tag_value(self, value: Any, depth: int) -> Any:
        kind = cast("Any", type(value))
        if kind in _SCALARS:
            return value
        if depth > _MAX_DEPTH:
            raise self.create_too_deep_error()
        if isinstance(value, self._date_class):
            return {TAG: ["Date", self._format_date(value)]}
        if isinstance(value, bytes | bytearray | memoryview):
            return {TAG: ["Uint8Array", b64encode(bytes(cast("bytes", value))).decode()]}
        if isinstance(value, set | frozenset):
            return {TAG: ["Set", sort_set_items(self._tag_items(cast("set[Any]", value), depth))]}
        if isinstance(value, list | tuple):
            return self._tag_items(cast("list[Any]", value), depth)
        if isinstance(value, dict):
            return self._tag_members(cast("dict[Any, Any]", value), depth)
        fields = _get_public_fields(value)
        return value if fields is None else self._tag_members(fields, depth)

    def _tag_items(self, items: Any, depth: int) -> list[Any]:
        self._count_values_against_limit(len(items))
        return [item if type(item) in _SCALARS else self.tag_value(item, depth + 1) for item in items]

    def _tag_members(self, members: dict[Any, Any], depth: int) -> dict[Any, Any]:
        self._count_values_against_limit(len(members))
        is_escaped = self._escapes and is_tag_or_escaped_object(members)
        return {
            "$" + key if is_escaped else key: item if type(item) in _SCALARS else self.tag_value(item, depth + 1)
            for key, item in members.items()
        }

    def _count_values_against_limit(self, values: int) -> None:
        self._values_left -= values
        if self._values_left < 0:
            raise create_too_many_values_error(self._max_values, self._what)

    def _format_date(self, value: date) -> str:
        from datetime import UTC, datetime

        if not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day, tzinfo=UTC)
        try:
            moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        except OverflowError:
            raise CodeModeSerializationError(
                f"{self._what} holds a date outside of the years 1 to 9999: {value}"
            ) from None
        return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"

    def create_too_deep_error(self) -> CodeModeSerializationError:
        """Return the error for what nests too deeply."""
        return CodeModeSerializationError(f"{self._what} nests deeper than {_MAX_DEPTH} levels, or holds itself")


def _get_public_fields(value: Any) -> dict[str, Any] | None:
    """Return what a model or a dataclass holds, by its public names; None for anything else."""
    from .content import MediaContent

    kind = cast("Any", type(value))
    if isinstance(value, MediaContent):
        return None
    if (serializer := getattr(kind, "__pydantic_serializer__", None)) is not None:
        try:
            fields = serializer.to_python(value, mode="python", by_alias=True, warnings=False)
        except Exception:  # noqa: BLE001 - serialisers are the tool author's code; written as JSON it says what is wrong
            return None
        return cast("dict[str, Any]", fields) if isinstance(fields, dict) else None
    if not dataclasses.is_dataclass(kind):
        return None
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}


def from_tagged_json(value: Any) -> Any:
    """Return plain JSON with the Python values that its tags stand for.

    Raises `ValueError` for a tag that is not as a program writes it: its date may be no date.
    """
    return _untag_value(value, is_plain=False)


def tagged_to_plain_json(value: Any) -> Any:
    """Return tagged JSON without tags: ISO dates, base64 for bytes, arrays for sets. Raises as `from_tagged_json`."""
    return _untag_value(value, is_plain=True)


def _untag_value(value: Any, *, is_plain: bool) -> Any:
    try:
        return _untag_nested_value(value, is_plain=is_plain)
    except RecursionError:
        raise ValueError("nests too deeply for the current stack") from None


def _untag_nested_value(value: Any, *, is_plain: bool) -> Any:
    if type(value) is list:
        items: list[Any] = []
        for item in cast("list[Any]", value):
            items.append(_untag_nested_value(item, is_plain=is_plain))  # noqa: PERF401 - as above
        return items
    if type(value) is not dict:
        return value
    members = cast("dict[str, Any]", value)
    if is_tag_or_escaped_object(members):
        ((key, inner),) = members.items()
        return _decode_tag(inner, is_plain) if key == TAG else {key[1:]: _untag_nested_value(inner, is_plain=is_plain)}
    read: dict[str, Any] = {}
    for key, item in members.items():
        read[key] = _untag_nested_value(item, is_plain=is_plain)
    return read


def _decode_tag(tagged: Any, is_plain: bool) -> Any:
    match tagged:
        case ["Date", str(text)]:
            return text if is_plain else _parse_date(text)
        case ["Uint8Array", str(text)]:
            return text if is_plain else _decode_base64(text)
        case ["Set", [*_]]:
            return _to_set_or_list(_untag_nested_value(tagged[1], is_plain=is_plain), is_plain)
        case _:
            raise ValueError("a tagged value of no known kind")


def _parse_date(text: str) -> datetime:
    from datetime import datetime

    if _DATE.fullmatch(text) is None:
        raise ValueError("a Date that is not written as 2026-01-02T12:00:00.000Z, in the years 1 to 9999")
    return datetime.fromisoformat(text)


def _decode_base64(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise ValueError("a Uint8Array that cannot be read") from None


def _to_set_or_list(items: list[Any], is_plain: bool) -> Any:
    """Return a set; a list of what no Python set holds, or takes for one value, such as objects, or 1 and true.

    Integers that a program chooses may all have one hash, and a set of them would take time quadratic in their number.
    """
    if is_plain or (
        len(items) > _MAX_LONG_INTEGERS and any(type(item) is int and abs(item) > _MAX_SELF_HASHED for item in items)
    ):
        return items
    try:
        distinct = set(items)
    except TypeError:
        return items
    return distinct if len(distinct) == len(items) else items
