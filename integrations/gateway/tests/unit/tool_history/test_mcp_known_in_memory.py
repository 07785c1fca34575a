"""Tables in memory end with what holds them: from Python 3.13 on a connection that nobody closed is warned of."""

from __future__ import annotations

import gc
import sqlite3

import pytest
from codemode_gateway.state_files import PrivateDatabase


def test_tables_in_memory_are_closed_with_their_owner():
    tables = PrivateDatabase(None, "CREATE TABLE IF NOT EXISTS said (text)")
    with tables.open(writes=True) as connection:
        connection.execute("INSERT INTO said VALUES ('one')")
    with tables.open() as connection:
        assert connection.execute("SELECT text FROM said").fetchall() == [("one",)]
    del tables
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
