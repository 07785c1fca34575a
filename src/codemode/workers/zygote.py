"""The host's side of a zygote: starts and kills it, gets workers and their pidfds.

Thread-safe. Knows nothing of frames or of how many workers are wanted.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Sequence

from ..errors import CodeModeWorkerError
from ..host.forks import create_fork_safe_lock, create_fork_safe_rlock
from .image import WorkerImage
from .process import (
    REAP_TIMEOUT_MS,
    MemoryUsage,
    PidfdProcess,
    ProcessMemoryReader,
    WorkerProcess,
    describe_exit_status,
    describe_signal_unless_sigkill,
    open_socket_pair,
    send_sigkill,
    start_isolated_python,
    wait_until_readable,
)

_PACKET_STRUCT = struct.Struct("=cIi")
_REQUEST_STRUCT = struct.Struct("=I?")
_MAX_PACKET_BYTES = 1024
_SEND_TIMEOUT_MS = 1000
# Longer than a busy machine delays a zygote, because its end kills the programs of all tenants.
_PIDFD_TIMEOUT_MS = 5000
# Several threads may wait for packets, and one takes what another waits for.
_POLL_MS = 50
_PIDFD_GRACE_MS = 100
_EXIT_REPORT_TIMEOUT_MS = 1000
_ZYGOTE_SCRIPT_PATH = os.path.join(os.path.dirname(os.path.dirname(__file__)), "guest", "zygote_main.py")


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
        self._lock = create_fork_safe_rlock()  # never held while something is waited for
        self._reap_lock = create_fork_safe_lock()
        self._workers: dict[int, _ForkedProcess] = {}
        self._next_sequence = 1
        self._failure = ""
        self.forks_quickly = programs_per_worker == 1  # else it may be making engines when it is asked for a worker
        self._control, zygote_end = open_socket_pair(socket.SOCK_SEQPACKET)
        try:
            with zygote_end:
                self._process = _start_zygote_process(
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

    def spawn(self, *, warm_up: bool = True) -> WorkerProcess:
        """Ask for a worker and return its handle at once; its hello comes when it is ready.

        ``warm_up``: it first runs a small program of its own, which makes the real one start faster.
        Raises `CodeModeWorkerError` when the zygote is dead or takes no requests.
        """
        host_end, worker_end = open_socket_pair()
        with worker_end:
            try:
                handle = self._request_worker(worker_end.fileno(), warm_up=warm_up)
            except BaseException:
                host_end.close()
                raise
        return WorkerProcess(host_end, handle)

    def can_spawn_immediately(self) -> bool:
        """True when it takes a request now."""
        with self._lock:
            return self._control.fileno() >= 0 and _wait_until_writable(self._control.fileno(), 0)

    def is_alive(self) -> bool:
        """False once the zygote process has ended."""
        with self._lock:
            pidfd = self._process.pidfd
            return pidfd >= 0 and not wait_until_readable(pidfd, 0)

    def can_kill_immediately(self) -> bool:
        """True once it is dead."""
        return not self.is_alive()

    def describe_failure(self) -> str:
        """The zygote's last error output, or an empty string."""
        with self._lock:
            self.receive_packets()
            return self._failure

    def kill(self) -> None:
        """Kill the zygote, and with it every worker it has forked; reap it. Safe to call twice."""
        with self._lock:
            self._process.kill()
        # Its death is awaited without the lock, which event loops take.
        with self._reap_lock:
            self._process.wait_until_dead(REAP_TIMEOUT_MS)
            with self._lock:
                self._process.close()
                # Pidfds already on their way are still in the socket.
                self.receive_packets()
                self._control.close()

    def close_descriptors(self) -> None:
        """Give up the descriptors without touching the process, in a forked child of the host."""
        self._control.close()
        self._process.close_descriptors()

    def wait_for_pidfd_or_kill_zygote(self, handle: _ForkedProcess) -> None:
        """Wait until the zygote has told about this worker; a zygote that does not is killed."""
        # Counted from the request, with a moment for a host that was itself paused meanwhile.
        deadline = max(handle.requested_at + _PIDFD_TIMEOUT_MS / 1000, time.monotonic() + _PIDFD_GRACE_MS / 1000)
        while not handle.is_start_known and (descriptor := self._control.fileno()) >= 0:
            remaining_ms = max(0, int((deadline - time.monotonic()) * 1000))
            wait_until_readable(descriptor, min(remaining_ms, _POLL_MS))
            if not self.receive_packets() or not (remaining_ms or handle.is_start_known):
                self.kill()

    def receive_packets(self) -> bool:
        """Take what the zygote has sent, without waiting; False when it has closed its end."""
        with self._lock:
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
                self._handle_packet(data, ancillary[0][2] if ancillary else b"")
            return False

    def wait_and_receive_packets(self, timeout_ms: int) -> None:
        """Wait a moment for something from the zygote and take it."""
        if (descriptor := self._control.fileno()) >= 0:
            wait_until_readable(descriptor, min(timeout_ms, _POLL_MS))
        self.receive_packets()

    def forget_worker(self, handle: _ForkedProcess) -> None:
        """The worker's handle is closed; what the zygote still sends about it is dropped."""
        with self._lock:
            self._workers.pop(handle.sequence, None)

    def _request_worker(self, worker_end: int, *, warm_up: bool) -> _ForkedProcess:
        deadline = time.monotonic() + _SEND_TIMEOUT_MS / 1000
        while True:
            with self._lock:
                self.receive_packets()
                if self._control.fileno() < 0:
                    raise CodeModeWorkerError("the zygote has ended: it was killed")
                handle = _ForkedProcess(self, self._next_sequence)
                if self._try_send_request(handle.sequence, worker_end, warm_up=warm_up):
                    self._next_sequence = (self._next_sequence + 1) & 0xFFFFFFFF
                    self._workers[handle.sequence] = handle
                    return handle
                descriptor = self._control.fileno()
            remaining_ms = int((deadline - time.monotonic()) * 1000)
            if remaining_ms <= 0:
                raise CodeModeWorkerError("the zygote takes no requests")
            _wait_until_writable(descriptor, min(remaining_ms, _POLL_MS))

    def _try_send_request(self, sequence: int, worker_end: int, *, warm_up: bool) -> bool:
        """Return False when it takes none just now."""
        request = [_REQUEST_STRUCT.pack(sequence, warm_up)]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("=i", worker_end))]
        try:
            self._control.sendmsg(request, rights)
        except BlockingIOError:
            return False
        except OSError as error:
            reason = self._failure or str(error)
            raise CodeModeWorkerError(f"the zygote has ended: {reason}") from None
        return True

    def _handle_packet(self, data: bytes, rights: bytes) -> None:
        kind, sequence, value = _PACKET_STRUCT.unpack_from(data)
        pidfd = struct.unpack("=i", rights[:4])[0] if rights else -1
        if kind == b"X":
            self._failure = data[_PACKET_STRUCT.size :].decode("utf-8", "replace")
        handle = self._workers.get(sequence)
        if handle is None:
            if pidfd >= 0:
                os.close(pidfd)
        elif kind == b"W":
            handle.pidfd = pidfd
        elif kind == b"N":
            handle.start_error = os.strerror(value)
        elif kind == b"E":
            handle.exit_text = _describe_wait_status(value)


