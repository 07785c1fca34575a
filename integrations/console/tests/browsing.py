"""Chromium, a console that it visits, and the one thread on whose loop both live, for the tests.

Playwright keeps an event loop in the thread that starts it. It has one of its own here, so that whatever else is tested
in the process finds its thread as it was.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

from codemode_console import TokenAuth, User, approval_console, token_hash
from console_command import KEY
from console_visitors import ANA
from required import missing
from stored_pauses import Clock

from codemode import create_code_mode_tool
from codemode.stores import ALL_TENANTS, Record, SqliteInterruptStore

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Dialog, Locator, Page, Request, Response

T = TypeVar("T")
BOUND_SECONDS = 180
WAIT_MS = 60_000
_APPROVAL = {"mode": "interrupt", "show_denial_reason": True}
BOB = "bob's own 256 random bits"

USERS = {
    token_hash(ANA): User("ana", ALL_TENANTS),
    token_hash(BOB): User("bob", ["acme"]),
}
# Nothing of Chromium's own may call anybody, and a sandbox of its own needs a user other than root.
_ARGUMENTS = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-breakpad", "--disable-dev-shm-usage"),
)
# What Chromium says of a page that was answered with 4xx, which tests ask for.
_EXPECTED = "Failed to load resource: the server responded with a status of 4"


def chromium_path() -> str:
    """Where Chromium is; without it, or Playwright, the test that asks is skipped, or fails where it is required."""
    if find_spec("playwright") is None:
        missing("chromium", "playwright is not installed")
    found = shutil.which("chromium")
    if found is None:
        missing("chromium", "there is no chromium on this machine")
    return found


class Hall:
    """The thread, and the browser in it."""

    browser: Browser

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run_thread(self) -> None:
        """Be the thread, until the loop is stopped."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop, for a bounded time."""
        bounded = asyncio.wait_for(work, BOUND_SECONDS)
        return asyncio.run_coroutine_threadsafe(bounded, self._loop).result(BOUND_SECONDS + 10)

    @contextmanager
    def holding(self, manager: AbstractAsyncContextManager[T]) -> Generator[T]:
        """Have something open while the block runs, entered and left by one task."""
        opened, leave = Future[T](), asyncio.Event()

        async def hold() -> None:
            async with manager as held:
                opened.set_result(held)
                await leave.wait()

        holder = asyncio.run_coroutine_threadsafe(hold(), self._loop)
        try:
            done, _ = wait([opened, holder], BOUND_SECONDS, FIRST_COMPLETED)
            yield opened.result(0) if opened in done else cast("T", holder.result(0))
        finally:
            self._loop.call_soon_threadsafe(leave.set)
            holder.result(BOUND_SECONDS)


@contextmanager
def open_hall() -> Generator[Hall]:
    """Have the thread and the browser while the block runs."""
    path = chromium_path()
    hall = Hall()
    thread = threading.Thread(target=hall.run_thread, name="browser")
    thread.start()
    try:
        with hall.holding(_browser(path)) as hall.browser:
            yield hall
    finally:
        hall.stop()
        thread.join(BOUND_SECONDS)
        assert not thread.is_alive()


@asynccontextmanager
async def _browser(path: str) -> AsyncGenerator[Browser]:
    from playwright.async_api import async_playwright, expect

    expect.set_options(timeout=WAIT_MS)
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=[*_ARGUMENTS, *as_root], timeout=WAIT_MS)
        try:
            yield browser
        finally:
            await browser.close()


class Visitor:
    """Somebody's browser, with cookies of its own. ``alarms`` is what must happen on no page."""

    def __init__(self, context: BrowserContext, origins: Sequence[str]) -> None:
        self.context, self.alarms, self._origins = context, list[str](), set(origins)
        self._is_blocked = False
        context.set_default_timeout(WAIT_MS)
        context.on("dialog", self._dialog)
        context.on("console", self._console)
        context.on("weberror", lambda error: self.alarms.append(f"error: {error.error}"))
        context.on("request", self._request)

    async def page(self) -> Page:
        return await self.context.new_page()

    async def sign_in(self, url: str, token: str = ANA) -> None:
        """Sign in without a page."""
        answer = await self.context.request.post(
            f"{url}/sign-in", form={"token": token}, headers={"sec-fetch-site": "same-origin"}, max_redirects=0
        )
        assert answer.status == 303, await answer.text()

    def trust(self, origin: str) -> None:
        """Expect requests to another origin."""
        self._origins.add(origin)

    def expect_blocked(self) -> None:
        """Expect that the browser says what it refuses a page of somebody else's."""
        self._is_blocked = True

    async def _dialog(self, dialog: Dialog) -> None:
        self.alarms.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not self._is_blocked and not message.text.startswith(_EXPECTED):
            self.alarms.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if f"{parts.scheme}://{parts.netloc}" not in self._origins:
            self.alarms.append(f"request: {request.url}")


