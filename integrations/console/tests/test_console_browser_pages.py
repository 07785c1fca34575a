"""Each page, as those have it who see little, use no mouse, or hold a telephone; and images of them for docs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsing import Desk, Hall, Visitor, button, cards, follow, serving, shape_of, visiting
from console_visitors import ANA
from demonstration import demonstration
from suite import rounds

from codemode import Tool

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

pytestmark = pytest.mark.full

DEMO = demonstration()
MOST_BYTES = 200_000
"""Of one image."""
MOST_PAGE_BYTES = 100_000
"""Of one page with its stylesheet and script."""
FOLDER = "CODEMODE_IMAGES"
"""Where `make screenshots` keeps images; everywhere else they are only made."""
MOST_PAGES = 30
MOST_TABS = 150
ASKED_OF_AXE = rounds(3, MOST_PAGES)


@pytest.fixture
def agent() -> Any:
    return DEMO.Desk(lambda call: None)


@pytest.fixture
def tools(agent: Any) -> Sequence[Any]:
    return agent.tools()


async def require_usable(page: Page, *, asks_axe: bool = True) -> None:
    """Ask axe, and whether anything is wider than a window of 320 pixels."""
    if asks_axe:
        await require_nothing_serious(page)
    await page.set_viewport_size({"width": 320, "height": 640})
    await require_fitting(page)
    await page.set_viewport_size({"width": 1280, "height": 800})
    assert await page.title()
    assert await page.locator("h1").count() == 1


async def require_fitting(page: Page) -> None:
    """Ask whether anything is wider than the window, once the page has its styles."""
    await page.wait_for_load_state()
    wide = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"{page.url} is {wide} pixels too wide"


async def require_nothing_serious(page: Page) -> None:
    from axe_playwright_python.async_playwright import Axe

    await page.wait_for_load_state()
    found = await Axe().run(page, options={"resultTypes": ["violations"]})
    assert not [
        (one["id"], one["impact"], [node["html"][:200] for node in one["nodes"]])
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ], page.url


async def visit_all(page: Page, url: str) -> list[str]:
    """Look at each page that a link of this console leads to, downloads apart; axe at the first few."""
    from playwright.async_api import Error

    seen, ahead = dict[object, str](), [f"{url}/"]
    while ahead:
        here = ahead.pop(0)
        if shape_of(here) in seen:
            continue
        seen[shape_of(here)] = here
        assert len(seen) < MOST_PAGES, seen
        try:
            await page.goto(here)
        except Error as error:
            if "download" not in str(error).lower():
                raise
            continue
        if await page.evaluate("document.contentType") != "text/html":
            continue
        await require_usable(page, asks_axe=len(seen) <= ASKED_OF_AXE)
        found = await page.evaluate("[...document.links].map((one) => one.href.split('#')[0])")
        ahead += [one for one in found if one.startswith(f"{url}/")]
    return list(seen.values())


async def test_no_page_shuts_anybody_out(desk: Desk, visitor: Visitor, agent: Any) -> None:
    await DEMO.fill(desk.store, desk.code_mode, agent)
    page = await visitor.page()
    await page.goto(desk.url)
    await require_usable(page)
    await visitor.sign_in(desk.url)
    records = (await desk.store.list(tenant="acme", tool="refund")).records
    await page.goto(f"{desk.url}/?tool=refund")
    for box in await page.get_by_role("checkbox").all():
        await box.check()
    await button(page, "Deny selected\N{HORIZONTAL ELLIPSIS}").click()
    await page.wait_for_url("**/many")
    await require_usable(page)
    await page.goto(f"{desk.url}/records/{records[0].id}")
    await cards(page).first.locator('[name="/amount"]').fill("none")
    await button(cards(page).first, "Approve with changes").click()
    await page.wait_for_url("**/requests/*")
    await require_usable(page)
    for scheme, width in (("dark", 1280), ("light", 320)):
        await page.emulate_media(color_scheme=scheme)
        await page.set_viewport_size({"width": width, "height": 640})
        await require_nothing_serious(page)
    await page.locator('[name="/amount"]').first.fill("100")
    await follow(page, button(cards(page).first, "Approve with changes"))
    await desk.until(records[0].id, lambda record: any(one.state != "waiting" for one in record.requests))
    seen = await visit_all(page, desk.url)
    assert len([one for one in seen if "/records/" in one]) >= 4
    await page.goto(f"{desk.url}/records/unknown")
    await require_usable(page)


async def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until something has the focus; all that has it on the way shows it."""
    await page.wait_for_load_state()  # with its stylesheet, which says how the focus looks
    handle = await wanted.element_handle()
    for _ in range(MOST_TABS):
        await page.keyboard.press("Tab")
        is_shown, is_there = await page.evaluate(
            """wanted => {
              const focused = document.activeElement;
              const style = getComputedStyle(focused);
              const isShown = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
              return [focused === document.body || isShown, focused === wanted];
            }""",
            handle,
        )
        assert is_shown, await page.evaluate("document.activeElement.outerHTML.slice(0, 300)")
        if is_there:
            return
    raise AssertionError(f"{wanted} cannot be reached with the keyboard")


