"""Workers for tests: threads of this process that send the frames of a script.

They run no program and confine nothing; they show how the host handles a worker that breaks the rules.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

from ..protocol.framing import FrameDecoder, encode_frame
from ..protocol.messages import decode_host_message
from ..workers.image import GUEST_RUNTIME, WorkerImage
from ..workers.process import MemoryUsage, WorkerProcess

_MAX_READ_BYTES = 1 << 16
_MAX_FRAME_BYTES = 1 << 28
_THREAD_END_SECONDS = 5.0


class HostGoneError(Exception):
    """The host has killed this worker or closed its end. A script need not catch it."""


class FakeWorker:
    """One worker as its script sees it. Every method raises `HostGoneError` once the host has gone."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._decoder = FrameDecoder(_MAX_FRAME_BYTES)
        self._frames: list[bytes] = []
        self.killed = threading.Event()

    def send_hello(self, **changes: Any) -> None:
        """Send the hello that a host expects, with these keys replaced."""
        image = WorkerImage.from_installed(GUEST_RUNTIME)
        hello: dict[str, Any] = {
            "engine": image.engine_version,
            "kernel": GUEST_RUNTIME.compute_sha256(),
            "isolation": {},
        }
        self.send_frame(b"H", {**hello, **changes})

    def send_frame(self, kind: bytes, body: Any) -> None:
        """Send one frame with ``body`` as JSON."""
        self.send_bytes(encode_frame(kind, json.dumps(body).encode()))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are, whether they are frames or not."""
        try:
            self._channel.sendall(data)
        except OSError as error:
            raise HostGoneError from error

    def receive_message(self) -> tuple[bytes, Any]:
        """Wait for the host's next message and return its kind and what it says."""
        while not self._frames:
            try:
                data = self._channel.recv(_MAX_READ_BYTES)
            except OSError as error:
                raise HostGoneError from error
            if not data:
                raise HostGoneError
            self._frames = self._decoder.feed(data)
        return decode_host_message(self._frames.pop(0))

    def wait_silently(self, seconds: float | None = None) -> None:
        """Say nothing for a time, or until the host kills this worker."""
        if self.killed.wait(seconds):
            raise HostGoneError

    def close_channel(self) -> None:
        """Close this worker's end, as a process that ends does."""
        self._channel.close()


Script: TypeAlias = Callable[[FakeWorker], None]


class FakeWorkerSource:
    """A source of workers for `WorkerPool(source=...)`: each of them runs ``script`` in a thread of its own.

    The worker ends when its script returns. An exception of a script, except `HostGoneError`, surfaces in its thread.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._processes: list[_FakeProcess] = []

    @property
    def living_count(self) -> int:
        """How many of its workers have not ended."""
        return sum(not process.wait_until_dead(0) for process in self._processes)

    def spawn(self, *, warm_up: bool = True) -> WorkerProcess:  # noqa: ARG002 - as `WorkerSource` has it
        """Return a worker that is starting."""
        host_end, worker_end = socket.socketpair()
        process = _FakeProcess(worker_end, self._script)
        self._processes.append(process)
        return WorkerProcess(host_end, process)

    def can_spawn_immediately(self) -> bool:
        """Return True: starting a thread takes little time."""
        return True

    def is_alive(self) -> bool:
        """Return True: threads of this process do not die."""
        return True

    def can_kill_immediately(self) -> bool:
        """Return True: scripts that are cut off end at once."""
        return True

    def describe_failure(self) -> str:
        """Return nothing: a script says itself what is wrong."""
        return ""

    def kill(self) -> None:
        """End every worker it has made."""
        for process in self._processes:
            process.kill()

    def close_descriptors(self) -> None:
        """Do nothing: threads do not come along into a forked child."""


class _FakeProcess:
    """The thread of one worker, ended as a process would be."""

    def __init__(self, channel: socket.socket, script: Script) -> None:
        self._channel = channel
        self._script = script
        self._worker = FakeWorker(channel)
        self._thread = threading.Thread(target=self._run_script, name="codemode-fake-worker", daemon=True)
        self._thread.start()

    def _run_script(self) -> None:
        with self._channel, suppress(HostGoneError):
            self._script(self._worker)

    def kill(self) -> None:
        """Cut its channel, which wakes a script that reads, writes or pauses."""
        self._worker.killed.set()
        with suppress(OSError):  # It has ended, or the host's end is closed.
            self._channel.shutdown(socket.SHUT_RDWR)

    def can_close_immediately(self) -> bool:
        """Return True: a script that is cut off ends at once."""
        return True

    def wait_until_dead(self, timeout_ms: int) -> bool:
        """True once its script has ended."""
        self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

    def describe_abnormal_exit(self) -> str:
        """Return nothing: a thread ends by itself."""
        return ""

    def read_memory(self) -> MemoryUsage:
        """Return 0: it has no memory of its own."""
        return MemoryUsage(0, 0)

    def close(self) -> None:
        """Wait for the thread, for a bounded time."""
        self._thread.join(_THREAD_END_SECONDS)

    def close_descriptors(self) -> None:
        """Do nothing: the thread is the parent's."""
