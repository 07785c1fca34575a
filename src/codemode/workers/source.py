"""Where a pool's workers come from: sources, and how long each source is used. Knows nothing of slots or spares."""

from __future__ import annotations

from typing import Protocol

from .image import WorkerImage
from .process import WorkerProcess, spawn_exec
from .zygote import Zygote

_HELLO_SECONDS = 5.0
# A zygote that has given a worker before forks the next within milliseconds, unless something stopped it.
_FORKED_HELLO_SECONDS = 1.0
# All workers of one zygote share its memory layout and hash seed.
_WORKERS_PER_SOURCE = 10_000


class WorkerSource(Protocol):
    """Where workers come from: a zygote, or this interpreter started anew each time."""

    def spawn(self, *, rehearsed: bool) -> WorkerProcess:
        """Return a worker that is starting; ``rehearsed``: there is time to prepare it."""
        ...

    def is_alive(self) -> bool:
        """False when it can give no more workers."""
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

    def __init__(self, image: WorkerImage, *, isolation_required: bool) -> None:
        self._image = image
        self._isolation_required = isolation_required

    def spawn(self, *, rehearsed: bool) -> WorkerProcess:  # noqa: ARG002 - what exec costs dwarfs it: always rehearsed
        """Return a worker that is starting."""
        return spawn_exec(self._image, isolation_required=self._isolation_required)

    def is_alive(self) -> bool:
        """Return True: there is nothing that could die."""
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
        self.spawned = 0
        self.open = 0
        self.retired = False
        self.has_started = False

    def spawn(self, *, rehearsed: bool) -> PooledWorker:
        """Return a worker that is starting. Raises `CodeModeWorkerError` when the source has ended."""
        process = self.source.spawn(rehearsed=rehearsed)
        process.channel.setblocking(False)
        self.spawned += 1
        self.open += 1
        return PooledWorker(process, self)

    def retire(self) -> None:
        """Give no more workers; end the source now, or with the last of its workers."""
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
        """False when the next worker has to come from another source."""
        return not self.retired and self.spawned < _WORKERS_PER_SOURCE and self.source.is_alive()


class PooledWorker:
    """A worker process and the generation it belongs to."""

    def __init__(self, process: WorkerProcess, generation: Generation) -> None:
        self.process = process
        self.generation = generation

    def close(self) -> None:
        """Kill it; the last one of a retired generation takes the source with it. Called once."""
        self.process.close()
        self.generation.open -= 1
        if self.generation.retired:
            self.generation.retire()
