"""`dataclass`, made at a third of its price: of the methods of a class Python compiles the ``__init__`` alone.

A first program takes sixty dataclasses, and `dataclasses` compiles up to six functions for each, one by one. What it
makes is the same here, from the fields to the signature and what is pickled. All fields are in the ``__init__``.
"""

from __future__ import annotations

import dataclasses
import sys
from operator import attrgetter
from reprlib import recursive_repr
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from dataclasses import dataclass

__all__ = ["dataclass"]

Field: TypeAlias = dataclasses.Field[Any]


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()  # stands in a signature for what a default factory will make


def _dataclass(
    declared: Any = None,
    /,
    *,
    init: bool = True,
    repr: bool = True,  # noqa: A002 - so called in dataclasses
    eq: bool = True,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
) -> Any:
    methods = {"init": init, "repr": repr, "eq": eq, "frozen": frozen}

    def make(declared: Any) -> Any:
        return _made(declared, methods, kw_only=kw_only, has_slots=slots)

    return make if declared is None else make(declared)


if not TYPE_CHECKING:
    dataclass = _dataclass


def _made(declared: Any, methods: dict[str, bool], *, kw_only: bool, has_slots: bool) -> Any:
    alone = _alone(declared, kw_only=kw_only)
    for name, is_wanted in (*methods.items(), ("slots", has_slots)):
        if hasattr(alone.__dataclass_params__, name):  # slots: since Python 3.12
            setattr(alone.__dataclass_params__, name, is_wanted)
    declared.__dataclass_params__ = alone.__dataclass_params__
    declared.__dataclass_fields__ = _with_inherited(declared, alone.__dataclass_fields__, is_frozen=methods["frozen"])
    fields = dataclasses.fields(declared)
    if has_slots:
        made = _with_slots(declared, [field.name for field in fields])
    else:
        made = declared
        for name in [name for name, value in declared.__dict__.items() if isinstance(value, dataclasses.Field)]:
            if name in alone.__dict__:
                setattr(made, name, alone.__dict__[name])
            else:
                delattr(made, name)
    added = _methods(made, fields, methods)
    if "__replace__" in alone.__dict__:  # since Python 3.13
        added["__replace__"] = alone.__replace__
    for name, method in added.items():
        if made.__dict__.get(name) is None:  # a class's own stays; with an own __eq__ its __hash__ is None
            setattr(made, name, method)
    return made


def _alone(declared: Any, *, kw_only: bool) -> Any:
    """Return a dataclass of the own fields without methods: with a frozen base it would have to be frozen."""
    own: dict[str, Any] = declared.__annotations__
    space = {name: value for name, value in declared.__dict__.items() if name in own}
    space |= {"__module__": declared.__module__, "__annotations__": own, "__doc__": "Without it one would be made."}
    return dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(type(declared.__name__, (), space))


def _with_inherited(declared: Any, own: dict[str, Field], *, is_frozen: bool) -> dict[str, Field]:
    known: dict[str, Field] = {}
    for base in declared.__mro__[:0:-1]:
        if "__dataclass_fields__" in base.__dict__:
            if base.__dataclass_params__.frozen != is_frozen:
                raise TypeError(f"{declared.__qualname__} must be frozen if its bases are, and only then")
            known |= base.__dataclass_fields__
    return known | own


def _with_slots(declared: Any, names: list[str]) -> Any:
    inherited = {slot for base in declared.__mro__[1:] for slot in base.__dict__.get("__slots__", ())}
    space = {name: value for name, value in declared.__dict__.items() if name not in names}
    for name in ("__dict__", "__weakref__"):
        space.pop(name, None)
    space["__slots__"] = tuple(name for name in names if name not in inherited)
    made = type(declared)(declared.__name__, declared.__bases__, space)
    made.__qualname__ = declared.__qualname__
    return made


def _methods(made: Any, fields: Sequence[Field], methods: dict[str, bool]) -> dict[str, Any]:
    is_frozen = methods["frozen"]
    added: dict[str, Any] = {"__match_args__": tuple(field.name for field in fields if not field.kw_only)}
    if methods["init"] and "__init__" not in made.__dict__:
        added["__init__"] = _init(made, fields, is_frozen=is_frozen)
    if methods["repr"]:
        added["__repr__"] = _repr([field.name for field in fields if field.repr])
    if methods["eq"]:
        added |= _comparing([field.name for field in fields if field.compare], is_frozen=is_frozen)
    if is_frozen:
        added |= _freezing(made, frozenset(field.name for field in fields))
        added |= _PICKLING if "__slots__" in made.__dict__ else {}
    return added


def _init(made: Any, fields: Sequence[Field], *, is_frozen: bool) -> Any:
    """Compile it with the module's names, inside a function whose parameters are whatever else it needs."""
    needed: dict[str, Any] = {"_set": object.__setattr__, "_factory": _FACTORY}
    lines = [_line(made, field, needed, is_frozen=is_frozen) for field in fields]
    lines.append("self.__post_init__()" if hasattr(made, "__post_init__") else "pass")
    parameters = ["self", *(_parameter(field, needed) for field in fields if not field.kw_only)]
    if by_name := [_parameter(field, needed) for field in fields if field.kw_only]:
        parameters += ["*", *by_name]
    code = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(lines)
    scope: dict[str, Any] = {}
    module = sys.modules[made.__module__].__dict__
    exec(f"def make({', '.join(needed)}):\n {code}\n return __init__", module, scope)  # noqa: S102 - names of fields
    init = scope["make"](**needed)
    init.__qualname__ = f"{made.__qualname__}.__init__"
    init.__annotations__ = {**{field.name: field.type for field in fields}, "return": None}
    return init


def _parameter(field: Field, needed: dict[str, Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name}=_factory"
    if field.default is dataclasses.MISSING:
        return field.name
    needed[f"_default_{field.name}"] = field.default
    return f"{field.name}=_default_{field.name}"


def _line(made: Any, field: Field, needed: dict[str, Any], *, is_frozen: bool) -> str:
    name = value = field.name
    if field.default_factory is not dataclasses.MISSING:
        needed[f"_make_{name}"] = field.default_factory
        value = f"_make_{name}() if {name} is _factory else {name}"
    if not is_frozen:
        return f"self.{name} = {value}"
    slot = getattr(made, name, None)
    if isinstance(slot, MemberDescriptorType):
        needed[f"_set_{name}"] = slot.__set__  # faster
        return f"_set_{name}(self, {value})"
    return f"_set(self, {name!r}, {value})"


def _repr(names: list[str]) -> Any:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return __repr__


def _comparing(names: list[str], *, is_frozen: bool) -> dict[str, Any]:
    values = _values_of(names)

    def __eq__(self: Any, other: Any) -> bool:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if is_frozen else None}


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda made: tuple(getattr(made, name) for name in names)


def _freezing(made: type[Any], names: frozenset[str]) -> dict[str, Any]:
    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_PICKLING = {"__getstate__": _state, "__setstate__": _restore}
