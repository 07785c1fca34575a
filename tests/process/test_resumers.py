"""Resumers: decisions that were made elsewhere are applied where the tools are, once, and whoever dies is replaced."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from pausing import NO, OK
from stored_pauses import Clock, paused
from waiting import until, within

from codemode import (
    CodeModeError,
    CodeModeProtocolError,
    ModuleServer,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.errors import CodeModeConcurrencyError
from codemode.stores import ALL_TENANTS, MemoryInterruptStore, Resumer, SqliteInterruptStore

SUPPORT = Path(__file__).parents[1] / "support"
TWO = "return (await Promise.allSettled([tools.refund({n: 1}), tools.refund({n: 2})])).map(one => one.status)"


async def seen(store, kind, after=0):
    """Wait for a change, and return its sequence."""
    changes = store.changes(tenant=ALL_TENANTS, after=after)
    async for change in changes:
        if change.kind == kind:
            await changes.aclose()
            return change.sequence
    raise AssertionError("changes never end")


def over(store, *tools):
    options = {"approval": {"mode": "interrupt"}, "continuation": {"guard": store.guard, "keys": "k"}}
    return create_code_mode_tool(tools, options)


def test_decisions_of_another_process_are_applied(tmp_path, spy):
    async def scenario():
        here, page = (SqliteInterruptStore(tmp_path / "pauses.sqlite") for _ in range(2))
        code_mode = over(here, spy.guarded())
        record_id = await here.put(await code_mode.execute({"js": TWO}), tenant="acme", app="support")
        other = await here.put(await code_mode.execute({"js": TWO}), tenant="acme", app="sales")
        async with Resumer(here, tenant=ALL_TENANTS, app="support", resume=code_mode.resume):
            for one in (other, record_id):
                first, second = (await page.record(one, tenant="acme")).requests
                await page.decide({first.interrupt_id: OK, second.interrupt_id: NO}, actor="ana", tenant="acme")
            value = await page.outcome(record_id, tenant="acme", timeout_ms=60_000)
        assert (await page.record(other, tenant="acme")).state == "pending"
        await page.aclose()
        return value

    assert within(scenario()) == ["fulfilled", "rejected"]
    assert spy.ran == [("refund", {"n": 1})]


def test_as_many_at_once_as_was_said_and_leaving_waits_for_them():
    async def scenario():
        store, running, most, go_on = MemoryInterruptStore(), 0, 0, asyncio.Event()

        async def resume(interrupt, resolutions):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await go_on.wait()
            running -= 1
            return interrupt.interrupt_id

        ids = [await store.put(paused(f"r{number}")) for number in range(5)]
        await store.decide({f"r{number}": OK for number in range(5)}, actor="ana", tenant=ALL_TENANTS)
        async with Resumer(store, tenant=ALL_TENANTS, resume=resume, concurrency=2) as resumer:
            await until(lambda: running == 2)
            ends = asyncio.get_running_loop().call_later(0.05, go_on.set)
        ends.cancel()
        assert (running, resumer._running, most) == (0, set(), 2)
        states = [(await store.record(one, tenant=ALL_TENANTS)).state for one in ids]
        assert states.count("completed") >= 2
        assert set(states) <= {"completed", "pending"}

    within(scenario())


def test_what_comes_while_a_resume_is_under_way_is_taken_together_by_the_next():
    async def scenario():
        store, begun, go_on, given = MemoryInterruptStore(), asyncio.Event(), asyncio.Event(), []

        async def resume(interrupt, resolutions):
            given.append(sorted(resolutions))
            begun.set()
            await go_on.wait()
            left = [one for one in ("a", "b", "c", "d") if one not in {name for names in given for name in names}]
            return paused(*left) if left else "done"

        record_id = await store.put(paused("a", "b", "c", "d"))
        async with Resumer(store, tenant=ALL_TENANTS, resume=resume):
            await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
            await begun.wait()
            for name in "bcd":
                await store.decide({name: NO}, actor="ana", tenant=ALL_TENANTS)
            go_on.set()
            assert await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=60_000) == "done"
        assert given == [["a"], ["b", "c", "d"]]

    within(scenario())


def test_an_answer_that_the_tools_refuse_waits_again_with_why():
    async def scenario():
        store = MemoryInterruptStore()

        async def resume(interrupt, resolutions):
            raise CodeModeProtocolError("its schema has changed", details={"origin": "continuation"})

        record_id = await store.put(paused("a"))
        async with Resumer(store, tenant=ALL_TENANTS, resume=resume):
            await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
            await seen(store, "released")
        return (await store.record(record_id, tenant=ALL_TENANTS)).requests[0]

    request = within(scenario())
    assert (request.state, request.refusal) == ("waiting", "its schema has changed")


def test_what_could_not_run_keeps_its_decision_and_is_tried_again():
    async def scenario():
        clock, tries = Clock(), []
        store = MemoryInterruptStore(clock=clock)

        async def resume(interrupt, resolutions):
            tries.append(resolutions)
            if len(tries) < 3:
                raise CodeModeConcurrencyError("full") if len(tries) == 1 else RuntimeError("down")
            return "done"

        record_id = await store.put(paused("a"))
        await store.decide({"a": OK}, actor="ana", tenant=ALL_TENANTS)
        after = 0
        async with Resumer(store, tenant=ALL_TENANTS, resume=resume):
            for _ in range(2):
                after = await seen(store, "released", after)
                clock.moved_ms += 6000
            return await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=60_000)

    assert within(scenario()) == "done"


def test_a_record_is_given_where_it_is_asked_for():
    async def scenario():
        store = MemoryInterruptStore()

        async def resume(record, resolutions):
            return [record.payload, record.source, record.tenant, resolutions]

        record_id = await store.put(paused("a"), tenant="acme", payload={"messages": []}, source="return 1")
        await store.decide({"a": OK}, actor="ana", tenant="acme")
        async with Resumer(store, tenant="acme", resume=resume, with_record=True):
            return await store.outcome(record_id, tenant="acme", timeout_ms=60_000)

    assert within(scenario()) == [{"messages": []}, "return 1", "acme", {"a": OK}]


def test_the_programs_error_is_the_records(spy):
    async def scenario():
        store = MemoryInterruptStore()
        code_mode = over(store, spy.guarded())
        interrupt = await code_mode.execute({"js": "await tools.refund({n: 1}); throw new RangeError('too far')"})
        record_id = await store.put(interrupt)
        await store.decide({interrupt.interrupt_id: OK}, actor="ana", tenant=ALL_TENANTS)
        async with Resumer(store, tenant=ALL_TENANTS, resume=code_mode.resume):
            with pytest.raises(CodeModeError, match="too far"):
                await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=60_000)

    within(scenario())


def test_a_tool_with_another_guard_is_refused(spy):
    store = MemoryInterruptStore()
    faces = [
        lambda options: create_code_mode_tool([spy.guarded()], options),
        lambda options: create_code_call_tools([spy.guarded()], {"settings": options}),
        lambda options: create_modules_tool([ModuleServer("shop", [spy.guarded()])], settings=options),
        lambda options: create_exec_wait_tools([spy.guarded()], settings=options),
    ]
    for face in faces:
        for guard in (MemoryInterruptStore().guard, None):
            made = face({"continuation": {"guard": guard}})
            with pytest.raises(ValueError, match=r"another guard.*\{'guard': store\.guard\}"):
                Resumer(store, tenant=ALL_TENANTS, resume=made.resume)
        Resumer(store, tenant=ALL_TENANTS, resume=face({"continuation": {"guard": store.guard}}).resume)


def test_what_a_resumer_cannot_work_with_is_refused_before_it_begins(spy):
    store = MemoryInterruptStore()
    code_mode = over(store, spy.guarded())
    for wrong in ({"concurrency": 0}, {"lease_ms": 0}, {"resume": code_mode}, {"resume": None}, {"tenant": None}):
        settings = {"tenant": ALL_TENANTS, "resume": code_mode.resume, **wrong}
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))} must be"):
            Resumer(store, **settings)


def started(path, effects):
    return subprocess.Popen([sys.executable, str(SUPPORT / "resumer_host.py"), str(path), str(effects)])


def test_leaving_ends_it_though_something_happens_at_that_moment():
    async def scenario():
        store = MemoryInterruptStore()

        async def resume(interrupt, resolutions):
            return 1

        for _ in range(20):
            async with Resumer(store, tenant=ALL_TENANTS, resume=resume):
                await until(lambda: store._database._notifier._watches)
                await asyncio.sleep(0.005)
                store._database._notifier.notify()
                await asyncio.sleep(0)

    within(scenario())


class Hurried(Clock):
    """A clock by which a minute has soon passed."""

    def __init__(self):
        super().__init__()
        self.passed = 0.0

    def monotonic_seconds(self):
        self.passed += 20
        return self.passed

    async def sleep(self, seconds):
        await asyncio.sleep(0.001)


def test_a_host_that_is_killed_in_a_call_leaves_a_question_and_no_second_call(tmp_path):
    path, effects = tmp_path / "pauses.sqlite", tmp_path / "effects"

    async def refund(value, context):
        raise AssertionError("a second call")

    async def scenario():
        clock = Hurried()
        store = SqliteInterruptStore(path, clock=clock)
        code_mode = over(store, Tool("refund", execute=refund, needs_approval=True))
        interrupt = await code_mode.execute({"js": "return await tools.refund({n: 1})"})
        record_id = await store.put(interrupt)
        host = started(path, effects)
        try:
            await store.decide({interrupt.interrupt_id: OK}, actor="ana", tenant=ALL_TENANTS)
            await until(lambda: effects.exists() and effects.read_text())
        finally:
            host.kill()
            host.wait(60)
        assert (await store.record(record_id, tenant=ALL_TENANTS)).state == "resuming"
        clock.moved_ms = 61_000
        async with Resumer(store, tenant=ALL_TENANTS, resume=code_mode.resume):
            await seen(store, "paused")
            record = await store.record(record_id, tenant=ALL_TENANTS)
            (unknown,) = [one for one in record.requests if one.state == "waiting"]
            assert (record.state, unknown.kind) == ("pending", "code-mode/unknown-outcome")
            await store.decide({unknown.interrupt_id: {"value": "refunded"}}, actor="ana", tenant=ALL_TENANTS)
            return await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=60_000)

    assert within(scenario()) == "refunded"
    assert effects.read_text() == "refunded\n"
