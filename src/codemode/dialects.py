"""Which draft of JSON Schema a schema is written in that does not say so."""

from __future__ import annotations

import json
from typing import Any, cast

from .schemas import JsonSchema
from .usual_schemas import is_surely_valid

# What draft 7 does not have, or leaves out of account.
_SINCE_2019 = (
    "$defs", "$anchor", "$recursiveRef", "dependentRequired", "dependentSchemas", "unevaluatedItems",
    "unevaluatedProperties", "minContains", "maxContains",
)  # fmt: skip


def with_dialect(schema: JsonSchema) -> JsonSchema:
    """Return a schema that says its draft, unless all drafts since 7, or 2020-12, take it as it is.

    Raises `jsonschema.SchemaError` for one that is wrong in its own draft, or in every one when it does not say which.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, Draft201909Validator, Draft202012Validator, validator_for

    recognised: tuple[Any, ...] = (Draft7Validator, Draft201909Validator, Draft202012Validator)
    named = cast("Any", validator_for(schema, default=Draft202012Validator))
    if named in recognised and is_surely_valid(schema):
        return schema
    try:
        _check(named, schema)
    except SchemaError:
        fitting = _older_draft(schema)
        if fitting is None:
            raise
        return fitting
    return schema


def _older_draft(schema: JsonSchema) -> JsonSchema | None:
    from jsonschema.validators import Draft4Validator, Draft6Validator, Draft7Validator, Draft201909Validator

    if not isinstance(schema, dict) or "$schema" in schema:
        return None
    text = json.dumps(schema)
    newest: list[Any] = [Draft7Validator, Draft201909Validator]
    if any(f'"{keyword}":' in text for keyword in _SINCE_2019):
        newest.reverse()
    # Draft 3 is not asked: it takes any name for a type.
    for draft in (*newest, Draft6Validator, Draft4Validator):
        if _fits(draft, schema):
            says = cast("dict[str, str]", draft.META_SCHEMA)
            return {"$schema": says.get("$id") or says["id"], **schema}
    return None


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
