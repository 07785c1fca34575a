"""Places, workers and loops of the pair: a run that waits delays nobody, loses nothing, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from exec_wait_world import KEYED, SCOPE, Shop, pair_of, run, wait
from resting_surface import Slow
from stored_pauses import Clock
from suite import full_only, rounds
from waiting import until

from codemode import CallContext, Tool
from codemode.stores import MemoryInterruptStore, SqliteInterruptStore
from codemode.surfaces.exec_wait.exec_wait_tools import ExecWaitTools, create_exec_wait_tools

LEASE_MS = 31_000
YIELDING = "await yield_control(); return %d"

CALL = CallContext(conversation_id=SCOPE)


@pytest.fixture(params=[0, *full_only(64)])
def warm(request) -> dict[str, Any]:
    return {"maxWarmRuns": request.param}


async def ended(pair: ExecWaitTools, result: Any) -> Any:
    """What wait gives in the end, asked again while there is no worker or another wait is on the run."""
    async with asyncio.timeout(60):
        while True:
            told = await wait(pair, result)
            is_busy = told.get("code") == "runtime_unavailable" or "another wait has" in told.get("error", "")
            if not is_busy:
                return told
            await asyncio.sleep(0)


@pytest.mark.parametrize("max_workers", [1, 2])
def test_programs_that_wait_delay_no_other_one_by_a_slot(within, make_pool, warm, max_workers):
    pool = make_pool(max_workers=max_workers)  # which refuses at once where it is full
    pair = create_exec_wait_tools([], warm, pool=pool)

    async def main():
        resting = [await run(pair, YIELDING % at) for at in range(4)]
        for _ in range(2):
            several = await asyncio.gather(*(run(pair, f"return {at}") for at in range(max_workers)))
            assert [one.get("value") for one in several] == [*range(max_workers)], several
        values = [(await wait(pair, one))["value"] for one in resting]
        await pair.aclose()
        return values

    assert within(main()) == [0, 1, 2, 3]
    assert pool.active == 0


@pytest.mark.full
def test_many_waits_at_a_time_on_a_full_pair_lose_nothing(within, make_pool, warm):
    places = {"maxWaitingRuns": 64, "maxWaitingRunsPerConversation": 64}
    pair = create_exec_wait_tools([], {**warm, **places}, pool=make_pool(max_workers=2))

    async def main():
        results = [await run(pair, f"text({at}); {YIELDING % at}") for at in range(64)]
        assert (await run(pair, "return 1"))["code"] == "runtime_unavailable"
        told = await asyncio.gather(*(ended(pair, results[at % 64]) for at in range(rounds(80, 200))))
        free = [await run(pair, YIELDING % at) for at in range(64)]
        await pair.aclose()
        return told, free

    told, free = within(main())
    assert sorted(one["value"] for one in told if one["status"] == "completed") == [*range(64)]
    assert {one["code"] for one in told if one["status"] != "completed"} == {"invalid_input"}  # it has ended
    assert {one["status"] for one in free} == {"waiting"}


def test_a_run_that_nobody_comes_back_for_is_ended_by_a_timer_and_its_place_is_free(
    within, make_pool, warm, monkeypatch
):
    monkeypatch.setattr(
        "codemode.surfaces.exec_wait.run_registry.monotonic_seconds", float
    )  # what has ended is not forgotten
    slow, pool = Slow(), make_pool(max_workers=2)
    options = {**warm, "maxWaitingRuns": 1, "snapshotTtlSeconds": 1, "waitTimeoutMs": 100}
    pair = create_exec_wait_tools([slow.tool], options, pool=pool)

    async def main():
        result = await run(pair, "return await tools.slow(1)")
        await until(lambda: slow.cancelled)
        await until(lambda: [one.state for one in pair.runs(SCOPE)] == ["expired"])
        next_one = await run(pair, "return 1")
        told = await wait(pair, result)
        await pair.aclose()
        return told, next_one

    told, next_one = within(main())
    assert (told["code"], next_one["value"], pool.active) == ("snapshot_expired", 1, 0)


@pytest.mark.parametrize("kind", ["sqlite", *full_only("none", "memory")])
def test_nothing_at_all_is_left_after_aclose(within, make_pool, warm, kind, tmp_path, leaves_nothing, model_waits):
    slow, pool = Slow(), make_pool(max_workers=3)
    stores = {
        "none": lambda: None,
        "memory": MemoryInterruptStore,
        "sqlite": lambda: SqliteInterruptStore(tmp_path / "s"),
    }

    async def main():
        store = stores[kind]()
        loop, tasks, threads = asyncio.get_running_loop(), asyncio.all_tasks(), {*threading.enumerate()}
        timers = [*loop._scheduled]  # how long the test may take
        refund = Shop(tmp_path / "notes").tools()[-1]
        options = {**warm, "waitTimeoutMs": 20_000, **({} if store is None else {"approvals": "park"})}
        settings = {} if store is None else KEYED
        pair = create_exec_wait_tools([slow.tool, refund], options, settings=settings, pool=pool, store=store)
        for at in range(3):
            await model_waits.left(run(pair, f"return await tools.slow({at})"), lambda at=at: at in slow.calls)
        await run(pair, "await yield_control()")
        await run(pair, "return await tools.refund(1)")
        under_way = asyncio.ensure_future(run(pair, "setTimeout(() => {}, 100_000); return await tools.slow(9)"))
        await until(lambda: 9 in slow.calls)
        await asyncio.to_thread(
            pair.exec.execute_sync, {"code": "await yield_control()"}, CallContext(conversation_id=SCOPE)
        )
        await pair.aclose()
        assert (await under_way)["code"] == "aborted"
        if store is not None:
            await store.aclose()
        await until(lambda: not asyncio.all_tasks() - tasks)
        left = {one.name for one in {*threading.enumerate()} - threads if one.name.startswith("codemode")}
        assert left <= {"codemode-start", "codemode-close", "codemode-store", "codemode-journal"}  # which end when idle
        pool.close()
        return [one for one in loop._scheduled if not one.cancelled() and one not in timers]

    assert within(main()) == []
    assert (pool.active, sorted(slow.cancelled)) == (0, [0, 1, 2, 9])


def test_threads_and_loops_share_a_pair(within, make_pool, warm):
    slow = Slow()
    pair = create_exec_wait_tools(
        [slow.tool], {**warm, "waitTimeoutMs": 300}, pool=make_pool(max_workers=2, on_saturation="wait")
    )

    def in_thread(at: int) -> Any:
        first = pair.exec.execute_sync(
            {"code": f"await yield_control(); return {at}"}, call=CallContext(conversation_id=SCOPE)
        )
        return pair.wait.execute_sync({"runId": first["runId"]}, call=CALL)["value"]

    async def main():
        rest = await run(pair, "return await tools.slow(1)")
        values = await asyncio.gather(*(asyncio.to_thread(in_thread, at) for at in range(6)))
        # a run of the loop that sync callers share, gone on with from here, and one of here from a thread
        of_thread = await asyncio.to_thread(
            pair.exec.execute_sync, {"code": YIELDING % 7}, CallContext(conversation_id=SCOPE)
        )
        here = await wait(pair, of_thread)
        slow.end(1)
        there = await asyncio.to_thread(lambda: asyncio.run(wait(pair, rest)))
        await pair.aclose()
        return values, here["value"], there["value"]

    assert within(main()) == ([*range(6)], 7, 1)


def test_who_is_cancelled_while_it_takes_a_run_over_leaves_it_to_be_gone_on_with(within, make_pool, warm, tmp_path):
    clock, notes = Clock(), tmp_path / "notes"
    store, pool = MemoryInterruptStore(clock=clock), make_pool(max_workers=2)
    code = "await yield_control(); await tools.pay(1); return await tools.look(2)"

    async def main():
        first = pair_of(Shop(notes), store, pool, **warm)
        result = await run(first, code)
        await first.aclose()
        began = asyncio.Event()
        second = pair_of(Shop(notes, ("look",), lambda call: "look" in call and began.set()), store, pool, **warm)
        taking = asyncio.ensure_future(wait(second, result))
        await began.wait()
        taking.cancel()
        await asyncio.wait([taking])
        clock.moved_ms += LEASE_MS
        third = pair_of(Shop(notes), store, pool, **warm)
        last = await wait(third, result)
        for one in (second, third):
            await one.aclose()
        return last

    assert within(main()).get("value") == "look 2"
    assert sorted(notes.read_text().splitlines()) == ["look 2", "look 2", "pay 1"]


def test_hosts_with_one_worker_each_do_not_wait_for_one_another(within, make_pool, warm, tmp_path):
    """Each has the journal for which the other one waits, and needs its only worker to go on."""
    store, pools = MemoryInterruptStore(), [make_pool(max_workers=1, on_saturation="wait") for _ in range(2)]
    options = {**warm, "waitTimeoutMs": 120_000}
    pairs = [pair_of(Shop(tmp_path / "notes"), store, pool, **options) for pool in pools]
    codes = [f"const one = await tools.pay({at}); await yield_control(); return one" for at in range(2)]

    async def main():
        rests = [await run(pairs[at], codes[at], tool_call_id=f"call_{at}") for at in range(2)]
        again = [asyncio.ensure_future(run(pairs[1 - at], codes[at], tool_call_id=f"call_{at}")) for at in range(2)]
        await until(lambda: [pool.active for pool in pools] == [1, 1])  # the workers of those that wait for a journal
        async with asyncio.timeout(60):
            lasts = [await wait(pairs[at], rests[at]) for at in range(2)]
        told = await asyncio.gather(*again)
        for one in pairs:
            await one.aclose()
        return lasts, told

    lasts, told = within(main())
    assert [one["value"] for one in lasts] == [one["value"] for one in told] == ["pay 0", "pay 1"]
    assert sorted((tmp_path / "notes").read_text().splitlines()) == ["pay 0", "pay 1"]


@pytest.mark.full
def test_aborted_runs_of_one_scope_leave_their_places_free(within, make_pool, warm):
    pool = make_pool(max_workers=2, on_saturation="wait")
    pair = create_exec_wait_tools([], {**warm, "maxWaitingRunsPerConversation": 64}, pool=pool)

    async def main():
        counts: list[int] = []
        for _ in range(2):
            results = [await run(pair, YIELDING % at) for at in range(64)]
            assert {one["status"] for one in results} == {"waiting"}
            assert (await run(pair, "return 1"))["code"] == "runtime_unavailable"
            counts.append(await pair.abort(conversation_id=SCOPE))
        last = await run(pair, "return 1")
        await pair.aclose()
        return counts, last

    counts, last = within(main())
    assert (counts, last["value"], pool.active) == ([64, 64], 1, 0)


def test_so_many_runs_keep_their_worker_and_no_more(within, make_pool):
    pool = make_pool(max_workers=6)
    pair = create_exec_wait_tools([], {"maxWarmRuns": 2}, pool=pool)

    async def main():
        for at in range(4):
            await run(pair, YIELDING % at)
        warm = [one.warm for one in pair.runs(SCOPE)]
        await pair.aclose()
        return warm

    assert sum(within(main())) == 2
    assert pair.telemetry["evictions"] == 2


def test_a_worker_is_kept_for_a_while_at_the_most(within, make_pool, monkeypatch):
    monkeypatch.setattr("codemode.surfaces.exec_wait.run_registry.WARM_SECONDS", 12_345)
    pair = create_exec_wait_tools([], pool=make_pool(max_workers=2))

    async def main():
        loop, ringing = asyncio.get_running_loop(), []
        later = loop.call_later

        def noted(seconds, *work):
            if seconds == 12_345:
                ringing.append(work)
            return later(seconds, *work)

        monkeypatch.setattr(loop, "call_later", noted)
        resting = await run(pair, YIELDING % 7)
        was_warm = [one.warm for one in pair.runs(SCOPE)]
        ((ring, *given),) = ringing
        ring(*given)  # as the timer does
        await until(lambda: pair.telemetry["evictions"] == 1)
        is_warm = [one.warm for one in pair.runs(SCOPE)]
        value = (await wait(pair, resting))["value"]
        await pair.aclose()
        return was_warm, is_warm, value

    assert within(main()) == ([True], [False], 7)


def test_a_cancelled_exec_gives_its_place_back_and_a_cancelled_wait_keeps_its_own(within, make_pool, warm, model_waits):
    slow, pool = Slow(), make_pool(max_workers=2)
    pair = create_exec_wait_tools([slow.tool], {**warm, "maxWaitingRuns": 1, "waitTimeoutMs": 20_000}, pool=pool)

    async def main():
        first = asyncio.ensure_future(run(pair, "return await tools.slow(1)"))
        await until(lambda: slow.calls)
        first.cancel()
        await asyncio.wait([first])
        assert (first.cancelled(), pair.runs(SCOPE), slow.cancelled) == (True, (), [1])
        rest = await model_waits.left(run(pair, "return await tools.slow(2)"), lambda: 2 in slow.calls)
        second = asyncio.ensure_future(wait(pair, rest))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        slow.end(2)
        result = await wait(pair, rest)
        await pair.aclose()
        return result

    assert within(main())["value"] == 2


def test_a_wait_may_come_from_another_loop_and_a_loop_that_has_ended_is_as_dead(within, make_pool, warm):
    slow, pool = Slow(), make_pool(max_workers=2)
    pair = create_exec_wait_tools([slow.tool], {**warm, "waitTimeoutMs": 200}, pool=pool)

    async def main():
        rest = await run(pair, "return await tools.slow(1)")
        slow.end(1)
        found: list[Any] = []
        other = threading.Thread(target=lambda: found.append(asyncio.run(wait(pair, rest))))
        other.start()
        await until(lambda: found)
        other.join()
        return found[0], await run(pair, "await yield_control()")

    last, lost = within(main())
    assert last["value"] == 1

    async def afterwards():
        result = await wait(pair, lost)
        await pair.aclose()
        return result

    assert within(afterwards())["code"] == "aborted"


def test_the_same_call_repeated_runs_once(within, make_pool, warm):
    slow, pool = Slow(), make_pool(max_workers=2)
    pair = create_exec_wait_tools([slow.tool], {**warm, "waitTimeoutMs": 20_000}, pool=pool)

    async def main():
        calls = [asyncio.ensure_future(run(pair, "return await tools.slow(1)", tool_call_id="c")) for _ in range(3)]
        await until(lambda: slow.calls)
        slow.end(1)
        results = await asyncio.gather(*calls)
        rest = await run(pair, "await yield_control(); return 2")
        twice = [await wait(pair, rest, tool_call_id="w") for _ in range(2)]
        await pair.aclose()
        return results, twice

    results, twice = within(main())
    assert [one["value"] for one in (*results, *twice)] == [1, 1, 1, 2, 2]
    assert slow.calls == [1]


def test_a_store_that_fails_as_a_pair_is_closed_keeps_nothing_alive(within, make_pool, warm, monkeypatch, model_waits):
    slow, pool, store = Slow(), make_pool(max_workers=2), MemoryInterruptStore()
    pair = create_exec_wait_tools(
        [slow.tool], {**warm, "waitTimeoutMs": 20_000}, settings=KEYED, pool=pool, store=store
    )

    async def fails(*_: Any, **__: Any) -> None:
        raise OSError("away")

    async def main():
        before = asyncio.all_tasks()
        for at in range(3):
            await model_waits.left(run(pair, f"return await tools.slow({at})"), lambda at=at: at in slow.calls)
        await asyncio.to_thread(
            pair.exec.execute_sync, {"code": "await yield_control()"}, CallContext(conversation_id=SCOPE)
        )
        monkeypatch.setattr(store, "release", fails)
        with pytest.raises(OSError, match="away"):
            await pair.aclose()
        await until(lambda: not asyncio.all_tasks() - before)
        await store.aclose()

    others = set(threading.enumerate())
    within(main())
    assert (pool.active, sorted(slow.cancelled), pair._runner.runs.list_active()) == (0, [0, 1, 2], [])
    assert not [one for one in set(threading.enumerate()) - others if one.name == "codemode-exec-wait"]


def test_a_sync_call_on_the_loop_that_sync_calls_share_is_refused_and_does_not_wait_for_itself():
    raised: list[str] = []

    async def nested() -> str:
        try:
            return str(pair.exec.execute_sync({"code": "return 5"}, call=CallContext(conversation_id="x")))
        except RuntimeError as error:
            raised.append(str(error))
            raise

    pair = create_exec_wait_tools([Tool("nested", execute=nested)])
    try:
        result = pair.exec.execute_sync({"code": "return await tools.nested()"}, call=CallContext(conversation_id="s"))
    finally:
        asyncio.run(pair.aclose())
    assert result["code"] == "nested_tool_failed"
    assert [text.rpartition(": ")[2] for text in raised] == ["await execute"]
