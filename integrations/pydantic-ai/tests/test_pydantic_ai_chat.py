"""The example page in a browser: a program streams, asks, survives a reload, and is approved, edited and denied."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from required import missing

if TYPE_CHECKING:
    from playwright.async_api import Page

IMAGES = os.environ.get("CODEMODE_IMAGES")
MOST_BYTES = 60_000
SETTINGS: dict[str, Any] = {
    "viewport": {"width": 640, "height": 320},
    "color_scheme": "light",
    "reduced_motion": "reduce",
}
EXAMPLE = Path(__file__).parents[1] / "examples" / "chat"


def installed() -> Path:
    """Where npm has installed what the page imports."""
    folder = Path(sys.prefix) / "chat"
    if not (folder / "node_modules" / "ai").is_dir():
        missing("npm", "the packages of the example page are not installed: `make prepare-full` installs them from npm")
    return folder


class Shop:
    """What the agent's tools do; it looks orders up when somebody has seen that it does."""

    def __init__(self) -> None:
        self.looked = asyncio.Event()
        self.paid: list[tuple[str, int]] = []

    async def late_orders(self) -> list[dict[str, Any]]:
        await self.looked.wait()
        return [{"order": "ada", "cents": 900}, {"order": "bob", "cents": 90_000}, {"order": "cy", "cents": 400}]

    def refund(self, order: str, cents: int) -> str:
        self.paid.append((order, cents))
        return f"{order} got {cents}"


@asynccontextmanager
async def served(app: Any) -> AsyncGenerator[str]:
    import uvicorn

    config = uvicorn.Config(app, lifespan="off", log_level="warning", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answering = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await answering


async def keep(page: Page, name: str) -> None:
    """Keep an image of the page for the README, where somebody has asked for it: `make screenshots` does."""
    if IMAGES is not None:
        path = Path(IMAGES) / f"chat-{name}.png"
        await page.screenshot(path=path, full_page=True)
        assert path.stat().st_size < MOST_BYTES


async def journey(page: Page, url: str, shop: Shop) -> None:
    from playwright.async_api import expect

    def calls(name: str) -> Any:
        return page.get_by_role("region", name=name, exact=True)

    programs = page.get_by_role("region", name="Program", exact=True)
    await page.goto(url)
    await page.get_by_label("Message").fill("Refund what is late.")
    await page.get_by_role("button", name="Send").click()
    await expect(calls("late_orders: running")).to_have_count(1)
    await keep(page, "streams")
    shop.looked.set()
    await expect(calls("refund: asks")).to_have_count(3)
    await expect(calls("late_orders: done")).to_have_count(1)
    await keep(page, "asks")

    await page.reload()
    await expect(programs).to_have_count(1)
    asked = programs.get_by_role("region", name="refund: asks", exact=True)
    await expect(asked).to_have_count(3)
    assert shop.paid == []
    await asked.nth(1).get_by_label("Input").fill('{"order": "bob", "cents": 9000}')
    await keep(page, "edited")
    await asked.nth(1).get_by_role("button", name="Approve").click()
    await expect(asked).to_have_count(2)
    await asked.nth(1).get_by_role("button", name="Deny").click()
    await expect(asked).to_have_count(1)
    # An edit is as lasting as the approval that it belongs to.
    await page.reload()
    await expect(calls("refund: approved")).to_contain_text("9000}")
    await expect(calls("refund: to be denied")).to_have_count(1)
    await keep(page, "reloaded")
    await asked.nth(0).get_by_role("button", name="Approve").click()

    await expect(page.get_by_text("Done: ada got 900; bob got 9000; the desk said no.")).to_be_visible()
    await expect(programs).to_have_count(1)
    await expect(programs.get_by_text("Program: done")).to_be_visible()
    await expect(calls("refund: done")).to_have_count(2)
    await expect(calls("refund: done").nth(1)).to_contain_text("9000}")
    await expect(calls("refund: denied")).to_have_count(1)
    await keep(page, "done")
    assert sorted(shop.paid) == [("ada", 900), ("bob", 9000)]


@pytest.mark.full
def test_a_program_in_a_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = installed()
    from browsing import open_hall, visiting

    monkeypatch.syspath_prepend(EXAMPLE)
    import chat_server

    bundle = chat_server.bundled(folder, tmp_path / "page.js")
    shop = Shop()
    agent = chat_server.support_agent(late=shop.late_orders, pay=shop.refund)
    with (
        open_hall() as hall,
        hall.holding(served(chat_server.application(agent, bundle))) as url,
        hall.holding(visiting(hall, [url], **SETTINGS)) as visitor,
    ):

        async def visit() -> None:
            await journey(await visitor.page(), url, shop)

        hall.run(visit())


def test_what_the_chat_needs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLE)
    import chat_server

    with pytest.raises(SystemExit, match="make demo-chat"):
        chat_server.bundled(tmp_path, tmp_path / "page.js")
