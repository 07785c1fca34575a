"""Forks of the host: what begins anew in a child, and what is its parent's alone."""

from __future__ import annotations

import os
from typing import Any, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """What cannot be used in a forked child as it was: a thread that is not in it may hold its lock."""

    def after_fork(self) -> None:
        """Begin anew, in a forked child."""
        ...


_known: WeakSet[Any] = WeakSet()
_of_parents: list[object] = []


def begin_anew_in_forks(one: Forked) -> None:
    """Tell this of each fork, as long as it lives."""
    _known.add(one)


def leave_to_the_parent(*found: object) -> None:
    """In a forked child: let nothing of this ever be collected, for its end would reach what is the parent's."""
    _of_parents.extend(found)


def _after_fork() -> None:
    for one in [*_known]:
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
