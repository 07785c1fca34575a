"""Runs in a store: another process goes on with what rests, or was decided, and nothing runs twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from calls import with_call
from pausing import OK, Spy
from resting_surface import Slow
from stored_pauses import Clock
from suite import full_only
from waiting import until

from codemode import CallContext, Interrupt, Tool
from codemode.stores import ALL_TENANTS, MemoryInterruptStore, Resumer, SqliteInterruptStore
from codemode.surfaces.exec_wait import stored_runs as stored_module
from codemode.surfaces.exec_wait.exec_wait_tools import ExecWaitTools, create_exec_wait_tools
from codemode.surfaces.exec_wait.options import InvalidConfigError

SCOPE = "a conversation"
KEYED = {"continuation": {"keys": "a key of this test"}}
YIELDING = (
    "text('a'); const one = await tools.quick(1); await yield_control(); text('b'); return [one, await tools.quick(2)]"
)
PAYING = "text('a'); const paid = await tools.pay({n: 1}); await yield_control(); text('b'); return paid"


@pytest.fixture(params=["sqlite", *full_only("memory")])
def store(request, tmp_path) -> Any:
    return MemoryInterruptStore() if request.param == "memory" else SqliteInterruptStore(tmp_path / "runs.db")


@pytest.fixture(params=[0, *full_only(4)], ids=["cold", "warm"])
def options(request) -> dict[str, Any]:
    return {"maxWarmRuns": request.param, "waitTimeoutMs": 20_000}


class Processes:
    """Pairs over one store, each as another process would have it."""

    def __init__(self, store: Any, pool: Any, options: dict[str, Any], *tools: Any) -> None:
        self._store, self._pool, self._options, self._tools = store, pool, options, tools
        self._made: list[ExecWaitTools] = []

    def pair(self, *tools: Any, **more: Any) -> ExecWaitTools:
        made = create_exec_wait_tools(
            [*(tools or self._tools)], {**self._options, **more}, settings=KEYED, pool=self._pool, store=self._store
        )
        self._made.append(made)
        return made

    async def closed(self, work: Any) -> Any:
        try:
            return await work
        finally:
            for one in self._made:
                await one.aclose()
            await self._store.aclose()


async def run(pair: ExecWaitTools, code: str, **more: Any) -> Any:
    return await pair.exec.execute({"code": code}, **with_call(more, conversation_id=SCOPE))


async def wait(pair: ExecWaitTools, result: Any, **more: Any) -> Any:
    return await pair.wait.execute({"runId": result["runId"]}, **with_call(more, conversation_id=SCOPE))


def quick(spy: Spy) -> Tool:
    return spy.tool("quick", lambda value, _: value)


def pay(spy: Spy) -> Tool:
    return spy.tool("pay", lambda value, _: value, needs_approval=True)


async def decided(store: Any) -> str:
    """Approve what waits, and return the id of its record."""
    (record,) = (await store.list(tenant=ALL_TENANTS, state="pending")).records
    asked = {one.interrupt_id: OK for one in record.requests if one.state == "waiting"}
    await store.decide(asked, actor="ana", tenant=ALL_TENANTS)
    return record.id


def test_a_run_outlives_the_pair_that_began_it(within, pool, store, options):
    spy = Spy()
    processes = Processes(store, pool, options, quick(spy))

    async def main():
        first = processes.pair()
        result = await run(first, YIELDING)
        await first.aclose()
        return result, await wait(processes.pair(), result)

    result, last = within(processes.closed(main()))
    assert (result["status"], result["reason"], result["output"]) == (
        "waiting",
        "yield",
        [{"type": "text", "text": "a"}],
    )
    assert (last["status"], last["value"], last["output"]) == ("completed", [1, 2], [{"type": "text", "text": "b"}])
    assert len(spy.ran) == 2


def test_while_its_owner_lives_others_wait_and_get_what_it_comes_to(within, pool, store, options):
    spy = Spy()
    processes = Processes(store, pool, options, quick(spy))

    async def main():
        first, second = processes.pair(), processes.pair(waitTimeoutMs=100)
        result = await run(first, YIELDING)
        early = await wait(second, result)
        last = await wait(first, result)
        return result, early, last, await wait(second, result)

    result, early, last, told = within(processes.closed(main()))
    assert (early["status"], early["runId"], "output" in early) == ("waiting", result["runId"], False)
    assert last["value"] == [1, 2]
    assert told == last
    assert len(spy.ran) == 2


def test_another_scope_finds_nothing(within, pool, store, options):
    processes = Processes(store, pool, options, quick(Spy()))

    async def main():
        first = processes.pair()
        result = await run(first, YIELDING)
        await first.aclose()
        unknown = {"runId": "run_" + "0" * 32}
        return await wait(processes.pair(), result, conversation_id="another"), await wait(processes.pair(), unknown)

    for result in within(processes.closed(main())):
        assert result["code"] == "invalid_input"


@pytest.mark.parametrize("is_waited_for", [False, True])
def test_an_owner_that_has_lost_its_lease_ends_its_run_and_asks_as_any_other(
    within, pool, options, tmp_path, monkeypatch, is_waited_for, model_waits
):
    monkeypatch.setattr(stored_module, "LEASE_MS", 60)
    clock, slow, again, asked, may_renew = Clock(), Slow(), Slow(), asyncio.Event(), asyncio.Event()
    first_store, second_store = (SqliteInterruptStore(tmp_path / "one.db", clock=clock) for _ in range(2))
    renew = first_store.renew

    async def late(lease: Any) -> bool:
        asked.set()
        await may_renew.wait()
        return await renew(lease)

    async def main():
        more = {"settings": KEYED, "pool": pool}
        first = create_exec_wait_tools([slow.tool], options, store=first_store, **more)
        monkeypatch.setattr(first_store, "renew", late)
        result = await model_waits.left(run(first, "return await tools.slow(1)"), lambda: slow.calls)
        await asked.wait()
        monkeypatch.setattr(stored_module, "LEASE_MS", 30_000)
        waiting = asyncio.ensure_future(wait(first, result)) if is_waited_for else None
        clock.moved_ms += 31_000
        other = create_exec_wait_tools([again.tool], options, store=second_store, **more)
        parked = await wait(other, result)
        assert isinstance(parked, Interrupt)
        may_renew.set()
        await until(lambda: slow.cancelled)
        told = None if waiting is None else await waiting
        await until(lambda: not first.runs(SCOPE))
        last = await other.resume(parked, {"value": "paid"}, call=CallContext(conversation_id=SCOPE))
        elsewhere = await wait(first, result)
        for one in (first, other):
            await one.aclose()
        for one in (first_store, second_store):
            await one.aclose()
        return told, last, elsewhere

    told, last, elsewhere = within(main())
    assert last["value"] == elsewhere["value"] == "paid"
    assert told is None or told["status"] in ("waiting", "failed")
    assert (slow.calls, again.calls) == ([1], [])


@pytest.mark.parametrize("hint", [None, "readOnlyHint", "idempotentHint"])
def test_a_call_of_unknown_outcome_is_asked_about_unless_it_may_run_again(
    within, pool, store, options, hint, model_waits
):
    slow, again = (Slow(annotations={hint: True} if hint else {}) for _ in range(2))
    processes = Processes(store, pool, options, slow.tool)

    async def main():
        first = processes.pair()
        result = await model_waits.left(run(first, "return await tools.slow(1)"), lambda: slow.calls)
        await first.aclose()
        other = processes.pair(again.tool)
        going_on = asyncio.ensure_future(wait(other, result))
        if hint:
            await until(lambda: again.calls)
            again.end(1)
        return await going_on

    last = within(processes.closed(main()))
    if hint:
        assert (last["value"], slow.calls, again.calls) == (1, [1], [1])
    else:
        assert isinstance(last, Interrupt)
        assert (slow.calls, again.calls) == ([1], [])


def test_another_catalog_does_not_go_on_with_a_run(within, pool, store, options):
    processes = Processes(store, pool, options)

    async def main():
        first = processes.pair(quick(Spy()))
        result = await run(first, YIELDING)
        await first.aclose()
        return await wait(processes.pair(quick(Spy()), Tool("other", execute=lambda value, _: value)), result)

    last = within(processes.closed(main()))
    assert (last["code"], "catalog has changed" in last["error"]) == ("snapshot_restore_failed", True)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_parked_program_goes_on_once_a_person_has_decided(within, pool, store, options, is_elsewhere):
    spy = Spy()
    processes = Processes(store, pool, {**options, "approvals": "park"}, pay(spy))

    async def main():
        first = processes.pair()
        result = await run(first, PAYING)
        again = await wait(first, result)
        assert (pool.active, spy.ran) == (0, [])
        await decided(store)
        pair = processes.pair() if is_elsewhere else first
        rest = await wait(pair, result)
        return result, again, rest, await wait(pair, rest)

    result, again, rest, last = within(processes.closed(main()))
    for one in (result, again):
        assert (one["status"], one["runId"]) == ("waiting", result["runId"])
        assert [(call["tool"], call["status"]) for call in one["pendingToolCalls"]] == [("host:core:pay", "approval")]
        assert "person" in one["note"]
    assert again["pendingToolCalls"] == result["pendingToolCalls"]
    assert result["output"] == [{"type": "text", "text": "a"}]
    assert (rest["status"], rest["runId"], "output" in rest) == ("waiting", result["runId"], False)
    assert (last["value"], last["output"]) == ({"n": 1}, [{"type": "text", "text": "b"}])
    assert len(spy.ran) == 1


def test_a_resumer_goes_on_and_wait_gets_what_it_comes_to(within, pool, store, options):
    spy = Spy()
    processes = Processes(store, pool, {**options, "approvals": "park"}, pay(spy))

    async def main():
        first, other = processes.pair(), processes.pair()
        result = await run(first, PAYING)
        record_id = await decided(store)
        async with Resumer(store, tenant=ALL_TENANTS, resume=other.resume):
            await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=60_000)
        return await wait(first, result)

    last = within(processes.closed(main()))
    assert (last["status"], last["value"], last["output"]) == ("completed", {"n": 1}, [{"type": "text", "text": "b"}])
    assert len(spy.ran) == 1


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_sealed_run_leaves_nothing_to_read_in_the_store(within, pool, tmp_path, is_sealed):
    spy, path = Spy(), tmp_path / "runs.db"
    settings = {"continuation": {"keys": "a key of this test", "seal": is_sealed}}
    code = "const got = await tools.quick('a secret'); await yield_control(); return got.length"

    async def main():
        async with SqliteInterruptStore(path) as store:
            pairs = [create_exec_wait_tools([quick(spy)], settings=settings, pool=pool, store=store) for _ in range(2)]
            result = await run(pairs[0], code)
            kept = b"".join(one.read_bytes() for one in tmp_path.iterdir())
            await pairs[0].aclose()
            last = await wait(pairs[1], result)
            await pairs[1].aclose()
            return kept, last

    kept, last = within(main())
    assert (b"a secret" in kept) is not is_sealed
    assert (last["value"], len(spy.ran)) == (8, 1)


def test_what_would_not_hold_is_refused(store):
    with pytest.raises(InvalidConfigError, match="park"):
        create_exec_wait_tools([], {"approvals": "park"})
    with pytest.raises(InvalidConfigError, match="keys"):
        create_exec_wait_tools([], store=store)
    with pytest.raises(InvalidConfigError, match="timeout_includes_tools"):
        create_exec_wait_tools([], settings={"execution_policy": {"timeout_includes_tools": True}})