class _ForkedProcess:
    """A child of the zygote, known by the pidfd that the zygote hands over some time after the request."""

    def __init__(self, zygote: Zygote, sequence: int) -> None:
        self._zygote = zygote
        self.sequence = sequence
        self.requested_at = time.monotonic()
        self.pidfd = -1
        self.start_error = ""
        self.exit_text: str | None = None
        self._memory = ProcessMemoryReader()

    @property
    def is_start_known(self) -> bool:
        """True once the zygote has told whether there is a process."""
        return self.pidfd >= 0 or bool(self.start_error)

    def can_close_immediately(self) -> bool:
        """True once its process is known; no thread waits for its death."""
        self._zygote.receive_packets()
        return self.is_start_known

    def kill(self) -> None:
        """Kill it; waits for the pidfd when it has not come yet."""
        if not self.is_start_known:
            self._zygote.wait_for_pidfd_or_kill_zygote(self)
        if self.pidfd >= 0:
            send_sigkill(self.pidfd)

    def wait_until_dead(self, timeout_ms: int) -> bool:
        """True once it is dead. Without a pidfd that is once its zygote is: the kernel kills it with its parent."""
        if self.pidfd >= 0:
            return wait_until_readable(self.pidfd, timeout_ms)
        self._zygote.receive_packets()
        deadline = time.monotonic() + timeout_ms / 1000
        while not self.is_start_known and self._zygote.is_alive() and time.monotonic() < deadline:
            self._zygote.wait_and_receive_packets(int((deadline - time.monotonic()) * 1000) + 1)
        if self.pidfd >= 0:
            return wait_until_readable(self.pidfd, max(0, int((deadline - time.monotonic()) * 1000)))
        return bool(self.start_error) or not self._zygote.is_alive()

    def describe_abnormal_exit(self) -> str:
        """How a dead worker ended when it was neither by itself nor by SIGKILL, else an empty string."""
        deadline = time.monotonic() + _EXIT_REPORT_TIMEOUT_MS / 1000
        self._zygote.receive_packets()
        while not (self.start_error or self.exit_text is not None) and self._zygote.is_alive():
            if (left_ms := int((deadline - time.monotonic()) * 1000)) < 0:
                break
            self._zygote.wait_and_receive_packets(left_ms + 1)
        return self.start_error or self.exit_text or ""

    def read_memory(self) -> MemoryUsage | None:
        """How much memory it has; None as long as the zygote has not told which process it is."""
        if not self.is_start_known:
            self._zygote.receive_packets()
        return self._memory.read(self.pidfd) if self.pidfd >= 0 else None

    def close(self) -> None:
        """Close the pidfd."""
        self._zygote.forget_worker(self)
        self.close_descriptors()

    def close_descriptors(self) -> None:
        """Close the descriptors alone."""
        self._memory.close()
        pidfd, self.pidfd = self.pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)


def _start_zygote_process(image: WorkerImage, control_fd: int, **options: object) -> PidfdProcess:
    try:
        host_pidfd = os.pidfd_open(os.getpid())
    except OSError as error:
        raise CodeModeWorkerError(f"a zygote needs pidfds (Linux 5.3 or newer): {error}") from error
    try:
        configuration = image.to_configuration_json(control_fd=control_fd, host_pidfd=host_pidfd, **options)
        return start_isolated_python(image.command, _ZYGOTE_SCRIPT_PATH, configuration, [control_fd, host_pidfd])
    finally:
        os.close(host_pidfd)


def _wait_until_writable(descriptor: int, timeout_ms: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    return bool(poller.poll(timeout_ms))


def _describe_wait_status(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return describe_signal_unless_sigkill(-code) if code < 0 else describe_exit_status(code)
