"""Forks of the host: what begins anew in a child, which locks are free there, and what is its parent's alone."""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """What cannot be used in a forked child as it was: a thread that is not in it may have changed half of it."""

    def after_fork(self) -> None:
        """Begin anew, in a forked child. Its locks are free already."""
        ...


_locks: WeakSet[Any] = WeakSet()
_reentrant_locks: WeakSet[Any] = WeakSet()
_known: WeakSet[Any] = WeakSet()
_of_parents: list[object] = []


def forkable_lock() -> threading.Lock:
    """Return a lock that is free in a forked child, where the thread that had it is not. No thread forks with it.

    What it protects may be half changed there: where that matters, it is for `begin_anew_in_forks`.
    """
    made = threading.Lock()
    _locks.add(made)
    return made


def forkable_rlock() -> threading.RLock:
    """Return one that a thread may take again. In a forked child it is free, or still that of the thread there is."""
    made = threading.RLock()
    _reentrant_locks.add(made)
    return made


def begin_anew_in_forks(one: Forked) -> None:
    """Tell this of each fork, as long as it lives."""
    _known.add(one)


def leave_to_the_parent(*found: object) -> None:
    """In a forked child: let nothing of this ever be collected, for its end would reach what is the parent's."""
    _of_parents.extend(found)


def _after_fork() -> None:
    # As the standard library frees its own. They cost nothing more than others while nobody forks.
    for lock in [*_locks]:
        lock._at_fork_reinit()  # noqa: SLF001
    for lock in [*_reentrant_locks]:
        if not lock._is_owned():  # noqa: SLF001
            lock._at_fork_reinit()  # noqa: SLF001
    for one in [*_known]:
        one.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