async def test_everything_can_be_done_with_the_keyboard_alone(desk: Desk, visitor: Visitor, agent: Any) -> None:
    from playwright.async_api import expect

    paid = list[str]()
    agent.say = paid.append
    record_id = await desk.pause(DEMO.REFUNDS)
    page = await visitor.page()
    await page.goto(desk.url)
    # The field has the focus once the page is there.
    await expect(page.get_by_label("Token")).to_be_focused()
    await page.keyboard.type(ANA)
    await page.keyboard.press("Enter")
    link = page.locator(f'a[href$="/records/{record_id}"]').first
    await link.wait_for()
    await tab_to(page, link)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/records/{record_id}")
    await tab_to(page, cards(page).nth(1).locator('[name="/amount"]'))
    await page.keyboard.press("ControlOrMeta+a")
    await page.keyboard.type("100")
    await tab_to(page, button(cards(page).nth(1), "Approve with changes"))
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    await desk.until(record_id, lambda record: record.version == 2)
    await page.goto(f"{desk.url}/records/{record_id}")
    await tab_to(page, cards(page).locator("[name=reason]"))
    await page.keyboard.type("the parcel may still arrive")
    await tab_to(page, button(cards(page), "Deny"))
    async with page.expect_navigation():
        await page.keyboard.press("Space")
    assert (await desk.outcome(record_id))["refunded"] == 1
    assert paid[0] == "refund(A-1003, 100.00 EUR)"


