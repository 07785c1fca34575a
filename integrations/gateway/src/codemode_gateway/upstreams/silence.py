"""How long a server has said nothing at all since it was asked something."""

from __future__ import annotations

import asyncio


class Silence:
    """The silence of one connection. Whatever a server says ends it, be it the answer or not."""

    def __init__(self) -> None:
        self._since: float | None = None

    def asked(self) -> None:
        """Take note that the server is asked something."""
        if self._since is None:
            self._since = asyncio.get_running_loop().time()

    def heard(self) -> None:
        """Take note that the server has said something."""
        self._since = None

    @property
    def seconds(self) -> float:
        """How long it lasts; 0 where nothing was asked since the server was last heard."""
        return 0.0 if self._since is None else asyncio.get_running_loop().time() - self._since
