"""What was shown is what is decided, once, by who decided first: old forms, forged ones, two clicks, two people."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from card_pages import BOB, DAY_MS, JSON, CardDesk, CardForm, call, keeping
from console_visitors import run
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import rounds

from codemode.continuations.guard import GuardClock
from codemode.stores import ALL_TENANTS, Resumer, StoreUnavailableError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "cents": {"type": "integer"}},
    "required": ["order", "cents"],
}
STRICT: dict[str, Any] = {**SCHEMA, "properties": {**SCHEMA["properties"], "cents": {"type": "integer", "maximum": 10}}}
VALUE = {"order": "A-17", "cents": 5}
_paused: list[Any] = []  # one pause, kept anew by each example
TWO = f"return await Promise.all([tools.take({json.dumps(VALUE)}), tools.take({json.dumps(VALUE)})])"


class Later(GuardClock):
    """A clock that a test puts forward."""

    days = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.days * DAY_MS


def desk_of(**settings: Any) -> tuple[CardDesk, list[Any]]:
    taken: list[Any] = []
    return CardDesk([keeping(SCHEMA, taken)], **settings), taken


def test_what_the_resume_refuses_waits_again_with_its_words_and_older_forms_decide_nothing() -> None:
    async def work() -> None:
        desk, taken = desk_of()
        strict = desk.over([keeping(STRICT, taken)])
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana, desk.browser(BOB) as bob:
            his = (await desk.form(bob, record_id)).fill("/order", "B-18").fill("reason", "his reason")
            hers = await desk.form(ana, record_id)
            assert (await hers.fill("/cents", "9000").press(ana, "Approve with changes")).status_code == 303
            async with Resumer(desk.store, tenant=ALL_TENANTS, resume=strict.resume):
                async for change in desk.store.changes(tenant=ALL_TENANTS):
                    if change.kind == "released":
                        break
            assert await desk.states(record_id) == ["waiting"]
            late = await his.press(bob, "Approve with changes")
            assert late.status_code == 409
            assert "The answer was refused" in late.text
            again = CardForm(late.text)
            assert (again.control("/order")["value"], again.control("reason")["value"]) == ("B-18", "his reason")
            assert await desk.states(record_id) == ["waiting"]
            assert (await hers.press(ana, "Approve with changes")).status_code == 409
            assert (await again.press(bob, "Approve with changes")).status_code == 303
        assert await desk.outcome(record_id) == "taken"
        assert taken == [{"order": "B-18", "cents": 5}]

    run(work)


def test_of_another_input_the_new_one_is_shown_with_what_was_typed_beside_it() -> None:
    async def work() -> None:
        desk, _ = desk_of()
        record_id = await desk.pause(call(VALUE))
        store: Any = desk.store
        found = await store.record(record_id, tenant="acme")
        (one,) = found.requests
        older = replace(found, requests=(replace(one, input={"order": "old", "cents": 1}),))

        async def earlier(*_: Any, **__: Any) -> Any:
            return older

        async with desk.browser() as ana:
            real, store.record = store.record, earlier
            form = (await desk.form(ana, record_id)).fill("/cents", "123").fill("reason", "mine")
            store.record = real
            for label in ("Approve with changes", "Deny", "Show changes", "Approve"):
                answer = await form.press(ana, label)
                assert answer.status_code == 409, label
                again = CardForm(answer.text)
                assert {name: again.control(name)["value"] for name in ("/order", "/cents", "reason")} == {
                    "/order": "A-17", "/cents": "5", "reason": "mine",
                }  # fmt: skip
                if label != "Deny":
                    assert "123" in answer.text.partition("Your earlier input")[2]
            as_json = await form.press(ana, "Approve", headers=JSON)
            assert (as_json.status_code, as_json.json()["error"]["code"]) == (409, "RequestSuperseded")
            assert await desk.states(record_id) == ["waiting"]

    run(work)


def test_who_is_second_learns_who_was_first_when_and_what() -> None:
    async def work() -> None:
        desk, taken = desk_of()
        record_id = await desk.pause(call(VALUE))
        async with desk.browser() as ana, desk.browser(BOB) as bob:
            hers, his = [await desk.form(one, record_id) for one in (ana, bob)]
            his.fill("/cents", "77").fill("reason", "his reason")
            assert (await hers.press(ana, "Approve")).status_code == 303
            for ended in (False, True):
                if ended:
                    assert await desk.outcome(record_id) == "taken"
                for label in ("Approve with changes", "Deny", "Approve", "Show changes"):
                    late = await his.press(bob, label)
                    assert late.status_code == 409, late.text
                    assert "ana decided first: approved, 2" in late.text
                    assert "his reason" in late.text
                same = await his.as_shown().press(bob, "Approve")
                assert (same.status_code, "ana decided first" in same.text) == (409, True)
                told = (await his.press(bob, "Deny", headers=JSON)).json()["error"]
                assert (told["actor"], told["decision"], told["code"]) == ("ana", "approved", "AlreadyDecided")
                assert told["decidedAtMs"] > 0
                # Whoever has decided is told nothing bad for the same once more, and the truth for another.
                assert (await hers.press(ana, "Approve")).status_code == 303
                other = await hers.press(ana, "Deny")
                assert (other.status_code, "ana decided first" in other.text) == (409, True)
        assert taken == [VALUE]
        kinds = [line.kind async for line in desk.store.audit(tenant=ALL_TENANTS, record_id=record_id)]
        assert kinds.count("decided") == 1

    run(work)


def test_of_many_at_the_same_time_exactly_one_decides() -> None:
    async def work() -> None:
        desk, taken = desk_of()
        for words in (["Approve", "Approve"], ["Approve", "Deny"], ["Approve with changes", "Approve with changes"]):
            record_id = await desk.pause(call(VALUE))
            async with desk.browser() as ana, desk.browser(BOB) as bob:
                people = {"ana": ana, "bob": bob}
                forms = {name: await desk.form(one, record_id) for name, one in people.items()}
                for number, form in enumerate(forms.values()):
                    if words[number] == "Approve with changes":
                        form.fill("/cents", str(100 + number))
                clicks = [(name, label) for name, label in zip(people, words, strict=True) for _ in range(4)]
                answers = await asyncio.gather(*(forms[name].press(people[name], label) for name, label in clicks))
                (one,) = await desk.requests(record_id)
                for (name, _), answer in zip(clicks, answers, strict=True):
                    assert answer.status_code == (303 if name == one.actor else 409), answer.text
            kinds = [line.kind async for line in desk.store.audit(tenant=ALL_TENANTS, record_id=record_id)]
            assert kinds.count("decided") == 1
        assert taken == []

    run(work)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_cards_of_one_record_are_decided_in_both_orders(order: tuple[int, int]) -> None:
    async def work() -> None:
        desk, taken = desk_of()
        record_id = await desk.pause(TWO)
        async with desk.browser() as ana, desk.browser(BOB) as bob:
            hers, his = [await desk.form(one, record_id, n) for one, n in zip((ana, bob), order, strict=True)]
            assert (await hers.fill("/cents", str(order[0])).press(ana, "Approve with changes")).status_code == 303
            await desk.go_on(record_id)
            assert (await desk.store.record(record_id, tenant=ALL_TENANTS)).version == 2
            # The program has gone on, and what he was shown has not changed.
            assert (await his.fill("/cents", str(order[1])).press(bob, "Approve with changes")).status_code == 303
        assert await desk.outcome(record_id) == ["taken", "taken"]
        assert taken == [{**VALUE, "cents": n} for n in order]

    run(work)


def test_forms_of_nobody_decide_nothing() -> None:
    async def work() -> None:
        desk, _ = desk_of()
        record_id, other_id = await desk.pause(TWO), await desk.pause(TWO)
        async with desk.browser() as ana, desk.browser(BOB) as bob, desk.browser() as again:
            form = await desk.form(ana, record_id)
            tokens = [
                (await desk.form(ana, record_id, 1)).control("form_token")["value"],
                (await desk.form(ana, other_id)).control("form_token")["value"],
                (await desk.form(bob, record_id)).control("form_token")["value"],
                (await desk.form(again, record_id)).control("form_token")["value"],
                "", "x", form.control("form_token")["value"][:-1], form.control("form_token")["value"] + "x",
            ]  # fmt: skip
            own = form.control("form_token")["value"]
            for label in ("Approve", "Deny", "Show changes"):
                for token in tokens:
                    assert (await form.fill("form_token", token).press(ana, label)).status_code == 403
                    assert (await form.press(ana, label, headers=JSON)).status_code == 403
            form.fill("form_token", own)
            for name in ("version", "shown"):
                was = form.control(name)["value"]
                assert (await form.fill(name, was[:-1]).press(ana, "Approve")).status_code == 403
                form.fill(name, was)
            assert set(await desk.states(record_id)) == {"waiting"}
            assert (await form.press(ana, "Approve")).status_code == 303

    run(work)


@settings(max_examples=rounds(16, 40), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["form_token", "version", "shown", "reason"]), st.text(max_size=30)), max_size=3)
)
def test_no_token_can_be_made_up(changed: list[tuple[str, str]]) -> None:
    async def work() -> None:
        desk, _ = desk_of()
        if not _paused:
            _paused.append(await desk.code_mode.execute({"js": call(VALUE)}))
        record_id = await desk.store.put(_paused[0], tool=desk.code_mode, tenant="acme", app="shop")
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            before = form.items()
            for name, text in changed:
                form.fill(name, text)
            meant = [item for item in form.items() if item[0] != "reason"] == [
                one for one in before if one[0] != "reason"
            ]
            assert (await form.press(ana, "Deny")).status_code == (303 if meant else 403)

    run(work)


def test_ends_have_their_own_status_and_say_what_happened() -> None:
    async def work() -> None:
        clock = Later()
        desk, _ = desk_of(clock=clock)
        withdrawn, lost, expired = [await desk.pause(call(VALUE)) for _ in range(3)]
        async with desk.browser() as ana:
            forms = {one: (await desk.form(ana, one)).fill("/cents", "4321") for one in (withdrawn, lost, expired)}
            await desk.store.withdraw(withdrawn, actor="agent")
            (request,) = await desk.requests(lost)
            await desk.store.decide({request.interrupt_id: {"approved": True}}, actor="cron", tenant="acme")
            lease = await desk.store.claim(owner="x", tenant=ALL_TENANTS, record_id=lost)
            assert lease is not None
            await desk.store.mark_lost(lease)
            for record_id, status, words in [(withdrawn, 409, "withdrawn"), (lost, 409, "cron decided first")]:
                answer = await forms[record_id].press(ana, "Approve with changes")
                assert (answer.status_code, words in answer.text, "4321" in answer.text) == (status, True, True)
            clock.days = 8
            for swept in (False, True):
                if swept:
                    await desk.store.sweep()
                answer = await forms[expired].press(ana, "Approve with changes")
                assert (answer.status_code, "expired" in answer.text, "4321" in answer.text) == (410, True, True)
                assert "/requests/" not in answer.text
                told = await forms[expired].press(ana, "Deny", headers=JSON)
                assert (told.status_code, told.json()["error"]["code"]) == (410, "RecordExpired")

    run(work)


def test_a_database_that_goes_away_is_told_of_and_nothing_is_decided() -> None:
    async def work() -> None:
        desk, _ = desk_of()
        record_id = await desk.pause(call(VALUE))
        store: Any = desk.store

        async def away(*_: Any, **__: Any) -> Any:
            raise StoreUnavailableError("no route to db.internal")

        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            for name in ("record", "decide"):
                real = getattr(store, name)
                setattr(store, name, away)
                for headers in ({}, JSON):
                    answer = await form.press(ana, "Approve", headers=headers)
                    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
                    assert "db.internal" not in answer.text
                setattr(store, name, real)
            assert (await form.press(ana, "Approve")).status_code == 303

    run(work)
