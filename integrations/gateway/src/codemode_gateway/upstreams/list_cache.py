"""Lists of servers kept on disk, for each configuration and principal, so that nobody waits for a server to be told.

What is read is as hostile as what a server says: several gateways write here, and so may others of the same user.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from codemode.data.json_values import canonical_json, decode_json
from codemode.data.narrowing import is_array, is_mapping
from codemode.host.threads import off_loop

from ..config.values import ServerConfig
from ..unused_files import is_unused, look_soon, note_use
from .listing import MAX_LIST_BYTES, Listing, listing_of

_VERSION = 1
_MAX_BYTES = MAX_LIST_BYTES + (1 << 20)
_MAX_DEPTH = 128
# What a list cannot depend on: all else of a configuration may change which tools there are.
_OWN = frozenset(
    [
        "approval",
        "tool_approvals",
        "auto_approve",
        "allow",
        "deny",
        "common_patterns",
        "timeout_ms",
        "connect_timeout_ms",
        "max_concurrency",
        "max_concurrency_per_program",
        "idle_ms",
        "pin",
        "output_validation",
        "approval_wait_ms",
        "secrets",
    ]
)
_KEPT = re.compile(r"[0-9a-f]{64}\.json")
_BEING_WRITTEN = re.compile(r"\.[0-9a-f]{64}\.[0-9]+\.[0-9a-f]{8}")
_WRITTEN_SECONDS = 3_600.0
_log = logging.getLogger("codemode.mcp")


class ListCache:
    """The lists of one principal in one folder; without a folder nothing is kept.

    Those of users and configurations that are gone are removed once nobody has read them for long.
    """

    def __init__(self, folder: Path | None, principal: str) -> None:
        self._folder = folder
        self._principal = principal

    async def read(self, config: ServerConfig) -> Listing | None:
        """Return the list that was kept of a server, None where there is none to be read."""
        path = self._path(config)
        if path is None:
            return None

        def work() -> Listing | None:
            text = _text(path)
            return None if text is None else _listing(text)

        return await _quietly(work, config.name)

    async def write(self, config: ServerConfig, listing: Listing) -> None:
        """Keep a list. Where that cannot be, nothing is lost but time."""
        path = self._path(config)
        if path is not None:
            await _quietly(lambda: _replace(path, _written(listing)), config.name)
            look_soon(path.parent, remove_unused)

    def _path(self, config: ServerConfig) -> Path | None:
        if self._folder is None:
            return None
        said = {one.name: _plain(getattr(config, one.name)) for one in fields(config) if one.name not in _OWN}
        key = canonical_json({"principal": self._principal, "server": said, "version": _VERSION})
        return self._folder / f"{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}.json"


async def _quietly(work: Callable[[], Any], name: str) -> Any:
    try:
        return await off_loop(work)
    except Exception as error:  # noqa: BLE001 - a cache that fails is none
        _log.warning("the kept list of server %r cannot be used: %s", name, type(error).__name__)
        return None


def _plain(value: Any) -> Any:
    if is_mapping(value):
        return dict(value)
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


def _text(path: Path) -> str | None:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        is_own = not hasattr(os, "getuid") or (found.st_uid == os.getuid() and not found.st_mode & 0o022)
        if not stat.S_ISREG(found.st_mode) or not is_own or found.st_size > _MAX_BYTES:
            return None
        note_use(descriptor, path)
        return file.read(_MAX_BYTES + 1).decode("utf-8", "replace")


def _listing(text: str) -> Listing | None:
    kept = decode_json(text, max_depth=_MAX_DEPTH)
    if not is_mapping(kept) or kept.get("version") != _VERSION or not is_array(kept.get("tools")):
        return None
    return listing_of(kept, kept["tools"])


def _written(listing: Listing) -> bytes:
    # The texts of the tools are JSON as they are.
    head = json.dumps({"version": _VERSION, **listing.to_dict()})
    return f'{head[:-1]},"tools":[{",".join(listing.texts)}]}}'.encode("utf-8", "surrogatepass")


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def remove_unused(folder: Path) -> None:
    """Remove the lists that nobody has read for long, and what was left in the middle of writing. Raises `OSError`.

    Whoever reads or writes one meanwhile loses nothing but time.
    """
    with os.scandir(folder) as found:
        for one in found:
            is_list = _KEPT.fullmatch(one.name) is not None
            is_left = not is_list and _BEING_WRITTEN.fullmatch(one.name) is not None
            with suppress(OSError):
                if (is_list and is_unused(one.stat(follow_symlinks=False))) or (
                    is_left and is_unused(one.stat(follow_symlinks=False), _WRITTEN_SECONDS)
                ):
                    Path(one).unlink()
