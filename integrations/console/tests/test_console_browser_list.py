"""A person at a real browser decides from the list: by keyboard alone, in their own zone, while others decide too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from browsing import Desk, Hall, Visitor, button, follow, visiting
from test_console_browser_following import listens

from codemode import tool
from codemode.stores import ALL_TENANTS

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.full
LONG = "return await tools.send({ text: 'x'.repeat(1000) })"


@pytest.fixture
def done() -> list[str]:
    return []


@pytest.fixture
def tools(done: list[str]) -> Sequence[Any]:
    @tool(needs_approval=True, title="Refund", summary="{order}")
    def refund(order: str) -> str:
        done.append(order)
        return order

    @tool(needs_approval=True)
    def send(text: str) -> str:
        done.append(text)
        return "sent"

    return [refund, send]


async def pause(desk: Desk, *orders: str) -> list[str]:
    return [await desk.pause(f"return await tools.refund({{ order: '{order}' }})") for order in orders]


async def open_list(visitor: Visitor, desk: Desk) -> Page:
    await visitor.sign_in(desk.url)
    page = await visitor.page()
    await page.goto(desk.url)
    return page


async def press(page: Page, *keys: str) -> None:
    """Press keys, of which the last leads to another page."""
    for key in keys[:-1]:
        await page.keyboard.press(key)
    async with page.expect_navigation():
        await page.keyboard.press(keys[-1])
    await page.wait_for_load_state()


async def test_calls_of_different_kinds_are_decided_from_the_list_by_keyboard_alone(
    desk: Desk, visitor: Visitor, done: list[str]
) -> None:
    from playwright.async_api import expect

    long = await desk.pause(LONG)
    first, second, third = await pause(desk, "first", "second", "third")
    page = await open_list(visitor, desk)
    await press(page, "a", "Enter")
    await expect(page.get_by_role("status")).to_have_text("Approved: Refund third")
    await desk.outcome(third)
    await page.reload()
    await page.keyboard.press("d")
    await page.keyboard.press("Enter")
    await expect(page.locator("details[open] input")).to_be_focused()
    await page.keyboard.type("not now")
    await press(page, "Enter")
    await expect(page.get_by_role("status")).to_have_text("Denied: Refund second")
    await page.goto(desk.url)
    await press(page, "j", "j", "a", "Enter")
    assert page.url.startswith(f"{desk.url}/records/{long}"), "a row that does not show all of an input is reviewed"
    await press(page, "a", "Enter")
    await desk.outcome(long)
    await press(page, "n")
    assert page.url.endswith(f"/records/{first}")
    assert done == ["third", "x" * 1000]
    (denied,) = (await desk.store.record(second, tenant=ALL_TENANTS)).requests
    assert denied.decision == {"approved": False, "reason": "not now"}


async def test_the_keys_of_a_record_go_to_the_calls_that_still_wait(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    both = "return await Promise.all([tools.refund({ order: 'one' }), tools.refund({ order: 'two' })])"
    record_id = await desk.pause(both)
    page = await open_list(visitor, desk)
    await page.goto(f"{desk.url}/records/{record_id}")
    await press(page, "a", "Enter")
    cards = page.locator(".card")
    await expect(cards.nth(1)).to_have_attribute("data-state", "waiting")
    for keys, focused in (
        ("a", button(cards.nth(1), "Approve")),
        ("kj", cards.nth(1)),
        ("d", button(cards.nth(1), "Deny")),
    ):
        for key in keys:
            await page.keyboard.press(key)
        await expect(focused).to_be_focused()
    await page.reload()
    await page.keyboard.press("n")
    await expect(cards.nth(1)).to_be_focused()
    await press(page, "n")
    assert page.url == f"{desk.url}/"


async def test_keys_go_on_at_the_row_below_the_one_that_was_decided(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    await pause(desk, "first", "second", "third")
    page = await open_list(visitor, desk)
    await press(page, "j", "j", "a", "Enter")
    await expect(page.get_by_role("status")).to_have_text("Approved: Refund second")
    await press(page, "a", "Enter")
    await expect(page.get_by_role("status")).to_have_text("Approved: Refund first")
    await page.keyboard.press("a")
    await expect(page.locator("tr[data-call] button:focus")).to_have_count(0)
    await page.keyboard.press("j")
    await press(page, "a", "Enter")
    await expect(page.get_by_role("status")).to_have_text("Approved: Refund third")


async def test_what_is_decided_elsewhere_cannot_be_decided_in_a_list_that_is_held(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    first, second = await pause(desk, "first", "second")
    page = await open_list(visitor, desk)
    await listens(page)
    rows = page.locator("tr[data-call]")
    await rows.nth(1).get_by_role("checkbox").check()
    (asked,) = (await desk.store.record(first, tenant=ALL_TENANTS)).requests
    await desk.store.decide({asked.interrupt_id: {"approved": True}}, actor="bob", tenant=ALL_TENANTS)
    await expect(rows.nth(1)).to_contain_text("No longer pending")
    await expect(rows.nth(1).locator("button:enabled, input:enabled:not([name=reason])")).to_have_count(0)
    await expect(button(page, "Approve")).to_have_count(2)
    await follow(page, rows.nth(0).get_by_role("button", name="Approve"))
    await desk.outcome(second)


async def test_times_are_in_the_zone_of_the_viewer_and_in_utc_on_hover(desk: Desk, hall: Hall) -> None:
    (record_id,) = await pause(desk, "first")
    async with visiting(hall, [desk.url], timezone_id="Asia/Tokyo", locale="en-GB") as visitor:
        page = await open_list(visitor, desk)
        shown = page.locator("time.ago").first
        assert await shown.inner_text() == "just now"
        assert " UTC)" in str(await shown.get_attribute("title"))
        await page.goto(f"{desk.url}/records/{record_id}")
        await page.get_by_text("Details", exact=True).click()
        exact = page.locator("details time").first
        at, utc = await exact.inner_text(), str(await exact.get_attribute("title"))
        assert (int(at[11:13]) - int(utc[11:13])) % 24 == 9, (at, utc)
        assert at[13:] == utc[13:19]


async def test_a_list_that_changes_leaves_rows_that_stay_at_hand(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    first, second = await pause(desk, "first", "second")
    page = await open_list(visitor, desk)
    await listens(page)
    (asked,) = (await desk.store.record(first, tenant=ALL_TENANTS)).requests
    await desk.store.decide({asked.interrupt_id: {"approved": True}}, actor="bob", tenant=ALL_TENANTS)
    rows = page.locator("tr[data-call]")
    await expect(rows).to_have_count(1)
    assert await rows.first.get_by_role("button", name="Approve").is_enabled(), "it did not move"
    await asyncio.gather(desk.outcome(first), follow(page, rows.first.get_by_role("button", name="Approve")))
    await desk.outcome(second)
