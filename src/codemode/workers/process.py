"""The host's handle on one worker process: its command, channel, memory and death."""

from __future__ import annotations

import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

from ..errors import CodeModeWorkerError
from ..host.forks import create_fork_safe_lock
from .image import WorkerImage

# Set in every started worker. An application that was started by mistake, because it *is* the embedded interpreter,
# finds it and starts no workers of its own: one wrong process instead of a fork bomb.
WORKER_ENVIRONMENT_VARIABLE = "CODE_MODE_WORKER"
_INTERPRETER_NAMES = ("python", "pypy")


def resolve_interpreter_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that start a Python interpreter; ``command`` empty means this one.

    Raises `CodeModeWorkerError` where this interpreter is part of an application and none was given, and in a process
    that was itself started as a worker.
    """
    if WORKER_ENVIRONMENT_VARIABLE in os.environ:
        raise CodeModeWorkerError(
            "this application was itself started as a code mode worker: set pool.worker_command to a Python "
            f"interpreter (or, if that is not so, remove {WORKER_ENVIRONMENT_VARIABLE} from the environment)"
        )
    if command:
        return tuple(command)
    reason = _describe_interpreter_problem()
    if reason:
        raise CodeModeWorkerError(
            f"workers cannot be started with this interpreter: {reason}. Set pool.worker_command to the command of a "
            f"Python {sys.version_info[0]}.{sys.version_info[1]} interpreter, as in "
            f'PoolOptions(worker_command=["/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"])'
        )
    return (sys.executable,)


def _describe_interpreter_problem() -> str:
    if "uwsgi" in sys.modules:
        return "it is embedded in uWSGI"
    if getattr(sys, "frozen", False):
        return "the application is frozen"
    if not sys.executable:
        return "it does not know its own path (sys.executable is empty)"
    # A link to an interpreter may have any name, and so may what it points to.
    names = [os.path.basename(path).lower() for path in (sys.executable, os.path.realpath(sys.executable))]
    if not any(interpreter_name in name for interpreter_name in _INTERPRETER_NAMES for name in names):
        return f"sys.executable is {os.path.basename(sys.executable)!r}, which is not a Python interpreter by name"
    return ""


_MAX_PROC_FILE_BYTES = 4096
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class MemoryUsage(NamedTuple):
    """Bytes of a process. ``address_space_bytes`` includes memory that it has not touched, as its limit does."""

    resident_bytes: int
    address_space_bytes: int


class ProcessMemoryReader:
    """Holds an open file with the system's data about one process; never reads data of another process.

    It may be read and closed in different threads: a closed file is not opened again.
    """

    def __init__(self) -> None:
        self._statm_fd = -1
        self._is_closed = False
        self._lock = create_fork_safe_lock()

    def read(self, pidfd: int) -> MemoryUsage | None:
        """Return what the process behind ``pidfd`` has, shared pages too; None where that is not told."""
        try:
            with self._lock:
                if self._is_closed:
                    return None
                if self._statm_fd < 0:
                    self._statm_fd = _open_statm(pidfd)
                address_space_pages, resident_pages = os.pread(self._statm_fd, _MAX_PROC_FILE_BYTES, 0).split()[:2]
            return MemoryUsage(int(resident_pages) * _PAGE_BYTES, int(address_space_pages) * _PAGE_BYTES)
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Give up the descriptor, for ever."""
        with self._lock:
            self._is_closed = True
            statm_fd, self._statm_fd = self._statm_fd, -1
        if statm_fd >= 0:
            os.close(statm_fd)


def _open_statm(pidfd: int) -> int:
    pid = _read_pid(pidfd)
    statm_fd = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    if _read_pid(pidfd) != pid:  # it has ended, and its number may have meant another process
        os.close(statm_fd)
        raise ProcessLookupError
    return statm_fd


def _read_pid(pidfd: int) -> int:
    """Return its number while it is not reaped. Raises `OSError` or `ValueError` for what is no process any more."""
    info_fd = os.open(f"/proc/self/fdinfo/{pidfd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(info_fd, _MAX_PROC_FILE_BYTES).decode("ascii")
    finally:
        os.close(info_fd)
    pid_fields = text.partition("\nPid:")[2].split(maxsplit=1)
    pid = int(pid_fields[0]) if pid_fields else 0
    if pid <= 0:
        raise ProcessLookupError
    return pid


# On Linux a parent-death signal follows the thread that started the process: a caller's own thread may end long
# before the host does.

ResultT = TypeVar("ResultT")

_starter_lock = create_fork_safe_lock()
_start_requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] | None = None


