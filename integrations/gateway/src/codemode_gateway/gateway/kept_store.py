"""The store of a gateway: which one it is, opened when something is kept. Keeps nothing itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from codemode.cached_property import cached_property

from ..config.settings import SQLITE
from ..config.values import ConfigError, GatewaySettings

if TYPE_CHECKING:
    from codemode.continuations.guard import ResumeGuard
    from codemode.continuations.journal import Journal
    from codemode.stores.interrupt_store import InterruptStore

_FILE = "gateway.sqlite"
_POSTGRES = ("postgresql://", "postgres://")
APP = "codemode-mcp"


class KeptStore:
    """The store that settings name, or ``given``, imported and opened when it is first asked for something."""

    def __init__(self, settings: GatewaySettings, folder: Path, given: InterruptStore | None = None) -> None:
        self._url = settings.store
        self._folder = folder
        self._given = given
        self.guard: Any = LateGuard(self)

    @cached_property
    def store(self) -> InterruptStore:
        """The store itself."""
        return self._given or _made(self._url, self._folder)

    def require(self) -> None:
        """Raise what shows now that there can be no store: a folder that cannot be made, a package that is missing."""
        if self._given is not None:
            return
        if self._url is not None and self._url.startswith(_POSTGRES):
            _ = self.store
        else:
            _folder_made(_file_of(self._url, self._folder))

    def journal(self, tenant: str) -> Journal:
        """Return the journal of one principal."""
        return self.store.journal(tenant=tenant, app=APP)

    async def aclose(self) -> None:
        """Close the store, unless it was given, or never asked for."""
        if self._given is None and "store" in vars(self):
            await self.store.aclose()


class LateGuard:
    """The guard of a store that is opened with the first claim."""

    def __init__(self, kept: KeptStore) -> None:
        self._kept = kept

    @property
    def _guard(self) -> ResumeGuard:
        return self._kept.store.guard

    async def claim(self, claim: Any) -> Any:
        """Do what `ResumeGuard.claim` does."""
        return await self._guard.claim(claim)

    async def renew(self, key: str) -> bool:
        """Do what `ResumeGuard.renew` does."""
        return await self._guard.renew(key)

    async def record(self, key: str, outcome: str) -> str | None:
        """Do what `ResumeGuard.record` does."""
        return await self._guard.record(key, outcome)

    async def release(self, key: str) -> None:
        """Do what `ResumeGuard.release` does."""
        await self._guard.release(key)


def _made(url: str | None, folder: Path) -> InterruptStore:
    if url is not None and url.startswith(_POSTGRES):
        from codemode.stores.postgres import PostgresInterruptStore

        return PostgresInterruptStore(url)
    from codemode.stores.sqlite import SqliteInterruptStore

    path = _file_of(url, folder)
    _folder_made(path)
    return SqliteInterruptStore(path)


def _file_of(url: str | None, folder: Path) -> Path:
    return folder / _FILE if url is None else Path(url.removeprefix(SQLITE))


def _folder_made(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the store {path} cannot be made: {error.strerror}; name another one (codemode.store)"
        ) from error
