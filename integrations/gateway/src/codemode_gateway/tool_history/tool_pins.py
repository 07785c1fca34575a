"""Pin tool definitions at first use, and report later differences."""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

import mcp_types as types

from codemode.data.json_values import encode_canonical_json
from codemode.data.narrowing import is_object
from codemode.host.threads import LARGE_CHARACTERS, run_in_single_use_thread, run_in_thread_if_large_or_slow
from codemode.trace.visible_text import clip_text, escape_invisible

from .. import state_files
from ..approvals.remembered_answers import compute_definition_digest
from ..config.model import ServerConfig
from ..state_files import PrivateDatabase

_WIDTH = 100
_MAX_LINES = 2_000


@dataclass(frozen=True)
class ToolDifference:
    """A new or changed tool, with its definitions before and now as JSON texts.

    Long texts are cut; ``digest`` is that of the full current definition.
    """

    tool: str
    before: str | None
    after: str
    digest: str

    @property
    def kind(self) -> Literal["new", "changed"]:
        """The kind of difference: the tool is new or changed."""
        return "new" if self.before is None else "changed"

    def create_diff_lines(self) -> list[str]:
        """Return a diff: added lines start with ``+``, removed ones with ``-``. Invisible characters are escaped."""
        before, after = (list(_iterate_definition_lines(text))[:_MAX_LINES] for text in (self.before or "", self.after))
        diff = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
        if not diff:
            diff = ["(the difference is in a part that is too long to display)"]
        return [escape_invisible(line) for line in diff]


def _iterate_definition_lines(text: str) -> Iterator[str]:
    try:
        definition: Any = json.loads(text) if text else {}
    except ValueError:
        definition = text  # the text was cut
    if not is_object(definition):
        yield from wrap(str(definition), _WIDTH)
        return
    for name in sorted(definition):
        value = definition[name]
        if isinstance(value, str):
            yield from (f"{name}: {line}" for part in value.split("\n") for line in wrap(part, _WIDTH) or [""])
        else:
            yield from (f"{name}: {line}" for line in json.dumps(value, indent=2, sort_keys=True).split("\n"))


# Names, descriptions, schemas and annotations are compared. A difference lasts until a person approves it or the server
# changes back. One file in the state folder stores the pins of each principal, for 90 days after its last use.

FILE_NAME = "pins.sqlite"
MAX_TEXT_CHARACTERS = 20_000
MAX_TOTAL_CHARACTERS = 8_000_000
_MAX_NAMES_IN_NOTE = 5
_MAX_NAME_CHARACTERS = 64
_TABLES = (
    (
        "CREATE TABLE IF NOT EXISTS servers (principal TEXT NOT NULL, server TEXT NOT NULL, whole TEXT,"
        " PRIMARY KEY (principal, server)) WITHOUT ROWID"
    ),
    (
        "CREATE TABLE IF NOT EXISTS tools (principal TEXT NOT NULL, server TEXT NOT NULL, state TEXT NOT NULL,"
        " tool TEXT NOT NULL, digest TEXT NOT NULL, said TEXT NOT NULL,"
        " PRIMARY KEY (principal, server, state, tool)) WITHOUT ROWID"
    ),
    state_files.PRINCIPALS_TABLE,
)
_PINNED, _WAITING = "pinned", "waiting"  # states: as first used or approved; as last listed, if different
_DELETE = "DELETE FROM tools WHERE principal = ? AND server = ? AND state = ?"
_UPDATE = "UPDATE servers SET whole = ? WHERE principal = ? AND server = ?"
_log = logging.getLogger("codemode.mcp")

tool_digest = compute_definition_digest
"""The digest of a tool's definition, which changes with any part of it."""


class ToolsChangedError(Exception):
    """The tools changed after their differences were displayed."""


@dataclass(frozen=True)
class ServerPins:
    """The pinned tools of one server and their differences. ``token`` identifies the displayed differences."""

    server: str
    pinned: int
    differences: tuple[ToolDifference, ...]

    @property
    def token(self) -> str:
        """The identity of the differences."""
        return encode_canonical_json([[difference.tool, difference.digest] for difference in self.differences])


_Rows = dict[str, tuple[str, str]]  # digest and displayed text by tool name


