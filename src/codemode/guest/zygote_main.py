"""The zygote process: builds one pristine worker, locks itself, forks a worker per socket.

Single-threaded, runs under `-I -S`. It never reads from a worker's channel and never sees guest text.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import json
import os
import select
import signal
import struct
import sys
from _socket import CMSG_SPACE, MSG_DONTWAIT, SCM_RIGHTS, SOL_SOCKET, socket  # `socket` is memory in every fork
from importlib.machinery import SourceFileLoader
from types import ModuleType

TYPE_CHECKING = False  # as in `typing`, whose import every fork would pay for
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Rights = tuple[tuple[int, int, bytes], ...]

# To the host: kind, sequence number, value. The host's side of it is in workers/zygote.py.
_PACKET_STRUCT = struct.Struct("=cIi")
_REQUEST_STRUCT = struct.Struct("=I?")
_RETRY_MS = 10
# Requests for workers come before engines for later programs, but not always: else no engine would be made.
_MAX_REQUESTS_PER_SPARE_ENGINE = 8
# After these the interpreter has specialised what is called most. More were not faster, and the first worker waits.
_WARM_UP_ROUNDS = 2
# Sizes of what is taken where it is free, the largest first, and how many bytes at most.
_HOLE_SIZES = (120_000, *(1 << bits for bits in range(16, 10, -1)), *range(1032, 15, -16))
_LARGE_BLOCK_COUNT = 4
_MAX_FILLED_BYTES = 1 << 21


class ZygoteServer:
    """Serves one control socket. Ends when the host has gone or has closed it."""

    def __init__(self, worker_module: Any, config: dict[str, Any]) -> None:
        self._control = socket(fileno=config["control_fd"])
        self._host_pidfd = config["host_pidfd"]
        self._worker_module = worker_module
        self._config = config
        self._poller = select.poll()
        self._children_by_pidfd: dict[int, tuple[int, int]] = {}  # by pidfd: sequence number and pid

    def prepare_worker_and_lock_down(self) -> None:
        """Do everything once that every worker would otherwise do for itself."""
        config, worker_module = self._config, self._worker_module
        self._worker = worker_module.Worker(config)
        self._fill_free_heap = worker_module.load_source(
            "heap_filling", __file__.rpartition("/")[0] + "/heap_filling.py"
        ).fill_free_heap
        self._test_hook = _load_test_hook(worker_module, config["test_hook_path"])
        self._lock_and_say_hello = worker_module.lock_and_say_hello
        self._fork = _choose_fork()
        _reset_signals()
        self._lockdown = worker_module.begin_lockdown(config, os.getpid())
        refusal = self._lockdown.describe_missing_layers(self._lockdown.shared_layers)
        if refusal is not None:
            raise OSError(refusal)
        self._hello = self._worker.create_hello_frame(self._lockdown.shared_layers)
        for _ in range(_WARM_UP_ROUNDS - 1):
            self._worker.warm_up(is_full=True)
        self._worker.use_engine(self._worker.engine_pool.fill_engine_heap(self._worker.engine, self._fill_free_heap))
        _fill_heap_holes()
        self._worker.warm_up(is_full=True)
        _fill_heap_holes()
        gc.freeze()

    def serve(self) -> None:
        """Fork on request, forever. In between, create the extra engines of workers."""
        poller, control = self._poller, self._control.fileno()
        poller.register(control, select.POLLIN)
        poller.register(self._host_pidfd, select.POLLIN)
        engines, handled_requests = self._worker.engine_pool, 0
        while True:
            ready = poller.poll(None if engines.has_made_all_engines else 0)
            for descriptor, _event in ready:
                if descriptor in self._children_by_pidfd:
                    self._reap_worker_and_report_exit(descriptor)
                elif descriptor == control:
                    self._fork_requested_worker()
                else:
                    os._exit(0)
            handled_requests += len(ready)
            if not engines.has_made_all_engines and (not ready or handled_requests >= _MAX_REQUESTS_PER_SPARE_ENGINE):
                engines.make_spare_engine(self._worker, self._fill_free_heap)
                handled_requests = 0

    def report_failure(self, error: Exception) -> None:
        """Tell the host why there is no zygote."""
        text = f"{type(error).__name__}: {error}"[:500].encode("utf-8", "backslashreplace")
        self._control.send(_PACKET_STRUCT.pack(b"X", 0, 0) + text)

    def _fork_requested_worker(self) -> None:
        message, ancillary, _flags, _address = self._control.recvmsg(_REQUEST_STRUCT.size, CMSG_SPACE(4))
        if not message:
            os._exit(0)
        sequence, warm_up = _REQUEST_STRUCT.unpack(message)
        if not ancillary:  # no descriptor was left to take the channel with
            self._send_packet_or_exit(b"N", sequence, errno.EMFILE)
            return
        (channel_fd,) = struct.unpack("=i", ancillary[0][2][:4])
        try:
            pid = self._fork()
        except OSError as error:
            os.close(channel_fd)
            self._send_packet_or_exit(b"N", sequence, error.errno or 0)
            return
        if pid == 0:
            self._become_worker(channel_fd, warm_up=warm_up)
        os.close(channel_fd)
        self._register_and_send_pidfd(sequence, pid)

    def _become_worker(self, channel_fd: int, *, warm_up: bool) -> None:
        try:
            self._lock_and_say_hello(self._worker, self._lockdown, self._hello, channel_fd, warm_up=warm_up)
            if self._test_hook is None:
                self._worker.serve()
            else:
                self._test_hook.main(3)
        finally:
            os._exit(70)

    def _register_and_send_pidfd(self, sequence: int, pid: int) -> None:
        # The child is reaped only in this thread and only later, so its pid cannot mean another process yet.
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:  # one is kept for each living worker, and there are no more
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._send_packet_or_exit(b"N", sequence, error.errno or 0)
            return
        self._children_by_pidfd[pidfd] = (sequence, pid)
        self._poller.register(pidfd, select.POLLIN)  # readable once the child has ended
        self._send_packet_or_exit(b"W", sequence, 0, ((SOL_SOCKET, SCM_RIGHTS, struct.pack("=i", pidfd)),))

    def _reap_worker_and_report_exit(self, pidfd: int) -> None:
        sequence, pid = self._children_by_pidfd.pop(pidfd)
        self._poller.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            self._send_packet_or_exit(b"E", sequence, status)

    def _send_packet_or_exit(self, kind: bytes, sequence: int, value: int, rights: Rights = ()) -> None:
        packet = _PACKET_STRUCT.pack(kind, sequence, value)
        while True:
            try:
                self._control.sendmsg([packet], rights, MSG_DONTWAIT)
            except BrokenPipeError:
                os._exit(0)
            except OSError:
                # The queue or the user's descriptors in flight are full; the host takes them when it next spawns.
                waiting = select.poll()
                waiting.register(self._host_pidfd, select.POLLIN)
                if waiting.poll(_RETRY_MS):
                    os._exit(0)
            else:
                return


def _load_test_hook(worker_module: ModuleType, path: str | None) -> ModuleType | None:
    return None if path is None else worker_module.load_source("test_hook", path)


def _choose_fork() -> Callable[[], int]:
    """The C library's fork without handlers, or else `os.fork`.

    The handlers put right what other threads may have held locked. A zygote has one thread, and each of its forks would
    pay for them: a tenth of what a fork costs.
    """
    try:
        fork_without_handlers = ctypes.PyDLL(None, use_errno=True)._Fork  # noqa: SLF001 -- its name in the C library
    except AttributeError:
        return os.fork

    def fork() -> int:
        pid = fork_without_handlers()
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return pid

    return fork


def _fill_heap_holes() -> None:
    """Take, for ever, what is free between the blocks of the heap.

    What a worker takes lies together then: a page that it writes to first has to be copied.
    """
    library = ctypes.PyDLL(None)
    malloc, free = library.malloc, library.free
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_size_t, (ctypes.c_size_t,), (ctypes.c_size_t,)
    heap_end = max(malloc(_HOLE_SIZES[0]) for _ in range(_LARGE_BLOCK_COUNT))
    free(heap_end)
    remaining_bytes = _MAX_FILLED_BYTES
    for size in _HOLE_SIZES:
        block = malloc(size)
        while block < heap_end and remaining_bytes > 0:
            block, remaining_bytes = malloc(size), remaining_bytes - size
        free(block)


def _reset_signals() -> None:
    # The thread of the host that started this process may block signals, and the mask is inherited; so is a SIGCHLD
    # that is ignored, and ignored children vanish by themselves: their pids could be reused before a pidfd is opened.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def main() -> None:
    """Argument 1 is the configuration, as ASCII JSON."""
    gc.disable()  # the imports leave next to nothing to collect
    worker_module = ModuleType("worker")
    SourceFileLoader("worker", __file__.rpartition("/")[0] + "/worker.py").exec_module(worker_module)
    zygote = ZygoteServer(worker_module, json.loads(sys.argv[1]))
    try:
        zygote.prepare_worker_and_lock_down()
    except Exception as error:
        zygote.report_failure(error)
        raise
    zygote.serve()


if __name__ == "__main__":
    main()
