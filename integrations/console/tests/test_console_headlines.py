"""What a row and a title say a call will do, and what can be decided in a row of the list."""

from __future__ import annotations

import re
from typing import Any

import httpx
from card_pages import CardDesk, call, keeping
from codemode_console.rendering import MAX_ROW_INPUT_CHARACTERS, create_headline, find_link_host, format_input_line
from codemode_console.visible_text import format_relative_time
from console_visitors import EVE, run
from record_desk import Page

from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.stores import StoredRequest

REFUND = {
    "type": "object",
    "properties": {"orderId": {"type": "string"}, "amount": {"type": "number"}, "note": {"type": "string"}},
    "required": ["orderId", "amount"],
}
ASKED = {"amount": 42.0, "orderId": "A-1002"}


def request(given: Any, **told: Any) -> StoredRequest:
    told = {"kind": APPROVAL_KIND, "payload": {}, **told}
    return StoredRequest(interrupt_id="q", tool_name="refund", input=given, **told)


def test_a_headline_is_made_of_the_host_s_title_and_summary_else_of_the_first_fields() -> None:
    titled = {"title": "Refund", "summary": "{orderId} · {amount:.2f} EUR"}
    rows: list[tuple[Any, dict[str, Any], str]] = [
        (ASKED, titled, "Refund A-1002 · 42.00 EUR"),
        (ASKED, {"summary": "{amount:,.0f} of {order.id}"}, "refund 42 of \N{EM DASH}"),
        ({"amount": "42", "orderId": 7}, titled, "Refund 7 · 42 EUR"),
        ({"amount": 10**400, "orderId": None}, titled, f"Refund \N{EM DASH} · {'1' + 59 * '0'}… EUR"),
        (ASKED, {"input_schema": REFUND}, "refund A-1002 · 42.0"),
        ({}, {}, "refund"),
        ("x", {"title": "Refund"}, "Refund"),
        ({"orderId": "<b>\u202e", "amount": [1]}, titled, "Refund <b>\\u202e · [1] EUR"),
        (ASKED, {"summary": "{orderId.__class__.__mro__}"}, "refund \N{EM DASH}"),
        (ASKED, {"payload": {"message": "only a look"}}, "refund 42.0 · A-1002"),
        (ASKED, {"payload": {"message": "Repair it?"}, "kind": "question"}, "refund Repair it?"),
        (ASKED, {"summary": "{orderId!r}", "title": "<i>"}, "<i> 42.0 · A-1002"),
    ]
    for given, told, words in rows:
        made = create_headline(request(given, **told))
        assert made.striptags() == words, (given, told)
        assert not re.search("<(?!/?strong>)", made), made


def test_the_line_of_an_input_says_whether_that_is_all_of_it() -> None:
    long = "x" * MAX_ROW_INPUT_CHARACTERS
    rows: list[tuple[Any, str, bool]] = [
        (ASKED, 'orderId: "A-1002", amount: 42.0', True),
        ({"a b": 1, 'c": 2, "d': 3}, '"a b": 1, "c\\": 2, \\"d": 3', True),
        ({}, "no input", True),
        (None, "no input", True),
        ([1, "<b>"], '[1, "<b>"]', True),
        ({"a": 1, "note": long}, f'note: "{long[130:]}', False),
        ({"a": long, "note": 1}, f'note: 1, a: "{long[140:]}', False),
        ({str(number): number for number in range(100)}, '"0": 0, ', False),
        (long, f'"{long[121:]}', False),
    ]
    for given, words, is_whole in rows:
        line = format_input_line(request(given, input_schema=REFUND))
        text = line.text.replace("<i>", "").replace("</i>", "")
        assert (type(line.text)(text).unescape().startswith(words), line.is_whole) == (True, is_whole), (given, text)
        assert len(text) <= 2 * MAX_ROW_INPUT_CHARACTERS + 100


def test_times_are_told_in_whole_units() -> None:
    rows = [(0, "just now"), (59, "just now"), (60, "1 min ago"), (3599, "59 min ago"), (3600, "1 h ago"),
            (47 * 3600, "47 h ago"), (48 * 3600, "2 days ago"), (-30, "in less than a minute"), (-90, "in 1 min"),
            (-23 * 3600 - 5, "in 23 h"), (-6 * 86_400, "in 6 days")]  # fmt: skip
    for seconds, words in rows:
        assert format_relative_time(10**12 - seconds * 1000, 10**12) == words, seconds


def test_only_a_url_of_the_web_is_linked() -> None:
    rows = {
        "https://chat.acme.com/t/7?a=b#c": "chat.acme.com", "http://localhost:8080/": "localhost",
        "javascript:alert(1)": "", "data:text/html,x": "", "//evil.example": "", "/records/x": "", "": "",
        "https://acme.com@evil.example/": "", 'https://a"b': "", "https://a b/": "", "https://[": "",
        "https://a:x/": "",
        "https://b\u00fccher.example/": "", "https://acme.com\\@evil.example": "", "HTTPS://Acme.com/": "acme.com",
    }  # fmt: skip
    assert {text: find_link_host(text) for text in rows} == rows


async def record_page(desk: CardDesk, browser: httpx.AsyncClient, **labels: str) -> Page:
    record_id = await desk.pause(call(ASKED), labels=labels)
    return Page((await browser.get(f"/records/{record_id}")).text)


