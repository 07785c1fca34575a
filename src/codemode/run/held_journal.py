"""A journal that is being opened, maybe for as long as somebody else has it. Knows no worker."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..continuations.journal import OpenedJournal
from .journal_access import JournalAccess
from .journaled import InvocationJournal


class JournalHeld(Exception):  # noqa: N818 - tells how far the run has come, and is no error of it
    """The journal of a program is somebody else's for now.

    Whoever waits for it has no worker meanwhile: else two could wait for each other, one with the last worker of the
    pool, and one with the journal. ``held`` is where it waits.
    """

    def __init__(self, held: HeldJournal) -> None:
        super().__init__("the journal of this program is somebody else's for now")
        self.held = held


class HeldJournal:
    """Opens the journal of one program, once. When it is this host's its lease is renewed, whoever takes it when."""

    def __init__(self, access: JournalAccess) -> None:
        self.access = access
        self._journal: InvocationJournal | None = None
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is open, or cannot be, and return True; False when that takes longer."""
        done, _ = await asyncio.wait([self._opening], timeout=seconds)
        return bool(done)

    async def taken(self) -> tuple[OpenedJournal, InvocationJournal | None]:
        """Return it, with what writes it unless it has ended. Raises as `JournalAccess.open` does."""
        opened = await self._opening
        journal, self._journal = self._journal, None
        return opened, journal

    async def give_up(self) -> None:
        """Let go of what nobody has taken."""
        self._opening.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await self._opening
        if self._journal is not None:
            await self._journal.release()

    async def _open(self) -> OpenedJournal:
        opened = await self.access.open()
        if opened.outcome is None:
            self._journal = InvocationJournal(self.access, opened)
        return opened
