"""Create guard and journal of programs in the database of a graph's checkpointer."""

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
    """Return options with a journal, so that programs continue after their process died.

    ``checkpoints``: the graph's SQLite or Postgres checkpointer, in whose database journal and resume guard get tables;
    or a path of a SQLite file, a Postgres connection string, or an `InterruptStore`. ``keys``: signing keys that every
    process needs; None means those of `codemode.set_continuation_signing_key`. ``tenant`` and ``app`` separate
    journals. ``more_options``: those of `ContinuationOptions`.

    Raises `ValueError` for a checkpointer with an in-memory or unknown database.
    """
    store = open_checkpoint_store(checkpoints)
    journal = store.journal(tenant=tenant, app=app)
    return ContinuationOptions(keys=keys, guard=store.guard, journal=journal, **more_options)


def open_checkpoint_store(checkpoints: Any) -> InterruptStore:
    """Return a store on a checkpointer's database, or on what `durable_continuation` accepts instead."""
    if hasattr(checkpoints, "guard") and hasattr(checkpoints, "journal"):
        return checkpoints
    location = checkpoints if isinstance(checkpoints, str | Path) else _find_database_location_or_raise(checkpoints)
    if isinstance(location, str) and (location.startswith(_POSTGRES_PREFIXES) or "=" in location):
        from codemode.stores import PostgresInterruptStore

        return PostgresInterruptStore(location)
    from codemode.stores import SqliteInterruptStore

    return SqliteInterruptStore(location)


def _find_database_location_or_raise(saver: Any) -> str:
    connection = getattr(saver, "conn", None)
    location = _find_sqlite_path(connection) or _find_postgres_dsn(connection)
    if location is None:
        raise ValueError(f"cannot determine the database of {type(saver).__name__}: {_DATABASE_HINT}")
    return location


def _find_sqlite_path(connection: Any) -> str | None:
    import sqlite3

    if isinstance(connection, sqlite3.Connection):
        try:
            with closing(connection.execute("PRAGMA database_list")) as databases:
                (path,) = [file for _, name, file in databases if name == "main"]
        except sqlite3.ProgrammingError:  # belongs to another thread
            return None
        return _require_persistent_path(path)
    if not type(connection).__module__.startswith("aiosqlite"):
        return None
    # Read the connection's argument: a query would need its event loop.
    database = inspect.getclosurevars(connection._connector).nonlocals.get("database")  # noqa: SLF001 - no public name
    return None if database is None else _require_persistent_path(str(database))


def _require_persistent_path(path: str) -> str:
    if path in ("", ":memory:"):
        raise ValueError(f"checkpoints in memory end with their process: {_DATABASE_HINT}")
    return path


def _find_postgres_dsn(connection: Any) -> str | None:
    pool_conninfo, info = getattr(connection, "conninfo", None), getattr(connection, "info", None)
    if pool_conninfo is None and not hasattr(info, "dsn"):
        return None
    from psycopg import pq
    from psycopg.conninfo import make_conninfo

    if info is not None:
        # info.dsn has no password.
        return make_conninfo(info.dsn, **({"password": info.password} if info.password else {}))
    dsn_keywords = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    pool_kwargs: Any = connection.kwargs
    connection_kwargs = cast("dict[str, Any]", pool_kwargs) if isinstance(pool_kwargs, dict) else {}
    conninfo_kwargs = {name: value for name, value in connection_kwargs.items() if name in dsn_keywords}
    return (
        make_conninfo(pool_conninfo, **conninfo_kwargs)
        if isinstance(pool_conninfo, str) and (pool_conninfo or conninfo_kwargs)
        else None
    )
