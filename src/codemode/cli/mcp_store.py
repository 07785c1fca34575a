"""The store that a gateway's configuration names, for one command, and who decides in it at the terminal."""

from __future__ import annotations

import getpass
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from ..mcp.config.values import GatewayConfig
    from ..stores.protocol import InterruptStore

Found = TypeVar("Found")


async def with_store(config: GatewayConfig, work: Callable[[InterruptStore], Awaitable[Found]]) -> Found:
    """Do some work with the store, and close it."""
    from ..mcp.gateway.gateway import Gateway

    store = Gateway(config).store
    try:
        return await work(store)
    finally:
        await store.aclose()


def actor() -> str:
    """Return whose decision it is, for the audit: the user of this machine."""
    return f"{getpass.getuser()}@terminal"
