"""The gateway's side of the process that stdio servers are children of. Starts servers, reads nothing they say."""

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

from codemode.host.cancellation import shield_to_end
from codemode.host.threads import run_off_loop

# One such process serves all servers of one event loop. It ends with the last of its users, and whenever this process
# does, however that ends.

_LENGTH = struct.Struct("=I")
_END_SECONDS = 10.0
_MAX_LINE_BYTES = 4096


class SpawnError(OSError):
    """A server cannot be started. ``at`` is what stands in the way: "command", "cwd", "fork" or "descriptors"."""

    def __init__(self, number: int, at: str) -> None:
        super().__init__(number, os.strerror(number) if number else "unknown error")
        self.at = at


@dataclass(frozen=True)
class Child:
    """A server that runs. ``exited`` gives its exit code, negative the signal that ended it."""

    id: int
    pid: int
    exited: asyncio.Future[int]


class Guard:
    """One guarding process. `held` gives that of the running loop; whoever has it calls `release` once."""

    def __init__(self) -> None:
        self._users = 0
        self._next_id = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._starting: asyncio.Lock = asyncio.Lock()
        self._writing: asyncio.Lock = asyncio.Lock()
        self._begun: dict[int, asyncio.Future[Child]] = {}
        self._running: dict[int, Child] = {}
        self._unread = b""

    @classmethod
    def held(cls) -> Guard:
        """Return the guard of the running loop, for one user more."""
        loop = asyncio.get_running_loop()
        guard = _guards.get(loop)
        if guard is None:
            guard = _guards[loop] = cls()
        guard._users += 1
        return guard

    async def release(self) -> None:
        """Be one user less; the last one waits until the process has ended."""
        self._users -= 1
        if self._users:
            return
        loop = asyncio.get_running_loop()
        if _guards.get(loop) is self:
            del _guards[loop]
        await self._end()

    async def spawn(
        self, args: Sequence[str], env: Mapping[str, str], cwd: str | None, descriptors: tuple[int, int, int]
    ) -> Child:
        """Start a server, in a session of its own, on these three descriptors. Raises `SpawnError`."""
        await self._start()
        self._next_id += 1
        one = self._next_id
        begun: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._begun[one] = begun
        try:
            asked = {"do": "spawn", "id": one, "args": list(args), "env": dict(env), "cwd": cwd}
            await self._ask(asked, descriptors)
            return await begun
        except BaseException:
            if not begun.cancelled() and begun.done() and begun.exception() is None:
                self.send_signal(one, signal.SIGKILL)
            raise
        finally:
            self._begun.pop(one, None)

    def send_signal(self, one: int, number: int) -> None:
        """Send a signal to the group of a server, if it still runs. SIGKILL reaches what has left the group too."""
        if self._control is not None:
            task = asyncio.get_running_loop().create_task(self._ask({"do": "signal", "id": one, "signal": number}))
            _tasks.add(task)
            task.add_done_callback(_forget)

    async def _start(self) -> None:
        async with self._starting:
            if self._control is not None:
                return
            if self._process is not None:  # somebody has ended it
                await run_off_loop(partial(_wait, self._process))
            # Late: lists of tools need nothing that runs programs.
            from codemode.workers.process import read_loader_variables

            ours, theirs = socket.socketpair()
            command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("process_supervisor_main.py"))]
            starting = asyncio.ensure_future(
                run_off_loop(
                    partial(
                        subprocess.Popen[bytes],
                        [*command, str(theirs.fileno()), str(os.getpid())],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        cwd="/",
                        env=read_loader_variables(),  # servers can read of their parent what it was started with
                        pass_fds=(theirs.fileno(),),
                        start_new_session=True,
                    )
                )
            )
            try:
                self._process = await shield_to_end(starting)
            except BaseException:
                ours.close()
                if starting.done() and not starting.cancelled() and starting.exception() is None:
                    self._process = starting.result()  # it ends with its socket, and is waited for
                raise
            finally:
                theirs.close()
            ours.setblocking(False)
            self._control = ours
            asyncio.get_running_loop().add_reader(ours.fileno(), self._read)

    async def _ask(self, asked: Mapping[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        text = json.dumps(asked).encode()
        async with self._writing:
            control = self._control
            if control is None:
                raise SpawnError(0, "fork")
            loop = asyncio.get_running_loop()
            if descriptors:
                socket.send_fds(control, [_LENGTH.pack(len(text))], list(descriptors))
                await loop.sock_sendall(control, text)
            else:
                await loop.sock_sendall(control, _LENGTH.pack(len(text)) + text)

    def _read(self) -> None:
        if self._control is None:
            return
        try:
            got = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            got = b""
        if not got:
            self._lost()
            return
        *lines, self._unread = (self._unread + got).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))

    def _hear(self, said: Mapping[str, Any]) -> None:
        one = said["id"]
        if "exit" in said:
            child = self._running.pop(one, None)
            if child is not None and not child.exited.done():
                child.exited.set_result(said["exit"])
            return
        begun = self._begun.get(one)
        if "pid" in said:
            child = self._running[one] = Child(one, said["pid"], asyncio.get_running_loop().create_future())
            if begun is None or begun.done():
                self.send_signal(one, signal.SIGKILL)
            else:
                begun.set_result(child)  # which may have ended before whoever waits is awake
        elif begun is not None and not begun.done():
            begun.set_exception(SpawnError(said["errno"], said["at"]))

    def _lost(self) -> None:
        """Go on without the process: somebody has ended it. Its servers end with it, where the system can do that."""
        self._close()
        for child in self._running.values():
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            if not child.exited.done():
                child.exited.set_result(-signal.SIGKILL)
        self._running.clear()
        for begun in self._begun.values():
            if not begun.done():
                begun.set_exception(SpawnError(0, "fork"))

    def _close(self) -> None:
        if self._control is not None:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()
            self._control = None
        self._unread = b""

    async def _end(self) -> None:
        self._close()
        process, self._process = self._process, None
        if process is not None:
            await run_off_loop(partial(_wait, process))


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _forget(task: asyncio.Task[None]) -> None:
    _tasks.discard(task)
    if not task.cancelled():
        task.exception()  # a process that is gone needs no signal


_tasks: set[asyncio.Task[None]] = set()
_guards: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Guard] = weakref.WeakKeyDictionary()
