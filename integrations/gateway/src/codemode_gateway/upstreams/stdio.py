"""Run a stdio server: its process, stdout messages and stderr."""

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

from codemode.host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from codemode.trace.visible_text import clip_to_visible_line, escape_invisible

from ..config.model import ServerConfig
from ..config.redaction import SecretRedactor
from .connection_errors import ServerNotStartedError
from .jsonrpc_lines import (
    REPAIRED_MESSAGE,
    ParsedMessage,
    parse_message_line,
    strip_space_and_bom,
    unreadable_answer_error,
)
from .process_supervisor import ProcessSupervisor, ServerProcess, SpawnError
from .session_streams import MessageInbox, MessageOutbox

_MAX_NAME_CHARACTERS = 200


def server_not_started_error(error: SpawnError, config: ServerConfig) -> ServerNotStartedError:
    """Return the error for a server that cannot be started."""
    name, command = _quote_shortened(config.name), _quote_shortened(config.command or "")
    if error.at == "cwd":
        program_message = "its working directory cannot be used"
        folder = _quote_shortened(config.cwd or "")
        return ServerNotStartedError(
            f"its working directory {folder} cannot be used ({error.strerror}): change cwd of server {name}",
            program_message,
        )
    if error.at == "command" and error.errno in (ENOENT, ENOTDIR):
        return ServerNotStartedError(_missing_command_message(config, name, command), "its command was not found")
    if error.at == "command" and error.errno == EACCES:
        program_message = "its command is not executable"
        return ServerNotStartedError(
            f"its command {command} is not executable: change its permissions, or command of server {name}",
            program_message,
        )
    program_message = "its process cannot be started"
    return ServerNotStartedError(f"{program_message} ({command}): {error.strerror}", program_message)


def _missing_command_message(config: ServerConfig, name: str, command: str) -> str:
    first, _, arguments = (config.command or "").strip().partition(" ")
    if arguments and "/" not in arguments:  # may contain a secret, so do not quote it
        return (
            f"its command does not exist: move the arguments after {_quote_shortened(first)} to args of server {name}"
        )
    return (
        f"its command {command} does not exist: install it, or set command of server {name} to the full path of an"
        " existing program"
    )


def _quote_shortened(text: str) -> str:
    return repr(clip_to_visible_line(text, _MAX_NAME_CHARACTERS))


MAX_LINE_BYTES = 32 << 20
_LINES_PER_TURN = 64
_BYTES_PER_TURN = 1 << 16
_LONG_BYTES = LARGE_CHARACTERS * 16
_TAIL_BYTES = 8 << 10
_LOGGED_LINES = 20
_LOGGED_SECONDS = 10.0
_LOGGED_CHARACTERS = 500
_QUIET_SECONDS = 1.0
_TERM_SECONDS = 1.0
_KILL_SECONDS = 5.0
_MAX_NOISE_CHARACTERS = 200
_CONTENT_LENGTH = re.compile(rb"content-length:\s*\d+", re.IGNORECASE)
_FRAMED_MESSAGE = (
    "it sends Content-Length headers as in the Language Server Protocol; MCP over stdio needs one JSON message per line"
)
_log = logging.getLogger("codemode.mcp")


def _get_working_directory(config: ServerConfig) -> str | None:
    """Return a server's working directory, or None if the current directory no longer exists."""
    try:
        return config.cwd or config.folder or str(Path.cwd())
    except FileNotFoundError:
        return None