def call_in_starter_thread(start: Callable[[], ResultT]) -> ResultT:
    """Call ``start`` in that thread and return what it returns. Raises what it raises."""
    future: Future[ResultT] = Future()
    _get_or_create_starter_queue().put((start, future))
    return future.result()


def _get_or_create_starter_queue() -> queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]:
    global _start_requests  # noqa: PLW0603 - one thread for the process
    with _starter_lock:
        if _start_requests is None:
            requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
            try:
                threading.Thread(
                    target=_serve_start_requests, args=(requests,), name="codemode-starter", daemon=True
                ).start()
            except RuntimeError as error:  # the interpreter is shutting down
                raise CodeModeWorkerError(f"cannot start a worker process: {error}") from error
            _start_requests = requests
        return _start_requests


def _serve_start_requests(requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]) -> None:
    while True:
        start, future = requests.get()
        try:
            future.set_result(start())
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            future.set_exception(error)
        del start, future


def _forget_starter_thread() -> None:
    """In a forked child of the host, where the thread does not exist."""
    global _start_requests  # noqa: PLW0603 - one thread for the process
    _start_requests = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_starter_thread)


# Processes are named by pidfd alone: a pid may already mean another process. Without pidfds, by the unreaped
# `subprocess.Popen`.

# Variables that the dynamic loader may need to start this interpreter; the host's other variables are not passed on.
_LOADER_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# Functions of shared libraries are found now, once, and not by each fork when it first calls them.
_BIND_NOW_ENVIRONMENT = {"LD_BIND_NOW": "1"}
_WORKER_PATH = os.path.join(os.path.dirname(os.path.dirname(__file__)), "guest", "worker.py")
REAP_TIMEOUT_MS = 5000


class ProcessHandle(Protocol):
    """How a process ends and how its end is seen."""

    def kill(self) -> None:
        """Kill it, without waiting; nothing happens when it is dead."""
        ...

    def can_close_immediately(self) -> bool:
        """True when neither `kill` nor `close` would wait for anything."""
        ...

    def wait_until_dead(self, timeout_ms: int) -> bool:
        """True once it is dead, False when the time has passed."""
        ...

    def describe_abnormal_exit(self) -> str:
        """How it ended when neither by itself nor by SIGKILL, as far as that is known; else an empty string."""
        ...

    def read_memory(self) -> MemoryUsage | None:
        """How much memory it has; None where that cannot be told."""
        ...

    def close(self) -> None:
        """Give up the descriptors, and reap what is this process's child."""
        ...

    def close_descriptors(self) -> None:
        """Give up the descriptors alone, in a forked child of the process that owns it."""
        ...


class WorkerProcess:
    """One worker. ``channel`` is the host's end of its socket, and the caller's to read and write."""

    def __init__(self, channel: socket.socket, handle: ProcessHandle) -> None:
        self.channel = channel
        self._handle = handle
        self._is_closed = False
        # A descriptor number closed under a thread that is about to kill would name another process.
        self._lock = create_fork_safe_lock()

    def __repr__(self) -> str:
        return f"<WorkerProcess {'closed' if self._is_closed else 'open'} fd={self.channel.fileno()}>"

    def kill(self) -> None:
        """Kill the worker, without waiting for its death. May wait some seconds for a zygote that is late."""
        with self._lock:
            if not self._is_closed:
                self._handle.kill()

    def can_close_immediately(self) -> bool:
        """True when `kill` and `close` would wait for nothing."""
        return self._is_closed or self._handle.can_close_immediately()

    def is_dead(self) -> bool:
        """True once the process has ended. End-of-file on the channel alone is no sign of death."""
        return self._is_closed or self._handle.wait_until_dead(0)

    def wait_until_dead(self, timeout_ms: int) -> bool:
        """Wait for the process to end; False when the time has passed."""
        return self._is_closed or self._handle.wait_until_dead(timeout_ms)

    def describe_abnormal_exit(self) -> str:
        """How a dead worker ended when neither by itself nor by SIGKILL ("killed by SIGSYS"), else empty.

        Waits a moment for the zygote to tell.
        """
        return "" if self._is_closed else self._handle.describe_abnormal_exit()

    def read_memory(self) -> MemoryUsage | None:
        """How much memory the worker has, shared pages too; None where that cannot be told."""
        with self._lock:
            return None if self._is_closed else self._handle.read_memory()

    def close(self) -> None:
        """Kill the worker and give up every descriptor. Safe to call twice."""
        with self._lock:
            if self._is_closed:
                return
            # A worker that is done exits by itself, but only a killed one is known to be gone.
            self._handle.kill()
            self._is_closed = True
            self.channel.close()
            self._handle.close()

    def close_descriptors(self) -> None:
        """Give up the descriptors without touching the process, in a forked child of the host."""
        self._is_closed = True
        self.channel.close()
        self._handle.close_descriptors()


