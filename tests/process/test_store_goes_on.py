"""Programs that are kept go on where the tools are, or say why they cannot."""

from __future__ import annotations

import asyncio

import pytest
from pausing import OK
from stored_pauses import Clock
from waiting import within

from codemode import Tool, create_code_mode_tool
from codemode.protocol import continuation
from codemode.stores import ALL_TENANTS, MemoryInterruptStore, Resumer, SqliteInterruptStore

ALL = ALL_TENANTS
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


def over(store, *tools, **settings):
    options = {"approval": {"mode": "interrupt"}, "continuation": {"guard": store.guard, "keys": "k", **settings}}
    return create_code_mode_tool(tools, options)


async def seen(store, kind):
    changes = store.changes(tenant=ALL)
    async for change in changes:
        if change.kind == kind:
            await changes.aclose()
            return


def test_a_page_has_the_place_of_each_call_and_the_form_of_what_is_asked_later(spy):
    pay = Tool("pay", execute=lambda value, _: value, input_schema=SCHEMA, needs_approval=True)

    async def scenario():
        store = MemoryInterruptStore()
        code_mode = over(store, spy.guarded(), pay, seal=True)
        paused = await code_mode.execute({"js": "await tools.refund({n: 1});\n  return await tools.pay({n: 2})"})
        record_id = await store.put(paused, tool=code_mode)
        await store.decide({paused.interrupt_id: OK}, actor="ana", tenant=ALL)
        async with Resumer(store, tenant=ALL, resume=code_mode.resume):
            await seen(store, "paused")
        return (await store.record(record_id, tenant=ALL)).requests

    first, second = within(scenario())
    assert [(one.tool_name, one.line, one.column) for one in (first, second)] == [("refund", 1, 12), ("pay", 2, 22)]
    assert second.input_schema == SCHEMA


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("key", "key that is not known"),
        ("binding", "another conversation"),
        ("replay", "replay version"),
        ("engine", "engine"),
    ],
)
def test_another_key_or_version_says_so_and_uses_no_decision_up(spy, monkeypatch, changed, reason):
    async def scenario():
        clock = Clock()
        store = MemoryInterruptStore(clock=clock)
        with monkeypatch.context() as patch:
            if changed == "replay":
                patch.setattr(continuation, "REPLAY_VERSION", 3)
            if changed == "engine":
                patch.setattr("codemode.execution.recovery.find_engine_version", lambda: "0.1")
            paused = await over(store, spy.guarded()).execute({"js": "return await tools.refund({n: 1})"})
        record_id = await store.put(paused)
        await store.decide({paused.interrupt_id: OK}, actor="ana", tenant=ALL)
        other = {"key": {"keys": "another"}, "binding": {"conversation_id": "b"}}.get(changed, {})
        async with Resumer(store, tenant=ALL, resume=over(store, spy.guarded(), **other).resume):
            await seen(store, "released")
        record = await store.record(record_id, tenant=ALL)
        assert reason in record.not_resumable
        assert (record.state, record.requests[0].state) == ("pending", "decided")
        if changed == "replay":
            monkeypatch.setattr(continuation, "REPLAY_VERSION", 3)
        clock.moved_ms = 5_000
        able = over(store, spy.guarded(), any_engine=True)
        async with Resumer(store, tenant=ALL, resume=able.resume):
            return await store.outcome(record_id, tenant=ALL, timeout_ms=60_000)

    assert within(scenario()) == {"done": "refund"}
    assert spy.ran == [("refund", {"n": 1})]


@pytest.mark.parametrize("annotations", [{"readOnlyHint": True}, {}])
def test_a_program_at_rest_goes_on_elsewhere_and_runs_no_call_twice(tmp_path, annotations):
    async def scenario():
        clock, begun, ran = Clock(), asyncio.Event(), []
        here, there = (SqliteInterruptStore(tmp_path / "pauses.sqlite", clock=clock) for _ in range(2))

        async def slow(value, context):
            ran.append(("slow", value))
            begun.set()
            if len(ran) == 2:
                await context.aborted.wait()
            return value

        tools = [
            Tool("done", execute=lambda value, _: ran.append(("done", value)) or value),
            Tool("slow", execute=slow, annotations=annotations),
        ]
        code_mode = over(here, *tools)
        run = asyncio.ensure_future(code_mode.execute({"js": "return [await tools.done(1), await tools.slow(2)]"}))
        await begun.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await run
        lease = await here.put_suspended(raised.value.__cause__.recovery, owner="here", tool=code_mode, tenant="acme")
        record_id = lease.record.id
        await here.aclose()  # and its host with it
        clock.moved_ms = 31_000
        taken = await there.claim(owner="there", tenant="acme", record_id=record_id)
        again = over(there, *tools)
        if not taken.interrupt.requests:
            value = await again.resume(taken.interrupt, resolutions={})
            assert await there.settle(taken, value)
        else:
            # A decision is asked for: from here on it is as any other pause.
            assert await there.settle(taken, taken.interrupt, tool=again)
            (asks,) = (await there.record(record_id, tenant="acme")).requests
            assert (asks.kind, asks.state) == ("code-mode/unknown-outcome", "waiting")
            await there.decide({asks.interrupt_id: {"value": 2}}, actor="ana", tenant="acme")
            async with Resumer(there, tenant="acme", resume=again.resume):
                await there.outcome(record_id, tenant="acme", timeout_ms=60_000)
        value = await there.outcome(record_id, tenant="acme", timeout_ms=60_000)
        await there.aclose()
        return value, ran

    value, ran = within(scenario())
    assert value == [1, 2]
    assert ran == [("done", 1), ("slow", 2), *([("slow", 2)] if annotations else [])]
