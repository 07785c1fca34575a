"""One store of each kind, each with a clock that the test moves.

By default Postgres has the tests of `test_store_contract` and `test_store_databases`; in the full suite all of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from postgres_cluster import cluster, new_database
from stored_pauses import Clock
from suite import full_only

from codemode import MemoryInterruptStore, SqliteInterruptStore


@pytest.fixture(scope="session")
def postgres_folder() -> Iterator[str]:
    with cluster() as folder:
        yield folder


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite", *full_only("postgres")])
def kind(request):
    return request.param


@pytest.fixture
def make(kind, request, tmp_path, clock):
    """Makes stores on one database; in memory there is one."""
    if kind == "memory":
        only = MemoryInterruptStore(clock=clock)
        return lambda: only
    if kind == "sqlite":
        return lambda: SqliteInterruptStore(tmp_path / "pauses.sqlite", clock=clock)
    from codemode.stores.postgres import PostgresInterruptStore

    dsn = new_database(request.getfixturevalue("postgres_folder"), f"t{secrets.token_hex(6)}")
    return lambda: PostgresInterruptStore(dsn, max_connections=3, clock=clock)
