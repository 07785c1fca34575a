"""Small frozen values, as `dataclass(frozen=True, slots=True)` makes them, at a seventh of its price.

A dataclass compiles six functions, a quarter of a millisecond at import; of messages, events and effects there are
forty. A record compiles its ``__init__``, shares the rest, and is made faster too. It knows no `dataclasses.replace`,
no default factories and no inheritance: what needs them stays a dataclass.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar, cast, dataclass_transform

RecordT = TypeVar("RecordT")


class _Record:
    __slots__ = ()
    __match_args__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(cast("_Record", other))

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({values})"

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return type(self), _values(self)


def _values(record: _Record) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in record.__match_args__)


@dataclass_transform(frozen_default=True)
def record(declared: type[RecordT]) -> type[RecordT]:
    """Make a class of annotated fields, in their order, with slots; compared and hashed by value, never changed."""
    names = tuple(declared.__annotations__)
    space = {name: value for name, value in declared.__dict__.items() if name not in ("__dict__", "__weakref__")}
    defaults = {f"default_{name}": space.pop(name) for name in names if name in space}
    made: Any = type(declared.__name__, (_Record,), {**space, "__slots__": names, "__match_args__": names})
    made.__qualname__ = declared.__qualname__
    if names:
        made.__init__ = _compiled_init(made, names, defaults)
    return cast("type[RecordT]", made)


def _compiled_init(made: Any, names: tuple[str, ...], defaults: dict[str, Any]) -> Any:
    parameters = (f"{name}=default_{name}" if f"default_{name}" in defaults else name for name in names)
    statements = (f"\n set_{name}(self, {name})" for name in names)
    # The slots' own setters: nothing that a subclass or an instance could change is asked.
    scope = {**defaults, **{f"set_{name}": getattr(made, name).__set__ for name in names}}
    exec(f"def __init__(self, {', '.join(parameters)}):{''.join(statements)}", scope)  # noqa: S102 - names of fields
    return scope["__init__"]
