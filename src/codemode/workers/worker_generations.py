"""Worker sources, each retired after a number of workers, and reused workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..errors import CodeModeWorkerError
from ..host.forks import create_fork_safe_lock
from .image import WorkerImage
from .process import WorkerProcess, spawn_worker_process
from .zygote import Zygote

if TYPE_CHECKING:
    from .process import MemoryUsage


# All counts and measurements are the host's own. A worker's own report decides only whether it is ready, so a
# compromised worker can serve only later programs of its share.

SharePath: TypeAlias = tuple[str, ...]
"""The path of a share: the names of its ancestors, then its own. Empty for the pool itself."""

# The limit on processor time (an hour) covers all programs of a worker, so their total run time is bounded.
_MAX_REUSE_SECONDS = 600.0
# Used engines stay in memory. This is the limit for any worker, forked or started with exec.
_MAX_RESIDENT_BYTES = 96 << 20
_BYTES_PER_ENGINE = 1 << 20
# Granted memory counts even when unused: leave room for a next program with the largest heap.
_MAX_ADDRESS_SPACE_BYTES = 192 << 20


class WorkerReuseState:
    """The programs of one worker. ``share`` is the only one that it serves."""

    def __init__(self, share: SharePath, max_programs: int) -> None:
        self.share = share
        self.program_count = 0
        self.frame = b""  # the one frame that it has sent since its last program
        self._max_programs = max_programs
        self._seconds = 0.0
        self._program_started_at = time.monotonic()

    def try_begin_program(self) -> bool:
        """Prepare the worker for another program; False if it has not reported a fresh engine."""
        frame, self.frame = self.frame, b""
        self._program_started_at = time.monotonic()
        return frame == b"N%d" % self.program_count

    def record_program_end_and_check_reusable(self, frame: bytes, memory: MemoryUsage | None) -> bool:
        """Record a successful program, and return whether the worker may run another one.

        ``frame`` is what it has sent since; ``memory`` that of its process, None if the platform cannot report it.
        """
        self.frame = frame
        self.program_count += 1
        self._seconds += time.monotonic() - self._program_started_at
        if self.program_count >= self._max_programs or self._seconds > _MAX_REUSE_SECONDS:
            return False
        if memory is None or memory.address_space_bytes > _MAX_ADDRESS_SPACE_BYTES:
            return False
        return memory.resident_bytes <= _MAX_RESIDENT_BYTES + self._max_programs * _BYTES_PER_ENGINE


_HELLO_SECONDS = 5.0
# A zygote that has forked a worker before forks the next within milliseconds, unless something stopped it.
_FORKED_HELLO_SECONDS = 1.0
# All workers of one zygote share its memory layout and hash seed.
_MAX_WORKERS_PER_SOURCE = 10_000
_MAX_EARLY_EXITS_IN_A_ROW = 2


class WorkerSource(Protocol):
    """The source of workers: a zygote, or a new interpreter for each."""

    def spawn(self, *, warm_up: bool) -> WorkerProcess:
        """Return a worker that is starting; ``warm_up``: there is time to prepare it."""
        ...

    def can_spawn_immediately(self) -> bool:
        """Return whether `spawn` returns without waiting."""
        ...

    def is_alive(self) -> bool:
        """Return whether it can spawn workers. Does not wait."""
        ...

    def can_kill_immediately(self) -> bool:
        """Return whether `kill` returns without waiting."""
        ...

    def describe_failure(self) -> str:
        """Return the reported reason why it cannot spawn workers, or an empty string."""
        ...

    def kill(self) -> None:
        """Stop the source and its remaining workers."""
        ...

    def close_descriptors(self) -> None:
        """In a forked child of the host: give up descriptors, touch no process."""
        ...


class ExecWorkerSource:
    """Starts each worker with exec: slower to be ready, works on every platform."""

    def __init__(self, image: WorkerImage, *, isolation_required: bool, programs_per_worker: int = 1) -> None:
        self._image = image
        self._isolation_required = isolation_required
        self._programs_per_worker = programs_per_worker

    def spawn(self, *, warm_up: bool) -> WorkerProcess:  # noqa: ARG002 - exec costs far more: always warmed up
        """Return a worker that is starting."""
        return spawn_worker_process(
            self._image,
            isolation_required=self._isolation_required,
            programs_per_worker=self._programs_per_worker,
        )

    def can_spawn_immediately(self) -> bool:
        """Return False: spawning waits until the new process has called exec."""
        return False

    def is_alive(self) -> bool:
        """Return True: this source has no process of its own."""
        return True

    def can_kill_immediately(self) -> bool:
        """Return True: `kill` does nothing."""
        return True

    def describe_failure(self) -> str:
        """Return an empty string: workers report their own failures."""
        return ""

    def kill(self) -> None:
        """Do nothing: every worker has its own handle."""

    def close_descriptors(self) -> None:
        """Do nothing, as above."""


class RetirableWorkerSource:
    """One source and the number of its workers. A retired source spawns no workers, and ends with its last one."""

    def __init__(self, source: WorkerSource) -> None:
        self.source = source
        self.hello_seconds = _HELLO_SECONDS
        """How long a worker may take to be ready."""
        self.has_started = False
        self.has_ended = False
        self._spawned_count = 0
        self.early_exits_in_a_row = 0
        self._open_count = 0
        self._is_retired = False
        self._lock = create_fork_safe_lock()

    def spawn(self, *, warm_up: bool) -> PooledWorker:
        """Return a worker that is starting. Raises `CodeModeWorkerError` when the source has ended."""
        with self._lock:
            if self._is_retired:
                raise CodeModeWorkerError("the source of workers has been replaced")
            self._spawned_count += 1
            self._open_count += 1
        try:
            process = self.source.spawn(warm_up=warm_up)
        except BaseException:
            self.record_closed_worker_and_check_if_last()
            raise
        process.channel.setblocking(False)
        return PooledWorker(process, self)

    def record_worker_ready(self) -> None:
        """Record that a worker has become ready."""
        if not self.has_started:
            self.has_started = True
            if isinstance(self.source, Zygote) and self.source.forks_quickly:
                self.hello_seconds = _FORKED_HELLO_SECONDS
        self.early_exits_in_a_row = 0

    def record_early_exit_and_check_source(self) -> bool:
        """Count a worker that ended before it was ready; return False if the source seems broken."""
        self.early_exits_in_a_row += 1
        return self.source.is_alive() and self.early_exits_in_a_row <= _MAX_EARLY_EXITS_IN_A_ROW

    def retire(self) -> bool:
        """Stop spawning workers; return whether none is open, so that the caller must end the source."""
        with self._lock:
            self._is_retired = True
            return not self._open_count

    def kill_source(self) -> None:
        """Kill the source and its workers, and wait for them."""
        self.source.kill()
        self.has_ended = True

    def can_close_worker_immediately(self) -> bool:
        """Return False if closing one more worker ends the source, and the caller would have to wait for that."""
        return not (self._is_retired and self._open_count <= 1) or self.source.can_kill_immediately()

    def record_closed_worker_and_check_if_last(self) -> bool:
        """Count a closed worker; return True for the last one of a retired source, which must then be killed."""
        with self._lock:
            self._open_count -= 1
            return self._is_retired and not self._open_count

    @property
    def is_usable(self) -> bool:
        """False when the next worker has to come from another source."""
        return not self._is_retired and self._spawned_count < _MAX_WORKERS_PER_SOURCE and self.source.is_alive()


class PooledWorker:
    """A worker process and the source it comes from."""

    def __init__(self, process: WorkerProcess, generation: RetirableWorkerSource) -> None:
        self.process = process
        self.retirable_source = generation
        self.reuse: WorkerReuseState | None = None  # of one that may run more than one program
        self._close_lock = create_fork_safe_lock()
        self._is_closed = False

    def can_close_immediately(self) -> bool:
        """True when `close` would wait for nothing."""
        return self.process.can_close_immediately() and self.retirable_source.can_close_worker_immediately()

    def close(self) -> None:
        """Kill it and wait for its end. Safe to call twice, from several threads."""
        with self._close_lock:
            if not self._is_closed:
                self._is_closed = True
                self.process.close()
                if self.retirable_source.record_closed_worker_and_check_if_last():
                    self.retirable_source.kill_source()
