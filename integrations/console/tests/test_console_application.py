"""The console over a store: what waits is listed, shown and decided, by those who may, once."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from codemode_console import TokenAuth, User, Webhook, approval_console, token_hash
from console_visitors import ANA, EVE, OWN, run
from starlette.applications import Starlette
from starlette.routing import Mount
from suite import each_row

from codemode import CodeModeTool, create_code_mode_tool, tool
from codemode.continuations.guard import GuardClock
from codemode.stores import ALL_TENANTS, MemoryInterruptStore, SqliteInterruptStore

BOB = "bob's own 256 random bits"
AUTH = TokenAuth(
    {
        token_hash(ANA): User("ana", ["acme", "globex"]),
        token_hash(BOB): User("bob", ["initech"]),
        token_hash(EVE): User("eve", ALL_TENANTS, may_decide=False),
    }
)
DAY_MS = 86_400_000
HOSTILE = "<script>alert(1)</script>\u202e\"onload='x'"


class Later(GuardClock):
    """A clock that a test puts forward."""

    days = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.days * DAY_MS


class House:
    """A store with one paused program, and a console over it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Later()
        self.store = MemoryInterruptStore(clock=self.clock)
        self.refunded: list[tuple[str, int]] = []
        self.code_mode = self._tool()
        console = approval_console(self.store, auth=AUTH, **settings)
        self.console = console
        self.app = Starlette(routes=[Mount("/approvals", console)])

    def _tool(self) -> CodeModeTool:
        @tool(needs_approval=True)
        def refund(order: str, cents: int) -> str:
            self.refunded.append((order, cents))
            return "done"

        options = {
            "approval": {"mode": "interrupt"},
            "continuation": {"guard": self.store.guard, "max_age_ms": 7 * DAY_MS},
        }
        return create_code_mode_tool([refund], options)

    async def pause(self, order: str = "A-17", tenant: str = "acme") -> str:
        js = f"return await tools.refund({{ order: {json.dumps(order)}, cents: 90000 }})"
        return await self.store.put(
            await self.code_mode.execute({"js": js}), tool=self.code_mode, tenant=tenant, app="shop"
        )

    @asynccontextmanager
    async def browser(self, token: str = ANA) -> AsyncGenerator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(self.app, client=("192.0.2.1", 5))
        async with httpx.AsyncClient(transport=transport, base_url="https://desk.test/approvals", headers=OWN) as made:
            assert (await made.post("/sign-in", data={"token": token})).status_code == 303
            yield made


class Form:
    """The form of a card, as a page has it."""

    def __init__(self, page: str) -> None:
        found = re.search(r'<form method="post" action="/approvals(/records/[^"]+)">(.*?)</form>', page, re.DOTALL)
        assert found is not None, page
        self.action = found[1]
        self.fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', found[2]))

    async def send(self, browser: httpx.AsyncClient, decision: str, **fields: str) -> httpx.Response:
        return await browser.post(self.action, data={**self.fields, "decision": decision, **fields})


def test_a_refund_is_found_edited_and_run_once() -> None:
    async def work() -> None:
        house = House()
        record_id = await house.pause()
        async with house.browser() as ana:
            listed = (await ana.get("/")).text
            assert f'href="/approvals/records/{record_id}"' in listed
            form = Form((await ana.get(f"/records/{record_id}")).text)
            edited = json.dumps({"order": "A-17", "cents": 9000})
            done = await form.send(ana, "edit", json=edited, reason="")
            assert (done.status_code, done.headers["location"]) == (303, f"/approvals/records/{record_id}")
            assert (await form.send(ana, "edit", json=edited)).status_code == 303
            late = await form.send(ana, "deny")
            assert late.status_code == 409
            assert "ana decided first" in late.text
        assert house.refunded == []
        console = approval_console(house.store, auth=AUTH, resume={"shop": house.code_mode.resume})
        async with console.running():
            assert await house.store.outcome(record_id, tenant="acme", timeout_ms=60_000) == "done"
        assert house.refunded == [("A-17", 9000)]
        lines = [line async for line in house.store.audit(tenant="acme", record_id=record_id)]
        (decided,) = [line for line in lines if line.kind == "decided"]
        assert (decided.actor, decided.address, decided.decision) == ("ana", "192.0.2.1", "edited")

    run(work)


def test_an_edit_that_does_not_fit_is_shown_again_as_it_was_typed() -> None:
    async def work() -> None:
        house = House()
        record_id = await house.pause()
        async with house.browser() as ana:
            form = Form((await ana.get(f"/records/{record_id}")).text)
            for typed in ('{"order": "A-17", "cents": "much"}', "{", "[NaN]", "NaN", "[" * 50_000, "", '{"cents": 1}'):
                answer = await form.send(ana, "edit", json=typed, reason="because <b>")
                assert answer.status_code == 422, typed
                assert 'role="alert"' in answer.text
                assert "because &lt;b&gt;" in answer.text
                assert typed[:30].replace('"', "&#34;") in answer.text
            as_json = await ana.post(
                form.action,
                data={**form.fields, "decision": "edit", "json": "{"},
                headers={"accept": "application/json"},
            )
            assert (as_json.status_code, bool(as_json.json()["problems"])) == (422, True)
            assert (await form.send(ana, "approve")).status_code == 303

    run(work)


