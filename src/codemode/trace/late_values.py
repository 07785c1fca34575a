"""Event fields whose values are made on first access.

Most are never read, and each may take as much time and memory as the data that a program moved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

EventT = TypeVar("EventT")


class LazyValue:
    """A value that is computed at each access and never stored."""

    __slots__ = ("_arguments", "_make")

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self._make = make
        self._arguments = arguments

    def value(self) -> Any:
        """Compute the value."""
        return self._make(*self._arguments)

    @property
    def text(self) -> str:
        """The text from which the value is computed, or an empty string."""
        first = self._arguments[0] if self._arguments else None
        return first if isinstance(first, str) else ""


class _LazyField:
    def __init__(self, slot: Any) -> None:
        self.slot = slot

    def __get__(self, event: Any, owner: type | None = None) -> Any:
        if event is None:
            return self
        stored = self.slot.__get__(event)
        return stored.value() if type(stored) is LazyValue else stored

    def __set__(self, event: Any, value: Any) -> None:
        self.slot.__set__(event, value)


def get_stored_value(event: object, name: str) -> Any:
    """Return what such a field holds, which may be a `LazyValue`: for another event, without making its value."""
    return getattr(type(event), name).slot.__get__(event)


def with_lazy_fields(*names: str) -> Callable[[type[EventT]], type[EventT]]:
    """Allow a `LazyValue` in these fields of a data class with slots: a read returns its value."""

    def decorate(declared: type[EventT]) -> type[EventT]:
        for name in names:
            setattr(declared, name, _LazyField(declared.__dict__[name]))
        return declared

    return decorate
