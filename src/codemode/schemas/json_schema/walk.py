"""Walks a JSON Schema to the schemas that stand in it. Knows nothing of what they say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...data.narrowing import is_mapping, is_sequence

DATA_KEYWORDS = frozenset({"const", "enum", "default", "examples"})
"""Their values are no schemas, whatever they look like."""

SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Their values hold schemas under names of the author's."""

RESTRICTIVE: Mapping[str, tuple[str, ...]] = {
    "not": (),
    "if": ("then", "else"),
    "contains": ("minContains", "maxContains"),
    "disallow": (),
}
"""Rules that a value may break because a schema in them takes it, and what has no meaning without them."""


def subschemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and every schema in it, also in keywords that nobody knows: a reference may lead there."""
    seen: set[int] = set()
    pending = [schema]
    while pending:
        item = pending.pop()
        if id(item) in seen or not (is_sequence(item) or is_mapping(item)):
            continue
        seen.add(id(item))
        if not is_mapping(item):
            pending.extend(item)
        else:
            yield item
            for keyword, rule in item.items():
                if keyword in SCHEMA_MAPS and is_mapping(rule):
                    pending.extend(rule.values())
                elif keyword not in DATA_KEYWORDS:
                    pending.append(rule)
