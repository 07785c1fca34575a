"""What a program has done so far, on its record's page: for whoever has the key, and never more than a page holds."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from codemode_console import record_view
from console_visitors import run
from record_desk import Page, RecordDesk

from codemode import CodeModeToolError
from codemode.stores import ALL_TENANTS, FailedNotice
from codemode.stores.transaction import Session

JSON = {"accept": "application/json"}
JS = """const found = await tools.find({ order: "A-17" });
try { await tools.fail({ why: "<b>no" }) } catch {}
return await tools.refund({ order: found.order });"""


def fail(why: str) -> str:
    raise CodeModeToolError(f"it failed: {why}")


def find(order: str) -> Any:
    return {"order": order, "found": True}


def orders(page: Page) -> list[int]:
    lists = [one for one in page.all("ol") if one.attributes.get("class") == "calls"]
    return [int(one.attributes["value"] or 0) for one in page.all("li") if one.parent in lists]


async def as_json(desk: RecordDesk, record_id: str, query: str = "") -> Any:
    async with desk.browser() as browser:
        answer: httpx.Response = await browser.get(f"/records/{record_id}{query}", headers=JSON)
    assert answer.status_code == 200
    return answer.json()


def test_calls_are_shown_with_input_outcome_and_time() -> None:
    async def work() -> None:
        desk = RecordDesk(free=(find, fail))
        record_id = await desk.pause(JS)
        page = await desk.page(record_id)
        assert orders(page) == [1, 2, 3]
        first, second, third = (page.by_id(f"call-{number}").text for number in (1, 2, 3))
        assert re.search(
            r'find fulfilled.*Line 1\.\s*Ended \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC.*"found": true', first, re.DOTALL
        )
        assert re.search(r"fail rejected.*Line 2\..*<b>no.*CodeModeToolError: it failed: <b>no", second, re.DOTALL)
        assert "refund waiting" in third
        assert "Ended" not in third
        times = [one.attributes["datetime"] or "" for one in page.all("time")]
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one) for one in times)
        calls = (await as_json(desk, record_id))["calls"]
        assert [(one["name"], one["status"]) for one in calls] == [
            ("find", "fulfilled"), ("fail", "rejected"), ("refund", "waiting"),
        ]  # fmt: skip
        assert calls[0]["value"]["json"] == {"order": "A-17", "found": True}
        assert calls[1]["error"]["json"] == "CodeModeToolError: it failed: <b>no"
        assert calls[2]["input"]["json"] == {"order": "A-17", "cents": 1}

    run(work)


def test_without_the_key_calls_are_not_shown_and_why_is_said() -> None:
    async def work() -> None:
        desk = RecordDesk(resume=None)
        record_id = await desk.pause(JS.replace("tools.fail", "tools.find").replace("why", "order"), source=None)
        page = await desk.page(record_id)
        assert orders(page) == []
        assert "key that is not known here" in page.section("Calls so far").text
        assert "not known here" in page.section("Program").text
        assert "A-17" in page.by_id("request-1").text

    run(work)


def test_an_ended_record_shows_its_program_calls_and_decisions() -> None:
    async def work() -> None:
        desk = RecordDesk()
        js = "const found: object = await tools.find({ order: 'A' });\nreturn await tools.refund({ order: 'A' })"
        record_id = await desk.pause(js, source=None)
        await desk.answer(record_id, {"approved": True, "reason": "as agreed"})
        page = await desk.page(record_id)
        told = page.section("Calls until it last paused").text
        assert "find" in told
        assert "refund" in told
        assert "const found: object" in page.section("Program").text
        assert "as agreed" in page.by_id("request-1").text
        assert "done" in page.section("Outcome").text

    run(work)


def test_many_calls_come_a_page_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_view, "CALLS_PER_PAGE", 3)

    async def work() -> None:
        desk = RecordDesk()
        js = 'for (let i = 0; i < 7; i++) await tools.find({ order: "A" + i });\nreturn tools.refund({ order: "B" })'
        record_id = await desk.pause(js)
        assert orders(await desk.page(record_id)) == [1, 2, 3]
        assert orders(await desk.page(record_id, "?calls=3")) == [4, 5, 6]
        assert orders(await desk.page(record_id, "?calls=6")) == [7, 8]
        assert orders(await desk.page(record_id, "?value=calls/8/input")) == [7, 8]
        for odd in ("99", "-1", "x", "\u0663", "1" * 5000, ""):
            assert orders(await desk.page(record_id, f"?calls={odd}")) == [1, 2, 3]
        told = await as_json(desk, record_id, "?calls=3")
        assert (told["callsNext"], told["callsCount"]) == (6, 8)

    run(work)


def test_where_programs_go_on_is_told_where_they_do_not_go_on_here() -> None:
    async def work() -> None:
        here, apart = RecordDesk(), RecordDesk(resume=None)
        for desk, resumes_here in ((here, True), (apart, False)):
            record_id = await desk.pause(JS.replace("tools.fail", "tools.find").replace("why", "order"))
            assert ("has been resumed yet" in (await desk.page(record_id)).text) is not resumes_here
            await desk.answer(record_id, {"approved": True})
            record_id = await desk.pause(JS.replace("tools.fail", "tools.find").replace("why", "order"))
            seen = (await desk.page(record_id)).text
            assert ("last resumed by host-7 of the tests, just now" in seen) is not resumes_here
            told = await as_json(desk, record_id)
            assert told["goesOnHere"] is resumes_here
            assert (told["lastResumed"] or {}).get("owner") == (None if resumes_here else "host-7 of the tests")
            other = await desk.pause(JS.replace("tools.fail", "tools.find").replace("why", "order"), app="other")
            assert "host-7" not in (await desk.page(other)).text

    run(work)


def test_notices_that_were_given_up_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def failed(record_ids: Any, *, tenant: Any) -> Any:
        assert tenant is ALL_TENANTS
        words: Any = {"error": "no answer <i>", "failed_at_ms": 1_800_000_000_000}
        return [FailedNotice(target="hooks <b>", record_id=one, version=1, attempts=5, **words) for one in record_ids]

    async def work() -> None:
        desk = RecordDesk()
        record_id = await desk.pause("return await tools.refund({ order: 'A' })")
        monkeypatch.setattr(desk.store, "failed_notices", failed)
        told = (await desk.page(record_id)).section("Notifications that failed").text
        assert "hooks <b>, 2027-01-15 08:00:00 UTC: no answer <i>" in " ".join(told.split())
        (notice,) = (await as_json(desk, record_id))["failedNotices"]
        assert (notice["target"], notice["attempts"]) == ("hooks <b>", 5)

    run(work)


@pytest.mark.parametrize("app", ["shop", "elsewhere"])
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_a_page_asks_the_store_as_often_however_much_there_is(
    accept: str, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    execute: Any = Session._execute  # pyright: ignore[reportPrivateUsage]

    def executed(session: Any, statement: str, values: Any) -> Any:
        statements.append(statement)
        return execute(session, statement, values)

    monkeypatch.setattr(Session, "_execute", executed)

    async def counted(desk: RecordDesk, record_id: str, query: str = "") -> int:
        async with desk.browser() as browser:
            before = len(statements)
            answer = await browser.get(f"/records/{record_id}{query}", headers={"accept": accept})
            assert answer.status_code == 200
            return len(statements) - before

    async def work() -> None:
        desk = RecordDesk()
        few = await desk.pause("return await tools.refund({ order: 'A' })", app=app)
        js = """for (let i = 0; i < 60; i++) await tools.find({ order: "A" + i });
await Promise.all([..."abcdefgh"].map((order) => tools.refund({ order })));
return await Promise.all([..."abcdefgh"].map((order) => tools.refund({ order })));"""
        many = await desk.pause(js, app=app)
        await desk.answer(many, *[{"approved": True}] * 8)
        record = await desk.store.record(many, tenant="acme")
        assert (len(record.requests), record.version) == (16, 2)
        least = await counted(desk, few)
        assert await counted(desk, many) == await counted(desk, many, "?value=calls/9/value") == least
        assert 3 < least < 20

    run(work)
