"""Turn untrusted schemas into ones that compile, so that no schema costs a tool or a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data.narrowing import is_mapping
from .compiled import clip, refuse_too_large
from .json_schemas import DictSchema
from .keyword_repair import Side
from .patterns import refused_patterns, without_patterns

_SAY_NOTHING = frozenset({"$schema", "$id", "id", "$comment", "title", "description", "$defs", "definitions"})
_NO_SCHEMAS: frozenset[type] = frozenset({list, tuple, set, frozenset, bytes, int, float})


def readable_schema(schema: Any, side: Side = "input") -> tuple[Any, str | None]:
    """Return a schema that compiles, and a warning if it is not the given one. Never raises.

    Unusable keywords are dropped as in `DictSchema`, and so are patterns that cannot run in linear time. An unusable
    schema becomes ``{}``, which accepts anything. A type or None is returned unchanged.
    """
    if not is_mapping(schema):
        is_broken = type(schema) in _NO_SCHEMAS
        return ({}, _takes_anything("not an object")) if is_broken else (schema, None)
    try:
        return _readable(schema, side)
    except Exception as error:  # noqa: BLE001 - the schema is untrusted
        return {}, _takes_anything(clip(str(error)) or type(error).__name__)


def says_nothing(schema: Any) -> bool:
    """Tell whether a schema is absent or empty, so that a value may be absent too."""
    return schema is None or schema is True or (is_mapping(schema) and _SAY_NOTHING.issuperset(schema))


def _readable(schema: Mapping[str, Any], side: Side) -> tuple[Any, str | None]:
    refuse_too_large(schema)
    refused = refused_patterns(schema)
    compiled = DictSchema(without_patterns(schema, refused) if refused else schema, side)
    notes = [clip(reason) for reason in refused.values()] + [*compiled.notes]
    usable = schema if compiled.json_schema == schema else compiled.json_schema
    return usable, f"is read without what cannot be used of it: {'; '.join(notes)}" if notes else None


def _takes_anything(reason: str) -> str:
    return f"is no JSON Schema that can be used ({reason}): the tool takes anything"
