"""A real HTTP server on loopback that answers with the exact bytes a test wants, broken ones included."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

START_SECONDS = 60.0


@dataclass(frozen=True)
class Request:
    """What arrived. Header names are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


Responder = Callable[[Request, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def response(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """The bytes of a well-formed response. Underscores in header names become hyphens."""
    given = {"content-length": str(len(body)), "connection": "close"}
    given.update({name.replace("_", "-"): value for name, value in headers.items()})
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode("latin-1") + body


def redirect(location: str, status: str = "302 Found") -> bytes:
    return response(status=status, location=location)


@dataclass
class HttpServer:
    """Serves in a thread of its own between `start` and `stop`. One request per connection."""

    host: str = "127.0.0.1"
    tls: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    def __post_init__(self) -> None:
        self._routes: dict[str, bytes | Responder] = {}
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def origin(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.tls else ''}://{host}:{self.port}"

    def on(self, path: str, answer: bytes | Responder) -> str:
        """Answer a path with these bytes, or let a function write. Returns the URL."""
        self._routes[path] = answer
        return self.origin + path

    def asked(self) -> list[str]:
        """Method and target of every request so far."""
        return [f"{request.method} {request.target}" for request in self.requests]

    def start(self) -> HttpServer:
        self._thread.start()
        assert self._started.wait(START_SECONDS)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(START_SECONDS)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accept, self.host, 0, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            self._connections.discard(task)
            writer.transport.abort() if task.cancelling() else writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")[:-2]
        method, target, _version = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, target, headers, body)
        self.requests.append(request)
        answer = self._routes.get(request.path, response(b"nothing here", "404 Not Found"))
        if isinstance(answer, bytes):
            writer.write(answer)
            await writer.drain()
        else:
            await answer(request, reader, writer)


def echo(request: Request) -> bytes:
    """A response that says what was asked, as JSON."""
    import json

    seen = {"method": request.method, "target": request.target, "headers": request.headers}
    return response(json.dumps({**seen, "body": request.body.decode("latin-1")}).encode())
