"""What people decide about stored threads: by whom, of which shape, and with which edits."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from codemode_langchain import (
    CodeModeMiddleware,
)
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from pydantic import AfterValidator
from scripted_agent import ScriptedModel, calls
from test_langchain_stored_pauses import NO, OK, REFUND, Desk, in_memory, until

from codemode import CodeModeProtocolError
from codemode.stores import ALL_TENANTS, AnswerRefusedError, Resumer, UnknownRequestError


def test_another_tenant_can_neither_decide_nor_go_on() -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.ask(calls(REFUND))
        (asked,) = await desk.waiting(run)
        with pytest.raises(UnknownRequestError):
            await desk.store.decide({asked.interrupt_id: OK}, actor="eve", tenant="evil")
        record = await desk.store.record(run.record_id or "", tenant="acme")
        for other in (desk.pauses(tenant="evil"), desk.pauses(app="other")):
            with pytest.raises(CodeModeProtocolError, match="another"):
                await other.resume(record, {asked.interrupt_id: OK})
        all_of_them = desk.pauses(tenant=ALL_TENANTS)
        with pytest.raises(ValueError, match="tenant="):
            await all_of_them.ainvoke({"messages": ["go"]})
        with pytest.raises(ValueError, match="belong to tenant 'acme'"):
            await desk.pauses().ainvoke({"messages": ["go"]}, tenant="evil")
        assert desk.did == [("stock", "nut")]

    in_memory(scenario)


def test_decisions_that_do_not_fit_or_are_not_allowed_wait_again_with_why() -> None:
    async def scenario(desk: Desk) -> None:
        graph = desk.agent(calls(REFUND), approve={"allowed_decisions": ["approve", "reject"]})
        run = await desk.ask(graph=graph)
        (asked,) = await desk.waiting(run)
        assert asked.input_schema is None
        await desk.decide(run, {"approved": True, "input": {"order": "z"}})
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses().resume):

            async def is_refused() -> bool:
                return bool((await desk.waiting(run)) and (await desk.waiting(run))[0].refusal)

            await until(is_refused)
            assert "approve, reject alone" in ((await desk.waiting(run))[0].refusal or "")
            await desk.decide(run, NO)
            assert "was denied" in (await desk.outcome(run))[0]
        assert desk.did == [("stock", "nut")]

    in_memory(scenario)


def test_an_edit_is_checked_by_the_schema_before_it_is_stored_and_by_the_tool_when_it_goes_on() -> None:
    async def scenario(desk: Desk) -> None:
        @tool
        def pay(cents: Annotated[int, AfterValidator(lambda cents: min(cents, 1000))]) -> str:
            """Pay."""
            desk.did.append(("pay", cents))
            return f"paid {cents}"

        def graph(*messages: AIMessage) -> Any:
            said = ScriptedModel(messages=iter([*messages, AIMessage("done")]), shown=[], disable_streaming=True)
            own = CodeModeMiddleware(approve={"pay": True}, options={"continuation": desk.continuation})
            return create_agent(said, [pay], middleware=[own], checkpointer=desk.saver)

        run = await desk.ask(graph=graph(calls("return await tools.pay({ cents: 5 });")))
        with pytest.raises(AnswerRefusedError, match="cents"):
            await desk.decide(run, {"approved": True, "input": {"cents": "many"}})
        await desk.decide(run, {"approved": True, "input": {"cents": 2000}})
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(graph=graph()).resume):

            async def is_refused() -> bool:
                return any(one.refusal for one in await desk.waiting(run))

            await until(is_refused)
            assert "would change" in ((await desk.waiting(run))[0].refusal or "")
            await desk.decide(run, {"approved": True, "input": {"cents": 900}})
            assert await desk.outcome(run) == ["paid 900", "done"]
        assert desk.did == [("pay", 900)]

    in_memory(scenario)


def test_big_integers_are_what_they_were() -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.ask(calls(f"return await tools.refund({{ order: 'a', cents: {2**60}n }});"))
        (asked,) = await desk.waiting(run)
        assert asked.input == {"order": "a", "cents": 2**60}
        edited = {"approved": True, "input": {"order": "a", "cents": str(2**60 + 1)}, "bigIntegers": ["/input/cents"]}
        assert (await desk.resumed(run, edited))[1] == "done"
        assert desk.did == [("refund", "a", 2**60 + 1)]

    in_memory(scenario)
