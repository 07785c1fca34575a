"""Standard input and output as a transport: nothing on them but protocol. Answers no request itself.

Lines are read and understood in a thread, so that a long one keeps nobody waiting.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage

from .callers import asking_no_more
from .pipes import Pipes, claimed

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

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
