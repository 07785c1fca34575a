"""A gateway in this process with a client of its own: what a command sees is what any client would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ..mcp.gateway.gateway import Gateway

if TYPE_CHECKING:
    from ..mcp.config.values import GatewayConfig

_MORE_SECONDS = 10.0


@asynccontextmanager
async def opened(config: GatewayConfig) -> AsyncGenerator[tuple[Gateway, Any]]:
    """Give a gateway that runs, and the seat of its one local user."""
    async with Gateway(config) as gateway:
        yield gateway, await gateway.seat()


async def start(upstream: Any) -> str | None:
    """Start a server and list its tools, no longer than it may take. Returns what is wrong, None where all is well."""
    try:
        async with asyncio.timeout(upstream.config.connect_timeout_ms / 1000 + _MORE_SECONDS):
            await upstream.tools()
    except TimeoutError:
        return upstream.failure or "it does not answer in time: a larger connectTimeoutMs gives it more"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the others go on
        return upstream.failure or str(error) or type(error).__name__
    return None
