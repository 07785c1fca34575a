"""Guard and journal of programs on the database that a graph keeps its checkpoints in. Opens nothing before it is used.

Knows the checkpointers by what they connect with, and imports none.
"""

from __future__ import annotations

import inspect
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from codemode import ContinuationOptions

if TYPE_CHECKING:
    from codemode.stores import InterruptStore

_POSTGRES_PREFIXES = ("postgres://", "postgresql://")
_DATABASE_HINT = (
    "name the database: durable_continuation('checkpoints.sqlite'), or with the connection string of Postgres"
)


def durable_continuation(
    checkpoints: Any, *, keys: Any = None, tenant: str = "", app: str = "langgraph", **more_options: Any
) -> ContinuationOptions:
    """Return options with which programs go on after the death of their process: what was done is in a journal.

    ``checkpoints`` is the graph's checkpointer (of SQLite or Postgres), whose database the journal and the resume guard
    get tables in; or the path of a SQLite file, a connection string of Postgres, or an `InterruptStore` of codemode.
    ``keys`` sign what is kept, and every process needs them: None are those of
    `codemode.set_continuation_signing_key`. ``tenant`` and ``app`` keep the journals of several apart; ``others`` are
    those of `ContinuationOptions`.
    Raises `ValueError` for a checkpointer whose database outlives no process, or cannot be told.
    """
    store = open_store_of(checkpoints)
    journal = store.journal(tenant=tenant, app=app)
    return ContinuationOptions(keys=keys, guard=store.guard, journal=journal, **more_options)


def open_store_of(checkpoints: Any) -> InterruptStore:
    """Return a store on the database of a checkpointer, or what `durable_continuation` takes in its place."""
    if hasattr(checkpoints, "guard") and hasattr(checkpoints, "journal"):
        return checkpoints
    location = checkpoints if isinstance(checkpoints, str | Path) else _find_database(checkpoints)
    if isinstance(location, str) and (location.startswith(_POSTGRES_PREFIXES) or "=" in location):
        from codemode.stores import PostgresInterruptStore

        return PostgresInterruptStore(location)
    from codemode.stores import SqliteInterruptStore

    return SqliteInterruptStore(location)


def _find_database(saver: Any) -> str:
    connection = getattr(saver, "conn", None)
    location = _sqlite_file(connection) or _postgres_dsn(connection)
    if location is None:
        raise ValueError(
            f"{type(saver).__name__} does not tell which database it keeps checkpoints in: {_DATABASE_HINT}"
        )
    return location


def _sqlite_file(connection: Any) -> str | None:
    import sqlite3

    if isinstance(connection, sqlite3.Connection):
        try:
            with closing(connection.execute("PRAGMA database_list")) as databases:
                (path,) = [file for _, name, file in databases if name == "main"]
        except sqlite3.ProgrammingError:  # of another thread
            return None
        return _require_persistent(path)
    if not type(connection).__module__.startswith("aiosqlite"):
        return None
    # What it was connected with: asking the database takes its event loop.
    database = inspect.getclosurevars(connection._connector).nonlocals.get("database")  # noqa: SLF001 - there is no public name
    return None if database is None else _require_persistent(str(database))


def _require_persistent(path: str) -> str:
    if path in ("", ":memory:"):
        raise ValueError(f"checkpoints in memory end with their process: {_DATABASE_HINT}")
    return path


def _postgres_dsn(connection: Any) -> str | None:
    pool_conninfo, info = getattr(connection, "conninfo", None), getattr(connection, "info", None)
    if pool_conninfo is None and not hasattr(info, "dsn"):
        return None
    from psycopg import pq
    from psycopg.conninfo import make_conninfo

    if info is not None:
        # The connection keeps its password apart.
        return make_conninfo(info.dsn, **({"password": info.password} if info.password else {}))
    known_keywords = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    pool_kwargs: Any = connection.kwargs
    connection_kwargs = cast("dict[str, Any]", pool_kwargs) if isinstance(pool_kwargs, dict) else {}
    conninfo_kwargs = {name: value for name, value in connection_kwargs.items() if name in known_keywords}
    return (
        make_conninfo(pool_conninfo, **conninfo_kwargs)
        if isinstance(pool_conninfo, str) and (pool_conninfo or conninfo_kwargs)
        else None
    )
