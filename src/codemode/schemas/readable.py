"""Schemas of strangers as they can be used: no schema, whatever is wrong with it, costs a tool or a server."""

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
    """Return a schema that compiles and can be used, and a warning where it is not what was given. Never raises.

    What cannot be used of a JSON Schema is left out, as `DictSchema` does, and patterns that cannot be run in linear
    time; where nothing can be made of a schema it is ``{}``, which takes anything. A type, or None, is returned as it
    is. Metered work, in proportion to the schema.
    """
    if not is_mapping(schema):
        is_broken = type(schema) in _NO_SCHEMAS
        return ({}, _takes_anything("not an object")) if is_broken else (schema, None)
    try:
        return _readable(schema, side)
    except Exception as error:  # noqa: BLE001 - whoever wrote the schema is a stranger
        return {}, _takes_anything(clip(str(error)) or type(error).__name__)


def says_nothing(schema: Any) -> bool:
    """Tell whether a schema is absent or empty, so that a value may be absent too."""
    return schema is None or schema is True or (is_mapping(schema) and _SAY_NOTHING.issuperset(schema))


def _readable(schema: Mapping[str, Any], side: Side) -> tuple[Any, str | None]:
    refuse_too_large(schema)
    refused = refused_patterns(schema)
    made = DictSchema(without_patterns(schema, refused) if refused else schema, side)
    notes = [clip(reason) for reason in refused.values()] + [*made.notes]
    found = schema if made.json_schema == schema else made.json_schema
    return found, f"is read without what cannot be used of it: {'; '.join(notes)}" if notes else None


def _takes_anything(reason: str) -> str:
    return f"is no JSON Schema that can be used ({reason}): the tool takes anything"
