"""Read outputs that do not match their declared type, without the fields that the type excludes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast

from ..data.narrowing import is_array, is_mapping, is_object
from ..host import steps
from ..host.steps import TooMuchWork
from .compiled import Problem, path_text
from .type_guards import GuardedValidator, Refuse
from .type_pieces import PieceSerializer
from .type_traits import excludes_fields, keys_of, named_fields

_MAX_CONVERTED_DEPTH = 16
"""Each level validates everything below it again, so deeper parts are not converted."""

_MAX_DEPTH = 100
_MAX_UNWRAPPED = 32
_ANYTHING = {"type": "any"}
_WRAPPERS = frozenset(
    {"default", "nullable", "function-before", "function-after", "function-wrap", "definitions", "model", "dataclass"}
)
_WITH_FIELDS = frozenset({"model-fields", "dataclass-args", "typed-dict"})
_NAMED_TUPLES = ("named-tuple", "arguments")
_WITH_POSITIONS = ("tuple", *_NAMED_TUPLES)
_SEQUENCES = (list, tuple, set, frozenset)
_LISTS = frozenset({"list", "set", "frozenset", "generator"})


class _Place(NamedTuple):
    """The path of a part of the value, and the list of failures of the author's code.

    ``converts``: whether parts that fit are converted to what the type says.
    """

    path: tuple[Any, ...]
    failures: list[Problem]
    converts: bool

    def inside(self, step: Any) -> _Place:
        return _Place((*self.path, step), self.failures, self.converts)

    def note(self, message: str) -> None:
        path = [step if isinstance(step, int) else str(step) for step in self.path]
        self.failures.append({"path": path_text(path), "message": message})


class _Part:
    """A part of a type with the attributes of a pydantic ``TypeAdapter``."""

    def __init__(self, core_schema: Any) -> None:
        from pydantic_core import SchemaSerializer, SchemaValidator

        self.core_schema = core_schema
        self.validator = SchemaValidator(core_schema)
        self.serializer = SchemaSerializer(core_schema)


class LenientReader:
    """Reads outputs of one type part by part: converts each part that fits and keeps any other as it is.

    Fields that the type excludes from its JSON are dropped everywhere.
    """

    def __init__(self, core_schema: Any, refuse: Refuse) -> None:
        has_definitions = core_schema["type"] == "definitions"
        self._definitions: list[Any] = core_schema["definitions"] if has_definitions else []
        self._by_reference = {definition["ref"]: definition for definition in self._definitions}
        self._root: Any = core_schema["schema"] if has_definitions else core_schema
        self._refuse = refuse
        self._excludes = excludes_fields(core_schema)
        self._converters: dict[int, Callable[[Any], Any]] = {}

    def read(self, value: Any) -> tuple[Any, list[Problem]]:
        """Return the value to write as JSON, and the places where the author's code failed."""
        place = _Place((), [], converts=True)
        return self._part(self._root, value, place), place.failures

    def without_excluded(self, value: Any) -> Any:
        """Return plain JSON without the fields that the type excludes."""
        return self._part(self._root, value, _Place((), [], converts=False))

    def _part(self, schema: Any, value: Any, place: _Place) -> Any:
        from pydantic import ValidationError

        from ..host.cancellation import FAILURES

        steps.take()
        if len(place.path) > _MAX_DEPTH:
            return self._too_deep(value, place)
        if not place.converts or len(place.path) > _MAX_CONVERTED_DEPTH:
            return self._inside(schema, value, place)
        try:
            return self._converter(schema)(value)
        except ValidationError:
            return self._inside(schema, value, place)
        except TooMuchWork:  # each part would need as much again
            return self._inside(schema, value, place._replace(converts=False))
        except FAILURES as error:  # raised by the author's code
            read = self._inside(schema, value, place)
            if read is value:
                place.note(f"its type fails on it: {type(error).__name__}")
            return read

    def _too_deep(self, value: Any, place: _Place) -> Any:
        """Return a value below the depth limit, or None if it may hold excluded fields."""
        if not self._excludes or not isinstance(value, dict | list):
            return value
        place.note("nests too deeply, left out")
        return None

    def _converter(self, schema: Any) -> Callable[[Any], Any]:
        convert = self._converters.get(id(schema))
        if convert is None:
            whole: Any = {"type": "definitions", "schema": schema, "definitions": self._definitions}
            part = _Part(whole if self._definitions else schema)
            validate, write = GuardedValidator(part, self._refuse).validate, PieceSerializer(part).to_python
            convert = self._converters[id(schema)] = lambda value: write(validate(value), round_trip=False)
        return convert

    def _inside(self, schema: Any, value: Any, place: _Place) -> Any:
        """Read the parts of a value that does not match this part of the type."""
        inner = self._unwrapped(schema)
        kind = inner.get("type")
        if kind in ("union", "tagged-union"):
            return self._of_union(inner, value, place)
        if kind in _WITH_FIELDS and (members := _members_of(value)) is not None:
            return self._fields(inner, members, place)
        if kind == "dict" and is_mapping(value):
            item: Any = inner.get("values_schema", _ANYTHING)
            return {key: self._part(item, member, place.inside(key)) for key, member in value.items()}
        if isinstance(value, _SEQUENCES) and kind in (*_LISTS, *_WITH_POSITIONS):
            return self._items(inner, [*cast("Iterable[Any]", value)], place)
        return cast("Any", value)

    def _unwrapped(self, schema: Any) -> dict[str, Any]:
        for _ in range(_MAX_UNWRAPPED):
            if schema.get("type") == "definition-ref":
                schema = self._by_reference.get(schema["schema_ref"], _ANYTHING)
            elif schema.get("type") in _WRAPPERS and is_object(schema.get("schema")):
                schema = schema["schema"]
            elif schema.get("type") == "call":  # a named tuple of an older pydantic
                schema = schema["arguments_schema"]
            elif schema.get("type") in ("json-or-python", "lax-or-strict"):
                schema = schema.get("python_schema") or schema.get("lax_schema") or _ANYTHING
            else:
                break
        return schema

    def _of_union(self, union: Mapping[str, Any], value: Any, place: _Place) -> Any:
        """Read the value by the first branch of its kind, without the fields that any such branch excludes."""
        alike = [branch for branch in _branches(union) if self._is_alike(self._unwrapped(branch), value)]
        if not alike:
            return value
        read = self._inside(alike[0], value, place)
        if is_object(read):
            excluded = {key for branch in alike for key in _excluded_keys(self._unwrapped(branch))}
            return {key: member for key, member in read.items() if key not in excluded}
        return read

    def _is_alike(self, schema: Mapping[str, Any], value: Any) -> bool:
        kind = schema.get("type")
        if kind in ("union", "tagged-union"):
            return True
        if kind in _WITH_FIELDS:
            return _members_of(value) is not None
        if is_mapping(value):
            return kind == "dict"
        return isinstance(value, _SEQUENCES) and kind in (*_LISTS, *_WITH_POSITIONS)

    def _fields(self, schema: Mapping[str, Any], value: Mapping[Any, Any], place: _Place) -> dict[Any, Any]:
        fields = {key: field for name, field in named_fields(schema["fields"]) for key in keys_of(name, field)}
        excluded = _excluded_keys(schema)
        return {
            key: self._part(fields[key]["schema"], member, place.inside(key)) if key in fields else member
            for key, member in value.items()
            if key not in excluded and not _is_excluded(fields.get(key), member)
        }

    def _items(self, schema: Mapping[str, Any], items: list[Any], place: _Place) -> list[Any]:
        each: Any = schema.get("items_schema", _ANYTHING)
        if schema.get("type") in _NAMED_TUPLES:
            each = [field["schema"] for field in schema.get("fields", schema.get("arguments_schema", ()))]
        rest = each if not is_array(each) else each[-1] if each and "variadic_item_index" in schema else _ANYTHING
        positions: list[Any] = each if is_array(each) else []
        return [
            self._part(positions[at] if at < len(positions) else rest, item, place.inside(at))
            for at, item in enumerate(items)
        ]


