"""A store that goes away in the middle of a run of exec: the result says so, nothing is lost, and wait works later."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from exec_wait_world import SCOPE, Shop, executed, opened, pair_of, run, store_of, wait
from postgres_cluster import cluster, dsn_of, new_database
from stored_pauses import Clock
from suite import full_only
from waiting import until

from codemode import CallContext, Interrupt
from codemode.stores import ALL_TENANTS, postgres, sqlite_file
from codemode.stores.journal import SqlJournalStore

LEASE_MS = 31_000
AWAY = "runtime_unavailable"


@pytest.fixture(scope="module")
def postgres_folder():
    with cluster() as folder:
        yield folder


class Place:
    """A store that can be away."""

    def __init__(self, kind: str, where: str, folder: str) -> None:
        self.kind, self.where, self._folder = kind, where, folder
        self.clock = Clock()
        self.store = store_of(kind, where, clock=self.clock)

    @contextmanager
    def away(self) -> Iterator[None]:
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self.where, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                yield
            return
        self._tell("ALTER DATABASE {} ALLOW_CONNECTIONS false")
        self._tell("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'")
        with pytest.MonkeyPatch.context() as patch:  # a store that is there may be slow on a busy machine
            patch.setattr(postgres, "_CONNECT_TIMEOUT_SECONDS", 0.2)
            yield
        self._tell("ALTER DATABASE {} ALLOW_CONNECTIONS true")

    def _tell(self, statement: str) -> None:
        import psycopg

        name = self.where.rpartition("=")[2]
        with psycopg.connect(dsn_of(self._folder, "postgres"), autocommit=True) as connection:
            connection.execute(statement.format(name))


@pytest.fixture(params=["sqlite", *full_only("postgres")])
def place(request, tmp_path, monkeypatch) -> Place:
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_SECONDS", 0)
    monkeypatch.setattr(sqlite_file, "_SET_BUSY_TIMEOUT", "PRAGMA busy_timeout = 1")
    if request.param == "sqlite":
        return Place("sqlite", str(tmp_path / "runs.db"), "")
    folder = request.getfixturevalue("postgres_folder")
    return Place("postgres", new_database(folder, f"t{secrets.token_hex(6)}"), folder)


async def later(pair: Any, result: Any) -> Any:
    """What wait gives in the end, once the store is there again, which connections notice late."""
    async with asyncio.timeout(60):
        while True:
            told = await wait(pair, result)
            if isinstance(told, Interrupt) or not (told["status"] == "waiting" or told.get("code") == AWAY):
                return told


async def yielded(pair: Any, code: str) -> Any:
    """What a program gives that yields, however long its calls before that take."""
    result = await run(pair, code)
    async with asyncio.timeout(60):
        while result["reason"] == "pending_tools":
            result = await wait(pair, result)
    return result


async def at_last(pair: Any, result: Any) -> Any:
    """What a program asks or comes to, be it that the call of the model for which it did so was over before."""
    is_left = not isinstance(result, Interrupt) and result["status"] == "waiting"
    return await later(pair, result) if is_left else result


@pytest.fixture(params=[0, *full_only(4)])
def options(request) -> dict[str, Any]:
    return {"maxWarmRuns": request.param, "waitTimeoutMs": 300}


@pytest.fixture
def played(within, place, pool, options, tmp_path):
    """Runs a scenario with a pair over the store, and returns what it gives and what was executed."""

    def play(scenario: Any, *held: str, **more: Any) -> tuple[Any, list[str]]:
        async def main() -> Any:
            shop = Shop(tmp_path / "notes", held)
            pair = pair_of(shop, place.store, pool, **{**options, **more})
            try:
                await opened(pair)
                return await scenario(pair, shop)
            finally:
                await pair.aclose()
                await place.store.aclose()

        return within(main()), executed(tmp_path / "notes")

    return play


def test_a_run_at_rest_goes_on_once_its_store_is_back(played, place):
    async def scenario(pair, _shop):
        result = await yielded(pair, "await tools.pay(1); await yield_control(); return await tools.pay(2)")
        with place.away():
            told = [await wait(pair, result) for _ in range(2)]
        place.clock.moved_ms += LEASE_MS
        return told, await later(pair, result)

    (told, last), ran = played(scenario)
    assert (told[0]["code"], "wait again" in told[0]["error"]) == (AWAY, True)
    assert told[1]["status"] == "waiting" or told[1]["code"] == AWAY  # SQLite is read nevertheless
    assert (last["value"], ran) == ("pay 2", ["pay 1", "pay 2"])


def test_a_call_whose_outcome_could_not_be_written_is_asked_about(played, place):
    async def scenario(pair, shop):
        result = await run(pair, "await yield_control(); return await tools.pay(1)")
        going_on = asyncio.ensure_future(wait(pair, result))
        await until(lambda: executed(shop._notes))
        with place.away():
            shop.released.set()
            told = await going_on
        place.clock.moved_ms += LEASE_MS
        asked = await later(pair, result)
        assert isinstance(asked, Interrupt)
        return told, await pair.resume(asked, {"value": "paid"}, call=CallContext(conversation_id=SCOPE))

    (told, last), ran = played(scenario, "pay", waitTimeoutMs=20_000)
    assert told["code"] == AWAY
    assert (last["value"], ran) == ("paid", ["pay 1"])


def test_a_run_that_loses_its_store_while_it_rests_is_gone_on_with_from_there(played, place, model_waits):
    async def scenario(pair, shop):
        looking = run(pair, "return [await tools.look(1), await tools.look(2)]")
        result = await model_waits.left(looking, lambda: executed(shop._notes))
        assert result["status"] == "waiting", result
        with place.away():
            shop.released.set()
            await until(lambda: pair._runner.runs.find(result["runId"]).execution.is_suspended is False)
        shop.held = ()
        place.clock.moved_ms += LEASE_MS
        return await later(pair, result)

    last, ran = played(scenario, "look", waitTimeoutMs=20_000)
    assert last.get("value") == ["look 1", "look 2"], last
    assert ran == ["look 1", "look 1", "look 2"]


def test_nothing_runs_without_the_store(played, place):
    async def scenario(pair, _shop):
        await run(pair, "return 1")
        with place.away():
            told = await run(pair, "return await tools.pay(1)", tool_call_id="c")
        async with asyncio.timeout(60):
            while True:  # connections may notice late that it is back
                result = await run(pair, "return await tools.pay(1)", tool_call_id="c")
                if result.get("code") != AWAY:
                    return told, await at_last(pair, result)

    (told, last), ran = played(scenario)
    assert told["code"] == AWAY
    assert (last.get("value"), ran) == ("pay 1", ["pay 1"]), last


def test_a_question_that_could_not_be_stored_is_asked_again(played, place, monkeypatch):
    async def scenario(pair, _shop):
        result = await run(pair, "await yield_control(); return await tools.refund(1)")
        settle = place.store.settle

        async def fails(*_: Any, **__: Any) -> bool:
            raise OSError("away")

        monkeypatch.setattr(place.store, "settle", fails)
        told = await wait(pair, result)
        monkeypatch.setattr(place.store, "settle", settle)
        place.clock.moved_ms += LEASE_MS
        parked = await wait(pair, result)
        (record,) = (await place.store.list(tenant=ALL_TENANTS, state="pending")).records
        asked = {one.interrupt_id: {"approved": True} for one in record.requests}
        await place.store.decide(asked, actor="ana", tenant=ALL_TENANTS)
        return told, parked, await wait(pair, parked)

    (told, parked, last), ran = played(scenario, approvals="park", waitTimeoutMs=20_000)
    assert told["code"] == AWAY
    assert (parked["status"], "person" in parked["note"]) == ("waiting", True)
    assert (last["value"], ran) == ("refund 1", ["refund 1"])


def test_a_journal_that_takes_longer_to_open_than_tools_are_waited_for_is_waited_for(played, place, monkeypatch):
    opens = SqlJournalStore.open

    async def slowly(*given: Any, **more: Any) -> Any:
        opened = await opens(*given, **more)
        await asyncio.sleep(0.3)
        return opened

    async def scenario(pair, _shop):
        monkeypatch.setattr(SqlJournalStore, "open", slowly)
        asked = await at_last(pair, await run(pair, "return await tools.refund(1)"))
        (request,) = asked.requests
        last = await pair.resume(
            asked, resolutions={request.interrupt_id: {"approved": True}}, call=CallContext(conversation_id=SCOPE)
        )
        return await at_last(pair, last)

    last, ran = played(scenario, waitTimeoutMs=100)
    assert (last.get("value"), ran) == ("refund 1", ["refund 1"]), last
