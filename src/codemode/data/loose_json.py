"""Values that are no plain JSON: written as far as pydantic can, or explained by the place of what cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ..host import steps
from .json_pieces import MAX_INT_DIGITS, encode_in_pieces, is_long_integer
from .plain_json import MAX_DEPTH

_LOOSE = json.JSONEncoder(separators=(",", ":"))


def encode_loosely(value: Any) -> str:
    """Write what pydantic can turn into JSON. It raises whatever a serialiser does."""
    try:
        return encode_in_pieces(_LOOSE, value)
    except TypeError:
        from pydantic_core import to_jsonable_python

        return encode_in_pieces(_LOOSE, to_jsonable_python(value))


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


def _children(item: Any) -> list[tuple[str, Any]] | None:
    if isinstance(item, Mapping):
        mapping = cast("Mapping[Any, Any]", item)
        return [(f".{key}" if str(key).isidentifier() else f"[{key!r}]", mapping[key]) for key in mapping]
    if isinstance(item, list | tuple | set | frozenset):
        return [(f"[{index}]", child) for index, child in enumerate(cast("list[Any]", item))]
    return None


def _is_encodable(item: Any) -> bool:
    try:
        encode_loosely(item)
    except Exception:  # noqa: BLE001 - serialisers are the tool author's code
        return False
    return True
