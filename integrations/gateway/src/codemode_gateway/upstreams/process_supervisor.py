"""Start stdio servers through a supervisor process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from codemode.host.cancellation import shield_until_done
from codemode.host.threads import run_in_single_use_thread

# One supervisor process serves all servers of an event loop. It ends after its last user, and when this process ends
# for any reason.

_LENGTH = struct.Struct("=I")
_END_SECONDS = 10.0
_MAX_LINE_BYTES = 4096


class SpawnError(OSError):
    """A server cannot be started. ``at`` names the cause: "command", "cwd", "fork" or "descriptors"."""

    def __init__(self, number: int, at: str) -> None:
        super().__init__(number, os.strerror(number) if number else "unknown error")
        self.at = at


@dataclass(frozen=True)
class ServerProcess:
    """A running server. ``exited`` yields its exit code; a negative one is the signal that ended it."""

    id: int
    pid: int
    exited: asyncio.Future[int]


class ProcessSupervisor:
    """A supervisor process. Call `acquire` for that of the running loop, and `release` once."""

    def __init__(self) -> None:
        self._users = 0
        self._next_id = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._start_lock: asyncio.Lock = asyncio.Lock()
        self._write_lock: asyncio.Lock = asyncio.Lock()
        self._starting_children: dict[int, asyncio.Future[ServerProcess]] = {}
        self._running: dict[int, ServerProcess] = {}
        self._unread = b""

    @classmethod
    def acquire(cls) -> ProcessSupervisor:
        """Return the supervisor of the running loop and count one more user."""
        loop = asyncio.get_running_loop()
        guard = _supervisors.get(loop)
        if guard is None:
            guard = _supervisors[loop] = cls()
        guard._users += 1
        return guard

    async def release(self) -> None:
        """Count one user less; the last one waits until the process has ended."""
        self._users -= 1
        if self._users:
            return
        loop = asyncio.get_running_loop()
        if _supervisors.get(loop) is self:
            del _supervisors[loop]
        await self._end_process()

    async def spawn(
        self, args: Sequence[str], env: Mapping[str, str], cwd: str | None, descriptors: tuple[int, int, int]
    ) -> ServerProcess:
        """Start a server, in a session of its own, on these three descriptors. Raises `SpawnError`."""
        await self._ensure_process_started()
        self._next_id += 1
        child_id = self._next_id
        started: asyncio.Future[ServerProcess] = asyncio.get_running_loop().create_future()
        self._starting_children[child_id] = started
        try:
            request = {"do": "spawn", "id": child_id, "args": list(args), "env": dict(env), "cwd": cwd}
            await self._send_request(request, descriptors)
            return await started
        except BaseException:
            if not started.cancelled() and started.done() and started.exception() is None:
                self.send_signal(child_id, signal.SIGKILL)
            raise
        finally:
            self._starting_children.pop(child_id, None)

    def send_signal(self, child_id: int, number: int) -> None:
        """Send a signal to a server's process group, if it still runs. SIGKILL also reaches its other processes."""
        if self._control is not None:
            task = asyncio.get_running_loop().create_task(
                self._send_request({"do": "signal", "id": child_id, "signal": number})
            )
            _tasks.add(task)
            task.add_done_callback(_on_signal_sent)

    async def _ensure_process_started(self) -> None:
        async with self._start_lock:
            if self._control is not None:
                return
            if self._process is not None:  # it was killed
                await run_in_single_use_thread(partial(_wait_or_kill, self._process))
            # Imported late: listing tools needs no code that runs programs.
            from codemode.workers.process import read_dynamic_loader_variables

            ours, theirs = socket.socketpair()
            command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("process_supervisor_main.py"))]
            starting = asyncio.ensure_future(
                run_in_single_use_thread(
                    partial(
                        subprocess.Popen[bytes],
                        [*command, str(theirs.fileno()), str(os.getpid())],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        cwd="/",
                        env=read_dynamic_loader_variables(),  # servers can read the environment of their parent process
                        pass_fds=(theirs.fileno(),),
                        start_new_session=True,
                    )
                )
            )
            try:
                self._process = await shield_until_done(starting)
            except BaseException:
                ours.close()
                if starting.done() and not starting.cancelled() and starting.exception() is None:
                    self._process = starting.result()  # it ends when its socket closes
                raise
            finally:
                theirs.close()
            ours.setblocking(False)
            self._control = ours
            asyncio.get_running_loop().add_reader(ours.fileno(), self._receive_messages)

    async def _send_request(self, request: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        text = json.dumps(request).encode()
        async with self._write_lock:
            control = self._control
            if control is None:
                raise SpawnError(0, "fork")
            loop = asyncio.get_running_loop()
            if descriptors:
                socket.send_fds(control, [_LENGTH.pack(len(text))], list(descriptors))
                await loop.sock_sendall(control, text)
            else:
                await loop.sock_sendall(control, _LENGTH.pack(len(text)) + text)

    def _receive_messages(self) -> None:
        if self._control is None:
            return
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_process_lost()
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._on_message(json.loads(line))

    def _on_message(self, message: Mapping[str, Any]) -> None:
        child_id = message["id"]
        if "exit" in message:
            child = self._running.pop(child_id, None)
            if child is not None and not child.exited.done():
                child.exited.set_result(message["exit"])
            return
        started = self._starting_children.get(child_id)
        if "pid" in message:
            child = self._running[child_id] = ServerProcess(
                child_id, message["pid"], asyncio.get_running_loop().create_future()
            )
            if started is None or started.done():
                self.send_signal(child_id, signal.SIGKILL)
            else:
                started.set_result(child)  # it may have ended before the waiting task runs
        elif started is not None and not started.done():
            started.set_exception(SpawnError(message["errno"], message["at"]))

    def _on_process_lost(self) -> None:
        """Continue without a killed supervisor process, and end its servers where possible."""
        self._close_control_socket()
        for child in self._running.values():
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            if not child.exited.done():
                child.exited.set_result(-signal.SIGKILL)
        self._running.clear()
        for started in self._starting_children.values():
            if not started.done():
                started.set_exception(SpawnError(0, "fork"))

    def _close_control_socket(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        self._unread = b""

    async def _end_process(self) -> None:
        self._close_control_socket()
        process, self._process = self._process, None
        if process is not None:
            await run_in_single_use_thread(partial(_wait_or_kill, process))


def _wait_or_kill(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _on_signal_sent(task: asyncio.Task[None]) -> None:
    _tasks.discard(task)
    if not task.cancelled():
        task.exception()  # an ended process needs no signal


_tasks: set[asyncio.Task[None]] = set()
_supervisors: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ProcessSupervisor] = weakref.WeakKeyDictionary()
