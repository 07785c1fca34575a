"""Start stdio servers, and end all of them when the gateway has ended."""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import struct
import sys
import time
from _socket import CMSG_SPACE, MSG_WAITALL, socket
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The gateway's side is process_supervisor.py. This process is single-threaded and runs under `-I -S` without imports
# from the package. The gateway's death closes the control socket and, where supported, signals its pidfd.
_LENGTH = struct.Struct("=I")
_RIGHTS = struct.Struct("=iii")
_TERM_SECONDS = 1.0
_KILL_ROUNDS = 200
_POLL_SECONDS = 0.01
_ORPHAN_ROUNDS = 20
_MARK_VARIABLE = "CODEMODE_MCP_SERVER"
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36


class SupervisorService:
    """Serves one control socket for as long as its gateway lives."""

    def __init__(self, control_fd: int, host_pid: int) -> None:
        self._control = socket(fileno=control_fd)
        self._host_pid = host_pid
        self._ids: dict[int, int] = {}  # by pid, which is also the process group id
        self._prctl: Any = None
        self._poller = select.poll()

    def set_up_process_watching(self) -> None:
        """Adopt the orphans of servers and receive SIGCHLD."""
        if sys.platform == "linux":
            try:
                import ctypes

                self._prctl = ctypes.CDLL(None).prctl
                self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
                self._prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # servers must not read or trace their supervisor
            except (ImportError, OSError, AttributeError):
                self._prctl = None
        wakeup_reader, wakeup_writer = os.pipe()
        os.set_blocking(wakeup_writer, False)
        os.set_blocking(wakeup_reader, False)
        signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _on_sigchld)
        self._wakeup_reader = wakeup_reader
        for descriptor in (self._control.fileno(), wakeup_reader, *_open_pidfd(self._host_pid)):
            self._poller.register(descriptor, select.POLLIN)

    def serve(self) -> None:
        """Serve the gateway's requests until it has ended."""
        while os.getppid() == self._host_pid:
            for descriptor, _event in self._poller.poll(1000):
                if descriptor == self._control.fileno():
                    if not self._receive_and_run_request():
                        return
                elif descriptor == self._wakeup_reader:
                    os.read(self._wakeup_reader, 4096)
                    self._reap_children_and_end_orphans()
                else:
                    return

    def end_all_servers(self) -> None:
        """End every server: with SIGTERM first, then with SIGKILL."""
        self._control.close()
        for pid in self._ids:
            _signal_group(pid, signal.SIGTERM)
        deadline = time.monotonic() + _TERM_SECONDS
        while self._reap_children_and_end_orphans() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        for _ in range(_KILL_ROUNDS):
            for pid in self._ids:
                _signal_group(pid, signal.SIGKILL)
            for pid in _list_descendants(os.getpid()):
                _signal_process(pid, signal.SIGKILL)
            if not self._reap_children_and_end_orphans():
                return
            time.sleep(_POLL_SECONDS)

    def _receive_and_run_request(self) -> bool:
        header, ancillary, _flags, _address = self._control.recvmsg(_LENGTH.size, CMSG_SPACE(_RIGHTS.size))
        if len(header) < _LENGTH.size:
            return False
        (length,) = _LENGTH.unpack(header)
        text = self._control.recv(length, MSG_WAITALL)
        if len(text) < length:
            return False
        request = json.loads(text)
        if request["do"] == "spawn":
            descriptors = _RIGHTS.unpack(ancillary[0][2][: _RIGHTS.size])
            try:
                self._spawn(request, descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
        else:
            self._signal_child(request)
        return True

    def _spawn(self, request: dict[str, Any], descriptors: tuple[int, ...]) -> None:
        failure_reader, failure_writer = os.pipe()
        mark = _format_child_mark(request["id"])
        try:
            pid = os.fork()
        except OSError as error:
            os.close(failure_reader)
            os.close(failure_writer)
            self._send({"id": request["id"], "errno": error.errno, "at": "fork"})
            return
        if pid == 0:
            _exec_server(request, descriptors, failure_writer, self._prctl, mark)
        os.close(failure_writer)
        with os.fdopen(failure_reader, "rb") as failure:
            failure_text = failure.read()
        if failure_text:
            os.waitpid(pid, 0)
            at, _, number = failure_text.decode().partition(" ")
            self._send({"id": request["id"], "errno": int(number), "at": at})
            return
        self._ids[pid] = request["id"]
        self._send({"id": request["id"], "pid": pid})

    def _signal_child(self, request: dict[str, Any]) -> None:
        for pid, child_id in self._ids.items():
            if child_id == request["id"]:
                if request["signal"] == signal.SIGKILL:
                    for descendant in _list_descendants(pid):
                        _signal_process(descendant, signal.SIGKILL)
                _signal_group(pid, request["signal"])

    def _reap_children_and_end_orphans(self) -> bool:
        """Reap ended children. Return False if no child is left."""
        while True:
            try:
                pid, status = _poll_exited_child()
            except ChildProcessError:
                return False
            if not pid:
                return True
            child_id = self._ids.pop(pid, None)
            if child_id is not None:
                _signal_group(pid, signal.SIGKILL)
                self._end_orphans(child_id)
            if status is None:
                _, status = os.waitpid(pid, 0)
            if child_id is not None:
                self._send({"id": child_id, "exit": os.waitstatus_to_exitcode(status)})

    def _end_orphans(self, child_id: int) -> None:
        """End the processes of an ended server in other sessions, identified by a mark in their environment."""
        mark = f"{_MARK_VARIABLE}={_format_child_mark(child_id)}".encode()
        for _ in range(_ORPHAN_ROUNDS):  # they may have started others meanwhile
            orphans = [
                pid for pid in _list_children(os.getpid()) if pid not in self._ids and mark in _read_environ(pid)
            ]
            for orphan in orphans:
                for pid in (*_list_descendants(orphan), orphan):
                    _signal_process(pid, signal.SIGKILL)
            if not orphans:
                return

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):  # the gateway has ended; the next poll reports it
            self._control.sendall(json.dumps(message).encode() + b"\n")


