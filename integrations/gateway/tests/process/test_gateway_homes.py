"""An answer is for the call that was asked about: at that server, by that client, of one run however often sent."""

import asyncio
from typing import Any

import pytest
from approval_world import ONE, accept, answer_of, begun, codes, gone_on, hosts, kept
from approval_world import client_of as asked_client_of
from disk_gateway import WIPE, approve_all, gateway_at, run, until, wiped
from gateway_clients import client_of
from mcp import Client
from suite import full_only
from waiting import within

from codemode.stores import leases

PARALLEL = 4


@pytest.mark.parametrize("said", [{}, *full_only({"env": {"DATABASE": "production"}}, {"cwd": "/"})])
def test_what_was_approved_of_one_server_runs_at_no_other_of_its_name(tmp_path, monkeypatch, said):
    monkeypatch.setattr(leases, "_MIN_RETRY_MS", 100)

    async def scenario() -> None:
        mine = tmp_path / "mine"
        theirs = tmp_path / ("mine" if said else "theirs")
        async with gateway_at(mine) as one, client_of(one) as client:
            waiting = (await run(client, code=WIPE))["waiting"]["id"]
        async with gateway_at(theirs, **said) as other, client_of(other) as client:
            await approve_all(other.store)
            own = (await run(client, code=WIPE))["waiting"]["id"]
            assert own != waiting
            record = await until(other.store, waiting, lambda one: one.not_resumable is not None)
            assert "'disk'" in record.not_resumable
            told = await run(client, resume=waiting)
            assert "'disk'" in told["diagnostics"][0]["message"]
            assert (wiped(mine), wiped(theirs)) == (0, 0)
        async with gateway_at(mine) as one, client_of(one) as client:
            await run(client, resume=waiting)
            await until(one.store, waiting, lambda one: one.state == "completed")
            assert (await run(client, resume=waiting))["result"] == "done"
        assert wiped(mine) == 1

    within(scenario())


def test_a_request_state_of_one_gateway_lets_nothing_run_at_the_servers_of_another(tmp_path):
    async def nobody(_ctx: Any, _params: Any) -> Any:
        raise AssertionError("asked within the session")

    async def scenario() -> None:
        mine, theirs = tmp_path / "mine", tmp_path / "theirs"
        async with (
            gateway_at(mine) as one,
            gateway_at(theirs) as other,
            Client(one.server, elicitation_callback=nobody) as here,
            Client(other.server, elicitation_callback=nobody) as there,
        ):
            first = await begun(here, WIPE)
            replies = {key: accept() for key in first.input_requests}
            assert codes(answer_of(await gone_on(there, WIPE, first, replies))) == ["CONTINUATION_REFUSED"]
            assert (wiped(mine), wiped(theirs)) == (0, 0)
            assert answer_of(await gone_on(here, WIPE, first, replies))["result"] == "done"
            assert (wiped(mine), wiped(theirs)) == (1, 0)

    within(scenario())


def test_a_program_that_is_sent_several_times_at_once_waits_once_and_runs_once(tmp_path):
    async def scenario() -> None:
        mine = tmp_path / "mine"
        async with gateway_at(mine) as gateway, client_of(gateway) as client:
            sent = await asyncio.gather(*(run(client, code=WIPE) for _ in range(PARALLEL)))
            (waiting,) = {one["waiting"]["id"] for one in sent}
            await approve_all(gateway.store)
            await until(gateway.store, waiting, lambda one: one.state == "completed")
            ended = await asyncio.gather(*(run(client, resume=waiting) for _ in range(PARALLEL)))
            assert [one["result"] for one in ended] == ["done"] * PARALLEL
        assert wiped(mine) == 1

    within(scenario())


def test_a_client_that_is_not_to_be_asked_answers_nothing_that_it_was_asked_before(tmp_path):
    async def scenario() -> None:
        path = tmp_path / "store.sqlite"
        async with (
            hosts(path=path, wait_ms=0) as (shop, store, asking),
            hosts(path=path, wait_ms=0, by_console=True) as (other, _, not_asking),
            asked_client_of(asking) as before,
            asked_client_of(not_asking) as now,
        ):
            first = await begun(before, ONE)
            replies = {key: accept() for key in first.input_requests}
            assert codes(answer_of(await gone_on(now, ONE, first, replies))) == ["WAITING_FOR_APPROVAL"]
            assert (shop.done, other.done) == ([], [])
            assert len((await store.list(tenant="local", state="waiting")).records) == 1

    within(scenario())


def test_what_was_not_asked_in_a_call_is_not_answered_by_it():
    async def scenario() -> None:
        page = {"wait_ms": 0, "page_url": lambda record: f"https://gate/{record}"}
        async with hosts(by_console=True, **page) as (shop, store, host), asked_client_of(host) as client:
            first = await begun(client, ONE)
            record = await kept(store)
            assert set(first.input_requests) == {record.id}
            replies = {one: accept() for one in (record.id, *(one.interrupt_id for one in record.requests))}
            assert codes(answer_of(await gone_on(client, ONE, first, replies))) == ["WAITING_FOR_APPROVAL"]
            assert shop.done == []
            assert len((await store.list(tenant="local", state="waiting")).records) == 1

    within(scenario())