class PidfdProcess:
    """A direct child of the host, held by a pidfd. Also the zygote's own handle."""

    def __init__(self, pid: int) -> None:
        self.pidfd = os.pidfd_open(pid)
        self._memory = ProcessMemoryReader()

    def kill(self) -> None:
        """Kill it, without waiting."""
        if self.pidfd >= 0:
            send_sigkill(self.pidfd)

    def can_close_immediately(self) -> bool:
        """True once it is dead: only then is there nothing to wait for in reaping it."""
        return self.wait_until_dead(0)

    def wait_until_dead(self, timeout_ms: int) -> bool:
        """True once it is dead."""
        return self.pidfd < 0 or wait_until_readable(self.pidfd, timeout_ms)

    def describe_abnormal_exit(self) -> str:
        """How the dead process ended, when that is neither exit 0 nor SIGKILL. Does not reap it."""
        try:
            exit_information = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except (OSError, ValueError):
            return ""
        if exit_information is None:
            return ""
        if exit_information.si_code == os.CLD_EXITED:
            return describe_exit_status(exit_information.si_status)
        return describe_signal_unless_sigkill(exit_information.si_status)

    def read_memory(self) -> MemoryUsage | None:
        """How much memory it has."""
        return self._memory.read(self.pidfd)

    def close(self) -> None:
        """Reap it, within a bounded time after a kill, and close the descriptor."""
        if self.pidfd < 0:
            return
        self.wait_until_dead(REAP_TIMEOUT_MS)
        # No such child: the host ignores SIGCHLD, or has a handler of its own that reaps everything.
        with suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        self.close_descriptors()

    def close_descriptors(self) -> None:
        """Close the descriptors alone."""
        self._memory.close()
        pidfd, self.pidfd = self.pidfd, -1
        if pidfd >= 0:
            os.close(pidfd)


class PopenProcess:
    """A direct child of the host where there are no pidfds (macOS, BSD): its pid is its own until it is reaped."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def kill(self) -> None:
        """Kill it, without waiting."""
        # Popen looks first whether it has ended, under a lock that its reaping takes too.
        with suppress(OSError):
            self._process.kill()

    def can_close_immediately(self) -> bool:
        """True once it is dead, as above."""
        return self.wait_until_dead(0)

    def wait_until_dead(self, timeout_ms: int) -> bool:
        """True once it is dead."""
        try:
            self._process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            return False
        return True

    def describe_abnormal_exit(self) -> str:
        """How the dead process ended, when that is neither exit 0 nor SIGKILL."""
        code = self._process.poll() or 0
        return describe_signal_unless_sigkill(-code) if code < 0 else describe_exit_status(code)

    def read_memory(self) -> MemoryUsage | None:
        """Return None: nothing tells."""
        return None

    def close(self) -> None:
        """Reap it, within a bounded time after a kill."""
        self.wait_until_dead(REAP_TIMEOUT_MS)

    def close_descriptors(self) -> None:
        """Let Popen neither reap nor warn about what is the child of another process."""
        self._process.returncode = 0


def describe_exit_status(code: int) -> str:
    """An exit status in words; empty for 0."""
    return f"exited with status {code}" if code else ""


def describe_signal_unless_sigkill(number: int) -> str:
    """A deadly signal in words; empty for SIGKILL, which is also how the host itself ends a worker."""
    if number == signal.SIGKILL:
        return ""
    return f"killed by {signal.Signals(number).name if number in signal.valid_signals() else number}"


def send_sigkill(pidfd: int) -> None:
    """SIGKILL to the process behind ``pidfd``; nothing happens when it is dead."""
    try:  # noqa: SIM105 - for each worker, and `suppress` is three calls more
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass


def wait_until_readable(descriptor: int, timeout_ms: int) -> bool:
    """Poll one descriptor. A pidfd is readable once its process has ended."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(timeout_ms))


