"""Pages that stay open while others decide: what happens appears, and nothing moves under a hand."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from browsing import BOB, Desk, Hall, Visitor, button, cards, follow, open_record, visiting

from codemode import tool
from codemode.stores import ALL_TENANTS

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = pytest.mark.full

ASK = "return await tools.refund({ order: 'A-17', cents: 90000 })"
TWO = """
return await Promise.all([
  tools.refund({ order: "A-17", cents: 100 }),
  tools.refund({ order: "B-18", cents: 200 }),
]);
"""
THREE = """
const said = [];
for (const order of ["a", "b", "c"]) said.push(await tools.refund({ order, cents: said.length }));
return said;
"""


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


@pytest.fixture
def bob(hall: Hall, desk: Desk) -> Generator[Visitor]:
    with hall.holding(visiting(hall, [desk.url])) as visitor:
        yield visitor


async def mark(page: Page) -> None:
    """Remember this page: what is loaded anew has no mark."""
    await page.evaluate("() => { window.isTheSame = true }")


async def require_the_same(page: Page) -> None:
    assert await page.evaluate("() => window.isTheSame === true"), "the page was loaded anew"


async def approve(desk: Desk, record_id: str, actor: str = "bob", order: str | None = None) -> None:
    """Decide elsewhere."""
    record = await desk.store.record(record_id, tenant=ALL_TENANTS)
    asked = next(
        one.interrupt_id
        for one in record.requests
        if one.state == "waiting" and (order is None or one.input["order"] == order)
    )
    await desk.store.decide({asked: {"approved": True}}, actor=actor, tenant=ALL_TENANTS)


async def test_a_decision_elsewhere_appears_by_itself(desk: Desk, visitor: Visitor, bob: Visitor) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    hers, his = await open_record(visitor, desk, record_id), await open_record(bob, desk, record_id, BOB)
    await mark(hers)
    await button(his, "Approve").click()
    await expect(hers.locator(".card")).to_contain_text("bob")
    await expect(cards(hers)).to_have_count(0)
    await expect(hers.get_by_role("main")).to_contain_text("refunded 90000 for A-17")
    await require_the_same(hers)


async def test_a_form_that_somebody_fills_in_is_left_alone(
    desk: Desk, visitor: Visitor, refunded: list[tuple[str, int]]
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(TWO)
    page = await open_record(visitor, desk, record_id)
    await mark(page)
    first, second = page.locator(".card").nth(0), page.locator(".card").nth(1)
    await second.locator('[name="/cents"]').press_sequentially("9")
    await approve(desk, record_id, order="A-17")
    await expect(first).to_contain_text("bob")
    await desk.until(record_id, lambda record: record.version == 2)
    await second.locator('[name="/cents"]').press_sequentially("8")
    await expect(second.locator('[name="/cents"]')).to_have_value("98200")
    await expect(second.locator('[name="/cents"]')).to_be_focused()
    await require_the_same(page)
    await button(second, "Approve with changes").click()
    assert await desk.outcome(record_id) == ["refunded 100 for A-17", "refunded 98200 for B-18"]
    assert refunded == [("A-17", 100), ("B-18", 98200)]


async def test_a_form_about_what_somebody_else_decides_keeps_what_was_typed(
    desk: Desk, visitor: Visitor, refunded: list[tuple[str, int]]
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await mark(page)
    await page.locator('[name="/cents"]').fill("12345")
    await approve(desk, record_id)
    await desk.outcome(record_id)
    await expect(page.locator("#news")).to_contain_text("bob")
    await expect(page.locator('[name="/cents"]')).to_have_value("12345")
    await require_the_same(page)
    await expect(page.locator(".card")).to_contain_text("Approved by bob")
    await expect(page.locator(".card button:enabled")).to_have_count(0)
    assert refunded == [("A-17", 90000)]


async def test_the_list_follows_what_waits(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    first = await desk.pause(ASK)
    await visitor.sign_in(desk.url)
    page = await visitor.page()
    await page.goto(desk.url)
    await mark(page)
    second = await desk.pause("return await tools.refund({ order: 'new', cents: 1 })")
    await expect(page.locator(f'a[href$="/records/{second}"]').first).to_be_visible()
    await approve(desk, first)
    await expect(page.locator(f'a[href$="/records/{first}"]')).to_have_count(0)
    await require_the_same(page)


async def test_one_pause_after_the_other_is_decided_on_one_page(
    desk: Desk, visitor: Visitor, refunded: list[tuple[str, int]]
) -> None:
    record_id = await desk.pause(THREE)
    page = await open_record(visitor, desk, record_id)
    for order in ("a", "b", "c"):
        card = cards(page).filter(has=page.locator(f'[name="/order"][value="{order}"]'))
        await follow(page, button(card, "Approve"))
    assert await desk.outcome(record_id) == ["refunded 0 for a", "refunded 1 for b", "refunded 2 for c"]
    assert refunded == [("a", 0), ("b", 1), ("c", 2)]


async def test_what_comes_of_a_decision_is_told_in_whole_sentences(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(THREE)
    page = await open_record(visitor, desk, record_id)
    news = page.locator("#news")
    for words in (
        "Another call is pending: refund b",
        "Another call is pending: refund c",
        "The program has completed.",
    ):
        record = await desk.store.record(record_id, tenant=ALL_TENANTS)
        (asked,) = [one for one in record.requests if one.state == "waiting"]
        await desk.store.decide({asked.interrupt_id: {"approved": True}}, actor="bob", tenant=ALL_TENANTS)
        await expect(news).to_contain_text(words)
        assert "UTC" not in await news.inner_text()
    await expect(page.locator('[data-part="ending"]')).to_have_count(0)


async def test_what_expires_while_somebody_looks_says_so(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await mark(page)
    desk.clock.moved_ms += 2 * 86_400_000
    await desk.store.sweep()
    await expect(page.get_by_role("main")).to_contain_text(re.compile("expired"))
    await expect(button(page, "Approve")).to_have_count(0)
    await require_the_same(page)


async def test_a_hidden_tab_lets_go_and_misses_nothing(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    hide = """is => {
      Object.defineProperty(document, "hidden", { value: is, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await mark(page)
    async with page.expect_event("requestfailed", lambda one: "/events" in one.url):
        await page.evaluate(hide, True)
    await approve(desk, record_id)
    await desk.outcome(record_id)
    await expect(button(page, "Approve")).to_be_visible()
    await page.evaluate(hide, False)
    await expect(page.locator(".card")).to_contain_text("bob")
    await require_the_same(page)


async def test_what_is_typed_is_shown_as_a_difference(desk: Desk, visitor: Visitor) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await page.locator('[name="/cents"]').fill("9000")
    shown = cards(page).get_by_role("list", name="Changes so far")
    await expect(shown).to_contain_text("90000")
    await expect(shown).to_contain_text("9000")
    await page.locator('[name="/cents"]').fill("90000")
    await expect(shown).to_have_count(0)


async def test_keys_move_and_decide_nothing(desk: Desk, visitor: Visitor, refunded: list[tuple[str, int]]) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(TWO)
    page = await open_record(visitor, desk, record_id)
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(page.locator(".card").nth(1)).to_be_focused()
    await page.keyboard.press("a")
    await expect(button(page.locator(".card").nth(1), "Approve")).to_be_focused()
    await page.keyboard.press("r")
    await page.keyboard.type("jaded")
    await expect(page.locator(".card").nth(1).locator("[name=reason]")).to_have_value("jaded")
    assert refunded == []
    assert "decided" not in await desk.kinds(record_id)
