"""Compiles JSON Schema dicts to validators, and makes untrusted schemas readable."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from itertools import islice
from typing import Any, cast

from ..data.json_values import encode_json
from ..data.narrowing import is_array, is_mapping, is_object
from ..data.references import resolve_reference
from ..host.steps import WorkLimitError
from .compiled import (
    MAX_PROBLEMS,
    TOO_COMPLEX_PROBLEM,
    TOO_DEEP_PROBLEM,
    Conversion,
    JsonSchema,
    SchemaMismatchError,
    SchemaProblem,
    ValidatedInput,
    clip_message,
    copy_json,
    deduplicate_problems,
    format_path,
    require_bounded_schema_size,
)
from .json_schema.check import SchemaDocument, UnknownReferenceError
from .json_schema.checking import format_rule, path_to_list
from .json_schema.dialects import DEFAULT_DRAFT, get_declared_draft
from .json_schema.walk import iterate_subschemas, iterate_subschemas_with_paths
from .keyword_repair import (
    NOT_JSON,
    Side,
    find_unusable_references,
    may_hold_references,
    remove_references,
    repair_keywords,
)
from .patterns import (
    PatternRefusedError,
    find_refused_patterns,
    may_hold_patterns,
    remove_patterns,
    require_linear_patterns,
)

_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
_DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
# Keywords that draft 7 does not know.
_KEYWORDS_SINCE_2019 = (
    "$defs", "$anchor", "$recursiveRef", "dependentRequired", "dependentSchemas", "unevaluatedItems",
    "unevaluatedProperties", "minContains", "maxContains",
)  # fmt: skip


def declare_older_draft_if_needed(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Add an older draft's ``$schema`` to a schema with an array as ``items``, which the newest draft does not allow.

    ``text`` is the schema's JSON.
    """
    if get_declared_draft(schema) not in (None, DEFAULT_DRAFT) or '"items": [' not in text:
        return schema
    if not any(is_array(rules.get("items")) for rules in iterate_subschemas(schema)):
        return schema
    is_newer = any(f'"{keyword}":' in text for keyword in _KEYWORDS_SINCE_2019)
    return {**schema, "$schema": _DRAFT_2019 if is_newer else _DRAFT_7}


_OTHER_DRAFT_NOTE = "it does not fit the draft that it names, and is read as the draft that it fits"
# Drafts with other anchors ("id", or "$id" with a fragment) than the newest.
_OLDER_DRAFT_URIS = ("http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#")
_MAX_DECIMALS = 10_000
_TYPE_NAMES: dict[Any, str] = {str: "string", bool: "boolean", int: "integer"}
_ANNOTATIONS_WITH_DEFAULT = frozenset({"default", "title", "description"})
_MAX_SHOWN_REFERENCES = _MAX_SHOWN_DEFAULTS = 4