class ToolPins:
    """The pins of one principal. `filter_tools`, `get_notes` and `get_revision` are upstream hooks.

    Without ``folder``, pins last as long as this object.
    """

    def __init__(self, folder: Path | None, principal: str = "local") -> None:
        self._tables = PrivateDatabase(None if folder is None else folder / FILE_NAME, *_TABLES)
        self._principal = principal
        self._notes: dict[str, tuple[str, ...]] = {}
        self._stamps: dict[str, object] = {}
        self._changes: dict[str, int] = {}
        self._list_digests: dict[str, str | None] = {}
        self._list_digests_stamp: object = ()
        self._use_recorded_on: int | None = None

    # --- hooks ---

    async def filter_tools(self, config: ServerConfig, tools: Sequence[types.Tool]) -> Sequence[types.Tool]:
        """Return the visible tools; pin those of a server on first use.

        Raises `OSError` if changed tools must be blocked and pins cannot be read.
        """
        if config.pin == "off":
            self._notes.pop(config.name, None)
            return tools
        list_digest = await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: _compute_list_digest(tools))
        try:
            different: Mapping[str, bool] = {}
            if not await self._matches_last_list(config.name, list_digest):
                rows = await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: _to_pin_rows(tools))
                different = await run_in_single_use_thread(
                    lambda: self._pin_or_store_differences(config.name, rows, list_digest)
                )
        except OSError as error:
            if config.pin == "block":
                raise
            _log.warning("the tools of server %r cannot be compared with their pins: %s", config.name, error)
            return tools
        await self._record_use_and_expire_pins_if_due()
        self._stamps[config.name] = self._tables.change_stamp
        self._update_notes(config, different)
        return tools if config.pin == "warn" else [tool for tool in tools if tool.name not in different]

    def get_notes(self, config: ServerConfig) -> Sequence[str]:
        """Return notes on changed tools for programs that import the server."""
        return self._notes.get(config.name, ())

    def get_filter_revision(self, config: ServerConfig) -> int:
        """Return a number that grows when an approval may change the result of `filter_tools`."""
        count = self._changes.get(config.name, 0)
        if config.name in self._notes and self._stamps.get(config.name) != self._tables.change_stamp:
            self._stamps[config.name] = self._tables.change_stamp
            count = self._changes[config.name] = count + 1
        return count

    # --- for people ---

    def list_server_pins(self) -> tuple[ServerPins, ...]:
        """Return the pins and differences of all servers. Raises `OSError`."""
        with self._tables.open() as file:
            names = [
                row[0]
                for row in file.execute("SELECT server FROM servers WHERE principal = ?", self._principal_parameter)
            ]
            return tuple(self._read_server_pins(file, name) for name in sorted(names))

    def approve_current_tools(self, server: str, token: str | None = None) -> int:
        """Pin the current tools of a server; return how many differed.

        With ``token``, only the displayed differences are approved. Raises `KeyError` for an unknown server,
        `ToolsChangedError` and `OSError`.
        """
        with self._tables.open(writes=True) as file:
            file.execute("BEGIN IMMEDIATE")
            if not self._is_server_known(file, server):
                raise KeyError(server)
            found = self._read_server_pins(file, server)
            if token is not None and token != found.token:
                raise ToolsChangedError(f"the tools of {server!r} have changed since their review: review them again")
            rows = self._read_rows(file, _WAITING, server)
            file.execute(_DELETE, (*self._principal_parameter, server, _WAITING))
            self._insert_rows(file, _PINNED, server, rows)
            file.execute(_UPDATE, (None, *self._principal_parameter, server))
            return len(rows)

    # --- parts ---

    @property
    def _principal_parameter(self) -> tuple[str]:
        return (self._principal,)

    def _read_server_pins(self, file: Any, server: str) -> ServerPins:
        pinned, waiting = (self._read_rows(file, state, server) for state in (_PINNED, _WAITING))
        different = (
            ToolDifference(tool, pinned[tool][1] if tool in pinned else None, definition, digest)
            for tool, (digest, definition) in sorted(waiting.items())
        )
        return ServerPins(server, len(pinned), tuple(different))

    def _read_rows(self, file: Any, state: str, server: str) -> _Rows:
        statement = "SELECT tool, digest, said FROM tools WHERE principal = ? AND server = ? AND state = ?"
        found = file.execute(statement, (*self._principal_parameter, server, state))
        return {tool: (digest, definition) for tool, digest, definition in found}

    def _insert_rows(self, file: Any, state: str, server: str, rows: _Rows) -> None:
        values = [
            (*self._principal_parameter, server, state, tool, digest, text) for tool, (digest, text) in rows.items()
        ]
        file.executemany("INSERT OR REPLACE INTO tools VALUES (?, ?, ?, ?, ?, ?)", values)

    async def _matches_last_list(self, server: str, whole: str) -> bool:
        """Return whether a list equals the last list without differences, without comparing each tool."""
        stamp = self._tables.change_stamp
        if stamp != self._list_digests_stamp:
            self._list_digests = await run_in_single_use_thread(self._read_list_digests)
            self._list_digests_stamp = stamp
        return stamp is not None and self._list_digests.get(server) == whole

    async def _record_use_and_expire_pins_if_due(self) -> None:
        """Record once a day that this principal is active, and remove the pins of inactive ones."""
        if self._use_recorded_on == (today := state_files.get_current_epoch_day()):
            return
        self._use_recorded_on = today
        try:
            await run_in_single_use_thread(self._write_use_and_expire_pins)
        except OSError as error:
            _log.info("the pins of inactive users cannot be removed: %s", error)

    def _write_use_and_expire_pins(self) -> None:
        with self._tables.open(writes=True) as file:
            file.execute("BEGIN IMMEDIATE")
            state_files.record_use_and_prune_tables(file, self._principal, "servers", "tools")

    def _read_list_digests(self) -> dict[str, str | None]:
        with self._tables.open() as file:
            return dict(
                file.execute("SELECT server, whole FROM servers WHERE principal = ?", self._principal_parameter)
            )

    def _pin_or_store_differences(self, server: str, rows: _Rows, list_digest: str) -> Mapping[str, bool]:
        """Return the names of new and changed tools; True marks those that existed before."""
        if rows and self._is_first_use(server):
            with self._tables.open(writes=True) as file:
                file.execute("BEGIN IMMEDIATE")
                inserted = file.execute(
                    "INSERT OR IGNORE INTO servers VALUES (?, ?, NULL)", (*self._principal_parameter, server)
                )
                if inserted.rowcount:  # otherwise another gateway was faster
                    self._insert_rows(file, _PINNED, server, rows)
        with self._tables.open() as file:
            pinned, waiting = (self._read_rows(file, state, server) for state in (_PINNED, _WAITING))
        different = {tool: row for tool, row in rows.items() if pinned.get(tool, ("",))[0] != row[0]}
        is_recorded = {tool: row[0] for tool, row in waiting.items()} == {
            tool: row[0] for tool, row in different.items()
        }
        if rows and (not is_recorded or not different):
            with self._tables.open(writes=True) as file:
                file.execute("BEGIN IMMEDIATE")
                file.execute(_DELETE, (*self._principal_parameter, server, _WAITING))
                self._insert_rows(file, _WAITING, server, different)
                file.execute(_UPDATE, (None if different else list_digest, *self._principal_parameter, server))
        return {tool: tool in pinned for tool in different}

    def _is_first_use(self, server: str) -> bool:
        with self._tables.open() as file:
            return not self._is_server_known(file, server)

    def _is_server_known(self, file: Any, server: str) -> bool:
        found = file.execute(
            "SELECT 1 FROM servers WHERE principal = ? AND server = ?", (*self._principal_parameter, server)
        )
        return found.fetchone() is not None

    def _update_notes(self, config: ServerConfig, different: Mapping[str, bool]) -> None:
        notes = tuple(_create_notes(config, different))
        if notes and notes != self._notes.get(config.name):
            _log.warning("server %r: %s", config.name, " ".join(notes))
        if notes:
            self._notes[config.name] = notes
        else:
            self._notes.pop(config.name, None)


