"""What is remembered and learned of the servers of one principal, as hooks for whoever connects them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from .learning import Shapes
from .pins import Pins


class Known:
    """Pins and, where it ``learns``, observed types of one principal, read once for all connections.

    ``folder`` is that of the state, ``cache_folder``, else the same, that of what may be lost.
    """

    def __init__(
        self, folder: Path | None, principal: str = "local", *, cache_folder: Path | None = None, learns: bool = True
    ) -> None:
        pins = Pins(folder, principal)
        self.hooks: dict[str, Any] = {"listed": pins.listed, "notes": pins.notes, "changes": pins.changes}
        """What `UpstreamHooks` takes."""
        self._shapes = Shapes(cache_folder or folder, principal) if learns else None
        if self._shapes is not None:
            shapes = self._shapes
            self.hooks |= {"returned": shapes.returned, "observed": shapes.observed, "learned": shapes.learned}
        self._lock = asyncio.Lock()
        self._is_loaded = False

    async def load(self) -> None:
        """Take what is kept, the first time."""
        async with self._lock:
            if self._shapes is not None and not self._is_loaded:
                await self._shapes.load()
            self._is_loaded = True

    async def aclose(self) -> None:
        """Write down what was learned."""
        if self._shapes is not None:
            await self._shapes.aclose()


class KnownOf:
    """What is known for each principal, for as long as some connection of theirs has it: users come without end."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._had: dict[str, Known] = {}
        self._users: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._had)

    @asynccontextmanager
    async def of(self, principal: str, *, learns: bool) -> AsyncGenerator[Known]:
        """Give what is known for a principal, the same to all who have it at a time; write it down behind the last."""
        known = self._had.get(principal)
        if known is None:
            known = self._had[principal] = Known(self._folder, principal, learns=learns)
        self._users[principal] = self._users.get(principal, 0) + 1
        try:
            await known.load()
            yield known
        finally:
            try:
                if self._users[principal] == 1:
                    await known.aclose()  # before anybody reads it anew
            finally:
                self._users[principal] -= 1
                if not self._users[principal]:
                    del self._users[principal], self._had[principal]