class CompiledJsonSchema:
    """A JSON Schema, draft as its ``$schema`` says, else the newest that it fits; no ``$ref`` is ever fetched.

    Formats are not checked. Defaults are filled in ``properties`` and ``items``, also through local references; not
    inside ``anyOf``. Malformed keywords and dangling references are dropped, each alone, and listed in ``notes``. A
    default that its own schema rejects is dropped too, without a note if it is null. ``side``: ``readOnly`` properties
    are not required in inputs, ``writeOnly`` properties not in outputs. Raises `ValueError` for a schema that is not a
    JSON object, is too large or too deep, or has a pattern that cannot run in linear time.
    """

    def __init__(self, schema: Mapping[str, Any] | bool, side: Side = "input") -> None:
        require_bounded_schema_size(schema)
        try:
            text = json.dumps(schema) if isinstance(schema, bool) else _encode_as_json(schema)
            self.json_schema, notes, text = _repair_keywords_and_references(text, side)
            if may_hold_patterns(text):
                require_linear_patterns(self.json_schema)
        except PatternRefusedError:
            raise
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"not a JSON Schema: {error}") from None
        self._document = SchemaDocument(self.json_schema, text)
        self._has_defaults = '"default"' in text
        if self._has_defaults:  # with a separate document: it checks subschemas outside their context
            notes += _drop_refused_defaults(self.json_schema, SchemaDocument(self.json_schema, text))
        self.notes = tuple(notes)

    is_nondeterministic = False
    conversion: Conversion = "none"

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check and fill defaults; where the rest of the schema refuses these, the value is taken without them."""
        filled = value
        try:
            if self._has_defaults:
                filled = _fill_defaults(value, self.json_schema, self.json_schema)
        except RecursionError:
            raise SchemaMismatchError([TOO_DEEP_PROBLEM]) from None
        problems = self._find_problems(filled)
        if problems and self._has_defaults and not self._find_problems(value):
            filled, problems = value, []
        if problems:
            raise SchemaMismatchError(problems)
        return ValidatedInput(filled, lambda: copy_json(filled))

    def validate_output(self, value: Any, what: str) -> Any:
        """Check; a value that is not plain JSON is checked in its JSON form."""
        if not self._find_problems(value):
            return value
        plain = json.loads(encode_json(value, what=what))
        problems = self._find_problems(plain)
        if problems and self._find_problems(plain := self._convert_decimals(value, plain)):
            raise SchemaMismatchError(problems)
        return plain

    def _convert_decimals(self, value: Any, plain: Any) -> Any:
        """Write each `Decimal` as a number instead of text where the schema expects a number."""
        try:
            failures = self._document.find_failures(plain, _MAX_DECIMALS)
        except (RecursionError, UnknownReferenceError, OverflowError, WorkLimitError):
            return plain
        for failure in failures:
            expected_types = failure.rule if is_array(failure.rule) else [failure.rule]
            if failure.rule_name == "type" and {"number", "integer"}.intersection(map(str, expected_types)):
                plain = _write_decimal_at_path(value, plain, failure.path)
        return plain

    def locate_failures(self, value: Any, max_count: int) -> list[tuple[tuple[str | int, ...], str]]:
        """Return what a value breaks as pairs of a place and its wording, at most so many; defaults count as given."""
        try:
            filled = _fill_defaults(value, self.json_schema, self.json_schema) if self._has_defaults else value
        except RecursionError:
            return [((), TOO_DEEP_PROBLEM["message"])]
        try:
            failures = self._document.find_failures(filled, max_count)
        except (RecursionError, UnknownReferenceError, OverflowError, WorkLimitError):
            return [((), problem["message"]) for problem in self._find_problems(filled)]
        return list(
            dict.fromkeys(
                islice((place for problem in failures for place in problem.iterate_located_messages()), max_count)
            )
        )

    def create_subschema_check(self, value: Any) -> Callable[[Any, Any], bool | None]:
        """Return a function that tells whether a part of this schema accepts a part of this value.

        All its calls together take no more steps than one check of the value; it returns None once they are spent.
        """
        check = self._document.create_check(value)

        def fits_subschema(part: Any, inner: Any) -> bool | None:
            try:
                return check.fits_subschema(self._document.root, part, inner)
            except WorkLimitError:
                return None
            except (RecursionError, UnknownReferenceError, OverflowError):
                return False

        return fits_subschema

    def _find_problems(self, value: Any) -> list[SchemaProblem]:
        try:
            failures = self._document.find_failures(value, MAX_PROBLEMS)
            return deduplicate_problems(failure.to_problem() for failure in failures) if failures else []
        except UnknownReferenceError as error:
            return [
                {
                    "path": "",
                    "message": f"the schema refers to {clip_message(error.reference)}, which is not part of it",
                }
            ]
        except RecursionError:
            return [TOO_DEEP_PROBLEM]
        except OverflowError:  # an integer of hundreds of digits against a rule in floats
            return [{"path": "", "message": "holds a number too large to be checked"}]
        except WorkLimitError:
            return [TOO_COMPLEX_PROBLEM]


def _write_decimal_at_path(value: Any, plain: Any, path: list[str | int]) -> Any:
    """Replace the text at ``path`` of plain JSON by a number if the value there is a `Decimal`."""
    if not path:
        if not isinstance(value, Decimal) or not value.is_finite():
            return plain
        return int(value) if value == value.to_integral_value() else float(value)
    step, *rest = path
    with suppress(KeyError, IndexError, TypeError):
        plain[step] = _write_decimal_at_path(value[step], plain[step], rest)
    return plain


def _drop_refused_defaults(schema: Any, document: SchemaDocument) -> list[str]:
    """Remove defaults that their own schemas reject. Returns a note for each that is not null."""
    notes: list[str] = []
    for path, rules in iterate_subschemas_with_paths(schema):
        if "default" not in rules or not is_object(rules):
            continue
        default = rules["default"]
        try:
            is_refused = not _certainly_fits(rules, default) and not document.create_check(default).fits_subschema(
                document.root, rules, default
            )
        except UnknownReferenceError:
            is_refused = False  # it is resolved against another base when values are validated
        except (RecursionError, OverflowError, WorkLimitError):
            is_refused = True
        if is_refused:
            del rules["default"]
            # Many generators write a null default for every optional field.
            if default is not None and len(notes) < _MAX_SHOWN_DEFAULTS:
                notes.append(f'"default": {clip_message(format_rule(default))} at {format_path(path_to_list(path))}')
    return notes


def _certainly_fits(rules: dict[str, Any], default: Any) -> bool:
    """Recognise the usual defaults: of a simple type, and null of an optional field. False says nothing."""
    assertions = rules.keys() - _ANNOTATIONS_WITH_DEFAULT
    if default is None:
        return assertions == {"anyOf"} and {"type": "null"} in rules["anyOf"]
    return assertions == {"type"} and _TYPE_NAMES.get(type(default)) == rules["type"]


def _encode_as_json(schema: Mapping[str, Any]) -> str:
    """Encode a schema as JSON, with `NOT_JSON` in place of values that JSON cannot express."""
    try:
        return json.dumps(dict(schema), allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(dict(schema), skipkeys=True, default=_to_jsonable)


def _to_jsonable(value: Any) -> Any:
    if is_mapping(value):
        return dict(value)
    return [*cast("set[Any]", value)] if isinstance(value, set | frozenset) else NOT_JSON


def _repair_keywords_and_references(text: str, side: Side) -> tuple[JsonSchema, list[str], str]:
    """Return a schema that can validate values, a note for each dropped keyword, and the schema's JSON."""
    schema = json.loads(text)
    if not is_object(schema):
        return schema, [], text
    repaired, notes = repair_keywords(schema, side)
    text = text if repaired is schema else json.dumps(repaired)
    with_draft = declare_older_draft_if_needed(repaired, text)
    if with_draft is not repaired and "$schema" in schema:
        notes.append(_OTHER_DRAFT_NOTE)
    if may_hold_references(text):
        with_draft, reference_notes = _drop_references_or_change_draft(with_draft, is_named="$schema" in schema)
        notes += reference_notes
    return with_draft, notes, text if with_draft is repaired else json.dumps(with_draft)


