"""The host's side of a zygote: starts it, asks it for workers, learns their pidfds, kills it.

Safe to use from several threads. Knows nothing of frames or of how many workers are wanted.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import CodeModeWorkerError
from ..host.forks import forkable_lock, forkable_rlock
from .image import WorkerImage
from .process import (
    REAP_TIMEOUT_MS,
    ChildProcess,
    MemoryInUse,
    ProcessMemory,
    WorkerProcess,
    describe_exit,
    describe_signal,
    is_readable,
    open_channel,
    send_kill,
    start_python,
)

_PACKET = struct.Struct("=cIi")
_REQUEST = struct.Struct("=I?")
_MAX_PACKET_BYTES = 1024
_SEND_TIMEOUT_MS = 1000
# Longer than a busy machine keeps a zygote waiting: with it die the programs of everybody.
_PIDFD_TIMEOUT_MS = 5000
# Several threads may wait for packets, and one takes what another waits for.
_POLL_MS = 50
_PIDFD_GRACE_MS = 100
_ENDING_TIMEOUT_MS = 1000
_MAIN_PATH = str(Path(__file__).parent.parent / "guest" / "zygote_main.py")


class Zygote:
    """One fork server. ``test_hook_path`` and ``skip_layers`` exist for the tests of the lock-down.

    ``test_hook_path``: a Python file whose ``main(channel_fd)`` runs in each locked worker instead of the program.
    ``skip_layers``: isolation layers to treat as refused by the environment.
    """

    def __init__(
        self,
        image: WorkerImage,
        *,
        isolation_required: bool = False,
        skip_layers: Sequence[str] = (),
        test_hook_path: str | None = None,
        programs_per_worker: int = 1,
    ) -> None:
        self._lock = forkable_rlock()  # never held while something is waited for
        self._reaping = forkable_lock()
        self._workers: dict[int, _ForkedLife] = {}
        self._next_sequence = 1
        self._failure = ""
        self.is_quick = programs_per_worker == 1  # else it may be making engines when it is asked for a worker
        self._control, zygote_end = open_channel(socket.SOCK_SEQPACKET)
        try:
            with zygote_end:
                self._process = _start(
                    image,
                    zygote_end.fileno(),
                    isolation_required=isolation_required,
                    skip_layers=list(skip_layers),
                    test_hook_path=test_hook_path,
                    programs_per_worker=programs_per_worker,
                )
        except BaseException:
            self._control.close()
            raise
        self._control.setblocking(False)

    def __repr__(self) -> str:
        return f"<Zygote {'alive' if self.is_alive() else 'dead'}, {len(self._workers)} workers open>"

    def spawn(self, *, rehearsed: bool = True) -> WorkerProcess:
        """Ask for a worker and return its handle at once; its hello comes when it is ready.

        ``rehearsed``: it first runs a small program of its own, which makes the real one start faster.
        Raises `CodeModeWorkerError` when the zygote is dead or takes no requests.
        """
        host_end, worker_end = open_channel()
        with worker_end:
            try:
                life = self._request(worker_end.fileno(), rehearsed=rehearsed)
            except BaseException:
                host_end.close()
                raise
        return WorkerProcess(host_end, life)

    def spawns_at_once(self) -> bool:
        """True when it takes a request now."""
        with self._lock:
            return self._control.fileno() >= 0 and _is_writable(self._control.fileno(), 0)

    def is_alive(self) -> bool:
        """False once the zygote process has ended."""
        with self._lock:
            pidfd = self._process.pidfd
            return pidfd >= 0 and not is_readable(pidfd, 0)

    def ends_at_once(self) -> bool:
        """True once it is dead."""
        return not self.is_alive()

    def failure(self) -> str:
        """What the zygote said before it gave up, or an empty string."""
        with self._lock:
            self._take_packets()
            return self._failure

    def kill(self) -> None:
        """Kill the zygote, and with it every worker it has forked; reap it. Safe to call twice."""
        with self._lock:
            self._process.kill()
        # Its death is awaited without the lock, which event loops take.
        with self._reaping:
            self._process.wait_dead(REAP_TIMEOUT_MS)
            with self._lock:
                self._process.close()
                # Pidfds already on their way are still in the socket.
                self._take_packets()
                self._control.close()

    def abandon(self) -> None:
        """Give up the descriptors without touching the process, in a forked child of the host."""
        self._control.close()
        self._process.abandon()

    def await_pidfd(self, life: _ForkedLife) -> None:
        """Wait until the zygote has told about this worker; a zygote that does not is killed."""
        # Counted from the request, with a moment for a host that was itself paused meanwhile.
        deadline = max(life.requested_at + _PIDFD_TIMEOUT_MS / 1000, time.monotonic() + _PIDFD_GRACE_MS / 1000)
        while not life.is_settled and (descriptor := self._control.fileno()) >= 0:
            remaining_ms = max(0, int((deadline - time.monotonic()) * 1000))
            is_readable(descriptor, min(remaining_ms, _POLL_MS))
            if not self.poll_packets() or not (remaining_ms or life.is_settled):
                self.kill()

    def poll_packets(self) -> bool:
        """Take what the zygote has sent, without waiting; False when it has closed its end."""
        with self._lock:
            return self._take_packets()

    def await_packets(self, timeout_ms: int) -> None:
        """Wait a moment for something from the zygote and take it."""
        if (descriptor := self._control.fileno()) >= 0:
            is_readable(descriptor, min(timeout_ms, _POLL_MS))
        self.poll_packets()

    def forget(self, life: _ForkedLife) -> None:
        """The worker's handle is closed; what the zygote still sends about it is dropped."""
        with self._lock:
            self._workers.pop(life.sequence, None)

    def _request(self, worker_end: int, *, rehearsed: bool) -> _ForkedLife:
        deadline = time.monotonic() + _SEND_TIMEOUT_MS / 1000
        while True:
            with self._lock:
                self._take_packets()
                if self._control.fileno() < 0:
                    raise CodeModeWorkerError("the zygote has ended: it was killed")
                life = _ForkedLife(self, self._next_sequence)
                if self._send_request(life.sequence, worker_end, rehearsed=rehearsed):
                    self._next_sequence = (self._next_sequence + 1) & 0xFFFFFFFF
                    self._workers[life.sequence] = life
                    return life
                descriptor = self._control.fileno()
            remaining_ms = int((deadline - time.monotonic()) * 1000)
            if remaining_ms <= 0:
                raise CodeModeWorkerError("the zygote takes no requests")
            _is_writable(descriptor, min(remaining_ms, _POLL_MS))

    def _send_request(self, sequence: int, worker_end: int, *, rehearsed: bool) -> bool:
        """Return False when it takes none just now."""
        request = [_REQUEST.pack(sequence, rehearsed)]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", worker_end))]
        try:
            self._control.sendmsg(request, rights)
        except BlockingIOError:
            return False
        except OSError as error:
            reason = self._failure or str(error)
            raise CodeModeWorkerError(f"the zygote has ended: {reason}") from None
        return True

    def _take_packets(self) -> bool:
        """Take every packet in the socket; False when the zygote has closed it."""
        while self._control.fileno() >= 0:
            try:
                data, ancillary, _flags, _address = self._control.recvmsg(
                    _MAX_PACKET_BYTES, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self._take_packet(data, ancillary[0][2] if ancillary else b"")
        return False

    def _take_packet(self, data: bytes, rights: bytes) -> None:
        kind, sequence, value = _PACKET.unpack_from(data)
        pidfd = struct.unpack("=i", rights[:4])[0] if rights else -1
        if kind == b"X":
            self._failure = data[_PACKET.size :].decode("utf-8", "replace")
        life = self._workers.get(sequence)
        if life is None:
            _discard(pidfd)
        elif kind == b"W":
            life.pidfd = pidfd
        elif kind == b"N":
            life.never_started = os.strerror(value)
        elif kind == b"E":
            life.ending = _describe_status(value)


class _ForkedLife:
    """A child of the zygote, known by the pidfd that the zygote hands over some time after the request."""

    def __init__(self, zygote: Zygote, sequence: int) -> None:
        self._zygote = zygote
        self.sequence = sequence
        self.requested_at = time.monotonic()
        self.pidfd = -1
        self.never_started = ""
        self.ending: str | None = None
        self._memory = ProcessMemory()

    @property
    def is_settled(self) -> bool:
        """True once the zygote has told whether there is a process."""
        return self.pidfd >= 0 or bool(self.never_started)

    def closes_at_once(self) -> bool:
        """True once it is known what there is to kill; nobody waits for its death."""
        self._zygote.poll_packets()
        return self.is_settled

    def kill(self) -> None:
        """Kill it; waits for the pidfd when it has not come yet."""
        if not self.is_settled:
            self._zygote.await_pidfd(self)
        if self.pidfd >= 0:
            send_kill(self.pidfd)

    def wait_dead(self, timeout_ms: int) -> bool:
        """True once it is dead. Without a pidfd that is once its zygote is: the kernel kills it with its parent."""
        if self.pidfd >= 0:
            return is_readable(self.pidfd, timeout_ms)
        self._zygote.poll_packets()
        deadline = time.monotonic() + timeout_ms / 1000
        while not self.is_settled and self._zygote.is_alive() and time.monotonic() < deadline:
            self._zygote.await_packets(int((deadline - time.monotonic()) * 1000) + 1)
        if self.pidfd >= 0:
            return is_readable(self.pidfd, max(0, int((deadline - time.monotonic()) * 1000)))
        return bool(self.never_started) or not self._zygote.is_alive()

    def describe_ending(self) -> str:
        """How a dead worker ended when it was neither by itself nor by SIGKILL, else an empty string."""
        deadline = time.monotonic() + _ENDING_TIMEOUT_MS / 1000
        self._zygote.poll_packets()
        while not (self.never_started or self.ending is not None) and self._zygote.is_alive():
            if (left_ms := int((deadline - time.monotonic()) * 1000)) < 0:
                break
            self._zygote.await_packets(left_ms + 1)
        return self.never_started or self.ending or ""

    def memory(self) -> MemoryInUse | None:
        """How much memory it has; None as long as the zygote has not told which process it is."""
        if not self.is_settled:
            self._zygote.poll_packets()
        return self._memory.in_use(self.pidfd) if self.pidfd >= 0 else None

    def close(self) -> None:
        """Close the pidfd."""
        self._zygote.forget(self)
        self.abandon()

    def abandon(self) -> None:
        """Close the descriptors alone."""
        self._memory.close()
        pidfd, self.pidfd = self.pidfd, -1
        _discard(pidfd)


def _start(image: WorkerImage, control_fd: int, **options: object) -> ChildProcess:
    try:
        host_pidfd = os.pidfd_open(os.getpid())
    except OSError as error:
        raise CodeModeWorkerError(f"a zygote needs pidfds (Linux 5.3 or newer): {error}") from error
    try:
        configuration = image.configuration(control_fd=control_fd, host_pidfd=host_pidfd, **options)
        return start_python(image.command, _MAIN_PATH, configuration, [control_fd, host_pidfd])
    finally:
        os.close(host_pidfd)


def _is_writable(descriptor: int, timeout_ms: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    return bool(poller.poll(timeout_ms))


def _discard(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def _describe_status(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return describe_signal(-code) if code < 0 else describe_exit(code)
