"""The shop's database: SQLite in memory, so that any query that reads gives what it would."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

from codemode import CodeModeToolError

from .people import before, seeded, text_of

_SCHEMA = """
CREATE TABLE customers (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, plan TEXT NOT NULL, country TEXT NOT NULL, manager TEXT, since TEXT NOT NULL
);
CREATE TABLE products (
  sku TEXT PRIMARY KEY, title TEXT NOT NULL, on_hand INTEGER NOT NULL, unit_cents INTEGER NOT NULL
);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY, customer_id TEXT NOT NULL REFERENCES customers(id), ordered_at TEXT NOT NULL,
  total_cents INTEGER NOT NULL, status TEXT NOT NULL
);
"""
_FIRST = ("Alder", "Birch", "Cedar", "Delta", "Ember", "Fjord", "Grove", "Harbor", "Iris", "Juniper")
_SECOND = ("Foods", "Tools", "Optics", "Logistics", "Textiles", "Labs", "Books", "Garden")
_THINGS = ("Bolt", "Nut", "Washer", "Hinge", "Bracket", "Screw", "Clamp", "Spring", "Pin", "Rivet")
PRODUCTS = 180


def stock() -> list[tuple[str, str, int, int]]:
    """Return what is on hand of each product, as the database has it."""
    numbers = seeded("products")
    return [
        (
            f"SKU-{4000 + at}",
            f"{_THINGS[at % 10]} M{3 + at // 10}",
            numbers.randint(0, 900),
            numbers.randint(3, 400) * 5,
        )
        for at in range(PRODUCTS)
    ]


class Database:
    """Customers, products and orders: filled for each query, none of which writes, and closed after it."""

    def functions(self) -> dict[str, Any]:
        return {
            "sqlite_read_query": self._read_file,
            "sqlite_describe_table": self._describe,
            "sqlite_list_tables": self._list,
        }

    async def _read_file(self, given: dict[str, Any]) -> list[Any]:
        if not given["query"].lstrip().lower().startswith("select"):
            raise CodeModeToolError("Only SELECT queries are allowed for read_query")
        return self._rows(given["query"])

    async def _describe(self, given: dict[str, Any]) -> list[Any]:
        return self._rows(f"SELECT * FROM pragma_table_info('{given['table_name']}')")

    async def _list(self, _given: dict[str, Any]) -> list[Any]:
        return self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")

    def _rows(self, query: str) -> list[dict[str, Any]]:
        with closing(_filled()) as database:
            try:
                found = database.execute(query)
            except sqlite3.Error as error:
                raise CodeModeToolError(f"Database error: {error}") from error
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found]


def _filled() -> sqlite3.Connection:
    database, numbers = sqlite3.connect(":memory:"), seeded("database")
    database.executescript(_SCHEMA)
    customers = [
        (
            f"C-{1000 + at}",
            f"{_FIRST[at % 10]} {_SECOND[at // 10 % 8]}",
            numbers.choices(["free", "team", "enterprise"], [3, 4, 2])[0],
            numbers.choice(["DE", "FR", "US", "JP", "BR"]),
            numbers.choice(["Mira Holt", "Sam Okoye", "Lin Tran", None]),
            text_of(before(numbers.uniform(200, 1500)))[:10],
        )
        for at in range(1, 81)
    ]
    orders = [
        (
            50_000 + at,
            numbers.choice(customers)[0],
            text_of(before(numbers.uniform(0, 90))),
            numbers.randint(900, 240_000),
            numbers.choices(["paid", "refunded", "open"], [8, 1, 1])[0],
        )
        for at in range(900)
    ]
    database.executemany("INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?)", customers)
    database.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", stock())
    database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", orders)
    return database
