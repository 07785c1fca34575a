"""JSON Schema dicts as validators. Never fetches anything."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, cast

from ..data.json_values import encode_json
from ..data.narrowing import is_array, is_object
from ..data.references import resolve_reference
from ..host.steps import TooMuchWork
from .compiled import (
    MAX_PROBLEMS,
    TOO_DEEP,
    TOO_MUCH,
    JsonSchema,
    Problem,
    SchemaMismatch,
    ValidatedInput,
    clip,
    plain_copy,
    plain_input,
    refuse_too_large,
    unique,
)
from .json_schema.check import Document, UnknownReference
from .patterns import PatternRefused, require_linear
from .undeclared_dialect import BrokenSchemaError, is_usual, with_dialect


class DictSchema:
    """A JSON Schema, draft as its ``$schema`` says, else the newest that it fits; no ``$ref`` is ever fetched.

    Formats are not checked. Defaults are filled in ``properties`` and ``items``, also through local references; not
    inside ``anyOf``.
    """

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        refuse_too_large(schema)
        try:
            text = json.dumps(schema if isinstance(schema, bool) else dict(schema), allow_nan=False)
            self.json_schema: JsonSchema = json.loads(text)
            _check_dialect(self.json_schema)
            is_plain = is_usual(self.json_schema)
            if not is_plain:
                self.json_schema = with_dialect(self.json_schema)
            require_linear(self.json_schema)
        except (PatternRefused, BrokenSchemaError):
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not a JSON Schema: {error}") from None
        self._has_defaults = '"default"' in text
        self._document = Document(self.json_schema, text, is_plain=is_plain)

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

    def located(self, value: Any, most: int) -> list[tuple[tuple[str | int, ...], str]]:
        """Return what a value breaks as pairs of a place and its wording, at most so many; defaults count as given."""
        try:
            filled = _fill_defaults(value, self.json_schema, self.json_schema) if self._has_defaults else value
        except RecursionError:
            return [((), TOO_DEEP["message"])]
        try:
            found = self._document.failures(filled, most)
        except (RecursionError, UnknownReference, OverflowError, TooMuchWork):
            return [((), one["message"]) for one in self._problems(filled)]
        return list(dict.fromkeys(islice((place for one in found for place in one.located()), most)))

    def fitting(self, value: Any) -> Callable[[Any, Any], bool | None]:
        """Return what tells whether a part of this very schema takes a part of this very value.

        All that it is asked takes no more steps than one check of the value: it says None once they are spent.
        """
        check = self._document.check(value)

        def fits(part: Any, inner: Any) -> bool | None:
            try:
                return check.fits(self._document.root, part, inner)
            except TooMuchWork:
                return None
            except (RecursionError, UnknownReference, OverflowError):
                return False

        return fits

    def _problems(self, value: Any) -> list[Problem]:
        try:
            return unique(failure.problem() for failure in self._document.failures(value, MAX_PROBLEMS))
        except UnknownReference as error:
            return [{"path": "", "message": f"the schema refers to {clip(error.reference)}, which is not part of it"}]
        except RecursionError:
            return [TOO_DEEP]
        except OverflowError:  # an integer of hundreds of digits against a rule in floats
            return [{"path": "", "message": "holds a number too large to be checked"}]
        except TooMuchWork:
            return [TOO_MUCH]


def _check_dialect(schema: JsonSchema) -> None:
    if is_object(schema) and not isinstance(schema.get("$schema", ""), str):
        raise ValueError("$schema must be a string")


def _fill_defaults(value: Any, schema: Any, root: Any) -> Any:
    schema = resolve_reference(schema, root)
    if not is_object(schema):
        return value
    if is_object(value) and is_object(schema.get("properties")):
        return _fill_properties(value, schema["properties"], root)
    if is_array(value) and is_object(schema.get("items")):
        return [_fill_defaults(item, schema["items"], root) for item in value]
    return cast("Any", value)


def _fill_properties(value: dict[str, Any], properties: dict[str, Any], root: Any) -> dict[str, Any]:
    filled = dict(value)
    for name, rules in properties.items():
        if name in value:
            filled[name] = _fill_defaults(value[name], rules, root)
        elif is_object(rules) and "default" in rules:
            filled[name] = plain_copy(rules["default"])
    return filled
