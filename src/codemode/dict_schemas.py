"""JSON Schema dicts as validators, through jsonschema. Never fetches anything."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from .bounded_checks import TooMuchWork, bounded, check_patterns, start_check
from .dialects import with_dialect
from .schemas import (
    MAX_PROBLEMS,
    JsonSchema,
    Problem,
    SchemaMismatch,
    ValidatedInput,
    clip,
    json_type,
    path_text,
    plain_copy,
    plain_input,
    resolve_reference,
    unique,
)
from .values import encode_json

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError as JsonSchemaError

TOO_DEEP: Problem = {"path": "", "message": "nests too deeply to be checked"}


class DictSchema:
    """A JSON Schema, draft as its ``$schema`` says, else the newest that it fits; no ``$ref`` is ever fetched.

    Formats are not checked. Defaults are filled in ``properties`` and ``items``, also through local references; not
    inside ``anyOf``.
    """

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft202012Validator, validator_for
        from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]

        try:
            text = json.dumps(schema if isinstance(schema, bool) else dict(schema), allow_nan=False)
            self.json_schema: JsonSchema = json.loads(text)
            _check_dialect(self.json_schema)
            self.json_schema = with_dialect(self.json_schema)
            validator_class = cast("Any", validator_for(self.json_schema, default=Draft202012Validator))
            check_patterns(self.json_schema)
        except SchemaError as error:
            raise ValueError(f"{error.json_path}: {clip(error.message)}") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not a JSON Schema: {error}") from None
        self._has_defaults = '"default"' in text
        # An explicit registry: the one that jsonschema uses by itself fetches remote references.
        self._validator: Any = bounded(validator_class)(self.json_schema, registry=REGISTRY)

    varies = False

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check and fill defaults."""
        try:
            if self._has_defaults:
                value = _fill_defaults(value, self.json_schema, self.json_schema)
        except RecursionError:
            raise SchemaMismatch([TOO_DEEP]) from None
        problems = self._problems(value)
        if problems:
            raise SchemaMismatch(problems)
        return plain_input(value)

    def validate_output(self, value: Any, what: str) -> Any:
        """Check; a value that is not plain JSON is checked in its JSON form."""
        if not self._problems(value):
            return value
        plain = json.loads(encode_json(value, what=what))
        problems = self._problems(plain)
        if problems:
            raise SchemaMismatch(problems)
        return plain

    def _problems(self, value: Any) -> list[Problem]:
        from referencing.exceptions import Unresolvable

        try:
            start_check(value)
            errors = cast("Iterable[JsonSchemaError]", islice(self._validator.iter_errors(value), MAX_PROBLEMS))
            return unique(_json_schema_problem(error) for error in errors)
        except Unresolvable as error:
            message = f"the schema refers to {clip(str(error.ref))}, which is not part of it"
            return [{"path": "", "message": message}]
        except RecursionError:
            return [TOO_DEEP]
        except OverflowError:  # an integer of hundreds of digits against a rule in floats
            return [{"path": "", "message": "holds a number too large to be checked"}]
        except TooMuchWork:
            return [{"path": "", "message": "is too large or too intricate to be checked"}]


def _check_dialect(schema: JsonSchema) -> None:
    if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
        raise ValueError("$schema must be a string")  # noqa: TRY004 - a wrong schema is always a ValueError


def _fill_defaults(value: Any, schema: Any, root: Any) -> Any:
    schema = resolve_reference(schema, root)
    if not isinstance(schema, dict):
        return value
    rules = cast("dict[str, Any]", schema)
    if isinstance(value, dict) and isinstance(rules.get("properties"), dict):
        return _fill_properties(cast("dict[str, Any]", value), rules["properties"], root)
    if isinstance(value, list) and isinstance(rules.get("items"), dict):
        return [_fill_defaults(item, rules["items"], root) for item in cast("list[Any]", value)]
    return cast("Any", value)


def _fill_properties(value: dict[str, Any], properties: dict[str, Any], root: Any) -> dict[str, Any]:
    filled = dict(value)
    for name, rules in properties.items():
        if name in value:
            filled[name] = _fill_defaults(value[name], rules, root)
        elif isinstance(rules, dict) and "default" in rules:
            filled[name] = plain_copy(cast("dict[str, Any]", rules)["default"])
    return filled


def _json_schema_problem(error: JsonSchemaError) -> Problem:
    from jsonschema import exceptions

    # For anyOf and its like the alternative that came closest says more.
    error = cast("JsonSchemaError", cast("Any", exceptions).best_match(iter([error])))
    return {"path": path_text(error.absolute_path), "message": _expectation(error)}


def _expectation(error: JsonSchemaError) -> str:
    # Messages of jsonschema quote the instance, which is the guest's and may be megabytes long.
    keyword, rule, instance = cast("Any", error.validator), cast("Any", error.validator_value), error.instance
    if keyword == "type":
        names = [rule] if isinstance(rule, str) else cast("list[str]", rule)
        return f"expected {' or '.join(names)}, got {json_type(instance)}"
    if keyword == "required":
        missing = [json.dumps(name) for name in rule if name not in cast("Any", instance)]
        return clip(f"missing required {', '.join(missing)}")
    if keyword == "additionalProperties" and rule is False:
        return clip(error.message)
    if keyword == "enum":
        return clip(f"must be one of {', '.join(map(json.dumps, rule))}")
    if keyword is None:
        return "is not allowed"
    return clip(f"must satisfy {keyword}: {json.dumps(rule)}")
