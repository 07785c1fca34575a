"""Pages that are older than what happened since: two people, two tabs, two clicks, the button that goes back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from browsing import BOB, Desk, Hall, Visitor, button, cards, follow, open_record, visiting
from console_visitors import ANA
from suite import full_only

from codemode import CodeModeAbortedError, tool

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


class Till:
    """What the tools have done."""

    def __init__(self) -> None:
        self.refunded: list[tuple[str, int]] = []
        self.charged: list[int] = []
        self.charging = asyncio.Event()

    def tools(self) -> Sequence[Any]:
        @tool(needs_approval=True)
        def refund(order: str, cents: int) -> str:
            self.refunded.append((order, cents))
            return f"refunded {cents} for {order}"

        @tool
        async def charge(cents: int) -> str:
            self.charged.append(cents)
            if len(self.charged) == 1:
                self.charging.set()
                await asyncio.Event().wait()
            return f"charged {cents}"

        return [refund, charge]


@pytest.fixture
def till() -> Till:
    return Till()


@pytest.fixture
def tools(till: Till) -> Sequence[Any]:
    return till.tools()


@pytest.fixture
def bob(hall: Hall, desk: Desk) -> Any:
    with hall.holding(visiting(hall, [desk.url])) as visitor:
        yield visitor


def waits_for(order: str) -> Any:
    """Tell whether a record waits for a refund of this order."""
    return lambda record: any(one.state == "waiting" and one.input["order"] == order for one in record.requests)


async def never_follow(*visitors: Visitor) -> None:
    """Let pages be as old as they can be."""
    for one in visitors:
        await one.context.add_init_script("delete self.EventSource")


@asynccontextmanager
async def two_pages(ana: Visitor, bob: Visitor, desk: Desk, record_id: str) -> AsyncGenerator[tuple[Any, Any]]:
    await never_follow(ana, bob)
    yield await open_record(ana, desk, record_id), await open_record(bob, desk, record_id, BOB)


@pytest.mark.parametrize("first", [1, *full_only(0)])
async def test_two_cards_of_one_record_are_decided_on_two_pages(
    desk: Desk, visitor: Visitor, bob: Visitor, till: Till, first: int
) -> None:
    record_id = await desk.pause(TWO)
    async with two_pages(visitor, bob, desk, record_id) as (hers, his):
        asked = [one.interrupt_id for one in (await desk.until(record_id, lambda _: True)).requests]
        await button(cards(hers).nth(first), "Approve").click()
        done = await desk.until(record_id, lambda record: len(till.refunded) == 1 and record.version == 2)
        assert [one.state for one in done.requests if one.interrupt_id == asked[1 - first]] == ["waiting"]
        # His page was made before the program went on; the call that he decides has not changed.
        await button(cards(his).nth(1 - first), "Approve").click()
        assert await desk.outcome(record_id) == ["refunded 100 for A-17", "refunded 200 for B-18"]
    assert sorted(till.refunded) == [("A-17", 100), ("B-18", 200)]


@pytest.mark.parametrize(("app", "state"), [("elsewhere", "pending"), ("shop", "completed")])
async def test_who_is_second_learns_who_was_first(
    desk: Desk, visitor: Visitor, bob: Visitor, app: str, state: str
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK, app=app)
    async with two_pages(visitor, bob, desk, record_id) as (hers, his):
        await button(hers, "Approve").click()
        await desk.until(record_id, lambda record: record.requests[0].state != "waiting" and record.state == state)
        async with his.expect_response(lambda answer: answer.request.method == "POST") as answered:
            await button(his, "Deny").click()
        assert (await answered.value).status == 409
        await expect(his.get_by_role("main")).to_contain_text("ana")
    assert (await desk.kinds(record_id)).count("decided") == 1


async def test_two_clicks_are_one_decision(desk: Desk, visitor: Visitor, till: Till) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    await button(page, "Approve").dblclick()
    assert await desk.outcome(record_id) == "refunded 90000 for A-17"
    await expect(cards(page)).to_have_count(0)
    assert till.refunded == [("A-17", 90000)]
    assert (await desk.kinds(record_id)).count("decided") == 1


async def test_back_shows_what_has_happened_and_a_form_sent_again_decides_nothing(
    desk: Desk, visitor: Visitor, till: Till
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    page = await open_record(visitor, desk, record_id)
    form = await cards(page).evaluate("form => new URLSearchParams(new FormData(form)).toString()")
    action = await cards(page).evaluate("form => form.action")
    await follow(page, button(page, "Approve"))
    await desk.outcome(record_id)
    await expect(cards(page)).to_have_count(0)
    await page.go_back()
    await page.goto(f"{desk.url}/records/{record_id}")
    await expect(cards(page)).to_have_count(0)
    for said in ("approve", "deny"):
        headers = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
        sent = visitor.context.request.post(action, data=f"{form}&decision={said}", headers=headers, max_redirects=0)
        answer = await sent
        assert answer.status in (303, 409), await answer.text()
    assert till.refunded == [("A-17", 90000)]
    assert (await desk.kinds(record_id)).count("decided") == 1


async def test_a_page_of_a_pause_that_is_over_decides_nothing_of_the_next(
    desk: Desk, visitor: Visitor, bob: Visitor, till: Till
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(THREE)
    async with two_pages(visitor, bob, desk, record_id) as (hers, his):
        await button(hers, "Approve").click()
        await desk.until(record_id, waits_for("b"))
        async with his.expect_response(lambda answer: answer.request.method == "POST") as answered:
            await button(his, "Deny").click()
        assert (await answered.value).status == 409
        await expect(his.get_by_role("main")).to_contain_text(re.compile("ana|gone on"))
        record = await desk.until(record_id, waits_for("b"))
        assert [one.state for one in record.requests if one.input["order"] == "b"] == ["waiting"]
    assert till.refunded == [("a", 0)]


async def test_one_pause_after_the_other_is_decided_at_one_address(desk: Desk, visitor: Visitor, till: Till) -> None:
    record_id = await desk.pause(THREE)
    page = await open_record(visitor, desk, record_id)
    for order in ("a", "b", "c"):
        await desk.until(record_id, waits_for(order))
        await page.goto(f"{desk.url}/records/{record_id}")
        await follow(page, button(cards(page), "Approve"))
    assert await desk.outcome(record_id) == ["refunded 0 for a", "refunded 1 for b", "refunded 2 for c"]
    assert till.refunded == [("a", 0), ("b", 1), ("c", 2)]


@pytest.mark.parametrize(("words", "value", "runs"), [
    ("run.*again", "charged 500", 2),
    ("result", "charged by hand", 1),
    ("fail|error", None, 1),
])  # fmt: skip
async def test_a_person_says_how_a_call_ended_of_which_nobody_knows(
    desk: Desk, visitor: Visitor, till: Till, words: str, value: str | None, runs: int
) -> None:
    js = "try { return await tools.charge({ cents: 500 }) } catch (error) { return { failed: error.message } }"
    running = asyncio.create_task(desk.code_mode.execute({"js": js}))
    await till.charging.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError) as stopped:
        await running
    aborted = stopped.value.__cause__
    assert isinstance(aborted, CodeModeAbortedError)
    assert aborted.recovery is not None
    record_id = await desk.store.put(aborted.recovery, tool=desk.code_mode, tenant="acme", app="shop")
    page = await open_record(visitor, desk, record_id)
    if value == "charged by hand":
        await page.locator("textarea[name=json]").fill('"charged by hand"')
    await page.locator("[name=reason]").fill("the bank says so")
    await page.get_by_role("main").get_by_role("button", name=re.compile(words, re.IGNORECASE)).click()
    outcome = await desk.outcome(record_id)
    assert outcome == ({"failed": "the bank says so"} if value is None else value)
    assert len(till.charged) == runs


async def test_what_expires_while_somebody_looks_is_decided_by_nobody(desk: Desk, visitor: Visitor, till: Till) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    await never_follow(visitor)
    page = await open_record(visitor, desk, record_id)
    desk.clock.moved_ms += 2 * 86_400_000
    async with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
        await button(page, "Approve").click()
    assert (await answered.value).status == 410
    await expect(page.get_by_role("main")).to_contain_text(re.compile("expired", re.IGNORECASE))
    assert till.refunded == []


async def test_who_signs_out_in_another_tab_decides_nothing_in_this_one(
    desk: Desk, visitor: Visitor, till: Till
) -> None:
    from playwright.async_api import expect

    record_id = await desk.pause(ASK)
    await never_follow(visitor)
    page = await open_record(visitor, desk, record_id)
    other = await visitor.page()
    await other.goto(desk.url)
    await button(other, "Sign out").click()
    await other.wait_for_url("**/sign-in")
    await follow(page, button(page, "Approve"))
    await expect(button(page, "Approve")).to_have_count(0)
    assert (await desk.until(record_id, lambda _: True)).requests[0].state == "waiting"
    await visitor.sign_in(desk.url, ANA)
    await page.goto(f"{desk.url}/records/{record_id}")
    await button(page, "Approve").click()
    assert await desk.outcome(record_id) == "refunded 90000 for A-17"
    assert till.refunded == [("A-17", 90000)]