class StdioServer:
    """One server process. ``get_exit_reason`` describes how it ended, with its last output."""

    def __init__(self, config: ServerConfig, secrets: SecretRedactor, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._config = config
        self._secrets = secrets
        self._supervisor: ProcessSupervisor
        self._child: ServerProcess | None = None
        self._failure_reason: str | None = None
        self._is_stopped = False
        self._stderr = StderrReader(config.name, secrets)
        self._output = StdoutReader(self._kill, config.name, max_line_bytes, secrets.redact_text)
        self._input = MessageOutbox()

    @property
    def pid(self) -> int | None:
        """The pid of the server, which is also its process group id."""
        return None if self._child is None else self._child.pid

    def get_exit_reason(self) -> str | None:
        """Return why it ended by itself: its exit code and the end of its stderr."""
        reason = self._failure_reason
        if reason is None and not self._is_stopped and self._child is not None and self._child.exited.done():
            reason = _describe_exit(self._child.exited.result())
        stderr_text = self.get_last_output() if reason else ""
        return f"{reason}: {stderr_text}" if stderr_text else reason

    def get_last_output(self) -> str:
        """Return the end of its stderr, or its first invalid line on stdout if stderr is empty."""
        noise = self._output.noise
        return self._stderr.get_tail_text() or (f"on stdout it wrote {noise}" if noise else "")

    def ended_without_reading_past(self, position: int) -> bool:
        """Return whether it ended without reading past the first ``position`` bytes."""
        return self._input.ended_without_reading_past(position)

    @asynccontextmanager
    async def run_process(self) -> AsyncGenerator[tuple[MessageInbox, MessageOutbox]]:
        """Start the process and yield the session's streams; then end it with its child processes."""
        self._supervisor = ProcessSupervisor.acquire()
        pipes: list[asyncio.BaseTransport] = []
        try:
            child = await self._spawn(pipes)
            child.exited.add_done_callback(lambda _: self._output.stop())
            yield self._output.inbox, self._input
        finally:
            task = asyncio.get_running_loop().create_task(self._end_process_and_release_supervisor(pipes))
            await _wait_despite_cancellation(task)

    async def _spawn(self, pipes: list[asyncio.BaseTransport]) -> ServerProcess:
        reads = [os.pipe(), os.pipe()]
        stdin, written = os.pipe()
        theirs = stdin, reads[0][1], reads[1][1]
        ours = [written, reads[0][0], reads[1][0]]
        loop = asyncio.get_running_loop()
        try:
            env = {**get_default_environment(), **self._config.env}
            args = [self._config.command or "", *self._config.args]
            child = self._child = await self._supervisor.spawn(args, env, _get_working_directory(self._config), theirs)
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
            raise server_not_started_error(error, self._config) from error
        finally:
            for descriptor in (*theirs, *ours):
                os.close(descriptor)
        return child

    def _kill(self, reason: str) -> None:
        """End a server whose output cannot be read."""
        self._failure_reason = self._failure_reason or reason
        self._send_signal(signal.SIGKILL)

    def _send_signal(self, number: int) -> None:
        if self._child is not None:
            self._supervisor.send_signal(self._child.id, number)

    async def _end_process_and_release_supervisor(self, pipes: list[asyncio.BaseTransport]) -> None:
        try:
            self._is_stopped = not self._output.is_over
            self._output.discard_further_output()
            if not self._is_stopped and self._child is not None:
                # Count the unread bytes before closing the pipe discards them.
                await asyncio.wait([self._child.exited], timeout=_QUIET_SECONDS)
                self._input.record_read_bytes()
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
                    if not self._is_stopped:
                        self._failure_reason = self._failure_reason or "it closed its standard output"
                    self._send_signal(number)
        finally:
            try:
                self._input.abort()
                for pipe in pipes:
                    pipe.close()
            finally:
                await self._supervisor.release()


class _LoopTurnBudget:
    """The limit of input in one turn of the event loop."""

    def __init__(self) -> None:
        self._lines, self._bytes = _LINES_PER_TURN, _BYTES_PER_TURN

    def count_and_admit_line(self, line: bytes) -> bool:
        """Count a line; return whether it is within the limit."""
        self._lines -= 1
        self._bytes -= len(line)
        return self._lines >= 0 and self._bytes >= 0 and len(line) < _LONG_BYTES


class StdoutReader(asyncio.Protocol):
    """Parses a server's stdout. Lines that are not protocol messages are skipped; the first is logged.

    ``noise`` is the beginning of that line. ``is_over``: no more output follows.
    """

    def __init__(
        self, fail: Callable[[str], None], name: str, max_line_bytes: int, hide: Callable[[str], str] = str
    ) -> None:
        self.inbox = MessageInbox(self._pause_or_resume_reading)
        self._fail = fail
        self._name = name
        self._max_line_bytes = max_line_bytes
        self._transport: asyncio.ReadTransport | None = None
        self._partial = bytearray()  # of a line; a list of many small parts would take far more memory
        self._lines: deque[bytes] = deque()
        self._budget = _LoopTurnBudget()
        self._read_task: asyncio.Task[None] | None = None
        self._pauses = 0
        self.is_over = False
        self._is_discarding = False
        self._hide = hide
        self.noise = ""
        self._has_spoken = self._has_reported = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the transport."""
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Split data into lines."""
        if self._is_discarding:
            return
        self._budget = _LoopTurnBudget()
        *ends, remainder = data.split(b"\n")
        for end in ends:
            partial, self._partial = self._partial, bytearray()
            self._parse_or_queue_line(bytes(partial + end) if partial else end)
        self._partial += remainder
        if len(self._partial) > self._max_line_bytes:
            self.discard_further_output()
            self._fail(f"it wrote a line of more than {self._max_line_bytes} bytes")
            self.inbox.put_end()

    def eof_received(self) -> None:
        """End after the lines that are still to be parsed."""
        self.stop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End the output."""
        self._transport = None
        self.stop()

    def stop(self) -> None:
        """Accept no more data; the end follows the received lines."""
        self.is_over = True
        if self._read_task is None:
            self.inbox.put_end()

    def discard_further_output(self) -> None:
        """Read and drop further output, so that the server can still write."""
        self._is_discarding = True
        self._lines.clear()
        self._partial = bytearray()
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _parse_or_queue_line(self, line: bytes) -> None:
        line = strip_space_and_bom(line)
        if not line:
            return
        if not self._has_spoken and _CONTENT_LENGTH.fullmatch(line):
            self.discard_further_output()
            self._fail(_FRAMED_MESSAGE)
            self.inbox.put_end()
            return
        if self._read_task is None and self._budget.count_and_admit_line(line):
            self._put_message_or_log(line, parse_message_line(line))
            return
        self._lines.append(line)
        if self._read_task is None:
            self._pause_or_resume_reading(True)
            self._read_task = asyncio.get_running_loop().create_task(self._parse_queued_lines())

    async def _parse_queued_lines(self) -> None:
        """Parse lines in order, long ones in a thread, and let other tasks run. Reading is paused meanwhile."""
        try:
            while self._lines:
                line = self._lines.popleft()
                if len(line) >= _LONG_BYTES:
                    self._put_message_or_log(
                        line, await run_in_thread_if_large_or_slow(len(line), partial(parse_message_line, line))
                    )
                    continue
                if not self._budget.count_and_admit_line(line):
                    await asyncio.sleep(0)
                    self._budget = _LoopTurnBudget()
                    self._budget.count_and_admit_line(line)
                self._put_message_or_log(line, parse_message_line(line))
        finally:
            self._read_task = None
            self._pause_or_resume_reading(False)
            if self.is_over:
                self.inbox.put_end()

    def _put_message_or_log(self, line: bytes, reading: ParsedMessage) -> None:
        from mcp.shared.message import SessionMessage

        message = reading.message or unreadable_answer_error(line)
        if message is not None:
            self._has_spoken = True
            self.inbox.put(SessionMessage(message))
            if reading.is_repaired and not self._has_reported:
                self._has_reported = True
                _log.warning(REPAIRED_MESSAGE, self._name)
        if (message is None or (isinstance(message, JSONRPCError) and message.id is None)) and not self.noise:
            text = self._hide(line[:_TAIL_BYTES].decode("utf-8", "replace"))
            self.noise = clip_to_visible_line(text, _MAX_NOISE_CHARACTERS)
            kind = "invalid messages" if message is None else "errors without a request id"
            log_message = "server %r writes %s on stdout; such lines are skipped. First line: %s"
            _log.warning(log_message, self._name, kind, self.noise)

    def _pause_or_resume_reading(self, is_paused: bool) -> None:
        self._pauses += 1 if is_paused else -1
        if self._transport is None or self._transport.is_closing() or self._is_discarding:
            return
        if self._pauses > 0:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


class StderrReader(asyncio.Protocol):
    """Keeps the end of a server's stderr and logs some of it, without secrets."""

    def __init__(self, name: str, secrets: SecretRedactor) -> None:
        self._name = name
        self._secrets = secrets
        self._tail = b""
        self._line = b""
        self._is_cut = False
        self._window = 0.0
        self._logged = 0

    def data_received(self, data: bytes) -> None:
        """Store the end of the output."""
        self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        if _log.isEnabledFor(logging.INFO):
            *lines, self._line = (self._line + data).split(b"\n")
            for line in lines:
                self._log_line(line)
            if len(self._line) > _TAIL_BYTES:  # part of a line could contain part of a secret
                self._line, self._is_cut = b"", True

    def get_tail_text(self) -> str:
        """Return the last lines as one line."""
        tail = self._tail
        if len(tail) == _TAIL_BYTES:
            tail = tail.partition(b"\n")[2]  # the first line could start with the end of a secret
        lines = tail.decode("utf-8", "replace").split("\n")
        joined = " ".join(" ".join(line.split()) for line in lines if line.strip())
        return self._secrets.redact_text(joined)[-_LOGGED_CHARACTERS:]

    def _log_line(self, line: bytes) -> None:
        is_cut, self._is_cut = self._is_cut, False
        now = asyncio.get_running_loop().time()
        if now - self._window > _LOGGED_SECONDS:
            self._window, self._logged = now, 0
        if line.strip() and not is_cut and self._logged < _LOGGED_LINES:
            self._logged += 1
            text = self._secrets.redact_text(line.decode("utf-8", "replace"))
            _log.info("server %r: %s", self._name, escape_invisible(text[:_LOGGED_CHARACTERS].rstrip()))


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    with suppress(ValueError):
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it was killed by signal {-code}"


async def _wait_despite_cancellation(task: asyncio.Task[None]) -> None:
    """Wait for a task even if this one is cancelled, then raise the cancellation."""
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
    task.result()
