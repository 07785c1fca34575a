"""The worker pool: slots, a queue for them, and shares of both for tenants."""

from __future__ import annotations

import _thread
import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, TypeVar

from ..errors import CodeModeWorkerError
from ..host.forks import forkable_lock
from ..host.sync import refuse_in_workflow
from ..host.threads import HostThreads, off_loop
from ..options.checked_fields import WrongTypeError, text_or_none
from ..options.parts import PoolOptions
from ..records import record
from .image import DEFAULT_MEMORY_LIMIT_BYTES
from .lease import Admission, KeptLeases, Lease, memory_based_limit, nesting_depth
from .supply import Supply
from .worker_generations import Share, WorkerSource

if TYPE_CHECKING:
    from .supply import IsolationReport


_INTERVAL_SECONDS = 0.25
_READ_BYTES = 1 << 14
_UNKNOWN_BYTES = 1 << 50
_PROC, _CGROUPS = "/proc", "/sys/fs/cgroup"


class _Kind(NamedTuple):
    """How a version of control groups calls what it tells. ``reclaimable`` is given back when somebody needs it."""

    folder: str
    most: str
    in_use: str
    reclaimable: tuple[str, ...]


_UNIFIED = _Kind("", "memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable"))
_LEGACY = _Kind(
    "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)


class AvailableMemory:
    """How many bytes new processes can use, read at most four times a second."""

    def __init__(self) -> None:
        self._read_at = float("-inf")
        self._bytes = 0

    def __call__(self) -> int:
        """Return the bytes; a large number where the platform does not say."""
        now = time.monotonic()
        if now - self._read_at > _INTERVAL_SECONDS:
            self._bytes, self._read_at = read_available_bytes(), now
        return self._bytes


def read_available_bytes(proc: str = _PROC, cgroups: str = _CGROUPS) -> int:
    """Return the least of what the machine and each limit around this process leave. ``proc``, ``cgroups``: for tests.

    The kernel answers from memory: on an event loop too there is nothing to wait for.
    """
    of_machine = _fields(_text(f"{proc}/meminfo")).get("MemAvailable:")
    left = [_UNKNOWN_BYTES if of_machine is None else of_machine * 1024]
    for line in _text(f"{proc}/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers or "memory" in controllers.split(","):
            kind = _LEGACY if controllers else _UNIFIED
            left += [_left(f"{cgroups}{kind.folder}{around}", kind) for around in _around(path)]
    return max(0, min(left))


def _around(path: str) -> list[str]:
    """Return a group and all that it is in: each may have a limit. In a container the last is its own."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return ["".join(f"/{part}" for part in parts[:count]) for count in range(len(parts), -1, -1)]


def _left(folder: str, kind: _Kind) -> int:
    most, in_use = _text(f"{folder}/{kind.most}").strip(), _text(f"{folder}/{kind.in_use}").strip()
    if not (most.isdecimal() and in_use.isdecimal()):
        return _UNKNOWN_BYTES  # there is no such group here, or it has no limit
    if int(most) >= _UNKNOWN_BYTES:
        return _UNKNOWN_BYTES
    told = _fields(_text(f"{folder}/memory.stat"))
    return int(most) - max(0, int(in_use) - sum(told.get(name, 0) for name in kind.reclaimable))


def _fields(text: str) -> dict[str, int]:
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _text(path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.pread(file, _READ_BYTES, 0).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)


def end_when_dropped(pool: object, supply: Supply) -> weakref.finalize[[Supply], Any]:
    """Let the processes of a pool end with it. Nothing of the ``supply`` may know the pool."""
    ending = weakref.finalize(pool, _begin, supply)
    ending.atexit = False  # pools that are there at the end of the interpreter are closed then
    return ending


def _begin(supply: Supply) -> None:
    """Begin to end them, and wait for nothing: this comes in the middle of any code, in any thread.

    Not with `threading`: that takes a lock which the code in whose middle it is may have.
    """
    if supply.stock.has_processes:
        with suppress(RuntimeError):  # there is no thread: those that hear that the channel is closed end by themselves
            _thread.start_new_thread(_end, (supply,))


def _end(supply: Supply) -> None:
    try:
        supply.stock.end()
    except BaseException:
        logging.getLogger("codemode.workers").exception("what was left of a worker pool could not be ended")


# Safe to use from several threads and event loops. Knows nothing of programs or tools.

ResultT = TypeVar("ResultT")


@record
class Wanted:
    """What an invocation asks of a pool. ``depth``: how many invocations with a slot wait for it."""

    memory_limit_bytes: int
    on_saturation: str
    depth: int


class WorkerPool:
    """Workers of one kind. Processes start with the first invocation; `close`, or leaving a ``with``, ends them.

    Those of a pool that nobody has any more end by themselves, a moment later.
    """

    @staticmethod
    def refuse_in_workflow() -> None:
        """Raise `RuntimeError` inside a workflow function of Temporal, which is replayed and may start no process."""
        refuse_in_workflow()

    share_path: Share = ()

    def __init__(
        self,
        options: PoolOptions | Mapping[str, Any] | None = None,
        *,
        source: Callable[[], WorkerSource] | None = None,
    ) -> None:
        self.options = PoolOptions.of(options)
        self._make_source = source
        # A share that nobody holds has no invocation either, and is made anew when it is next asked for.
        self._shares: weakref.WeakValueDictionary[str, PoolShare] = weakref.WeakValueDictionary()
        self._reset()
        _POOLS.add(self)

    def __repr__(self) -> str:
        kept = f", {count} kept" if (count := len(self.supply.stock.kept)) else ""
        return f"<WorkerPool {self._admission.active} active, {self._spares()} spare{kept}>"

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: its processes are children of this one."""
        raise TypeError("a WorkerPool belongs to one process, and so does what was made with it: make one in each")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_failure: object) -> None:
        await self.aclose()

    @property
    def active(self) -> int:
        """How many invocations have a slot now."""
        return self._admission.active

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be run."""
        return self._is_closed

    @property
    def supply(self) -> Supply:
        """What gives the workers."""
        return self._supply

    @property
    def isolation(self) -> IsolationReport | None:
        """What confines the workers; None before the first one is ready."""
        return self.supply.isolation

    def share(self, name: str, *, max_workers: int) -> WorkerPool:
        """Return the part of this pool that one tenant may use, for wherever a pool is taken.

        At most ``max_workers`` invocations of the share have a slot of the pool or stand in its queue; the others
        queue in the share, or are refused, as ``on_saturation`` says. Shares that add up to no more than the pool's
        ``max_workers`` never wait for one another; one that is larger than the pool bounds how many of its invocations
        stand in the pool's queue. The workers are the pool's own: a tenant that is to have a zygote
        of its own gets a `WorkerPool` of its own. Closing a share closes that share and its own; the next one of its
        name is another.
        Raises `ValueError` when the share is in use with another ``max_workers``.
        """
        if text_or_none(name, "name") is None:
            raise ValueError("name must be a non-empty string, got None")
        with self._lock:
            known = self._shares.get(name)
            if known is None or known.is_closed:
                known = self._shares[name] = PoolShare(self, name, max_workers)
            elif known.options.max_workers != max_workers:
                raise ValueError(f"share {name!r} has max_workers={known.options.max_workers}, not {max_workers}")
            return known

    @property
    def has_begun(self) -> bool:
        """False when `start` would start something."""
        return self._is_closed or self.supply.stock.has_begun

    def start(self) -> None:
        """Start a first spare, where there may be any, unless there was one before: it boots while the caller prepares.

        For the moment before an `acquire`, which tells of failures: this does not. It may take a while: no loop waits.
        """
        if not self._is_closed:
            self.supply.start()

    async def begin(self) -> None:
        """Do what `start` does, in a thread. Afterwards the engine's version is known too, if there is an engine."""
        if not self._is_closed:
            await self.supply.begin()

    async def off_loop(self, work: Callable[[], ResultT]) -> ResultT:
        """Do something that may take a while in the thread that starts workers."""
        return await self.supply.off_loop(work)

    async def acquire(
        self, memory_limit_bytes: int, on_saturation: str | None = None, start_timeout_ms: int = 1500
    ) -> Lease:
        """Take a slot and a ready worker. ``on_saturation`` None is the pool's own.

        Workers that are killed while they start are replaced for ``start_timeout_ms``.

        Raises `CodeModeConcurrencyError` when full (or still full after ``wait_timeout_ms``), `CodeModeWorkerError`
        when no worker starts.
        """
        wanted = Wanted(memory_limit_bytes, on_saturation or self.options.on_saturation, nesting_depth())
        admissions, supply = await self.enter(wanted, self.options.wait_timeout_ms), self.supply
        try:
            worker = await supply.ready_worker(self.share_path, start_timeout_ms / 1000)
        except BaseException:
            _leave(admissions)
            raise
        return Lease(supply, admissions, worker, self)

    async def enter(self, wanted: Wanted, wait_timeout_ms: int | None) -> tuple[Admission, ...]:
        """Take a slot, waiting as ``wanted`` says. Raises `CodeModeConcurrencyError` when there is none."""
        admission = self._admission
        if self._kept.leases and not admission.has_room(wanted.memory_limit_bytes):
            self._kept.give_up_oldest()
        if wanted.on_saturation == "wait":
            await admission.enter(wanted.memory_limit_bytes, wait_timeout_ms, wanted.depth)
        elif not admission.try_enter(wanted.memory_limit_bytes, wanted.depth):
            raise admission.refusal(wanted.memory_limit_bytes, depth=wanted.depth)
        return (admission,)

    def keep(self, lease: Lease) -> bool:
        """Take note of a lease whose program rests: it is given up when somebody needs its slot, the oldest first.

        False, and nothing is noted, where somebody waits for a slot now, or no other one is free.
        """
        if not self._admission.has_room(DEFAULT_MEMORY_LIMIT_BYTES):
            return False
        self._kept.add(lease)
        return True

    def keep_no_more(self, lease: Lease) -> None:
        """Forget a lease that is in use again, or given back."""
        self._kept.remove(lease)

    def close(self) -> None:
        """Kill spares and zygote, and with the zygote every worker. The pool cannot be used afterwards.

        Waits until they are dead, for milliseconds; `aclose` does so off the event loop.
        """
        self._is_closed = True
        self.threads.end_idle()
        self._supply.close()

    async def aclose(self) -> None:
        """Do what `close` does, in a thread."""
        await off_loop(self.close)

    def forget(self) -> None:
        """In a forked child of the host: start afresh, touching no process of the parent's."""
        self._ending.detach()
        self._supply.abandon()
        self._reset()

    def _reset(self) -> None:
        self._open()
        admission = self._admission
        self._supply = Supply(self.options, lambda: admission.active <= 1, self._make_source)
        self._ending = end_when_dropped(self, self._supply)

    def _open(self) -> None:
        self._lock = forkable_lock()
        whose = f" of the share {self.share_path[-1]!r}" if self.share_path else ""
        self._admission = Admission(partial(_most_workers, self.options, AvailableMemory()), whose)
        self._kept = KeptLeases()
        self._is_closed = False
        self.threads = HostThreads()

    def _spares(self) -> int:
        return len(self._supply.stock.spares)


class PoolShare(WorkerPool):
    """A pool with slots and a queue of its own over the supply of the ``whole``. See `WorkerPool.share`."""

    def __init__(self, whole: WorkerPool, name: str, max_workers: int) -> None:
        self._whole = whole
        self.share_path = (*whole.share_path, name)
        super().__init__(replace(whole.options, max_workers=max_workers))

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be run: the share was closed, or the whole pool."""
        return self._is_closed or self._whole.is_closed

    @property
    def supply(self) -> Supply:
        """What gives the workers of the whole pool."""
        return self._whole.supply

    async def enter(self, wanted: Wanted, wait_timeout_ms: int | None) -> tuple[Admission, ...]:
        """Take a slot of the share and then one of the whole pool, both within ``wait_timeout_ms``."""
        started = time.monotonic()
        if self._is_closed:
            raise CodeModeWorkerError(f"the share {self.share_path[-1]!r} of the worker pool is closed")
        admissions = await super().enter(wanted, wait_timeout_ms)
        try:
            if wait_timeout_ms is not None:
                wait_timeout_ms = max(1, wait_timeout_ms - int((time.monotonic() - started) * 1000))
            return (*admissions, *await self._whole.enter(wanted, wait_timeout_ms))
        except BaseException:
            _leave(admissions)
            raise

    def keep(self, lease: Lease) -> bool:
        """Take note of it in the share and in the whole pool."""
        if not self._whole.keep(lease):
            return False
        is_kept = super().keep(lease)
        if not is_kept:
            self._whole.keep_no_more(lease)
        return is_kept

    def keep_no_more(self, lease: Lease) -> None:
        """Forget it in both."""
        super().keep_no_more(lease)
        self._whole.keep_no_more(lease)

    def close(self) -> None:
        """Close this share and its parts, with the workers that were kept for them: the others are the whole pool's."""
        self._is_closed = True
        self.threads.end_idle()
        self.supply.end_kept(self.share_path)

    def forget(self) -> None:
        """In a forked child of the host: start afresh. The whole pool forgets its workers itself."""
        self._open()

    def _reset(self) -> None:
        self._open()

    def _spares(self) -> int:
        return 0  # they are the whole pool's


def _most_workers(options: PoolOptions, available: AvailableMemory, active: int, memory_limit_bytes: int) -> int:
    fixed = options.max_workers or _max_workers
    if fixed or not active:
        return fixed or 1  # there is always one: no need to read how much memory there is
    return memory_based_limit(active, memory_limit_bytes, available())


def _leave(admissions: tuple[Admission, ...]) -> None:
    for admission in reversed(admissions):
        admission.leave()


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
_default_lock = forkable_lock()
_default: WorkerPool | None = None
_max_workers: int | None = None


def default_pool() -> WorkerPool:
    """Return the process-wide pool, made when first asked for."""
    global _default  # noqa: PLW0603 - one pool for the process
    with _default_lock:
        if _default is None:
            _default = WorkerPool()
        return _default


def set_max_workers(count: int | None) -> None:
    """Cap the workers of every pool without a cap of its own; None restores the memory-based limit.

    Raises `ValueError` for anything but a positive integer or None.
    """
    global _max_workers  # noqa: PLW0603 - a process-wide setting
    _max_workers = PoolOptions(max_workers=count).max_workers


def _close_all() -> None:
    for pool in list(_POOLS):
        pool.close()


def _forget_all() -> None:
    for pool in list(_POOLS):
        pool.forget()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def pool_or_default(pool: object) -> WorkerPool:
    """Return the pool that was given, the process-wide one for None. Raises `ValueError` for what is no pool."""
    if isinstance(pool, WorkerPool):
        return pool
    if pool is None:
        return _default or default_pool()
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
