"""Approvals that hold for later calls too: offered where somebody keeps them, and kept once the call was decided."""

from __future__ import annotations

from typing import Any

import pytest
from card_pages import BOB, JSON, CardDesk, CardForm, call, keeping
from console_visitors import EVE, run
from suite import each_row
from test_console_card_answers import CONNECT, asking

from codemode.stores import ALL_TENANTS

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"cents": {"type": "integer"}}}
WORDS = {"session": "later calls too, until the <client> leaves", "always": "later calls too, always"}


class Kept:
    """Who keeps approvals of calls whose record has a payload, and sees how far the record is by then."""

    def __init__(self) -> None:
        self.desk: Any = None
        self.taken: list[Any] = []
        self.fails = False

    def list_choices(self, record: Any, request: Any) -> dict[str, str]:
        return WORDS if record.payload else {}

    async def audit_and_save_choice(
        self, record: Any, request: Any, choice: str, *, actor: str, address: str | None
    ) -> None:
        states = await self.desk.states(record.id)
        self.taken.append((request.interrupt_id, choice, actor, address, states))
        if self.fails:
            raise OSError("the disk is full")


def desk_of(kept: Kept | None, *tools: Any) -> CardDesk:
    settings: dict[str, Any] = {} if kept is None else {"options": {"standing_approvals": kept}}
    desk = CardDesk(tools or [keeping(SCHEMA, [])], **settings)
    if kept is not None:
        kept.desk = desk
    return desk


def has_choice(page: str) -> bool:
    return 'name="later"' in page


@each_row("button", ["Approve", "Approve with changes"])
@each_row("choice", ["", "session", "always"])
def test_an_approval_holds_for_as_long_as_was_chosen_and_for_this_call_unless_something_was(
    button: str, choice: str
) -> None:
    async def work() -> None:
        kept = Kept()
        desk = desk_of(kept)
        record_id = await desk.pause(call({"cents": 5}), payload={"known": True})
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            control = form.control("later")
            assert (control["value"], control["autocomplete"]) == ("", "off")
            assert [one["label"] for one in control["options"]] == ["this call", *WORDS.values()]
            answer = await form.select("later", {"": "this call", **WORDS}[choice]).press(ana, button)
            assert answer.status_code == 303
            assert not has_choice((await ana.get(f"/records/{record_id}")).text)
            (one,) = await desk.requests(record_id)
            assert one.decision == {"approved": True}
            expected = [(one.interrupt_id, choice, "ana", "192.0.2.1", ["decided"])] if choice else []
            assert kept.taken == expected
            assert (await form.press(ana, button)).status_code == 303
            assert kept.taken == expected, "the same once more is not kept anew: it may have been taken back"

    run(work)


def test_what_decides_nothing_keeps_the_choice_and_a_denial_holds_for_no_other_call() -> None:
    async def work() -> None:
        kept = Kept()
        desk = desk_of(kept)
        record_id = await desk.pause(call({"cents": 5}), payload={"known": True})
        async with desk.browser() as ana:
            form = (await desk.form(ana, record_id)).fill("later", "always").fill("/cents", "x")
            for label, status in (("Show changes", 422), ("Approve", 422), ("Approve with changes", 422)):
                answer = await form.press(ana, label)
                assert answer.status_code == status
                form = CardForm(answer.text)
                assert form.control("later")["value"] == "always"
            assert (await form.press(ana, "Deny")).status_code == 303
        assert await desk.states(record_id) == ["decided"]
        assert kept.taken == []

    run(work)


def test_whoever_was_not_first_or_may_not_decide_has_nothing_kept() -> None:
    async def work() -> None:
        kept = Kept()
        desk = desk_of(kept)
        record_id = await desk.pause(call({"cents": 5}), payload={"known": True})
        async with desk.browser() as ana, desk.browser(BOB) as bob, desk.browser(EVE) as eve:
            assert not has_choice((await eve.get(f"/records/{record_id}")).text)
            late = (await desk.form(bob, record_id)).fill("later", "always")
            assert (await late.press(eve, "Approve")).status_code == 403
            assert (await late.press(ana, "Approve")).status_code == 403
            assert (await (await desk.form(ana, record_id)).press(ana, "Deny")).status_code == 303
            assert (await late.press(bob, "Approve")).status_code == 409
        (one,) = await desk.requests(record_id)
        assert (one.actor, one.decision) == ("ana", {"approved": False})
        assert kept.taken == []

    run(work)


