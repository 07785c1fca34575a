"""Serve the protocol over standard input and output."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from pydantic_core import from_json

from codemode.data.narrowing import is_object
from codemode.host.job_threads import run_in_dedicated_thread

from .principals import provide_pipe_disconnect_event

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


MAX_LINE_BYTES = 16 * 1024 * 1024


class OversizedLine:
    """A line over the size limit, whose content was dropped."""


class LineSplitter:
    """Splits bytes into lines. An oversized line is dropped as it arrives and reported at its end."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._partial = bytearray()  # of a line; a list of many small parts would take far more memory
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | OversizedLine]:
        """Return the lines that end in ``data``."""
        *complete, remainder = data.split(b"\n")
        lines: list[bytes | OversizedLine] = []
        for part in complete:
            self._append_part(part)
            lines.append(OversizedLine() if self._size > self._max_bytes else bytes(self._partial))
            self._partial, self._size = bytearray(), 0
        self._append_part(remainder)
        return lines

    def _append_part(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._max_bytes:
            self._partial += part
        else:
            self._partial = bytearray()


def parse_line(line: bytes | OversizedLine) -> SessionMessage | types.JSONRPCError | None:
    """Return the message of a line, an error answer, or None if there is nothing to answer."""
    if isinstance(line, OversizedLine):
        return _jsonrpc_error(types.INVALID_REQUEST, f"the message is longer than {MAX_LINE_BYTES} bytes")
    if not line.strip():
        return None
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        # The SDK reads a request with an invalid id as a notification, but the client needs an error.
        id_error = isinstance(message, types.JSONRPCNotification) and b'"id"' in line and _invalid_line_error(line)
        return id_error or SessionMessage(message)
    except (ValidationError, ValueError, RecursionError):
        return _invalid_line_error(line)


def _invalid_line_error(line: bytes) -> types.JSONRPCError | None:
    try:
        value: Any = from_json(line)
    except (ValueError, RecursionError):
        return _jsonrpc_error(types.PARSE_ERROR, "this line is not JSON; send each message as one line of JSON")
    if isinstance(value, list):
        return _jsonrpc_error(types.INVALID_REQUEST, "batches are not supported; send each message on its own line")
    if not is_object(value):
        return _jsonrpc_error(types.INVALID_REQUEST, "this line is not a JSON-RPC 2.0 message")
    if "method" not in value or "id" not in value:
        return None  # notifications and responses get no answer
    request_id: Any = value["id"]
    is_id = isinstance(request_id, str | int) and not isinstance(request_id, bool)
    return _jsonrpc_error(types.INVALID_REQUEST, "this is not a JSON-RPC 2.0 request", request_id if is_id else None)


def _jsonrpc_error(code: int, message: str, request_id: str | int | None = None) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))


_READ_BYTES = 1 << 16
_ATOMIC_WRITE_BYTES = select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 512
_POLL_MS = 200
_MAX_UNREAD_MESSAGES = 64

ParsedLine = SessionMessage | types.JSONRPCError


class StdioPipes:
    """Reads messages from one descriptor and writes to another, on the loop that created it."""

    def __init__(self, source: int, target: int) -> None:
        self._source, self._target = source, target
        self._loop = asyncio.get_running_loop()
        self._inbox: asyncio.Queue[ParsedLine | None] = asyncio.Queue()
        self._queue_slots = threading.Semaphore(_MAX_UNREAD_MESSAGES)
        self._ended = threading.Event()
        self._wakeup_pipe = os.pipe()
        self._write_lock = asyncio.Lock()
        self._thread_write_lock = threading.Lock()
        self._thread = threading.Thread(target=self._read_lines, name="codemode-stdin", daemon=True)

    def start(self) -> None:
        """Start the reader thread."""
        self._thread.start()

    def end_input(self) -> None:
        """Stop reading as if the input had ended, and abandon blocked writes."""
        if not self._ended.is_set():
            self._ended.set()
            os.write(self._wakeup_pipe[1], b"x")
            self._queue_slots.release()
            self._inbox.put_nowait(None)

    @property
    def has_reader(self) -> bool:
        """True while the client can read answers and serving has not ended."""
        poll = select.poll()
        poll.register(self._target, 0)
        return not self._ended.is_set() and not poll.poll(0)

    def close(self) -> None:
        """Stop and wait for the threads."""
        self.end_input()
        self._thread.join()
        with self._thread_write_lock:
            pass
        for descriptor in self._wakeup_pipe:
            os.close(descriptor)

    async def receive_messages(self) -> AsyncIterator[ParsedLine]:
        """Yield parsed lines until the input ends."""
        while (parsed := await self._inbox.get()) is not None:
            self._queue_slots.release()
            yield parsed

    async def send(self, data: bytes) -> None:
        """Write one line. A client that stops reading ends the input too."""
        async with self._write_lock:
            try:
                remainder = self._write_nonblocking(data)
                if remainder:
                    await run_in_dedicated_thread(lambda: self._write_blocking(remainder), "codemode-stdout")
            except OSError:
                self.end_input()

    def _write_nonblocking(self, data: bytes) -> bytes:
        """Write what the pipe takes at once; return the rest."""
        if len(data) > _ATOMIC_WRITE_BYTES or not _wait_until_writable(self._target, 0):
            return data
        return data[os.write(self._target, data) :]

    def _write_blocking(self, data: bytes) -> None:
        view = memoryview(data)
        with self._thread_write_lock:
            while view:
                if _wait_until_writable(self._target, _POLL_MS):
                    view = view[os.write(self._target, view[:_ATOMIC_WRITE_BYTES]) :]
                elif self._ended.is_set():
                    return

    def _read_lines(self) -> None:
        lines = LineSplitter()
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wakeup_pipe[0], select.POLLIN)
        with suppress(OSError):
            while not self._ended.is_set():
                poll.poll()
                if self._ended.is_set() or not (data := os.read(self._source, _READ_BYTES)):
                    break
                for line in lines.feed(data):
                    self._wait_and_enqueue(parse_line(line))
        self._enqueue_end()

    def _wait_and_enqueue(self, parsed: ParsedLine | None) -> None:
        if parsed is not None:
            self._queue_slots.acquire()
            self._enqueue(parsed)

    def _enqueue_end(self) -> None:
        self._enqueue(None)

    def _enqueue(self, parsed: ParsedLine | None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._inbox.put_nowait, parsed)


