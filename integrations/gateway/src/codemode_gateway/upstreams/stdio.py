"""The transport of a stdio server: its process, what it says line by line, what it complains of. Knows no calls."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from errno import EACCES, ENOENT, ENOTDIR
from functools import partial
from pathlib import Path
from typing import cast

from mcp.client.stdio import get_default_environment
from mcp_types import JSONRPCError

from codemode.host.threads import LARGE_CHARACTERS, run_check
from codemode.trace.visible_text import one_line, visible

from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from .connection_errors import NotStartedError
from .jsonrpc_lines import REPAIRED, Reading, read_line, unreadable_answer, without_bom
from .process_supervisor import Child, Guard, SpawnError
from .session_streams import Inbox, Outbox

_MAX_NAME_CHARACTERS = 200


def not_started(error: SpawnError, config: ServerConfig) -> NotStartedError:
    """Return what is raised where the server of this configuration cannot be started."""
    name, command = _named(config.name), _named(config.command or "")
    if error.at == "cwd":
        told = "its folder cannot be entered"
        folder = _named(config.cwd or "")
        return NotStartedError(
            f"its folder {folder} cannot be entered ({error.strerror}): change cwd of the server {name}", told
        )
    if error.at == "command" and error.errno in (ENOENT, ENOTDIR):
        return NotStartedError(_missing(config, name, command), "its command was not found")
    if error.at == "command" and error.errno == EACCES:
        told = "its command may not be run"
        return NotStartedError(
            f"its command {command} may not be run: change its permissions, or command of the server {name}", told
        )
    told = "its process cannot be started"
    return NotStartedError(f"{told} ({command}): {error.strerror}", told)


def _missing(config: ServerConfig, name: str, command: str) -> str:
    first, _, rest = (config.command or "").strip().partition(" ")
    if rest and "/" not in rest:  # and perhaps a secret, which nobody is to be told
        return f"its command does not exist: what stands behind {_named(first)} belongs into args of the server {name}"
    return (
        f"its command {command} does not exist: install it, or write the whole path of one that does as command of"
        f" the server {name}"
    )


def _named(text: str) -> str:
    return repr(one_line(text, _MAX_NAME_CHARACTERS))


MAX_LINE_BYTES = 32 << 20
_LINES_AT_ONCE = 64
_BYTES_AT_ONCE = 1 << 16
_LONG_BYTES = LARGE_CHARACTERS * 16
_TAIL_BYTES = 8 << 10
_LOGGED_LINES = 20
_LOGGED_SECONDS = 10.0
_LOGGED_CHARACTERS = 500
_QUIET_SECONDS = 1.0
_TERM_SECONDS = 1.0
_KILL_SECONDS = 5.0
_MAX_NOISE_CHARACTERS = 200
_LENGTH = re.compile(rb"content-length:\s*\d+", re.IGNORECASE)
_FRAMED = (
    "it frames its messages with Content-Length headers, as servers of the Language Server Protocol do; MCP over stdio"
    " is one JSON message a line"
)
_log = logging.getLogger("codemode.mcp")


def _start_folder(config: ServerConfig) -> str | None:
    """Return the folder that a server starts in; None if it is the current one and that is gone."""
    try:
        return config.cwd or config.folder or str(Path.cwd())
    except FileNotFoundError:
        return None


class StdioServer:
    """One process of a server. ``ending`` says, once it has ended, in which way and what it said last."""

    def __init__(self, config: ServerConfig, secrets: SecretRedactor, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._config = config
        self._secrets = secrets
        self._guard: Guard
        self._child: Child | None = None
        self._broken: str | None = None
        self._is_ended_by_us = False
        self._stderr = StderrTail(config.name, secrets)
        self._output = Output(self._fail, config.name, max_line_bytes, secrets.redact_text)
        self._input = Outbox()

    @property
    def pid(self) -> int | None:
        """The process of the server, which leads the group of all its own."""
        return None if self._child is None else self._child.pid

    def ending(self) -> str | None:
        """Return why it ended by itself: its exit code and the end of what it complained of."""
        reason = self._broken
        if reason is None and not self._is_ended_by_us and self._child is not None and self._child.exited.done():
            reason = _ended_with(self._child.exited.result())
        words = self.last_words() if reason else ""
        return f"{reason}: {words}" if words else reason

    def last_words(self) -> str:
        """Return the end of what it wrote on stderr; of one that wrote nothing there, the first noise on stdout."""
        noise = self._output.noise
        return self._stderr.text() or (f"on stdout it wrote {noise}" if noise else "")

    def is_unread(self, cut_at: int) -> bool:
        """Tell whether it has ended without reading what was written behind so many bytes."""
        return self._input.is_unread(cut_at)

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[tuple[Inbox, Outbox]]:
        """Start the process; give the streams of a session; end the process, and all that it has started."""
        self._guard = Guard.held()
        pipes: list[asyncio.BaseTransport] = []
        try:
            child = await self._spawn(pipes)
            child.exited.add_done_callback(lambda _: self._output.stop())
            yield self._output.inbox, self._input
        finally:
            task = asyncio.get_running_loop().create_task(self._finish(pipes))
            await _to_its_end(task)

    async def _spawn(self, pipes: list[asyncio.BaseTransport]) -> Child:
        reads = [os.pipe(), os.pipe()]
        stdin, written = os.pipe()
        theirs = stdin, reads[0][1], reads[1][1]
        ours = [written, reads[0][0], reads[1][0]]
        loop = asyncio.get_running_loop()
        try:
            env = {**get_default_environment(), **self._config.env}
            args = [self._config.command or "", *self._config.args]
            child = self._child = await self._guard.spawn(args, env, _start_folder(self._config), theirs)
            for protocol, connect in (
                (self._input, loop.connect_write_pipe),
                (self._output, loop.connect_read_pipe),
                (self._stderr, loop.connect_read_pipe),
            ):
                file = os.fdopen(ours[0], "wb" if protocol is self._input else "rb", buffering=0)
                del ours[0]
                transport, _ = await connect(lambda protocol=protocol: protocol, file)
                pipes.append(transport)
        except SpawnError as error:
            raise not_started(error, self._config) from error
        finally:
            for descriptor in (*theirs, *ours):
                os.close(descriptor)
        return child

    def _fail(self, reason: str) -> None:
        """End a server that says what nobody can read."""
        self._broken = self._broken or reason
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self._child is not None:
            self._guard.send_signal(self._child.id, number)

    async def _finish(self, pipes: list[asyncio.BaseTransport]) -> None:
        try:
            self._is_ended_by_us = not self._output.is_over
            self._output.discard()
            if not self._is_ended_by_us and self._child is not None:
                # What then is still in the pipe was never read. Closing the pipe would lose that knowledge.
                await asyncio.wait([self._child.exited], timeout=_QUIET_SECONDS)
                self._input.note_what_is_read()
            self._input.close_pipe()
            if self._child is not None:
                for seconds, number in (
                    (_QUIET_SECONDS, signal.SIGTERM),
                    (_TERM_SECONDS, signal.SIGKILL),
                    (_KILL_SECONDS, signal.SIGKILL),
                ):
                    await asyncio.wait([self._child.exited], timeout=seconds)
                    if self._child.exited.done():
                        break
                    if not self._is_ended_by_us:
                        self._broken = self._broken or "it closed its standard output"
                    self._signal(number)
        finally:
            try:
                self._input.abort()
                for pipe in pipes:
                    pipe.close()
            finally:
                await self._guard.release()


class _Room:
    """How much is read in one turn of the loop."""

    def __init__(self) -> None:
        self._lines, self._bytes = _LINES_AT_ONCE, _BYTES_AT_ONCE

    def has_for(self, line: bytes) -> bool:
        """Tell whether there is room for a line, and take it."""
        self._lines -= 1
        self._bytes -= len(line)
        return self._lines >= 0 and self._bytes >= 0 and len(line) < _LONG_BYTES


class Output(asyncio.Protocol):
    """What a server says on stdout, as messages. Lines that are no protocol are skipped, and the first is logged.

    ``noise`` is the beginning of that one. ``is_over``: there will be no more.
    """

    def __init__(
        self, fail: Callable[[str], None], name: str, max_line_bytes: int, hide: Callable[[str], str] = str
    ) -> None:
        self.inbox = Inbox(self._pause)
        self._fail = fail
        self._name = name
        self._max_line_bytes = max_line_bytes
        self._transport: asyncio.ReadTransport | None = None
        self._begun = bytearray()  # of a line; a list of its pieces could cost many times their bytes
        self._lines: deque[bytes] = deque()
        self._room = _Room()
        self._reading: asyncio.Task[None] | None = None
        self._holds = 0
        self.is_over = False
        self._is_discarding = False
        self._hide = hide
        self.noise = ""
        self._has_spoken = self._has_reported = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to read."""
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Take what was said."""
        if self._is_discarding:
            return
        self._room = _Room()
        *ends, rest = data.split(b"\n")
        for end in ends:
            begun, self._begun = self._begun, bytearray()
            self._take(bytes(begun + end) if begun else end)
        self._begun += rest
        if len(self._begun) > self._max_line_bytes:
            self.discard()
            self._fail(f"it said a line of more than {self._max_line_bytes} bytes")
            self.inbox.end()

    def eof_received(self) -> None:
        """Come to the end, behind what is still to be read."""
        self.stop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Come to the end."""
        self._transport = None
        self.stop()

    def stop(self) -> None:
        """Take nothing more than was said; the end comes behind it."""
        self.is_over = True
        if self._reading is None:
            self.inbox.end()

    def discard(self) -> None:
        """Read on, so that a server that writes is not held up, and forget it."""
        self._is_discarding = True
        self._lines.clear()
        self._begun = bytearray()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _take(self, line: bytes) -> None:
        line = without_bom(line)
        if not line:
            return
        if not self._has_spoken and _LENGTH.fullmatch(line):
            self.discard()
            self._fail(_FRAMED)
            self.inbox.end()
            return
        if self._reading is None and self._room.has_for(line):
            self._say(line, read_line(line))
            return
        self._lines.append(line)
        if self._reading is None:
            self._pause(True)
            self._reading = asyncio.get_running_loop().create_task(self._read_on())

    async def _read_on(self) -> None:
        """Read lines in their order, long ones in a thread, and leave others their turn. Nothing more is taken."""
        try:
            while self._lines:
                line = self._lines.popleft()
                if len(line) >= _LONG_BYTES:
                    self._say(line, await run_check(len(line), partial(read_line, line)))
                    continue
                if not self._room.has_for(line):
                    await asyncio.sleep(0)
                    self._room = _Room()
                    self._room.has_for(line)
                self._say(line, read_line(line))
        finally:
            self._reading = None
            self._pause(False)
            if self.is_over:
                self.inbox.end()

    def _say(self, line: bytes, reading: Reading) -> None:
        from mcp.shared.message import SessionMessage

        message = reading.message or unreadable_answer(line)
        if message is not None:
            self._has_spoken = True
            self.inbox.put(SessionMessage(message))
            if reading.is_repaired and not self._has_reported:
                self._has_reported = True
                _log.warning(REPAIRED, self._name)
        if (message is None or (isinstance(message, JSONRPCError) and message.id is None)) and not self.noise:
            text = self._hide(line[:_TAIL_BYTES].decode("utf-8", "replace"))
            self.noise = one_line(text, _MAX_NOISE_CHARACTERS)
            what = "no protocol" if message is None else "an error of no request"
            said = "server %r writes on stdout what is %s; such lines are skipped, the first of them is %s"
            _log.warning(said, self._name, what, self.noise)

    def _pause(self, is_paused: bool) -> None:
        self._holds += 1 if is_paused else -1
        if self._transport is None or self._transport.is_closing() or self._is_discarding:
            return
        if self._holds > 0:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class StderrTail(asyncio.Protocol):
    """What a server complains of: its end is kept, some of it is logged, without secrets."""

    def __init__(self, name: str, secrets: SecretRedactor) -> None:
        self._name = name
        self._secrets = secrets
        self._tail = b""
        self._line = b""
        self._is_cut = False
        self._window = 0.0
        self._logged = 0

    def data_received(self, data: bytes) -> None:
        """Keep the end of it."""
        self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        if _log.isEnabledFor(logging.INFO):
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._log(line)
            if len(self._line) > _TAIL_BYTES:  # a piece of it could hold a piece of a secret
                self._line, self._is_cut = b"", True

    def text(self) -> str:
        """Return the last lines, in one."""
        tail = self._tail
        if len(tail) == _TAIL_BYTES:
            tail = tail.partition(b"\n")[2]  # its beginning could be the end of a secret
        lines = tail.decode("utf-8", "replace").split("\n")
        said = " ".join(" ".join(line.split()) for line in lines if line.strip())
        return self._secrets.redact_text(said)[-_LOGGED_CHARACTERS:]

    def _log(self, line: bytes) -> None:
        is_cut, self._is_cut = self._is_cut, False
        now = asyncio.get_running_loop().time()
        if now - self._window > _LOGGED_SECONDS:
            self._window, self._logged = now, 0
        if line.strip() and not is_cut and self._logged < _LOGGED_LINES:
            self._logged += 1
            said = self._secrets.redact_text(line.decode("utf-8", "replace"))
            _log.info("server %r: %s", self._name, visible(said[:_LOGGED_CHARACTERS].rstrip()))


def _ended_with(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    with suppress(ValueError):
        return f"it was ended by {signal.Signals(-code).name}"
    return f"it was ended by signal {-code}"


async def _to_its_end(task: asyncio.Task[None]) -> None:
    """Wait for it although this task is cancelled, which it then is."""
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
    task.result()
