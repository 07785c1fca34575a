"""The third way: people decide in the store, and a client asks later what became of its program."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from approval_world import (
    IMPORT,
    ONE,
    RESULT,
    TWO,
    Shop,
    accept,
    answer_of,
    client_of,
    codes,
    gone_on,
    hosts,
    kept,
    mute,
)
from codemode_gateway.approvals.pending_store import ALLOWED_AUDIT_KIND, StandingApproval
from codemode_gateway.approvals.remembered_answers import RememberedAnswers
from codemode_gateway.gateway.principals import LOCAL, Principal
from mcp import Client
from mcp.shared.exceptions import MCPError
from suite import each_row
from waiting import within

from codemode import ToolCallContext, request_interrupt
from codemode.stores import ALL_TENANTS, StoreUnavailableError

SOON = 1


async def call(client: Any, **arguments: Any) -> dict[str, Any]:
    return answer_of(await client.call_tool("codemode_run", arguments))


async def decided(store: Any, resolution: Any) -> None:
    """Decide about all that waits, as the console and the command line do."""
    page = await store.list(tenant=ALL_TENANTS, state="waiting")
    asked = [one for record in page.records for one in record.requests if one.state == "waiting"]
    seen = {one.interrupt_id: store.compute_display_digest(one) for one in asked}
    await store.decide(dict.fromkeys(seen, resolution), actor="ana", tenant=ALL_TENANTS, seen=seen)


def test_a_client_that_cannot_ask_gets_what_waits_and_later_the_outcome_however_often_it_asks() -> None:
    async def scenario() -> None:
        async with (
            hosts(wait_ms=SOON, page_url=lambda record: f"https://gate/{record}") as (shop, store, host),
            mute(host) as c,
        ):
            first = await call(c, code=TWO)
            waits = first["waiting"]
            assert codes(first) == ["WAITING_FOR_APPROVAL"]
            assert first["result"] is None
            assert [(one["serverId"], one["toolName"], one["line"]) for one in waits["calls"]] == [
                ("shop", "refund", 3)
            ] * 2
            assert waits["url"] == f"https://gate/{waits['id']}"
            again = await call(c, code=TWO)
            asked = await call(c, resume=waits["id"])
            assert again["waiting"] == asked["waiting"] == waits
            assert shop.done == ["stock"]
            (record,) = (await store.list(tenant="local", app="codemode-mcp", labels={"tool": "refund"})).records
            assert (record.id, record.labels["server"], record.labels["principal"]) == (waits["id"], "shop", "local")
            await decided(store, {"approved": True})
            outcome = await store.outcome(record.id, tenant="local", timeout_ms=30_000)
            told = [await call(c, resume=waits["id"]) for _ in range(2)]
            assert (
                told[0]["result"]
                == told[1]["result"]
                == outcome["result"]
                == ["refunded 500 for a", "refunded 500 for b"]
            )
            assert shop.done == ["stock", ("a", 500), ("b", 500)]

    within(scenario())


@pytest.mark.parametrize("code", [types.INTERNAL_ERROR, types.INVALID_REQUEST, types.METHOD_NOT_FOUND, -1])
def test_question_that_a_client_answers_with_an_error_waits_in_the_store(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_context: Any, _params: Any) -> Any:
        return types.ErrorData(code=code, message="Forms are disabled\nby your administrator" + "." * 1_000)

    async def scenario() -> None:
        async with (
            hosts(wait_ms=SOON) as (shop, store, host),
            Client(host.server, mode="legacy", elicitation_callback=refuse) as client,
        ):
            first = await call(client, code=ONE)
            assert codes(first) == ["WAITING_FOR_APPROVAL"]
            assert shop.done == []
            await decided(store, {"approved": True})
            outcome = await store.outcome(first["waiting"]["id"], tenant="local", timeout_ms=30_000)
            assert outcome["result"] == "refunded 500 for a"

    with caplog.at_level(logging.INFO, "codemode.mcp"):
        within(scenario())
    (message,) = [entry.getMessage() for entry in caplog.records if "a question to the client" in entry.getMessage()]
    assert "Forms are disabled\\u000aby your administrator" in message
    assert message.endswith(f"({code})")
    assert len(message) < 600


def test_question_that_makes_the_client_fail_waits_in_the_store() -> None:
    async def fail(_context: Any, _params: Any) -> Any:
        raise RuntimeError("no window")

    async def scenario() -> None:
        async with (
            hosts(wait_ms=SOON) as (shop, _, host),
            Client(host.server, mode="legacy", elicitation_callback=fail) as client,
        ):
            assert codes(await call(client, code=ONE)) == ["WAITING_FOR_APPROVAL"]
            assert shop.done == []

    within(scenario())


def test_a_call_that_is_decided_while_it_waits_gives_the_outcome() -> None:
    async def scenario() -> None:
        async with hosts(wait_ms=60_000) as (shop, store, host), mute(host) as client:
            running = asyncio.create_task(call(client, code=ONE))
            await kept(store)
            await decided(store, {"approved": True, "input": {"order": "z", "cents": 1}})
            assert (await running)["result"] == "refunded 1 for z"
            assert shop.done == [("z", 1)]

    within(scenario())


def test_ids_are_of_one_principal_and_an_unknown_one_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        path, eve = tmp_path / "store.sqlite", Principal("eve")
        async with (
            hosts(path=path, wait_ms=SOON) as (shop, _store, one),
            mute(one) as mine,
            hosts(path=path, wait_ms=SOON, principal=eve) as (_, _, two),
            mute(two) as theirs,
        ):
            waits = (await call(mine, code=ONE))["waiting"]
            refused = await call(theirs, resume=waits["id"])
            for strange in ("a" * 32, "", "'; --", "\x00", "é" * 32, "x" * 100_000):
                assert await call(theirs, resume=strange) == refused
            assert codes(refused) == ["UNKNOWN_RUN"]
            other = await call(theirs, code=ONE)
            assert other["waiting"]["id"] != waits["id"]
            assert shop.done == []

    within(scenario())


@pytest.mark.parametrize("arguments", [{"resume": 5}, {"resume": ["a"]}, {"resume": "a" * 32, "code": ONE}])
def test_a_request_that_says_two_things_or_none_is_refused(arguments: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with hosts() as (shop, _, host), mute(host) as client:
            assert codes(await call(client, **arguments)) == ["BAD_REQUEST"]
            assert shop.done == []

    within(scenario())


def test_paused_on_one_host_and_approved_on_another_runs_exactly_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "store.sqlite"
        async with hosts(2, path=path, wait_ms=SOON) as (shop, store, one, other), mute(one) as a, mute(other) as b:
            waits = (await call(a, code=TWO))["waiting"]
            assert (await call(b, code=TWO))["waiting"] == waits
            assert (await call(b, resume=waits["id"]))["waiting"] == waits
            await decided(store, {"approved": True})
            await store.outcome(waits["id"], tenant="local", timeout_ms=30_000)
            told = [await call(client, resume=waits["id"]) for client in (a, b)]
            assert told[0] == told[1]
            assert sorted(map(str, shop.done)) == ["('a', 500)", "('b', 500)", "stock"]

    within(scenario())


def test_a_host_that_starts_later_goes_on_with_what_was_decided_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "store.sqlite"
        async with hosts(path=path, wait_ms=SOON) as (shop, _, one), mute(one) as client:
            waits = (await call(client, code=ONE))["waiting"]
        async with hosts(path=path, shop=shop) as (_, store, later):
            await decided(store, {"approved": True})
            await later.resuming.start()
            outcome = await store.outcome(waits["id"], tenant="local", timeout_ms=30_000)
            assert outcome["result"] == "refunded 500 for a"
        assert shop.done == [("a", 500)]

    within(scenario())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_can_ask_is_asked_when_it_asks_for_a_run_in_the_store(mode: str) -> None:
    async def scenario() -> None:
        async def person(_ctx: Any, _params: Any) -> Any:
            return accept()

        async with hosts(wait_ms=SOON) as (shop, _, host), mute(host) as client:
            waits = (await call(client, code=ONE))["waiting"]
            async with Client(host.server, mode=mode, elicitation_callback=person) as able:
                assert (await call(able, resume=waits["id"]))["result"] == "refunded 500 for a"
            assert (await call(client, resume=waits["id"]))["result"] == "refunded 500 for a"
            assert shop.done == [("a", 500)]

    within(scenario())


def test_from_the_eighth_pause_of_one_call_on_people_decide_in_the_store() -> None:
    async def scenario() -> None:
        code = f'{IMPORT}for (const order of "abcdefgh") await refund({{ order }});\n{RESULT}"done";'
        async with hosts(wait_ms=SOON) as (shop, store, host), client_of(host) as client:
            leg = await client.session.call_tool("codemode_run", {"code": code}, allow_input_required=True)
            rounds = 0
            while getattr(leg, "input_requests", None):
                rounds += 1
                leg = await gone_on(client, code, leg, {key: accept() for key in leg.input_requests})
            assert (rounds, len(shop.done)) == (7, 7)
            waits = answer_of(leg)["waiting"]
            await decided(store, {"approved": True})
            outcome = await store.outcome(waits["id"], tenant="local", timeout_ms=30_000)
            assert outcome["result"] == "done"
            assert len(shop.done) == 8

    within(scenario())


def test_a_long_pause_stays_in_the_store_and_only_its_name_goes_to_the_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        long = "".join(chr(33 + (i * i * 7919 % 1009) % 90) for i in range(1000))
        code = (
            f"{IMPORT}for (let i = 0; i < 40; i++) await stock({{ text: Array.from({{ length: 12000 }}, () =>"
            f' Math.random().toString(36)[3]).join("") }});\n{RESULT}await refund({{ order: "a" }}); // {long}'
        )
        async with (
            hosts(2, path=tmp_path / "store.sqlite") as (shop, store, one, other),
            client_of(one) as a,
            client_of(other) as b,
        ):
            first = await a.session.call_tool("codemode_run", {"code": code}, allow_input_required=True)
            assert len(first.request_state) < 20_000
            assert len((await store.list(tenant="local", state="waiting")).records) == 1
            replies = {key: accept(input='{"order": "a", "cents": 2}') for key in first.input_requests}
            for client in (b, a):
                answer = answer_of(await gone_on(client, code, first, replies))
                assert answer["result"] == "refunded 2 for a"
            assert shop.done.count(("a", 2)) == 1

    within(scenario())


def test_a_client_that_leaves_in_the_middle_of_a_question_loses_nothing() -> None:
    async def scenario() -> None:
        asked = asyncio.Event()

        async def person(_ctx: Any, _params: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        async with hosts(wait_ms=SOON) as (shop, store, host):
            client = Client(host.server, mode="legacy", elicitation_callback=person)
            async with client:
                running = asyncio.create_task(client.call_tool("codemode_run", {"code": ONE}))
                await asyncio.wait_for(asked.wait(), 60)
            await asyncio.wait([running])
            running.exception()
            found = await kept(store)
            async with mute(host) as later:
                waits = (await call(later, code=ONE))["waiting"]
                assert waits["id"] == found.id
                await decided(store, {"approved": True})
                await store.outcome(waits["id"], tenant="local", timeout_ms=30_000)
                assert (await call(later, resume=waits["id"]))["result"] == "refunded 500 for a"
            assert shop.done == [("a", 500)]

    within(scenario())


def test_a_run_of_a_client_that_left_is_told_in_the_log_where_it_cannot_be_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        asked, ended = asyncio.Event(), asyncio.Event()

        async def person(_ctx: Any, _params: Any) -> Any:
            asked.set()
            await asyncio.Event().wait()

        async with hosts(wait_ms=SOON) as (shop, store, host):

            async def away(*_: Any, **__: Any) -> str:
                ended.set()
                raise StoreUnavailableError("the disk is full")

            monkeypatch.setattr(store, "put", away)
            async with Client(host.server, mode="legacy", elicitation_callback=person) as client:
                running = asyncio.create_task(client.call_tool("codemode_run", {"code": ONE}))
                await asked.wait()
            await asyncio.wait([running])
            await ended.wait()
            assert isinstance(running.exception(), MCPError)
            assert ("a", 500) not in shop.done
        (line,) = (one for one in caplog.records if "cannot be stored" in one.message)
        assert line.message.endswith("no decision on shop.refund")
        assert "the disk is full" in str(line.exc_info)

    within(scenario())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_that_can_show_a_page_is_given_it_and_what_it_says_decides_nothing(mode: str) -> None:
    async def scenario() -> None:
        shown: list[Any] = []

        async def person(_ctx: Any, params: Any) -> Any:
            shown.append(params)
            return types.ElicitResult(action="accept", content={"decision": "once"})

        async with hosts(wait_ms=500, by_console=True, page_url=lambda record: f"https://gate/{record}") as (
            shop,
            store,
            host,
        ):
            async with Client(host.server, mode=mode, elicitation_callback=person) as client:
                waits = (await call(client, code=ONE))["waiting"]
            assert [one.url for one in shown] == [waits["url"]] == [f"https://gate/{waits['id']}"]
            assert (shop.done, len((await store.list(tenant="local", state="waiting")).records)) == ([], 1)

    within(scenario())


@each_row("mode", ["auto", "legacy"])
@each_row(
    "url, action, result",
    [
        ("https://as.example/authorize", "accept", "signed in: accept"),
        ("https://as.example/authorize", "decline", "signed in: decline"),
        ("javascript:alert(1)", "accept", "signed in: decline"),
    ],
)
def test_a_sign_in_is_shown_as_a_page_and_the_call_goes_on_with_what_was_said(
    mode: str, url: str, action: Any, result: str
) -> None:
    def stock(_given: Any, context: ToolCallContext) -> str:
        if context.interrupt is None:
            request_interrupt({"kind": "connection-auth", "server": "shop", "url": url})
        return f"signed in: {context.interrupt.resolution['action']}"

    async def scenario() -> None:
        shown: list[str] = []

        async def person(_ctx: Any, params: Any) -> Any:
            shown.append(params.url)
            return types.ElicitResult(action=action)

        shop = Shop()
        shop.stock = stock
        async with hosts(shop=shop) as (_, _, host):
            async with Client(host.server, mode=mode, elicitation_callback=person) as client:
                code = f"{IMPORT}{RESULT}await stock({{}});"
                assert (await call(client, code=code))["result"] == result
            async with mute(host, mode) as client:
                assert (await call(client, code=code))["result"] == "signed in: decline"
        assert shown == ([url] if url.startswith("https") else [])

    within(scenario())


@pytest.mark.full
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_with_a_journal_the_same_holds(mode: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async def person(_ctx: Any, _params: Any) -> Any:
            return accept()

        async with hosts(path=tmp_path / "store.sqlite", journal=True, wait_ms=SOON) as (shop, store, host):
            async with Client(host.server, mode=mode, elicitation_callback=person) as client:
                for _ in range(2):  # each call is an invocation of its own
                    assert (await call(client, code=TWO))["result"] == ["refunded 500 for a", "refunded 500 for b"]
            assert len(shop.done) == 6
            async with mute(host, mode) as client:
                waits = (await call(client, code=TWO))["waiting"]
                assert len(shop.done) == 7
                await decided(store, {"approved": False})
                await store.outcome(waits["id"], tenant="local", timeout_ms=30_000)
                told = (await call(client, resume=waits["id"]))["result"]
                assert [one[0] for one in told] == ["APPROVAL_DENIED"] * 2
            assert len(shop.done) == 7

    within(scenario())


@pytest.mark.parametrize("scope", ["session", "always"])
def test_an_answer_given_elsewhere_may_hold_for_later_calls_of_that_very_tool(tmp_path: Path, scope: Any) -> None:
    changed = Shop()
    changed.tools["refund"] = changed.tools["refund"].model_copy(update={"description": "Refunds twice."})

    async def scenario() -> None:
        remembered = RememberedAnswers(tmp_path)
        async with hosts(wait_ms=SOON, remembered=remembered) as (shop, store, host), mute(host) as client:
            waits = (await call(client, code=ONE))["waiting"]["id"]
            record = await store.record(waits, tenant="local")
            later = StandingApproval.from_requests(record, record.requests, scope)
            assert "shop.refund" in later.description
            await decided(store, {"approved": True})
            await later.audit_and_save(RememberedAnswers(tmp_path), store, record, actor="ana")
            (line,) = [
                one async for one in store.audit(tenant="local", record_id=waits) if one.kind == ALLOWED_AUDIT_KIND
            ]
            assert (line.actor, line.details) == ("ana", {"server": "shop", "tool": "refund", "holds": scope})
            await store.outcome(waits, tenant="local", timeout_ms=30_000)
            assert (await call(client, code=f"{ONE} // again"))["result"] == "refunded 500 for a"
            assert shop.done == [("a", 500)] * 2
            await remembered.forget_session_answers(LOCAL)
            asks_now = "waiting" in await call(client, code=f"{ONE} // after the client has left")
            assert asks_now is (scope == "session")
        async with hosts(wait_ms=SOON, remembered=RememberedAnswers(tmp_path)) as (_, _, host), mute(host) as client:
            assert ("waiting" in await call(client, code=ONE)) is (scope == "session")
        others = {"wait_ms": SOON, "remembered": RememberedAnswers(tmp_path), "shop": changed}
        async with hosts(**others) as (_, _, host), mute(host) as client:
            assert "waiting" in await call(client, code=ONE)

    within(scenario())


def test_an_answer_that_cannot_hold_for_later_calls_is_told_so() -> None:
    async def scenario() -> None:
        async with hosts(wait_ms=SOON) as (_, store, host), mute(host) as client:
            waits = (await call(client, code=ONE))["waiting"]["id"]
            kept = await store.record(waits, tenant="local")
            assert StandingApproval.from_requests(kept, kept.requests, "always").tools
            (one,) = kept.requests
            others = [{"payload": None}, {"app": "another"}, {"requests": (replace(one, kind="unknown"),)}]
            others += [{"payload": {**kept.payload, name: None}} for name in ("definitions", "servers")]
            for other in others:
                record = replace(kept, **other)
                with pytest.raises(ValueError, match="can only be answered once"):
                    StandingApproval.from_requests(record, record.requests, "always")
        async with hosts(wait_ms=SOON, over_http=True) as (_, store, host), mute(host) as client:
            waits = (await call(client, code=ONE))["waiting"]["id"]
            record = await store.record(waits, tenant="local")
            with pytest.raises(ValueError, match="no session"):
                StandingApproval.from_requests(record, record.requests, "session")
            assert StandingApproval.from_requests(record, record.requests, "always").tools

    within(scenario())