def _exec_server(
    request: dict[str, Any], descriptors: tuple[int, ...], failure_writer: int, prctl: Any, mark: str
) -> None:
    """Execute the server in this fork, or report the failure."""
    stage = "descriptors"
    try:
        os.setsid()
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for name in ("SIGCHLD", "SIGINT", "SIGPIPE", "SIGXFSZ"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        # Move the descriptors above 3, then to their places from 0 on.
        duplicates = [os.dup(descriptor) for descriptor in (*descriptors, failure_writer)]
        moved = [_dup_above_stdio(descriptor) for descriptor in duplicates]
        for target, descriptor in enumerate(moved):
            os.dup2(descriptor, target, inheritable=target < len(descriptors))
        os.closerange(len(moved), 1 << 16)
        failure_writer = len(moved) - 1
        stage = "cwd"
        if request["cwd"] is not None:
            os.chdir(request["cwd"])
        stage = "command"
        env = {**request["env"], _MARK_VARIABLE: mark}
        os.execvpe(request["args"][0], request["args"], env)  # noqa: S606 - the user has configured this command
    except OSError as error:
        os.write(failure_writer, f"{stage} {error.errno or 0}".encode())
    except BaseException:  # noqa: BLE001 - the fork must not continue the supervisor's code
        os.write(failure_writer, f"{stage} {errno.EINVAL}".encode())
    finally:
        os._exit(127)


def _dup_above_stdio(descriptor: int) -> int:
    while descriptor <= 3:
        descriptor = os.dup(descriptor)
    return descriptor


def _poll_exited_child() -> tuple[int, int | None]:
    """Return the pid of an ended child (0 for none), and its status if it was reaped.

    An unreaped pid cannot be reused. Systems without ``waitid`` reap at once.
    """
    if not hasattr(os, "waitid"):
        return os.waitpid(-1, os.WNOHANG)
    found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return (0 if found is None else found.si_pid), None


def _on_sigchld(_number: int, _frame: object) -> None:
    """Do nothing: a signal with a handler wakes the poll."""


def _open_pidfd(pid: int) -> tuple[int, ...]:
    try:
        return (os.pidfd_open(pid),)
    except (AttributeError, OSError):
        return ()


def _list_descendants(pid: int) -> list[int]:
    """Return the known descendants of a process."""
    found: list[int] = []
    pending = [pid]
    while pending:
        children = _list_children(pending.pop())
        found += children
        pending += children
    return found


def _list_children(pid: int) -> list[int]:
    return [int(child) for child in _read_file(f"/proc/{pid}/task/{pid}/children").split()]


def _read_environ(pid: int) -> list[bytes]:
    return _read_file(f"/proc/{pid}/environ").split(b"\0")


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not imported here
            return file.read()
    except OSError:
        return b""


def _format_child_mark(child_id: int) -> str:
    return f"{os.getpid()}-{child_id}"


def _signal_process(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)


def _signal_group(pid: int, number: int) -> None:
    with suppress(OSError):
        os.killpg(pid, number)


def _main() -> None:
    guard = SupervisorService(int(sys.argv[1]), int(sys.argv[2]))
    guard.set_up_process_watching()
    try:
        guard.serve()
    finally:
        guard.end_all_servers()


if __name__ == "__main__":
    _main()