def _create_notes(config: ServerConfig, different: Mapping[str, bool]) -> list[str]:
    notes: list[str] = []
    consequence = " and cannot be used until the user approves them" if config.pin == "block" else ""
    for was_there, verb in ((True, "have changed"), (False, "are new")):
        names = [tool for tool, is_old in different.items() if is_old is was_there]
        if names:
            shown = ", ".join(
                f'"{escape_invisible(clip_text(name, _MAX_NAME_CHARACTERS))}"' for name in names[:_MAX_NAMES_IN_NOTE]
            )
            rest = f" and {len(names) - _MAX_NAMES_IN_NOTE} more" if len(names) > _MAX_NAMES_IN_NOTE else ""
            notes.append(f"{shown}{rest} {verb} since they were first used{consequence}")
    return notes


def _compute_list_digest(tools: Sequence[types.Tool]) -> str:
    """Return one digest of all tool definitions, cheaper than one per tool."""
    found = hashlib.sha256()
    for tool in tools:
        found.update(tool.__pydantic_serializer__.to_json(tool, by_alias=True, exclude_none=True))
        found.update(b"\n")
    return found.hexdigest()


def _to_pin_rows(tools: Sequence[types.Tool]) -> _Rows:
    """Return the digest and the displayed text of each tool."""
    rows: _Rows = {}
    remaining_characters = MAX_TOTAL_CHARACTERS
    for tool in tools:
        definition = tool.model_dump_json(
            by_alias=True,
            exclude_none=True,
            include={"title", "description", "input_schema", "output_schema", "annotations"},
        )
        text = clip_text(definition, max(0, min(MAX_TEXT_CHARACTERS, remaining_characters)) + 1)
        remaining_characters -= len(text)
        rows[tool.name] = tool_digest(tool), text.encode("utf-8", "replace").decode()
    return rows
