"""The two pipes to a client: claimed, so that nobody else writes to them, read in a thread, written without waiting."""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress

import mcp_types as types
from mcp.shared.message import SessionMessage

from codemode.host.own_thread import in_own_thread

from .lines import Lines, said_by

_READ_BYTES = 1 << 16
_AT_ONCE_BYTES = select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 512
_LOOK_MS = 200
_MOST_UNREAD = 64

Said = SessionMessage | types.JSONRPCError


class Pipes:
    """Reads messages from one descriptor and writes them to another, on the loop that made it."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[Said | None] = asyncio.Queue()
        self._room = threading.Semaphore(_MOST_UNREAD)
        self._ended = threading.Event()
        self._waking = os.pipe()
        self._writing = asyncio.Lock()
        self._written = threading.Lock()
        self._thread = threading.Thread(target=self._read, name="codemode-stdin", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def end(self) -> None:
        """Stop reading, as if the input had ended, and write no more than is under way."""
        if not self._ended.is_set():
            self._ended.set()
            os.write(self._waking[1], b"x")
            self._room.release()
            self._inbox.put_nowait(None)

    @property
    def has_reader(self) -> bool:
        """Whether somebody may still read what is written, and nobody has said that this is to end."""
        poll = select.poll()
        poll.register(self._target, 0)
        return not self._ended.is_set() and not poll.poll(0)

    def close(self) -> None:
        """End, and wait for the threads."""
        self.end()
        self._thread.join()
        with self._written:
            pass
        for descriptor in self._waking:
            os.close(descriptor)

    async def received(self) -> AsyncIterator[Said]:
        """Give what comes, until the input ends."""
        while (said := await self._inbox.get()) is not None:
            self._room.release()
            yield said

    async def send(self, data: bytes) -> None:
        """Write one line. A client that reads no more ends everything."""
        async with self._writing:
            try:
                rest = self._written_at_once(data)
                if rest:
                    await in_own_thread(lambda: self._write(rest), "codemode-stdout")
            except OSError:
                self.end()

    def _written_at_once(self, data: bytes) -> bytes:
        """Write what a pipe that takes anything takes without waiting; return the rest."""
        if len(data) > _AT_ONCE_BYTES or not _is_writable(self._target, 0):
            return data
        return data[os.write(self._target, data) :]

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        with self._written:
            while view:
                if _is_writable(self._target, _LOOK_MS):
                    view = view[os.write(self._target, view[:_AT_ONCE_BYTES]) :]
                elif self._ended.is_set():
                    return

    def _read(self) -> None:
        lines = Lines()
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._waking[0], select.POLLIN)
        with suppress(OSError):
            while not self._ended.is_set():
                poll.poll()
                if self._ended.is_set() or not (data := os.read(self._source, _READ_BYTES)):
                    break
                for line in lines.of(data):
                    self._put(said_by(line))
        self._put_end()

    def _put(self, said: Said | None) -> None:
        if said is not None:
            self._room.acquire()
            self._tell(said)

    def _put_end(self) -> None:
        self._tell(None)

    def _tell(self, said: Said | None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, said)


def _is_writable(descriptor: int, milliseconds: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(milliseconds))


@contextmanager
def claimed() -> Generator[Pipes]:
    """Take standard input and output for the protocol, until it ends.

    Meanwhile whatever reads standard input finds its end, and whatever is printed goes to standard error.
    """
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, 0)
        os.dup2(2 if _is_open(2) else nothing, 1)
        pipes = Pipes(source, target)
        pipes.start()
        try:
            yield pipes
        finally:
            pipes.close()
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            os.dup2(source, 0)
            os.dup2(target, 1)
    finally:
        for descriptor in (source, target, nothing):
            os.close(descriptor)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
