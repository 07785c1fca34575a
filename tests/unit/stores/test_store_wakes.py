"""What wakes whoever waits at a store, and hosts that stand still in its database."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from stored_pauses import paused
from test_store_contract import through
from waiting import until, within

from codemode.stores import ALL_TENANTS, StoreUnavailableError, record_writes

SUPPORT = Path(__file__).parents[2] / "support"


def test_nothing_looks_or_listens_when_nobody_waits(kind, make):
    async def scenario(store):
        record_id = await store.put(paused("a"))
        with pytest.raises(TimeoutError):
            await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=50)
        names = {"codemode-listener", "codemode-probe"}
        await until(lambda: not [one for one in threading.enumerate() if one.name in names])

    through(make, scenario)


def test_however_often_somebody_begins_to_wait_one_thread_listens(kind, make):
    async def scenario(store):
        await store.put(paused("a"))
        before = {*threading.enumerate()}
        for _ in range(20):
            with store.watch() as watch:
                await watch.wait(0)
        begun = {*threading.enumerate()} - before
        assert sum(one.name in ("codemode-listener", "codemode-probe") for one in begun) <= 1

    through(make, scenario)


def test_a_change_wakes_whoever_waits_by_another_store_of_the_process(kind, make):
    async def scenario(store):
        await store.put(paused("a"))
        with store.watch() as watch:
            await watch.wait(0 if kind == "memory" else 1)  # for what a look says at first: in memory there is none
            waiting = asyncio.create_task(watch.wait(600))
            await make().put(paused("b"))
            await asyncio.wait_for(waiting, 60)

    through(make, scenario)


def test_a_change_wakes_whoever_waits_in_another_process(kind, make, tmp_path):
    if kind == "memory":
        pytest.skip("the memory store is per process")
    program = (
        "import asyncio, sys\nfrom codemode.stores import PostgresInterruptStore, SqliteInterruptStore\n"
        "from stored_pauses import paused\n"
        "of_kind = {'sqlite': SqliteInterruptStore, 'postgres': PostgresInterruptStore}\n"
        "asyncio.run(of_kind[sys.argv[1]](sys.argv[2]).put(paused('b')))"
    )

    async def scenario(store):
        where = str(tmp_path / "pauses.sqlite") if kind == "sqlite" else store._database._dsn
        await store.put(paused("a"))
        with store.watch() as watch:
            await watch.wait(1)
            command = [sys.executable, "-c", program, kind, where]
            waiting = asyncio.create_task(watch.wait(600))
            await asyncio.to_thread(subprocess.run, command, cwd=SUPPORT, check=True, timeout=60)
            await asyncio.wait_for(waiting, 60)

    through(make, scenario)


AN_UPDATE = "UPDATE codemode_records SET state = state WHERE id = ?"


@pytest.mark.parametrize("kind", ["postgres"])
@pytest.mark.parametrize(
    "last",
    [
        pytest.param(lambda session: None, id="none"),
        pytest.param(lambda session: session.run(AN_UPDATE, "a"), id="one statement"),
        pytest.param(lambda session: session.execute_many(AN_UPDATE, [("a",)]), id="one for each row"),
    ],
)
def test_a_host_that_stands_still_in_a_transaction_does_not_keep_others_from_writing(kind, last, make, monkeypatch):
    from codemode.stores import postgres

    async def scenario(store):
        other, begun, go_on = make(), threading.Event(), threading.Event()
        await store.aclose()
        monkeypatch.setattr(
            postgres, "_MAX_IDLE_TRANSACTION_MS", 200
        )  # of what it opens anew, once its tables are made

        def stand_still(session):
            last(session)
            begun.set()
            assert go_on.wait(60)
            return record_writes.put_pause_or_get_duplicate_id(session, record_writes.encode_pause(paused("slow")))

        still = asyncio.create_task(store._run_write(stand_still))
        still.add_done_callback(lambda _: begun.set())  # a slow machine may stand still sooner
        await asyncio.to_thread(begun.wait, 60)
        monkeypatch.setattr(postgres, "_MAX_IDLE_TRANSACTION_MS", 60_000)  # the others do not stand still
        record_id = await other.put(paused("quick"))
        go_on.set()
        with pytest.raises(StoreUnavailableError, match="cannot be used"):
            await still
        assert [one.id for one in (await store.list(tenant=ALL_TENANTS)).records] == [record_id]
        await other.aclose()

    through(make, scenario)


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_host_that_stands_still_while_it_opens_the_store_does_not_keep_others_from_opening_it(
    kind, make, monkeypatch
):
    from codemode.stores import postgres

    bring_up_to_date, begun, go_on = (
        postgres.create_or_migrate_tables,
        threading.Event(),
        threading.Event(),
    )

    def stand_still(session):
        begun.set()
        assert go_on.wait(60)
        bring_up_to_date(session)

    monkeypatch.setattr(postgres, "_MAX_IDLE_TRANSACTION_MS", 200)
    monkeypatch.setattr(postgres, "create_or_migrate_tables", stand_still)

    async def scenario():
        store, other = make(), make()
        still = asyncio.create_task(store.list(tenant=ALL_TENANTS))
        still.add_done_callback(lambda _: begun.set())  # likewise
        await asyncio.to_thread(begun.wait, 60)
        monkeypatch.setattr(postgres, "_MAX_IDLE_TRANSACTION_MS", 60_000)  # the others do not stand still
        monkeypatch.setattr(postgres, "create_or_migrate_tables", bring_up_to_date)
        await other.put(paused("quick"))
        go_on.set()
        with pytest.raises(StoreUnavailableError, match="cannot be used"):
            await still
        await store.aclose()
        await other.aclose()

    within(scenario())
