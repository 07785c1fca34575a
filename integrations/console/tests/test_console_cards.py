"""What people do in a card's form is what the tool gets, exactly, and nothing is decided by what is no decision."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from card_pages import JSON, CardDesk, CardForm, call, keeping
from console_visitors import run
from suite import each_row, full_only

from codemode import CallContext, CodeModeToolApprovalDeniedError

PAY = {"title": "Card", "type": "object", "properties": {"card": {"type": "string"}}, "required": ["card"]}
BANK = {"title": "Bank", "type": "object", "properties": {"iban": {"type": "string"}}, "required": ["iban"]}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "order": {"type": "string"},
        "cents": {"type": "integer", "minimum": 1, "maximum": 100_000},
        "share": {"type": "number"},
        "express": {"type": "boolean"},
        "speed": {"enum": ["slow", "fast"]},
        "version": {"const": 2},
        "day": {"type": "string", "format": "date"},
        "text": {"type": "string"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        "pay": {"oneOf": [{"$ref": "#/$defs/Pay"}, {"$ref": "#/$defs/Bank"}]},
        "free": {},
    },
    "required": ["order", "cents", "tags", "pay"],
    "$defs": {"Pay": PAY, "Bank": BANK},
    "additionalProperties": False,
}
VALUE: dict[str, Any] = {
    "order": "A-17", "cents": 90000, "share": 0.5, "express": True, "speed": "slow", "version": 2,
    "day": "2026-01-31", "text": "one\ntwo\u202e\r", "note": "x", "count": 3, "tags": ["a", "b"], "pay": {"card": "42"},
    "free": {"a": [1.5, None]},
}  # fmt: skip
EDITS: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({"/cents": "9000"}, {"cents": 9000}),
    ({"/share": "2"}, {"share": 2}),
    ({"/share": "12345678901234567890"}, {"share": 12345678901234567890}),
    ({"/order": " 9 "}, {"order": " 9 "}),
    ({"/order": ""}, {"order": ""}),
    ({"/order": "null"}, {"order": "null"}),
    ({"/speed": "fast"}, {"speed": "fast"}),
    ({"/day": "2027-02-28"}, {"day": "2027-02-28"}),
    ({"/text": "three\nfour"}, {"text": "three\nfour"}),
    ({"state:/note": "null"}, {"note": None}),
    ({"/note": "null"}, {"note": "null"}),
    ({"/tags/1": "<b>"}, {"tags": ["a", "<b>"]}),
    ({"/pay/card": "0043"}, {"pay": {"card": "0043"}}),
    ({"/free": '[1, "1", null]'}, {"free": [1, "1", None]}),
    ({"json": json.dumps({**VALUE, "cents": 7})}, {"cents": 7}),
]  # fmt: skip
ABSENT = ["share", "speed", "note", "count", "free"]


def exact(value: Any) -> str:
    """Write a value with all that tells it from others."""
    return json.dumps(value, sort_keys=True)


def test_each_edited_field_arrives_exactly_so_in_the_tool() -> None:
    expected = [exact({**VALUE, **changes}) for _, changes in EDITS]
    expected += [exact({name: one for name, one in VALUE.items() if name != left}) for left in ABSENT]
    expected += [exact({**VALUE, "express": False}), exact(VALUE)]

    async def work() -> None:
        taken: list[Any] = []
        desk = CardDesk([keeping(SCHEMA, taken)])
        count = len(expected)
        calls = f"Array.from({{ length: {count} }}, () => tools.take({json.dumps(VALUE)}))"
        record_id = await desk.pause(f"return (await Promise.all({calls})).length")
        async with desk.browser() as ana:
            page = (await ana.get(f"/records/{record_id}")).text
            forms = [CardForm(page, number) for number in range(count)]
            for form, (fields, _) in zip(forms, EDITS, strict=False):
                for name, text in fields.items():
                    form.fill(name, text)
            for form, left in zip(forms[len(EDITS) :], ABSENT, strict=False):
                form.fill(f"state:/{left}", "absent")
            forms[-2].tick("/express", is_ticked=False)
            for form in forms:
                answer = await form.press(ana, "Approve with changes")
                assert answer.status_code == 303, answer.text
            decisions = [one.decision for one in await desk.requests(record_id)]
            assert decisions[-1] == {"approved": True}
            assert [exact(one["input"]) for one in decisions[:-1]] == expected[:-1]
        assert await desk.outcome(record_id) == count
        assert sorted(map(exact, taken)) == sorted(expected)

    run(work)


def test_what_does_not_fit_is_said_at_its_field_and_nothing_typed_is_lost() -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            typed = {"/cents": "-1", "/share": "much", "/day": "soon", "/order": "<i>A</i>", "reason": "a\n<b>reason"}
            for name, text in typed.items():
                form.fill(name, text)
            form.tick("/express", is_ticked=False)
            for label in ("Approve with changes", "Show changes"):
                answer = await form.press(ana, label)
                assert answer.status_code == 422
                form = CardForm(answer.text)
                assert {name: form.control(name)["value"] for name in typed} == typed
                assert "checked" not in form.control("/express")
                wrong = {name for name in typed if form.control(name).get("aria-invalid") == "true"}
                assert wrong == {"/cents", "/share", "/day"}
                assert 'role="alert"' in answer.text
            assert await desk.states(record_id) == ["waiting"]
            form.fill("/cents", "1").fill("/share", "1").fill("/day", "2026-12-24")
            assert (await form.press(ana, "Approve with changes")).status_code == 303
            (one,) = await desk.requests(record_id)
            assert one.decision["reason"] == "a\n<b>reason"
            changes = {"cents": 1, "share": 1, "day": "2026-12-24", "order": "<i>A</i>", "express": False}
            assert one.decision["input"] == {**VALUE, **changes}

    run(work)


def test_the_buttons_of_the_form_show_it_again_and_decide_nothing() -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            form = (await desk.form(ana, record_id)).fill("/cents", "nonsense").fill("reason", "because")
            for button in [("add", "/tags"), ("remove", "/tags/0"), ("choose", "/pay"), ("add", "/tags")]:
                if button[0] == "choose":
                    form.select("/pay", "Bank")
                answer = await form.send(ana, *button)
                assert answer.status_code == 200, answer.text
                form = CardForm(answer.text)
                assert (form.control("/cents")["value"], form.control("reason")["value"]) == ("nonsense", "because")
            assert await desk.states(record_id) == ["waiting"]
            form.fill("/cents", "5").fill("/pay/iban", "DE1").fill("/tags/1", "c").fill("/tags/2", "d")
            assert (await form.press(ana, "Approve with changes")).status_code == 303
            (one,) = await desk.requests(record_id)
            expected = {**VALUE, "cents": 5, "pay": {"iban": "DE1"}, "tags": ["b", "c", "d"]}
            assert one.decision == {"approved": True, "input": expected, "reason": "because"}

    run(work)


def test_fields_that_nobody_has_seen_are_shown_before_they_are_decided() -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            form = (await desk.form(ana, record_id)).select("/pay", "Bank")
            answer = await form.press(ana, "Approve with changes")
            assert answer.status_code == 422
            assert "/pay/iban" in {one.get("name") for one in CardForm(answer.text).controls}
            assert await desk.states(record_id) == ["waiting"]

    run(work)


@pytest.mark.parametrize("typed", [{"/cents": "9000"}, {"/cents": "nonsense"}, {"json": "{"}, {"state:/note": "null"}])
def test_approve_means_what_was_asked_and_takes_no_edited_form(typed: dict[str, str]) -> None:
    async def work() -> None:
        taken: list[Any] = []
        desk = CardDesk([keeping(SCHEMA, taken)])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            for name, text in typed.items():
                form.fill(name, text)
            answer = await form.fill("reason", "fine").press(ana, "Approve")
            assert answer.status_code == 422
            again = CardForm(answer.text)
            assert {name: again.control(name)["value"] for name in (*typed, "reason")} == {**typed, "reason": "fine"}
            assert "Approve with changes" in answer.text
            assert await desk.states(record_id) == ["waiting"]
            assert (await (await desk.form(ana, record_id)).press(ana, "Approve")).status_code == 303
        assert await desk.outcome(record_id) == "taken"
        assert exact(taken) == exact([VALUE])

    run(work)


def test_enter_in_a_field_decides_nothing() -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            assert [text for text, _ in form.buttons][-3:] == ["Approve", "Approve with changes", "Deny"]
            assert (await form.enter(ana)).status_code == 200
            answer = await form.fill("/cents", "9000").fill("reason", "why").enter(ana)
            assert answer.status_code == 200
            assert "<ins>9000</ins>" in answer.text
            assert "<del>90000</del>" in answer.text
            assert CardForm(answer.text).control("reason")["value"] == "why"
            assert await desk.states(record_id) == ["waiting"]
            assert (await CardForm(answer.text).press(ana, "Approve with changes")).status_code == 303
            (one,) = await desk.requests(record_id)
            assert one.decision["input"] == {**VALUE, "cents": 9000}
            shown = (await ana.get(f"/records/{record_id}")).text
            assert "Approved with changes by ana" in shown
            assert "<h3>Input as requested</h3>" in shown
            assert "Reason: why" in shown
            assert "<ins>9000</ins>" in shown

    run(work)


def test_a_denial_needs_no_form_that_fits_and_the_program_catches_its_reason() -> None:
    async def work() -> None:
        taken: list[Any] = []
        desk = CardDesk([keeping(SCHEMA, taken)])
        caught = f"try {{ {call(VALUE)} }} catch (error) {{ return error.message }}"
        first, second = await desk.pause(caught), await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            for record_id in (first, second):
                form = (await desk.form(ana, record_id)).fill("/cents", "nonsense").fill("reason", " too <much> ")
                assert (await form.press(ana, "Deny")).status_code == 303
                assert [one.decision for one in await desk.requests(record_id)] == [
                    {"approved": False, "reason": "too <much>"}
                ]
        assert "too <much>" in await desk.outcome(first)
        with pytest.raises(CodeModeToolApprovalDeniedError):
            await desk.outcome(second)
        assert taken == []

    run(work)


def test_a_card_says_what_is_asked_by_whom_since_when_and_until_when() -> None:
    async def work() -> None:
        hints = {"destructiveHint": True, "readOnlyHint": False, "idempotentHint": True}
        desk = CardDesk([keeping(SCHEMA, [], annotations=hints)])
        record_id = await desk.pause(call(VALUE), labels={"agent": "support", "thread": "t-7"})
        record = await desk.store.record(record_id, tenant="acme")
        async with desk.browser() as ana:
            page = (await ana.get(f"/records/{record_id}")).text
            (card,) = re.findall(r'<section class="card".*?</section>', page, re.DOTALL)
            for words in ("take", "Takes it.", "destructive", "may be repeated"):
                assert words in card
            for words in ("codeMode", "shop", "by support", "t-7"):
                assert words in page
            assert "read-only" not in card
            for moment_ms in (record.created_at_ms, record.expires_at_ms):
                assert f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" in page
            (told,) = (await ana.get(f"/records/{record_id}", headers=JSON)).json()["requests"]
            assert (told["input"], told["annotations"]) == (VALUE, hints)
            assert told["inputSchema"]["properties"] == SCHEMA["properties"]
            assert (told["mayAnswer"], told["sinceMs"]) == (True, record.created_at_ms)

    run(work)


@each_row(
    "outer_id",
    ["../../x", "a?b#c%2F%2e%2e&d=e", "\u202e <b>\"'", "x" * 9000, *full_only("a/../b", "..", "", "\u65e5 \u00e9")],
)
def test_whatever_a_model_calls_its_call_its_card_is_decided(outer_id: str) -> None:
    async def work() -> None:
        taken: list[Any] = []
        desk = CardDesk([keeping(SCHEMA, taken)])
        interrupt = await desk.code_mode.execute({"js": call(VALUE)}, call=CallContext(tool_call_id=outer_id))
        record_id = await desk.store.put(interrupt, tool=desk.code_mode, tenant="acme")
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            answer = await form.fill("/cents", "-1").press(ana, "Approve with changes")
            assert answer.status_code == 422
            again = CardForm(answer.text).fill("/cents", "8")
            assert (await again.press(ana, "Approve with changes")).status_code == 303
        assert await desk.outcome(record_id) == "taken"
        assert taken == [{**VALUE, "cents": 8}]

    run(work)


@each_row("was, now", [
    (2**53 + 1, 2**53), (2**53 + 1, 2**53 + 2), (-(2**60) - 1, -(2**60)), (2**70, 7), (10**30 + 1, 10**30), (5, 2**60),
    (2**60, 0.5), (2**60, "nine"),
])  # fmt: skip
def test_integers_that_no_browser_holds_are_changed_exactly(was: int, now: Any) -> None:
    schema = {"type": "object", "properties": {"ids": {"type": "array", "items": {"type": ["number", "string"]}}}}

    async def work() -> None:
        taken: list[Any] = []
        desk = CardDesk([keeping(schema, taken)])
        written = f"{was}n" if abs(was) > 2**53 else str(was)
        record_id = await desk.pause(f"return await tools.take({{ ids: [{written}, 'x', {written}] }})")
        async with desk.browser() as ana:
            form = (await desk.form(ana, record_id)).fill("json", json.dumps({"ids": [now, "x", was]}))
            answer = await form.press(ana, "Approve with changes")
            assert answer.status_code == 303, answer.text
            assert str(now) in (await ana.get(f"/records/{record_id}")).text
        assert await desk.outcome(record_id) == "taken"
        assert exact(taken) == exact([{"ids": [now, "x", was]}])

    run(work)


def test_a_reason_that_is_too_long_loses_nothing() -> None:
    async def work() -> None:
        desk = CardDesk([keeping(SCHEMA, [])])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana:
            form = (await desk.form(ana, record_id)).fill("/cents", "7").fill("reason", "x" * 2001)
            for label in ("Deny", "Approve with changes"):
                answer = await form.press(ana, label)
                assert answer.status_code == 422
                again = CardForm(answer.text)
                assert (again.control("/cents")["value"], len(again.control("reason")["value"])) == ("7", 2001)
            assert await desk.states(record_id) == ["waiting"]

    run(work)
