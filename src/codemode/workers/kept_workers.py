"""Workers that wait for the next program of their share. Starts and ends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .process import is_readable

if TYPE_CHECKING:
    from .generations import PooledWorker
    from .tenure import Share

# So many that are not ready yet are waited for rather than a spare worker taken, which then has to be replaced.
_MOST_UNREADY = 2


class KeptWorkers:
    """Those that wait, ``most`` of them, in the order in which they came. Not safe to use from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[PooledWorker, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[PooledWorker]:
        return iter(self._waiting)

    def add(self, worker: PooledWorker) -> PooledWorker | None:
        """Let one wait; return the one, of whatever share, that has to go for it."""
        self._waiting[worker] = None
        return self._removed(next(iter(self._waiting))) if len(self._waiting) > self._most else None

    def take(self, share: Share, *, has_spare: bool) -> PooledWorker | None:
        """Return the worker of a share that has waited longest, None when there is none.

        None too while it is still getting ready and there is a spare worker, unless others do so already.
        """
        of_share = [worker for worker in self._waiting if worker.tenure is not None and worker.tenure.share == share]
        if not of_share:
            return None
        first = of_share[0]
        return None if has_spare and len(of_share) < _MOST_UNREADY and not _is_ready(first) else self._removed(first)

    def remove(self, share: Share) -> list[PooledWorker]:
        """Return those of a share and of its parts, which wait no more."""
        part = slice(len(share))
        found = [worker for worker in self._waiting if worker.tenure is not None and worker.tenure.share[part] == share]
        return [self._removed(worker) for worker in found]

    def clear(self) -> list[PooledWorker]:
        """Return all, which wait no more."""
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def _removed(self, worker: PooledWorker) -> PooledWorker:
        del self._waiting[worker]
        return worker


def _is_ready(worker: PooledWorker) -> bool:
    has_said = worker.tenure is not None and worker.tenure.said
    return bool(has_said) or is_readable(worker.process.channel.fileno(), 0)
