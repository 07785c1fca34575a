"""Many calls decided together: a page that lists each comes first, and each is decided on its own."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from codemode_console import TokenAuth, User, token_hash
from codemode_console.decisions import BULK_SELECTION_SUBJECT
from codemode_console.principals import Principal
from console_houses import AS_JSON, BOB, USERS, House
from console_visitors import ANA, EVE, run
from record_desk import Page
from stored_pauses import HOUR_MS, NO, OK, Clock, paused, request
from suite import full_only

from codemode.stores import ALL_TENANTS, MemoryInterruptStore, SqliteInterruptStore, StoreUnavailableError
from codemode.stores.transaction import Session

LOOKS = "looks at all, and decides nothing"
USERS_HERE = {**USERS, token_hash(LOOKS): User("lou", ["acme"], may_decide=False)}


def house_of(store: Any = None, **settings: Any) -> House:
    return House(store, TokenAuth(USERS_HERE), **settings)


class Many:
    """The forms by which many are decided, as a browser without a script has them."""

    def __init__(self, browser: httpx.AsyncClient) -> None:
        self.browser = browser
        self.token, self.requests = "", list[str]()

    async def open(self, query: str = "") -> Many:
        page = Page((await self.browser.get(f"/{query}")).text)
        (form,) = page.all("form", lambda one: str(one.attributes.get("action")).endswith("/many"))
        inputs = page.all("input", lambda one: one.within("form") is form)
        self.token = _values(inputs, "form_token")[0]
        self.requests = _values(inputs, "request")
        return self

    async def look(self, decision: str = "approve", **said: Any) -> httpx.Response:
        sent = {"form_token": self.token, "request": self.requests, "decision": decision}
        return await self.browser.post("/many", data={**sent, **said}, headers=said.pop("headers", {}))

    async def decide(self, looked: httpx.Response, **said: Any) -> httpx.Response:
        assert looked.status_code == 200, looked.text
        return await self.browser.post("/many/decide", data={**fields(looked), **said})


def _values(inputs: list[Any], name: str) -> list[str]:
    return [str(one.attributes["value"]) for one in inputs if one.attributes.get("name") == name]


def fields(looked: httpx.Response) -> dict[str, Any]:
    """Return what the form of a page that lists each input sends."""
    page = Page(looked.text)
    (form,) = page.all("form", lambda one: str(one.attributes.get("action")).endswith("/many/decide"))
    inputs = page.all("input", lambda one: one.within("form") is form)
    (decision,) = page.all("button", lambda one: one.within("form") is form)
    token, requests = _values(inputs, "form_token")[0], _values(inputs, "request")
    return {"form_token": token, "request": requests, "decision": decision.attributes["value"], "reason": ""}


async def states(house: House, *names: str) -> list[tuple[str, Any, str | None]]:
    found: dict[str, Any] = {}
    for record in (await house.store.list(tenant=ALL_TENANTS, limit=500)).records:
        found |= {one.interrupt_id: (one.state, one.decision, one.actor) for one in record.requests}
    return [found[name] for name in names]


@pytest.mark.parametrize("count", [50, *full_only(200)])
def test_many_are_approved_after_each_was_listed(count: int) -> None:
    async def work() -> None:
        house = house_of()
        names = [f"n{number}" for number in range(count)]
        for name in names:
            await house.put(name, given={"order": f"order of {name}."})
        async with house.browser() as ana:
            many = await Many(ana).open(f"?limit={count}")
            assert len(many.requests) == count
            looked = await many.look()
            assert all(f"order of {name}." in looked.text for name in names)
            assert {state for state, _, _ in await states(house, *names)} == {"waiting"}
            done = await many.decide(looked)
            assert (done.status_code, Page(done.text).all("h1")[0].text) == (200, f"{count} approved")
            assert await states(house, *names) == [("decided", OK, "ana")] * count
            again = await many.decide(looked)
            assert Page(again.text).all("h1")[0].text == f"{count} approved"
        lines = [line async for line in house.store.audit(tenant=ALL_TENANTS) if line.kind == "decided"]
        assert len(lines) == count
        assert {(line.actor, line.address, line.decision) for line in lines} == {("ana", "192.0.2.1", "approved")}

    run(work)


def test_many_are_denied_with_one_reason() -> None:
    async def work() -> None:
        house = house_of()
        for name in "ab":
            await house.put(name)
        async with house.browser() as ana:
            many = await Many(ana).open()
            done = await many.decide(await many.look("deny"), reason=" too dear ")
            assert Page(done.text).all("h1")[0].text == "2 denied"
            assert await states(house, "a", "b") == [("decided", {**NO, "reason": "too dear"}, "ana")] * 2
            assert (await many.look("deny")).status_code == 409
            long = await many.browser.post("/many/decide", data={"reason": "x" * 2001})
            assert long.status_code == 400

    run(work)


def test_what_was_decided_elsewhere_is_told_of_and_stops_no_other() -> None:
    async def work() -> None:
        house = house_of()
        ids = {name: await house.put(name) for name in "abcdef"}
        async with house.browser() as ana:
            many = await Many(ana).open()
            await house.decide("a", NO, actor="bob")
            looked = await many.look()
            assert "bob decided first: denied" in looked.text
            assert len(fields(looked)["request"]) == 5
            await house.decide("b", NO, actor="cleo")
            await house.decide("c", OK, actor="dan")
            await house.store.withdraw(ids["d"], actor="eli")
            await house.store.put(paused(request("e"), request("new")), tenant="acme")  # as it was, in a new version
            done = await many.decide(looked)
            assert Page(done.text).all("h1")[0].text == "2 approved, 3 not"
            for words in ("cleo decided first: denied", "dan decided first: approved", "withdrawn"):
                assert words in done.text
            assert await states(house, "b", "c", "e", "f") == [
                ("decided", NO, "cleo"),
                ("decided", OK, "dan"),
                ("decided", OK, "ana"),
                ("decided", OK, "ana"),
            ]
            last = await ana.post("/many/decide", data=fields(looked), headers=AS_JSON)
            assert sorted(one["id"] for one in last.json()["decided"]) == ["e", "f"]
            told = {one["id"]: one["error"] for one in last.json()["notDecided"]}
            assert (told["b"]["actor"], told["b"]["code"], told["d"]["status"]) == ("cleo", "AlreadyDecided", 409)

    run(work)


def test_an_input_that_has_changed_since_it_was_shown_is_not_decided() -> None:
    async def work() -> None:
        house = house_of()
        first = paused(request("a", given={"cents": 1}))
        await house.store.put(first, tenant="acme")
        await house.put("b")
        async with house.browser() as ana:
            many = await Many(ana).open()
            looked = await many.look()
            await house.decide("a", OK)
            lease = await house.store.claim(owner="o", tenant=ALL_TENANTS)
            await house.store.release(lease, refusals={"a": "the amount is refused"})
            done = await many.decide(looked)
            assert Page(done.text).all("h1")[0].text == "1 approved, 1 not"
            assert "The answer was refused" in done.text
            assert (await states(house, "a"))[0][0] == "waiting"

    run(work)


def test_calls_of_several_tools_too_many_and_none_are_not_decided_together() -> None:
    async def work() -> None:
        house = house_of()
        await house.put("a")
        await house.put("b", tool="charge")
        await house.put("c", kind="question")
        async with house.browser() as ana:
            many = await Many(ana).open()
            assert len(many.requests) == 2  # the question is answered by itself
            question = (await house.store.list(tenant="acme", tool="refund")).records
            record_id = next(one.id for one in question if one.requests[0].interrupt_id == "c")
            for requests, words in (
                (many.requests, "several tools"),
                ([], "Nothing is selected"),
                ([f"{record_id}/c"], "not decided with others"),
                ([*many.requests[:1], *(f"r{number}/q" for number in range(200))], "At most 200"),
            ):
                for headers in ({}, AS_JSON):
                    sent = {"form_token": many.token, "request": requests, "decision": "approve"}
                    answer = await ana.post("/many", data=sent, headers=headers)
                    assert (answer.status_code, words in answer.text) == (422, True), answer.text
            many_fields = {"form_token": many.token, "request": ["r/q"] * 2000, "decision": "approve"}
            assert (await ana.post("/many", data=many_fields)).status_code == 413
            assert {state for state, _, _ in await states(house, "a", "b", "c")} == {"waiting"}

    run(work)


def test_forged_and_foreign_requests_are_the_same_unknown_ones() -> None:
    async def work() -> None:
        house = house_of()
        own, foreign = await house.put("own"), await house.put("foreign", tenant="initech")
        hostile = "\u202e<script>/\"'%00"
        async with house.browser() as ana:
            many = await Many(ana).open()
            told = {}
            for record_id, name in (
                (foreign, "foreign"),
                ("0" * 32, "x"),
                (own, "other"),
                (own, hostile),
                (hostile, "x"),
            ):
                many.requests = [f"{quote(record_id, safe='')}/{quote(name, safe='')}"]
                for headers in ({}, AS_JSON):
                    sent = {"form_token": many.token, "request": many.requests, "decision": "approve"}
                    answer = await ana.post("/many", data=sent, headers=headers)
                    assert answer.status_code == 404
                    assert headers or "<script>/" not in answer.text
                (error,) = answer.json()["notDecided"]
                told[record_id, name] = error["error"]
            assert len({str(one) for one in told.values()}) == 1
            for wrong in ("", "x", "a/b/c", "%ff/a", "a/%C3", "/".join("abcd"), "x" * 5000 + "/y"):
                sent = {"form_token": many.token, "request": [wrong], "decision": "approve"}
                assert (await ana.post("/many", data=sent)).status_code == 400, wrong
            for decision in ("edit", "", "run-again"):
                sent = {"form_token": many.token, "request": [f"{own}/own"], "decision": decision}
                assert (await ana.post("/many", data=sent)).status_code == 400
            assert (await states(house, "own", "foreign")) == [("waiting", None, None)] * 2

    run(work)


def test_a_form_is_for_whom_and_for_what_it_was_made() -> None:
    async def work() -> None:
        house = house_of()
        await house.put("a", given={"cents": 1})
        await house.put("b", given={"cents": 2})
        async with house.browser() as ana, house.browser(EVE) as eve:
            looked = await (await Many(ana).open()).look()
            sent = fields(looked)
            swapped = [re.sub("^[^/]+", sent["request"][1].partition("/")[0], sent["request"][0]), sent["request"][1]]
            forged: list[tuple[httpx.AsyncClient, dict[str, Any]]] = [
                (eve, sent),
                (ana, {**sent, "decision": "deny"}),
                (ana, {**sent, "request": sent["request"][:1]}),
                (ana, {**sent, "request": sent["request"][::-1]}),
                (ana, {**sent, "request": swapped}),
                (ana, {**sent, "request": [*sent["request"], sent["request"][0][:-1] + "0"][1:]}),
                (ana, {**sent, "form_token": (await Many(ana).open()).token}),
                (ana, {**sent, "form_token": ""}),
            ]
            for browser, data in forged:
                answer = await browser.post("/many/decide", data=data)
                assert answer.status_code == 403, (data, answer.text)
            for headers in ({"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}):
                assert (await ana.post("/many/decide", data=sent, headers=headers)).status_code == 403
            assert (await eve.post("/many", data={**sent, "request": ["a/b"]})).status_code == 403
            assert (await states(house, "a", "b")) == [("waiting", None, None)] * 2
            assert (await ana.post("/many/decide", data=sent)).status_code == 200

    run(work)


def test_who_may_only_look_decides_none_and_the_refusal_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        house = house_of()
        record_id = await house.put("a")
        async with house.browser(LOOKS) as lou:
            assert 'name="request"' not in (await lou.get("/")).text
            for path in ("/many", "/many/decide"):
                answer = await lou.post(
                    path, data={"form_token": "x", "request": f"{record_id}/a", "decision": "approve"}
                )
                assert answer.status_code in (400, 403)
            made = Principal.create_form_token
            monkeypatch.setattr(
                Principal, "create_form_token", lambda visit, _about: made(visit, BULK_SELECTION_SUBJECT)
            )
            token = re.findall(r'name="form_token" value="([^"]+)"', (await lou.get("/")).text)[-1]
            sent = {"form_token": token, "request": f"{record_id}/a", "decision": "approve"}
            assert (await lou.post("/many", data=sent)).status_code == 403
        assert (await states(house, "a"))[0][0] == "waiting"
        kinds = [line.kind async for line in house.store.audit(tenant=ALL_TENANTS)]
        assert kinds.count("request_refused") >= 2

    run(work)


def test_a_policy_refuses_some_and_the_others_are_decided() -> None:
    asked: list[Any] = []

    def policy(user: User, record: Any, _request: Any) -> bool | str:
        asked.append(record.payload)
        return "only in the morning" if record.labels.get("when") == "morning" else True

    async def work() -> None:
        house = house_of(options={"policy": policy})
        for number in range(4):
            labels = {"when": "morning" if number % 2 else "ever"}
            await house.store.put(paused(f"n{number}"), tenant="acme", labels=labels, payload={"n": number})
        async with house.browser() as ana:
            many = await Many(ana).open()
            done = await many.decide(await many.look())
            assert Page(done.text).all("h1")[0].text == "2 approved, 2 not"
            assert done.text.count("only in the morning") == 2
        assert sorted(one["n"] for one in asked) == [0, 1, 2, 3]
        assert [state for state, _, _ in await states(house, "n0", "n1", "n2", "n3")] == ["decided", "waiting"] * 2
        lines = [line async for line in house.store.audit(tenant=ALL_TENANTS) if line.kind == "request_refused"]
        assert len(lines) == 2

    run(work)


def test_what_has_expired_meanwhile_is_said_to_have() -> None:
    async def work() -> None:
        clock = Clock()
        house = house_of(MemoryInterruptStore(clock=clock))
        await house.store.put(paused("short", age_ms=HOUR_MS), tenant="acme")
        await house.put("long")
        async with house.browser() as ana:
            many = await Many(ana).open()
            looked = await many.look()
            clock.moved_ms = 2 * HOUR_MS
            done = await many.decide(looked)
            assert Page(done.text).all("h1")[0].text == "1 approved, 1 not"
            assert "The request has expired" in done.text

    run(work)


def test_hostile_inputs_are_listed_whole_or_left_out_and_do_nothing() -> None:
    async def work() -> None:
        house = house_of()
        for number, text in enumerate(("<script>alert(1)</script>", "\u202eabc", "y" * 50_000, "{{ 7 * 7 }}")):
            await house.put(f"n{number} /%\u202e<b>", given={text: text}, tool="<img src=x>\u202e")
        async with house.browser() as ana:
            many = await Many(ana).open()
            looked = await many.look()
            done = await many.decide(looked)
            for answer in (looked, done):
                assert not re.search("<script>alert|<img|\u202e|<b>", answer.text)
            assert 0 < looked.text.count("y") < 5_000
            assert "Its input is too long for this page" in looked.text
            assert "{{ 7 * 7 }}" in looked.text
            assert Page(done.text).all("h1")[0].text == "3 approved"
            shown = [one.text for one in Page(done.text).all("code")]
            assert len(shown) == 3
            assert all(len(one) <= 121 for one in shown)
            assert '{"<script>alert(1)</script>": "<script>alert(1)</script>"}' in shown

    run(work)


def test_callers_of_the_api_look_and_decide_too() -> None:
    async def work() -> None:
        house = house_of()
        record_id = await house.put("a", given={"cents": 5})
        async with house.browser() as ana, house.browser(BOB) as bob:
            many = await Many(ana).open()
            sent = {"form_token": many.token, "request": many.requests, "decision": "deny"}
            looked = (await ana.post("/many", data=sent, headers=AS_JSON)).json()
            (one,) = looked["requests"]
            assert (one["record"], one["id"], one["tool"], one["input"]) == (record_id, "a", "refund", {"cents": 5})
            sent = {"form_token": looked["formToken"], "request": [one["request"]], "decision": "deny", "reason": "no"}
            assert (await bob.post("/many/decide", data=sent, headers=AS_JSON)).status_code == 403
            done = (await ana.post("/many/decide", data=sent, headers=AS_JSON)).json()
            assert done == {"decision": "denied", "decided": [{"record": record_id, "id": "a"}], "notDecided": []}

    run(work)


def test_what_is_listed_is_read_with_as_many_statements_however_many_are_chosen(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    execute = Session._execute

    def counted(session: Session, statement: str, values: Any) -> Any:
        asked.append(statement)
        return execute(session, statement, values)

    monkeypatch.setattr(Session, "_execute", counted)

    async def work() -> None:
        house = house_of(SqliteInterruptStore(tmp_path / "a.sqlite"))
        costs: list[tuple[int, float]] = []
        async with house.browser(ANA) as ana:
            for size in (1, 39):
                for number in range(size):
                    await house.put(f"{size}-{number}")
                many = await Many(ana).open("?limit=200")
                asked.clear()
                looked = await many.look()
                listed = len(asked)
                asked.clear()
                count = len(many.requests)
                await many.decide(looked)
                costs.append((listed, len(asked) / count))
        assert costs[0][0] == costs[1][0] <= 5
        assert costs[1][1] <= costs[0][1] <= 20
        await house.store.aclose()

    run(work)


def test_a_database_that_is_away_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        house = house_of()
        for number in range(5):
            await house.store.put(paused(f"n{number}"), tenant="acme")
        asked: list[str] = []
        record = house.store.record

        async def away(record_id: str, **settings: Any) -> Any:
            asked.append(record_id)
            if len(asked) > 1:
                raise StoreUnavailableError("the database is away")
            return await record(record_id, **settings)

        async with house.browser() as ana:
            looked = await (await Many(ana).open()).look()
            monkeypatch.setattr(house.store, "record", away)
            done = await Many(ana).decide(looked)
        assert len(asked) == 2
        assert Page(done.text).all("h1")[0].text == "1 approved, 4 not"

    run(work)


def test_a_record_is_read_once_however_many_of_its_requests_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        house = house_of()
        names = [f"n{number}" for number in range(10)]
        await house.store.put(paused(*names), tenant="acme")
        read: list[str] = []
        record = house.store.record

        async def counted(record_id: str, **settings: Any) -> Any:
            read.append(record_id)
            return await record(record_id, **settings)

        async with house.browser() as ana:
            looked = await (await Many(ana).open()).look()
            said = {"actor": "bob", "tenant": "acme"}
            await house.store.decide({"n7": NO}, **said)
            monkeypatch.setattr(house.store, "record", counted)
            done = await Many(ana).decide(looked)
        assert len(read) == 1
        assert Page(done.text).all("h1")[0].text == "9 approved, 1 not"
        assert [one[2] for one in await states(house, "n7", "n9")] == ["bob", "ana"]

    run(work)
