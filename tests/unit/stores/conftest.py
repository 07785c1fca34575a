"""One store of each kind, each with a clock that the test moves."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from postgres_cluster import cluster, new_database
from stored_pauses import Clock
from suite import full_only

from codemode.stores import MemoryInterruptStore, SqliteInterruptStore

# The default suite has Postgres in these files alone.
ON_POSTGRES = {"test_store_contract", "test_store_databases", "test_store_wakes"}


@pytest.fixture(scope="session")
def postgres_folder() -> Iterator[str]:
    with cluster() as folder:
        yield folder


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kind(request):
    return request.param


def pytest_generate_tests(metafunc):
    """Give each test of stores one of each kind, unless it names kinds of its own."""
    of_its_own = any("kind" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "kind" in metafunc.fixturenames and not of_its_own:
        postgres = ["postgres"] if metafunc.module.__name__ in ON_POSTGRES else full_only("postgres")
        metafunc.parametrize("kind", ["memory", "sqlite", *postgres], indirect=True)


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
