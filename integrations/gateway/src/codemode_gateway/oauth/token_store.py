"""Store tokens in the keyring or in private files that processes lock."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from codemode.host.threads import BackgroundThreads

from ..state_files import is_file_unused, mark_file_used, start_cleanup_if_due
from .settings import Storage, TokenRecord

_IS_POSIX = os.name == "posix"
_POLL_SECONDS = 0.05
_LEFTOVER_SECONDS = 60.0
_LOCK_FILE = re.compile(r"[0-9a-f]{40}(\.browser)?\.lock")
_SIGN_IN_FILE = re.compile(r"[0-9a-f]{40}\.(url|brought)")


class UnsafeFileError(OSError):
    """A file or folder that other users can read or could have written."""


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


def read_private_file(path: Path, max_bytes: int) -> str | None:
    """Return the text of a file, or None if missing.

    Raises `UnsafeFileError` for a file of another owner, a readable or too large file, or a link.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnsafeFileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or (_IS_POSIX and status.st_uid != os.geteuid()):
            raise UnsafeFileError(f"{path} is not a file of this user; remove it and sign in again")
        if _IS_POSIX and status.st_mode & 0o077:
            raise UnsafeFileError(f"others may read {path}; remove it and sign in again")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(max_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > max_bytes:
        raise UnsafeFileError(f"{path} is too large; remove it and sign in again")
    return data.decode("utf-8", errors="replace")


def write_private_file(path: Path, text: str) -> None:
    """Write a file that only this user can read, as a whole or not at all. Raises `OSError`."""
    folder = ensure_private_folder(path.parent)
    _remove_stale_temp_files(folder)
    temporary = folder / f".{path.name}.{secrets.token_hex(8)}.new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove_stale_temp_files(folder: Path) -> None:
    """Remove unfinished files of processes that died while writing."""
    for path in folder.glob(".*.new"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _LEFTOVER_SECONDS:
                path.unlink()


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
    with os.scandir(folder) as entries:
        for entry in entries:
            is_lock = _LOCK_FILE.fullmatch(entry.name) is not None
            if not is_lock and _SIGN_IN_FILE.fullmatch(entry.name) is None:
                continue
            with suppress(OSError):
                if not is_file_unused(entry.stat(follow_symlinks=False)):
                    continue
                if is_lock:
                    _remove_lock_file_if_unused(Path(entry))
                else:
                    Path(entry).unlink()


def _remove_lock_file_if_unused(path: Path) -> None:
    """Remove a lock file while holding it, so that no other process can hold it."""
    from filelock import FileLock, Timeout

    with suppress(Timeout), FileLock(path, timeout=0, mode=0o600, thread_local=False):
        if is_file_unused(path.lstat()):
            path.unlink()


_MAX_RECORD_BYTES = 1 << 18
_KEYRING_SERVICE = "codemode-mcp"
_KEY_PATTERN = re.compile(r"[0-9a-f]{40}")
_logger = logging.getLogger("codemode.mcp.signin")


class TextStorage(Protocol):
    """A store of texts by key. Methods may block and may raise `OSError`."""

    def read(self, key: str) -> str | None:
        """Return the text, or None if missing."""
        ...

    def write(self, key: str, text: str) -> None:
        """Store the text."""
        ...

    def delete(self, key: str) -> None:
        """Delete the text, if there is one."""
        ...


class FileStorage:
    """Texts in files of a private folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, key: str) -> str | None:
        """Return the text of a file. Raises `OSError` for one that others could have read."""
        if not self.folder.exists():
            return None
        ensure_private_folder(self.folder)
        return read_private_file(self._get_path(key), _MAX_RECORD_BYTES)

    def write(self, key: str, text: str) -> None:
        """Write the file as a whole."""
        write_private_file(self._get_path(key), text)

    def delete(self, key: str) -> None:
        """Remove the file."""
        self._get_path(key).unlink(missing_ok=True)

    def _get_path(self, key: str) -> Path:
        if not _KEY_PATTERN.fullmatch(key):
            raise ValueError("not the key of a record")
        return self.folder / f"{key}.json"


class KeyringOrFileStorage:
    """Texts in the desktop keyring, or in ``files`` when it is locked or rejects them."""

    def __init__(self, ring: Any, files: FileStorage) -> None:
        self._ring = ring
        self._files = files

    def read(self, key: str) -> str | None:
        """Return the text from the keyring, else from the files."""
        try:
            found = self._ring.get_password(_KEYRING_SERVICE, key)
        except Exception:  # noqa: BLE001 - each backend raises its own
            found = None
        return found if isinstance(found, str) else self._files.read(key)

    def write(self, key: str, text: str) -> None:
        """Store the text in one of the two and remove older text from the other."""
        try:
            self._ring.set_password(_KEYRING_SERVICE, key, text)
        except Exception as error:  # noqa: BLE001
            _logger.warning("the keyring cannot store tokens (%s): they are stored in files", type(error).__name__)
            self._delete_from_keyring(key)
            self._files.write(key, text)
        else:
            self._files.delete(key)

    def delete(self, key: str) -> None:
        """Remove the text from both."""
        self._delete_from_keyring(key)
        self._files.delete(key)

    def _delete_from_keyring(self, key: str) -> None:
        try:
            self._ring.delete_password(_KEYRING_SERVICE, key)
        except Exception:  # noqa: BLE001
            return


def create_storage(storage: Storage, folder: Path) -> TextStorage:
    """Return the storage for ``auth.storage``; ``auto`` prefers a working keyring.

    Raises `OSError` if ``keyring`` is configured and unavailable.
    """
    files = FileStorage(folder)
    ring = None if storage == "files" else _find_keyring()
    if ring is None and storage == "keyring":
        raise OSError("no keyring is available: install codemode-gateway[keyring] or set auth.storage to files")
    return files if ring is None else KeyringOrFileStorage(ring, files)


def _find_keyring() -> Any:
    try:
        ring = importlib.import_module("keyring").get_keyring()
        is_usable = ring.priority > 0
    except Exception:  # noqa: BLE001 - not installed or no desktop; each backend raises its own errors
        return None
    return ring if is_usable else None


class TokenStore:
    """Reads and writes token records in a thread. Unsafe records count as missing."""

    def __init__(self, storage: TextStorage) -> None:
        self._storage = storage
        self._threads = BackgroundThreads("codemode-tokens", 1)

    async def read(self, key: str) -> TokenRecord | None:
        """Return the record, or None without a usable one."""

        def read_record() -> TokenRecord | None:
            try:
                text = self._storage.read(key)
            except UnsafeFileError as error:
                _logger.warning("tokens are not used: %s", error)
                return None
            return None if text is None else TokenRecord.from_json(text)

        return await self._threads.run(read_record)

    async def write(self, key: str, record: TokenRecord) -> None:
        """Store a record. Raises `OSError`."""
        await self._threads.run(lambda: self._storage.write(key, record.to_json()))

    async def delete(self, key: str) -> None:
        """Delete a record. Raises `OSError`."""
        await self._threads.run(lambda: self._storage.delete(key))
