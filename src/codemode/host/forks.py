"""Forks of the host: locks that are free in a child, and state to reset or abandon there."""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    """An object that a forked child must reset: a thread that does not exist there may have left it half changed."""

    def after_fork(self) -> None:
        """Reset the object in a forked child. Its locks are free already."""
        ...


_locks: WeakSet[Any] = WeakSet()
_reentrant_locks: WeakSet[Any] = WeakSet()
_fork_aware: WeakSet[Any] = WeakSet()
_kept_for_parent: list[object] = []


def create_fork_safe_lock() -> threading.Lock:
    """Return a lock that is free in a forked child, whichever thread held it in the parent.

    The state that it protects may be half changed there: see `register_fork_reset`.
    """
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def create_fork_safe_rlock() -> threading.RLock:
    """Return a reentrant lock. In a forked child it is free, or held by the one thread there."""
    lock = threading.RLock()
    _reentrant_locks.add(lock)
    return lock


def register_fork_reset(resource: ForkAware) -> None:
    """Call ``after_fork`` of an object in each forked child, as long as the object lives."""
    _fork_aware.add(resource)


def never_finalize_in_child(*resources: object) -> None:
    """In a forked child: never collect these objects, as their finalizers would affect the parent's resources."""
    _kept_for_parent.extend(resources)


def _reset_after_fork() -> None:
    # As the standard library does for its own locks.
    for lock in [*_locks]:
        lock._at_fork_reinit()  # noqa: SLF001
    for lock in [*_reentrant_locks]:
        if not lock._is_owned():  # noqa: SLF001
            lock._at_fork_reinit()  # noqa: SLF001
    for resource in [*_fork_aware]:
        resource.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
