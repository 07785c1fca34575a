"""Renews the claim of a resume while it runs, and stops it when the claim is no longer its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from .guard import RENEW_SECONDS, ResumeGuard

_log = logging.getLogger("codemode.continuations")


class ClaimLost(Exception):  # noqa: N818 - tells what happened to the claim, is no error of the program
    """Somebody else took the claim over, for it was not renewed: the host must have stood still."""


@asynccontextmanager
async def renewed(guard: ResumeGuard, key: str) -> AsyncGenerator[None]:
    """Keep a claim alive while the block runs. Cancels the block and raises `ClaimLost` when it is lost."""
    renew = getattr(guard, "renew", None)
    owner = asyncio.current_task()
    if renew is None or owner is None:
        yield
        return
    is_lost = False

    async def keep() -> None:
        nonlocal is_lost
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                is_lost = not await renew(key)
            except Exception:  # noqa: BLE001 - a guard is host code, and may work again the next time
                _log.warning("the claim of a resume could not be renewed", exc_info=True)
                continue
            if is_lost:
                owner.cancel()
                return

    keeper = asyncio.get_running_loop().create_task(keep())
    try:
        yield
    except asyncio.CancelledError:
        if is_lost and not owner.uncancel():
            raise ClaimLost from None
        raise
    finally:
        keeper.cancel()
        await asyncio.wait([keeper])
