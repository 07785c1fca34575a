"""The pool that a caller gives, or the process-wide one: what is none is refused, and what is closed at creation."""

from __future__ import annotations

from collections.abc import Mapping

from ..options.checked_fields import WrongTypeError
from ..options.parts import PoolOptions
from .pool import WorkerPool, default_pool


def pool_or_default(pool: object) -> WorkerPool:
    """Return the pool that was given, the process-wide one for None. Raises `ValueError` for what is no pool."""
    if isinstance(pool, WorkerPool):
        return pool
    if pool is None:
        return default_pool()
    hint = ": make one of them, WorkerPool(options)" if isinstance(pool, PoolOptions | Mapping) else ""
    raise WrongTypeError(f"pool must be a WorkerPool or None, got {pool!r}{hint}")


def check_pool(pool: object) -> None:
    """Raise `ValueError` for what is no pool, and for one that is closed: nothing made with it could ever run."""
    if pool is None or not pool_or_default(pool).is_closed:
        return
    raise ValueError(
        "pool is closed, and nothing runs in it any more: give one that is open, such as WorkerPool(options) or a"
        " share of one, and close it when all that was made with it has ended"
    )
