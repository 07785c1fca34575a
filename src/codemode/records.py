"""Frozen values with slots that import faster than frozen dataclasses.

A frozen dataclass compiles six functions, a quarter of a millisecond at import, and a first program needs a hundred. A
record compiles its ``__init__`` and shares the rest. `dataclasses.fields`, `replace` and `asdict` take records. Default
factories, fields left out of comparisons and cached properties need a dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NoReturn, TypeVar, cast, dataclass_transform, overload

RecordT = TypeVar("RecordT")


class _Record:
    __slots__ = ()
    __match_args__: tuple[str, ...] = ()
    __record_defaults__: ClassVar[dict[str, Any]] = {}
    __record_types__: ClassVar[dict[str, Any]] = {}

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _get_field_values(self) == _get_field_values(cast("_Record", other))

    def __hash__(self) -> int:
        return hash(_get_field_values(self))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({values})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle_record, (type(self), dict(zip(self.__match_args__, _get_field_values(self), strict=True)))


class _DataclassFields:
    """The ``__dataclass_fields__`` of a record, created on first access."""

    def __get__(self, _record: object, owner: type[_Record]) -> dict[str, dataclasses.Field[Any]]:
        space = {"__annotations__": owner.__record_types__, **owner.__record_defaults__}
        created: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(type(owner.__name__, (), space))
        type.__setattr__(owner, "__dataclass_fields__", created.__dataclass_fields__)
        return created.__dataclass_fields__


def _unpickle_record(kind: type[RecordT], fields: dict[str, Any]) -> RecordT:
    return kind(**fields)


def _get_field_values(record: _Record) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.__match_args__)


@overload
def record(declared: type[RecordT], /) -> type[RecordT]: ...
@overload
def record(*, kw_only: bool) -> Callable[[type[RecordT]], type[RecordT]]: ...
@dataclass_transform(frozen_default=True)
def record(declared: type[Any] | None = None, /, *, kw_only: bool = False) -> Any:
    """Create a class of annotated fields with slots: immutable, compared and hashed by value.

    Fields of a base record come first. A ``__post_init__`` is called after all fields are set.
    """
    if declared is None:
        return partial(record, kw_only=kw_only)
    base: Any = declared.__base__ if issubclass(declared, _Record) else _Record
    types = {name: kind for name, kind in declared.__annotations__.items() if not str(kind).startswith("ClassVar")}
    space = {name: value for name, value in declared.__dict__.items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: space.pop(name) for name in types if name in space}
    space |= {
        "__slots__": tuple(types),
        "__match_args__": (*base.__match_args__, *types),
        "__record_defaults__": {**base.__record_defaults__, **defaults},
        "__record_types__": {**base.__record_types__, **types},
        "__dataclass_fields__": _DataclassFields(),
    }
    made: Any = type(declared.__name__, (base,), space)
    made.__qualname__ = declared.__qualname__
    if made.__match_args__:
        made.__init__ = _compile_init(made, kw_only=kw_only)
    return made


def _compile_init(record_class: Any, *, kw_only: bool) -> Any:
    names, defaults = record_class.__match_args__, record_class.__record_defaults__
    parameters = [f"{name}=default_{name}" if name in defaults else name for name in names]
    lines = [f"set_{name}(self, {name})" for name in names]
    # The slots' own setters, which subclasses and instances cannot override.
    scope = {f"set_{name}": getattr(record_class, name).__set__ for name in names}
    scope |= {f"default_{name}": value for name, value in defaults.items()}
    if hasattr(record_class, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join(["self", *(["*"] if kw_only else []), *parameters])
    exec(f"def __init__({head}):\n " + "\n ".join(lines), scope)  # noqa: S102 - names of fields
    return scope["__init__"]
