"""A person at a real browser decides many calls at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from browsing import BOB, Desk, Visitor, button, follow
from suite import rounds
from test_console_browser_pages import require_fitting, require_nothing_serious

from codemode import tool
from codemode.stores import ALL_TENANTS

pytestmark = pytest.mark.full


@pytest.fixture
def refunded() -> list[str]:
    return []


@pytest.fixture
def tools(refunded: list[str]) -> Sequence[Any]:
    @tool(needs_approval=True)
    def refund(order: str) -> str:
        refunded.append(order)
        return order

    return [refund]


async def pause(desk: Desk, count: int) -> list[str]:
    return [await desk.pause(f"return await tools.refund({{ order: 'A-{number}' }})") for number in range(count)]


@pytest.mark.parametrize(
    ("settings", "count"), [({}, rounds(12, 50)), ({"java_script_enabled": False}, 3)], ids=["script", "no script"]
)
async def test_many_are_approved_each_once_but_one_that_somebody_else_denied(
    desk: Desk, visitor: Visitor, refunded: list[str], count: int
) -> None:
    from playwright.async_api import expect

    ids = await pause(desk, count)
    await visitor.sign_in(desk.url, BOB)
    page = await visitor.page()
    await page.goto(desk.url)
    await follow(page, page.get_by_role("link", name="refund", exact=True))
    await follow(page, page.get_by_role("link", name="Select all on this page"))
    await button(page, "Approve selected\N{HORIZONTAL ELLIPSIS}").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"Approve {count} calls of refund?")
    for number in range(count):
        await expect(page.locator("pre").filter(has_text=f'"A-{number}"')).to_have_count(1)
    (first,) = (await desk.store.record(ids[0], tenant=ALL_TENANTS)).requests
    await desk.store.decide({first.interrupt_id: {"approved": False}}, actor="cleo", tenant=ALL_TENANTS)
    await button(page, "Approve").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text(f"{count - 1} approved, 1 not")
    await expect(page.get_by_role("alert")).to_contain_text("cleo decided first: denied")
    assert [await desk.outcome(one) for one in ids[1:]] == [f"A-{number}" for number in range(1, count)]
    assert sorted(refunded) == sorted(f"A-{number}" for number in range(1, count))


async def test_two_that_are_selected_are_denied_with_a_reason_at_320_pixels_by_keyboard(
    desk: Desk, visitor: Visitor, refunded: list[str]
) -> None:
    from playwright.async_api import expect

    await pause(desk, 3)
    await visitor.sign_in(desk.url)
    page = await visitor.page()
    await page.set_viewport_size({"width": 320, "height": 640})
    await page.goto(desk.url)
    await require_fitting(page)
    for number in range(2):
        await page.get_by_role("checkbox", name="refund").nth(number).press("Space")
    await button(page, "Deny selected\N{HORIZONTAL ELLIPSIS}").press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Deny 2 calls of refund?")
    await require_fitting(page)
    await require_nothing_serious(page)
    await page.get_by_label("Reason").fill("too dear")
    await button(page, "Deny").press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("2 denied")
    await require_nothing_serious(page)
    await require_fitting(page)
    counted = await desk.store.count_waiting_requests(tenant=ALL_TENANTS)
    assert (counted, refunded) == ({"refund": 1}, [])
