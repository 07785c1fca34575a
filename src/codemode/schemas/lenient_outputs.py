"""Reads outputs that do not match their type, without the fields that the type excludes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from ..data.narrowing import is_array, is_mapping, is_object
from ..host import steps
from ..host.steps import WorkLimitError
from .compiled import SchemaProblem, format_path
from .type_guards import RefusePattern, StepLimitedValidator
from .type_pieces import PieceSerializer
from .type_traits import has_excluded_fields, iterate_field_keys, list_named_fields

_MAX_CONVERTED_DEPTH = 16
"""Each level validates everything below it again, so deeper parts are not converted."""

_MAX_DEPTH = 100
_MAX_WRAPPERS = 32
_ANY_SCHEMA = {"type": "any"}
_WRAPPER_TYPES = frozenset(
    {"default", "nullable", "function-before", "function-after", "function-wrap", "definitions", "model", "dataclass"}
)
_FIELD_TYPES = frozenset({"model-fields", "dataclass-args", "typed-dict"})
_NAMED_TUPLE_TYPES = ("named-tuple", "arguments")
_POSITIONAL_TYPES = ("tuple", *_NAMED_TUPLE_TYPES)
_SEQUENCES = (list, tuple, set, frozenset)
_LIST_TYPES = frozenset({"list", "set", "frozenset", "generator"})


class _ReadContext(NamedTuple):
    """The path of a part of the value, and the list of failures of the author's code.

    ``converts``: whether parts that fit are converted to what the type says.
    """

    path: tuple[Any, ...]
    failures: list[SchemaProblem]
    converts: bool

    def with_step(self, step: Any) -> _ReadContext:
        return _ReadContext((*self.path, step), self.failures, self.converts)

    def add_failure(self, message: str) -> None:
        path = [step if isinstance(step, int) else str(step) for step in self.path]
        self.failures.append({"path": format_path(path), "message": message})


class _CoreSchemaAdapter:
    """A part of a type with the attributes of a pydantic ``TypeAdapter``."""

    def __init__(self, core_schema: Any) -> None:
        from pydantic_core import SchemaSerializer, SchemaValidator

        self.core_schema = core_schema
        self.validator = SchemaValidator(core_schema)
        self.serializer = SchemaSerializer(core_schema)


class LenientOutputReader:
    """Reads outputs of one type part by part: converts each part that fits and keeps any other as it is.

    Fields that the type excludes from its JSON are dropped everywhere.
    """

    def __init__(self, core_schema: Any, refuse: RefusePattern) -> None:
        has_definitions = core_schema["type"] == "definitions"
        self._definitions: list[Any] = core_schema["definitions"] if has_definitions else []
        self._definitions_by_reference = {definition["ref"]: definition for definition in self._definitions}
        self._root: Any = core_schema["schema"] if has_definitions else core_schema
        self._refuse = refuse
        self._has_excluded_fields = has_excluded_fields(core_schema)
        self._converters: dict[int, Callable[[Any], Any]] = {}

    def read(self, value: Any) -> tuple[Any, list[SchemaProblem]]:
        """Return the value to write as JSON, and the places where the author's code failed."""
        path = _ReadContext((), [], converts=True)
        return self._read_part(self._root, value, path), path.failures

    def drop_excluded_fields(self, value: Any) -> Any:
        """Return plain JSON without the fields that the type excludes."""
        return self._read_part(self._root, value, _ReadContext((), [], converts=False))

    def _read_part(self, schema: Any, value: Any, path: _ReadContext) -> Any:
        from pydantic import ValidationError

        from ..host.cancellation import FAILURES

        steps.count_steps()
        if len(path.path) > _MAX_DEPTH:
            return self._read_too_deep_value(value, path)
        if not path.converts or len(path.path) > _MAX_CONVERTED_DEPTH:
            return self._read_mismatched_value(schema, value, path)
        try:
            return self._get_or_create_converter(schema)(value)
        except ValidationError:
            return self._read_mismatched_value(schema, value, path)
        except WorkLimitError:  # each part would need as much again
            return self._read_mismatched_value(schema, value, path._replace(converts=False))
        except FAILURES as error:  # raised by the author's code
            result = self._read_mismatched_value(schema, value, path)
            if result is value:
                path.add_failure(f"its type fails on it: {type(error).__name__}")
            return result

    def _read_too_deep_value(self, value: Any, path: _ReadContext) -> Any:
        """Return a value below the depth limit, or None if it may hold excluded fields."""
        if not self._has_excluded_fields or not isinstance(value, dict | list):
            return value
        path.add_failure("nests too deeply, left out")
        return None

    def _get_or_create_converter(self, schema: Any) -> Callable[[Any], Any]:
        converter = self._converters.get(id(schema))
        if converter is None:
            schema_with_definitions: Any = {"type": "definitions", "schema": schema, "definitions": self._definitions}
            adapter = _CoreSchemaAdapter(schema_with_definitions if self._definitions else schema)
            validate, write = (
                StepLimitedValidator(adapter, self._refuse).validate,
                PieceSerializer(adapter).to_plain_json,
            )
            converter = self._converters[id(schema)] = lambda value: write(validate(value), round_trip=False)
        return converter

    def _read_mismatched_value(self, schema: Any, value: Any, path: _ReadContext) -> Any:
        """Read the parts of a value that does not match this part of the type."""
        unwrapped = self._unwrap_schema(schema)
        kind = unwrapped.get("type")
        if kind in ("union", "tagged-union"):
            return self._read_union(unwrapped, value, path)
        if kind in _FIELD_TYPES and (members := _read_members(value)) is not None:
            return self._read_fields(unwrapped, members, path)
        if kind == "dict" and is_mapping(value):
            item: Any = unwrapped.get("values_schema", _ANY_SCHEMA)
            return {key: self._read_part(item, member, path.with_step(key)) for key, member in value.items()}
        if isinstance(value, _SEQUENCES) and kind in (*_LIST_TYPES, *_POSITIONAL_TYPES):
            return self._read_items(unwrapped, [*cast("Iterable[Any]", value)], path)
        return cast("Any", value)

    def _unwrap_schema(self, schema: Any) -> dict[str, Any]:
        for _ in range(_MAX_WRAPPERS):
            if schema.get("type") == "definition-ref":
                schema = self._definitions_by_reference.get(schema["schema_ref"], _ANY_SCHEMA)
            elif schema.get("type") in _WRAPPER_TYPES and is_object(schema.get("schema")):
                schema = schema["schema"]
            elif schema.get("type") == "call":  # a named tuple of an older pydantic
                schema = schema["arguments_schema"]
            elif schema.get("type") in ("json-or-python", "lax-or-strict"):
                schema = schema.get("python_schema") or schema.get("lax_schema") or _ANY_SCHEMA
            else:
                break
        return schema

    def _read_union(self, union: Mapping[str, Any], value: Any, path: _ReadContext) -> Any:
        """Read the value by the first branch of its kind, without the fields that any such branch excludes."""
        matching_branches = [
            branch for branch in _list_union_branches(union) if self._may_match(self._unwrap_schema(branch), value)
        ]
        if not matching_branches:
            return value
        result = self._read_mismatched_value(matching_branches[0], value, path)
        if is_object(result):
            excluded = {key for branch in matching_branches for key in _list_excluded_keys(self._unwrap_schema(branch))}
            return {key: member for key, member in result.items() if key not in excluded}
        return result

    def _may_match(self, schema: Mapping[str, Any], value: Any) -> bool:
        kind = schema.get("type")
        if kind in ("union", "tagged-union"):
            return True
        if kind in _FIELD_TYPES:
            return _read_members(value) is not None
        if is_mapping(value):
            return kind == "dict"
        return isinstance(value, _SEQUENCES) and kind in (*_LIST_TYPES, *_POSITIONAL_TYPES)

    def _read_fields(self, schema: Mapping[str, Any], value: Mapping[Any, Any], path: _ReadContext) -> dict[Any, Any]:
        fields = {
            key: field for name, field in list_named_fields(schema["fields"]) for key in iterate_field_keys(name, field)
        }
        excluded = _list_excluded_keys(schema)
        return {
            key: self._read_part(fields[key]["schema"], member, path.with_step(key)) if key in fields else member
            for key, member in value.items()
            if key not in excluded and not _is_excluded_by_condition(fields.get(key), member)
        }

    def _read_items(self, schema: Mapping[str, Any], items: list[Any], path: _ReadContext) -> list[Any]:
        item_schemas: Any = schema.get("items_schema", _ANY_SCHEMA)
        if schema.get("type") in _NAMED_TUPLE_TYPES:
            item_schemas = [field["schema"] for field in schema.get("fields", schema.get("arguments_schema", ()))]
        rest = (
            item_schemas
            if not is_array(item_schemas)
            else item_schemas[-1]
            if item_schemas and "variadic_item_index" in schema
            else _ANY_SCHEMA
        )
        positions: list[Any] = item_schemas if is_array(item_schemas) else []
        return [
            self._read_part(positions[at] if at < len(positions) else rest, item, path.with_step(at))
            for at, item in enumerate(items)
        ]


