"""Whether the gateway lives, and whether it can work now: its store answers, and workers start. Tells no more."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from codemode.errors import CodeModeConcurrencyError
from codemode.workers.pool import pool_or_default

from .principals import LOCAL

_log = logging.getLogger("codemode.mcp")
_KEPT_SECONDS = 5.0
_CHECK_SECONDS = 3.0
"""Both at a time: whoever probes a gateway waits for about five."""
_MEMORY_BYTES = 64 << 20


class Health:
    """Answers of ``/healthz`` and ``/readyz``. However often somebody asks, things are looked at every five seconds."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._checking: asyncio.Task[dict[str, str]] | None = None
        self._until = 0.0

    async def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return a status and what is said with it."""
        if path == "/healthz":
            return 200, {"status": "ok"}
        if self._checking is None or (self._checking.done() and time.monotonic() > self._until):
            self._checking = asyncio.get_running_loop().create_task(self._checked())
        found = await asyncio.shield(self._checking)
        is_ready = all(said == "ok" for said in found.values())
        return (200, {"status": "ready", **found}) if is_ready else (503, {"status": "not ready", **found})

    async def _checked(self) -> dict[str, str]:
        store, workers = await asyncio.gather(_tried(self._store), _tried(self._workers))
        found = {"store": store, "workers": workers}
        self._until = time.monotonic() + _KEPT_SECONDS
        return found

    async def _store(self) -> None:
        await self._gateway.store.list(tenant=LOCAL.id, limit=1)

    async def _workers(self) -> None:
        pool = pool_or_default(getattr(self._gateway.options, "pool", None))
        try:
            lease = await pool.acquire(_MEMORY_BYTES, "fail")
        except CodeModeConcurrencyError:
            return  # workers run: who has no room is busy and not broken
        lease.leave()
        lease.refill()


async def _tried(check: Any) -> str:
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            await check()
    except Exception as error:  # noqa: BLE001 - whatever it is, the gateway cannot work
        _log.warning("the gateway is not ready: %s: %s", check.__name__.strip("_"), type(error).__name__)
        return "failed"
    return "ok"
