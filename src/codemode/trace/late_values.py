"""Fields of events whose values are made when somebody looks at them. Knows nothing of what they are.

Most are never looked at, and each may take as long to make, and as much memory, as the data that a program moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

EventT = TypeVar("EventT")


class Late:
    """A value that is made anew each time it is looked at, so that nobody keeps it but who looks."""

    __slots__ = ("_given", "_make")

    def __init__(self, make: Callable[..., Any], *given: Any) -> None:
        self._make = make
        self._given = given

    def value(self) -> Any:
        """Make it."""
        return self._make(*self._given)

    @property
    def text(self) -> str:
        """The text that it is made of, where it is; else nothing."""
        first = self._given[0] if self._given else None
        return first if isinstance(first, str) else ""


class _LateField:
    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def __get__(self, event: Any, owner: type | None = None) -> Any:
        if event is None:
            return self
        held = self.held_by(event)
        return held.value() if type(held) is Late else held

    def held_by(self, event: Any) -> Any:
        return self._slot.__get__(event)

    def __set__(self, event: Any, value: Any) -> None:
        self._slot.__set__(event, value)


def held(event: object, name: str) -> Any:
    """Return what such a field holds, which may be a `Late`: for another event, without making its value."""
    return getattr(type(event), name).held_by(event)


def late(*names: str) -> Callable[[type[EventT]], type[EventT]]:
    """Let these fields of a data class with slots hold a `Late`: whoever looks sees its value."""

    def decorated(declared: type[EventT]) -> type[EventT]:
        for name in names:
            setattr(declared, name, _LateField(declared.__dict__[name]))
        return declared

    return decorated
