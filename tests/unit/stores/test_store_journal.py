"""What the journal of every store promises, on every database."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from postgres_cluster import dsn_of
from stored_pauses import Clock, paused
from waiting import within

from codemode.continuations.journal import MemoryJournal
from codemode.stores import ALL_TENANTS, MemoryInterruptStore, SqliteInterruptStore, StoreUnavailableError

SUPPORT = Path(__file__).parents[2] / "support"
LAPSED_MS = 30_001
STRANGE = "line\n\0\ud800 ' \U0001f600"


def through(make, scenario):
    async def run():
        async with make() as store:
            return await scenario(store)

    return within(run())


def journal_of(store, **settings):
    return store.journal(**{"tenant": "acme", "app": "support", **settings})


async def rows(store, table="journal_lines"):
    return (await store._run_read(lambda session: session.fetch_one(f"SELECT count(*) FROM codemode_{table}")))[0]


def test_what_was_written_is_what_the_next_owner_finds(make):
    async def scenario(store):
        journal = journal_of(store)
        opened = await journal.open("k", STRANGE)
        assert (opened.key, opened.head, opened.lines, opened.outcome) == ("k", STRANGE, (), None)
        assert opened.number == 1
        assert not opened.is_takeover
        large = "x" * (1 << 20)
        for group in (["a"], [STRANGE, ""], [large, "b"], ["c"]):
            assert await journal.write(opened, group)
        assert await journal.release(opened)
        assert not await journal.release(opened)
        assert not await journal.write(opened, ["after it"])
        again = await journal_of(make()).open("k", "another head")
        assert again.lines == ("a", STRANGE, "", large, "b", "c")
        assert (again.head, again.outcome, again.is_takeover) == (STRANGE, None, False)
        assert again.number != opened.number

    through(make, scenario)


def test_what_an_owner_writes_at_once_is_all_there(make):
    async def scenario(store):
        journal = journal_of(store)
        opened = await journal.open("k", "")
        groups = [[f"{number}", "x" * (1 << 16 if number % 7 == 0 else 1)] for number in range(30)]
        assert all(await asyncio.gather(*(journal.write(opened, one) for one in groups), journal.renew(opened)))
        await journal.release(opened)
        assert (await journal.open("k", "")).lines == tuple(line for one in groups for line in one)

    through(make, scenario)


def test_whoever_comes_second_waits_for_the_end_and_gets_it(make):
    async def scenario(store):
        journal, other = journal_of(store), journal_of(make())
        opened = await journal.open("k", "h")
        waiting = [asyncio.create_task(one.open("k", "h2")) for one in (other, other, journal)]
        await asyncio.wait(waiting, timeout=0.2)
        assert await journal.write(opened, ["l"])
        assert not [one for one in waiting if one.done()]
        assert await journal.end(opened, STRANGE, is_final=True)
        for one in waiting:
            found = await one
            assert (found.outcome, found.number, found.lines, found.head) == (STRANGE, 0, (), "h")
            assert not await journal.write(found, ["by nobody"])

    through(make, scenario)


def test_whoever_waits_goes_on_where_it_was_given_up(make):
    async def scenario(store):
        journal = journal_of(store)
        opened = await journal.open("k", "h")
        waiting = asyncio.create_task(journal_of(make()).open("k", "h"))
        await asyncio.wait([waiting], timeout=0.2)
        await journal.write(opened, ["l"])
        await journal.release(opened)
        found = await waiting
        assert (found.lines, found.is_takeover, found.outcome) == (("l",), False, None)
        assert found.number

    through(make, scenario)


def test_a_pause_is_given_back_until_somebody_goes_on_and_an_end_for_good(make):
    async def scenario(store):
        journal = journal_of(store)
        opened = await journal.open("k", "h")
        await journal.write(opened, ["one"])
        assert await journal.end(opened, "paused", is_final=False)
        assert not await journal.end(opened, "paused", is_final=False)
        for _ in range(2):
            found = await journal.open("k", "h")
            assert (found.outcome, found.lines, found.number) == ("paused", ("one",), 0)
        resumed = await journal.open("k", "h", again=True)
        assert (resumed.outcome, resumed.lines, resumed.is_takeover) == (None, ("one",), False)
        await journal.write(resumed, ["two"])
        assert await rows(store) == 2
        assert await journal.end(resumed, "value", is_final=True)
        assert await rows(store) == 0
        for again in (False, True):
            found = await journal.open("k", "h", again=again)
            assert (found.outcome, found.lines, found.number) == ("value", (), 0)

    through(make, scenario)


def test_an_owner_whose_lease_is_over_writes_nothing_once_somebody_else_has_it(make, clock):
    async def scenario(store):
        journal, other = journal_of(store), journal_of(make())
        first = await journal.open("k", "h")
        clock.moved_ms += LAPSED_MS
        assert await journal.write(first, ["late, but nobody else is there"])
        assert await journal.renew(first)
        clock.moved_ms += LAPSED_MS // 2
        waiting = asyncio.create_task(other.open("k", "h"))
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()  # it was renewed
        clock.moved_ms += LAPSED_MS
        second = await waiting
        assert second.is_takeover
        assert second.lines == ("late, but nobody else is there",)
        assert not await journal.write(first, ["too late"])
        assert not await journal.renew(first)
        assert not await journal.end(first, "mine", is_final=True)
        assert not await journal.release(first)
        assert await other.write(second, ["l"])
        await other.release(second)
        assert (await journal.open("k", "h")).lines == ("late, but nobody else is there", "l")

    through(make, scenario)


def test_leases_are_as_long_as_is_said_and_those_of_other_tenants_apart(make, clock):
    async def scenario(store):
        short = journal_of(store, lease_ms=100)
        assert short.lease_ms == 100
        await short.open("k", "h")
        assert not (await journal_of(store, tenant="other").open("k", "theirs")).is_takeover
        assert (await journal_of(store, app="bot").open("k", "bot's")).head == "bot's"
        clock.moved_ms += 101
        assert (await short.open("k", "h")).is_takeover
        for wrong in ({"tenant": "\0"}, {"app": None}, {"lease_ms": 0}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                journal_of(store, **wrong)
        with pytest.raises(ValueError, match="key"):
            await short.open("\0", "h")

    through(make, scenario)


def test_purging_deletes_what_nobody_has_and_nobody_has_changed(make, clock):
    async def scenario(store):
        journal = journal_of(store, lease_ms=7_200_000)
        record = await store.put(paused("a"))
        kinds = {one: await journal.open(one, "h") for one in ("ended", "paused", "released", "abandoned", "held")}
        for opened in kinds.values():
            await journal.write(opened, ["l"])
        await journal.end(kinds["ended"], "v", is_final=True)
        await journal.end(kinds["paused"], "i", is_final=False)
        await journal.release(kinds["released"])
        clock.moved_ms += 3_600_000
        await journal.renew(kinds["held"])
        late = await journal.open("late", "h")
        await journal.end(late, "v", is_final=True)
        clock.moved_ms += 3_700_000
        await store.purge(timedelta(hours=2))
        assert (await rows(store, "journals"), await rows(store)) == (2, 1)
        assert (await journal.open("late", "h")).outcome == "v"
        assert (await store.record(record, tenant=ALL_TENANTS)).state == "pending"
        # Made anew: who had it before it was purged must not find itself in it.
        anew = await journal.open("abandoned", "new")
        assert (anew.head, anew.lines) == ("new", ())
        assert not await journal.write(kinds["abandoned"], ["from another time"])
        assert await journal.write(kinds["held"], ["l"])

    through(make, scenario)


def test_in_memory_old_journals_go_with_the_next_pause(clock):
    async def scenario():
        store = MemoryInterruptStore(clock=clock)
        journal = journal_of(store)
        assert not journal.is_shared_between_processes
        await journal.end(await journal.open("k", "h"), "v", is_final=True)
        clock.moved_ms += 3_700_000
        await store.put(paused("a"))
        assert await rows(store, "journals") == 0

    within(scenario())


def test_whoever_is_cancelled_leaves_nothing_taken(make, monkeypatch):
    async def scenario(store):
        journal = journal_of(store)
        opened = await journal.open("k", "h")
        for key in ("k", "new"):
            waiting = asyncio.create_task(journal_of(make()).open(key, "h"))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            if not waiting.cancelled():  # it was quicker
                await journal.release(waiting.result())
        await journal.release(opened)
        for key in ("k", "new"):
            assert not (await journal_of(make()).open(key, "h")).is_takeover

    through(make, scenario)


COMMANDS = st.lists(
    st.tuples(
        st.sampled_from(["open", "again", "write", "write", "renew", "pause", "finish", "release", "wait"]),
        st.integers(0, 3),
    ),
    max_size=30,
)


class BothClocks(Clock):
    def monotonic_seconds(self):
        return self.moved_ms / 1000

    def now_ms(self):
        return 10**12 + self.moved_ms


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_it_does_what_a_journal_in_memory_does(kind, tmp_path):
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(COMMANDS)
    def scenario(commands):
        clock = BothClocks()
        path = tmp_path / secrets.token_hex(6)
        store = SqliteInterruptStore(path, clock=clock) if kind == "sqlite" else MemoryInterruptStore(clock=clock)
        within(played(store, MemoryJournal(clock=clock), clock, commands))

    scenario()


async def played(store, model, clock, commands):
    async with store:
        journal, taken = journal_of(store), []
        for number, (command, which) in enumerate(commands):
            if command == "wait":
                clock.moved_ms += which * 11_000
            elif command in ("open", "again"):
                kept = model._rows.get("k")
                if kept is not None and kept.lease_until is not None and kept.lease_until > clock.monotonic_seconds():
                    continue  # it would wait
                pair = [await one.open("k", f"{number}", again=command == "again") for one in (journal, model)]
                said = [(one.head, one.lines, one.outcome, one.is_takeover, bool(one.number)) for one in pair]
                assert said[0] == said[1]
                taken.append(pair)
            elif taken:
                pair = taken[-1 - min(which, len(taken) - 1)]
                done = [await _done(one, command, opened) for one, opened in zip((journal, model), pair, strict=True)]
                assert done[0] == done[1]


async def _done(journal, command, opened):
    if command == "write":
        return await journal.write(opened, [f"{len(opened.lines)}", "x"])
    if command in ("pause", "finish"):
        return await journal.end(opened, command, is_final=command == "finish")
    return await getattr(journal, command)(opened)


@contextmanager
def child(kind, where, key):
    command = [sys.executable, str(SUPPORT / "journal_host.py"), kind, where, key]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=SUPPORT)
    try:
        yield process
    finally:
        process.kill()
        process.wait(60)
        process.stdin.close()
        process.stdout.close()


def where_of(kind, make, tmp_path):
    return str(tmp_path / "pauses.sqlite") if kind == "sqlite" else make()._database._dsn


def told(process, count):
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    return process


def test_a_process_that_is_killed_while_it_writes_loses_no_line(kind, make, clock, tmp_path):
    if kind == "memory":
        pytest.skip("the memory store is per process")
    before = []
    for killed_after in (1, 40, 400):
        with child(kind, where_of(kind, make, tmp_path), "k") as process:
            assert json.loads(process.stdout.readline()) == ["head of the child", before, False]
            told(process, 100_000)
            assert all(json.loads(process.stdout.readline())[1] for _ in range(killed_after))
        # It was in the middle of one of its next lines.
        clock.moved_ms += LAPSED_MS

        async def scenario(store):
            opened = await journal_of(store).open("k", "mine")
            assert opened.is_takeover
            await journal_of(store).release(opened)
            return list(opened.lines)

        found = through(make, scenario)
        assert found[: len(before)] == before
        news = found[len(before) :]
        assert len(news) >= killed_after
        assert news == [f"100000-{number}" for number in range(len(news))]
        before = found


def test_a_process_that_stood_still_is_told_that_it_is_somebody_elses(kind, make, clock, tmp_path):
    if kind == "memory":
        pytest.skip("the memory store is per process")

    async def scenario(store):
        journal = journal_of(store)
        clock.moved_ms += LAPSED_MS
        opened = await journal.open("k", "mine")
        assert opened.lines == ("2-0", "2-1")
        assert opened.is_takeover
        told(process, 1)
        assert json.loads(process.stdout.readline()) == ["1-0", False]
        assert await journal.write(opened, ["mine"])
        await journal.release(opened)
        assert (await journal.open("k", "")).lines == ("2-0", "2-1", "mine")

    with child(kind, where_of(kind, make, tmp_path), "k") as process:
        assert json.loads(process.stdout.readline()) == ["head of the child", [], False]
        told(process, 2)
        assert [json.loads(process.stdout.readline())[1] for _ in range(2)] == [True, True]
        through(make, scenario)


def test_a_database_that_is_away_is_told_of_and_begins_nothing(kind, make, monkeypatch, request):
    if kind != "postgres":
        pytest.skip("this journal has no server")
    from codemode.stores import postgres

    def let_connect(store, *, is_open):
        import psycopg

        name = store._database._dsn.rpartition("=")[2]
        with psycopg.connect(
            dsn_of(request.getfixturevalue("postgres_folder"), "postgres"), autocommit=True
        ) as connection:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS {is_open}')
            if not is_open:
                ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                connection.execute(ended, (name,)).fetchall()

    async def scenario(store):
        journal = journal_of(store)
        opened = await journal.open("k", "h")
        assert await journal.write(opened, ["before"])
        await asyncio.to_thread(let_connect, store, is_open=False)
        monkeypatch.setattr(postgres, "_CONNECT_TIMEOUT_SECONDS", 0.5)
        for work in (
            lambda: journal.write(opened, ["lost"]),
            lambda: journal.renew(opened),
            lambda: journal.end(opened, "v", is_final=True),
            lambda: journal.open("another", "h"),
        ):
            with pytest.raises(StoreUnavailableError):
                await work()
        await asyncio.to_thread(let_connect, store, is_open=True)
        monkeypatch.setattr(postgres, "_CONNECT_TIMEOUT_SECONDS", 60.0)
        other = make()
        assert await journal_of(other).write(opened, ["after"])
        await journal_of(other).release(opened)
        assert (await journal_of(other).open("k", "")).lines == ("before", "after")
        await other.aclose()

    through(make, scenario)