@pytest.mark.parametrize("without", ["somebody who keeps it", "what is known of the tool"])
def test_where_nobody_keeps_it_there_is_no_choice_and_one_that_is_sent_decides_nothing(without: str) -> None:
    async def work() -> None:
        kept = Kept()
        has_keeper = without == "what is known of the tool"
        desk = desk_of(kept if has_keeper else None)
        record_id = await desk.pause(call({"cents": 5}), payload=None if has_keeper else {"known": True})
        async with desk.browser() as ana:
            page = await ana.get(f"/records/{record_id}")
            assert not has_choice(page.text)
            form = CardForm(page.text)
            form.controls.append({"tag": "select", "name": "later", "value": "always"})
            for label in ("Approve", "Approve with changes", "Deny"):
                assert (await form.press(ana, label)).status_code == 400
            assert await desk.states(record_id) == ["waiting"]
            assert (await form.fill("later", "").press(ana, "Approve")).status_code == 303
        assert kept.taken == []

    run(work)


def test_a_choice_that_was_not_offered_decides_nothing() -> None:
    async def work() -> None:
        kept = Kept()
        desk = desk_of(kept)
        record_id = await desk.pause(call({"cents": 5}), payload={"known": True})
        async with desk.browser() as ana:
            form = await desk.form(ana, record_id)
            for wrong in ("Always", "always ", "for ever", "__class__"):
                assert (await form.fill("later", wrong).press(ana, "Approve")).status_code == 400
            form.controls.append({"tag": "input", "name": "later", "value": "always"})
            assert (await form.press(ana, "Approve")).status_code == 400
        assert await desk.states(record_id) == ["waiting"]
        assert kept.taken == []

    run(work)


def test_what_a_tool_asks_itself_is_answered_for_itself_alone() -> None:
    async def work() -> None:
        kept = Kept()
        desk = desk_of(kept, asking({"kind": "ask"}))
        record_id = await desk.pause(CONNECT, payload={"known": True})
        async with desk.browser() as ana:
            form = (await desk.form(ana, record_id)).fill("json", "7")
            assert not has_choice(form.html)
            form.controls.append({"tag": "select", "name": "later", "value": "always"})
            assert (await form.press(ana, "Answer")).status_code == 400
        assert await desk.states(record_id) == ["waiting"]
        assert kept.taken == []

    run(work)


def test_what_cannot_be_kept_is_told_and_the_call_stays_decided() -> None:
    async def work() -> None:
        kept = Kept()
        kept.fails = True
        desk = desk_of(kept)
        records = [await desk.pause(call({"cents": cents}), payload={"known": True}) for cents in (1, 2)]
        async with desk.browser() as ana:
            answer = await (await desk.form(ana, records[0])).fill("later", "always").press(ana, "Approve")
            assert answer.status_code == 200
            assert "Approved for this call only" in answer.text
            assert "disk" not in answer.text
            form = (await desk.form(ana, records[1])).fill("later", "session")
            told = (await form.press(ana, "Approve", headers=JSON)).json()
            assert told["error"]["title"] == "Approved for this call only"
        assert [await desk.states(one) for one in records] == [["decided"], ["decided"]]

    run(work)


def test_programs_are_told_the_choices_and_send_one() -> None:
    async def work() -> None:
        kept = Kept()
        desk = desk_of(kept)
        record_id = await desk.pause(call({"cents": 5}), payload={"known": True})
        async with desk.browser() as ana:
            (card,) = (await ana.get(f"/records/{record_id}", headers=JSON)).json()["requests"]
            assert card["later"] == ["session", "always"]
            body = {"form_token": card["formToken"], "version": card["version"], "shown": card["shown"]}
            path = f"/records/{record_id}/requests/1"
            for wrong in (7, None, ["always"], "for ever"):
                sent = {"decision": "approve", "later": wrong, **body}
                assert (await ana.post(path, json=sent, headers=JSON)).status_code == 400
            sent = {"decision": "approve", "later": "always", **body}
            assert (await ana.post(path, json=sent, headers=JSON)).json()["state"] == "decided"
        (one,) = (await desk.store.record(record_id, tenant=ALL_TENANTS)).requests
        assert [(said[0], said[1]) for said in kept.taken] == [(one.interrupt_id, "always")]

    run(work)
