"""The list of the console: filters, orders, pages and counts, for the tenants that a visitor sees and no others."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import httpx
import pytest
from codemode_console import TokenAuth, User, token_hash
from codemode_console.visible_text import is_all_visible
from console_houses import AS_JSON, BOB, USERS, House
from console_visitors import EVE, run
from record_desk import Page
from stored_pauses import HOUR_MS, OK, paused, request
from suite import each_row

from codemode.stores import ALL_TENANTS, SqliteInterruptStore
from codemode.stores.transaction import Session

HOSTILE = (
    "<script>alert(1)</script>",
    "\u202eevil",
    '" onfocus="alert(1)" x="',
    "javascript:alert(1)",
    "a&b=c#d?e/../f",
    "a\u200bb",
    "\N{COMBINING ACUTE ACCENT}" * 9,
    "line\nbreak",
    "x" * 3000,
    "{{ 7 * 7 }}",
)


async def put(house: House, name: str, *, tool: str = "refund", age_ms: int = 30 * HOUR_MS, **said: Any) -> str:
    waiting = paused(request(name, tool=tool), age_ms=age_ms)
    return await house.store.put(waiting, **{"tenant": "acme", "app": "shop", **said})


async def listed(browser: httpx.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await browser.get(f"/?{urlencode(asked, doseq=True)}", headers=AS_JSON)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ids(browser: httpx.AsyncClient, **asked: Any) -> list[str]:
    """Return the ids that a caller of the API gets, which are those that the page links."""
    found = [one["id"] for one in (await listed(browser, **asked))["records"]]
    text = (await browser.get(f"/?{urlencode(asked, doseq=True)}")).text
    assert list(dict.fromkeys(re.findall(r'href="/records/([0-9a-f]+)"', text))) == found
    return found


def test_what_waits_is_found_by_tenant_app_tool_label_and_state() -> None:
    async def work() -> None:
        house = House()
        one = await put(house, "a", labels={"agent": "refunds", "of": "x=y"})
        two = await put(house, "b", tool="charge", tenant="globex", app="desk", labels={"agent": "refunds"})
        three = await put(house, "c", age_ms=HOUR_MS)
        lost = await put(house, "d")
        await house.decide("d", OK)
        lease = await house.store.claim(owner="o", tenant=ALL_TENANTS)
        await house.store.mark_lost(lease)
        decided = await put(house, "e")
        await house.decide("e", OK)
        await put(house, "f", tenant="initech")
        async with house.browser() as ana:
            assert await ids(ana) == [three, two, one]
            assert await ids(ana, order="expiring") == [three, one, two]
            assert await ids(ana, tenant="globex") == [two]
            assert await ids(ana, app="shop") == [three, one]
            assert await ids(ana, tool="charge") == [two]
            assert await ids(ana, label="agent=refunds") == [two, one]
            assert await ids(ana, label=["agent=refunds", "of=x=y"]) == [one]
            assert await ids(ana, label="agent=refunds", tool="refund", app="shop", tenant="acme") == [one]
            assert await ids(ana, state="lost") == [lost]
            assert await ids(ana, state="pending") == [decided, three, two, one]
            assert await ids(ana, state="all") == [decided, lost, three, two, one]
            for none in ({"tool": "none"}, {"app": "\0"}, {"label": "agent="}, {"tenant": "nobody"}):
                assert await ids(ana, **none) == []
            page = Page((await ana.get("/")).text)
            times = [time.attributes["datetime"] for time in page.all("time")]
            assert len(times) == 2 * 3
            assert all(str(time).endswith("Z") for time in times)

    run(work)


def test_counts_link_to_what_they_count_and_keep_the_other_filters() -> None:
    async def work() -> None:
        house = House()
        for number in range(3):
            await put(house, f"a{number}", labels={"x": "y"})
        await put(house, "b", tool="charge")
        await put(house, "c", tool="charge", tenant="globex", app="desk")
        async with house.browser() as ana:
            assert (await listed(ana))["counts"] == {"refund": 3, "charge": 2}
            assert (await listed(ana, tenant="acme"))["counts"] == {"refund": 3, "charge": 1}
            assert (await listed(ana, app="desk"))["counts"] == {"charge": 1}
            page = Page((await ana.get("/?label=x%3Dy&order=expiring&tenant=acme")).text)
            links = [str(one.attributes["href"]) for one in page.all("a") if "tool=" in str(one.attributes["href"])]
            assert parse_qs(urlsplit(links[0]).query) == {
                "tool": ["refund"],
                "label": ["x=y"],
                "order": ["expiring"],
                "tenant": ["acme"],
            }

    run(work)


def test_others_are_neither_listed_nor_counted_nor_told_apart_from_none() -> None:
    async def work() -> None:
        house = House()
        for tenant in ("acme", "initech", ""):
            await put(house, f"of {tenant}", tool=f"tool of {tenant}", tenant=tenant, labels={"of": tenant})
        async with house.browser(BOB) as bob:
            assert (await listed(bob))["counts"] == {"tool of initech": 1}
            nothing = {"records": [], "next": None, "counts": {}}
            for tenant in ("acme", "nobody", "\u202e"):
                assert await listed(bob, tenant=tenant) == nothing
            for asked in ({"tool": "tool of acme"}, {"label": "of=acme"}, {"label": "of="}):
                for state in ("waiting", "all"):
                    assert (await listed(bob, state=state, **asked))["records"] == []
            assert "acme" not in (await bob.get("/")).text
        async with house.browser(EVE) as eve:
            assert len(await ids(eve)) == 3
        nobody = House(house.store, TokenAuth({token_hash("n"): User("nobody", [])}))
        async with nobody.browser("n") as browser:
            assert await listed(browser) == nothing

    run(work)


@pytest.mark.parametrize("order", ["newest", "expiring"])
def test_pages_of_fifty_go_on_behind_the_last_whatever_comes_and_goes(order: str) -> None:
    async def work() -> None:
        house = House()
        stay = [
            await put(house, str(n), tenant=("acme", "globex")[n % 2], age_ms=(n % 7 + 1) * HOUR_MS) for n in range(120)
        ]
        seen: list[str] = []
        async with house.browser() as ana:
            page = Page((await ana.get(f"/?order={order}")).text)
            for number in range(3):
                found = [str(one.attributes["href"]).rpartition("/")[2] for one in page.all("a", _is_record)]
                assert len(found) == 50 or number == 2
                seen += found
                following = page.all("a", lambda one: one.text == "Next page")
                if not following:
                    break
                await put(house, f"new {number}", age_ms=30 * HOUR_MS)
                await house.store.withdraw(seen[-1], actor="ana")
                page = Page((await ana.get(str(following[0].attributes["href"]))).text)
        assert len(set(seen)) == len(seen)
        assert set(stay) <= set(seen)

    run(work)


def _is_record(one: Any) -> bool:
    return str(one.attributes.get("href")).startswith("/records/")


@each_row(
    "query",
    [
        "after=x",
        "after=-1",
        "after=1-1",
        "after=9999999999999999999",
        "after=1&order=expiring",
        "after=%D9%A1",
        "after=1%00",
        "order=oldest",
        "order=expiring&state=lost",
        "state=none",
        "limit=0",
        "limit=201",
        "limit=x",
        "label=x",
        "label=a%3Db&label=a%3Dc",
        "&".join(f"label={one}%3Db" for one in range(11)),
    ],
)
def test_what_is_no_list_is_said_to_be_none(query: str) -> None:
    async def work() -> None:
        async with House().browser() as ana:
            for headers in ({}, AS_JSON):
                answer = await ana.get(f"/?{query}", headers=headers)
                assert answer.status_code == 400, answer.text

    run(work)


def test_names_of_strangers_are_shown_and_found_and_do_nothing() -> None:
    async def work() -> None:
        house = House()
        kept = {
            text: await put(house, str(n), tool=text, app=text, labels={f"n{n}": text, text.replace("=", ""): "v"})
            for n, text in enumerate(HOSTILE)
        }
        async with house.browser() as ana:
            source = (await ana.get("/")).text
            page = Page(source)
            assert not re.search('[\u202e\u200b]|<script>alert|onfocus="alert', source)
            hrefs = [str(one.attributes["href"]) for one in page.all("a")]
            assert [one for one in hrefs if not re.match("/|#main$", one)] == []
            links = {one.text: str(one.attributes["href"]) for one in page.all("a") if "tool=" in str(one.attributes)}
            assert len(links) == len(HOSTILE)
            found = [await ana.get(link, headers=AS_JSON) for link in links.values()]
            assert sorted(one["id"] for answer in found for one in answer.json()["records"]) == sorted(kept.values())
            for text, record_id in kept.items():
                assert await ids(ana, tool=text) == [record_id]
                assert await ids(ana, app=text) == [record_id]
                # What a page shows of a filter is sent back by its form, and means the same.
                shown = Page((await ana.get(f"/?tool={quote(text)}")).text)
                (control,) = shown.all("input", lambda one: one.attributes.get("name") == "tool")
                if "\n" not in text:
                    assert await ids(ana, tool=control.attributes["value"]) == [record_id]

    run(work)


def test_rows_say_what_each_call_is_about_in_one_line_that_is_not_long() -> None:
    async def work() -> None:
        house = House()
        given: list[Any] = [{"order": "A-17", "note": "two\nlines"}, {text: text for text in HOSTILE}, "y" * 50_000, {}]
        for number, one in enumerate(given):
            await house.put(f"n{number}", given=one)
        many = paused(*(request(f"m{number}", given={"n": number}) for number in range(12)))
        await house.store.put(many, tenant="acme")
        async with house.browser() as ana:
            for query, most in (("", 4 + 10), ("?tool=refund", 4 + 10)):
                source = (await ana.get(f"/{query}")).text
                shown = [one.text for one in Page(source).all("code")]
                assert len(shown) == most
                assert shown[-1] == 'order: "A-17", note: "two\\nlines"'
                assert shown[:10] == [f"n: {number}" for number in range(10)]
                assert all(len(one) <= 500 and is_all_visible(one) for one in shown)
                assert not re.search('[\u202e\u200b]|<script>alert|onfocus="alert', source)
            (first, *_) = (await listed(ana))["records"]
            assert (first["tools"], first["waiting"]) == (["refund"] * 12, [f"m{number}" for number in range(12)])

    run(work)


def test_what_is_decided_and_not_gone_on_with_is_led_to_from_what_waits() -> None:
    async def work() -> None:
        house = House()
        stuck, lost, _ = [await put(house, name, app=app) for name, app in (("a", "shop"), ("b", "shop"), ("c", "x"))]
        for name, record_id in (("a", stuck), ("b", lost)):
            await house.decide(name, OK)
            lease = await house.store.claim(owner="o", tenant=ALL_TENANTS, record_id=record_id)
            await (house.store.release(lease, not_resumable="no key") if name == "a" else house.store.mark_lost(lease))
        async with house.browser() as ana:
            for query in ("", "?order=expiring&app=shop"):
                page = Page((await ana.get(f"/{query}")).text)
                assert ("No call matches these filters." in page.text) is bool(query)
                for words, found, other in (("Pending and decided", stuck, lost), ("Lost", lost, stuck)):
                    (link,) = page.all("a", lambda one, words=words: one.text == words)
                    text = (await ana.get(str(link.attributes["href"]))).text
                    assert (found in text, other in text) == (True, False)
                    assert parse_qs(urlsplit(str(link.attributes["href"])).query).get("app") == (
                        ["shop"] if query else None
                    )

    run(work)


def test_each_cell_names_its_column_where_there_is_no_room_for_columns() -> None:
    async def work() -> None:
        house = House()
        await house.put("a", given={"n": 1})
        await house.decide("a", {"approved": True, "input": {"n": 2}})
        await house.put("b")
        async with house.browser() as ana:
            for path in ("/", "/history", "/audit"):
                page = Page((await ana.get(path)).text)
                columns = [one.text for one in page.all("th")]
                cells = [one.attributes.get("data-label") for one in page.all("td")]
                assert len(columns) > 6, path
                assert cells
                assert cells == columns * (len(cells) // len(columns)), path
            assert "content: attr(data-label)" in (await ana.get("/static/console.css")).text

    run(work)


def test_who_may_not_decide_is_offered_nothing_to_choose() -> None:
    async def work() -> None:
        auth = TokenAuth({**USERS_BY_HAND, token_hash("looks"): User("looks", ["acme"], may_decide=False)})
        house = House(auth=auth)
        await put(house, "a")
        for token, count in (("looks", 0), ("decides", 1)):
            async with house.browser(token) as browser:
                page = Page((await browser.get("/")).text)
                assert len(page.all("input", lambda one: one.attributes.get("name") == "request")) == count
                assert len(Page((await browser.get("/?state=lost")).text).all("form", _is_choice)) == 0

    run(work)


USERS_BY_HAND = {token_hash("decides"): User("decides", ["acme"])}


def _is_choice(one: Any) -> bool:
    return str(one.attributes.get("action")).endswith("/many")


def test_a_page_asks_the_store_as_often_however_much_waits(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    execute = Session._execute

    def counted(session: Session, statement: str, values: Any) -> Any:
        asked.append(statement)
        return execute(session, statement, values)

    monkeypatch.setattr(Session, "_execute", counted)

    async def work() -> None:
        house = House(SqliteInterruptStore(tmp_path / "a.sqlite"), TokenAuth(USERS))
        async with house.browser() as ana:
            costs: list[list[int]] = []
            for size in (1, 60):
                for number in range(size):
                    await put(house, f"{size}-{number}", labels={"x": "y", "z": "w"})
                costs.append([])
                for query in ("", "?tool=refund", "?label=x%3Dy&label=z%3Dw", "?tenant=acme&order=expiring&app=shop"):
                    asked.clear()
                    assert (await ana.get(f"/{query}")).status_code == 200
                    costs[-1].append(len(asked))
            assert costs[0] == costs[1]
            assert max(costs[0]) <= 8
        await house.store.aclose()

    run(work)
