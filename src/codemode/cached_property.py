"""A `cached_property` without a lock while it computes.

Before Python 3.12, `functools` has one lock per class. A computation may pass its turn to a thread that waits for that
lock, and a fork meanwhile leaves it locked in the child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

ValueT = TypeVar("ValueT")


class cached_property(Generic[ValueT]):  # noqa: N801 - so called in functools
    """A value that is computed on first use and stored in the ``__dict__`` of its object.

    Two threads may both compute it: all get, and store, the first result. The computation must be free of side effects.
    """

    def __init__(self, compute: Callable[[Any], ValueT]) -> None:
        self._compute = compute
        self._name = ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        """Store the attribute name."""
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> ValueT: ...
    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        """Return the value, computed on first use. The stored value takes precedence over this descriptor."""
        if instance is None:
            return self
        return instance.__dict__.setdefault(self._name, self._compute(instance))

    if TYPE_CHECKING:

        def __set__(self, instance: object, value: Any) -> None: ...  # as of any attribute
