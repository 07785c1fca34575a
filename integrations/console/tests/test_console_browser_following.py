"""Pages that follow what happens, where that could lead somebody into deciding what they have not seen."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from browsing import Desk, Visitor, button, open_record
from suite import full_only

from codemode import tool
from codemode.stores import ALL_TENANTS

pytestmark = pytest.mark.full

ASK = "return await tools.refund({ order: 'A-17', cents: 90000 })"
TWICE = """
await tools.refund({ order: "A-17", cents: 100 });
return await tools.refund({ order: "B-18", cents: 200 });
"""
# How many buttons of cards can be pressed at the moment at which they come.
COUNT = """() => {
    window.pressable = [];
    new MutationObserver((all) => {
        for (const one of all) for (const node of one.addedNodes) {
            if (node.querySelectorAll) window.pressable.push(node.querySelectorAll(".card button:enabled").length);
        }
    }).observe(document.getElementById("main"), { childList: true, subtree: true });
}"""


@pytest.fixture
def tools() -> Sequence[Any]:
    @tool(needs_approval=True)
    def refund(order: str, cents: int) -> str:
        return f"refunded {cents} for {order}"

    return [refund]


CONNECTION = "liveUpdates.source?.readyState === EventSource.OPEN"
LISTENS = f"typeof liveUpdates !== 'undefined' && {CONNECTION}"


async def listens(page: Any) -> None:
    # Playwright's own wait evaluates a text in the page when it looks again, which the page's policy forbids.
    for _ in range(1000):
        if await page.evaluate(LISTENS):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the page does not listen")


async def test_what_is_asked_next_is_not_pressed_by_what_was_meant_for_the_last(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(TWICE)
    page = await open_record(visitor, desk, record_id)
    await listens(page)
    await page.evaluate(COUNT)
    (first,) = (await desk.store.record(record_id, tenant=ALL_TENANTS)).requests
    await desk.store.decide({first.interrupt_id: {"approved": True}}, actor="bob", tenant=ALL_TENANTS)
    await expect(page.locator(".card form").get_by_label("order").first).to_have_value("B-18")
    assert set(await page.evaluate("window.pressable")) == {0}
    await button(page, "Approve").click()  # once it can be pressed
    assert (await desk.outcome(record_id)) == "refunded 200 for B-18"


@pytest.mark.parametrize("selects", ["all", *full_only("one")])
async def test_a_list_in_which_something_is_selected_stays(desk: Desk, visitor: Visitor, selects: str) -> None:
    from playwright.async_api import expect

    await visitor.sign_in(desk.url)
    await desk.pause(ASK)
    page = await visitor.page()
    await page.goto(desk.url)
    chosen = page.locator('td input[type="checkbox"]')
    if selects == "one":
        await chosen.first.check()
    else:
        await page.get_by_role("link", name="Select all on this page").click()
        await expect(chosen.first).to_be_checked()
    await listens(page)
    later = await desk.pause(ASK)
    await expect(page.locator("#news")).to_contain_text("The list has changed.")
    await expect(chosen).to_have_count(1)
    await expect(chosen.first).to_be_checked()
    await page.locator("#news a").click()
    await expect(page.locator(f'a[href$="/records/{later}"]').first).to_be_visible()