def open_socket_pair(kind: int = socket.SOCK_STREAM) -> tuple[socket.socket, socket.socket]:
    """The host's end and the other. Raises `CodeModeWorkerError` when there are no descriptors left."""
    try:
        return socket.socketpair(socket.AF_UNIX, kind)
    except OSError as error:
        raise CodeModeWorkerError(f"cannot open a channel to a worker: {error}") from error


def start_isolated_python(
    command: Sequence[str], script: str, configuration: str, pass_fds: Sequence[int]
) -> PidfdProcess:
    """Start ``script`` as an isolated process that is held by a pidfd; see `_popen_isolated`.

    Raises `CodeModeWorkerError` when it cannot be started.
    """
    process = _popen_isolated(command, script, configuration, pass_fds)
    try:
        child = PidfdProcess(process.pid)
    except OSError as error:
        process.kill()
        process.wait(REAP_TIMEOUT_MS / 1000)
        raise CodeModeWorkerError(f"cannot watch a worker process: {error}") from error
    # The pidfd owns the process from here on; Popen must neither reap it nor warn about it.
    process.returncode = 0
    return child


def read_dynamic_loader_variables() -> dict[str, str]:
    """Return what of the environment this very interpreter may need to start."""
    return {name: os.environ[name] for name in _LOADER_VARIABLES if name in os.environ}


def _popen_isolated(
    command: Sequence[str], script: str, configuration: str, pass_fds: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Start an isolated process: own session, no environment, stdio on null. ``command`` empty: this interpreter."""
    if sys.platform == "win32":
        # It would need a socket handed over by WSADuplicateSocket, a worker that reads from no descriptor, and a
        # reader thread in the host: the default event loop there watches no sockets.
        raise CodeModeWorkerError("code mode workers do not run on Windows: use WSL or a Linux container")
    interpreter = resolve_interpreter_command(command)
    try:
        return subprocess.Popen(
            [*interpreter, "-I", "-S", script, configuration],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**read_dynamic_loader_variables(), **_BIND_NOW_ENVIRONMENT, WORKER_ENVIRONMENT_VARIABLE: "1"},
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        raise CodeModeWorkerError(f"cannot start a worker process ({interpreter[0]}): {error}") from error


def spawn_worker_process(
    image: WorkerImage, *, isolation_required: bool, skip_layers: Sequence[str] = (), programs_per_worker: int = 1
) -> WorkerProcess:
    """Start one worker without a zygote. Returns at once; its hello comes when it is ready.

    ``skip_layers`` makes the worker act as if its environment refused these isolation layers (tests).
    """
    host_end, worker_end = open_socket_pair()
    with worker_end:
        configuration = image.to_configuration_json(
            channel_fd=worker_end.fileno(),
            parent_pid=os.getpid(),
            isolation_required=isolation_required,
            skip_layers=list(skip_layers),
            programs_per_worker=programs_per_worker,
        )
        try:
            child = call_in_starter_thread(
                lambda: _start_pidfd_or_popen_process(image, configuration, worker_end.fileno())
            )
        except BaseException:
            host_end.close()
            raise
    return WorkerProcess(host_end, child)


def _start_pidfd_or_popen_process(image: WorkerImage, configuration: str, channel_fd: int) -> ProcessHandle:
    start = start_isolated_python if hasattr(os, "pidfd_open") else _start_popen_process
    return start(image.command, _WORKER_PATH, configuration, [channel_fd])


def _start_popen_process(
    command: Sequence[str], script: str, configuration: str, pass_fds: Sequence[int]
) -> PopenProcess:
    return PopenProcess(_popen_isolated(command, script, configuration, pass_fds))
