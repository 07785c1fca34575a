"""What is approved is shown whole: together with others or on its card, where what is cut says so and unfolds."""

from __future__ import annotations

from typing import Any

from codemode_console.pages import bulk
from codemode_console.visible_text import MAX_EXPANDED_CHARACTERS
from console_houses import AS_JSON, House
from console_visitors import run
from stored_pauses import paused, request
from test_console_bulk import Many, fields, house_of, states

END = "-- DROP TABLE customers"


def long(count: int) -> dict[str, Any]:
    return {"sql": f"{'x' * count}{END}"}


def test_the_end_of_an_input_is_on_the_page_on_which_many_are_approved() -> None:
    async def work() -> None:
        house = house_of()
        await house.put("a", given=long(2_000))
        await house.put("b", given=long(60_000))
        async with house.browser() as ana:
            looked = await (await Many(ana).open()).look()
            assert looked.text.count(END) == 2
            assert "left out" not in looked.text

    run(work)


def test_a_call_whose_input_does_not_fit_is_left_out_and_not_decided() -> None:
    async def work() -> None:
        house = house_of()
        await house.put("a", given={"sql": "short"})
        await house.put("b", given=long(MAX_EXPANDED_CHARACTERS))
        async with house.browser() as ana:
            many = await Many(ana).open()
            looked = await many.look()
            assert "Its input is too long for this page" in looked.text
            assert len(fields(looked)["request"]) == 1
            await many.decide(looked)
            assert [one[0] for one in await states(house, "a", "b")] == ["decided", "waiting"]
            sent = {"form_token": many.token, "request": many.requests, "decision": "approve"}
            told = (await ana.post("/many", data=sent, headers=AS_JSON)).json()
            assert [one["input"] for one in told["requests"]] == [long(MAX_EXPANDED_CHARACTERS)]

    run(work)


def test_calls_behind_a_full_page_are_left_out(monkeypatch: Any) -> None:
    async def work() -> None:
        monkeypatch.setattr(bulk, "MAX_INPUT_CHARACTERS_PER_PAGE", 5_000)
        house = house_of()
        for name in ("a", "b", "c"):
            await house.put(name, given=long(2_000))
        async with house.browser() as ana:
            looked = await (await Many(ana).open()).look()
            assert len(fields(looked)["request"]) == 2
            assert "1 of the selected calls is left out" in looked.text

    run(work)


def test_nothing_but_calls_that_do_not_fit_is_no_page_to_approve() -> None:
    async def work() -> None:
        house = house_of()
        await house.put("a", given=long(MAX_EXPANDED_CHARACTERS))
        async with house.browser() as ana:
            looked = await (await Many(ana).open()).look()
            assert looked.status_code == 422
            assert "Decide the call on its own page" in looked.text

    run(work)


async def card(house: House, given: Any, **more: Any) -> str:
    record = await house.store.put(paused(request("q", given=given, **more)), tenant="acme")
    async with house.browser() as ana:
        return (await ana.get(f"/records/{record}")).text


def test_a_cut_input_of_a_card_says_so_and_unfolds() -> None:
    async def work() -> None:
        house = house_of()
        text = await card(house, long(5_000), kind="question")
        assert "Cut here: only the beginning is shown. Show all of it" in text
        assert END in text
        assert "Cut here" not in await card(house_of(), {"sql": END}, kind="question")
        text = await card(house_of(), long(MAX_EXPANDED_CHARACTERS), kind="question")
        assert "Show more of it" in text
        assert "This is cut too: it is too long for a page." in text

    run(work)


def test_an_input_that_is_too_long_to_be_edited_unfolds_too() -> None:
    async def work() -> None:
        text = await card(house_of(), {"items": [{"n": number} for number in range(60_000)]})
        assert "Cut here: only the beginning is shown." in text

    run(work)


def test_a_long_changed_value_unfolds() -> None:
    async def work() -> None:
        house = house_of()
        record = await house.store.put(paused(request("q", given={"sql": "x"})), tenant="acme")
        answer = {"approved": True, "input": long(1_000)}
        await house.store.decide({"q": answer}, actor="ana", tenant="acme")
        async with house.browser() as ana:
            text = (await ana.get(f"/records/{record}")).text
            assert "Cut here. Show all of it" in text
            assert END in text

    run(work)
