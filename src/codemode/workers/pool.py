"""Workers for invocations: who may have one, spares that are ready before they are needed, a zygote to fork them.

Safe to use from several threads and event loops. Knows nothing of programs or tools.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..errors import CodeModeError, CodeModeWorkerError
from ..options import PoolOptions
from ..protocol.framing import FrameDecoder
from .admission import Admission, AvailableMemory, memory_based_limit
from .hello import HelloCheck
from .image import WorkerImage
from .isolation import IsolationReport
from .kernel import KERNEL
from .process import WorkerProcess, spawn_exec
from .zygote import Zygote

_HELLO_SECONDS = 5.0
# A zygote that has given a worker before forks the next within milliseconds, unless something stopped it.
_FORKED_HELLO_SECONDS = 1.0
_MAX_HELLO_BYTES = 65536
_START_ATTEMPTS = 2
# All workers of one zygote share its memory layout and hash seed.
_WORKERS_PER_ZYGOTE = 10_000


class WorkerSource(Protocol):
    """Where workers come from: a zygote, or this interpreter started anew each time."""

    def spawn(self) -> WorkerProcess:
        """Return a worker that is starting."""
        ...

    def is_alive(self) -> bool:
        """False when it can give no more workers."""
        ...

    def kill(self) -> None:
        """Stop, with every worker it has made that is still there."""
        ...

    def abandon(self) -> None:
        """In a forked child of the host: give up descriptors, touch no process."""
        ...


class ExecSource:
    """Starts each worker with exec: slower to be ready, works on every platform."""

    def __init__(self, image: WorkerImage, *, isolation_required: bool) -> None:
        self._image = image
        self._isolation_required = isolation_required

    def spawn(self) -> WorkerProcess:
        """Return a worker that is starting."""
        return spawn_exec(self._image, isolation_required=self._isolation_required)

    def is_alive(self) -> bool:
        """Return True: there is nothing that could die."""
        return True

    def kill(self) -> None:
        """Do nothing: every worker has its own handle."""

    def abandon(self) -> None:
        """Do nothing, as above."""


class _Generation:
    """The workers of one source. Once retired it gives no more, and ends when the last of its workers has."""

    def __init__(self, source: WorkerSource) -> None:
        self.source = source
        self.spawned = 0
        self.open = 0
        self.retired = False
        self.has_started = False

    def spawn(self) -> _Worker:
        process = self.source.spawn()
        process.channel.setblocking(False)
        self.spawned += 1
        self.open += 1
        return _Worker(process, self)

    def retire(self) -> None:
        self.retired = True
        if self.open == 0:
            self.source.kill()

    @property
    def hello_seconds(self) -> float:
        """How long a worker may take to be ready."""
        is_quick = self.has_started and isinstance(self.source, Zygote)
        return _FORKED_HELLO_SECONDS if is_quick else _HELLO_SECONDS

    @property
    def is_usable(self) -> bool:
        return not self.retired and self.spawned < _WORKERS_PER_ZYGOTE and self.source.is_alive()


class _Worker:
    """A worker process and the generation it belongs to."""

    def __init__(self, process: WorkerProcess, generation: _Generation) -> None:
        self.process = process
        self.generation = generation

    def close(self) -> None:
        """Kill it; the last one of a retired generation takes the source with it. Called once."""
        self.process.close()
        self.generation.open -= 1
        if self.generation.retired and self.generation.open == 0:
            self.generation.source.kill()


class Lease:
    """One worker and one slot for one invocation."""

    def __init__(self, pool: WorkerPool, admission: Admission, memory_limit_bytes: int, worker: _Worker) -> None:
        self._pool = pool
        # The pool's own is a new one in a forked child of the host, where this slot was never taken.
        self._admission = admission
        self._memory_limit_bytes = memory_limit_bytes
        self._worker: _Worker | None = worker
        self._left = False
        self.worker = worker.process

    def refill(self) -> None:
        """Let the pool start the next spare; meant for a moment when nobody waits for it."""
        self._pool.refill()

    def kill(self) -> None:
        """Kill the worker; the slot stays taken. Safe to call twice."""
        worker, self._worker = self._worker, None
        if worker is not None:
            self._pool.close_worker(worker)

    def leave(self) -> None:
        """Kill the worker and give the slot back. Safe to call twice."""
        self.kill()
        if not self._left:
            self._left = True
            self._admission.leave(self._memory_limit_bytes)


class WorkerPool:
    """Workers of one kind. Processes start with the first invocation; `close` ends them."""

    def __init__(
        self,
        options: PoolOptions | Mapping[str, Any] | None = None,
        *,
        source: Callable[[], WorkerSource] | None = None,
    ) -> None:
        self.options = PoolOptions.of(options)
        self._make_source = source or self._installed_source
        self._lock = threading.RLock()
        self._available_memory = AvailableMemory()
        self._hello: HelloCheck | None = None
        self._reset()
        _POOLS.add(self)

    def __repr__(self) -> str:
        return f"<WorkerPool {self._admission.active} active, {len(self._spares)} spare>"

    @property
    def active(self) -> int:
        """How many invocations have a slot now."""
        return self._admission.active

    @property
    def isolation(self) -> IsolationReport | None:
        """What confines the workers; None before the first one is ready."""
        return self._hello.report if self._hello is not None else None

    async def acquire(self, memory_limit_bytes: int) -> Lease:
        """Take a slot and a ready worker.

        Raises `CodeModeConcurrencyError` when full (or still full after ``wait_timeout_ms``), `CodeModeWorkerError`
        when no worker starts.
        """
        admission = self._admission
        if self.options.on_saturation == "wait":
            await admission.enter(memory_limit_bytes, self.options.wait_timeout_ms)
        elif not admission.try_enter(memory_limit_bytes):
            raise admission.refusal(memory_limit_bytes)
        try:
            worker = await self._ready_worker()
        except BaseException:
            admission.leave(memory_limit_bytes)
            raise
        return Lease(self, admission, memory_limit_bytes, worker)

    def close_worker(self, worker: _Worker) -> None:
        """Kill a worker that was in use."""
        with self._lock:
            self._in_use.discard(worker)
            worker.close()

    def refill(self) -> None:
        """Start spares until there are as many as wanted. Failures show when a worker is needed."""
        with self._lock:
            try:
                while not self._closed and len(self._spares) < self.options.spare_workers:
                    self._spares.append(self._spawn())
            except CodeModeWorkerError:
                self._retire_generation()

    def close(self) -> None:
        """Kill spares and zygote, and with the zygote every worker. The pool cannot be used afterwards."""
        with self._lock:
            self._closed = True
            self._retire_generation()
            for generation in self._retired:
                generation.source.kill()

    def forget(self) -> None:
        """In a forked child of the host: start afresh, touching no process of the parent's."""
        self._lock = threading.RLock()
        for worker in (*self._spares, *self._in_use):
            worker.process.abandon()
        for generation in (*self._retired, *([self._generation] if self._generation else ())):
            generation.source.abandon()
        self._reset()

    def _reset(self) -> None:
        self._admission = Admission(self._maximum)
        self._spares: deque[_Worker] = deque()
        self._in_use: set[_Worker] = set()
        self._generation: _Generation | None = None
        self._retired: list[_Generation] = []
        self._closed = False

    def _maximum(self, active: int, memory_limit_bytes: int) -> int:
        fixed = self.options.max_workers or _max_workers
        return fixed or memory_based_limit(active, memory_limit_bytes, self._available_memory())

    async def _ready_worker(self) -> _Worker:
        for attempt in range(_START_ATTEMPTS):
            worker = self._take()
            try:
                await self._await_hello(worker.process, worker.generation.hello_seconds)
            except (TimeoutError, OSError, CodeModeError) as error:
                self._did_not_start(worker)
                if attempt + 1 == _START_ATTEMPTS:
                    raise _not_started(error) from error
            except BaseException:
                self.close_worker(worker)
                raise
            else:
                worker.generation.has_started = True
                return worker
        raise AssertionError("unreachable")

    def _did_not_start(self, worker: _Worker) -> None:
        with self._lock:
            # Neither its sibling spares nor what made them can be trusted to work. Another invocation may
            # have found out before and have replaced them.
            if worker.generation is self._generation:
                self._retire_generation()
            self.close_worker(worker)

    async def _await_hello(self, worker: WorkerProcess, seconds: float) -> None:
        decoder = FrameDecoder(_MAX_HELLO_BYTES)
        try:
            data = worker.channel.recv(_MAX_HELLO_BYTES)
        except BlockingIOError:
            data = b""
            frames = []
        else:
            frames = _frames(decoder, data)
        while not frames:
            receive = asyncio.get_running_loop().sock_recv(worker.channel, _MAX_HELLO_BYTES)
            frames = _frames(decoder, await asyncio.wait_for(receive, seconds))
        if len(frames) != 1 or decoder.has_partial_frame:
            raise CodeModeWorkerError("the worker said more than hello")
        if self._hello is not None:
            self._hello.check(*frames[0])

    def _take(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise CodeModeWorkerError("the worker pool is closed")
            worker = self._living_spare() or self._spawn_in_two_attempts()
            self._in_use.add(worker)
            return worker

    def _living_spare(self) -> _Worker | None:
        if self._generation is not None and not self._generation.source.is_alive():
            # Its spares are about to die with it.
            self._retire_generation()
        while self._spares:
            worker = self._spares.popleft()
            if not worker.process.is_dead():
                return worker
            worker.close()
        return None

    def _spawn_in_two_attempts(self) -> _Worker:
        try:
            return self._spawn()
        except CodeModeWorkerError:
            self._retire_generation()
            return self._spawn()

    def _spawn(self) -> _Worker:
        if self._generation is None or not self._generation.is_usable:
            self._retire_generation()
            self._generation = _Generation(self._make_source())
        return self._generation.spawn()

    def _retire_generation(self) -> None:
        """Give up the spares and take no more from what made them; workers in use go on."""
        while self._spares:
            self._spares.popleft().close()
        generation, self._generation = self._generation, None
        self._retired = [old for old in self._retired if old.open]
        if generation is not None:
            generation.retire()
            self._retired.append(generation)

    def _installed_source(self) -> WorkerSource:
        image = WorkerImage.installed(KERNEL)
        required = self.options.isolation == "required"
        if self._hello is None:
            self._hello = HelloCheck(image, isolation_required=required)
        make = Zygote if self._forks() else ExecSource
        return make(image, isolation_required=required)

    def _forks(self) -> bool:
        method = self.options.start_method
        if method == "fork" and sys.platform != "linux":
            raise CodeModeWorkerError("start_method 'fork' needs Linux; use 'auto' or 'exec'")
        return method != "exec" and sys.platform == "linux"


def _frames(decoder: FrameDecoder, data: bytes) -> list[tuple[bytes, bytes]]:
    if not data:
        raise CodeModeWorkerError("the worker ended before it said hello")
    return decoder.feed(data)


def _not_started(error: BaseException) -> CodeModeError:
    if isinstance(error, CodeModeError):
        return error
    if isinstance(error, TimeoutError):
        return CodeModeWorkerError(f"no worker started within {_HELLO_SECONDS:.0f} s")
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
