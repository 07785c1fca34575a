"""Constraints of a JSON Schema beyond a type, as compact JSDoc tags. Checks no value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..data.narrowing import list_or_empty, mapping_or_empty, string_or_empty
from .literals import comment_line, literal
from .shapes import Doc

MAX_DESCRIPTION_CHARACTERS = 4000
MAX_TAG_CHARACTERS = 200
MAX_TAGS = 12
MAX_BRANCHES = 8

_LIMITS = (
    "format",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "contentEncoding",
    "contentMediaType",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
)
# A tuple type says these itself.
_LENGTHS = ("minItems", "maxItems")
INEXPRESSIBLE = (
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
)
# What else of a schema speaks about the same object: properties that it takes count as evaluated.
_BESIDE = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"}
)
# Most schemas hold none of these, and asking for each of them was most of what a comment cost.
_LIMITING = frozenset({*_LIMITS, *INEXPRESSIBLE, "unevaluatedProperties"})
_BRANCHES = ("anyOf", "oneOf", "allOf")
_INNER = frozenset({*_BRANCHES, "items"})


def doc_of(schema: Any) -> Doc:
    """Description and constraints of one schema."""
    known = mapping_or_empty(schema)
    return Doc(string_or_empty(known.get("description")).strip(), _tags(known))


def _tags(schema: Mapping[Any, Any]) -> tuple[str, ...]:
    found = [*_limits(schema, depth=0), *_annotations(schema)]
    return tuple(dict.fromkeys(found))[:MAX_TAGS]


def _limits(schema: Mapping[Any, Any], depth: int) -> Iterator[str]:
    if schema.get("type") == "integer" or schema.get("type") == ["integer", "null"]:
        yield "@integer"
    if not _LIMITING.isdisjoint(schema):
        yield from _own_limits(schema)
    if depth < 2 and not _INNER.isdisjoint(schema):
        yield from _inner_limits(schema, depth + 1)


def _own_limits(schema: Mapping[Any, Any]) -> Iterator[str]:
    is_tuple = bool(list_or_empty(schema.get("prefixItems")) or list_or_empty(schema.get("items")))
    for keyword in _LIMITS:
        value = schema.get(keyword)
        if value is not None and value is not False and not (is_tuple and keyword in _LENGTHS):
            yield f"@{keyword}" if value is True else f"@{keyword} {_plain(value)}"
    for keyword in INEXPRESSIBLE:
        if keyword in schema and not (keyword == "propertyNames" and names_its_keys(schema)):
            yield f"@{keyword} {_compact(schema[keyword])}"
    if "unevaluatedProperties" in schema and other_properties(schema) is None:
        yield f"@unevaluatedProperties {_compact(schema['unevaluatedProperties'])}"


def other_properties(schema: Mapping[Any, Any]) -> Any:
    """What a schema certainly says of properties that it does not list: a schema, or None."""
    if "additionalProperties" in schema:
        return schema["additionalProperties"]
    return schema.get("unevaluatedProperties") if _BESIDE.isdisjoint(schema) else None


def names_its_keys(schema: Mapping[Any, Any]) -> bool:
    """Whether ``propertyNames`` may be a list of keys, which a type can show."""
    return any(keyword in mapping_or_empty(schema.get("propertyNames")) for keyword in ("enum", "const", "$ref"))


def _inner_limits(schema: Mapping[Any, Any], depth: int) -> Iterator[str]:
    for keyword in _BRANCHES:
        for branch in list_or_empty(schema.get(keyword))[:MAX_BRANCHES]:
            yield from _limits(mapping_or_empty(branch), depth)
    for tag in _limits(mapping_or_empty(schema.get("items")), depth):
        yield f"@items {tag.removeprefix('@items ').removeprefix('@')}"


def _annotations(schema: Mapping[Any, Any]) -> Iterator[str]:
    # Nearly every optional field of a Python model defaults to null, and the type says so already.
    if schema.get("default") is not None:
        yield f"@default {_compact(schema['default'])}"
    if schema.get("deprecated") is True:
        yield "@deprecated"
    examples = schema.get("examples", schema.get("example"))
    if isinstance(examples, list) and examples:
        yield f"@example {_compact(list_or_empty(examples)[0])}"
    elif examples is not None and not isinstance(examples, list):
        yield f"@example {_compact(examples)}"


def _plain(value: Any) -> str:
    return comment_line(value, MAX_TAG_CHARACTERS) if isinstance(value, str) else _compact(value)


def _compact(value: Any) -> str:
    return comment_line(literal(value), MAX_TAG_CHARACTERS)