def test_a_link_label_opens_the_conversation() -> None:
    async def work() -> None:
        desk = CardDesk([keeping(REFUND, [])])
        async with desk.browser() as ana:
            page = await record_page(desk, ana, link="https://chat.acme.com/t?a=<b>", agent="refunds")
            assert page.all("a", lambda one: one.text.startswith("Open conversation")) == [], "not a plain URL"
            page = await record_page(desk, ana, link="https://chat.acme.com/t?a=b&c=d", agent="refunds")
            (link,) = page.all("a", lambda one: one.text.startswith("Open conversation"))
            assert link.attributes["href"] == "https://chat.acme.com/t?a=b&c=d"
            assert "noopener" in str(link.attributes["rel"]).split()
            assert "(chat.acme.com)" in page.text
            page = await record_page(desk, ana, link="javascript:alert(1)")
            assert not page.all("a", lambda one: "javascript" in str(one.attributes["href"]))

    run(work)


class Row:
    """The form of a row of the list, as a browser sends it."""

    def __init__(self, page: Page, number: int = 0) -> None:
        self.forms = page.all("form", lambda one: str(one.attributes.get("id")).startswith("form"))
        form = self.forms[number]
        self.action = str(form.attributes["action"])
        inputs = page.all("input", lambda one: one.within("form") is form)
        self.items = {str(one.attributes["name"]): str(one.attributes["value"]) for one in inputs}
        self.buttons = page.all("button", lambda one: one.attributes.get("form") == form.attributes["id"])

    async def press(self, browser: httpx.AsyncClient, decision: str, **more: str) -> httpx.Response:
        return await browser.post(self.action, data={**self.items, "decision": decision, **more})


def test_a_call_is_decided_in_its_row_and_the_list_says_so() -> None:
    async def work() -> None:
        taken: list[Any] = []
        desk = CardDesk([keeping(REFUND, taken, title="Refund", summary="{orderId}")])
        first, second = [await desk.pause(call({"orderId": name, "amount": 1})) for name in ("A-1", "A-2")]
        async with desk.browser() as ana:
            row = Row(Page((await ana.get("/?app=shop&order=expiring")).text))
            assert [one.attributes["value"] for one in row.buttons] == ["deny", "approve"], "Enter in a reason denies"
            answer = await row.press(ana, "approve")
            assert answer.status_code == 303
            page = Page((await ana.get(answer.headers["location"])).text)
            (done,) = page.all("p", lambda one: one.attributes.get("class") == "done")
            assert done.text == "Approved: Refund A-1"
            assert "app=shop&order=expiring&done=" in answer.headers["location"]
            answer = await Row(page).press(ana, "deny", reason="not now")
            assert answer.headers["location"].count("done=") == 1
            page = Page((await ana.get(answer.headers["location"])).text)
            assert ("Denied: Refund A-2" in page.text, Row.__name__ in page.text) == (True, False)
            states = [(await desk.requests(one))[0] for one in (first, second)]
            assert [one.decision for one in states] == [{"approved": True}, {"approved": False, "reason": "not now"}]
            assert "Denied" not in (await ana.get("/?done=unknown/1")).text
            assert "Denied" not in (await ana.get(f"/?done={second}/9")).text
        async with desk.browser(EVE) as eve:
            assert 'name="decision"' not in (await eve.get("/")).text

    run(work)


def test_a_row_that_hides_anything_offers_a_review_and_no_decision() -> None:
    async def work() -> None:
        given: tuple[tuple[Any, bool], ...] = (
            ({"orderId": "A-1", "amount": 1}, True),
            ({"orderId": "x" * MAX_ROW_INPUT_CHARACTERS, "amount": 1}, False),
            ({"orderId": "A-1", "amount": 1, "note": "y" * 5000}, False),
        )
        for value, is_shown in given:
            desk = CardDesk([keeping(REFUND, [])])
            await desk.pause(call(value))
            async with desk.browser() as ana:
                page = Page((await ana.get("/")).text)
                reviews = page.all("a", lambda one: one.text == "Review")
                offered = [one for one in page.all("button") if one.text in ("Approve", "Deny")]
                assert (len(reviews), len(offered)) == ((0, 2) if is_shown else (1, 0)), value

    run(work)


def test_a_row_decides_nothing_but_what_it_showed() -> None:
    async def work() -> None:
        desk = CardDesk([keeping(REFUND, [])])
        one, other = [await desk.pause(call({"orderId": name, "amount": 1})) for name in ("A-1", "A-2")]
        async with desk.browser() as ana:
            page = Page((await ana.get("/")).text)
            first, second = Row(page), Row(page, 1)
            first.action, second.action = second.action, first.action
            assert (await first.press(ana, "approve")).status_code == 403
            second.items["shown"] = "0" * len(second.items["shown"])
            assert (await second.press(ana, "approve")).status_code == 403
            assert await desk.states(one) + await desk.states(other) == ["waiting", "waiting"]
            row = Row(page)
            row.action = row.action.partition("?")[0] + "?back=//evil.example%0d%0aset-cookie:x"
            answer = await row.press(ana, "approve")
            assert re.match(r"/\?", answer.headers["location"])

    run(work)


def test_the_calls_of_one_program_are_decided_together() -> None:
    async def work() -> None:
        tools = [keeping(REFUND, [], title="Refund"), keeping(REFUND, [])]
        desk = CardDesk([tools[0], tools[1].with_name("send")])
        js = f"return await Promise.all([{call(ASKED)[13:]}, {call(ASKED, 'send')[13:]}])"
        record_id = await desk.pause(js)
        async with desk.browser() as ana:
            page = Page((await ana.get(f"/records/{record_id}")).text)
            (form,) = page.all("form", lambda one: str(one.attributes.get("action")) == "/many")
            inputs = page.all("input", lambda one: one.within("form") is form)
            sent = {"form_token": "", "request": list[str](), "decision": "approve"}
            sent["form_token"] = inputs[0].attributes["value"]
            sent["request"] = [one.attributes["value"] for one in inputs[1:]]
            looked = await ana.post("/many", data=sent)
            assert looked.status_code == 200, looked.text
            assert "Approve 2 calls of one program?" in looked.text

    run(work)
