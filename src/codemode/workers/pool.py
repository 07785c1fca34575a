"""Workers for invocations: who may have one, spares that are ready before they are needed, a zygote to fork them.

Safe to use from several threads and event loops. Knows nothing of programs or tools.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..errors import CodeModeError, CodeModeWorkerError
from ..host_threads import HostThreads, off_loop
from ..option_checks import WrongTypeError, text_or_none
from ..options import PoolOptions
from . import nesting
from .admission import Admission, AvailableMemory, memory_based_limit
from .hello import HelloCheck, read_hello
from .image import WorkerImage, engine_version, engine_version_is_known
from .kernel import KERNEL
from .lease import Lease
from .source import ExecSource, PooledWorker, WorkerSource
from .stock import Stock
from .zygote import Zygote

if TYPE_CHECKING:
    from .isolation import IsolationReport

_START_ATTEMPTS = 2
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What an invocation asks of a pool. ``depth``: how many invocations with a slot wait for it."""

    memory_limit_bytes: int
    on_saturation: str
    depth: int


class WorkerPool:
    """Workers of one kind. Processes start with the first invocation; `close`, or leaving a ``with``, ends them."""

    def __init__(
        self,
        options: PoolOptions | Mapping[str, Any] | None = None,
        *,
        source: Callable[[], WorkerSource] | None = None,
    ) -> None:
        self.options = PoolOptions.of(options)
        self._make_source = source or self._installed_source
        self._available_memory = AvailableMemory()
        self._hello: HelloCheck | None = None
        # A share that nobody holds has no invocation either, and is made anew when it is next asked for.
        self._shares: weakref.WeakValueDictionary[str, PoolShare] = weakref.WeakValueDictionary()
        self._reset()
        _POOLS.add(self)

    def __repr__(self) -> str:
        return f"<WorkerPool {self._admission.active} active, {len(self._spares)} spare>"

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
    def isolation(self) -> IsolationReport | None:
        """What confines the workers; None before the first one is ready."""
        return self._hello.report if self._hello is not None else None

    def share(self, name: str, *, max_workers: int) -> WorkerPool:
        """Return the part of this pool that one tenant may use, for wherever a pool is taken.

        At most ``max_workers`` invocations of the share have a slot of the pool or stand in its queue; the others
        queue in the share, or are refused, as ``on_saturation`` says. Shares that add up to no more than the pool's
        ``max_workers`` never wait for one another. The workers are the pool's own: a tenant that is to have a zygote
        of its own gets a `WorkerPool` of its own. Closing a share closes that share alone.
        Raises `ValueError` when the share is in use with another ``max_workers``.
        """
        if text_or_none(name, "name") is None:
            raise ValueError("name must be a non-empty string, got None")
        with self._lock:
            known = self._shares.get(name)
            if known is None:
                known = self._shares[name] = PoolShare(self, max_workers)
            elif known.options.max_workers != max_workers:
                raise ValueError(f"share {name!r} has max_workers={known.options.max_workers}, not {max_workers}")
            return known

    @property
    def has_begun(self) -> bool:
        """False when `start` would start something."""
        return self._stock.has_begun

    def start(self) -> None:
        """Start a first spare, where there may be any, unless there was one before: it boots while the caller prepares.

        For the moment before an `acquire`, which tells of failures: this does not. It may take a while: no loop waits.
        """
        self._stock.start()

    async def begin(self) -> None:
        """Do what `start` does, in a thread. Afterwards the engine's version is known too, if there is an engine."""
        if not (self.has_begun and engine_version_is_known()):
            await self.off_loop(self._begin)

    def _begin(self) -> None:
        self.start()
        with suppress(CodeModeWorkerError):
            engine_version()

    async def off_loop(self, work: Callable[[], ResultT]) -> ResultT:
        """Do something that may take a while in the thread that starts workers."""
        return await self._stock.off_loop(work)

    async def acquire(self, memory_limit_bytes: int, on_saturation: str | None = None) -> Lease:
        """Take a slot and a ready worker. ``on_saturation`` None is the pool's own.

        Raises `CodeModeConcurrencyError` when full (or still full after ``wait_timeout_ms``), `CodeModeWorkerError`
        when no worker starts.
        """
        wanted = _Wanted(memory_limit_bytes, on_saturation or self.options.on_saturation, nesting.depth())
        return await self._acquire(wanted, self.options.wait_timeout_ms)

    async def _acquire(self, wanted: _Wanted, wait_timeout_ms: int | None) -> Lease:
        admission = await self._enter(wanted, wait_timeout_ms)
        try:
            worker = await self._ready_worker()
        except BaseException:
            admission.leave()
            raise
        return Lease(self, admission, worker)

    async def _enter(self, wanted: _Wanted, wait_timeout_ms: int | None) -> Admission:
        admission = self._admission
        if wanted.on_saturation == "wait":
            await admission.enter(wanted.memory_limit_bytes, wait_timeout_ms, wanted.depth)
        elif not admission.try_enter(wanted.memory_limit_bytes, wanted.depth):
            raise admission.refusal(wanted.memory_limit_bytes, depth=wanted.depth)
        return admission

    def close_worker(self, worker: PooledWorker) -> None:
        """Kill a worker that was in use."""
        self._stock.close_worker(worker)

    def give_up(self, worker: PooledWorker) -> None:
        """Let a worker that is done be closed by the next refill, or whatever comes before it."""
        self._stock.give_up(worker)

    def refill(self, wanted: int | None = None) -> None:
        """Start spares until there are as many as wanted, ``spare_workers`` by default and at the most.

        Failures show when a worker is needed. Closes what is done first. Waits for nothing.
        """
        self._stock.refill(self.options.spare_workers if wanted is None else wanted)

    def close(self) -> None:
        """Kill spares and zygote, and with the zygote every worker. The pool cannot be used afterwards.

        Waits until they are dead, for milliseconds; `aclose` does so off the event loop.
        """
        self._stock.close()

    async def aclose(self) -> None:
        """Do what `close` does, in a thread."""
        await off_loop(self.close)

    def forget(self) -> None:
        """In a forked child of the host: start afresh, touching no process of the parent's."""
        self._stock.abandon()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._admission = Admission(self._maximum)
        self.threads = HostThreads()
        self._stock = Stock(self._make_source, self.options.spare_workers, lambda: self._admission.active <= 1)
        self._spares = self._stock.spares

    def _maximum(self, active: int, memory_limit_bytes: int) -> int:
        fixed = self.options.max_workers or _max_workers
        if fixed or not active:
            return fixed or 1  # there is always one: no need to read how much memory there is
        return memory_based_limit(active, memory_limit_bytes, self._available_memory())

    async def _ready_worker(self) -> PooledWorker:
        for attempt in range(_START_ATTEMPTS):
            worker = await self._stock.take()
            try:
                check = await self._prepared_check()
                check.check(*await read_hello(worker.process.channel, worker.generation.hello_seconds))
            except (TimeoutError, OSError, CodeModeError) as error:
                self._stock.did_not_start(worker)
                if attempt + 1 == _START_ATTEMPTS:
                    raise _not_started(error, worker.generation.source.failure()) from error
            except BaseException:
                self.close_worker(worker)
                raise
            else:
                worker.generation.has_started = True
                return worker
        raise AssertionError("unreachable")

    async def _prepared_check(self) -> HelloCheck:
        # The first worker boots meanwhile, and what it will be compared with is in files.
        if self._hello is None or not self._hello.is_prepared:
            await self.off_loop(lambda: self._hello_check().prepare())
        return self._hello_check()

    def _hello_check(self, image: WorkerImage | None = None) -> HelloCheck:
        if self._hello is None:
            self._hello = HelloCheck(image or self._image(), isolation_required=self.options.isolation == "required")
        return self._hello

    def _installed_source(self) -> WorkerSource:
        image = self._image()
        self._hello_check(image)
        make = Zygote if self._forks() else ExecSource
        return make(image, isolation_required=self.options.isolation == "required")

    def _image(self) -> WorkerImage:
        try:
            return WorkerImage.installed(KERNEL, self.options.worker_command or ())
        except OSError as error:
            raise CodeModeWorkerError(f"the files of a worker cannot be read: {error}") from error

    def _forks(self) -> bool:
        method = self.options.start_method
        if method == "fork" and sys.platform != "linux":
            raise CodeModeWorkerError("start_method 'fork' needs Linux; use 'auto' or 'exec'")
        return method != "exec" and sys.platform == "linux"


