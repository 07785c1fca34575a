"""Hears of a server's other tools on a stream of the revision 2026-07-28, where it is offered. Lists nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mcp.client.subscriptions import listen
from mcp.shared.exceptions import MCPError

from .connection import Connection

_ANSWER_SECONDS = 30.0
_AGAIN_SECONDS = 60.0


class Listening:
    """What one connection is told of. ``is_open``: nobody has to ask the server whether its tools have changed."""

    def __init__(self) -> None:
        self.is_open = False

    async def keep(self, connection: Connection, began: Callable[[], Awaitable[None]]) -> None:
        """Listen until the connection ends, or the server has none of it. Its events come as notifications do.

        ``began`` is awaited whenever it listens: what has changed before that was told to nobody.
        """
        has_listened = False
        while connection.is_open:
            try:
                await self._listen(connection, began)
                has_listened = True
            except (MCPError, OSError, RuntimeError, TimeoutError):  # the SDK's own are of these
                has_listened = has_listened or self.is_open
            finally:
                self.is_open = False
            if not has_listened:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(connection.requests.ended.wait(), _AGAIN_SECONDS)

    async def _listen(self, connection: Connection, began: Callable[[], Awaitable[None]]) -> None:
        async with asyncio.timeout(_ANSWER_SECONDS) as limit:
            async with listen(connection.session, tools_list_changed=True) as stream:
                limit.reschedule(None)
                if not stream.honored.tools_list_changed:
                    raise TimeoutError
                self.is_open = True
                await began()
                async for _ in stream:
                    pass
