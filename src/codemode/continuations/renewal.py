"""Renews the claim of a resume while it runs, and stops it when the claim is no longer its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from ..host.cancellation import alongside
from ..host.clock import passed_seconds
from .guard import LAPSE_SECONDS, RENEW_SECONDS, ResumeGuard

_log = logging.getLogger("codemode.continuations")


_SURELY_OURS_SECONDS = LAPSE_SECONDS / 2


class ClaimLost(Exception):  # noqa: N818 - tells what happened to the claim, is no error of the program
    """Somebody else took the claim over, for it was not renewed: the host must have stood still."""


class Renewal:
    """The claim of a resume that runs in a task: renewed, and asked for anew where its host may have stood still."""

    def __init__(
        self, renew: Callable[[str], Awaitable[bool]], key: str, owner: asyncio.Task[Any], asked_at: float
    ) -> None:
        self._renew = renew
        self._key = key
        self._owner = owner
        self._turn = asyncio.Lock()
        self._renewed_at = asked_at
        self.is_lost = False

    async def keep(self) -> None:
        """Renew it until it is lost."""
        while not self.is_lost:
            await asyncio.sleep(RENEW_SECONDS)
            async with self._turn:
                await self._renew_now()

    async def require(self) -> None:
        """Wait until a call may begin: as long as nobody can have taken the claim over. Raises `CancelledError`."""
        if passed_seconds() - self._renewed_at < _SURELY_OURS_SECONDS:
            return
        async with self._turn:
            while not self.is_lost and passed_seconds() - self._renewed_at >= _SURELY_OURS_SECONDS:
                if not await self._renew_now():
                    await asyncio.sleep(RENEW_SECONDS)
        if self.is_lost:
            raise asyncio.CancelledError

    async def _renew_now(self) -> bool:
        """Return False when the guard could not be asked."""
        asked_at = passed_seconds()
        try:
            self.is_lost = not await self._renew(self._key)
        except Exception:  # noqa: BLE001 - a guard is host code, and may work again the next time
            _log.warning("the claim of a resume could not be renewed", exc_info=True)
            return False
        self._renewed_at = asked_at
        if self.is_lost:
            self._owner.cancel()
        return True


@asynccontextmanager
async def renewed(guard: ResumeGuard, key: str, asked_at: float) -> AsyncGenerator[Renewal | None]:
    """Keep a claim alive while the block runs. Cancels the block and raises `ClaimLost` when it is lost.

    ``asked_at`` is when the guard was asked for it, by `passed_seconds`: this host may have stood still since.
    """
    renew = getattr(guard, "renew", None)
    owner = asyncio.current_task()
    if renew is None or owner is None:
        yield None
        return
    renewal = Renewal(renew, key, owner, asked_at)
    async with alongside(renewal.keep()):
        try:
            yield renewal
        except asyncio.CancelledError:
            if renewal.is_lost and not owner.uncancel():
                raise ClaimLost from None
            raise
