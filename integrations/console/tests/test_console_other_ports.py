"""Servers on other ports of the same host share its cookies, but never receive the session."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import httpx
import pytest
from browsing import Hall, button, paste_token, visiting
from codemode_console import approval_console
from codemode_console.auth import new_private_path
from console_visitors import ANA, OWN, Desk

from codemode.stores import SqliteInterruptStore

if TYPE_CHECKING:
    from playwright.async_api import Page

PRIVATE = "~0123456789abcdef0123"
BROWSER = {**OWN, "user-agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/130", "sec-fetch-mode": "navigate"}


def test_the_session_cookie_is_limited_to_the_private_path() -> None:
    async def work() -> None:
        for prefix in ("", "/approvals"):
            desk = Desk(prefix=prefix, private_path=PRIVATE)
            async with desk.browser(headers=BROWSER) as browser:
                rows = {
                    "": f"{prefix}/{PRIVATE}/",
                    f"{prefix}/records/a": f"{prefix}/{PRIVATE}/records/a",
                    f"{prefix}/{PRIVATE}/records/a": f"{prefix}/{PRIVATE}/records/a",
                    "https://evil.example/": f"{prefix}/{PRIVATE}/",
                }
                for target, arrived in rows.items():
                    for root in (prefix, f"{prefix}/{PRIVATE}"):
                        fields = {"token": ANA, "next": target}
                        answer = await browser.post(f"{root}/sign-in", data=fields)
                        assert (answer.status_code, answer.headers["location"]) == (303, arrived)
                        assert f"Path={prefix}/{PRIVATE};" in answer.headers["set-cookie"]
                assert (await browser.get(f"{prefix}/{PRIVATE}/")).json()["name"] == "ana"
                public = await browser.get(f"{prefix}/records/a")
                assert public.status_code == 303
                assert public.headers["location"].startswith(f"{prefix}/sign-in?next=")

    asyncio.run(work())


def test_a_script_signs_in_through_the_public_paths() -> None:
    async def work() -> None:
        desk = Desk(private_path=PRIVATE)
        async with desk.browser() as client:
            await client.post("/sign-in", data={"token": ANA}, headers=OWN)
            assert (await client.get("/")).json()["name"] == "ana"

    asyncio.run(work())


def test_a_private_path_is_random() -> None:
    assert new_private_path() != new_private_path()
    for wrong in ("", "console", "~short", "~0123456789abcdef/..", "/~0123456789abcdef0123"):
        with pytest.raises(ValueError, match="private_path must be"):
            Desk(private_path=wrong)


@contextmanager
def thief() -> Generator[tuple[int, list[str]]]:
    """A server on another port of this machine, and the cookies that it is sent."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            seen.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<!doctype html>hello")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], seen
        finally:
            server.shutdown()
            thread.join()


@asynccontextmanager
async def console(folder: Path) -> AsyncGenerator[str]:
    """Serve a console of one printed token as `codemode console` does, and give its URL."""
    import uvicorn
    from codemode_console import TokenAuth, User, token_hash

    from codemode.stores import ALL_TENANTS

    store = SqliteInterruptStore(folder / "store.db")
    auth = TokenAuth({token_hash(ANA): User("operator", ALL_TENANTS)})
    app = approval_console(store, auth=auth, options={"private_path": new_private_path()})
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning", timeout_graceful_shutdown=5))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with store, app.running():
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                server.should_exit = True
                await serving


async def follow_link(page: Page, url: str) -> None:
    """Follow a link of a page of this origin to another one."""
    await page.evaluate("url => { const a = document.createElement('a'); a.href = url; a.click(); }", url)
    await page.wait_for_url(url)


@pytest.mark.full
async def test_no_server_on_another_port_is_sent_the_session(hall: Hall, tmp_path: Path) -> None:
    with thief() as (port, seen):
        origins = [f"http://{host}:{port}" for host in ("127.0.0.1", "localhost")]
        async with console(tmp_path) as url, visiting(hall, [url, *origins]) as visitor:
            page = await visitor.page()
            await page.goto(f"{url}/sign-in#token={ANA}")
            await page.wait_for_url(re.compile(rf"{url}/~[^/]+/$"))
            home = page.url
            paths = ("/", "/records/x", "/sign-in", "/~/", "/console/")
            for origin in origins:
                for path in paths:
                    await follow_link(page, f"{origin}{path}")
                    await page.goto(home)
            assert len(seen) >= len(origins) * len(paths)
            assert set(seen) == {""}
            cookies = await visitor.context.cookies()
            assert [cookie["path"] for cookie in cookies] == [httpx.URL(home).path.rstrip("/")]


@pytest.mark.full
async def test_links_without_the_private_path_find_the_session(hall: Hall, tmp_path: Path) -> None:
    async with console(tmp_path) as url, visiting(hall, [url]) as visitor:
        page = await visitor.page()
        await paste_token(page, f"{url}/history")
        await page.wait_for_url(re.compile(rf"{url}/~[^/]+/history$"))
        other = await visitor.page()
        await other.goto(f"{url}/audit")
        await other.wait_for_url(re.compile(rf"{url}/~[^/]+/audit$"))
        again = await visitor.page()
        await again.goto(f"{url}/sign-in#token={ANA}")
        await again.get_by_text("has filled in a token").wait_for()
        await button(other, "Sign out").click()
        await other.wait_for_url(re.compile("/sign-in$"))
        last = await visitor.page()
        await last.goto(f"{url}/audit")
        await last.get_by_label("Token").wait_for()
