"""Infer and store output schemas of tools that declare none."""

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
from codemode.host.cancellation import shield_until_done
from codemode.host.threads import run_in_single_use_thread

from .. import state_files
from ..config.model import ServerConfig
from ..state_files import PrivateDatabase
from .inferred_schema import (
    ValueShape,
    drop_rare_names,
    infer_shape,
    join_shapes,
    limit_shape_size,
    shape_from_json,
    shape_to_json,
    shape_to_schema_without_rare_names,
)
from .tool_pins import ToolPins

FILE_NAME = "shapes.sqlite"
MAX_TOOLS = 5_000
MAX_SHAPE_CHARACTERS = 50_000
MAX_JSON_CHARACTERS = 100_000
SAVE_SECONDS = 2.0
ANNOUNCE_SECONDS = 5.0
"""How long schema changes are collected before servers are listed again."""
_ALWAYS_INSPECTED_CALLS = 32
_SAMPLE_INTERVAL = 16
_MAX_HASHED_CHARACTERS = 20_000
_TABLE = (
    "CREATE TABLE IF NOT EXISTS shapes (principal TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL,"
    " shape TEXT NOT NULL, PRIMARY KEY (principal, server, tool)) WITHOUT ROWID"
)
_log = logging.getLogger("codemode.mcp")


@dataclass
class _ToolObservations:
    """The observations of one tool. ``text`` is the shape of JSON in its texts, None after other text."""

    value: ValueShape
    text: ValueShape | None
    count: int = 0
    last_hash: int = 0
    declaration: Any = None


