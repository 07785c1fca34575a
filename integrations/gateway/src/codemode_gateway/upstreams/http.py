"""The transports of servers over HTTP: streamable HTTP, and the older one with server-sent events. Knows no calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from ..config.secrets import Secrets
from ..config.values import ServerConfig
from .connection import Transport
from .http_client import MAX_EVENT_BYTES, BoundedClient
from .losses import UpstreamFailure

MAX_BODY_BYTES = 32 << 20
_QUIET_SECONDS = 3600.0


def http_transport(config: ServerConfig, secrets: Secrets, auth: httpx2.Auth | None) -> Transport:
    """Return how a server over HTTP is reached."""
    client = BoundedClient(config, auth, MAX_BODY_BYTES, secrets.text)

    def ending() -> UpstreamFailure | None:
        return client.failure

    streams = _streamable(config, client) if config.transport == "http" else _events(config, client)
    return Transport(streams, ending, tells_sending=False)


@asynccontextmanager
async def _streamable(config: ServerConfig, client: BoundedClient) -> AsyncGenerator[tuple[Any, Any]]:
    async with (
        client,
        streamable_http_client(config.url or "", http_client=client, max_sse_event_size=MAX_EVENT_BYTES) as streams,
    ):
        yield streams


@asynccontextmanager
async def _events(config: ServerConfig, client: BoundedClient) -> AsyncGenerator[tuple[Any, Any]]:
    def made(headers: object = None, timeout: object = None, auth: object = None) -> httpx2.AsyncClient:  # noqa: ARG001 - the SDK's names
        return client

    async with sse_client(config.url or "", httpx_client_factory=made, sse_read_timeout=_QUIET_SECONDS) as (
        read,
        write,
    ):
        # What cannot be said to the server has no answer: all who wait for one are told.
        ending = asyncio.create_task(_end_when_broken(client, read))
        try:
            yield read, write
        finally:
            ending.cancel()
            await asyncio.wait([ending])


async def _end_when_broken(client: BoundedClient, read: Any) -> None:
    await client.broken.wait()
    await read.aclose()
