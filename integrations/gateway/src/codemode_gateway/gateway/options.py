"""Options of a gateway, its signing keys, and its store, opened on first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codemode.cached_property import cached_property
from codemode.data.narrowing import is_mapping

from ..config.codemode_section import SQLITE
from ..config.model import ConfigError, GatewaySettings
from ..config.places import COMMAND
from ..state_files import not_private

if TYPE_CHECKING:
    from mcp.server.auth.provider import TokenVerifier

    from codemode.continuations.guard import ResumeGuard
    from codemode.continuations.journal import Journal
    from codemode.stores.interrupt_store import InterruptStore
    from codemode.workers.pool import WorkerPool


# A client is known by the name it gives itself; what is here was seen at its documents, its source or its issues.

Asks = Literal["declared", "console"]

DOTTED, PLAIN = "codemode.run", "codemode_run"
TOOL_NAMES = (DOTTED, PLAIN)
"""Both are always accepted, whichever is announced."""

_VIA = (" (via ", " via ")


@dataclass(frozen=True)
class Announced:
    """What one client is shown, and how it can ask a person.

    ``tool_name`` is the announced name, ``description_characters`` what it reads of a description; ``asks`` is
    ``declared`` where it can do what it declares, ``console`` where it is not to be asked at all.
    """

    tool_name: str = PLAIN
    description_characters: int = 4_000
    takes_dots: bool = False
    asks: Asks = "declared"


# Without a row: an underscore, 4,000 characters, and the ways to ask that the client itself declares.
CLIENTS: Mapping[str, Announced] = {
    "claude-code": Announced(description_characters=2_000),  # cuts at 2,048, and says so in no log
    "codex-mcp-client": Announced(description_characters=4_000),
    "mcp-inspector": Announced(takes_dots=True),
    "inspector-client": Announced(takes_dots=True),
    "inspector-cli": Announced(takes_dots=True),
}


def announced(client_info: Any, settings: GatewaySettings) -> Announced:
    """Return what a client is shown: by its name, with what the settings say otherwise.

    ``client_info`` is the SDK's ``Implementation``, or None. ``settings.clients`` has, by name, ``toolName``,
    ``descriptionCharacters`` and ``asks``; ``*`` is every client.
    """
    name = _plain(getattr(client_info, "name", None))
    known = CLIENTS.get(name, Announced())
    wanted = settings.tool_name
    if settings.clients:
        own = {_plain(key): value for key, value in settings.clients.items()}
        for said in (own.get("*"), own.get(name)):
            if is_mapping(said):
                wanted = str(said.get("toolName", wanted))
                known = _overridden(known, said)
    auto = DOTTED if known.takes_dots else PLAIN
    return replace(known, tool_name=auto if wanted == "auto" else wanted)


def _overridden(known: Announced, said: Mapping[str, Any]) -> Announced:
    characters = said.get("descriptionCharacters", known.description_characters)
    return replace(known, description_characters=int(characters), asks=said.get("asks", known.asks))


def _plain(name: Any) -> str:
    """Return a name as the table has it: a proxy adds itself to the name of the client behind it."""
    plain = name.casefold() if isinstance(name, str) else ""
    for via in _VIA:
        plain = plain.partition(via)[0]
    return plain.strip()


_NAME = "gateway.key"
_BYTES = 32


def keys_of(named: tuple[str, ...], folder: Path) -> tuple[bytes, ...]:
    """Return the keys: the last one signs. Without any named, the one kept in ``folder``, made where there is none.

    Of several gateways that make it at once, all take the same. Raises `ConfigError` where it cannot be kept.
    """
    if named:
        return tuple(key.encode() for key in named)
    path = folder / _NAME
    try:
        return (_kept(path) or _make_key(path),)
    except OSError as error:
        raise ConfigError(
            f"the key of this gateway cannot be kept in {folder}: {error.strerror}; name a folder that can be written"
            " (the environment variable XDG_STATE_HOME), or keys of your own (codemode.keys)"
        ) from error


def _kept(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        return None
    try:
        problem, key = not_private(os.fstat(descriptor)), b""
        if problem is None:
            key = os.read(descriptor, _BYTES + 1)
    finally:
        os.close(descriptor)
    if problem is not None:
        raise ConfigError(f"{path}, this gateway's key, is not used: {problem}; or name others (codemode.keys)")
    if len(key) != _BYTES:
        raise ConfigError(f"{path} is no key of a gateway: it has not {_BYTES} bytes; remove it, and a new one is made")
    return key


def _make_key(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mine = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(_BYTES))
        # Whole or not at all, and the first one stays.
        with suppress(FileExistsError):
            os.link(mine, path)
    finally:
        mine.unlink()
    kept = _kept(path)
    if kept is None:
        raise FileNotFoundError(2, "it was removed as it was made")
    return kept


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
        return self._given or _make_store(self._url, self._folder)

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


def _make_store(url: str | None, folder: Path) -> InterruptStore:
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


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """Options of a `Gateway`.

    ``store`` takes the place of the one that the configuration names; whoever gives one closes it. ``pool`` runs the
    programs, None is the process-wide one. ``over_http`` says how it will be served, which decides about the journal
    and about what is learnt where the configuration does not. ``verifier``, the SDK's ``TokenVerifier``, says over HTTP
    whose a token is. ``open_browser`` gets the URL of a
    sign-in where a person is at this machine, ``callback_url`` is where their browser comes back to. ``command`` is
    what a user's terminal reaches this gateway with, for a shell: what a model is to tell them begins with it.
    ``servers`` are for tests: they take the place of all that the configuration names.
    """

    store: InterruptStore | None = None
    pool: WorkerPool | None = None
    over_http: bool = False
    verifier: TokenVerifier | None = None
    open_browser: Callable[[str], object] | None = None
    callback_url: str | None = None
    command: str = COMMAND
    servers: Sequence[Any] | None = None
