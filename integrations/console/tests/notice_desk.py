"""A store with pauses, a receiver on loopback and senders between them, for the tests of notices."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codemode_console.notices import NoticeSender, NoticeTarget
from codemode_console.notices.sender import WebhookClient
from http_server import HttpServer, Request, response
from stored_pauses import Clock

from codemode.stores import InterruptStore, MemoryInterruptStore, SqliteInterruptStore

BASE_URL = "https://desk.test/approvals"
OK = response(b"ok")


@contextmanager
def receiver(tls: ssl.SSLContext | None = None) -> Iterator[HttpServer]:
    server = HttpServer("localhost" if tls else "127.0.0.1", tls).start()
    try:
        yield server
    finally:
        server.stop()


class Desk:
    """One store and what sends from it; time is moved by the test."""

    def __init__(self, *targets: NoticeTarget, path: Path | None = None) -> None:
        self.clock = Clock()
        self.clock.stop()
        self.store: InterruptStore = MemoryInterruptStore(clock=self.clock)
        if path is not None:
            self.store = SqliteInterruptStore(path, clock=self.clock)
        self.targets = targets
        self.slept: list[float] = []
        self.sender = NoticeSender(self.store, targets, BASE_URL, sleep=self._sleep, random_fraction=lambda: 1.0)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def rounds(self) -> None:
        """Send all that is to be sent now."""
        for target in self.targets:
            async with WebhookClient(target.url) as post:
                while await self.sender.send_batch_and_pause(target, post):
                    pass

    async def move(self, seconds: float) -> None:
        """Let time pass, and send what is to be sent then."""
        self.clock.moved_ms += int(seconds * 1000)
        await self.rounds()


def bodies(server: HttpServer) -> list[Any]:
    return [json.loads(request.body) for request in server.requests]


def header(request: Request, name: str) -> str:
    return request.headers[name.lower()]
