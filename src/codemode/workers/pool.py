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
from ..host.forks import create_fork_safe_lock
from ..host.sync import require_outside_temporal_workflow
from ..host.threads import HostThreads, run_in_single_use_thread
from ..options.checked_fields import WrongTypeError, require_nonempty_string_or_none
from ..options.parts import PoolOptions
from ..records import record
from .image import DEFAULT_MEMORY_LIMIT_BYTES
from .lease import PooledWorkerLease, RevocableLeases, SlotQueue, compute_nesting_depth, compute_worker_limit
from .supply import WorkerSupply
from .worker_generations import SharePath, WorkerSource

if TYPE_CHECKING:
    from .supply import IsolationReport


_MEMORY_READ_INTERVAL_SECONDS = 0.25
_MAX_FILE_BYTES = 1 << 14
_UNLIMITED_BYTES = 1 << 50
_PROC_DIRECTORY, _CGROUPS_DIRECTORY = "/proc", "/sys/fs/cgroup"


class _CgroupFileNames(NamedTuple):
    """The file names of a version of control groups. Memory in ``reclaimable_fields`` is returned on demand."""

    folder: str
    limit_file: str
    usage_file: str
    reclaimable_fields: tuple[str, ...]


_CGROUP_V2 = _CgroupFileNames("", "memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable"))
_CGROUP_V1 = _CgroupFileNames(
    "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)


class AvailableMemoryReader:
    """How many bytes new processes can use, read at most four times a second."""

    def __init__(self) -> None:
        self._read_at = float("-inf")
        self._bytes = 0

    def __call__(self) -> int:
        """Return the bytes; a large number where the platform does not say."""
        now = time.monotonic()
        if now - self._read_at > _MEMORY_READ_INTERVAL_SECONDS:
            self._bytes, self._read_at = read_available_memory_bytes(), now
        return self._bytes


def read_available_memory_bytes(proc: str = _PROC_DIRECTORY, cgroups: str = _CGROUPS_DIRECTORY) -> int:
    """Return the least of what the machine and each limit around this process leave. ``proc``, ``cgroups``: for tests.

    The kernel answers from memory: on an event loop too there is nothing to wait for.
    """
    available_kib = _parse_integer_fields(_read_text_or_empty(f"{proc}/meminfo")).get("MemAvailable:")
    candidates = [_UNLIMITED_BYTES if available_kib is None else available_kib * 1024]
    for line in _read_text_or_empty(f"{proc}/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers or "memory" in controllers.split(","):
            files = _CGROUP_V1 if controllers else _CGROUP_V2
            candidates += [
                _read_cgroup_available_bytes(f"{cgroups}{files.folder}{group}", files)
                for group in _list_cgroups_up_to_root(path)
            ]
    return max(0, min(candidates))


def _list_cgroups_up_to_root(path: str) -> list[str]:
    """Return a group and all that it is in: each may have a limit. In a container the last is its own."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return ["".join(f"/{part}" for part in parts[:count]) for count in range(len(parts), -1, -1)]


def _read_cgroup_available_bytes(folder: str, files: _CgroupFileNames) -> int:
    limit, in_use = (
        _read_text_or_empty(f"{folder}/{files.limit_file}").strip(),
        _read_text_or_empty(f"{folder}/{files.usage_file}").strip(),
    )
    if not (limit.isdecimal() and in_use.isdecimal()):
        return _UNLIMITED_BYTES  # there is no such group here, or it has no limit
    if int(limit) >= _UNLIMITED_BYTES:
        return _UNLIMITED_BYTES
    statistics = _parse_integer_fields(_read_text_or_empty(f"{folder}/memory.stat"))
    return int(limit) - max(0, int(in_use) - sum(statistics.get(name, 0) for name in files.reclaimable_fields))


def _parse_integer_fields(text: str) -> dict[str, int]:
    fields = [line.split() for line in text.splitlines()]
    return {field[0]: int(field[1]) for field in fields if len(field) > 1 and field[1].isdecimal()}


def _read_text_or_empty(path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.pread(file, _MAX_FILE_BYTES, 0).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)


def register_pool_finalizer(pool: object, supply: WorkerSupply) -> weakref.finalize[[WorkerSupply], Any]:
    """End the processes of a pool with it. Nothing in ``supply`` may refer to the pool."""
    finalizer = weakref.finalize(pool, _close_supply_in_new_thread, supply)
    finalizer.atexit = False  # pools that are there at the end of the interpreter are closed then
    return finalizer


def _close_supply_in_new_thread(supply: WorkerSupply) -> None:
    """Begin to end them, and wait for nothing: this comes in the middle of any code, in any thread.

    Not with `threading`: that takes a lock which the code in whose middle it is may have.
    """
    if supply.inventory.has_processes:
        with suppress(RuntimeError):  # there is no thread: those that hear that the channel is closed end by themselves
            _thread.start_new_thread(_close_supply_processes, (supply,))


def _close_supply_processes(supply: WorkerSupply) -> None:
    try:
        supply.inventory.close_including_busy_workers()
    except BaseException:
        logging.getLogger("codemode.workers").exception("the processes of a worker pool could not be ended")


# Safe to use from several threads and event loops. Knows nothing of programs or tools.

ResultT = TypeVar("ResultT")


@record
class WorkerRequest:
    """The request of an invocation to a pool. ``nesting_depth``: how many invocations with a slot wait for it."""

    memory_limit_bytes: int
    on_saturation: str
    nesting_depth: int


class WorkerPool:
    """Workers of one kind. Processes start with the first invocation; `close` or the end of ``with`` ends them.

    The processes of an unreferenced pool end on their own, a moment later.
    """

    @staticmethod
    def require_outside_temporal_workflow() -> None:
        """Raise `RuntimeError` inside a workflow function of Temporal, which is replayed and may start no process."""
        require_outside_temporal_workflow()

    share_path: SharePath = ()

    def __init__(
        self,
        options: PoolOptions | Mapping[str, Any] | None = None,
        *,
        source: Callable[[], WorkerSource] | None = None,
    ) -> None:
        self.options = PoolOptions.of(options)
        self._make_source = source
        # A share without references has no invocation either, and is created again when it is next requested.
        self._shares: weakref.WeakValueDictionary[str, PoolShare] = weakref.WeakValueDictionary()
        self._reset()
        _POOLS.add(self)

    def __repr__(self) -> str:
        idle = f", {count} kept" if (count := len(self.supply.inventory.idle)) else ""
        return f"<WorkerPool {self._slot_queue.active} active, {self._count_spares()} spare{idle}>"

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: its processes are children of this one."""
        raise TypeError("a WorkerPool belongs to one process, as all made with it: create one in each process")

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
        return self._slot_queue.active

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be run."""
        return self._is_closed

    @property
    def supply(self) -> WorkerSupply:
        """The source of the workers."""
        return self._supply

    @property
    def isolation(self) -> IsolationReport | None:
        """The isolation report of the workers; None before the first one is ready."""
        return self.supply.isolation

    def share(self, name: str, *, max_workers: int) -> WorkerPool:
        """Return the part of this pool that one tenant may use; accepted in place of a pool.

        At most ``max_workers`` invocations of the share have a slot of the pool or stand in its queue; the others queue
        in the share, or are refused, according to ``on_saturation``. Shares that add up to no more than the pool's
        ``max_workers`` never wait for one another; one that is larger than the pool bounds how many of its invocations
        stand in the pool's queue. The workers are the pool's own: a tenant that needs its own zygote gets its own
        `WorkerPool`. Closing a share closes that share and its own; the next one of its name is another.
        Raises `ValueError` when the share is in use with another ``max_workers``.
        """
        if require_nonempty_string_or_none(name, "name") is None:
            raise ValueError("name must be a non-empty string, got None")
        with self._lock:
            existing = self._shares.get(name)
            if existing is None or existing.is_closed:
                existing = self._shares[name] = PoolShare(self, name, max_workers)
            elif existing.options.max_workers != max_workers:
                raise ValueError(f"share {name!r} has max_workers={existing.options.max_workers}, not {max_workers}")
            return existing

    @property
    def has_started(self) -> bool:
        """False when `start` would start something."""
        return self._is_closed or self.supply.inventory.has_started

    def start(self) -> None:
        """Start a first spare, if allowed and not done before: it boots while the caller prepares.

        Call it before `acquire`, which reports failures; this does not. It may block: call it from no event loop.
        """
        if not self._is_closed:
            self.supply.start_first_spare()

    async def start_in_thread(self) -> None:
        """Do what `start` does, in a thread. Afterwards the engine's version is known too, if there is an engine."""
        if not self._is_closed:
            await self.supply.start_spare_and_find_engine_in_thread()

    async def run_in_start_thread(self, function: Callable[[], ResultT]) -> ResultT:
        """Do something that may take a while in the thread that starts workers."""
        return await self.supply.run_in_start_thread(function)

    async def acquire(
        self, memory_limit_bytes: int, on_saturation: str | None = None, start_timeout_ms: int = 1500
    ) -> PooledWorkerLease:
        """Take a slot and a ready worker. ``on_saturation`` None is the pool's own.

        Workers that are killed while they start are replaced for ``start_timeout_ms``.

        Raises `CodeModeConcurrencyError` when full (or still full after ``wait_timeout_ms``), `CodeModeWorkerError`
        when no worker starts.
        """
        request = WorkerRequest(
            memory_limit_bytes, on_saturation or self.options.on_saturation, compute_nesting_depth()
        )
        slot_queues, supply = await self.acquire_slots(request, self.options.wait_timeout_ms), self.supply
        try:
            worker = await supply.acquire_ready_worker(self.share_path, start_timeout_ms / 1000)
        except BaseException:
            _release_slots(slot_queues)
            raise
        return PooledWorkerLease(supply, slot_queues, worker, self)

    async def acquire_slots(self, request: WorkerRequest, wait_timeout_ms: int | None) -> tuple[SlotQueue, ...]:
        """Take a slot, waiting according to ``request``. Raises `CodeModeConcurrencyError` if none becomes free."""
        slot_queue = self._slot_queue
        if self._revocable_leases.leases and not slot_queue.has_free_slot_and_no_waiters(request.memory_limit_bytes):
            self._revocable_leases.revoke_oldest()
        if request.on_saturation == "wait":
            await slot_queue.acquire(request.memory_limit_bytes, wait_timeout_ms, request.nesting_depth)
        elif not slot_queue.try_acquire(request.memory_limit_bytes, request.nesting_depth):
            raise slot_queue.create_busy_error(request.memory_limit_bytes, depth=request.nesting_depth)
        return (slot_queue,)

    def try_add_revocable_lease(self, lease: PooledWorkerLease) -> bool:
        """Record the lease of a paused program: it is given up when a run needs its slot, the oldest first.

        False, without a record, when a run waits for a slot now or no other slot is free.
        """
        if not self._slot_queue.has_free_slot_and_no_waiters(DEFAULT_MEMORY_LIMIT_BYTES):
            return False
        self._revocable_leases.add(lease)
        return True

    def remove_revocable_lease(self, lease: PooledWorkerLease) -> None:
        """Forget a lease that is in use again, or given back."""
        self._revocable_leases.remove(lease)

    def close(self) -> None:
        """Kill spares and zygote, and with the zygote every worker. The pool cannot be used afterwards.

        Waits until they are dead, for milliseconds; `aclose` does so off the event loop.
        """
        self._is_closed = True
        self.threads.end_threads_when_idle()
        self._supply.close()

    async def aclose(self) -> None:
        """Do what `close` does, in a thread."""
        await run_in_single_use_thread(self.close)

    def reset_after_fork(self) -> None:
        """In a forked child of the host: start afresh, touching no process of the parent's."""
        self._finalizer.detach()
        self._supply.close_descriptors()
        self._reset()

    def _reset(self) -> None:
        self._reset_except_supply()
        slot_queue = self._slot_queue
        self._supply = WorkerSupply(self.options, lambda: slot_queue.active <= 1, self._make_source)
        self._finalizer = register_pool_finalizer(self, self._supply)

    def _reset_except_supply(self) -> None:
        self._lock = create_fork_safe_lock()
        scope_text = f" of the share {self.share_path[-1]!r}" if self.share_path else ""
        self._slot_queue = SlotQueue(partial(_compute_max_workers, self.options, AvailableMemoryReader()), scope_text)
        self._revocable_leases = RevocableLeases()
        self._is_closed = False
        self.threads = HostThreads()

    def _count_spares(self) -> int:
        return len(self._supply.inventory.spares)


class PoolShare(WorkerPool):
    """A pool with slots and a queue of its own over the supply of its parent. See `WorkerPool.share`."""

    def __init__(self, parent: WorkerPool, name: str, max_workers: int) -> None:
        self._parent = parent
        self.share_path = (*parent.share_path, name)
        super().__init__(replace(parent.options, max_workers=max_workers))

    @property
    def is_closed(self) -> bool:
        """True once nothing more can be run: the share was closed, or the whole pool."""
        return self._is_closed or self._parent.is_closed

    @property
    def supply(self) -> WorkerSupply:
        """The source of the whole pool's workers."""
        return self._parent.supply

    async def acquire_slots(self, request: WorkerRequest, wait_timeout_ms: int | None) -> tuple[SlotQueue, ...]:
        """Take a slot of the share and then one of the whole pool, both within ``wait_timeout_ms``."""
        started = time.monotonic()
        if self._is_closed:
            raise CodeModeWorkerError(f"the share {self.share_path[-1]!r} of the worker pool is closed")
        slot_queues = await super().acquire_slots(request, wait_timeout_ms)
        try:
            if wait_timeout_ms is not None:
                wait_timeout_ms = max(1, wait_timeout_ms - int((time.monotonic() - started) * 1000))
            return (*slot_queues, *await self._parent.acquire_slots(request, wait_timeout_ms))
        except BaseException:
            _release_slots(slot_queues)
            raise

    def try_add_revocable_lease(self, lease: PooledWorkerLease) -> bool:
        """Record it in the share and in the whole pool."""
        if not self._parent.try_add_revocable_lease(lease):
            return False
        is_revocable = super().try_add_revocable_lease(lease)
        if not is_revocable:
            self._parent.remove_revocable_lease(lease)
        return is_revocable

    def remove_revocable_lease(self, lease: PooledWorkerLease) -> None:
        """Remove its record from the share and from the whole pool."""
        super().remove_revocable_lease(lease)
        self._parent.remove_revocable_lease(lease)

    def close(self) -> None:
        """Close this share and its parts, with the workers that were kept for them: the others are the whole pool's."""
        self._is_closed = True
        self.threads.end_threads_when_idle()
        self.supply.close_idle_workers(self.share_path)

    def reset_after_fork(self) -> None:
        """Reset in a forked child of the host. The whole pool forgets its workers itself."""
        self._reset_except_supply()

    def _reset(self) -> None:
        self._reset_except_supply()

    def _count_spares(self) -> int:
        return 0  # they are the whole pool's


def _compute_max_workers(
    options: PoolOptions, available_memory: AvailableMemoryReader, active: int, memory_limit_bytes: int
) -> int:
    fixed_limit = options.max_workers or _default_max_workers
    if fixed_limit or not active:
        return fixed_limit or 1  # there is always one: no need to read how much memory there is
    return compute_worker_limit(active, memory_limit_bytes, available_memory())


def _release_slots(slot_queues: tuple[SlotQueue, ...]) -> None:
    for slot_queue in reversed(slot_queues):
        slot_queue.release()


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
_default_lock = create_fork_safe_lock()
_default_pool: WorkerPool | None = None
_default_max_workers: int | None = None


def get_or_create_default_pool() -> WorkerPool:
    """Return the process-wide pool, made when first asked for."""
    global _default_pool  # noqa: PLW0603 - one pool for the process
    with _default_lock:
        if _default_pool is None:
            _default_pool = WorkerPool()
        return _default_pool


def set_max_workers(count: int | None) -> None:
    """Cap the workers of every pool without a cap of its own; None restores the memory-based limit.

    Raises `ValueError` for anything but a positive integer or None.
    """
    global _default_max_workers  # noqa: PLW0603 - a process-wide setting
    _default_max_workers = PoolOptions(max_workers=count).max_workers


def _close_all_pools() -> None:
    for pool in list(_POOLS):
        pool.close()


def _reset_all_pools_after_fork() -> None:
    for pool in list(_POOLS):
        pool.reset_after_fork()


atexit.register(_close_all_pools)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all_pools_after_fork)


def get_pool_or_default(pool: object) -> WorkerPool:
    """Return the pool that was given, the process-wide one for None. Raises `ValueError` for what is no pool."""
    if isinstance(pool, WorkerPool):
        return pool
    if pool is None:
        return _default_pool or get_or_create_default_pool()
    hint = ": make one of them, WorkerPool(options)" if isinstance(pool, PoolOptions | Mapping) else ""
    raise WrongTypeError(f"pool must be a WorkerPool or None, got {pool!r}{hint}")


def require_open_pool(pool: object) -> None:
    """Raise `ValueError` for a closed pool and for other objects: they can run nothing."""
    if pool is None or not get_pool_or_default(pool).is_closed:
        return
    raise ValueError(
        "pool is closed: pass an open one, such as WorkerPool(options) or a share of one, and close it after"
        " everything made with it has ended"
    )
