"""One journey at a real browser: what waits is found in the list, changed, approved, and done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from browsing import Desk, Visitor, button, follow, paste_token

from codemode import tool


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


async def test_a_call_is_found_in_the_list_changed_approved_and_done(
    desk: Desk, visitor: Visitor, refunded: list[tuple[str, int]]
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause("return await tools.refund({ order: 'A-17', cents: 90000 })")
    page = await visitor.page()
    await paste_token(page, desk.url)
    await page.locator(f"a[href*='{record_id}']").first.click()
    await page.wait_for_url(f"**/records/{record_id}*")
    await page.locator("[name='/cents']").fill("9000")
    await expect(page.get_by_role("main")).to_contain_text("9000")
    await follow(page, button(page, "Approve with changes"))
    assert await desk.outcome(record_id) == "refunded 9000 for A-17"
    assert refunded == [("A-17", 9000)]
    await page.goto(f"{desk.url}/records/{record_id}")
    await expect(page.get_by_role("main")).to_contain_text("refunded 9000 for A-17")
    await expect(button(page, "Approve")).to_have_count(0)
