"""Long values on a record's page: their beginning, more of them on demand, and all of them as a file."""

from __future__ import annotations

import json
from typing import Any

import httpx
from codemode_console.visible_text import (
    MAX_EXCERPT_CHARACTERS,
    MAX_EXPANDED_CHARACTERS,
    create_excerpt,
    to_visible_json,
)
from console_visitors import run
from hypothesis import given
from hypothesis import strategies as st
from record_desk import BOB, Page, RecordDesk
from suite import each_row

from codemode import request_interrupt

LONG = "0123456789abcdef" * 8_192  # 128 Ki characters
JS = f"""const long = await tools.find({{ order: "x".repeat(5000) }});
return await tools.refund({{ order: {json.dumps(LONG)} }});"""


def find(order: str) -> Any:
    return {"log": LONG, "short": [1, None, True]}


def links(page: Page, text: str) -> list[str]:
    return [str(one.attributes["href"]) for one in page.all("a") if one.text == text]


async def fetched(browser: httpx.AsyncClient, path: str) -> httpx.Response:
    return await browser.get(path.removeprefix("/approvals"))


def shown_in(page: Page, anchor: str) -> str:
    (pre,) = [one for one in page.all("pre") if one.parent is page.by_id(anchor)]
    return pre.text


def test_a_long_value_is_begun_shown_on_demand_and_had_whole() -> None:
    async def work() -> None:
        desk = RecordDesk(free=(find,))
        record_id = await desk.pause(JS)
        page = await desk.page(record_id)
        whole = to_visible_json({"log": LONG, "short": [1, None, True]})
        assert shown_in(page, "value-calls-1-value") == f"{whole[:MAX_EXCERPT_CHARACTERS]} \u2026"
        more = next(one for one in links(page, "Show more") if "calls/1/value" in one)
        assert more == f"/approvals/records/{record_id}?value=calls/1/value#value-calls-1-value"
        async with desk.browser() as ana:
            second = Page((await fetched(ana, more)).text)
            assert shown_in(second, "value-calls-1-value") == f"{whole[:MAX_EXPANDED_CHARACTERS]} \u2026"
            assert len(second.source) < 8 * MAX_EXPANDED_CHARACTERS
            address = next(one for one in links(second, "Download all of it") if "calls/1/value" in one)
            file = await fetched(ana, address)
        assert (file.status_code, file.text) == (200, whole)
        assert json.loads(file.text) == {"log": LONG, "short": [1, None, True]}
        assert file.headers["content-type"] == "text/plain; charset=utf-8"
        assert file.headers["content-disposition"] == 'attachment; filename="value.txt"'
        assert file.headers["x-content-type-options"] == "nosniff"
        assert file.headers["cache-control"] == "no-store"

    run(work)


def test_what_is_asked_of_somebody_can_be_had_whole() -> None:
    async def work() -> None:
        desk = RecordDesk(free=(find,))
        record_id = await desk.pause(JS)
        page = await desk.page(record_id)
        assert "requests/1/asked" in "".join(links(page, "Show more"))
        second = await desk.page(record_id, "?value=requests/1/asked")
        assert LONG[:60_000] in shown_in(second, "value-requests-1-asked")
        async with desk.browser() as ana:
            file = await ana.get(f"/records/{record_id}/value?of=requests/1/asked")
        assert json.loads(file.text) == {"order": LONG, "cents": 1}

    run(work)


def test_a_text_is_had_as_text_and_what_nobody_sees_in_it_as_escapes() -> None:
    async def work() -> None:
        desk = RecordDesk()
        text = "'a<b>\\u202e\\u0007\\n\\u00e9'.repeat(400)"
        js = f"const text = {text}; await tools.refund({{ order: 'A' }}); return text;"
        record_id = await desk.pause(js)
        await desk.answer(record_id, {"approved": True})
        async with desk.browser() as ana:
            file = await ana.get(f"/records/{record_id}/value?of=outcome/value")
            assert file.text == "a<b>\\u202e\\u0007\n\u00e9" * 400
            assert "\u202e" not in file.text
            assert file.headers["content-type"] == "text/plain; charset=utf-8"
            assert file.headers["content-disposition"].startswith("attachment")

    run(work)


