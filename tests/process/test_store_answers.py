"""Programs that pause into a store and are answered from it, on SQLite and in memory."""

from __future__ import annotations

import asyncio

import pytest
from pausing import NO, OK
from waiting import within

from codemode import CodeModeError, create_code_mode_tool
from codemode.stores import (
    ALL_TENANTS,
    AlreadyDecidedError,
    AnswerRefusedError,
    MemoryInterruptStore,
    SqliteInterruptStore,
)

TWO = "return (await Promise.allSettled([tools.refund({n: 1}), tools.refund({n: 2})])).map(one => one.status)"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return MemoryInterruptStore() if request.param == "memory" else SqliteInterruptStore(tmp_path / "pauses.sqlite")


def over(store, *tools):
    options = {"approval": {"mode": "interrupt"}, "continuation": {"guard": store.guard, "keys": "k"}}
    return create_code_mode_tool(tools, options)


def test_decisions_are_recorded_and_applied_later_in_one_resume(store, spy):
    async def scenario():
        code_mode = over(store, spy.guarded(input_schema=SCHEMA))
        record_id = await store.put(await code_mode.execute({"js": TWO}), tool=code_mode, tenant="acme")
        first, second = (await store.record(record_id, tenant="acme")).requests
        assert first.input_schema["properties"] == SCHEMA["properties"]
        wrong = {first.interrupt_id: {"approved": True, "input": {"n": "x"}}}
        with pytest.raises(AnswerRefusedError):
            await store.decide(wrong, actor="ana", tenant="acme")
        edited = {"approved": True, "input": {"n": 5}}
        await store.decide({first.interrupt_id: edited, second.interrupt_id: NO}, actor="ana", tenant="acme")
        assert spy.ran == []
        lease = await store.claim(owner="host", tenant="acme")
        result = await code_mode.resume(lease.interrupt, resolutions=lease.resolutions)
        assert await store.settle(lease, result)
        # Whoever stood still and comes back gets what was recorded, and runs nothing.
        assert await code_mode.resume(lease.interrupt, resolutions=lease.resolutions) == result
        return await store.outcome(record_id, tenant="acme")

    assert within(scenario()) == ["fulfilled", "rejected"]
    assert spy.ran == [("refund", {"n": 5})]


def test_an_answer_takes_with_it_what_was_decided_before(store, spy):
    async def scenario():
        code_mode = over(store, spy.guarded())
        interrupt = await code_mode.execute({"js": TWO})
        record_id = await store.put(interrupt)
        first, second = (one.interrupt_id for one in interrupt.requests)
        await store.decide({first: NO}, actor="ana", tenant=ALL_TENANTS)
        with pytest.raises(AlreadyDecidedError, match="ana"):
            await store.answer(first, OK, code_mode.resume)
        result = await store.answer(second, OK, code_mode.resume, actor="bob")
        assert await store.outcome(record_id, tenant=ALL_TENANTS) == result
        record = await store.record(record_id, tenant=ALL_TENANTS)
        assert [(one.actor, one.state) for one in record.requests] == [("ana", "applied"), ("bob", "applied")]
        return result

    assert within(scenario()) == ["rejected", "fulfilled"]


def test_a_program_that_fails_ends_its_record_with_its_error(store, spy):
    async def scenario():
        code_mode = over(store, spy.guarded())
        interrupt = await code_mode.execute({"js": "await tools.refund({n: 1}); throw new RangeError('too far')"})
        record_id = await store.put(interrupt)
        raised = []
        for work in (
            store.answer(interrupt.interrupt_id, OK, code_mode.resume),
            store.outcome(record_id, tenant=ALL_TENANTS),
        ):
            with pytest.raises(CodeModeError, match="too far") as error:
                await work
            raised.append(error.value)
        assert [(type(one), one.code, one.details["name"]) for one in raised] == [
            (CodeModeError, "CODE_MODE_ERROR", "RangeError")
        ] * 2
        return (await store.record(record_id, tenant=ALL_TENANTS)).state

    assert within(scenario()) == "failed"


def test_a_resume_that_runs_nothing_leaves_the_request_waiting_with_why(store, spy):
    async def scenario():
        code_mode, elsewhere = over(store, spy.guarded()), over(store, spy.guarded(input_schema=SCHEMA))
        interrupt = await code_mode.execute({"js": "return await tools.refund({})"})
        record_id = await store.put(interrupt)
        with pytest.raises(CodeModeError):
            await store.answer(interrupt.interrupt_id, OK, elsewhere.resume)

        async def broken(paused, resolutions):
            raise RuntimeError("secret")

        (request,) = (await store.record(record_id, tenant=ALL_TENANTS)).requests
        assert (request.state, "schema has changed" in request.refusal) == ("waiting", True)
        with pytest.raises(RuntimeError):
            await store.answer(interrupt.interrupt_id, OK, broken)
        (request,) = (await store.record(record_id, tenant=ALL_TENANTS)).requests
        assert (request.state, "secret" in request.refusal) == ("waiting", False)
        return await store.answer(interrupt.interrupt_id, OK, code_mode.resume)

    assert within(scenario()) == {"done": "refund"}


def test_a_lease_is_renewed_while_its_program_runs(store, monkeypatch):
    monkeypatch.setattr("codemode.stores.record_decisions.LEASE_MS", 300)

    async def scenario():
        renewed, original = asyncio.Event(), store.renew

        async def renew(lease):
            renewed.set()
            return await original(lease)

        monkeypatch.setattr(store, "renew", renew)

        async def refund(value, context):
            await renewed.wait()
            return "done"

        from codemode import Tool

        code_mode = over(store, Tool("refund", execute=refund, needs_approval=True))
        interrupt = await code_mode.execute({"js": "return await tools.refund({})"})
        await store.put(interrupt)
        return await store.answer(interrupt.interrupt_id, OK, code_mode.resume)

    assert within(scenario()) == "done"