@asynccontextmanager
async def visiting(hall: Hall, origins: Sequence[str], **settings: Any) -> AsyncGenerator[Visitor]:
    """Have a visitor, who must not meet anything alarming while the block runs."""
    context = await hall.browser.new_context(**settings)
    try:
        visitor = Visitor(context, origins)
        yield visitor
        assert visitor.alarms == []
    finally:
        await _at_rest(context)
        await context.close()


async def _at_rest(context: BrowserContext) -> None:
    """Leave no page on its way elsewhere: Chromium may never answer that such a context is closed."""
    from playwright.async_api import Error

    for page in context.pages:
        with suppress(Error):
            await page.goto("about:blank")


def button(where: Page | Locator, name: str) -> Locator:
    return where.get_by_role("button", name=name, exact=True)


async def follow(page: Page, pressed: Locator) -> Response | None:
    """Press a button or a link, and return what its page was answered with, once that has come.

    What follows at once meets the page that was there before, or goes elsewhere while this one is still on its way.
    """
    async with page.expect_navigation() as led:
        await pressed.click()
    return await led.value


async def refused(page: Page, pressed: Locator) -> int:
    """Press a button, and return the status that its page came with."""
    answer = await follow(page, pressed)
    assert answer is not None
    return answer.status


def cards(page: Page) -> Locator:
    """The forms of calls that wait for an approval."""
    return page.locator("form").filter(has=page.get_by_role("button", name="Deny", exact=True))


async def paste_token(page: Page, url: str, token: str = ANA) -> None:
    await page.goto(url)
    await page.get_by_label("Token").fill(token)
    await button(page, "Sign in").click()


async def open_record(visitor: Visitor, desk: Desk, record_id: str, token: str = ANA) -> Page:
    """Go from the list to a record, signed in."""
    await visitor.sign_in(desk.url, token)
    page = await visitor.page()
    await page.goto(desk.url)
    await page.locator(f'a[href$="/records/{record_id}"]').first.click()
    await page.wait_for_url(f"**/records/{record_id}")
    return page


def shape_of(url: str) -> tuple[str, frozenset[str]]:
    """Say which page an address is of, whatever its filters say: its path, and which parameters it has."""
    parts = urlsplit(url)
    return parts.path, frozenset(parse_qs(parts.query, keep_blank_values=True))


class Desk:
    """A console on a port of this machine, over a database, where decided programs of two apps go on."""

    def __init__(self, database: Path, tools: Sequence[Any], **settings: Any) -> None:
        self.clock = Clock()
        self.store = SqliteInterruptStore(database, clock=self.clock)
        self.code_mode = self.tool(tools)
        settings.setdefault("auth", TokenAuth(USERS))
        settings.setdefault("resume", dict.fromkeys(("shop", "support"), self.code_mode.resume))
        self.console = approval_console(self.store, **settings)
        self.url = ""

    def tool(self, tools: Sequence[Any], **continuation: Any) -> Any:
        """Make a tool whose pauses go into the store."""
        kept = {"keys": KEY, "guard": self.store.guard, "max_age_ms": 86_400_000, **continuation}
        return create_code_mode_tool(tools, {"approval": _APPROVAL, "continuation": kept})

    async def pause(self, js: str, *, tool: Any = None, **settings: Any) -> str:
        """Run a program until it asks somebody, and return the id of its record."""
        code_mode = tool or self.code_mode
        interrupt = await code_mode.execute({"js": js})
        return await self.store.put(interrupt, tool=code_mode, **{"tenant": "acme", "app": "shop", **settings})

    async def until(self, record_id: str, holds: Callable[[Record], bool]) -> Record:
        """Wait until something holds of a record."""
        with self.store.watch() as watch:
            while not holds(record := await self.store.record(record_id, tenant=ALL_TENANTS)):
                await watch.wait(1)
        return record

    async def kinds(self, record_id: str | None = None) -> list[str]:
        """Return what the audit tells of."""
        return [line.kind async for line in self.store.audit(tenant=ALL_TENANTS, record_id=record_id)]

    async def outcome(self, record_id: str) -> Any:
        return await self.store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=WAIT_MS)


@asynccontextmanager
async def serving(database: Path, tools: Sequence[Any], **settings: Any) -> AsyncGenerator[Desk]:
    """Have a desk whose console is served while the block runs."""
    import uvicorn

    desk = Desk(database, tools, **settings)
    config = uvicorn.Config(
        desk.console, lifespan="off", log_level="warning", proxy_headers=False, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        desk.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        async with desk.store, desk.console.running():
            answering = asyncio.create_task(server.serve(sockets=[listening]))
            try:
                yield desk
            finally:
                server.should_exit = True
                await answering
