"""Files that only this user can read, and locks that processes share. Knows nothing of what is in them."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import stat
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from ..unused_files import is_unused, look_soon, note_use

_IS_POSIX = os.name == "posix"
_POLL_S = 0.05
_LEFT_OVER_S = 60.0
_LOCK = re.compile(r"[0-9a-f]{40}(\.browser)?\.lock")
_OF_A_SIGN_IN = re.compile(r"[0-9a-f]{40}\.(url|brought)")


class UnsafeFileError(OSError):
    """A file or folder that others than this user could have written or could read."""


def private_folder(path: Path) -> Path:
    """Make the folder where it is missing, and see that it is this user's alone. Raises `OSError`."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _IS_POSIX:
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise UnsafeFileError(f"{path} is not a folder of this user; move it away, it keeps tokens")
        if found.st_mode & 0o077:
            path.chmod(0o700)
    return path


def read_private(path: Path, most_bytes: int) -> str | None:
    """Return the text of a file, None where there is none.

    Raises `UnsafeFileError` for one that another user owns or may read, that is a link, or that is too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnsafeFileError(f"{path} cannot be read: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or (_IS_POSIX and found.st_uid != os.geteuid()):
            raise UnsafeFileError(f"{path} is not a file of this user; remove it and sign in again")
        if _IS_POSIX and found.st_mode & 0o077:
            raise UnsafeFileError(f"others may read {path}; remove it and sign in again")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(data) > most_bytes:
        raise UnsafeFileError(f"{path} is too large; remove it and sign in again")
    return data.decode("utf-8", errors="replace")


def write_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, as a whole or not at all. Raises `OSError`."""
    folder = private_folder(path.parent)
    _remove_left_over(folder)
    beside = folder / f".{path.name}.{secrets.token_hex(8)}.new"
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _remove_left_over(folder: Path) -> None:
    """Remove what a process that died left in the middle of writing."""
    for one in folder.glob(".*.new"):
        with suppress(OSError):
            if time.time() - one.stat().st_mtime > _LEFT_OVER_S:
                one.unlink()


@asynccontextmanager
async def locked(path: Path, timeout_s: float) -> AsyncGenerator[None]:
    """Hold a lock of all processes that use the same folder. Raises `TimeoutError` when it is not free in time.

    The system frees the lock of a process that has died. The file stays until nobody has used it for long.
    """
    until = time.monotonic() + timeout_s
    while (held := try_lock(path)) is None:
        if time.monotonic() >= until:
            raise TimeoutError(f"another process holds {path.name}")
        await asyncio.sleep(_POLL_S)
    try:
        yield
    finally:
        held()


def try_lock(path: Path) -> Callable[[], None] | None:
    """Take the lock if nobody has it, and return what gives it back. Raises `OSError`."""
    private_folder(path.parent)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if not _lock(descriptor):
            os.close(descriptor)
            return None
        if _is_still_at(descriptor, path):
            break
        os.close(descriptor)  # it was removed as unused between the two: the next one takes another file
    note_use(descriptor, path)
    look_soon(path.parent, remove_unused)
    return lambda: os.close(descriptor)


def remove_unused(folder: Path) -> None:
    """Remove the locks that nobody has taken for long, and what a sign-in has left that never ended. Raises `OSError`.

    Tokens stay: with them somebody would be signed out.
    """
    with os.scandir(folder) as found:
        for one in found:
            is_lock = _LOCK.fullmatch(one.name) is not None
            if not is_lock and _OF_A_SIGN_IN.fullmatch(one.name) is None:
                continue
            with suppress(OSError):
                if not is_unused(one.stat(follow_symlinks=False)):
                    continue
                if is_lock:
                    _remove_lock(Path(one))
                else:
                    Path(one).unlink()


def _remove_lock(path: Path) -> None:
    """Remove a lock while holding it: who waits for it sees that it is gone, and nobody has it meanwhile."""
    descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        if _lock(descriptor) and _is_still_at(descriptor, path) and is_unused(os.fstat(descriptor)):
            path.unlink()
    finally:
        os.close(descriptor)


def _is_still_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    def _lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