VIEWS: dict[str, dict[str, Any]] = {
    "1280": {"viewport": {"width": 1280, "height": 900}},
    "390": {"viewport": {"width": 390, "height": 844}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
}


class Pictures:
    """Takes an image of each page in one view, and asks axe about it."""

    def __init__(self, page: Page, view: str, folder: Path) -> None:
        self.page, self.view, self.folder = page, view, folder
        self.sizes: dict[str, int] = {}

    async def show(self, name: str, url: str) -> None:
        """Go to a page, and keep it; with its stylesheet and script it is small."""
        await self.page.goto(url)
        await self.page.wait_for_load_state()
        loaded = await self.page.evaluate(
            "performance.getEntries().filter(one => one.decodedBodySize).map(one => [one.name, one.decodedBodySize])"
        )
        assert len(loaded) >= 3, loaded
        assert sum(size for _, size in loaded) <= MOST_PAGE_BYTES, loaded
        await self.keep(name)

    async def keep(self, name: str) -> None:
        from axe_playwright_python.async_playwright import Axe

        found = await Axe().run(self.page, options={"resultTypes": ["violations"]})
        violations = [
            (one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found.response["violations"]
        ]
        assert violations == [], (name, self.view)
        await require_fitting(self.page)
        path = self.folder / f"console-{name}-{self.view}.png"
        await self.page.screenshot(path=path)
        self.sizes[path.name] = path.stat().st_size


@pytest.mark.parametrize("view", [*VIEWS])
async def test_images_of_the_console_violate_no_rule_of_axe(
    desk: Desk, hall: Hall, agent: Any, tmp_path: Path, view: str
) -> None:
    folder = Path(os.environ.get(FOLDER) or tmp_path)
    await DEMO.fill(desk.store, desk.code_mode, agent)

    async def load_visible_record(tool: str) -> str:
        return (await desk.store.list(tenant="acme", tool=tool)).records[0].id

    refunds, voucher, payment = [await load_visible_record(name) for name in ("refund", "giveVoucher", "payOut")]
    async with visiting(hall, [desk.url], reduced_motion="reduce", **VIEWS[view]) as visitor:
        await visitor.sign_in(desk.url)
        page = await visitor.page()
        pictures = Pictures(page, view, folder)
        await pictures.show("list", desk.url)
        await pictures.show("record", f"{desk.url}/records/{refunds}")
        card = cards(page).nth(1)
        await card.locator('[name="/amount"]').fill("174.5")
        await card.locator("[name=reason]").fill("half: it can be repaired")
        await button(card, "Approve with changes").scroll_into_view_if_needed()
        await pictures.keep("edited")
        await follow(page, button(card, "Approve with changes"))
        await desk.until(refunds, lambda record: record.version == 2)
        await page.goto(f"{desk.url}/records/{refunds}")
        await cards(page).locator("[name=reason]").fill("the parcel may still arrive")
        await follow(page, button(cards(page), "Deny"))
        await desk.outcome(refunds)
        await pictures.show("denied", f"{desk.url}/records/{refunds}")
        await page.goto(f"{desk.url}/records/{voucher}")
        await follow(page, button(cards(page), "Approve"))
        await desk.outcome(voucher)
        await pictures.show("approved", f"{desk.url}/records/{voucher}")
        await pictures.show("unknown", f"{desk.url}/records/{payment}")
        await pictures.show("history", f"{desk.url}/history")
        await pictures.show("audit", f"{desk.url}/audit")
    assert {name: size for name, size in pictures.sizes.items() if size > MOST_BYTES} == {}


SIX_FIELDS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "string", "description": "The number of the order."},
        "amount": {"type": "number", "minimum": 1},
        "currency": {"enum": ["EUR", "CHF"]},
        "reason": {"type": "string", "maxLength": 200},
        "notify": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
    },
    "required": ["order", "amount", "currency"],
}
SIX_VALUES = {"order": "A-1002", "amount": 42, "currency": "EUR", "reason": "lost", "notify": True, "note": None}


async def test_a_card_of_six_fields_is_decided_without_scrolling(hall: Hall, tmp_path: Path) -> None:
    described = {"description": "Pay money back. A person approves every refund.", "title": "Refund"}
    refund = Tool("refund", execute=len, input_schema=SIX_FIELDS, needs_approval=True, **described)
    async with serving(tmp_path / "six.db", [refund]) as desk, visiting(hall, [desk.url], **VIEWS["1280"]) as visitor:
        labels = {"agent": "refunds", "link": "https://chat.example.com/7"}
        record_id = await desk.pause(f"return await tools.refund({json.dumps(SIX_VALUES)})", labels=labels)
        await visitor.sign_in(desk.url)
        page = await visitor.page()
        await page.goto(f"{desk.url}/records/{record_id}")
        for name in ("Approve", "Deny"):
            box = await button(cards(page), name).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= 900, (name, box)
        assert await page.title() == "Refund A-1002 \N{MIDDLE DOT} 42 \N{MIDDLE DOT} EUR \N{EN DASH} pending"
