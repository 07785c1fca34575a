"""A pause holds the program as it was sent, signed, beside the text that runs; and a record that ended keeps it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pausing import OK, through_json
from waiting import within

from codemode import CodeModeTool, Interrupt, Tool, create_code_mode_tool, inspect_interrupt
from codemode.stores import ALL_TENANTS, MemoryInterruptStore, Resumer, UnknownRequestError

KEY = "a key of this test alone, 32 characters"
TYPED = "const order: string = 'a';\nreturn await tools.refund({order} as any)"
PLAIN = "return await tools.refund({order: 'a'})"
REPAIRED = "const order = 'a';\\nreturn await tools.refund({order})"
TWICE = "const a: unknown = await tools.refund({order: 'a'});\nreturn [a, await tools.refund({order: 'b'})]"


def tool(**more) -> CodeModeTool:
    async def refund(given, _context):
        return f"refunded {given['order']}"

    schema = {"type": "object", "properties": {"order": {"type": "string"}}}
    refund_tool = Tool("refund", input_schema=schema, execute=refund, needs_approval=True)
    options = {"approval": {"mode": "interrupt"}, "continuation": {"keys": KEY, **more}}
    return create_code_mode_tool([refund_tool], options=options)


def seen(code_mode, interrupt):
    return inspect_interrupt(through_json(interrupt), code_mode.options)


@pytest.mark.parametrize("js", [TYPED, PLAIN, REPAIRED])
@pytest.mark.parametrize("seal", [False, True])
def test_a_pause_shows_the_program_as_it_was_sent(js, seal):
    async def scenario():
        code_mode = tool(seal=seal)
        interrupt = await code_mode.execute({"js": js})
        assert isinstance(interrupt, Interrupt), interrupt
        view = seen(code_mode, interrupt)
        assert view.source == js
        assert (view.js == js) is (js == PLAIN)
        assert await code_mode.resume(interrupt, resolutions={interrupt.interrupt_id: OK}) == "refunded a"

    within(scenario())


def test_the_next_pause_of_a_resumed_program_shows_it_too():
    async def scenario():
        code_mode = tool()
        first = await code_mode.execute({"js": TWICE})
        second = await code_mode.resume(through_json(first), resolutions={first.interrupt_id: OK})
        view = seen(code_mode, second)
        assert view.source == TWICE
        assert [one.status for one in view.calls] == ["fulfilled", "waiting"]

    within(scenario())


async def ended(store, code_mode, js, how):
    interrupt = await code_mode.execute({"js": js})
    record_id = await store.put(interrupt, tool=code_mode, source=js)
    if how == "withdrawn":
        await store.withdraw(record_id, actor="ana")
        return record_id
    await store.decide({interrupt.interrupt_id: OK}, actor="ana", tenant=ALL_TENANTS)
    async with Resumer(store, tenant=ALL_TENANTS, resume=code_mode.resume):
        await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=30_000)
    return record_id


@pytest.mark.parametrize("how", ["completed", "withdrawn"])
@pytest.mark.parametrize("seal", [False, True])
def test_an_ended_record_keeps_program_calls_inputs_and_decisions_until_it_is_purged(how, seal):
    async def scenario():
        async with MemoryInterruptStore() as store:
            code_mode = tool(seal=seal, guard=store.guard)
            record_id = await ended(store, code_mode, TYPED, how)
            record = await store.record(record_id, tenant=ALL_TENANTS)
            assert record.state == how
            interrupt = await store.last_interrupt(record_id, tenant=ALL_TENANTS)
            view = seen(code_mode, interrupt)
            assert view.source == TYPED
            assert [(one.name, one.input) for one in view.calls] == [("refund", {"order": "a"})]
            assert ("const order" in str(interrupt.continuation)) is not seal
            (request,) = record.requests
            assert request.input == {"order": "a"}
            assert request.decision == (None if how == "withdrawn" else OK)
            # It is shown, and nobody goes on with it.
            assert await store.get(request.interrupt_id, tenant=ALL_TENANTS) is None
            assert await store.claim(owner="me", tenant=ALL_TENANTS) is None
            assert await store.purge(timedelta(0)) == 1
            with pytest.raises(UnknownRequestError):
                await store.last_interrupt(record_id, tenant=ALL_TENANTS)

    within(scenario())