@each_row("address", [
    "", "program/1", "calls", "calls/1", "calls/0/input", "calls/3/input", "calls/-1/input", "calls/\u0661/input",
    "calls/1/error", "calls/2/value", "calls/1/name", "calls/1/__class__", "requests/2/asked", "requests/1/decision",
    "requests/1/actor", "outcome/value", "outcome/error", "outcome", "../calls/1/input", "calls/1/input/", "x" * 9_000,
    "CALLS/1/input",
])  # fmt: skip
def test_there_are_no_other_values(address: str) -> None:
    async def work() -> None:
        desk = RecordDesk()
        record_id = await desk.pause("await tools.find({ order: 'A' }); return await tools.refund({ order: 'A' })")
        async with desk.browser() as ana:
            answer = await ana.get(f"/records/{record_id}/value", params={"of": address})
            assert (answer.status_code, "Traceback" in answer.text) == (404, False)
            assert (await ana.get(f"/records/{record_id}", params={"value": address})).status_code == 200

    run(work)


def test_values_of_another_tenant_are_unknown_ones() -> None:
    async def work() -> None:
        desk = RecordDesk()
        record_id = await desk.pause("await tools.find({ order: 'A' }); return await tools.refund({ order: 'A' })")
        async with desk.browser(BOB) as bob:
            for of in ("program", "calls/1/value", "requests/1/asked", "nothing"):
                foreign = await bob.get(f"/records/{record_id}/value", params={"of": of})
                unknown = await bob.get("/records/nothing/value", params={"of": of})
                assert (foreign.status_code, unknown.status_code) == (404, 404)
                assert "Unknown request" in foreign.text
        async with desk.browser() as ana:
            for of in ("program", "calls/1/value", "requests/1/asked"):
                assert (await ana.get(f"/records/{record_id}/value", params={"of": of})).status_code == 200

    run(work)


def test_without_the_key_there_are_no_values_of_calls() -> None:
    async def work() -> None:
        desk = RecordDesk(resume=None)
        record_id = await desk.pause("await tools.find({ order: 'A' }); return await tools.refund({ order: 'A' })")
        async with desk.browser() as ana:
            for of, status in (("program", 404), ("calls/1/value", 404), ("requests/1/asked", 200)):
                assert (await ana.get(f"/records/{record_id}/value", params={"of": of})).status_code == status

    run(work)


def test_the_question_of_a_tool_and_its_answer_are_values_too() -> None:
    def ask(context: Any) -> Any:
        if context.interrupt is None:
            request_interrupt({"kind": "which-account", "text": LONG, "schema": {"type": "string"}})
        return context.interrupt

    async def work() -> None:
        desk = RecordDesk(gated=(), free=())
        from codemode import Tool, create_code_mode_tool

        tool = Tool("ask", execute=lambda _input, context: ask(context), input_schema={"type": "object"})
        continuation: Any = {"guard": desk.store.guard, "max_age_ms": 86_400_000}
        desk.code_mode = create_code_mode_tool([tool], {"continuation": continuation})
        record_id = await desk.pause("return await tools.ask({})")
        async with desk.browser() as ana:
            asked = (await ana.get(f"/records/{record_id}/value?of=requests/1/asked")).text
            assert json.loads(asked) == {"kind": "which-account", "text": LONG}
            await desk.answer(record_id, "the first one")
            assert "the first one" in shown_in(await desk.page(record_id), "value-requests-1-decision")

    run(work)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=20), inner, max_size=6),
    max_leaves=30,
)


@given(JSON, st.integers(0, 200))
def test_the_beginning_of_a_value_is_that_of_all_of_it(value: Any, most: int) -> None:
    found = create_excerpt(value, most)
    if isinstance(value, str):
        assert found.is_whole is (len(value) <= most)
        return
    whole = to_visible_json(value)
    assert found.text.unescape() == whole[:most]
    assert found.is_whole is (len(whole) <= most)


def test_the_beginning_of_a_very_long_value_takes_no_longer() -> None:
    class Long(str):
        """A text of which nobody may touch the end."""

        def __getitem__(self, at: Any) -> str:
            assert at.stop is not None
            assert at.stop <= MAX_EXCERPT_CHARACTERS + 1
            return "x" * at.stop

    deep: Any = "end"
    for _ in range(500):
        deep = [deep]
    assert not create_excerpt({"a": [Long("x")] * 1_000_000}).is_whole
    assert create_excerpt(deep, MAX_EXPANDED_CHARACTERS * 8).is_whole