def _branches(union: Mapping[str, Any]) -> list[Any]:
    """Return the schemas of a union's branches, without their labels."""
    choices: Any = union["choices"]
    branches: list[Any] = [*choices.values()] if is_mapping(choices) else choices
    return [cast("tuple[Any, str]", branch)[0] if isinstance(branch, tuple) else branch for branch in branches]


def _excluded_keys(schema: Mapping[str, Any]) -> set[str]:
    if schema.get("type") not in _WITH_FIELDS:
        return set()
    fields = named_fields(schema["fields"])
    return {key for name, field in fields if field.get("serialization_exclude") for key in keys_of(name, field)}


def _members_of(value: Any) -> Mapping[Any, Any] | None:
    """Return the members of a mapping, a model or a data class, without those that its own class excludes."""
    from ..host.cancellation import FAILURES

    if is_mapping(value):
        return value
    kind = cast("type[Any]", type(value))
    if hasattr(kind, "__pydantic_fields__") and hasattr(kind, "model_dump"):
        try:
            return value.model_dump(warnings=False)
        except FAILURES:  # raised by serialisers of the author
            return None
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(kind)}
    return None


def _is_excluded(field: Mapping[str, Any] | None, value: Any) -> bool:
    """Return True if the field's ``exclude_if`` excludes this value, or fails."""
    from ..host.cancellation import FAILURES

    decide = None if field is None else field.get("serialization_exclude_if")
    try:
        return decide is not None and bool(decide(value))
    except FAILURES:
        return True