class PoolShare(WorkerPool):
    """A pool with slots and a queue of its own, whose workers are those of the ``whole``. See `WorkerPool.share`."""

    def __init__(self, whole: WorkerPool, max_workers: int) -> None:
        super().__init__(replace(whole.options, max_workers=max_workers, spare_workers=0))
        self._whole = whole

    @property
    def isolation(self) -> IsolationReport | None:
        """What confines the workers of the whole pool; None before the first one is ready."""
        return self._whole.isolation

    @property
    def has_begun(self) -> bool:
        """False when `start` would start something."""
        return self._stock.is_closed or self._whole.has_begun

    def start(self) -> None:
        """Start a first spare of the whole pool."""
        if not self._stock.is_closed:
            self._whole.start()

    async def _acquire(self, wanted: _Wanted, wait_timeout_ms: int | None) -> Lease:
        started = time.monotonic()
        if self._stock.is_closed:
            raise CodeModeWorkerError("the worker pool is closed")
        admission = await self._enter(wanted, wait_timeout_ms)
        try:
            if wait_timeout_ms is not None:
                wait_timeout_ms = max(1, wait_timeout_ms - int((time.monotonic() - started) * 1000))
            lease = await self._whole._acquire(wanted, wait_timeout_ms)  # noqa: SLF001 - a part of it
        except BaseException:
            admission.leave()
            raise
        lease.belong_to(self, admission)
        return lease


def _not_started(error: BaseException, reason: str) -> CodeModeError:
    if reason:
        return CodeModeWorkerError(f"no worker started: {reason}")
    if isinstance(error, CodeModeError):
        return error
    if isinstance(error, TimeoutError):
        return CodeModeWorkerError("no worker started in time")
    return CodeModeWorkerError(f"no worker started: {error}")


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
_default_lock = threading.Lock()
_default: WorkerPool | None = None
_max_workers: int | None = None


def default_pool() -> WorkerPool:
    """Return the process-wide pool, made when first asked for."""
    global _default  # noqa: PLW0603 - one pool for the process
    with _default_lock:
        if _default is None:
            _default = WorkerPool()
        return _default


def pool_or_default(pool: object) -> WorkerPool:
    """Return the pool that was given, the process-wide one for None. Raises `ValueError` for what is no pool."""
    if isinstance(pool, WorkerPool):
        return pool
    if pool is None:
        return default_pool()
    hint = ": make one of them, WorkerPool(options)" if isinstance(pool, PoolOptions | Mapping) else ""
    raise WrongTypeError(f"pool must be a WorkerPool or None, got {pool!r}{hint}")


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
    global _default_lock  # noqa: PLW0603 - a thread that is not in the child may hold it
    _default_lock = threading.Lock()
    for pool in list(_POOLS):
        pool.forget()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
