"""Learns what tools without an output schema give: the shape alone, for declarations, kept for each principal."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types

from codemode.data.json_shape import estimate_json_length
from codemode.data.json_values import decode_json
from codemode.data.narrowing import is_array, is_object
from codemode.host.cancellation import shield_to_end
from codemode.host.threads import run_off_loop

from .. import state_files
from ..config.model import ServerConfig
from ..state_files import PrivateTables
from .inferred_schema import Shape, bounded, from_json, join, schema_of, settled, shape_of, to_json
from .tool_pins import Pins

FILE = "shapes.sqlite"
MAX_TOOLS = 5_000
MAX_SHAPE_CHARACTERS = 50_000
MAX_JSON_CHARACTERS = 100_000
SAVE_SECONDS = 2.0
TELL_SECONDS = 5.0
"""How long what is learned is gathered before servers are listed anew for it."""
_ALL_LOOKED_AT = 32
_ONE_IN = 16
_MAX_SAME_CHARACTERS = 20_000
_TABLE = (
    "CREATE TABLE IF NOT EXISTS shapes (principal TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL,"
    " shape TEXT NOT NULL, PRIMARY KEY (principal, server, tool)) WITHOUT ROWID"
)
_log = logging.getLogger("codemode.mcp")


@dataclass
class _Seen:
    """What was seen of one tool. ``text`` is the shape of the JSON in its texts, None where one was something else."""

    value: Shape
    text: Shape | None
    count: int = 0
    same: int = 0
    told: Any = None


class Shapes:
    """What the tools of one principal's servers gave. `returned`, `observed` and `learned` are hooks.

    ``folder`` is the cache folder; without one, shapes are known for as long as this object is.
    """

    def __init__(self, folder: Path | None, principal: str = "local") -> None:
        self._tables = PrivateTables(None if folder is None else folder / FILE, _TABLE, state_files.PRINCIPALS_TABLE)
        self._principal = principal
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._wanted: set[tuple[str, str]] = set()
        self._unsaved: set[tuple[str, str]] = set()
        self._untold: dict[str, float] = {}
        self._learned: dict[str, int] = {}
        self._saving: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Take what is kept; what is none of ours is left out."""
        try:
            kept = await run_off_loop(self._read)
        except OSError as error:
            _log.warning("what was learned of tools cannot be read: %s", error)
            return
        for key, seen in kept.items():
            self._seen.setdefault(key, seen)

    async def aclose(self) -> None:
        """Write down what is not."""
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)
        await self._save()

    # --- hooks ---

    def returned(self, config: ServerConfig, tool: str, value: Any) -> None:
        """Look at what a call gave, where nobody has declared it; at calls of the same tool less often in time."""
        key = config.name, tool
        if key not in self._wanted:
            return
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) >= MAX_TOOLS:
                return
            seen = self._seen[key] = _Seen(Shape(), Shape())
        seen.count += 1
        if seen.count <= _ALL_LOOKED_AT or seen.count % _ONE_IN == 0:
            self._look(key, seen, value)

    def observed(self, config: ServerConfig, tool: types.Tool) -> Mapping[str, Any] | None:
        """Return what is known of a tool that declares no output: its schema, or that of the JSON in its texts."""
        key = config.name, tool.name
        self._wanted.add(key)
        seen = self._seen.get(key)
        return None if seen is None else _told(seen)

    def learned(self, config: ServerConfig) -> int:
        """Return a number that grows when more is known; not at once, so that servers are not listed all the time."""
        since = self._untold.get(config.name)
        if since is not None and time.monotonic() - since >= TELL_SECONDS:
            del self._untold[config.name]
            self._learned[config.name] = self._learned.get(config.name, 0) + 1
        return self._learned.get(config.name, 0)

    # --- parts ---

    def _look(self, key: tuple[str, str], seen: _Seen, value: Any) -> None:
        if estimate_json_length(value, _MAX_SAME_CHARACTERS) < _MAX_SAME_CHARACTERS:
            same = hash(repr(value))
            if same == seen.same:
                return  # the same again says nothing of what varies
            seen.same = same
        seen.value = bounded(join(seen.value, shape_of(value)))
        if seen.text is not None:
            inside = _inside(value)
            seen.text = None if inside is None else bounded(join(seen.text, inside))
        told = _told(seen)
        if told == seen.told:
            return
        seen.told = told
        self._untold.setdefault(key[0], time.monotonic())
        self._unsaved.add(key)
        if self._saving is None or self._saving.done():
            self._saving = asyncio.get_running_loop().create_task(self._save_later())

    async def _save_later(self) -> None:
        await asyncio.sleep(SAVE_SECONDS)
        await self._save()

    async def _save(self) -> None:
        rows = [(self._principal, *key, _written(self._seen[key])) for key in self._unsaved]
        self._unsaved.clear()
        rows = [row for row in rows if len(row[-1]) <= MAX_SHAPE_CHARACTERS]
        if rows:
            try:  # whoever closes this meanwhile ends the process next, and with it the thread
                await shield_to_end(run_off_loop(lambda: self._write(rows)))
            except OSError as error:
                _log.warning("what was learned of tools cannot be kept: %s", error)

    def _write(self, rows: list[tuple[str, ...]]) -> None:
        with self._tables.open(writes=True) as file:
            file.executemany("INSERT OR REPLACE INTO shapes VALUES (?, ?, ?, ?)", rows)
            if not state_files.is_use_noted(file, self._principal):
                state_files.note_table_use(file, self._principal, "shapes")

    def _read(self) -> dict[tuple[str, str], _Seen]:
        statement = "SELECT server, tool, shape FROM shapes WHERE principal = ? AND length(shape) <= ? LIMIT ?"
        found: dict[tuple[str, str], _Seen] = {}
        with self._tables.open() as file:
            for server, tool, text in file.execute(statement, (self._principal, MAX_SHAPE_CHARACTERS, MAX_TOOLS)):
                try:
                    found[server, tool] = _seen_of(decode_json(text, max_depth=64))
                except Exception as error:  # noqa: BLE001 - the file is as hostile as a server
                    _log.warning("what was learned of %r of %r is no shape: %s", tool, server, type(error).__name__)
            is_noted = state_files.is_use_noted(file, self._principal)
        if found and not is_noted:
            with suppress(OSError):  # what can be read and not be written is read
                self._write([])
        return found


