"""Recognises JSON Schemas that are certainly right. Never finds one wrong: that, with what is wrong, jsonschema says.

Most tools are made of a few keywords. Reading those against the meta-schema of 2020-12, which takes $dynamicRef through
seven vocabularies for every subschema, costs jsonschema more than a millisecond a tool; here it is some 3 us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..data.narrowing import is_array, is_object

# Deeper ones are left to jsonschema, which may run out of stack and says so.
MAX_DEPTH = 16

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

_Check = Callable[[Any, int], bool]


def is_surely_valid(schema: Any, depth: int = 0) -> bool:
    """Return True for plain JSON that draft 7, 2019-09 and 2020-12 all take for a schema; False says nothing."""
    if not is_object(schema):
        return isinstance(schema, bool)
    if depth > MAX_DEPTH:
        return False
    for keyword, value in schema.items():
        check = _CHECKS.get(keyword)
        if check is None and keyword.startswith("x-"):
            continue
        if check is None or not check(value, depth + 1):
            return False
    return True


def _anything(_value: Any, _depth: int) -> bool:
    return True


def _is_text(value: Any, _depth: int) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any, _depth: int) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any, _depth: int) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any, _depth: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list(value: Any, _depth: int) -> bool:
    return is_array(value)


def _are_names(value: Any, _depth: int) -> bool:
    if not is_array(value):
        return False
    return all(isinstance(name, str) for name in value) and len(set(value)) == len(value)


def _is_type(value: Any, depth: int) -> bool:
    if isinstance(value, str):
        return value in _TYPES
    return value != [] and _are_names(value, depth) and _TYPES.issuperset(value)


def _are_named_schemas(value: Any, depth: int) -> bool:
    return is_object(value) and all(is_surely_valid(item, depth) for item in value.values())


def _are_schemas(value: Any, depth: int) -> bool:
    return is_array(value) and value != [] and all(is_surely_valid(item, depth) for item in value)


_CHECKS: dict[str, _Check] = {
    "type": _is_type,
    "required": _are_names,
    **dict.fromkeys(("const", "default"), _anything),
    **dict.fromkeys(("enum", "examples"), _is_list),
    **dict.fromkeys(("$schema", "$ref", "$comment", "title", "description", "format", "pattern"), _is_text),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _is_text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly", "deprecated"), _is_flag),
    **dict.fromkeys(("items", "additionalProperties", "propertyNames", "contains", "not"), is_surely_valid),
    **dict.fromkeys(("if", "then", "else"), is_surely_valid),
    **dict.fromkeys(("properties", "patternProperties", "definitions", "$defs"), _are_named_schemas),
    **dict.fromkeys(("anyOf", "oneOf", "allOf"), _are_schemas),
}
