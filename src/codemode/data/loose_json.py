"""Values that are no plain JSON: written as far as pydantic can, or explained by the place of what cannot be."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections import UserList, deque
from collections.abc import Iterable, Iterator, Mapping, MappingView
from typing import Any, cast

from ..host import steps
from .json_pieces import MAX_INT_DIGITS, encode_in_pieces, is_long_integer
from .plain_json import MAX_DEPTH

_MAX_READ_DEPTH = 100
_MAX_NOTED = 100  # the places of which may be long
_UNREADABLE: Any = object()
_COLLECTIONS = (list, tuple, set, frozenset, deque, range, UserList, MappingView)
_LOOSE = json.JSONEncoder(separators=(",", ":"))


def encode_loosely(value: Any) -> str:
    """Write what pydantic can turn into JSON. It raises whatever a serialiser does."""
    try:
        return encode_in_pieces(_LOOSE, value)
    except TypeError:
        from pydantic_core import to_jsonable_python

        return encode_in_pieces(_LOOSE, to_jsonable_python(value, fallback=_path_text))


def _path_text(value: Any) -> str:
    """Return the text of a path-like object. Raises `TypeError`; pydantic itself only writes `pathlib` paths."""
    return os.fsdecode(cast("str | bytes", os.fspath(value)))


def why_not_json(value: Any, error: Exception) -> str:
    """Return the first place of a value that cannot be written, and why; else how writing it failed."""
    for path, reason in _problems(value):
        return f"{reason} at {path}" if path else reason
    # The text of an error that cannot be placed is the tool author's and may say anything; this goes to the guest.
    return f"writing it raised {type(error).__name__}"


def _problems(value: Any) -> Iterator[tuple[str, str]]:
    pending: list[tuple[str, Any, tuple[int, ...]]] = [("", value, ())]
    while pending:
        path, item, ancestors = pending.pop()
        steps.take()
        children = _children(item)
        if children is None:
            if isinstance(item, int) and is_long_integer(item):
                yield path, f"more than {MAX_INT_DIGITS} digits in a value of type builtins.int"
            elif not _is_encodable(item):
                yield path, f"a value of type {type(item).__module__}.{type(item).__qualname__}"
        elif id(item) in ancestors:
            yield path, "a circular reference"
        elif len(ancestors) >= MAX_DEPTH:
            yield "", f"nesting deeper than {MAX_DEPTH} levels"
        else:
            inside = (*ancestors, id(item))
            pending.extend((path + step, child, inside) for step, child in reversed(children))


def readable_part(value: Any, max_values: int) -> tuple[Any, list[tuple[str, str]]]:
    """Return the part of a value that JSON can express, and (path, reason) of each part that it cannot.

    As in `JSON.stringify`, such a part is dropped from an object and null in a list. Bytes that are not UTF-8 become
    base64. Raises `ValueError` if nothing can be written, or if there are more than ``max_values`` values.
    """
    reader = _PartReader(max_values)
    readable = reader.read(value, "", ())
    if readable is _UNREADABLE or not reader.parts:
        raise ValueError("nothing of it can be written as JSON")
    return readable, [(path.removeprefix("."), reason) for path, reason in reader.problems]


class _PartReader:
    """Reads a value; ``parts`` counts what was readable, ``problems`` lists what was not."""

    def __init__(self, max_values: int) -> None:
        self.problems: list[tuple[str, str]] = []
        self.parts, self._left = 0, max_values

    def read(self, value: Any, path: str, ancestors: tuple[int, ...]) -> Any:
        steps.take()
        self._left -= 1
        if self._left < 0:
            raise ValueError("it holds too many values")
        if id(value) in ancestors:
            return self._unreadable(path, "a circular reference")
        if len(ancestors) >= _MAX_READ_DEPTH:
            return self._unreadable(path, "nesting that is too deep")
        inside = (*ancestors, id(value))
        if isinstance(value, dict | list | tuple) and not value:
            self.parts += 1
        if (members := _members(value)) is not None:
            read = {
                self._read_key(key, path): self.read(member, path + _step(key), inside)
                for key, member in members.items()
            }
            return {key: member for key, member in read.items() if key is not _UNREADABLE and member is not _UNREADABLE}
        if isinstance(value, _COLLECTIONS):
            items = [self.read(item, f"{path}[{at}]", inside) for at, item in enumerate(cast("Iterable[Any]", value))]
            return [None if item is _UNREADABLE else item for item in items]
        return self._read_leaf(value, path)

    def _read_key(self, key: Any, path: str) -> Any:
        if key is None or isinstance(key, str | int | float):
            return key
        from ..host.cancellation import FAILURES

        try:
            return next(iter(json.loads(encode_loosely({key: None}))))
        except FAILURES:
            return self._unreadable(path, f"a key of type {type(key).__module__}.{type(key).__qualname__}")

    def _read_leaf(self, value: Any, path: str) -> Any:
        from ..host.cancellation import FAILURES

        if isinstance(value, int) and is_long_integer(value):
            return self._unreadable(path, f"more than {MAX_INT_DIGITS} digits")
        try:
            text = encode_loosely(value)
        except FAILURES:  # serialisers are the tool author's code
            if isinstance(value, bytes | bytearray | memoryview):
                self.parts += 1
                self._note(path, "bytes that are no text, written as base64")
                return base64.b64encode(cast("bytes", value)).decode()
            return self._unreadable(path, f"a value of type {type(value).__module__}.{type(value).__qualname__}")
        self.parts += 1
        return json.loads(text, parse_constant=lambda _: None)

    def _unreadable(self, path: str, reason: str) -> Any:
        self._note(path, f"{reason}, left out")
        return _UNREADABLE

    def _note(self, path: str, message: str) -> None:
        if len(self.problems) < _MAX_NOTED:
            self.problems.append((path, message))


def _members(value: Any) -> Mapping[Any, Any] | None:
    """Return the members of a mapping, and of a model or dataclass that pydantic cannot write as a whole."""
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value)
    kind = cast("type[Any]", type(value))
    fields: Mapping[str, Any] | None = getattr(kind, "__pydantic_fields__", None)
    if (fields is None and not dataclasses.is_dataclass(kind)) or _is_encodable(value) or _writes_itself(kind):
        return None
    if fields is None:
        names = [field.name for field in dataclasses.fields(kind)]
    else:
        names = [name for name, field in fields.items() if not getattr(field, "exclude", None)]
    return {name: getattr(value, name, None) for name in names}


def _writes_itself(kind: type[Any]) -> bool:
    """Return True if a model has its own serialisers, which may hide values."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    return bool(getattr(decorators, "model_serializers", None) or getattr(decorators, "field_serializers", None))


def _step(key: Any) -> str:
    if not isinstance(key, str | int | float | None):
        return f"[{type(key).__name__}]"  # its own repr may fail
    return f".{key}" if str(key).isidentifier() else f"[{key!r}]"


def _children(item: Any) -> list[tuple[str, Any]] | None:
    if isinstance(item, Mapping):
        mapping = cast("Mapping[Any, Any]", item)
        return [(_step(key), mapping[key]) for key in mapping]
    if isinstance(item, list | tuple | set | frozenset):
        return [(f"[{index}]", child) for index, child in enumerate(cast("list[Any]", item))]
    return None


def _is_encodable(item: Any) -> bool:
    from ..host.cancellation import FAILURES

    try:
        encode_loosely(item)
    except FAILURES:  # serialisers are the tool author's code
        return False
    return True
