"""Programs that wait for a person: parked in a store, or handed to the host; decided, denied, withdrawn, expired."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import Any

import pytest
from exec_wait_world import KEYED, SCOPE, run, wait
from pausing import NO, OK, Spy
from stored_pauses import Clock
from suite import full_only
from waiting import until

from codemode import CallContext, Interrupt, Tool
from codemode.stores import ALL_TENANTS, Resumer, SqliteInterruptStore
from codemode.surfaces.exec_wait import stored_runs as stored_module
from codemode.surfaces.exec_wait.exec_wait_tools import ExecWaitTools, create_exec_wait_tools

LEASE_MS = 31_000
HOUR_MS = 3_600_000
HOSTED = {**KEYED, "approval": {"mode": "interrupt"}}
PAYING = "text('a'); const paid = await tools.pay({n: 1}); await yield_control(); text('b'); return paid"
TWO = "text('a'); const all = await Promise.all([tools.pay({n: 1}), tools.pay({n: 2})]); text('b'); return all"


@pytest.fixture
def clock_and_store(tmp_path) -> Any:
    clock = Clock()
    return clock, SqliteInterruptStore(tmp_path / "runs.db", clock=clock)


@pytest.fixture(params=[0, *full_only(4)])
def world(request, clock_and_store, pool) -> World:
    return World(*clock_and_store, pool, {"maxWarmRuns": request.param, "waitTimeoutMs": 20_000})


class World:
    """Pairs over one store, each as another process would have it, and what they have executed."""

    def __init__(self, clock: Clock, store: Any, pool: Any, options: dict[str, Any]) -> None:
        self.clock, self.store, self.pool, self._options = clock, store, pool, options
        self.spy = Spy()
        self._made: list[ExecWaitTools] = []

    def pair(self, *, settings: Any = HOSTED, **options: Any) -> ExecWaitTools:
        quick = self.spy.tool("quick", lambda value, _: value)
        pay = self.spy.tool("pay", lambda value, _: value, needs_approval=True)
        given = {**self._options, "approvals": "park", **options}
        made = create_exec_wait_tools([quick, pay], given, settings=settings, pool=self.pool, store=self.store)
        self._made.append(made)
        return made

    @asynccontextmanager
    async def closing(self) -> Any:
        try:
            yield self.pair()
        finally:
            for one in self._made:
                await one.aclose()
            await self.store.aclose()

    async def pending(self) -> Any:
        (record,) = (await self.store.list(tenant=ALL_TENANTS, state="pending")).records
        return record

    async def decide(self, *answers: Any) -> str:
        """Decide of as many requests as there are answers, and return the id of the record."""
        record = await self.pending()
        asked = [one.interrupt_id for one in record.requests if one.state == "waiting"]
        await self.store.decide(dict(zip(asked, answers, strict=False)), actor="ana", tenant=ALL_TENANTS)
        return record.id

    async def state(self, run_id: str) -> str:
        return (await self.store.record(run_id.removeprefix("run_"), tenant=ALL_TENANTS)).state


def infos(pair: ExecWaitTools) -> list[tuple[Any, ...]]:
    return [(one.run_id, one.state, one.pending) for one in pair.runs(SCOPE)]


def texts(result: Any) -> list[str]:
    return [one["text"] for one in result.get("output", ())]


def test_a_parked_run_is_seen_waiting_and_has_no_worker_no_place_and_no_slot(within, world):
    async def main():
        async with world.closing() as pair:
            first = pair if pair.options.max_waiting_runs == 1 else world.pair(maxWaitingRuns=1)
            parked = await run(first, PAYING)
            assert infos(first) == [(parked["runId"], "waiting", ("host:core:pay",))]
            (info,) = first.runs(SCOPE)
            assert (info.reason, info.warm, info.expires_at_ms > 0, world.pool.active) == (
                "pending_tools",
                False,
                True,
                0,
            )
            assert (await run(first, "return 1"))["value"] == 1
            await world.decide(OK)
            rest = await wait(first, parked)
            assert (rest["runId"], rest["reason"]) == (parked["runId"], "yield")
            assert infos(first) == [(parked["runId"], "waiting", ())]
            last = await wait(first, rest)
            return last, [state for _, state, _ in infos(first)]

    last, states = within(main())
    assert (last["value"], texts(last), states) == ({"n": 1}, ["b"], ["completed"])


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_of_two_calls_that_ask_each_is_made_when_it_is_decided(within, world, is_elsewhere):
    async def main():
        async with world.closing() as pair:
            parked = await run(pair, TWO)
            assert len(parked["pendingToolCalls"]) == 2
            await world.decide(OK)
            other = world.pair() if is_elsewhere else pair
            still = await wait(other, parked)
            assert (still["status"], still["runId"], len(still["pendingToolCalls"])) == ("waiting", parked["runId"], 1)
            assert len(world.spy.ran) == 1
            await world.decide(OK)
            return texts(parked) + texts(still), await wait(pair, parked)

    written, last = within(main())
    assert (last["value"], written + texts(last)) == ([{"n": 1}, {"n": 2}], ["a", "b"])
    assert sorted(value["n"] for _, value in world.spy.ran) == [1, 2]


def test_what_was_denied_does_not_run_and_what_was_edited_runs_as_edited(within, world):
    code = (
        "const all = await Promise.allSettled([tools.pay({n: 1}), tools.pay({n: 2})]);"
        " return all.map((one) => one.value ?? one.reason.name)"
    )

    async def main():
        async with world.closing() as pair:
            parked = await run(pair, code)
            await world.decide({**NO, "reason": "no"}, {**OK, "input": {"n": 7}})
            return await wait(pair, parked)

    last = within(main())
    assert (last["value"][1], world.spy.ran) == ({"n": 7}, [("pay", {"n": 7})])
    assert isinstance(last["value"][0], str)


def test_a_denial_that_nobody_catches_ends_the_program(within, world):
    async def main():
        async with world.closing() as pair:
            parked = await run(pair, "return await tools.pay({n: 1})")
            record_id = await world.decide(NO)
            told = await wait(pair, parked)
            return (
                told,
                (await world.store.record(record_id, tenant=ALL_TENANTS)).state,
                await wait(world.pair(), parked),
            )

    told, state, again = within(main())
    assert (told["code"], state, world.spy.ran) == ("nested_tool_failed", "completed", [])
    assert again == told


def test_one_that_nobody_decides_expires(within, world):
    async def main():
        async with world.closing() as pair:
            parked = await run(pair, PAYING)
            (record,) = (await world.store.list(tenant=ALL_TENANTS)).records
            world.clock.moved_ms += record.expires_at_ms - record.created_at_ms + 1
            told = [await wait(one, parked) for one in (pair, world.pair(), pair)]
            return told, infos(pair)

    told, seen = within(main())
    assert [one["code"] for one in told] == ["snapshot_expired"] * 3
    assert ([state for _, state, _ in seen], world.spy.ran) == (["expired"], [])


def test_its_expiry_ends_it_without_anybody_asking(within, world):
    soon = {"continuation": {**KEYED["continuation"], "max_age_ms": 60}}

    async def main():
        async with world.closing():
            pair = world.pair(settings=soon)
            parked = await run(pair, PAYING)
            await until(lambda: infos(pair)[0][1] == "expired")
            async with asyncio.timeout(60):
                async for change in world.store.changes(tenant=ALL_TENANTS):
                    if change.kind == "expired":
                        break
            return await wait(pair, parked), pair.telemetry["expiries"]

    told, expiries = within(main())
    assert (told["code"], expiries, world.spy.ran) == ("snapshot_expired", 1, [])


@pytest.mark.parametrize("how", ["aborted", "aborted by its id", "withdrawn"])
def test_one_that_is_aborted_or_withdrawn_is_asked_no_more(within, world, how):
    async def main():
        async with world.closing() as pair:
            parked = await run(pair, PAYING)
            if how == "withdrawn":
                await world.store.withdraw(parked["runId"].removeprefix("run_"), actor="ana", tenant=ALL_TENANTS)
            else:
                more = {"run_id": parked["runId"]} if "id" in how else {}
                assert await pair.abort(conversation_id=SCOPE, **more) == 1
                assert await pair.abort(conversation_id=SCOPE, **more) == 0
            told = [await wait(one, parked) for one in (pair, world.pair())]
            return told, infos(pair), await world.state(parked["runId"])

    told, seen, state = within(main())
    assert [one["code"] for one in told] == ["aborted", "aborted"]
    assert ([one[1] for one in seen], state, world.spy.ran) == (["aborted"], "withdrawn", [])


def test_closing_the_pair_leaves_what_waits_for_a_person_to_others(within, world):
    async def main():
        async with world.closing() as pair:
            parked = await run(pair, "return await tools.pay({n: 1})")
            await pair.aclose()
            assert pair.runs(SCOPE) == ()
            await world.decide(OK)
            return await wait(world.pair(), parked)

    assert within(main())["value"] == {"n": 1}


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_resumer_and_a_wait_that_race_run_it_once(within, world, is_elsewhere):
    async def main():
        async with world.closing() as pair:
            parked = await run(
                pair, "text('a'); const one = await tools.pay({n: 1}); text('b'); return [one, await tools.quick(2)]"
            )
            resuming = world.pair() if is_elsewhere else pair
            async with Resumer(world.store, tenant=ALL_TENANTS, resume=resuming.resume):
                await world.decide(OK)
                told = await asyncio.gather(*(until_ended(one, parked) for one in (pair, world.pair(), pair)))
            return told, world.pool.active

    told, active = within(main())
    assert [(one["value"], texts(one)) for one in told] == [([{"n": 1}, 2], ["b"])] * 3
    assert (len(world.spy.ran), active) == (2, 0)


async def until_ended(pair: ExecWaitTools, result: Any) -> Any:
    async with asyncio.timeout(60):
        while True:
            told = await wait(pair, result)
            assert told["status"] in ("waiting", "completed"), told
            if told["status"] == "completed":
                return told
            await asyncio.sleep(0)


def test_a_resumer_goes_through_rests_and_what_is_written_before_it_asks_again_is_not_lost(within, world):
    code = (
        "text('a'); await tools.pay({n: 1}); text('b'); await yield_control();"
        " text('c'); await tools.pay({n: 2}); text('d')"
    )

    async def main():
        async with world.closing() as pair:
            parked = await run(pair, code)
            resuming = world.pair()
            async with Resumer(world.store, tenant=ALL_TENANTS, resume=resuming.resume):
                record_id = await world.decide(OK)
                await version(world.store, record_id, 2)
                assert infos(resuming) == [(parked["runId"], "waiting", ("host:core:pay",))]
                await world.decide(OK)
                await world.store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=60_000)
            return await wait(pair, parked), infos(resuming)

    last, seen = within(main())
    assert (last["status"], texts(last), len(world.spy.ran)) == ("completed", ["b", "c", "d"], 2)
    assert [state for _, state, _ in seen] == ["completed"]


async def version(store: Any, record_id: str, number: int) -> None:
    """Wait until a record has come to ask for the so many-th time."""
    changes = store.changes(tenant=ALL_TENANTS)
    async with asyncio.timeout(60):
        while (await store.record(record_id, tenant=ALL_TENANTS)).version < number:
            await anext(changes)
    await changes.aclose()


def test_a_resumer_that_is_closed_with_its_pair_lets_others_go_on(within, world):
    began, ends = asyncio.Event(), asyncio.Event()

    async def hold(value: Any, _context: Any) -> Any:
        began.set()
        await ends.wait()
        return value

    def pair() -> ExecWaitTools:
        tools = [
            world.spy.tool("pay", lambda value, _: value, needs_approval=True),
            Tool("hold", execute=hold, annotations={"readOnlyHint": True}),
        ]
        given = {"waitTimeoutMs": 20_000, "approvals": "park"}
        made = create_exec_wait_tools(tools, given, settings=KEYED, pool=world.pool, store=world.store)
        world._made.append(made)
        return made

    async def main():
        async with world.closing():
            first, resuming = pair(), pair()
            parked = await run(first, "await tools.pay({n: 1}); return await tools.hold(2)")
            async with Resumer(world.store, tenant=ALL_TENANTS, resume=resuming.resume):
                await world.decide(OK)
                await asyncio.wait_for(began.wait(), 60)
                closing = asyncio.ensure_future(resuming.aclose())
                await closing
            ends.set()
            world.clock.moved_ms += LEASE_MS
            return await until_ended(first, parked)

    last = within(main())
    assert (last["value"], world.spy.ran) == (2, [("pay", {"n": 1})])


# --- handed to the host


def test_an_interrupt_that_its_host_answers_leaves_nothing_pending_in_the_store(within, world):
    async def main():
        async with world.closing():
            pair = world.pair(approvals="interrupt")
            rest = await run(pair, f"await yield_control(); {PAYING}")
            asked = await wait(pair, rest)
            assert isinstance(asked, Interrupt)
            assert (await wait(world.pair(approvals="interrupt"), rest)).interrupt_id == asked.interrupt_id
            assert infos(pair) == [(rest["runId"], "waiting", ("host:core:pay",))]
            second = await pair.resume(asked, OK, call=CallContext(conversation_id=SCOPE))
            assert (second["runId"], second["reason"]) == (rest["runId"], "yield")
            assert not (await world.store.list(tenant=ALL_TENANTS, state="pending")).records
            last = await wait(pair, second)
            return last, await world.state(rest["runId"]), await wait(world.pair(approvals="interrupt"), rest)

    last, state, again = within(main())
    assert (last["value"], texts(last), state, again) == ({"n": 1}, ["b"], "completed", last)
    assert len(world.spy.ran) == 1


def test_an_answer_that_does_not_fit_leaves_the_question(within, world):
    async def main():
        async with world.closing():
            pair = world.pair(approvals="interrupt")
            rest = await run(pair, f"await yield_control(); {PAYING}")
            asked = await wait(pair, rest)
            for answer, scope in (({"approved": "perhaps"}, SCOPE), (OK, "another")):
                with pytest.raises(Exception, match=re.compile("approved|another conversation", re.IGNORECASE)):
                    await pair.resume(asked, answer, call=CallContext(conversation_id=scope))
            assert await world.state(rest["runId"]) == "pending"
            return await pair.resume(asked, OK, call=CallContext(conversation_id=SCOPE))

    assert within(main())["status"] == "waiting"
    assert len(world.spy.ran) == 1


def test_some_answers_of_a_host_leave_the_others_asked(within, world):
    async def main():
        async with world.closing():
            pair = world.pair(approvals="interrupt")
            rest = await run(pair, f"await yield_control(); {TWO}")
            asked = await wait(pair, rest)
            first, second = (one.interrupt_id for one in asked.requests)
            left = await pair.resume(asked, resolutions={first: OK}, call=CallContext(conversation_id=SCOPE))
            assert [one.interrupt_id for one in left.requests] == [second]
            assert [one.interrupt_id for one in (await world.pending()).requests if one.state == "waiting"] == [second]
            return await pair.resume(
                left, resolutions={second: OK}, call=CallContext(conversation_id=SCOPE)
            ), await world.state(rest["runId"])

    last, state = within(main())
    assert (last["value"], state) == ([{"n": 1}, {"n": 2}], "completed")


# --- rests that nobody comes back for


def test_a_rest_whose_owner_died_expires_though_nobody_was_there(within, world, monkeypatch):
    async def main():
        async with world.closing():
            pair = world.pair(snapshotTtlSeconds=1)
            rest = await run(pair, "await yield_control(); return await tools.quick(1)")
            await pair.aclose()
            now_ms = stored_module.now_ms
            monkeypatch.setattr(stored_module, "now_ms", lambda: now_ms() + 1_100)
            return [await wait(world.pair(), rest) for _ in range(2)]

    told = within(main())
    assert ([one["code"] for one in told], world.spy.ran) == (["snapshot_expired"] * 2, [])
