"""Finds the draft of JSON Schema that a schema is written in which does not say so. Checks no value."""

from __future__ import annotations

import json
from typing import Any, cast

from ..data.json_shape import holds_more_values_than
from .compiled import JsonSchema, clip
from .usual import is_surely_valid

# What draft 7 does not have, or leaves out of account.
_SINCE_2019 = (
    "$defs", "$anchor", "$recursiveRef", "dependentRequired", "dependentSchemas", "unevaluatedItems",
    "unevaluatedProperties", "minContains", "maxContains",
)  # fmt: skip

# Reading so many against a meta-schema takes some tenths of a second.
MAX_CHECKED_VALUES = 5000


# As everybody names those of which `is_surely_valid` knows.
_USUAL_DRAFTS = frozenset(
    {
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
        "https://json-schema.org/draft/2020-12/schema",
    }
)


class BrokenSchemaError(ValueError):
    """A schema is wrong in its own draft, or in every one; the message says where and how."""


def is_usual(schema: JsonSchema) -> bool:
    """Tell whether `with_dialect` would return a schema as it is, without importing jsonschema, which takes long."""
    uri = schema.get("$schema") if isinstance(schema, dict) else None
    says_usual = uri is None if not isinstance(uri, str) else uri.removesuffix("#") in _USUAL_DRAFTS
    return says_usual and is_surely_valid(schema)


def with_dialect(schema: JsonSchema) -> JsonSchema:
    """Return a schema that says its draft, unless all drafts since 7, or 2020-12, take it as it is.

    Raises `BrokenSchemaError`, and `ValueError` for one that would take too long to check.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, Draft201909Validator, Draft202012Validator, validator_for

    schema = _usually_named(schema)
    recognised: tuple[Any, ...] = (Draft7Validator, Draft201909Validator, Draft202012Validator)
    named = cast("Any", validator_for(schema, default=Draft202012Validator))
    if named in recognised and is_surely_valid(schema):
        return schema
    if holds_more_values_than(schema, MAX_CHECKED_VALUES):
        raise ValueError(
            f"holds more than {MAX_CHECKED_VALUES} values, and keywords that only its meta-schema can check"
        )
    try:
        _check(named, schema)
    except SchemaError as error:
        fitting = _older_draft(schema)
        if fitting is None:
            raise BrokenSchemaError(f"{error.json_path}: {clip(error.message)}") from None
        return fitting
    return schema


def _older_draft(schema: JsonSchema) -> JsonSchema | None:
    from jsonschema.validators import Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator

    if not isinstance(schema, dict) or _names_draft(schema):
        return None
    text = json.dumps(schema)
    newest: list[Any] = [Draft7Validator, Draft201909Validator]
    if any(f'"{keyword}":' in text for keyword in _SINCE_2019):
        newest.reverse()
    # Draft 3 is not asked: it takes any name for a type.
    for draft in (*newest, Draft6Validator, Draft4Validator):
        if _fits(draft, schema):
            says = cast("dict[str, str]", draft.META_SCHEMA)
            return {**schema, "$schema": says.get("$id") or says["id"]}
    return None


def _usually_named(schema: JsonSchema) -> JsonSchema:
    """Return a schema whose draft is named as everybody names it: many write https for http, or the other way."""
    uri = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(schema, dict) or not isinstance(uri, str) or _names_draft(schema):
        return schema
    scheme, _, rest = uri.partition("://")
    other = {**schema, "$schema": f"{'https' if scheme == 'http' else 'http'}://{rest}"}
    return other if _names_draft(other) else schema


def _names_draft(schema: dict[str, Any]) -> bool:
    """Tell whether a schema says its draft; a name that nobody knows says nothing."""
    from jsonschema.validators import validator_for

    known = cast("Any", validator_for(schema, default=cast("Any", None)))
    return "$schema" in schema and known is not None


def _check(draft: Any, schema: JsonSchema) -> None:
    # Without a format checker: patterns are in another dialect than Python's.
    draft.check_schema(schema, format_checker=None)


def _fits(draft: Any, schema: JsonSchema) -> bool:
    from jsonschema.exceptions import SchemaError

    try:
        _check(draft, schema)
    except SchemaError:
        return False
    return True
