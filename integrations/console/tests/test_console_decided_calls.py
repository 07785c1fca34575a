"""How pages title decided calls, what they change, and calls whose outcome is unknown."""

from __future__ import annotations

from typing import Any

from codemode_console.record_view import RecordPageQuery, create_record_view, diff_values, pair_changes
from console_houses import House
from console_visitors import run
from record_desk import RecordDesk
from stored_pauses import paused, request

from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import ALL_TENANTS, MemoryInterruptStore
from codemode.types import CallView, PauseView

DENY: dict[str, Any] = {"approved": False}
EDIT: dict[str, Any] = {"approved": True, "input": {"order": "A-17", "cents": 2}}
CALL = "tools.refund({ order: 'A-17', cents: 1 })"
CHANGE = "<li>cents: <del>1</del> &rarr; <ins>2</ins></li>"


def test_title_of_a_denied_call_says_so_and_the_state_is_that_of_the_program() -> None:
    async def work() -> None:
        desk = RecordDesk()
        record_id = await desk.pause(f"try {{ await {CALL} }} catch {{}}")
        await desk.answer(record_id, DENY)
        page = await desk.page(record_id)
        (heading,), (title,) = page.all("h1"), page.all("title")
        assert "refund" in heading.text
        assert heading.text.endswith(" denied")
        assert title.text.endswith("denied")
        (state,) = page.all("span", lambda one: one.attributes.get("data-state") == "completed")
        assert state.text == "Program completed"
        async with desk.browser() as ana:
            row = (await ana.get("/?state=completed")).text
            assert '<span class="status">denied</span>' in row
            assert ">program completed</span>" in row

    run(work)


def test_heading_of_an_edited_card_and_the_history_show_the_approved_input() -> None:
    async def work() -> None:
        desk = RecordDesk()
        record_id = await desk.pause(f"await Promise.allSettled([{CALL}, {CALL}])")
        await desk.answer(record_id, EDIT, DENY)
        page = await desk.page(record_id)
        assert [one.text for one in page.all("span", lambda one: one.attributes.get("class") == "headline")] == [
            "refund A-17 \N{MIDDLE DOT} 2",
            "refund A-17 \N{MIDDLE DOT} 1",
        ]
        async with desk.browser() as ana:
            history = (await ana.get("/history")).text
        assert "refund <strong>A-17</strong> \N{MIDDLE DOT} <strong>2</strong>" in history
        assert "refund <strong>A-17</strong> \N{MIDDLE DOT} <strong>1</strong>" in history

    run(work)


def test_history_names_the_tool_of_a_call_that_was_deleted() -> None:
    async def work() -> None:
        house = House()
        record_id = await house.put("a", tool="wire")
        await house.decide("a", DENY)

        async def no_records(*_: Any, **__: Any) -> tuple[()]:
            return ()

        house.store.records = no_records
        async with house.browser() as ana:
            history = (await ana.get("/history")).text
        assert f'href="/records/{record_id}">Denied</a>' in history
        assert '<td data-label="Call">wire</td>' in history

    run(work)


def test_a_change_reads_the_same_on_a_card_in_earlier_versions_and_in_the_history() -> None:
    async def work() -> None:
        desk = RecordDesk()
        record_id = await desk.pause(f"await {CALL}; await {CALL}")
        await desk.answer(record_id, EDIT)
        async with desk.browser() as ana:
            page = (await ana.get(f"/records/{record_id}")).text
            history = (await ana.get("/history")).text
        assert page.count(CHANGE) == 2
        assert history.count(CHANGE) == 1

    run(work)


def test_changes_pair_values_of_one_field_and_mark_absent_ones() -> None:
    pairs = pair_changes(diff_values({"a": 1, "b": 2, "d": {"e": 1}}, {"a": 3, "c": 4, "d": {"e": 2}}))
    assert [
        (
            str(one.field),
            None if one.before is None else str(one.before.text),
            None if one.after is None else str(one.after.text),
        )
        for one in pairs
    ] == [("a", "1", "3"), ("b", "2", None), ("d/e", "1", "2"), ("c", None, "4")]


def test_a_call_with_an_unknown_outcome_is_not_listed_as_waiting() -> None:
    async def work() -> None:
        store = MemoryInterruptStore()
        pending = request("a", kind=UNKNOWN_OUTCOME_KIND)
        record_id = await store.put(paused(pending), tenant="acme")
        record = await store.record(record_id, tenant=ALL_TENANTS)
        calls = [
            CallView(order=order, id=name, kind="tool", name="refund", input={}, status="waiting")
            for order, name in enumerate((pending.tool_call_id, "another"), 1)
        ]
        view = PauseView(js="1", calls=tuple(calls), requests=(pending,))
        found = create_record_view(record, paused(pending), lambda _: view, RecordPageQuery())
        assert [one.status for one in found.calls] == ["outcome unknown", "waiting"]

    run(work)
