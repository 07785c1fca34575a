"""Where tokens are kept: the user's keyring, or files that only the user can read."""

from __future__ import annotations

import importlib
import logging
import re
from pathlib import Path
from typing import Any, Protocol

from codemode.host.threads import Errands

from .private_files import UnsafeFileError, private_folder, read_private, write_private
from .settings import Storage
from .token_records import TokenRecord

_MOST_BYTES = 1 << 18
_SERVICE = "codemode-mcp"
_KEY = re.compile(r"[0-9a-f]{40}")
_logger = logging.getLogger("codemode.mcp.signin")


class Keeping(Protocol):
    """A place for texts by key. Each method may block, and may raise `OSError`."""

    def read(self, key: str) -> str | None:
        """Return the text, None where there is none."""
        ...

    def write(self, key: str, text: str) -> None:
        """Keep the text."""
        ...

    def delete(self, key: str) -> None:
        """Forget it."""
        ...


class Files:
    """Texts in files of a folder that is the user's alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, key: str) -> str | None:
        """Return the text of a file. Raises `OSError` for one that others could have read."""
        if not self.folder.exists():
            return None
        private_folder(self.folder)
        return read_private(self._path(key), _MOST_BYTES)

    def write(self, key: str, text: str) -> None:
        """Write the file as a whole."""
        write_private(self._path(key), text)

    def delete(self, key: str) -> None:
        """Remove the file."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError("not the key of a record")
        return self.folder / f"{key}.json"


class Keyring:
    """Texts in the keyring of the user's desktop; where that refuses one, for it is locked or small, in ``files``."""

    def __init__(self, ring: Any, files: Files) -> None:
        self._ring = ring
        self._files = files

    def read(self, key: str) -> str | None:
        """Return what the keyring has, else what the files have."""
        try:
            found = self._ring.get_password(_SERVICE, key)
        except Exception:  # noqa: BLE001 - each backend raises its own
            found = None
        return found if isinstance(found, str) else self._files.read(key)

    def write(self, key: str, text: str) -> None:
        """Keep the text in one of the two, and nothing older in the other."""
        try:
            self._ring.set_password(_SERVICE, key, text)
        except Exception as error:  # noqa: BLE001
            _logger.warning("the keyring keeps no tokens (%s): they are in files", type(error).__name__)
            self._forget(key)
            self._files.write(key, text)
        else:
            self._files.delete(key)

    def delete(self, key: str) -> None:
        """Forget it in both."""
        self._forget(key)
        self._files.delete(key)

    def _forget(self, key: str) -> None:
        try:
            self._ring.delete_password(_SERVICE, key)
        except Exception:  # noqa: BLE001
            return


def keeping(storage: Storage, folder: Path) -> Keeping:
    """Return the place that ``auth.storage`` names: the keyring, or files; ``auto`` is the keyring where one works.

    Raises `OSError` where ``keyring`` is asked for and none is there.
    """
    files = Files(folder)
    ring = None if storage == "files" else _usable_keyring()
    if ring is None and storage == "keyring":
        raise OSError("there is no keyring here: install codemode-gateway[keyring], or set auth.storage to files")
    return files if ring is None else Keyring(ring, files)


def _usable_keyring() -> Any:
    try:
        ring = importlib.import_module("keyring").get_keyring()
        is_usable = ring.priority > 0
    except Exception:  # noqa: BLE001 - not installed, or no desktop: its own errors
        return None
    return ring if is_usable else None


class TokenStore:
    """The records of sign-ins. Works in a thread, for keyrings ask over a bus; a record that is unsafe is none."""

    def __init__(self, place: Keeping) -> None:
        self._place = place
        self._threads = Errands("codemode-tokens", 1)

    async def read(self, key: str) -> TokenRecord | None:
        """Return the record, None where there is none that can be used."""

        def work() -> TokenRecord | None:
            try:
                text = self._place.read(key)
            except UnsafeFileError as error:
                _logger.warning("tokens are not used: %s", error)
                return None
            return None if text is None else TokenRecord.from_json(text)

        return await self._threads.run(work)

    async def write(self, key: str, record: TokenRecord) -> None:
        """Keep a record. Raises `OSError`."""
        await self._threads.run(lambda: self._place.write(key, record.to_json()))

    async def delete(self, key: str) -> None:
        """Forget a record. Raises `OSError`."""
        await self._threads.run(lambda: self._place.delete(key))
