"""Store token records in the keyring or in private files that processes lock."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import re
import stat
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Predicate
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, ProtectedResourceMetadata
from pydantic import BaseModel, ConfigDict, FiniteFloat

from codemode.host.threads import BackgroundThreads

from ..state_files import (
    UnsafeFileError,
    is_file_unused,
    mark_file_used,
    read_private_file,
    start_cleanup_if_due,
    write_private_file,
)
from .settings import Storage

_IS_POSIX = os.name == "posix"
_POLL_SECONDS = 0.05
_LEFTOVER_SECONDS = 60.0
_REMOVABLE_FILE = re.compile(r"[0-9a-f]{40}\.(lock|browser\.lock|url|brought)")


def ensure_private_folder(path: Path) -> Path:
    """Create the folder if missing and check that only this user can access it. Raises `OSError`."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _IS_POSIX:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise UnsafeFileError(f"{path} is not a folder of this user; move it away: tokens are stored there")
        if status.st_mode & 0o077:
            path.chmod(0o700)
    return path


def write_private_text(path: Path, text: str) -> None:
    """Write a file of a folder that only this user can access. Raises `OSError`."""
    for leftover in ensure_private_folder(path.parent).glob(".*"):  # of processes that died while writing
        with suppress(OSError):
            if is_file_unused(leftover.lstat(), _LEFTOVER_SECONDS):
                leftover.unlink()
    write_private_file(path, text.encode())


@asynccontextmanager
async def hold_lock(path: Path, timeout_s: float) -> AsyncGenerator[None]:
    """Hold a lock shared by all processes that use the folder. Raises `TimeoutError`.

    The system frees the lock of a dead process. The file is removed after long disuse.
    """
    deadline = time.monotonic() + timeout_s
    while (release := try_lock_and_start_cleanup(path)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"another process holds {path.name}")
        await asyncio.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        release()


