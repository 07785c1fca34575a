"""The depth of host code inside nested calls: so many invocations wait for it. Knows nothing of slots or pools.

Kept in a context variable, which tasks, `asyncio.to_thread` and this package's own threads take along. A bare
`threading.Thread` does not: what it runs counts as an invocation of its own.
"""

from __future__ import annotations

from contextvars import ContextVar


class Place:
    """The slot of one invocation, as the code of its calls sees it. Made where the invocation is made."""

    __slots__ = ("is_taken", "outer")

    def __init__(self) -> None:
        outer = _place.get()
        self.outer = None if outer is None else _taken(outer)
        self.is_taken = True

    def enter(self) -> None:
        """From here on this task, and what it starts, is part of the invocation."""
        _place.set(self)


def depth() -> int:
    """Return how many invocations that still have a slot wait for the code that asks."""
    count, place = 0, _place.get()
    while place is not None and (place := _taken(place)) is not None:
        count, place = count + 1, place.outer
    return count


def _taken(place: Place | None) -> Place | None:
    """Return the nearest that has its slot: one that has ended waits for nothing, whatever it left running."""
    while place is not None and not place.is_taken:
        place = place.outer
    return place


_place: ContextVar[Place | None] = ContextVar("codemode_place", default=None)
