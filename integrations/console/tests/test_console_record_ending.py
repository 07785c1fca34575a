"""What a person says of a whole record: withdrawn, closed, run again. Once, by who may, of what they were shown."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from console_visitors import EVE, run
from record_desk import BOB, Later, RecordDesk

from codemode import CodeModeProtocolError
from codemode.stores import ALL_TENANTS

JS = "return await tools.refund({ order: 'A' })"
JSON = {"accept": "application/json"}


async def lost(desk: RecordDesk) -> str:
    record_id = await desk.pause(JS)
    (request,) = (await desk.store.record(record_id, tenant="acme")).requests
    await desk.store.decide({request.interrupt_id: {"approved": True}}, actor="bea", tenant="acme")
    lease = await desk.store.claim(owner="gone", tenant="acme", record_id=record_id)
    assert lease is not None
    assert await desk.store.mark_lost(lease)
    return record_id


async def unfit(desk: RecordDesk) -> str:
    """A record that no host can resume."""
    record_id = await desk.pause(JS)
    (request,) = (await desk.store.record(record_id, tenant="acme")).requests
    await desk.store.decide({request.interrupt_id: {"approved": True}}, actor="bea", tenant="acme")
    lease = await desk.store.claim(owner="other", tenant="acme", record_id=record_id)
    assert lease is not None
    assert await desk.store.release(lease, not_resumable="of replay version 4, and this is 5")
    return record_id


async def form(browser: httpx.AsyncClient, record_id: str, path: str = "") -> dict[str, str]:
    page = (await browser.get(f"/records/{record_id}{path}")).text
    found = re.search(r'<form method="post" class="ending" action="([^"]+)">(.*?)</form>', page, re.DOTALL)
    assert found is not None, page
    assert found[1] == f"/approvals/records/{record_id}/ending"
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', found[2]))


async def send(browser: httpx.AsyncClient, record_id: str, fields: dict[str, str], **more: str) -> httpx.Response:
    return await browser.post(f"/records/{record_id}/ending", data={**fields, **more})


async def state(desk: RecordDesk, record_id: str) -> str:
    return (await desk.store.record(record_id, tenant=ALL_TENANTS)).state


async def last_line(desk: RecordDesk, record_id: str) -> Any:
    return [line async for line in desk.store.audit(tenant="acme", record_id=record_id)][-1]


def test_what_waits_is_withdrawn_once() -> None:
    async def work() -> None:
        desk = RecordDesk()
        record_id = await desk.pause(JS)
        async with desk.browser() as ana:
            page = (await ana.get(f"/records/{record_id}")).text
            assert 'class="ending"' not in page
            assert 'data-part="ending"' in page
            assert f'href="/approvals/records/{record_id}/ending"' in page
            fields = await form(ana, record_id, "/ending")
            done = await send(ana, record_id, fields, action="withdraw", why="<b>not</b> needed")
            assert (done.status_code, done.headers["location"]) == (303, f"/approvals/records/{record_id}")
            assert await state(desk, record_id) == "withdrawn"
            line = await last_line(desk, record_id)
            assert (line.kind, line.actor, line.reason) == ("withdrawn", "ana", "<b>not</b> needed")
            assert line.address == "192.0.2.1"
            # A second click of the same person: it is done.
            assert (await send(ana, record_id, fields, action="withdraw")).status_code == 303
            ended = (await ana.get(f"/records/{record_id}")).text
            assert "&lt;b&gt;not&lt;/b&gt; needed" in ended
            assert 'data-part="ending"' not in ended
            over = await ana.get(f"/records/{record_id}/ending")
            assert over.status_code == 404
            assert "This program can no longer be withdrawn" in over.text
            assert f'<a href="/approvals/records/{record_id}">Back to the record</a>' in over.text
            assert len([line async for line in desk.store.audit(tenant="acme", record_id=record_id)]) == 2

    run(work)


def test_a_lost_record_runs_again_or_is_closed_and_the_audit_says_who_from_where() -> None:
    async def work() -> None:
        desk = RecordDesk()
        again, closed = await lost(desk), await lost(desk)
        async with desk.browser() as ana:
            page = (await ana.get(f"/records/{again}")).text
            assert "its outcome is unknown" in page
            assert "may happen twice" in page
            fields = await form(ana, again)
            assert (await send(ana, again, fields, action="run-again", why="the bank says no")).status_code == 303
            line = await last_line(desk, again)
            assert (line.kind, line.actor, line.address) == ("run_again", "ana", "192.0.2.1")
            assert (line.reason, await state(desk, again)) == ("the bank says no", "pending")
            assert (await send(ana, closed, await form(ana, closed), action="close")).status_code == 303
            line = await last_line(desk, closed)
            assert (line.kind, line.actor, line.address) == ("closed", "ana", "192.0.2.1")
        async with desk.console.running():
            assert await desk.store.outcome(again, tenant="acme", timeout_ms=60_000) == "done"
        assert await state(desk, closed) == "failed"

    run(work)


def test_what_no_host_can_resume_is_shown_with_the_reason_and_closed_or_tried_again() -> None:
    async def work() -> None:
        desk = RecordDesk()
        first, second = await unfit(desk), await unfit(desk)
        async with desk.browser() as ana:
            page = (await ana.get(f"/records/{first}")).text
            assert "It cannot be resumed: of replay version 4, and this is 5" in page
            told = (await ana.get(f"/records/{first}", headers=JSON)).json()
            assert told["notResumable"] == "of replay version 4, and this is 5"
            assert set(told["ending"]["actions"]) == {"withdraw", "run-again"}
            assert (await send(ana, first, await form(ana, first), action="run-again")).status_code == 303
            assert (await send(ana, second, await form(ana, second), action="withdraw")).status_code == 303
        assert (await last_line(desk, first)).kind == "run_again"
        assert await state(desk, second) == "withdrawn"

    run(work)


@pytest.mark.parametrize("end", ["complete", "withdraw"])
def test_what_goes_on_no_more_is_not_said_to_be_not_resumable(end: str) -> None:
    async def work() -> None:
        desk = RecordDesk(resume=None)
        record_id = await unfit(desk)
        async with desk.browser() as ana:
            assert "not resumable" in (await ana.get("/?state=pending")).text
            assert "has been resumed yet" in (await ana.get(f"/records/{record_id}")).text
            if end == "withdraw":
                await desk.store.withdraw(record_id, actor="ana")
            else:
                await desk.store.run_again(record_id, actor="ana")
                lease = await desk.store.claim(owner="better", tenant="acme", record_id=record_id)
                assert lease is not None
                assert await desk.store.settle(lease, "done")
            assert "cannot be resumed" not in (await ana.get(f"/records/{record_id}")).text
            found = (await ana.get("/?state=all")).text
            assert record_id in found
            assert "not resumable" not in found

    run(work)


def test_what_has_changed_since_it_was_shown_is_not_ended() -> None:
    async def work() -> None:
        desk = RecordDesk()
        js = "await tools.refund({ order: 'A' }); return await tools.refund({ order: 'B' })"
        gone_on, decided, ended, expired = [await desk.pause(js) for _ in range(4)]
        async with desk.browser() as ana:
            fields = {one: await form(ana, one, "/ending") for one in (gone_on, decided, ended, expired)}
            await desk.answer(gone_on, {"approved": True})
            (request,) = (await desk.store.record(decided, tenant="acme")).requests
            await desk.store.decide({request.interrupt_id: {"approved": True}}, actor="bea", tenant="acme")
            await desk.store.withdraw(ended, actor="bea")
            for one in (gone_on, decided, ended):
                answer = await send(ana, one, fields[one], action="withdraw")
                assert (answer.status_code, "The program has changed meanwhile" in answer.text) == (409, True)
            assert "by bea" in (await send(ana, ended, fields[ended], action="withdraw")).text
            told = await ana.post(
                f"/records/{ended}/ending", data={**fields[ended], "action": "withdraw"}, headers=JSON
            )
            assert (told.status_code, told.json()["error"]["status"]) == (409, 409)
            assert [await state(desk, one) for one in (gone_on, decided)] == ["pending", "pending"]
            assert isinstance(desk.clock, Later)
            desk.clock.days = 8
            await desk.store.sweep()
            assert (await send(ana, expired, fields[expired], action="withdraw")).status_code == 410

    run(work)


def test_what_cannot_be_said_of_a_record_is_refused() -> None:
    async def work() -> None:
        desk = RecordDesk()
        waits, dead = await desk.pause(JS), await lost(desk)
        async with desk.browser() as ana, desk.browser(BOB) as bob:
            fields, of_lost = await form(ana, waits, "/ending"), await form(ana, dead)
            for action in ("close", "run-again"):
                assert (await send(ana, waits, fields, action=action)).status_code == 409
            assert (await send(ana, dead, of_lost, action="withdraw")).status_code == 409
            for action in ("", "delete", "withdraw "):
                assert (await send(ana, waits, fields, action=action)).status_code == 400
            assert (await send(ana, waits, fields, action="withdraw", why="x" * 2001)).status_code == 422
            for changed in ({"form_token": ""}, {"version": "1-0"}, {"state": "lost"}, of_lost):
                answer = await send(ana, waits, {**fields, **changed}, action="withdraw")
                assert answer.status_code == 403
            cross = {"sec-fetch-site": "cross-site"}
            path = f"/records/{waits}/ending"
            assert (await ana.post(path, data={**fields, "action": "withdraw"}, headers=cross)).status_code == 403
            assert (await send(bob, waits, fields, action="withdraw")).status_code == 404
            assert (await bob.get(path)).status_code == 404
            assert (await ana.post(path, content=b"a=1&a=2", headers={"content-type": "text/plain"})).status_code == 400
        assert [await state(desk, one) for one in (waits, dead)] == ["pending", "lost"]

    run(work)


def test_who_may_not_decide_ends_nothing_and_that_is_in_the_audit() -> None:
    async def work() -> None:
        desk = RecordDesk(options={"policy": lambda user, *_: user.name != "ana" or "four eyes"})
        record_id = await lost(desk)
        async with desk.browser() as ana, desk.browser(EVE) as eve:
            assert 'class="ending"' not in (await eve.get(f"/records/{record_id}")).text
            told = (await eve.get(f"/records/{record_id}", headers=JSON)).json()["ending"]
            assert told["actions"] == {}
            fields = {"form_token": told["formToken"], "version": told["version"], "state": told["state"]}
            assert (await send(eve, record_id, fields, action="close")).status_code == 403
            refused = await send(ana, record_id, await form(ana, record_id), action="close")
            assert (refused.status_code, "four eyes" in refused.text) == (403, True)
        lines = [line async for line in desk.store.audit(tenant=ALL_TENANTS) if line.kind == "request_refused"]
        assert [line.actor for line in lines] == ["eve", "ana"]
        assert await state(desk, record_id) == "lost"

    run(work)


def test_a_pause_that_cannot_be_read_here_is_shown_with_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from codemode_console.pages import console_context

    def other_version(*_: Any, **__: Any) -> Any:
        raise CodeModeProtocolError("the continuation is of replay version 4 <b>")

    monkeypatch.setattr(console_context, "inspect_interrupt", other_version)

    async def work() -> None:
        desk = RecordDesk()
        page = await desk.page(await desk.pause(JS))
        assert "the continuation is of replay version 4 <b>" in page.section("Calls so far").text
        assert "not known here" in page.section("Program").text

    run(work)
