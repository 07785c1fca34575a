"""A person at a real browser signs in, approves, changes and denies, with and without JavaScript."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from browsing import Desk, Visitor, button, follow, open_record, paste_token, visiting
from console_command import command

from codemode import tool

pytestmark = pytest.mark.full

ASK = "return await tools.refund({ order: 'A-17', cents: 90000 })"
CATCH = """
try {
  return await tools.refund({ order: "A-17", cents: 90000 });
} catch (error) {
  return { denied: error.message };
}
"""
WITH_AND_WITHOUT = pytest.mark.parametrize(
    "settings", [{}, {"java_script_enabled": False}], ids=["script", "no script"]
)


@pytest.fixture
def refunded() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def tools(refunded: list[tuple[str, int]]) -> Sequence[Any]:
    @tool(needs_approval=True)
    def refund(order: str, cents: int) -> str:
        refunded.append((order, cents))
        return f"refunded {cents} for {order}"

    return [refund]


@WITH_AND_WITHOUT
async def test_a_pasted_token_leads_to_what_was_asked_for(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    page = await visitor.page()
    await paste_token(page, f"{desk.url}/records/{record_id}")
    await page.wait_for_url(f"{desk.url}/records/{record_id}")
    await expect(page.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    await button(page, "Sign out").click()
    await page.wait_for_url("**/sign-in")
    await page.goto(f"{desk.url}/records/{record_id}")
    await expect(page.get_by_label("Token")).to_be_visible()


@WITH_AND_WITHOUT
async def test_a_wrong_token_signs_nobody_in(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    page = await visitor.page()
    await paste_token(page, desk.url, "a token of nobody's")
    await expect(page.get_by_role("alert")).to_contain_text("unknown")
    assert await visitor.context.cookies() == []


async def test_the_printed_url_signs_in_and_leaves_nothing_of_the_token(hall: Any, tmp_path: Path) -> None:
    from playwright.async_api import expect

    with command(tmp_path, "--database", "sqlite:///approvals.db", "--create") as (_, line):
        url = line.split()[-1]
        origin, token = url.partition("/sign-in#token=")[::2]
        async with visiting(hall, [origin]) as visitor:
            page = await visitor.page()
            sent = list[str]()
            page.on("request", lambda request: sent.append(f"{request.url} {request.headers.get('referer')}"))
            await page.goto(url)
            await expect(page.get_by_role("button", name="Sign out")).to_be_visible()
            assert token not in page.url
            await page.go_back()
            assert token not in page.url
            assert sent
            assert token not in "".join(sent)


@WITH_AND_WITHOUT
async def test_an_approved_call_runs_as_it_was_shown(
    desk: Desk, visitor: Visitor, refunded: list[tuple[str, int]]
) -> None:
    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await button(page, "Approve").click()
    assert await desk.outcome(record_id) == "refunded 90000 for A-17"
    assert refunded == [("A-17", 90000)]


@WITH_AND_WITHOUT
async def test_the_program_catches_a_denial_and_its_reason(
    desk: Desk, visitor: Visitor, refunded: list[tuple[str, int]]
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(CATCH)
    page = await open_record(visitor, desk, record_id)
    await page.locator("[name=reason]").fill("too much")
    await follow(page, button(page, "Deny"))
    assert "too much" in (await desk.outcome(record_id))["denied"]
    assert refunded == []
    await page.goto(f"{desk.url}/records/{record_id}")
    await expect(page.get_by_role("main")).to_contain_text("ana")


@WITH_AND_WITHOUT
async def test_changed_json_text_is_what_runs(desk: Desk, visitor: Visitor, refunded: list[tuple[str, int]]) -> None:
    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await page.get_by_text("JSON text", exact=True).click()
    text = page.locator("textarea[name=json]")
    assert json.loads(await text.input_value()) == {"order": "A-17", "cents": 90000}
    await text.fill('{"order": "A-17", "cents": 9000}')
    await button(page, "Approve with changes").click()
    assert await desk.outcome(record_id) == "refunded 9000 for A-17"
    assert refunded == [("A-17", 9000)]
