"""The drafts of JSON Schema: which keywords each has, and what it calls an integer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from ...cached_property import cached_property
from . import keywords
from .alternatives import any_of
from .checking import Draft, Keyword
from .unevaluated import unevaluated_items, unevaluated_properties

if TYPE_CHECKING:
    from referencing import Specification

DEFAULT_DRAFT = "2020-12"
_URIS = {
    "http://json-schema.org/draft-04/schema": "4",
    "http://json-schema.org/draft-06/schema": "6",
    "http://json-schema.org/draft-07/schema": "7",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
}

_BY_NAME = {uri.partition("://")[2]: draft for uri, draft in _URIS.items()}

_EVERYWHERE: dict[str, Keyword] = {
    "$ref": keywords.ref,
    "additionalProperties": keywords.additional_properties,
    "enum": keywords.enum,
    "maxItems": keywords.max_items,
    "maxLength": keywords.max_length,
    "minItems": keywords.min_items,
    "minLength": keywords.min_length,
    "pattern": keywords.pattern,
    "patternProperties": keywords.pattern_properties,
    "uniqueItems": keywords.unique_items,
}
_BEFORE_2020 = {"items": keywords.old_items, "additionalItems": keywords.additional_items}
_BEFORE_6 = {"minimum": keywords.old_minimum, "maximum": keywords.old_maximum}
_SINCE_4 = {
    "allOf": keywords.all_of,
    "anyOf": any_of,
    "maxProperties": keywords.max_properties,
    "minProperties": keywords.min_properties,
    "multipleOf": keywords.multiple_of,
    "not": keywords.not_,
    "oneOf": any_of,
    "properties": keywords.properties,
    "required": keywords.required,
    "type": keywords.type_,
}
_SINCE_6 = {
    "const": keywords.const,
    "exclusiveMaximum": keywords.exclusive_maximum,
    "exclusiveMinimum": keywords.exclusive_minimum,
    "maximum": keywords.maximum,
    "minimum": keywords.minimum,
    "propertyNames": keywords.property_names,
}
_SINCE_2019 = {
    "contains": keywords.contains,
    "dependentRequired": keywords.dependencies,
    "dependentSchemas": keywords.dependencies,
    "unevaluatedItems": unevaluated_items,
    "unevaluatedProperties": unevaluated_properties,
}
_4 = {**_EVERYWHERE, **_BEFORE_2020, **_SINCE_4, **_BEFORE_6, "dependencies": keywords.dependencies}
_6 = {**_4, **_SINCE_6, "contains": keywords.old_contains}
_7 = {**_6, "if": keywords.if_}
_2019 = {**_EVERYWHERE, **_BEFORE_2020, **_SINCE_4, **_SINCE_6, **_SINCE_2019, "if": keywords.if_}
_TABLES: dict[str, dict[str, Keyword]] = {
    "4": _4,
    "6": _6,
    "7": _7,
    "2019-09": {**_2019, "$recursiveRef": keywords.recursive_ref},
    "2020-12": {
        **{name: apply for name, apply in _2019.items() if name != "additionalItems"},
        "$dynamicRef": keywords.ref,
        "items": keywords.items,
        "prefixItems": keywords.prefix_items,
    },
}


class Dialect:
    """One draft."""

    def __init__(self, draft: str) -> None:
        self._uri = next(uri for uri, name in _URIS.items() if name == draft)
        self._table = _TABLES[draft]
        self._has_whole_floats = draft != "4"
        # In these a reference replaces what stands beside it.
        self._ref_is_alone = draft in ("4", "6", "7")
        self.contains_evaluates = draft == "2020-12"

    @cached_property
    def specification(self) -> Specification[Any]:
        """What finds the identifiers and parts of its schemas."""
        from referencing.jsonschema import specification_with

        return specification_with(self._uri)

    def knows(self, keyword: str) -> bool:
        """Tell whether the draft has a keyword."""
        return keyword in self._table

    def rules_of(self, schema: Any) -> tuple[tuple[str, Any, Keyword], ...] | None:
        """Return the keywords of a schema that ask something of a value; None when it takes none."""
        if not isinstance(schema, Mapping):
            return None if schema is False else ()
        rules = cast("Mapping[str, Any]", schema)
        if self._ref_is_alone and "$ref" in rules:
            return (("$ref", rules["$ref"], self._table["$ref"]),)
        return tuple((name, rule, self._table[name]) for name, rule in rules.items() if name in self._table)

    def is_of(self, value: Any, types: Any) -> bool:
        """Tell whether a value is of one of these types."""
        if isinstance(types, str):
            return self._is(value, types)
        return any(isinstance(name, str) and self._is(value, name) for name in types)

    def _is(self, value: Any, name: str) -> bool:
        match name:
            case "object":
                return isinstance(value, dict)
            case "array":
                return isinstance(value, list)
            case "string":
                return isinstance(value, str)
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "number":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "integer":
                whole = self._has_whole_floats and isinstance(value, float) and value.is_integer()
                return whole or (isinstance(value, int) and not isinstance(value, bool))
            case _:
                return False


@cache
def _dialect(draft: str) -> Dialect:
    return Dialect(draft)


def named_draft(schema: Any) -> str | None:
    """Return the draft that a schema names, in either scheme and with or without a fragment; None for no known one."""
    uri = cast("Any", schema).get("$schema") if isinstance(schema, Mapping) else None
    return _BY_NAME.get(uri.rstrip("#").partition("://")[2]) if isinstance(uri, str) else None


def dialect_of(schema: Any, inherited: Draft | None) -> Draft:
    """Return the dialect that a schema names, else the inherited one, else 2020-12."""
    draft = named_draft(schema)
    return (inherited or _dialect(DEFAULT_DRAFT)) if draft is None else _dialect(draft)
