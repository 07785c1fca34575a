"""What functions return, with objects closed that have the declared fields and no others. Runs no tool.

pydantic says of a model's schema that it is open unless the model forbids extra input, although an instance is written
with its fields alone. What a program reads of a result is checked where the schema is closed.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic_ai.messages import ToolReturn
from pydantic_ai.tools import GenerateToolJsonSchema

from codemode.plugins import Compile, CompiledSchema, FrameworkSchema, InferredOutput, TypeSchema, ValidatedInput

_MODE: Any = "serialization"
# What leaves fields out as it writes, and adds none.
_LEAVES_OUT = ("include-exclude-sequence", "include-exclude-dict")


class _Exact(GenerateToolJsonSchema):
    """Closes what classes are written as that nothing is a subclass of, for that may have more.

    ``classes`` are those that were closed. ``unsure`` is filled where a serializer does not say what it makes.
    """

    classes: list[type]
    unsure: list[str]

    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        return made if schema.get("root_model") else self._closed(made, schema["cls"])

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        made, cls = super().dataclass_schema(schema), schema["cls"]
        # One of the standard library is written with all that it has, by the names of its fields.
        is_whole = {field.name for field in dataclasses.fields(cls)} <= set(made.get("properties", ()))
        return self._closed(made, cls) if is_whole else made

    def ser_schema(self, schema: Any) -> dict[str, Any] | None:
        made = super().ser_schema(schema)
        if made is None and schema["type"] not in _LEAVES_OUT:
            self.unsure.append(schema["type"])
        return made

    def _closed(self, made: dict[str, Any], cls: type) -> dict[str, Any]:
        if made.get("additionalProperties") is False and not _is_last(cls):  # it forbids what its subclasses have
            return {name: value for name, value in made.items() if name != "additionalProperties"}
        if made.get("type") != "object" or "additionalProperties" in made or not _is_last(cls):
            return made
        self.classes.append(cls)
        return {**made, "additionalProperties": False}


@dataclasses.dataclass(frozen=True)
class _Known:
    declared: dict[str, Any]
    exact: dict[str, Any]
    classes: list[weakref.ref[type]]


_excluding: weakref.WeakKeyDictionary[Callable[..., Any], Any] = weakref.WeakKeyDictionary()
_known: weakref.WeakKeyDictionary[Callable[..., Any], _Known] = weakref.WeakKeyDictionary()


def exact_schema(declared: dict[str, Any] | None, function: Callable[..., Any] | None) -> dict[str, Any] | None:
    """Return the schema of what a function returns, closed where that is sure.

    ``declared`` is what its tool says; another than the annotation of the function gives stays as it is.
    """
    if not declared or function is None or not ("properties" in declared or "$defs" in declared):
        return declared
    try:
        known = _known.get(function)
        if known is None:
            _known[function] = known = _read(declared, function)
    except TypeError:  # a callable of a kind that cannot be remembered
        return declared
    is_same = known.declared == declared and all(cls is not None and _is_last(cls) for cls in _alive(known))
    return known.exact if is_same else declared


def excluding_type(declared: Any, function: Callable[..., Any] | None) -> Any:
    """Return a function's return type if it has fields that are excluded from its JSON, else None."""
    if function is None or not (isinstance(declared, dict) and ("properties" in declared or "$defs" in declared)):
        return None
    try:
        if function not in _excluding:
            schema = TypeSchema(returned := _return_type(function), "output")
            _excluding[function] = returned if schema.excludes_fields else None
        return _excluding[function]
    except Exception:  # noqa: BLE001 - annotations may be anything, and some callables cannot be weak keys
        return None


class Output(FrameworkSchema):
    """A tool's declared output, without the fields that its function's return type excludes."""

    def __init__(self, declared: Any, excluding: Any) -> None:
        self._declared = declared
        self._excluding = excluding

    def compiled(self, compiled: Compile) -> CompiledSchema | None:
        described = compiled(self._declared)
        if described is None or self._excluding is None:
            return described
        typed = compiled(InferredOutput(self._excluding))
        return _WithoutExcluded(described, typed) if isinstance(typed, TypeSchema) else described


class _WithoutExcluded:
    def __init__(self, described: CompiledSchema, typed: TypeSchema) -> None:
        self._described = described
        self._typed = typed
        self.json_schema = described.json_schema
        self.varies = False

    def validate_input(self, value: Any) -> ValidatedInput:
        raise NotImplementedError

    def validate_output(self, value: Any, what: str) -> Any:
        return self._described.validate_output(self._typed.without_excluded(value), what)

    def as_it_came(self, value: Any) -> tuple[Any, list[Any]]:
        return self._typed.without_excluded(value), []


def _alive(known: _Known) -> list[type | None]:
    return [one() for one in known.classes]


def _read(declared: dict[str, Any], function: Callable[..., Any]) -> _Known:
    class Exact(_Exact):
        classes: list[type] = []  # noqa: RUF012 - of this reading
        unsure: list[str] = []  # noqa: RUF012 - likewise

    try:
        adapter = TypeAdapter[Any](_return_type(function))
        plain = adapter.json_schema(schema_generator=GenerateToolJsonSchema, mode=_MODE)
        exact = adapter.json_schema(schema_generator=Exact, mode=_MODE)
    except Exception:  # noqa: BLE001 - annotations may hold anything: then what the tool says is all there is
        return _Known(declared, declared, [])
    if plain != declared or Exact.unsure:
        return _Known(declared, declared, [])
    return _Known(declared, exact, [weakref.ref(cls) for cls in Exact.classes])


def _return_type(function: Callable[..., Any]) -> Any:
    said = get_type_hints(function, include_extras=True)["return"]
    return get_args(said)[0] if get_origin(said) is ToolReturn else said


def _is_last(cls: type) -> bool:
    """Tell whether an instance of a class is of no other: it is final, or nobody has derived one so far."""
    return getattr(cls, "__final__", False) is True or not cast("Any", cls).__subclasses__()
