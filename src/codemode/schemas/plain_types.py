"""Recognises types with a JSON Schema known without pydantic, and values that fit exactly.

Importing pydantic takes longer than the rest of a cold start. Only what is certain is decided here: such a type, and a
value that is exactly of it. Pydantic, imported on demand, decides everything else. A test compares both.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any, Union, get_args, get_origin

from ..data.rich_values import is_tag_or_escaped_object
from ..host import steps
from ..host.imports import importing
from .compiled import CompiledSchema, Conversion, JsonSchema, ValidatedInput

MAX_VALUES = 500
_MAX_DEPTH = 16
_MAX_INTEGER = 1 << 63
_MAX_CHARACTERS = 1 << 16

_SCALARS: dict[Any, str] = {int: "integer", str: "string", float: "number", bool: "boolean", type(None): "null"}


class NotPlainValueError(Exception):
    """A value is not exactly of its plain type, or too large to be looked at here."""


class PlainType:
    """One of the plain types: a scalar, `Any`, a list or a dict with keys of text of them, or one of them or None."""

    def __init__(self, json_schema: dict[str, Any], kind: Any, inner: PlainType | None = None) -> None:
        self.json_schema = json_schema
        self._kind = kind
        self._inner = inner

    def validate_and_copy(self, value: Any, depth: int = 0, values_left: list[int] | None = None) -> Any:
        """Return a copy of plain JSON that is exactly of the type. Raises `NotPlainValueError`."""
        kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind in _SCALARS:
            is_of_kind = self._kind is Any or kind is self._kind or (self._kind is Union and value is None)
            number: Any = value
            if is_of_kind and (-_MAX_INTEGER <= number < _MAX_INTEGER if kind is int else _is_plain_scalar(value)):
                return value
            if self._kind is Union and self._inner is not None:
                return self._inner.validate_and_copy(value)
            raise NotPlainValueError
        if self._kind is Union and self._inner is not None:
            return self._inner.validate_and_copy(value, depth, values_left)
        if self._kind not in (Any, kind) or kind not in (list, dict) or depth > _MAX_DEPTH:
            raise NotPlainValueError
        values_left = [MAX_VALUES] if values_left is None else values_left
        values_left[0] -= len(value)
        if values_left[0] < 0:
            raise NotPlainValueError
        copy_item = (self._inner or self).validate_and_copy
        if kind is list:
            return [copy_item(item, depth + 1, values_left) for item in value]
        if not all(type(key) is str and _is_plain_scalar(key) for key in value) or is_tag_or_escaped_object(value):
            raise NotPlainValueError
        return {key: copy_item(item, depth + 1, values_left) for key, item in value.items()}


def _is_plain_scalar(scalar: Any) -> bool:
    """Return False for scalars that validators and serialisers may have their own thoughts about."""
    kind: Any = type(scalar)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return len(scalar) <= _MAX_CHARACTERS and (scalar.isascii() or _is_valid_unicode(scalar))
    return isfinite(scalar) if kind is float else kind is not int or -_MAX_INTEGER <= scalar < _MAX_INTEGER


def _is_valid_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_plain_type(annotation: Any) -> PlainType | None:
    """Return the plain type of an annotation; None if it needs pydantic."""
    if annotation is Any:
        return PlainType({}, Any)
    # Found by identity: what a stranger's class does when it is compared is its own.
    for scalar, name in _SCALARS.items():
        if annotation is scalar or (annotation is None and name == "null"):
            return PlainType({"type": name}, scalar)
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if origin is Annotated and all(type(argument) is str for argument in arguments[1:]):
        return find_plain_type(arguments[0])
    if origin is Union or origin is types.UnionType:
        return _find_plain_optional(arguments)
    if origin is list and len(arguments) <= 1:
        item = find_plain_type(arguments[0] if arguments else Any)
        return item and PlainType({"items": item.json_schema, "type": "array"}, list, item)
    if origin is dict and (not arguments or (len(arguments) == 2 and arguments[0] is str)):
        item = find_plain_type(arguments[1] if arguments else Any)
        return item and PlainType({"additionalProperties": item.json_schema or True, "type": "object"}, dict, item)
    return None


def _find_plain_optional(members: tuple[Any, ...]) -> PlainType | None:
    if len(members) != 2 or members[1] is not type(None):
        return None
    inner = find_plain_type(members[0])
    if inner is None or inner.json_schema.get("type", "null") == "null":  # not of one kind, or of no other
        return None
    return PlainType({"anyOf": [inner.json_schema, {"type": "null"}]}, Union, inner)


class PlainSchema:
    """A plain type as a compiled schema. ``create_full_schema`` compiles it with pydantic, for other values."""

    is_nondeterministic = False
    takes_tags = True
    conversion: Conversion = "pydantic"

    def __init__(self, plain_type: PlainType, create_full_schema: Callable[[], CompiledSchema]) -> None:
        self.json_schema: JsonSchema = plain_type.json_schema
        self._copy = plain_type.validate_and_copy
        self._create_pydantic_schema = create_full_schema
        self._pydantic_schema: CompiledSchema | None = None

    def validate_input(self, value: Any) -> ValidatedInput:
        """Check; a value that is not exactly of the type is for pydantic to coerce or refuse."""
        try:
            copied = self._copy(value)
        except NotPlainValueError:
            return self.pydantic_schema.validate_input(value)
        return ValidatedInput(copied, lambda: self._copy(copied))

    def validate_output(self, value: Any, what: str) -> Any:
        """Check and copy, likewise."""
        try:
            return self._copy(value)
        except NotPlainValueError:
            return self.pydantic_schema.validate_output(value, what)

    @property
    def pydantic_schema(self) -> CompiledSchema:
        """The type's pydantic adapter."""
        if self._pydantic_schema is None:
            steps.count_steps(steps.LOOP_STEPS + 1)  # it is imported off the event loop
            with importing:
                self._pydantic_schema = self._create_pydantic_schema()
        return self._pydantic_schema
