"""Store versions of saved programs, their use counts and why they became stale."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..records import record
from .errors import UnknownRequestError
from .transaction import Database, Row, Session, is_storable_text, run_read_transaction, run_write_transaction

ResultT = TypeVar("ResultT")
MAX_PROGRAMS = 1000  # of one owner
MAX_VERSIONS = 100  # of one program; the oldest are deleted

_PROGRAM_KEY = "owner = ? AND name = ?"
_VERSION_COLUMNS = "version, saved_at_ms, body, tools, confirmed_by, confirmed_at_ms"


@record
class StoredProgramVersion:
    """One version of a program. ``tools`` are the digests of its tools by name, None before its first use."""

    version: int
    saved_at_ms: int
    body: Mapping[str, Any]
    tools: Mapping[str, Mapping[str, str]] | None
    confirmed_by: str | None
    confirmed_at_ms: int | None


@record
class StoredProgram:
    """One program with its current version. ``stale`` says what had changed when it was last refused."""

    owner: str
    name: str
    is_disabled: bool
    uses: int
    used_at_ms: int | None
    stale: Mapping[str, Any] | None
    current: StoredProgramVersion


class SavedProgramTables:
    """The tables of saved programs. Each method is one transaction; raises `StoreUnavailableError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load_programs(self, owner: str) -> list[StoredProgram]:
        """Return all programs of an owner, the most used first."""
        return await self._run_read(lambda session: _select_programs(session, "p.owner = ?", owner))

    def load_programs_sync(self, owner: str) -> list[StoredProgram]:
        """Load without an event loop, for the first description of a tool."""
        with self._database.transaction(writes=False) as session:
            return _select_programs(session, "p.owner = ?", owner)

    async def load_all_programs(self) -> list[StoredProgram]:
        """Return the programs of all owners, for administration."""
        return await self._run_read(lambda session: _select_programs(session, "1 = 1"))

    async def list_versions(self, owner: str, name: str) -> list[StoredProgramVersion]:
        """Return the versions of one program, the newest first."""
        statement = f"SELECT {_VERSION_COLUMNS} FROM codemode_saved_versions WHERE {_PROGRAM_KEY} ORDER BY version DESC"
        return await self._run_read(
            lambda session: [_decode_program_version(row) for row in session.fetch_all(statement, owner, name)]
        )

    async def add_version_and_make_current(
        self,
        owner: str,
        name: str,
        body: Mapping[str, Any],
        tools: Mapping[str, Any] | None,
        expected: int | None = None,
    ) -> int:
        """Store a new version, make it current and return its number.

        ``expected`` is the current version that the caller has seen, 0 for a new program. Raises `ValueError` if
        another version is current, and beyond the maximum number of programs.
        """
        texts = json.dumps(body), None if tools is None else json.dumps(tools)
        if not all(is_storable_text(text) for text in (owner, name)):
            raise ValueError("owner and name of a saved program must be texts without NUL and lone surrogates")
        return await self._run_write(
            lambda session: _insert_current_version_and_trim(session, owner, name, texts, expected)
        )

    async def set_disabled(self, owner: str, name: str, *, is_disabled: bool) -> None:
        """Disable or enable a program. Raises `UnknownRequestError`."""
        statement = f"UPDATE codemode_saved_programs SET is_disabled = ? WHERE {_PROGRAM_KEY}"
        await self._update_program(statement, name, int(is_disabled), owner, name)

    async def set_current_version(self, owner: str, name: str, version: int) -> None:
        """Make an existing version current again. Raises `UnknownRequestError`."""
        statement = (
            f"UPDATE codemode_saved_programs SET current_version = ?, stale = NULL WHERE {_PROGRAM_KEY} AND EXISTS"
            " (SELECT 1 FROM codemode_saved_versions v WHERE v.owner = ? AND v.name = ? AND v.version = ?)"
        )
        await self._update_program(statement, name, version, owner, name, owner, name, version)

    async def delete_program(self, owner: str, name: str) -> None:
        """Delete a program with all its versions. Raises `UnknownRequestError`."""

        def delete_rows(session: Session) -> None:
            session.run(f"DELETE FROM codemode_saved_versions WHERE {_PROGRAM_KEY}", owner, name)
            _require_changed_row(
                session.run(f"DELETE FROM codemode_saved_programs WHERE {_PROGRAM_KEY}", owner, name), name
            )

        await self._run_write(delete_rows)

    async def count_use(self, owner: str, name: str) -> None:
        """Count a use."""
        statement = f"UPDATE codemode_saved_programs SET uses = uses + 1, used_at_ms = ? WHERE {_PROGRAM_KEY}"
        await self._run_write(lambda session: session.run(statement, session.now_ms, owner, name))

    async def record_stale_reasons(self, owner: str, stale: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Record by name why programs are stale; None: they are not any more."""
        rows = [(None if reason is None else json.dumps(reason), owner, name) for name, reason in stale.items()]
        statement = f"UPDATE codemode_saved_programs SET stale = ? WHERE {_PROGRAM_KEY}"
        await self._run_write(lambda session: session.execute_many(statement, rows))

    async def pin_tool_digests(
        self, owner: str, pins: Iterable[tuple[str, int, Mapping[str, Any]]], *, by: str | None = None
    ) -> None:
        """Store the tool digests of versions. ``by`` is who confirmed them; None on their first use.

        First use never replaces digests.
        """
        only_first = " AND tools IS NULL" if by is None else ""
        statement = (
            "UPDATE codemode_saved_versions SET tools = ?, confirmed_by = ?, confirmed_at_ms = ?"
            f" WHERE {_PROGRAM_KEY} AND version = ?{only_first}"
        )

        def update_versions(session: Session) -> None:
            for name, version, tools in pins:
                at_ms = None if by is None else session.now_ms
                session.run(statement, json.dumps(tools), by, at_ms, owner, name, version)
                if by is not None:
                    session.run(f"UPDATE codemode_saved_programs SET stale = NULL WHERE {_PROGRAM_KEY}", owner, name)

        await self._run_write(update_versions)

    async def _update_program(self, statement: str, name: str, *values: Any) -> None:
        await self._run_write(lambda session: _require_changed_row(session.run(statement, *values), name))

    async def _run_read(self, work: Callable[[Session], ResultT]) -> ResultT:
        return await run_read_transaction(self._database, work)

    async def _run_write(self, work: Callable[[Session], ResultT]) -> ResultT:
        return await run_write_transaction(self._database, work)


def _insert_current_version_and_trim(
    session: Session, owner: str, name: str, encoded: tuple[str, str | None], expected: int | None
) -> int:
    row = session.fetch_one(
        f"SELECT current_version, next_version FROM codemode_saved_programs WHERE {_PROGRAM_KEY}", owner, name
    )
    current, version = (0, 1) if row is None else (row[0], row[1])
    if expected not in (None, current):
        raise ValueError(f"saved.{name} has version {current} now: review it and save again")
    if row is None:
        count = session.fetch_one("SELECT count(*) FROM codemode_saved_programs WHERE owner = ?", owner)
        if count is not None and count[0] >= MAX_PROGRAMS:
            raise ValueError(f"the limit of {MAX_PROGRAMS} saved programs is reached: delete some")
        session.run(
            "INSERT INTO codemode_saved_programs (owner, name, current_version, next_version, is_disabled, uses)"
            " VALUES (?, ?, ?, ?, 0, 0)",
            *(owner, name, version, version + 1),
        )
    else:
        session.run(
            "UPDATE codemode_saved_programs SET current_version = ?, next_version = ?, is_disabled = 0, stale = NULL"
            f" WHERE {_PROGRAM_KEY}",
            *(version, version + 1, owner, name),
        )
    session.run(
        "INSERT INTO codemode_saved_versions (owner, name, version, saved_at_ms, body, tools)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        *(owner, name, version, session.now_ms, *encoded),
    )
    session.run(
        f"DELETE FROM codemode_saved_versions WHERE {_PROGRAM_KEY} AND version <= ?",
        owner,
        name,
        version - MAX_VERSIONS,
    )
    return version


def _select_programs(session: Session, condition: str, *values: Any) -> list[StoredProgram]:
    columns = ", ".join(f"v.{column}" for column in _VERSION_COLUMNS.split(", "))
    statement = (
        f"SELECT p.owner, p.name, p.is_disabled, p.uses, p.used_at_ms, p.stale, {columns}"
        " FROM codemode_saved_programs p JOIN codemode_saved_versions v"
        " ON v.owner = p.owner AND v.name = p.name AND v.version = p.current_version"
        f" WHERE {condition} ORDER BY p.uses DESC, p.owner, p.name"
    )
    return [
        StoredProgram(
            owner=row[0],
            name=row[1],
            is_disabled=bool(row[2]),
            uses=row[3],
            used_at_ms=row[4],
            stale=None if row[5] is None else json.loads(row[5]),
            current=_decode_program_version(row[6:]),
        )
        for row in session.fetch_all(statement, *values)
    ]


def _decode_program_version(row: Row) -> StoredProgramVersion:
    version, saved_at_ms, body, tools, confirmed_by, confirmed_at_ms = row
    pinned = None if tools is None else json.loads(tools)
    return StoredProgramVersion(version, saved_at_ms, json.loads(body), pinned, confirmed_by, confirmed_at_ms)


def _require_changed_row(count: int, name: str) -> None:
    if count == 0:
        raise UnknownRequestError(f"unknown saved program {name!r} or version")