def _wait_until_writable(descriptor: int, milliseconds: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(milliseconds))


@contextmanager
def claim_stdio() -> Generator[StdioPipes]:
    """Use standard input and output for the protocol while the block runs.

    Meanwhile other reads of standard input return end of file, and printed text goes to standard error.
    """
    sys.stdout.flush()
    source, target = os.dup(0), os.dup(1)
    dev_null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(dev_null, 0)
        os.dup2(2 if _is_descriptor_open(2) else dev_null, 1)
        pipes = StdioPipes(source, target)
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
        for descriptor in (source, target, dev_null):
            os.close(descriptor)


def _is_descriptor_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


# Lines are parsed in a thread, so that a long one does not block the event loop.

ANSWER_SECONDS = 30.0
"""How long open requests are still answered after the input ends."""

MAX_REQUESTS = 1_000
"""Open requests at a time: a client that sends without reading could fill the memory."""

_POLL_SECONDS = 0.2
_ENDLESS_METHODS = ("subscriptions/listen",)
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def serve_stdio(server: Server[Any], exit_stack: ExitStack) -> None:
    """Serve one client until it closes its end of the pipe or a signal arrives.

    Open requests are answered for up to `ANSWER_SECONDS`. Signals are handled until ``exit_stack`` closes, because
    clients signal when shutdown takes long.
    """
    options = server.create_initialization_options(
        NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
    )
    with claim_stdio() as pipes:
        exit_stack.enter_context(_end_on_signals(pipes))
        async with _open_streams(pipes) as (read, write):
            await server.run(read, write, options)


@asynccontextmanager
async def _open_streams(pipes: StdioPipes) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the streams that the SDK serves."""
    to_server, read = create_context_streams[SessionMessage | Exception](0)
    write, from_server = create_context_streams[SessionMessage](0)

    open_requests = _OpenRequests()

    async def forward_input(disconnected: asyncio.Event) -> None:
        async with to_server:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async for parsed in pipes.receive_messages():
                    error = (
                        open_requests.register_or_refuse(parsed.message)
                        if isinstance(parsed, SessionMessage)
                        else parsed
                    )
                    if error is not None:
                        await pipes.send(_encode_line(error))
                    elif isinstance(parsed, SessionMessage):
                        await to_server.send(parsed)
                disconnected.set()
                await open_requests.wait_until_answered(pipes)

    async def forward_output() -> None:
        async with from_server:
            async for outgoing in from_server:
                await pipes.send(_encode_line(outgoing.message))
                open_requests.on_answer(outgoing.message)

    with provide_pipe_disconnect_event() as disconnected:
        async with anyio.create_task_group() as group:
            group.start_soon(forward_input, disconnected)
            group.start_soon(forward_output)
            try:
                yield read, write
            finally:
                pipes.end_input()


class _OpenRequests:
    """The client's unanswered requests by id, and whether each ends by itself."""

    def __init__(self) -> None:
        self._has_end_by_id: dict[str, bool] = {}
        self._changed = asyncio.Event()

    def register_or_refuse(self, message: types.JSONRPCMessage) -> types.JSONRPCError | None:
        """Register a request or a cancellation. Return the error for a request to refuse."""
        if isinstance(message, types.JSONRPCRequest):
            if str(message.id) in self._has_end_by_id:
                return _refused_request_error(message.id, "A request with this id is still open: use another id")
            if len(self._has_end_by_id) >= MAX_REQUESTS:
                refusal = f"At most {MAX_REQUESTS} requests are answered at a time: send this after others are answered"
                return _refused_request_error(message.id, refusal)
            self._has_end_by_id[str(message.id)] = message.method not in _ENDLESS_METHODS
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._remove((message.params or {}).get("requestId"))
        return None

    def on_answer(self, message: types.JSONRPCMessage) -> None:
        """Remove an answered request."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._remove(message.id)

    async def wait_until_answered(self, pipes: StdioPipes) -> None:
        """Wait until all requests are answered, within `ANSWER_SECONDS` and while the client reads."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while any(self._has_end_by_id.values()) and pipes.has_reader:
                    self._changed.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), _POLL_SECONDS)

    def _remove(self, request_id: Any) -> None:
        if isinstance(request_id, str | int):
            self._has_end_by_id.pop(str(request_id), None)
            self._changed.set()


def _refused_request_error(request_id: types.RequestId, text: str) -> types.JSONRPCError:
    error = types.ErrorData(code=types.INVALID_REQUEST, message=text)
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _encode_line(message: types.JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "replace") + b"\n"


@contextmanager
def _end_on_signals(pipes: StdioPipes) -> Generator[None]:
    """End serving on the first signal, as the end of input does.

    A second SIGTERM or SIGINT has its default effect; SIGHUP is ignored then, as terminals may send it twice.
    """
    loop = asyncio.get_running_loop()

    def end_on_signal(number: int) -> None:
        if number != signal.SIGHUP:
            loop.remove_signal_handler(number)
        pipes.end_input()

    taken: list[int] = []
    for number in _SIGNALS:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # no main thread, or no such signal
            loop.add_signal_handler(number, end_on_signal, number)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
