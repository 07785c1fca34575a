"""Tells when a configuration's file says something else. Asks nothing of the system but to be shown the file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from .files import text_of
from .reading import load_config
from .values import ConfigError, GatewayConfig

INTERVAL_SECONDS = 1.0

_LOOKS_UNTIL_SETTLED = 4
"""A file may be written twice within what its file system can tell apart: so often the same is read again."""


def _untold(_problem: ConfigError) -> None: ...


async def watched(
    path: str | Path,
    *,
    since: GatewayConfig | None = None,
    told: Callable[[ConfigError], None] = _untold,
    interval: float = INTERVAL_SECONDS,
    pause: Callable[[], Awaitable[Any]] | None = None,
    **how: Any,
) -> AsyncIterator[GatewayConfig]:
    """Yield the configuration of the file at ``path`` whenever it has come to say something else. Never ends.

    ``since`` is what is known of it; without, what it says at the first look. The file is looked at every ``interval``
    seconds, or whenever what ``pause`` returns is done, and so are the files of variables that it names; ``how`` goes
    to `load_config`. What was written counts once two looks have found the same. A file that is broken or gone is
    ``told``, once, and the old configuration goes on.
    """
    file, rest = _Files(Path(path)), pause or partial(asyncio.sleep, interval)
    known: GatewayConfig | ConfigError | None = since
    text: tuple[str, ...] | None = None
    failure: str | None = None
    if since is None:
        text = await asyncio.to_thread(file.look)
        known = await _loaded(path, how)
        if isinstance(known, ConfigError):
            failure = str(known)
            told(known)
    file.beside(known)
    while True:
        await rest()
        found = await asyncio.to_thread(file.look)
        if found == text or not file.is_calm:
            continue
        text = found
        loaded = await _loaded(path, how)
        if isinstance(loaded, ConfigError):
            if failure != str(loaded):
                failure = str(loaded)
                told(loaded)
            continue
        file.beside(loaded)
        failure = None
        if loaded != known:
            known = loaded
            yield loaded


async def _loaded(path: str | Path, how: dict[str, Any]) -> GatewayConfig | ConfigError:
    try:
        return await asyncio.to_thread(partial(load_config, path, **how))
    except ConfigError as problem:
        return problem


class _Files:
    """The file of a configuration, and those beside it. ``is_calm``: the last two looks have found the same in each."""

    def __init__(self, path: Path) -> None:
        self._own = _File(path)
        self._beside: dict[Path, _File] = {}

    def beside(self, config: GatewayConfig | ConfigError | None) -> None:
        """Look from now on at the files that this configuration names too."""
        if isinstance(config, GatewayConfig):
            self._beside = {path: self._beside.get(path) or _File(path) for path in config.beside}

    @property
    def is_calm(self) -> bool:
        return all(one.is_calm for one in (self._own, *self._beside.values()))

    def look(self) -> tuple[str, ...]:
        return tuple(one.look() for one in (self._own, *self._beside.values()))


class _File:
    """What a file holds at each look. ``is_calm``: the last two looks have found the same."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._content: str | None = None
        self._mark: object = None
        self._same_looks = 0
        self.is_calm = False

    def look(self) -> str:
        """Return the content, or, where there is none, why."""
        mark = self._marked()
        self._same_looks = self._same_looks + 1 if mark == self._mark else 0
        self._mark = mark
        if self._content is None or self._same_looks < _LOOKS_UNTIL_SETTLED:
            content = self._read()
            self.is_calm = content == self._content
            self._content = content
        return self._content

    def _marked(self) -> object:
        try:
            found = self._path.stat()
        except OSError as problem:
            return problem.errno
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev

    def _read(self) -> str:
        try:
            return "+" + text_of(self._path)
        except ConfigError as problem:
            return f"-{problem}"
