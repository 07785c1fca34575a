"""Who calls the gateway: what caches, approvals, remembered answers, pins and shares of the workers belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codemode.workers.pool import WorkerPool

_MOST_OF_A_POOL_WITHOUT_NUMBER = 8


@dataclass(frozen=True)
class Principal:
    """One user of the gateway. ``session`` tells connections of one user apart where servers are not shared by them.

    ``id`` is the tenant in stores; ``"local"`` is the one user of a gateway that a client has started.
    """

    id: str
    session: str | None = None


LOCAL = Principal("local")


def share_of(pool: WorkerPool | None, principal: Principal) -> WorkerPool | None:
    """Return what a principal may use of a pool: all of it for `LOCAL`, half of its workers, at least one, for others.

    A user's programs beyond it wait in that user's own queue: whoever comes next stands behind no more than half a
    pool of them. None is the process-wide pool.
    """
    if principal.id == LOCAL.id:
        return pool
    from codemode.workers.pool import pool_or_default

    whole = pool_or_default(pool)
    most = whole.options.max_workers
    return whole.share(principal.id, max_workers=_MOST_OF_A_POOL_WITHOUT_NUMBER if most is None else max(1, most // 2))
