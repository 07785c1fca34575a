"""Those who listen to what happens in a console, as a server would let them, for the tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

BOUND_SECONDS = 60


class Listener:
    """One connection to ``/events``. ``takes`` is cleared where the client takes nothing."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.is_whole = False
        self.headers: dict[str, str] = {}
        self.takes, self.started, self.ended = (
            asyncio.Event(),
            asyncio.Event(),
            asyncio.Event(),
        )
        self.takes.set()
        self.sent: list[bytes] = []
        self._gone = asyncio.Event()
        self._new = asyncio.Event()
        self._read_file = 0

    async def receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.takes.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.started.set()
        else:
            self.is_whole = not message.get("more_body", False)
            if message.get("body"):
                self.sent.append(message["body"])
        self._new.set()

    def go(self) -> None:
        """Close the connection at the client's end."""
        self._gone.set()

    async def next(self) -> dict[str, str]:
        """Return the next event, as field and value."""
        async with asyncio.timeout(BOUND_SECONDS):
            while self._read_file == len(self.sent):
                self._new.clear()
                await self._new.wait()
        self._read_file += 1
        lines = self.sent[self._read_file - 1].decode().split("\r\n")
        return {name: value for name, _, value in (line.partition(": ") for line in lines if line)}

    async def changes(self, count: int) -> list[tuple[str, str]]:
        """Return the next changes, as record and kind."""
        found: list[tuple[str, str]] = []
        while len(found) < count:
            event = await self.next()
            if event.get("event") == "change":
                said = json.loads(event["data"])
                assert str(said["sequence"]) == event["id"]
                found.append((said["record"], said["kind"]))
        return found

    async def end(self) -> dict[str, str]:
        """Return the last event, once the connection has ended."""
        async with asyncio.timeout(BOUND_SECONDS):
            await self.ended.wait()
        last: dict[str, str] = {}
        while self._read_file < len(self.sent):
            last = await self.next()
        return last


@asynccontextmanager
async def listening(app: Any, cookies: Any, **asked: str) -> AsyncGenerator[Listener]:
    """Listen with these cookies; ``after`` and ``last_event_id`` say from where, ``method`` and others are headers."""
    listener = Listener()
    method, after = asked.pop("method", "GET"), asked.pop("after", None)
    path = asked.pop("path", "/events")
    cookie = "; ".join(f"{name}={value}" for name, value in dict(cookies).items())
    headers = {"host": "desk.test", "accept": "text/event-stream", "cookie": cookie, **asked}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "https",
        "path": path, "raw_path": path.encode(), "root_path": "", "client": ("192.0.2.1", 5),
        "query_string": b"" if after is None else f"after={after}".encode(), "server": ("desk.test", 443),
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip

    async def work() -> None:
        try:
            await app(scope, listener.receive, listener.send)
        finally:
            listener.ended.set()

    task = asyncio.create_task(work())
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            await listener.started.wait()
        yield listener
    finally:
        listener.go()
        listener.takes.set()
        await asyncio.wait([task], timeout=BOUND_SECONDS)
        assert task.done()
        task.result()