class InferredOutputSchemas:
    """The inferred outputs of one principal's servers; its methods are upstream hooks.

    Without ``folder``, shapes last as long as this object.
    """

    def __init__(self, folder: Path | None, principal: str = "local") -> None:
        self._tables = PrivateDatabase(
            None if folder is None else folder / FILE_NAME, _TABLE, state_files.PRINCIPALS_TABLE
        )
        self._principal = principal
        self._observations: dict[tuple[str, str], _ToolObservations] = {}
        self._undeclared_tools: set[tuple[str, str]] = set()
        self._unsaved: set[tuple[str, str]] = set()
        self._changed_since: dict[str, float] = {}
        self._revisions: dict[str, int] = {}
        self._save_task: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Load stored shapes; skip invalid ones."""
        try:
            stored = await run_in_single_use_thread(self._read_observations_and_record_use)
        except OSError as error:
            _log.warning("the inferred output schemas cannot be read: %s", error)
            return
        for key, seen in stored.items():
            self._observations.setdefault(key, seen)

    async def aclose(self) -> None:
        """Save unsaved shapes."""
        if self._save_task is not None:
            self._save_task.cancel()
            await asyncio.gather(self._save_task, return_exceptions=True)
        await self._save_unsaved_shapes()

    # --- hooks ---

    def on_result(self, config: ServerConfig, tool: str, value: Any) -> None:
        """Observe the result of an undeclared tool; later calls are sampled."""
        key = config.name, tool
        if key not in self._undeclared_tools:
            return
        seen = self._observations.get(key)
        if seen is None:
            if len(self._observations) >= MAX_TOOLS:
                return
            seen = self._observations[key] = _ToolObservations(ValueShape(), ValueShape())
        seen.count += 1
        if seen.count <= _ALWAYS_INSPECTED_CALLS or seen.count % _SAMPLE_INTERVAL == 0:
            self._update_observation_and_start_save(key, seen, value)

    def observe_tool_and_get_schema(self, config: ServerConfig, tool: types.Tool) -> Mapping[str, Any] | None:
        """Return the inferred output schema of a tool, or None."""
        key = config.name, tool.name
        self._undeclared_tools.add(key)
        seen = self._observations.get(key)
        return None if seen is None else _to_observed_output(seen)

    def get_learned_revision(self, config: ServerConfig) -> int:
        """Return a number that grows, with a delay, when schemas change."""
        since = self._changed_since.get(config.name)
        if since is not None and time.monotonic() - since >= ANNOUNCE_SECONDS:
            del self._changed_since[config.name]
            self._revisions[config.name] = self._revisions.get(config.name, 0) + 1
        return self._revisions.get(config.name, 0)

    # --- parts ---

    def _update_observation_and_start_save(self, key: tuple[str, str], seen: _ToolObservations, value: Any) -> None:
        if estimate_json_length(value, _MAX_HASHED_CHARACTERS) < _MAX_HASHED_CHARACTERS:
            same = hash(repr(value))
            if same == seen.last_hash:
                return  # equal results show no variation
            seen.last_hash = same
        seen.value = limit_shape_size(join_shapes(seen.value, infer_shape(value)))
        if seen.text is not None:
            text_shape = _infer_text_json_shape(value)
            seen.text = None if text_shape is None else limit_shape_size(join_shapes(seen.text, text_shape))
        declaration = _to_observed_output(seen)
        if declaration == seen.declaration:
            return
        seen.declaration = declaration
        self._changed_since.setdefault(key[0], time.monotonic())
        self._unsaved.add(key)
        if self._save_task is None or self._save_task.done():
            self._save_task = asyncio.get_running_loop().create_task(self._save_later())

    async def _save_later(self) -> None:
        await asyncio.sleep(SAVE_SECONDS)
        await self._save_unsaved_shapes()

    async def _save_unsaved_shapes(self) -> None:
        rows = [(self._principal, *key, _serialize_common_shapes(self._observations[key])) for key in self._unsaved]
        self._unsaved.clear()
        rows = [row for row in rows if len(row[-1]) <= MAX_SHAPE_CHARACTERS]
        if rows:
            try:  # after a cancelled close the process ends, and the thread with it
                await shield_until_done(run_in_single_use_thread(lambda: self._write_shape_rows_and_record_use(rows)))
            except OSError as error:
                _log.warning("the inferred output schemas cannot be saved: %s", error)

    def _write_shape_rows_and_record_use(self, rows: list[tuple[str, ...]]) -> None:
        with self._tables.open(writes=True) as file:
            file.executemany("INSERT OR REPLACE INTO shapes VALUES (?, ?, ?, ?)", rows)
            if not state_files.is_use_recorded_today(file, self._principal):
                state_files.record_use_and_prune_tables(file, self._principal, "shapes")

    def _read_observations_and_record_use(self) -> dict[tuple[str, str], _ToolObservations]:
        statement = "SELECT server, tool, shape FROM shapes WHERE principal = ? AND length(shape) <= ? LIMIT ?"
        observations: dict[tuple[str, str], _ToolObservations] = {}
        with self._tables.open() as file:
            for server, tool, text in file.execute(statement, (self._principal, MAX_SHAPE_CHARACTERS, MAX_TOOLS)):
                try:
                    observations[server, tool] = _parse_observation(decode_json(text, max_depth=64))
                except Exception as error:  # noqa: BLE001 - the file is as hostile as a server
                    _log.warning("the inferred schema of %r of %r is invalid: %s", tool, server, type(error).__name__)
            is_noted = state_files.is_use_recorded_today(file, self._principal)
        if observations and not is_noted:
            with suppress(OSError):  # a read-only file is still read
                self._write_shape_rows_and_record_use([])
        return observations


def _infer_text_json_shape(value: Any) -> ValueShape | None:
    """Return the shape of the JSON in a text, or None without JSON or with too much of it."""
    if not isinstance(value, str) or len(value) > MAX_JSON_CHARACTERS or value.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return infer_shape(json.loads(value))
    except (ValueError, RecursionError):
        return None


def _to_observed_output(observation: _ToolObservations) -> Mapping[str, Any] | None:
    """Return a schema for declarations, and whether it describes JSON in a text."""
    if observation.text is not None and observation.value == ValueShape(scalars={"string"}):
        return {"schema": shape_to_schema_without_rare_names(observation.text), "isText": True}
    schema = shape_to_schema_without_rare_names(observation.value)
    return {"schema": schema, "isText": False} if schema else None


def _serialize_common_shapes(observation: _ToolObservations) -> str:
    text = (
        None
        if observation.text is None
        else shape_to_json(drop_rare_names(observation.text, drops_unnamed_objects=True))
    )
    return json.dumps([shape_to_json(drop_rare_names(observation.value, drops_unnamed_objects=True)), text])


def _parse_observation(value: Any) -> _ToolObservations:
    if not is_array(value) or len(value) != 2 or not (value[1] is None or value[1] is True or is_object(value[1])):
        raise ValueError("no shapes")
    observation = _ToolObservations(
        limit_shape_size(shape_from_json(value[0])),
        None if value[1] is None else limit_shape_size(shape_from_json(value[1])),
    )
    observation.declaration = _to_observed_output(observation)
    return observation


class LearnedToolData:
    """Pins and, if it ``learns``, inferred outputs of one principal, loaded once for all connections.

    ``cache_folder`` (default ``folder``) holds data that may be lost.
    """

    def __init__(
        self, folder: Path | None, principal: str = "local", *, cache_folder: Path | None = None, learns: bool = True
    ) -> None:
        pins = ToolPins(folder, principal)
        self.hooks: dict[str, Any] = {
            "filter_tools": pins.filter_tools,
            "get_notes": pins.get_notes,
            "get_filter_revision": pins.get_filter_revision,
        }
        """The hooks of `UpstreamHooks`."""
        self._shapes = InferredOutputSchemas(cache_folder or folder, principal) if learns else None
        if self._shapes is not None:
            shapes = self._shapes
            self.hooks |= {
                "on_result": shapes.on_result,
                "get_observed_output": shapes.observe_tool_and_get_schema,
                "get_learned_revision": shapes.get_learned_revision,
            }
        self._lock = asyncio.Lock()
        self._is_loaded = False

    async def load(self) -> None:
        """Load stored data on first use."""
        async with self._lock:
            if self._shapes is not None and not self._is_loaded:
                await self._shapes.load()
            self._is_loaded = True

    async def aclose(self) -> None:
        """Save what was learned."""
        if self._shapes is not None:
            await self._shapes.aclose()


class ToolHistories:
    """The tool history of each principal, while one of its connections is open."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._open: dict[str, LearnedToolData] = {}
        self._user_counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    @asynccontextmanager
    async def open(self, principal: str, *, learns: bool) -> AsyncGenerator[LearnedToolData]:
        """Yield the shared history of a principal; save it after the last user."""
        history = self._open.get(principal)
        if history is None:
            history = self._open[principal] = LearnedToolData(self._folder, principal, learns=learns)
        self._user_counts[principal] = self._user_counts.get(principal, 0) + 1
        try:
            await history.load()
            yield history
        finally:
            try:
                if self._user_counts[principal] == 1:
                    await history.aclose()  # before the next user loads it
            finally:
                self._user_counts[principal] -= 1
                if not self._user_counts[principal]:
                    del self._user_counts[principal], self._open[principal]
