"""Define options of a gateway, its signing keys and its store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from codemode.cached_property import cached_property
from codemode.data.narrowing import is_mapping

from ..config.codemode_section import SQLITE_URL_PREFIX
from ..config.locations import GATEWAY_COMMAND
from ..config.model import ConfigError, GatewaySettings
from ..state_files import find_file_privacy_problem

if TYPE_CHECKING:
    from mcp.server.auth.provider import TokenVerifier

    from codemode.continuations.guard import ResumeGuard
    from codemode.continuations.journal import Journal
    from codemode.stores.interrupt_store import InterruptStore
    from codemode.workers.pool import WorkerPool


# Clients are identified by their own name; the values come from their documentation, source or issues.

AskMode = Literal["declared", "console"]

DOTTED_TOOL_NAME, PLAIN_TOOL_NAME = "codemode.run", "codemode_run"
TOOL_NAMES = (DOTTED_TOOL_NAME, PLAIN_TOOL_NAME)
"""Calls may use either name, regardless of the announced one."""

_PROXY_MARKERS = (" (via ", " via ")


@dataclass(frozen=True)
class ClientProfile:
    """Properties of a client and how it asks its user.

    ``description_characters`` is how much of a tool description it reads. ``ask_mode`` is ``declared`` (use the
    capabilities that it declares) or ``console`` (never ask the client).
    """

    tool_name: str = PLAIN_TOOL_NAME
    description_characters: int = 4_000
    allows_dots: bool = False
    ask_mode: AskMode = "declared"


# Other clients get an underscore, 4,000 characters and the questions that they declare.
CLIENT_PROFILES: Mapping[str, ClientProfile] = {
    "claude-code": ClientProfile(description_characters=2_000),  # silently cuts at 2,048
    "codex-mcp-client": ClientProfile(description_characters=4_000),
    "mcp-inspector": ClientProfile(allows_dots=True),
    "inspector-client": ClientProfile(allows_dots=True),
    "inspector-cli": ClientProfile(allows_dots=True),
}


def find_client_profile(client_info: Any, settings: GatewaySettings) -> ClientProfile:
    """Return the profile of a client by its name, with overrides from the settings.

    ``client_info`` is the SDK's ``Implementation`` or None. ``settings.clients`` maps names (``*`` for all) to
    ``toolName``, ``descriptionCharacters`` and ``asks``.
    """
    name = _normalize_client_name(getattr(client_info, "name", None))
    profile = CLIENT_PROFILES.get(name, ClientProfile())
    tool_name = settings.tool_name
    if settings.clients:
        overrides = {_normalize_client_name(key): value for key, value in settings.clients.items()}
        for override in (overrides.get("*"), overrides.get(name)):
            if is_mapping(override):
                tool_name = str(override.get("toolName", tool_name))
                profile = _apply_override(profile, override)
    default_name = DOTTED_TOOL_NAME if profile.allows_dots else PLAIN_TOOL_NAME
    return replace(profile, tool_name=default_name if tool_name == "auto" else tool_name)


def _apply_override(profile: ClientProfile, override: Mapping[str, Any]) -> ClientProfile:
    characters = override.get("descriptionCharacters", profile.description_characters)
    return replace(profile, description_characters=int(characters), ask_mode=override.get("asks", profile.ask_mode))


def _normalize_client_name(name: Any) -> str:
    """Return the name in lower case, without the suffix that proxies append."""
    plain = name.casefold() if isinstance(name, str) else ""
    for via in _PROXY_MARKERS:
        plain = plain.partition(via)[0]
    return plain.strip()


_KEY_FILE_NAME = "gateway.key"
_KEY_BYTES = 32


def load_or_create_signing_keys(configured_keys: tuple[str, ...], folder: Path) -> tuple[bytes, ...]:
    """Return the signing keys; the last one signs. Without configured keys, use the key file in ``folder``.

    The file is created once, also by concurrent gateways. Raises `ConfigError` if it cannot be stored.
    """
    if configured_keys:
        return tuple(key.encode() for key in configured_keys)
    path = folder / _KEY_FILE_NAME
    try:
        return (_read_signing_key(path) or _create_signing_key(path),)
    except OSError as error:
        raise ConfigError(
            f"the gateway's key cannot be stored in {folder}: {error.strerror}; choose a writable folder"
            " (environment variable XDG_STATE_HOME) or set codemode.keys"
        ) from error


def _read_signing_key(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        return None
    try:
        problem, key = find_file_privacy_problem(os.fstat(descriptor)), b""
        if problem is None:
            key = os.read(descriptor, _KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if problem is not None:
        raise ConfigError(f"the gateway's key {path} is not used: {problem}; or set codemode.keys")
    if len(key) != _KEY_BYTES:
        raise ConfigError(
            f"{path} is not a gateway key: it must have {_KEY_BYTES} bytes; remove the file to create a new key"
        )
    return key


def _create_signing_key(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary_path = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.urandom(_KEY_BYTES))
        # Atomic; the first key stays.
        with suppress(FileExistsError):
            os.link(temporary_path, path)
    finally:
        temporary_path.unlink()
    key = _read_signing_key(path)
    if key is None:
        raise FileNotFoundError(2, "it was removed during creation")
    return key


_STORE_FILE_NAME = "gateway.sqlite"
_POSTGRES_PREFIXES = ("postgresql://", "postgres://")
APP_NAME = "codemode-mcp"


class LazyStore:
    """The configured store, imported and opened on first use."""

    def __init__(self, settings: GatewaySettings, folder: Path, custom_store: InterruptStore | None = None) -> None:
        self._url = settings.store
        self._folder = folder
        self._custom_store = custom_store
        self.guard: Any = LazyResumeGuard(self)

    @cached_property
    def store(self) -> InterruptStore:
        """The opened store."""
        return self._custom_store or _create_store(self._url, self._folder)

    def ensure_usable(self) -> None:
        """Raise early for a folder that cannot be created or a missing package."""
        if self._custom_store is not None:
            return
        if self._url is not None and self._url.startswith(_POSTGRES_PREFIXES):
            _ = self.store
        else:
            _create_parent_folder(_get_store_path(self._url, self._folder))

    def get_journal(self, tenant: str) -> Journal:
        """Return the journal of one principal."""
        return self.store.journal(tenant=tenant, app=APP_NAME)

    async def aclose(self) -> None:
        """Close the store if it was opened here."""
        if self._custom_store is None and "store" in vars(self):
            await self.store.aclose()


class LazyResumeGuard:
    """The resume guard of a store that is opened with the first claim."""

    def __init__(self, lazy_store: LazyStore) -> None:
        self._lazy_store = lazy_store

    @property
    def _guard(self) -> ResumeGuard:
        return self._lazy_store.store.guard

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


def _create_store(url: str | None, folder: Path) -> InterruptStore:
    if url is not None and url.startswith(_POSTGRES_PREFIXES):
        from codemode.stores.postgres import PostgresInterruptStore

        return PostgresInterruptStore(url)
    from codemode.stores.sqlite import SqliteInterruptStore

    path = _get_store_path(url, folder)
    _create_parent_folder(path)
    return SqliteInterruptStore(path)


def _get_store_path(url: str | None, folder: Path) -> Path:
    return folder / _STORE_FILE_NAME if url is None else Path(url.removeprefix(SQLITE_URL_PREFIX))


def _create_parent_folder(path: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the store {path} cannot be created: {error.strerror}; set codemode.store to another one"
        ) from error


@dataclass(frozen=True, kw_only=True)
class GatewayOptions:
    """Options of a `Gateway`.

    ``store`` replaces the configured store; its creator closes it. ``pool`` runs the programs, None is the process-wide
    pool. ``over_http`` selects the defaults of serving over HTTP. ``verifier`` is the SDK's ``TokenVerifier`` for
    HTTP. ``open_browser`` receives the sign-in URL of a local user, ``callback_url`` is the redirect URL. ``command``
    is the shell command that starts commands for users. ``servers`` replaces the configured servers in tests.
    """

    store: InterruptStore | None = None
    pool: WorkerPool | None = None
    over_http: bool = False
    verifier: TokenVerifier | None = None
    open_browser: Callable[[str], object] | None = None
    callback_url: str | None = None
    command: str = GATEWAY_COMMAND
    servers: Sequence[Any] | None = None