def _drop_references_or_change_draft(schema: Any, *, is_named: bool) -> tuple[dict[str, Any], list[str]]:
    if not (unusable := find_unusable_references(schema)):
        return schema, []
    if not is_named and any(_has_old_identifier(rules) for rules in iterate_subschemas(schema)):
        for draft in _OLDER_DRAFT_URIS:
            older = {**schema, "$schema": draft}
            if not find_unusable_references(older):
                return older, []
    names = ", ".join(clip_message(reference) for reference in sorted(unusable)[:_MAX_SHOWN_REFERENCES])
    return remove_references(schema, unusable), [f'"$ref" that leads nowhere, or back to itself: {names}']


def _has_old_identifier(rules: Mapping[str, Any]) -> bool:
    name = rules.get("$id")
    return isinstance(rules.get("id"), str) or (isinstance(name, str) and name.startswith("#"))


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
            filled[name] = copy_json(rules["default"])
    return filled


_ANNOTATION_KEYWORDS = frozenset({"$schema", "$id", "id", "$comment", "title", "description", "$defs", "definitions"})
_NON_SCHEMA_TYPES: frozenset[type] = frozenset({list, tuple, set, frozenset, bytes, int, float})


def repair_schema(schema: Any, side: Side = "input") -> tuple[Any, str | None]:
    """Return a schema that compiles, and a warning if it is not the given one. Never raises.

    Unusable keywords are dropped as in `CompiledJsonSchema`, and so are patterns that cannot run in linear time. An
    unusable
    schema becomes ``{}``, which accepts anything. A type or None is returned unchanged.
    """
    if not is_mapping(schema):
        is_broken = type(schema) in _NON_SCHEMA_TYPES
        return ({}, _format_unusable_schema_warning("not an object")) if is_broken else (schema, None)
    try:
        return _repair_object_schema(schema, side)
    except Exception as error:  # noqa: BLE001 - the schema is untrusted
        return {}, _format_unusable_schema_warning(clip_message(str(error)) or type(error).__name__)


def is_empty_schema(schema: Any) -> bool:
    """Tell whether a schema is absent or empty, so that a value may be absent too."""
    return schema is None or schema is True or (is_mapping(schema) and _ANNOTATION_KEYWORDS.issuperset(schema))


def _repair_object_schema(schema: Mapping[str, Any], side: Side) -> tuple[Any, str | None]:
    require_bounded_schema_size(schema)
    refused = find_refused_patterns(schema)
    compiled = CompiledJsonSchema(remove_patterns(schema, refused) if refused else schema, side)
    notes = [clip_message(reason) for reason in refused.values()] + [*compiled.notes]
    usable = schema if compiled.json_schema == schema else compiled.json_schema
    return usable, f"is used without its unusable parts: {'; '.join(notes)}" if notes else None


def _format_unusable_schema_warning(reason: str) -> str:
    return f"is no JSON Schema that can be used ({reason}): the tool takes anything"
