"""Forks of the host: what begins anew in a child, which locks are free there, and what is its parent's alone."""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    """What cannot be used in a forked child as it was: a thread that is not in it may have changed half of it."""

    def after_fork(self) -> None:
        """Begin anew, in a forked child. Its locks are free already."""
        ...


_locks: WeakSet[Any] = WeakSet()
_reentrant_locks: WeakSet[Any] = WeakSet()
_fork_aware: WeakSet[Any] = WeakSet()
_kept_for_parent: list[object] = []


def forkable_lock() -> threading.Lock:
    """Return a lock that is free in a forked child, where the thread that had it is not. No thread forks with it.

    What it protects may be half changed there: where that matters, it is for `reset_in_forks`.
    """
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def forkable_rlock() -> threading.RLock:
    """Return one that a thread may take again. In a forked child it is free, or still that of the thread there is."""
    lock = threading.RLock()
    _reentrant_locks.add(lock)
    return lock


def reset_in_forks(resource: ForkAware) -> None:
    """Tell this of each fork, as long as it lives."""
    _fork_aware.add(resource)


def abandon_to_parent(*resources: object) -> None:
    """In a forked child: let nothing of this ever be collected, for its end would reach what is the parent's."""
    _kept_for_parent.extend(resources)


def _after_fork() -> None:
    # As the standard library frees its own. They cost nothing more than others while nobody forks.
    for lock in [*_locks]:
        lock._at_fork_reinit()  # noqa: SLF001
    for lock in [*_reentrant_locks]:
        if not lock._is_owned():  # noqa: SLF001
            lock._at_fork_reinit()  # noqa: SLF001
    for resource in [*_fork_aware]:
        resource.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
