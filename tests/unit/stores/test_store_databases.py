"""What databases owe a store: order of changes, constant work, tables of other versions, files, absence."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import stat
import subprocess
import sys
import threading

import pytest
from postgres_cluster import new_database
from stored_pauses import HOUR_MS, paused
from suite import each_row
from test_store_contract import decided, through
from waiting import until, within

from codemode import CodeModeError
from codemode.continuations.guard import LAPSED, Claim
from codemode.host.clock import now_ms
from codemode.stores import (
    ALL_TENANTS,
    MemoryInterruptStore,
    SqliteInterruptStore,
    StoreUnavailableError,
    record_writes,
    sqlite_file,
)
from codemode.stores import tables as schema


def test_changes_come_in_the_order_of_commits_past_a_slow_transaction(kind, make):
    """Who has its sequence first commits first: nobody reads past one that is still to come."""
    if kind == "memory":
        pytest.skip("this store has one connection")

    async def scenario(store):
        other, begun, go_on = make(), threading.Event(), threading.Event()
        new = record_writes.encode_pause(paused("slow"))

        def slowly(session):
            record_id = record_writes.put_pause_or_get_duplicate_id(session, new)
            begun.set()
            assert go_on.wait(60)
            return record_id

        slow = asyncio.create_task(store._run_write(slowly))
        await asyncio.to_thread(begun.wait, 60)
        quick = asyncio.create_task(other.put(paused("quick")))
        reader = make().changes(tenant=ALL_TENANTS)
        first = asyncio.create_task(anext(reader))
        await asyncio.wait([quick, first], timeout=0.3)
        go_on.set()
        seen = [await first, await anext(reader)]
        assert [one.record_id for one in seen] == [await slow, await quick]
        await reader.aclose()
        await other.aclose()

    through(make, scenario)


def test_tables_of_a_newer_version_are_refused_and_older_ones_brought_up_to_date(kind, make, monkeypatch):
    if kind == "memory":
        pytest.skip("the memory store is not persistent")

    async def version(store):
        return await store._run_read(lambda session: session.fetch_one("SELECT version, sequence FROM codemode_store"))

    async def scenario():
        async with make() as store:
            record_id = await store.put(paused("a"))
        broken = (*schema.UPGRADES, ("ALTER TABLE codemode_records ADD COLUMN more TEXT", "NONSENSE"))
        monkeypatch.setattr(schema, "UPGRADES", broken)
        with pytest.raises(StoreUnavailableError):
            await make().record(record_id, tenant=ALL_TENANTS)
        newer = (*broken[:-1], ("ALTER TABLE codemode_records ADD COLUMN more TEXT",))
        monkeypatch.setattr(schema, "UPGRADES", newer)
        async with make() as one, make() as two:
            assert (await one.record(record_id, tenant=ALL_TENANTS)).id == record_id
            assert await version(two) == (len(newer), 1)
        monkeypatch.setattr(schema, "UPGRADES", newer[:-1])
        with pytest.raises(StoreUnavailableError, match=f"version {len(newer)}.* Upgrade codemode here"):
            await make().record(record_id, tenant=ALL_TENANTS)

    within(scenario())


def test_stores_that_open_at_once_make_the_tables_once(kind, make):
    async def scenario():
        stores = [make() for _ in range(6)]
        ids = await asyncio.gather(*(one.put(paused(str(number))) for number, one in enumerate(stores)))
        assert {one.id for one in (await stores[0].list(tenant=ALL_TENANTS)).records} == set(ids)
        await asyncio.gather(*(one.aclose() for one in stores))

    within(scenario())


def test_a_store_that_is_closed_opens_again_and_works_on_every_loop(make):
    store = make()
    record_id = within(store.put(paused("a")))
    within(store.aclose())
    assert within(store.record(record_id, tenant=ALL_TENANTS)).id == record_id
    within(store.aclose())


def test_files_are_their_owners_alone(tmp_path):
    path = tmp_path / "pauses.sqlite"
    path.touch(mode=0o644)

    async def scenario():
        async with SqliteInterruptStore(path) as store:
            await store.put(paused("a"))
            await store.guard.claim(Claim("k", "a", now_ms() + HOUR_MS))
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
            assert set(modes.values()) == {0o600}
            assert "pauses.sqlite-wal" in modes

    within(scenario())


@pytest.mark.parametrize("where", ["folder", "file of another kind", "no folder"])
def test_a_file_that_cannot_be_opened_is_told_of(tmp_path, where):
    path = {"folder": tmp_path, "no folder": tmp_path / "none" / "x"}.get(where, tmp_path / "other")
    if where.startswith("file"):
        path.write_text("no database " * 100, encoding="utf-8")
    store = SqliteInterruptStore(path)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="cannot be used"):
            within(store.put(paused("a")))


class ToldConnection:
    """A connection that says when it is closed: to ask it is for the thread that has it."""

    def __init__(self, connection):
        self._connection = connection
        self.is_closed = threading.Event()

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def close(self):
        self._connection.close()
        self.is_closed.set()


def test_what_a_cancelled_caller_has_left_open_is_closed_with_its_store(tmp_path, monkeypatch):
    """It comes back when the store has been closed, and is not kept for a next time that may never come."""
    began, may_end, made = threading.Event(), threading.Event(), []

    def connected(*arguments, real=sqlite_file.open_sqlite_connection, **more):
        connection = ToldConnection(real(*arguments, **more))
        if more.get("is_waiting", True):  # the others are for looks alone
            made.append(connection)
        return connection

    def work(session):
        began.set()
        assert may_end.wait(60)
        return session.fetch_all("SELECT 1")

    def are_closed():
        return all(one.is_closed.is_set() for one in made)

    async def scenario():
        monkeypatch.setattr(sqlite_file, "open_sqlite_connection", connected)
        store = SqliteInterruptStore(tmp_path / "pauses.sqlite")
        record_id = await store.put(paused("a"))
        reading = asyncio.create_task(store._run_read(work))
        await until(began.is_set)
        reading.cancel()
        await asyncio.wait([reading])
        await store.aclose()
        assert not are_closed()
        may_end.set()
        await until(are_closed)
        assert (await store.record(record_id, tenant=ALL_TENANTS)).state == "pending"
        assert not are_closed()  # it has opened again, and keeps what it opens then
        await store.aclose()
        assert are_closed()

    within(scenario())


def test_what_looks_for_changes_by_others_is_closed_with_its_store(tmp_path):
    async def scenario():
        store = SqliteInterruptStore(tmp_path / "pauses.sqlite")
        await store.put(paused("a"))
        with store.watch():
            free = store._database._notifier._probe._idle
            await until(lambda: free)
            before = free.close_count
            await store.aclose()
            assert free.close_count == before + 1
            await until(lambda: free)  # it looks on as long as somebody waits

    within(scenario())


def test_a_database_that_is_away_loses_nothing(kind, make):
    if kind != "postgres":
        pytest.skip("this store has no server")

    async def scenario(store):
        record_id = await store.put(paused("a"))
        store._database._pool.getconn().close()  # what was open breaks
        with pytest.raises(StoreUnavailableError):
            await store._run_write(
                lambda session: (
                    record_writes.put_pause_or_get_duplicate_id(session, record_writes.encode_pause(paused("b"))),
                    session.fetch_all("SELECT pg_terminate_backend(pg_backend_pid())"),
                )
            )
        await decided(store, "a")
        assert [one.id for one in (await store.list(tenant=ALL_TENANTS)).records] == [record_id]

    through(make, scenario)
    from codemode.stores.postgres import PostgresInterruptStore

    with pytest.raises(ValueError, match=r"^dsn is no connection string of libpq$"):
        PostgresInterruptStore("password=secret nonsense")
    with pytest.raises(ValueError, match=r"^dsn must be a connection string of libpq, got NoneType$"):
        PostgresInterruptStore(None)
    with pytest.raises(ValueError, match=r"^max_connections must be at least 1, got 0$"):
        PostgresInterruptStore("host=/nowhere", max_connections=0)
    with pytest.raises(StoreUnavailableError, match="nowhere"):
        within(PostgresInterruptStore("host=/nowhere dbname=x").put(paused("a")))


def test_what_a_database_left_while_nobody_asked_is_noticed_by_nobody(kind, make):
    """As after its restart: no operation fails for each connection that was open then, nor waits for each."""
    if kind != "postgres":
        pytest.skip("this store has no server")
    import psycopg

    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    async def scenario(store):
        record_id = await store.put(paused("a"))
        pool = store._database._pool
        for connection in [pool.getconn() for _ in range(3)]:
            pool.putconn(connection)
        with psycopg.connect(store._database._dsn, autocommit=True) as server:
            server.execute(f"SELECT pg_terminate_backend(pid) {others}")
            await until(lambda: server.execute(f"SELECT count(*) {others}").fetchone()[0] == 0)
        for _ in range(4):
            assert [one.id for one in (await store.list(tenant=ALL_TENANTS)).records] == [record_id]
        assert await store.guard.claim(Claim("k", "yes", now_ms() + HOUR_MS)) is None
        assert pool.get_stats()["connections_lost"] == 3
        assert pool.reconnect_timeout <= 10  # it doubles its pauses: beyond that the next one who asks begins anew

    through(make, scenario)


def test_the_guard_of_a_store_claims_once(kind, make):
    async def scenario(store):
        claim = Claim("k", "yes", now_ms() + HOUR_MS)
        guards = [store.guard, make().guard if kind != "memory" else store.guard]
        assert await guards[0].claim(claim) is None
        assert await guards[0].renew("k")
        with pytest.raises(CodeModeError, match="other answers"):
            await guards[1].claim(Claim("k", "no", now_ms() + HOUR_MS))
        repeat = asyncio.create_task(guards[1].claim(claim))
        assert await guards[0].record("k", "outcome") in ("outcome", None)
        assert await repeat == "outcome"
        released = Claim("r", "yes", now_ms() + HOUR_MS)
        assert await guards[0].claim(released) is None
        await guards[0].release("r")
        assert await guards[1].claim(released) is None

    through(make, scenario)


def test_the_guard_tells_who_takes_over_that_a_claim_has_lapsed(kind, make, clock):
    if kind == "memory":
        pytest.skip("the memory store ends with its process")

    async def scenario(store):
        claim = Claim("k", "yes", now_ms() + HOUR_MS)
        assert await store.guard.claim(claim) is None
        seconds = iter(range(0, 10**6, 20))
        clock.monotonic_seconds = lambda: float(next(seconds))
        clock.moved_ms = 61_000

        async def at_once(_):
            await asyncio.sleep(0)

        clock.sleep = at_once
        assert await make().guard.claim(claim) is LAPSED

    through(make, scenario)


def test_a_pause_for_dialogs_is_warned_of_once(make, caplog):
    async def scenario(store):
        with caplog.at_level(logging.WARNING, "codemode.stores"):
            await store.put(paused("a", age_ms=2 * HOUR_MS))
            assert caplog.records == []
            await store.put(paused("b", age_ms=HOUR_MS // 2))
            await store.put(paused("c", age_ms=HOUR_MS // 2))
        assert [one.name for one in caplog.records] == ["codemode.stores"]
        assert "max_age_ms" in caplog.text

    through(make, scenario)


def test_what_has_ended_in_memory_goes_after_an_hour(clock):
    async def scenario():
        store = MemoryInterruptStore(clock=clock)
        await store.withdraw(await store.put(paused("a")), actor="ana")
        clock.moved_ms = HOUR_MS
        last = await store.put(paused("b"))
        assert [one.id for one in (await store.list(tenant=ALL_TENANTS)).records] == [last]

    within(scenario())


def test_a_fork_goes_on_with_connections_of_its_own(kind, make):
    if kind == "memory":
        pytest.skip("a forked child has a copy of the memory store")
    store = make()
    within(store.put(paused("parent")))
    child = os.fork()
    if not child:
        code = 1
        try:
            within(store.put(paused("child")))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    within(store.put(paused("parent again")))
    assert len(within(store.list(tenant=ALL_TENANTS)).records) == 3
    within(store.aclose())


def test_without_its_extra_a_postgres_store_says_what_to_install():
    program = (
        "import sys; sys.modules['psycopg_pool'] = None\nfrom codemode.stores import PostgresInterruptStore\n"
        "try: PostgresInterruptStore('dbname=x')\nexcept ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "codemode-toolkit[postgres]" in done.stdout


def test_a_store_without_a_file_is_told_of_the_one_in_memory():
    with pytest.raises(ValueError, match="MemoryInterruptStore"):
        SqliteInterruptStore(":memory:")


@each_row("url", ["sqlite:///approvals.db", "postgresql://ana:secret@db/desk", "postgres://db"])
def test_a_url_is_no_path(url: str):
    with pytest.raises(ValueError, match=r"got a URL .* write the path alone") as raised:
        SqliteInterruptStore(url)
    assert "secret" not in str(raised.value)


def test_a_connection_whose_other_end_is_gone_without_a_word_is_given_up(postgres_folder):
    from codemode.stores.postgres import PostgresInterruptStore

    store = PostgresInterruptStore(new_database(postgres_folder, f"t{secrets.token_hex(6)}"))

    async def scenario():
        await store.put(paused("a"))
        with store._database.connection() as connection:
            found = connection.info.get_parameters()
        await store.aclose()
        return found["tcp_user_timeout"], found["keepalives_idle"]

    assert within(scenario()) == ("10000", "10")