def test_another_tenants_record_is_an_unknown_one() -> None:
    async def work() -> None:
        house = House()
        record_id = await house.pause()
        async with house.browser() as ana, house.browser(BOB) as bob:
            form = Form((await ana.get(f"/records/{record_id}")).text)
            assert record_id not in (await bob.get("/")).text
            unknown, foreign = await bob.get("/records/nothing"), await bob.get(f"/records/{record_id}")
            assert (unknown.status_code, foreign.status_code) == (404, 404)
            assert re.sub(r'value="[^"]*"', "", unknown.text) == re.sub(r'value="[^"]*"', "", foreign.text)
            assert (await form.send(bob, "approve")).status_code == 404
            (waiting,) = (await house.store.record(record_id, tenant="acme")).requests
            assert waiting.state == "waiting"

    run(work)


def test_refusals_of_who_only_looks_are_ten_a_minute_in_the_audit() -> None:
    async def work() -> None:
        house = House()
        first = await house.pause()
        async with house.browser(EVE) as eve:
            said = (await eve.get(f"/records/{first}", headers={"accept": "application/json"})).json()["requests"][0]
            fields = {"form_token": said["formToken"], "version": said["version"], "shown": said["shown"]}
            for _ in range(25):
                sent = await eve.post(f"/records/{first}/requests/{said['id']}", data={**fields, "decision": "approve"})
                assert sent.status_code == 403
        kinds = [line.kind async for line in house.store.audit(tenant=ALL_TENANTS)]
        assert kinds.count("request_refused") == 10

    run(work)


def test_who_may_not_decide_sees_no_buttons_and_sends_none() -> None:
    async def work() -> None:
        def policy(user: User, record: Any, _request: Any) -> bool | str:
            return "four eyes for A-18" if record.requests[0].input["order"] == "A-18" else user.name == "ana"

        house = House(options={"policy": policy})
        first, second = await house.pause(), await house.pause("A-18")
        async with house.browser(EVE) as eve, house.browser() as ana:
            page = (await eve.get(f"/records/{first}")).text
            assert "Approve with changes" not in page
            of_eve = (await eve.get(f"/records/{first}", headers={"accept": "application/json"})).json()["requests"][0]
            fields = {"form_token": of_eve["formToken"], "version": of_eve["version"], "shown": of_eve["shown"]}
            action = f"/records/{first}/requests/{of_eve['id']}"
            assert (await eve.post(action, data={**fields, "decision": "approve"})).status_code == 403
            refused = await Form((await ana.get(f"/records/{second}")).text).send(ana, "approve")
            assert (refused.status_code, "four eyes for A-18" in refused.text) == (403, True)
            assert (await Form((await ana.get(f"/records/{first}")).text).send(ana, "deny")).status_code == 303
        lines = [line async for line in house.store.audit(tenant=ALL_TENANTS) if line.kind == "request_refused"]
        assert [(line.actor, line.details["why"]) for line in lines] == [
            ("eve", "you may look but not decide"),
            ("ana", "four eyes for A-18"),
        ]

    run(work)


def test_a_form_decides_what_it_showed_and_nothing_else() -> None:
    async def work() -> None:
        house = House()
        first, second = await house.pause(), await house.pause("B-2")
        async with house.browser() as ana, house.browser() as again:
            one, other = [Form((await ana.get(f"/records/{which}")).text) for which in (first, second)]
            stolen = Form((await again.get(f"/records/{first}")).text)
            for changed in [
                {"form_token": other.fields["form_token"]},
                {"form_token": stolen.fields["form_token"]},
                {"form_token": ""},
                {"shown": other.fields["shown"]},
                {"version": "2"},
            ]:
                assert (await one.send(ana, "approve", **changed)).status_code == 403
            other.action = one.action
            assert (await other.send(ana, "approve")).status_code == 403
            cross = {"sec-fetch-site": "cross-site"}
            assert (
                await ana.post(one.action, data={**one.fields, "decision": "approve"}, headers=cross)
            ).status_code == 403
            assert (await one.send(ana, "approved")).status_code == 400
            assert (await ana.post(one.action, content=b"x" * (4 << 20) + b"x" * 9, headers=FORM)).status_code == 413
            assert (await ana.post(one.action, content=b"a=1&" * 2001, headers=FORM)).status_code == 413
            assert (await ana.post(one.action, json={"decision": "approve"})).status_code == 400
            assert (await ana.get(one.action)).status_code == 405
        states = {request.state for request in (await house.store.record(first, tenant="acme")).requests}
        assert states == {"waiting"}

    run(work)


