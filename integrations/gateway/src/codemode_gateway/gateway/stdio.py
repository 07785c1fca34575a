"""Standard input and output as a transport: nothing on them but protocol. Answers no request itself."""

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
from codemode.host.job_threads import in_own_thread

from .principals import asking_no_more

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


MAX_LINE_BYTES = 16 * 1024 * 1024


class TooLong:
    """A line that was longer than any message may be; nothing of it was kept."""


class Lines:
    """Cuts bytes into lines. A line that is too long is dropped as it comes, and told of once it ends."""

    def __init__(self, most: int = MAX_LINE_BYTES) -> None:
        self._most = most
        self._begun = bytearray()  # of a line; a list of its parts could cost many times their bytes
        self._size = 0

    def of(self, data: bytes) -> list[bytes | TooLong]:
        """Return the lines that end in ``data``."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | TooLong] = []
        for part in ended:
            self._add(part)
            lines.append(TooLong() if self._size > self._most else bytes(self._begun))
            self._begun, self._size = bytearray(), 0
        self._add(rest)
        return lines

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._most:
            self._begun += part
        else:
            self._begun = bytearray()


def said_by(line: bytes | TooLong) -> SessionMessage | types.JSONRPCError | None:
    """Return the message that a line is, the error to answer it with, or None where there is nothing to say."""
    if isinstance(line, TooLong):
        return _error(types.INVALID_REQUEST, f"a message may have {MAX_LINE_BYTES} bytes; this one has more")
    if not line.strip():
        return None
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        # One with an id that is none is read as a notification, and owed an error all the same.
        is_owed = isinstance(message, types.JSONRPCNotification) and b'"id"' in line and _refused(line)
        return is_owed or SessionMessage(message)
    except (ValidationError, ValueError, RecursionError):
        return _refused(line)


def _refused(line: bytes) -> types.JSONRPCError | None:
    try:
        value: Any = from_json(line)
    except (ValueError, RecursionError):
        return _error(types.PARSE_ERROR, "this line is no JSON; each message is one line of JSON")
    if isinstance(value, list):
        return _error(types.INVALID_REQUEST, "batches are not supported; send each message in a line of its own")
    if not is_object(value):
        return _error(types.INVALID_REQUEST, "this line is no message of JSON-RPC 2.0")
    if "method" not in value or "id" not in value:
        return None  # a notification or a response, to which there is no answer
    request_id: Any = value["id"]
    is_id = isinstance(request_id, str | int) and not isinstance(request_id, bool)
    return _error(types.INVALID_REQUEST, "this is no request of JSON-RPC 2.0", request_id if is_id else None)


def _error(code: int, message: str, request_id: str | int | None = None) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=types.ErrorData(code=code, message=message))


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


# Lines are read and understood in a thread, so that a long one keeps nobody waiting.

ANSWER_SECONDS = 30.0
"""For so long at most what is under way is answered once the input has ended."""

MOST_REQUESTS = 1_000
"""So many are answered at a time: a client that asks and does not read would hold all memory there is."""

_LOOK_SECONDS = 0.2
_WITHOUT_END = ("subscriptions/listen",)
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def serve_stdio(server: Server[Any], until_ended: ExitStack) -> None:
    """Serve one client until its end of the pipe is closed, or this process is told to end.

    What it had asked by then is answered, as far as that takes no longer than `ANSWER_SECONDS`. Signals are taken until
    ``until_ended`` is closed: what is behind the server is ended too, and clients send one where that takes long.
    """
    options = server.create_initialization_options(
        NotificationOptions(tools_changed=True, prompts_changed=True, resources_changed=True)
    )
    with claimed() as pipes:
        until_ended.enter_context(_ended_by_signals(pipes))
        async with _streams(pipes) as (read, write):
            await server.run(read, write, options)


@asynccontextmanager
async def _streams(pipes: Pipes) -> AsyncGenerator[tuple[Any, Any]]:
    """Give the streams that the SDK serves."""
    to_server, read = create_context_streams[SessionMessage | Exception](0)
    write, from_server = create_context_streams[SessionMessage](0)

    under_way = _UnderWay()

    async def receive(left: asyncio.Event) -> None:
        async with to_server:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async for said in pipes.received():
                    refused = under_way.take(said.message) if isinstance(said, SessionMessage) else said
                    if refused is not None:
                        await pipes.send(_text(refused))
                    elif isinstance(said, SessionMessage):
                        await to_server.send(said)
                left.set()
                await under_way.over(pipes)

    async def send() -> None:
        async with from_server:
            async for one in from_server:
                await pipes.send(_text(one.message))
                under_way.answered(one.message)

    with asking_no_more() as left:
        async with anyio.create_task_group() as group:
            group.start_soon(receive, left)
            group.start_soon(send)
            try:
                yield read, write
            finally:
                pipes.end()


class _UnderWay:
    """The requests of the client that nobody has answered yet, by id as the SDK tells them apart.

    With each stands whether it comes to an answer by itself.
    """

    def __init__(self) -> None:
        self._open: dict[str, bool] = {}
        self._changed = asyncio.Event()

    def take(self, message: types.JSONRPCMessage) -> types.JSONRPCError | None:
        """See a request come, or be taken back. Returns the refusal of one that is not to be served."""
        if isinstance(message, types.JSONRPCRequest):
            if str(message.id) in self._open:
                return _refusal(message.id, "A request of this id is being answered: take another")
            if len(self._open) >= MOST_REQUESTS:
                words = f"At most {MOST_REQUESTS} requests are answered at a time: send this once others are"
                return _refusal(message.id, words)
            self._open[str(message.id)] = message.method not in _WITHOUT_END
        elif isinstance(message, types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self._forget((message.params or {}).get("requestId"))
        return None

    def answered(self, message: types.JSONRPCMessage) -> None:
        """See an answer go."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._forget(message.id)

    async def over(self, pipes: Pipes) -> None:
        """Wait until all are answered, for a while, and while somebody reads the answers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while any(self._open.values()) and pipes.has_reader:
                    self._changed.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._changed.wait(), _LOOK_SECONDS)

    def _forget(self, request_id: Any) -> None:
        if isinstance(request_id, str | int):
            self._open.pop(str(request_id), None)
            self._changed.set()


def _refusal(request_id: types.RequestId, words: str) -> types.JSONRPCError:
    error = types.ErrorData(code=types.INVALID_REQUEST, message=words)
    return types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error)


def _text(message: types.JSONRPCMessage) -> bytes:
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8", "replace") + b"\n"


@contextmanager
def _ended_by_signals(pipes: Pipes) -> Generator[None]:
    """Let a signal end what is served as the end of its input does; behind that the first of a kind does nothing.

    A second one does what it always did: somebody is impatient. But a terminal that goes may say so twice by itself.
    """
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        if number != signal.SIGHUP:
            loop.remove_signal_handler(number)
        pipes.end()

    taken: list[int] = []
    for number in _SIGNALS:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # no main thread, or no such signal
            loop.add_signal_handler(number, end, number)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