def _inside(value: Any) -> Shape | None:
    """Return the shape of the JSON in a text; None where there is none, or too much."""
    if not isinstance(value, str) or len(value) > MAX_JSON_CHARACTERS or value.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return shape_of(json.loads(value))
    except (ValueError, RecursionError):
        return None


def _told(seen: _Seen) -> Mapping[str, Any] | None:
    """Return what declarations say: a schema, and whether it is that of JSON in a text."""
    if seen.text is not None and seen.value == Shape(scalars={"string"}):
        return {"schema": schema_of(seen.text), "isText": True}
    schema = schema_of(seen.value)
    return {"schema": schema, "isText": False} if schema else None


def _written(seen: _Seen) -> str:
    text = None if seen.text is None else to_json(settled(seen.text, forgets=True))
    return json.dumps([to_json(settled(seen.value, forgets=True)), text])


def _seen_of(said: Any) -> _Seen:
    if not is_array(said) or len(said) != 2 or not (said[1] is None or said[1] is True or is_object(said[1])):
        raise ValueError("no shapes")
    seen = _Seen(bounded(from_json(said[0])), None if said[1] is None else bounded(from_json(said[1])))
    seen.told = _told(seen)
    return seen


class Known:
    """Pins and, where it ``learns``, observed types of one principal, read once for all connections.

    ``folder`` is that of the state, ``cache_folder``, else the same, that of what may be lost.
    """

    def __init__(
        self, folder: Path | None, principal: str = "local", *, cache_folder: Path | None = None, learns: bool = True
    ) -> None:
        pins = Pins(folder, principal)
        self.hooks: dict[str, Any] = {"listed": pins.listed, "notes": pins.notes, "changes": pins.changes}
        """What `UpstreamHooks` takes."""
        self._shapes = Shapes(cache_folder or folder, principal) if learns else None
        if self._shapes is not None:
            shapes = self._shapes
            self.hooks |= {"returned": shapes.returned, "observed": shapes.observed, "learned": shapes.learned}
        self._lock = asyncio.Lock()
        self._is_loaded = False

    async def load(self) -> None:
        """Take what is kept, the first time."""
        async with self._lock:
            if self._shapes is not None and not self._is_loaded:
                await self._shapes.load()
            self._is_loaded = True

    async def aclose(self) -> None:
        """Write down what was learned."""
        if self._shapes is not None:
            await self._shapes.aclose()


class KnownOf:
    """What is known for each principal, for as long as some connection of theirs has it: users come without end."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._had: dict[str, Known] = {}
        self._users: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._had)

    @asynccontextmanager
    async def of(self, principal: str, *, learns: bool) -> AsyncGenerator[Known]:
        """Give what is known for a principal, the same to all who have it at a time; write it down behind the last."""
        known = self._had.get(principal)
        if known is None:
            known = self._had[principal] = Known(self._folder, principal, learns=learns)
        self._users[principal] = self._users.get(principal, 0) + 1
        try:
            await known.load()
            yield known
        finally:
            try:
                if self._users[principal] == 1:
                    await known.aclose()  # before anybody reads it anew
            finally:
                self._users[principal] -= 1
                if not self._users[principal]:
                    del self._users[principal], self._had[principal]
