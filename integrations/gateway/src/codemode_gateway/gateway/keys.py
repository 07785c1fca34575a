"""The keys that sign and seal what a gateway pauses: those of its settings, or one that it makes and keeps."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ..config.values import ConfigError
from ..own_files import not_private

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
        return (_kept(path) or _made(path),)
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


def _made(path: Path) -> bytes:
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
