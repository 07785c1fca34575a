"""Each page, as those have it who see little, use no mouse, or hold a telephone; and images of them for docs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsing import Desk, Visitor, button, cards, follow, shape_of
from console_visitors import ANA
from demonstration import demonstration
from suite import rounds

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

pytestmark = pytest.mark.full

DEMO = demonstration()
MOST_BYTES = 150_000
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
    await button(page, "Deny").click()
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


@pytest.mark.parametrize("settings", [
    {"viewport": {"width": 1200, "height": 800}, "color_scheme": "light", "reduced_motion": "reduce"},
], ids=["light"])  # fmt: skip
async def test_images_of_the_console_are_small(desk: Desk, visitor: Visitor, agent: Any, tmp_path: Path) -> None:
    folder = Path(os.environ.get(FOLDER) or tmp_path)
    made: list[Path] = []

    async def keep(page: Page, name: str, **settings: Any) -> None:
        made.append(folder / f"console-{name}.png")
        await page.screenshot(path=made[-1], **settings)

    await DEMO.fill(desk.store, desk.code_mode, agent)
    await visitor.sign_in(desk.url)
    page = await visitor.page()
    await page.goto(desk.url)
    await keep(page, "list")
    asked = (await desk.store.list(tenant="acme", tool="refund")).records[0]
    await page.goto(f"{desk.url}/records/{asked.id}")
    await keep(page, "record")
    card = cards(page).nth(1)
    await card.locator('[name="/amount"]').fill("174.5")
    await card.locator("[name=reason]").fill("half: it can be repaired")
    await card.locator('[name="/amount"]').press("Enter")
    await page.get_by_role("table").first.wait_for()
    await cards(page).nth(1).scroll_into_view_if_needed()
    await keep(page, "changes")
    await follow(page, button(cards(page).nth(1), "Approve with changes"))
    await desk.until(asked.id, lambda record: record.version == 2)
    await page.goto(f"{desk.url}/records/{asked.id}")
    await cards(page).locator("[name=reason]").fill("the parcel may still arrive")
    await follow(page, button(cards(page), "Deny"))
    await desk.outcome(asked.id)
    await page.goto(f"{desk.url}/history")
    await keep(page, "history")
    assert {path.name: path.stat().st_size for path in made if path.stat().st_size > MOST_BYTES} == {}
