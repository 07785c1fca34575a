"""Generations of worker sources, each used a number of times, and reuse of their workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..errors import CodeModeWorkerError
from ..host.forks import forkable_lock
from .image import WorkerImage
from .process import WorkerProcess, spawn_exec
from .zygote import Zygote

if TYPE_CHECKING:
    from .process import MemoryInUse


# Everything here is the host's own count and measure. What a worker says of itself decides nothing but whether it is
# ready: one that an escaped program holds is only ever seen by later programs of the same share.

Share: TypeAlias = tuple[str, ...]
"""The name of a share behind those of the shares that it is a part of; none: the pool itself."""

# Processor time counts up to the worker's limit (an hour) over all its programs, and no program takes more than this.
_MOST_SECONDS = 600.0
# Engines that were used stay in memory: what a worker may have that was forked, or has made its engines itself.
_MOST_BYTES = 96 << 20
_ENGINE_BYTES = 1 << 20
# What programs were given counts for the limit of their process even untouched: the next may have the largest heap.
_MOST_ADDRESS_BYTES = 192 << 20


class Tenure:
    """The programs of one worker. ``share`` is the only one that it serves."""

    def __init__(self, share: Share, most: int) -> None:
        self.share = share
        self.programs = 0
        self.said = b""  # the one frame that it has sent since its last program
        self._most = most
        self._seconds = 0.0
        self._begun_at = time.monotonic()

    def begin(self) -> bool:
        """Let it have another program; False: it has not said that it has a fresh engine for that."""
        said, self.said = self.said, b""
        self._begun_at = time.monotonic()
        return said == b"N%d" % self.programs

    def end(self, said: bytes, memory: MemoryInUse | None) -> bool:
        """Take note that its program has ended well; True: it may have another one.

        ``said`` is what it has sent since; ``memory`` that of its process, None where nothing tells.
        """
        self.said = said
        self.programs += 1
        self._seconds += time.monotonic() - self._begun_at
        if self.programs >= self._most or self._seconds > _MOST_SECONDS:
            return False
        if memory is None or memory.addresses > _MOST_ADDRESS_BYTES:
            return False
        return memory.resident <= _MOST_BYTES + self._most * _ENGINE_BYTES


_HELLO_SECONDS = 5.0
# A zygote that has given a worker before forks the next within milliseconds, unless something stopped it.
_FORKED_HELLO_SECONDS = 1.0
# All workers of one zygote share its memory layout and hash seed.
_WORKERS_PER_SOURCE = 10_000
_MAX_ENDED_IN_A_ROW = 2


class WorkerSource(Protocol):
    """Where workers come from: a zygote, or this interpreter started anew each time."""

    def spawn(self, *, rehearsed: bool) -> WorkerProcess:
        """Return a worker that is starting; ``rehearsed``: there is time to prepare it."""
        ...

    def spawns_at_once(self) -> bool:
        """True when `spawn` would wait for nothing."""
        ...

    def is_alive(self) -> bool:
        """False when it can give no more workers. Waits for nothing."""
        ...

    def ends_at_once(self) -> bool:
        """True when `kill` would wait for nothing."""
        ...

    def failure(self) -> str:
        """Why it can give none, as far as it said so itself; else an empty string."""
        ...

    def kill(self) -> None:
        """Stop, with every worker it has made that is still there."""
        ...

    def abandon(self) -> None:
        """In a forked child of the host: give up descriptors, touch no process."""
        ...


class ExecSource:
    """Starts each worker with exec: slower to be ready, works on every platform."""

    def __init__(self, image: WorkerImage, *, isolation_required: bool, programs_per_worker: int = 1) -> None:
        self._image = image
        self._isolation_required = isolation_required
        self._programs_per_worker = programs_per_worker

    def spawn(self, *, rehearsed: bool) -> WorkerProcess:  # noqa: ARG002 - what exec costs dwarfs it: always rehearsed
        """Return a worker that is starting."""
        return spawn_exec(
            self._image,
            isolation_required=self._isolation_required,
            programs_per_worker=self._programs_per_worker,
        )

    def spawns_at_once(self) -> bool:
        """Return False: the new process must have got as far as its program."""
        return False

    def is_alive(self) -> bool:
        """Return True: there is nothing that could die."""
        return True

    def ends_at_once(self) -> bool:
        """Return True: `kill` does nothing."""
        return True

    def failure(self) -> str:
        """Return nothing: each worker speaks for itself."""
        return ""

    def kill(self) -> None:
        """Do nothing: every worker has its own handle."""

    def abandon(self) -> None:
        """Do nothing, as above."""


class Generation:
    """The workers of one source. Once retired it gives no more, and ends when the last of its workers has."""

    def __init__(self, source: WorkerSource) -> None:
        self.source = source
        self.hello_seconds = _HELLO_SECONDS
        """How long a worker may take to be ready."""
        self.has_started = False
        self.has_ended = False
        self._spawned = 0
        self.ended_in_a_row = 0
        self._open = 0
        self._retired = False
        self._lock = forkable_lock()

    def spawn(self, *, rehearsed: bool) -> PooledWorker:
        """Return a worker that is starting. Raises `CodeModeWorkerError` when the source has ended."""
        with self._lock:
            if self._retired:
                raise CodeModeWorkerError("the source of workers has been replaced")
            self._spawned += 1
            self._open += 1
        try:
            process = self.source.spawn(rehearsed=rehearsed)
        except BaseException:
            self._leave()
            raise
        process.channel.setblocking(False)
        return PooledWorker(process, self)

    def started(self) -> None:
        """Take note of a worker that has become ready."""
        if not self.has_started:
            self.has_started = True
            if isinstance(self.source, Zygote) and self.source.is_quick:
                self.hello_seconds = _FORKED_HELLO_SECONDS
        self.ended_in_a_row = 0

    def may_lose_one(self) -> bool:
        """Count a worker that ended before it was ready; False where these are too many for a source that works."""
        self.ended_in_a_row += 1
        return self.source.is_alive() and self.ended_in_a_row <= _MAX_ENDED_IN_A_ROW

    def retire(self) -> bool:
        """Give no more workers; True when there are none left that would end the source with them."""
        with self._lock:
            self._retired = True
            return not self._open

    def end(self) -> None:
        """End the source, and with it what it has made; waits for it."""
        self.source.kill()
        self.has_ended = True

    def close(self, process: WorkerProcess) -> None:
        """Close one worker; the last one of a retired generation takes the source with it."""
        process.close()
        if self._leave():
            self.end()

    def closes_one_at_once(self) -> bool:
        """False when closing one more worker ends the source, and one would have to wait for that."""
        return not (self._retired and self._open <= 1) or self.source.ends_at_once()

    def _leave(self) -> bool:
        with self._lock:
            self._open -= 1
            return self._retired and not self._open

    @property
    def is_usable(self) -> bool:
        """False when the next worker has to come from another source."""
        return not self._retired and self._spawned < _WORKERS_PER_SOURCE and self.source.is_alive()


class PooledWorker:
    """A worker process and the generation it belongs to."""

    def __init__(self, process: WorkerProcess, generation: Generation) -> None:
        self.process = process
        self.generation = generation
        self.tenure: Tenure | None = None  # of one that may run more than one program
        self._closing = forkable_lock()
        self._is_closed = False

    def closes_at_once(self) -> bool:
        """True when `close` would wait for nothing."""
        return self.process.closes_at_once() and self.generation.closes_one_at_once()

    def close(self) -> None:
        """Kill it and wait for its end. Safe to call twice, from several threads."""
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self.generation.close(self.process)