FORM = {"content-type": "application/x-www-form-urlencoded"}


def test_what_models_write_is_text() -> None:
    async def work() -> None:
        house = House()
        record_id = await house.pause(HOSTILE)
        async with house.browser() as ana:
            page = (await ana.get(f"/records/{record_id}")).text
            assert "<script>alert" not in page
            assert "\u202e" not in page
            assert "&lt;script&gt;alert(1)" in page
            answer = await Form(page).send(ana, "edit", json=HOSTILE)
            assert (answer.status_code, "<script>alert" in answer.text) == (422, False)

    run(work)


def test_no_address_leads_elsewhere_for_a_slash() -> None:
    async def work() -> None:
        house = House()
        async with house.browser() as ana:
            for path in ("/history/", "/records/x/", "/audit/export/"):
                answer = await ana.get(path)
                assert (answer.status_code, answer.headers.get("location")) == (404, None)

    run(work)


def test_ends_have_their_own_words() -> None:
    async def work() -> None:
        house = House()
        withdrawn, settled = await house.pause(), await house.pause()
        async with house.browser() as ana:
            forms = [Form((await ana.get(f"/records/{one}")).text) for one in (withdrawn, settled)]
            await house.store.withdraw(withdrawn, actor="agent")
            (request,) = (await house.store.record(settled, tenant="acme")).requests
            await house.store.answer(request.interrupt_id, {"approved": True}, house.code_mode.resume)
            assert [(await form.send(ana, "approve")).status_code for form in forms] == [409, 409]
            assert (await ana.get("/nothing")).status_code == 404
            assert (await ana.get("/?after=nonsense")).status_code in (200, 400)

    run(work)


def test_expired_is_gone() -> None:
    async def work() -> None:
        house = House()
        record_id = await house.pause()
        async with house.browser() as ana:
            form = Form((await ana.get(f"/records/{record_id}")).text)
            house.clock.days = 8
            assert (await form.send(ana, "approve")).status_code == 410

    run(work)


def test_a_database_that_is_away_is_told_of(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        folder = tmp_path / "gone"
        app = approval_console(SqliteInterruptStore(folder / "a.sqlite"), auth=AUTH)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://desk.test") as browser:
            health = await browser.get("/healthz")
            assert (health.status_code, health.headers["retry-after"]) == (503, "5")
            for _ in range(2):
                signing = await browser.post("/sign-in", data={"token": ANA}, headers=OWN)
                assert (signing.status_code, "set-cookie" in signing.headers) == (503, False)

    run(work)
    told = [one.getMessage() for one in caplog.records if "the database is unavailable" in one.getMessage()]
    assert len(told) == 1
    assert "unable to open database file" in told[0] or "No such file" in told[0], told


@pytest.mark.parametrize("settings", [
    {"auth": None}, {"auth": AUTH, "resume": 3}, {"auth": AUTH, "options": {"nonsense": 1}},
    {"auth": AUTH, "options": 1},
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(settings: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each in words of its own
        approval_console(MemoryInterruptStore(), **settings)


@each_row("store", [
    "x.db", Path("x.db"), None, {}, [], 3, MemoryInterruptStore, object(), AUTH,
])  # fmt: skip
def test_what_is_no_store_is_refused_at_once(store: Any) -> None:
    for settings in ({}, {"resume": AUTH}):
        with pytest.raises(ValueError, match=r"^store must be an InterruptStore such as SqliteInterruptStore\(path\)"):
            approval_console(store, auth=AUTH, **settings)


def test_a_console_that_is_to_do_more_than_answer_says_that_it_does_not_run(caplog: pytest.LogCaptureFixture) -> None:
    async def asked(app: Any) -> int:
        before = sum("console.running()" in one.getMessage() for one in caplog.records)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://desk.test") as browser:
            for _ in range(2):
                assert (await browser.get("/healthz")).status_code == 200
        return sum("console.running()" in one.getMessage() for one in caplog.records) - before

    async def work() -> None:
        house = House()
        resume: Any = {"resume": house.code_mode.resume}
        notify: Any = {"notify": [Webhook("https://hooks.test/", secret="s" * 32)], "base_url": "https://desk.test"}
        for settings, said in ((resume, 1), (notify, 1), ({}, 0)):
            assert await asked(approval_console(house.store, auth=AUTH, **settings)) == said
        console = approval_console(house.store, auth=AUTH, **resume)
        async with console.running():
            assert await asked(console) == 0

    run(work)


def test_it_ends_while_it_sweeps() -> None:
    async def work() -> None:
        console = approval_console(MemoryInterruptStore(), auth=AUTH)
        async with console.running():
            await asyncio.sleep(0)

    run(work)