def _list_union_branches(union: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of a union's branches, without their labels."""
    choices: Any = union["choices"]
    branches: list[Any] = [*choices.values()] if is_mapping(choices) else choices
    return [cast("tuple[Any, str]", branch)[0] if isinstance(branch, tuple) else branch for branch in branches]


def _list_excluded_keys(schema: Mapping[str, Any]) -> set[str]:
    if schema.get("type") not in _FIELD_TYPES:
        return set()
    fields = list_named_fields(schema["fields"])
    return {
        key for name, field in fields if field.get("serialization_exclude") for key in iterate_field_keys(name, field)
    }


def _read_members(value: Any) -> Mapping[Any, Any] | None:
    """Return the members of a mapping, a model or a data class, without those that its own class excludes."""
    from ..host.cancellation import FAILURES

    if is_mapping(value):
        return value
    value_type = cast("type[Any]", type(value))
    if hasattr(value_type, "__pydantic_fields__") and hasattr(value_type, "model_dump"):
        try:
            return value.model_dump(warnings=False)
        except FAILURES:  # raised by serialisers of the author
            return None
    if dataclasses.is_dataclass(value_type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value_type)}
    return None


def _is_excluded_by_condition(field: Mapping[str, Any] | None, value: Any) -> bool:
    """Return True if the field's ``exclude_if`` excludes this value, or fails."""
    from ..host.cancellation import FAILURES

    exclude_if = None if field is None else field.get("serialization_exclude_if")
    try:
        return exclude_if is not None and bool(exclude_if(value))
    except FAILURES:
        return True