def try_lock_and_start_cleanup(path: Path) -> Callable[[], None] | None:
    """Return a function that releases the lock, or None if another process holds it. Raises `OSError`."""
    from filelock import FileLock, Timeout  # imported late: only sign-in needs it

    ensure_private_folder(path.parent)
    lock = FileLock(path, timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    mark_file_used(path)
    start_cleanup_if_due(path.parent, remove_unused_lock_and_sign_in_files)
    return lock.release


def remove_unused_lock_and_sign_in_files(folder: Path) -> None:
    """Remove unused lock files and leftovers of unfinished sign-ins, but never tokens. Raises `OSError`."""
    from filelock import FileLock

    for path in folder.iterdir():
        if _REMOVABLE_FILE.fullmatch(path.name) is None:
            continue
        with suppress(OSError):
            if not is_file_unused(path.lstat()):
                continue
            # Whoever holds a lock file can remove it: no other process holds it then.
            with FileLock(path, timeout=0, mode=0o600, thread_local=False) if path.suffix == ".lock" else nullcontext():
                if is_file_unused(path.lstat()):
                    path.unlink()


# Characters of a token in a header: RFC 6750 allows fewer, but real servers use all visible ones.
_TOKEN_PATTERN = re.compile(r"[\x21-\x7e]{1,16384}")
_MAX_LIFETIME_SECONDS = 10 * 365 * 86_400
MAX_RECORD_BYTES = 1 << 18
_RENEW_EARLY_SECONDS = 30.0


def is_token(value: object) -> bool:
    """Return whether a value is a safe bearer token: visible characters only, to prevent header injection."""
    return isinstance(value, str) and _TOKEN_PATTERN.fullmatch(value) is not None


def compute_expiry(now: float, expires_in: int | None) -> float | None:
    """Return the expiry time of a token received at ``now``, or None if unknown."""
    return None if expires_in is None else now + max(0, min(expires_in, _MAX_LIFETIME_SECONDS))


_Token = Annotated[str, Predicate(is_token)]
_Seconds = int | FiniteFloat


class TokenRecord(BaseModel):
    """The tokens of a principal at a server. Times are seconds since 1970; ``expires_at`` None is unknown.

    ``client``, ``metadata`` and ``resource`` are the SDK's client, authorization server and resource data.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    version: Literal[1] = 1
    server: str
    principal: str
    saved_at: _Seconds
    access_token: _Token | None = None
    refresh_token: _Token | None = None
    scope: str | None = None
    expires_at: _Seconds | None = None
    client: OAuthClientInformationFull | None = None
    metadata: OAuthMetadata | None = None
    resource: ProtectedResourceMetadata | None = None

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return [("server", self.server)]

    def needs_renewal(self, now: float) -> bool:
        """Return whether the access token is missing, expired or about to expire."""
        if self.access_token is None:
            return True
        if self.expires_at is None:
            return False
        return now >= self.expires_at - min(_RENEW_EARLY_SECONDS, (self.expires_at - self.saved_at) / 10)

    def without_tokens(self) -> TokenRecord:
        """Return the client's record without its rejected tokens."""
        return self.model_copy(update={"access_token": None, "refresh_token": None, "expires_at": None})

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secret texts of the record."""
        client_secret = None if self.client is None else self.client.client_secret
        return tuple(text for text in (self.access_token, self.refresh_token, client_secret) if text)

    @classmethod
    def from_json(cls, text: str) -> TokenRecord | None:
        """Parse the text of a record; return None for an invalid one."""
        try:
            return cls.model_validate_json(text)
        except ValueError:
            return None


_KEYRING_SERVICE = "codemode-mcp"
_KEY_PATTERN = re.compile(r"[0-9a-f]{40}")
_logger = logging.getLogger("codemode.mcp.signin")


def find_keyring(storage: Storage) -> Any:
    """Return the working keyring that ``auth.storage`` asks for, or None to use files.

    Raises `OSError` if ``keyring`` is configured and unavailable.
    """
    ring: Any = None
    with suppress(Exception):  # not installed or no desktop; each backend raises its own errors
        ring = None if storage == "files" else importlib.import_module("keyring").get_keyring()
        ring = ring if ring is not None and ring.priority > 0 else None
    if ring is None and storage == "keyring":
        raise OSError("no keyring is available: install codemode-gateway[keyring] or set auth.storage to files")
    return ring


class TokenStore:
    """Token records in private files of ``folder``, or in the desktop keyring ``ring`` while it accepts them.

    Reads and writes in a thread. Unsafe records count as missing.
    """

    def __init__(self, folder: Path, ring: Any = None) -> None:
        self._folder = folder
        self._ring = ring
        self._threads = BackgroundThreads("codemode-tokens", 1)

    async def read(self, key: str) -> TokenRecord | None:
        """Return the record, or None without a usable one."""
        return await self._threads.run(lambda: self._read(key))

    async def write(self, key: str, record: TokenRecord) -> None:
        """Store a record in one place, and remove older text from the other. Raises `OSError`."""
        await self._threads.run(lambda: self._write(key, record.model_dump_json()))

    async def delete(self, key: str) -> None:
        """Delete a record. Raises `OSError`."""
        await self._threads.run(lambda: self._delete(key))

    def _read(self, key: str) -> TokenRecord | None:
        text: Any = None
        with suppress(Exception):
            text = None if self._ring is None else self._ring.get_password(_KEYRING_SERVICE, key)
        if not isinstance(text, str) and self._folder.exists():
            try:
                ensure_private_folder(self._folder)
                text = read_private_file(self._get_path(key), MAX_RECORD_BYTES)
            except UnsafeFileError as error:
                _logger.warning("tokens are not used: %s", error)
        return TokenRecord.from_json(text) if isinstance(text, str) else None

    def _write(self, key: str, text: str) -> None:
        path = self._get_path(key)
        if self._ring is not None:
            try:
                self._ring.set_password(_KEYRING_SERVICE, key, text)
            except Exception as error:  # noqa: BLE001
                _logger.warning("the keyring cannot store tokens (%s): they are stored in files", type(error).__name__)
                self._delete_from_keyring(key)
            else:
                path.unlink(missing_ok=True)
                return
        write_private_text(path, text)

    def _delete(self, key: str) -> None:
        self._delete_from_keyring(key)
        self._get_path(key).unlink(missing_ok=True)

    def _delete_from_keyring(self, key: str) -> None:
        if self._ring is not None:
            with suppress(Exception):
                self._ring.delete_password(_KEYRING_SERVICE, key)

    def _get_path(self, key: str) -> Path:
        if not _KEY_PATTERN.fullmatch(key):
            raise ValueError("not the key of a record")
        return self._folder / f"{key}.json"
