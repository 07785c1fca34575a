"""JSON values to try against a schema, and their exact TypeScript types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_SCALARS: tuple[Any, ...] = (None, True, 1, 1.5, "text", [], {})


def instances_of(seeds: tuple[Any, ...], *, per_schema: int) -> list[Any]:
    """The seeds, each seed with one thing changed, and one value of every JSON type; without repetitions."""
    found: dict[str, Any] = {}
    for value in (*seeds, *_SCALARS, *(change for seed in seeds for change in _changes(seed))):
        found.setdefault(json.dumps(value), value)
    return list(found.values())[:per_schema]


def _changes(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
            for other in _SCALARS:
                yield {**value, key: other}
            for inner in _changes(value[key]):
                yield {**value, key: inner}
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield [*value[:i], *value[i + 1 :]]
            for other in (*_SCALARS, *_changes(item)):
                yield [*value[:i], other, *value[i + 1 :]]


def exact_type(value: Any) -> str:
    """The TypeScript type that only ``value`` has. Assigning it from a variable skips the excess-property check."""
    if isinstance(value, dict):
        return "{ " + " ".join(f"{json.dumps(k)}: {exact_type(v)};" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(exact_type, value)) + "]"
    return json.dumps(value)
