"""Pages of other sites that lead to the sign-in page sign nobody in, and replace nobody's session."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from browsing import BOB, Hall, button, serving, visiting
from codemode_console.auth import TokenAuth
from console_visitors import ANA, OWN, USERS, Desk

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

ELSEWHERE = "http://evil.example/"


def test_only_a_page_that_no_other_one_led_to_sends_its_token_by_itself() -> None:
    async def work() -> None:
        desk = Desk(TokenAuth({key: user for key, user in USERS.items() if user.name == "ana"}))
        rows: tuple[tuple[list[tuple[str, str]], bool], ...] = (
            ([("sec-fetch-site", "none")], True),
            ([("sec-fetch-site", "cross-site")], False),
            ([("sec-fetch-site", "same-site")], False),
            ([("sec-fetch-site", "same-origin")], False),
            ([("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")], False),
            ([], False),
        )
        async with desk.browser() as browser:
            for headers, is_automatic in rows:
                page = await browser.get("/sign-in", headers=headers)
                assert ("data-automatic" in page.text) is is_automatic, headers
            await browser.post("/sign-in", data={"token": ANA}, headers=OWN)
            page = await browser.get("/sign-in", headers={"sec-fetch-site": "none"})
            assert "data-automatic" not in page.text, "a session exists"
            assert "You are signed in as ana." in page.text
        async with Desk().browser() as browser:
            page = await browser.get("/sign-in", headers={"sec-fetch-site": "none"})
            assert "data-automatic" not in page.text, "a typed address may redirect here with another token"

    asyncio.run(work())


async def shown_token(page: Page) -> str:
    """Return the token that a link has filled in, masked, once the page says so."""
    await page.get_by_text("has filled in a token").wait_for()
    field = page.get_by_label("Token")
    assert await field.get_attribute("type") == "password"
    assert "#" not in page.url
    return await field.input_value()


@pytest.mark.full
async def test_a_foreign_page_signs_no_browser_in(hall: Hall, tmp_path: Path) -> None:
    async with serving(tmp_path / "store.db", []) as desk, visiting(hall, [desk.url]) as visitor:
        visitor.trust(ELSEWHERE.rstrip("/"))
        paths = iter((f"{desk.url}/sign-in#token=", f"{desk.url}/#token="))

        async def answer(route: Route) -> None:
            link = f"<a id=out href='{next(paths)}{quote(BOB)}'>out</a>"
            await route.fulfill(body=f"<!doctype html>{link}<script>document.getElementById('out').click()</script>")

        await visitor.context.route(f"{ELSEWHERE}**", answer)
        page = await visitor.page()
        for _ in range(2):
            await page.goto(ELSEWHERE)
            await page.wait_for_url(re.compile("/sign-in"))
            assert await shown_token(page) == BOB
            assert await desk.kinds() == []
        await button(page, "Sign in").click()
        await page.get_by_role("heading", name="Sign in").wait_for(state="detached")
        assert await desk.kinds() == ["signed_in"]


@pytest.mark.full
async def test_a_link_with_a_token_replaces_no_session(hall: Hall, tmp_path: Path) -> None:
    async with serving(tmp_path / "store.db", []) as desk, visiting(hall, [desk.url]) as visitor:
        page = await visitor.page()
        await page.goto(f"{desk.url}/sign-in#token={ANA}")
        assert await shown_token(page) == ANA
        await button(page, "Sign in").click()
        await page.get_by_role("heading", name="Sign in").wait_for(state="detached")
        assert await desk.kinds() == ["signed_in"]
        page = await visitor.page()
        await page.goto(f"{desk.url}/sign-in#token={BOB}")
        assert await shown_token(page) == BOB
        assert await desk.kinds() == ["signed_in"]
