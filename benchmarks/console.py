"""W20: pages of the approval console with 100,000 records behind it, against a page of the same size from nowhere.

`python -m benchmarks.console [--records N] [--seconds N] [--dsn DSN]`: on SQLite, and on Postgres where a dsn is given
or the machine has its programs. One record in ten waits. The floor is a bare Starlette route whose Jinja template gives
as many bytes of escaped text. Each page and its floor are taken in turn, one request at a time, without a socket.
Where there are Chromium and Playwright, it also loads the list and a record in a browser, in turn with the bare page,
and prints the ratio of their first contentful paints.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from codemode import Interrupt, Tool, create_code_mode_tool
from codemode.stores import ALL_TENANTS, PostgresInterruptStore, SqliteInterruptStore
from codemode.stores.transaction import Session

from .stores import own_cluster
from .table import Row, machine, table

_PROGRAM = """const found = await tools.find({ order: "A-17" });
return await tools.refund({ order: found.order, cents: 90000 });"""
_SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["order", "cents"],
}
_WAITS = "CASE WHEN i = i / 10 * 10 THEN {} ELSE {} END"
# What is another in each copy of the one record that a program has made.
_COPIES: Mapping[str, Mapping[str, str]] = {
    "records": {
        "id": "'r' || i",
        "position": "i + 10",
        "tenant": "'tenant' || (i - i / 40 * 40)",
        "state": _WAITS.format("'pending'", "'completed'"),
        "expires_at_ms": "expires_at_ms + i",
    },
    "requests": {
        "interrupt_id": "'q' || i",
        "record_id": "'r' || i",
        "position": "i + 10",
        "tenant": "'tenant' || (i - i / 40 * 40)",
        "tool_name": "'tool' || (i - i / 7 * 7)",
        "state": _WAITS.format("'waiting'", "'applied'"),
        "is_open": _WAITS.format(1, 0),
        "expires_at_ms": "expires_at_ms + i",
    },
    "labels": {
        "record_id": "'r' || i",
        "position": "i + 10",
        "tenant": "'tenant' || (i - i / 40 * 40)",
        "state": _WAITS.format("'pending'", "'completed'"),
        "expires_at_ms": "expires_at_ms + i",
    },
    "versions": {"nonce": "'n' || i", "record_id": "'r' || i"},
}
_PAGES = {
    "list, all tenants": "/",
    "list, a tool, a label, soonest to expire": "/?tool=tool3&label=agent%3Drefunds&order=expiring",
    "record": "/records/{record_id}",
}
PAINTS = 15
"""So often is each page loaded in a browser."""
MAX_PAINT_RATIO = 3.0
_FIRST_PAINT = """() => new Promise((found) => new PerformanceObserver((seen) => {
    for (const entry of seen.getEntries()) if (entry.name === "first-contentful-paint") found(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""
_FLOOR = "<table>{% for row in rows %}<tr><td>{{ row }}</td></tr>\n{% endfor %}</table>"
_ROW_CHARACTERS = 80


class Visitor:
    """Calls one application as a server does, and remembers its cookie."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self._app = app
        self._cookie = b""

    async def get(self, target: str) -> bytes:
        """Return a page."""
        path, _, query = target.partition("?")
        headers = [(b"host", b"desk.test"), (b"accept", b"text/html"), (b"cookie", self._cookie)]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "https",
            "path": path, "raw_path": path.encode(), "root_path": "", "query_string": query.encode(),
            "headers": headers, "client": ("192.0.2.1", 5), "server": ("desk.test", 443),
        }  # fmt: skip
        body, status = bytearray(), 0

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                found = [value for name, value in message["headers"] if name == b"set-cookie"]
                self._cookie = found[0].partition(b";")[0] if found else self._cookie
            else:
                body.extend(message.get("body", b""))

        await self._app(scope, receive, send)
        assert status == 200, (status, bytes(body[:500]))
        return bytes(body)


async def console_rows(records: int, seconds: float, dsn: str | None = None) -> list[Row]:
    """Return a row for each page on each database there is."""
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stores: dict[str, Any] = {"SQLite": SqliteInterruptStore(f"{folder}/pauses.sqlite")}
        dsn = own_cluster(stack) if dsn is None else dsn
        if dsn is not None:
            stores["Postgres"] = PostgresInterruptStore(dsn)
        for name, store in stores.items():
            async with store:
                rows += await _rows_of(name, store, records, seconds)
    return rows


async def _rows_of(name: str, store: Any, records: int, seconds: float) -> list[Row]:
    console: Any = import_module("codemode_console")
    ana = console.User("ana", ALL_TENANTS)

    async def who(_request: Any) -> Any:
        return ana

    record_id = await _filled(store, records)
    visitor = Visitor(console.approval_console(store, auth=who))
    rows: list[Row] = []
    for what, target in _PAGES.items():
        address = target.format(record_id=record_id)
        size = len(await visitor.get(address))
        floor = Visitor(_bare(size))
        queries = await _queries(visitor, address)
        taken = await _in_turn([lambda at=address: visitor.get(at), lambda at=floor: at.get("/")], seconds)
        ours, bare = (1 / statistics.median(one) for one in taken)
        note = f"{what}, {name}: {size} bytes, {queries} queries"
        rows.append(Row("W20", f"{what}, {name}", ours, unit="1/s", floor=bare, ratio=bare / ours, note=note))
    return rows


async def paint_rows(records: int, loads: int = PAINTS) -> list[Row]:
    """Return rows for the first contentful paint of the list and of a record; none where there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None or find_spec("playwright") is None:
        return []
    console, playwright = import_module("codemode_console"), import_module("playwright.async_api")
    ana = console.User("ana", ALL_TENANTS)

    async def who(_request: Any) -> Any:
        return ana

    sandbox = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteInterruptStore(f"{folder}/pauses.sqlite") as store, playwright.async_playwright() as driver:
            record_id = await _filled(store, records)
            app = console.approval_console(store, auth=who)
            browser = await driver.chromium.launch(executable_path=chromium, args=sandbox)
            page = await browser.new_page(viewport={"width": 1280, "height": 900})
            rows: list[Row] = []
            for what, target in (("list", "/"), ("record", f"/records/{record_id}")):
                size = len(await Visitor(app).get(target))
                async with _served(app) as ours, _served(_bare(size)) as bare:
                    taken: list[list[float]] = [[], []]
                    for _ in range(loads):
                        for url, times in zip((f"{ours}{target}", f"{bare}/"), taken, strict=True):
                            await page.goto(url)
                            times.append(await page.evaluate(_FIRST_PAINT))
                median, floor = map(statistics.median, taken)
                ratio = median / floor
                target_text = f"at most {MAX_PAINT_RATIO:g}"
                met = ratio <= MAX_PAINT_RATIO
                named = f"first contentful paint, {what}"
                rows.append(Row("W20", named, median, floor=floor, ratio=ratio, target=target_text, met=met))
            await browser.close()
    return rows


@asynccontextmanager
async def _served(app: Callable[..., Any]) -> AsyncGenerator[str]:
    """Serve an application on a port of this machine, and yield its URL."""
    uvicorn = import_module("uvicorn")
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning", timeout_graceful_shutdown=5))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


async def _in_turn(ways: list[Callable[[], Any]], seconds: float) -> list[list[float]]:
    taken: list[list[float]] = [[] for _ in ways]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(taken[0]) < 3:
        for way, times in zip(ways, taken, strict=True):
            begun = time.perf_counter()
            await way()
            times.append(time.perf_counter() - begun)
    return taken


async def _queries(visitor: Visitor, target: str) -> int:
    """Return how many statements one page sends."""
    count, execute = 0, Session._execute  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    def counted(session: Session, statement: str, values: Any) -> None:
        nonlocal count
        count += 1
        execute(session, statement, values)

    Session._execute = counted  # noqa: SLF001  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    try:
        await visitor.get(target)
    finally:
        Session._execute = execute  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return count


def _bare(size: int) -> Callable[..., Any]:
    """Return an application that renders a page of this size."""
    jinja, starlette = import_module("jinja2"), import_module("starlette.applications")
    routing, responses = import_module("starlette.routing"), import_module("starlette.responses")
    template = jinja.Environment(autoescape=True).from_string(_FLOOR)
    rows = ["x" * _ROW_CHARACTERS] * max(1, size // (_ROW_CHARACTERS + len("<tr><td></td></tr>\n")))

    async def page(_request: Any) -> Any:
        return responses.HTMLResponse(template.render(rows=rows))

    return starlette.Starlette(routes=[routing.Route("/", page)])


async def _filled(store: Any, records: int) -> str:
    """Keep a program's pause, and as many copies of it as are asked for, and return the record of the first."""
    options: dict[str, Any] = {
        "approval": {"mode": "interrupt"},
        "continuation": {"guard": store.guard, "keys": secrets.token_hex(32), "max_age_ms": 7 * 86_400_000},
    }
    tools = [
        Tool("find", execute=lambda value, _context: value, input_schema={"type": "object"}),
        Tool("refund", execute=lambda value, _context: value, input_schema=_SCHEMA, needs_approval=True),
    ]
    code_mode = create_code_mode_tool(tools, options)
    paused = await code_mode.execute({"js": _PROGRAM})
    assert isinstance(paused, Interrupt), paused
    kept = {"tool": code_mode, "tenant": "bench", "app": "shop", "labels": {"agent": "refunds"}, "source": _PROGRAM}
    record_id = await store.put(paused, **kept)
    await asyncio.to_thread(_copy, store, record_id, records)
    return record_id


def _copy(store: Any, record_id: str, records: int) -> None:
    with store._database.transaction(writes=True) as session:  # noqa: SLF001
        for name, changed in _COPIES.items():
            key = "id" if name == "records" else "record_id"
            session.fetch_all(f"SELECT * FROM codemode_{name} WHERE {key} = ?", record_id)
            columns = [one[0] for one in session._cursor.description]  # noqa: SLF001
            values = ", ".join(changed.get(one, one) for one in columns)
            session.run(
                f"INSERT INTO codemode_{name} ({', '.join(columns)})"
                " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
                f" SELECT {values} FROM n, codemode_{name} WHERE {key} = ?",
                *(records, record_id),
            )
        session.run("UPDATE codemode_store SET sequence = ?", records + 10)
        session.sequence = records + 10
    with store._database.transaction(writes=True) as session:  # noqa: SLF001
        session.run("ANALYZE")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--dsn")
    arguments = parser.parse_args()
    print(machine(), "\n", file=sys.stdout)
    measured = asyncio.run(console_rows(arguments.records, arguments.seconds, arguments.dsn))
    print(table([*measured, *asyncio.run(paint_rows(arguments.records))]))
