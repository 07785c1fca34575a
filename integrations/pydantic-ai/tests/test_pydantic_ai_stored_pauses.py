"""Agents whose pauses are in a store: decided by somebody, gone on with by a resumer, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from codemode_pydantic_ai import CodeCall, CodeMode, ExecWait, StoredPauses, StoredRun, stored_pauses
from pydantic import BaseModel
from pydantic_ai import Agent, CallDeferred, DeferredToolRequests, DeferredToolResults, RunContext, Tool
from pydantic_ai.messages import ModelResponse, ToolCallPart
from scripted import Script, execute, program, script, wait
from suite import full_only

from codemode import CodeModeProtocolError, inspect_interrupt
from codemode.stores import (
    ALL_TENANTS,
    AnswerRefusedError,
    InterruptStore,
    MemoryInterruptStore,
    Resumer,
    SqliteInterruptStore,
    UnknownRequestError,
)

WAIT_SECONDS = 60.0
KEYS = "a key that all processes of these tests have"
REFUND = """const stock = await tools.stock({ product: "nut" });
return [stock, await tools.refund({ order: "a" })];"""
TWO = """
const refunds = await Promise.allSettled(["a", "b"].map((order) => tools.refund({ order })));
return refunds.map((one) => one.value ?? one.reason.message);
"""
OTHER = "return await tools.refund({ order: 'c', cents: 90000 });"
ONE_AFTER_OTHER = "return [await tools.refund({ order: 'a' }), await tools.refund({ order: 'b' })];"


class Desk:
    """An agent over two tools, one of which needs approval; ``did`` is what has happened, wherever the agent ran."""

    def __init__(self, store: InterruptStore) -> None:
        self.store = store
        self.did: list[Any] = []

    def stock(self, product: str) -> int:
        self.did.append(("stock", product))
        return 7

    def refund(self, order: str, cents: int = 500) -> str:
        """Refund an order."""
        self.did.append(("refund", order, cents))
        return f"refunded {order}: {cents}"

    def capability(self, **more: Any) -> Any:
        return CodeMode({"continuation": {"keys": KEYS, "guard": self.store.guard}}, **more)

    def agent(self, model: Script, *, tools: Any = None, capability: Any = None, **more: Any) -> Agent[Any, Any]:
        gated = Tool(self.refund, requires_approval=True, metadata={"destructiveHint": True})
        more.setdefault("output_type", [str, DeferredToolRequests])
        own = [capability or self.capability()]
        return Agent(model.model, tools=tools or [self.stock, gated], capabilities=own, **more)

    def pauses(self, *steps: Any, agent: Any = None, **more: Any) -> StoredPauses[Any, Any]:
        """As one process has them: an agent of its own, whose model takes these steps."""
        return stored_pauses(agent or self.agent(Script(*steps)), self.store, **{"tenant": "acme", **more})

    async def waiting(self, run: StoredRun[Any]) -> dict[str, Any]:
        """The requests that a run waits with, by what they are called with."""
        assert isinstance(run.output, DeferredToolRequests)
        record = await self.store.record(run.record_id or "", tenant="acme")
        open_ones = [one for one in record.requests if one.state == "waiting"]
        return {f"{one.tool_name} {json.dumps(one.input, sort_keys=True)}": one for one in open_ones}

    async def decide(self, run: StoredRun[Any], *decisions: Any) -> None:
        asked = list((await self.waiting(run)).values())
        given = {one.interrupt_id: decision for one, decision in zip(asked, decisions, strict=True)}
        seen = {one.interrupt_id: self.store.compute_display_digest(one) for one in asked}
        await self.store.decide(given, actor="ana", tenant="acme", seen=seen)

    async def outcome(self, run: StoredRun[Any]) -> Any:
        return await self.store.outcome(run.record_id or "", tenant="acme", timeout_ms=WAIT_SECONDS * 1000)


def on(tmp_path: Path, scenario: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        async with SqliteInterruptStore(tmp_path / "approvals.sqlite") as store:
            await scenario(Desk(store))

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():  # noqa: ASYNC110 - what it waits for is in a database
        await asyncio.sleep(0.01)


OK, NO = {"approved": True}, {"approved": False, "reason": "not this one"}


def test_a_run_that_waits_is_a_record_with_all_that_a_page_needs(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(REFUND), labels={"desk": "north"}).run("go", labels={"ticket": "7"})
        record = await desk.store.record(run.record_id or "", tenant="acme")
        assert (record.state, record.app, record.outer_tool) == ("pending", "pydantic-ai", "codeMode")
        assert record.labels == {"desk": "north", "ticket": "7"}
        assert record.source == REFUND
        (request,) = record.requests
        assert (request.tool_name, request.input) == ("refund", {"order": "a", "cents": 500})
        assert (request.line, request.description) == (2, "Refund an order.")
        assert set(request.input_schema["properties"]) == {"order", "cents"}
        assert request.annotations == {"destructiveHint": True}
        assert [one["kind"] for one in record.payload["messages"]] == ["request", "response"]
        paused = await desk.store.get(request.interrupt_id, tenant="acme")
        assert paused is not None
        view = inspect_interrupt(paused)
        assert view.requests == paused.requests
        assert "pydantic-ai" in (view.unreadable or "")
        page = await desk.store.list(tenant="acme", tool="refund", state="pending")
        assert [one.id for one in page.records] == [record.id]
        assert desk.did == [("stock", "nut")]

    on(tmp_path, scenario)


@pytest.mark.parametrize(
    ("decision", "told", "did"),
    [
        (OK, "refunded a: 500", [("refund", "a", 500)]),
        ({"approved": True, "input": {"order": "a", "cents": 300}}, "refunded a: 300", [("refund", "a", 300)]),
        ({"approved": True, "input": {"order": "a", "cents": 500}}, "refunded a: 500", [("refund", "a", 500)]),
    ],
)
def test_what_was_decided_runs_where_the_agent_is(tmp_path: Path, decision: Any, told: str, did: Any) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(REFUND)).run("go")
        await desk.decide(run, decision)
        elsewhere = Script("all done")
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(agent=desk.agent(elsewhere)).resume):
            assert await desk.outcome(run) == "all done"
        assert elsewhere.returned() == [7, told]
        assert desk.did == [("stock", "nut"), *did]

    on(tmp_path, scenario)


def test_big_integers_of_a_page_are_what_they_were(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(f"return await tools.refund({{ order: 'a', cents: {2**60}n }});")).run("go")
        edited = {"approved": True, "input": {"order": "a", "cents": str(2**60 + 1)}, "bigIntegers": ["/input/cents"]}
        await desk.decide(run, edited)
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses("done").resume):
            assert await desk.outcome(run) == "done"
        assert desk.did == [("refund", "a", 2**60 + 1)]

    on(tmp_path, scenario)


def test_a_denied_call_tells_the_program_why(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(TWO)).run("go")
        elsewhere = Script("done")
        await desk.decide(run, NO, {"approved": False})
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(agent=desk.agent(elsewhere)).resume):
            assert await desk.outcome(run) == "done"
        assert elsewhere.returned() == ["not this one", "The tool call was denied."]
        assert desk.did == []

    on(tmp_path, scenario)


def test_an_edit_that_does_not_fit_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(REFUND)).run("go")
        with pytest.raises(AnswerRefusedError, match="cents"):
            await desk.decide(run, {"approved": True, "input": {"order": "a", "cents": "many"}})
        with pytest.raises(AnswerRefusedError):
            await desk.decide(run, {"aproved": True})
        assert len(await desk.waiting(run)) == 1

    on(tmp_path, scenario)


@pytest.mark.parametrize("order", [(2, 1, 0), *full_only(((0, 1, 2),), ((1, 2, 0),))])
def test_all_programs_of_a_step_are_one_record_which_goes_on_once_all_is_decided(tmp_path: Path, order: Any) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses([*program(TWO, "one"), *program(OTHER, "two")]).run("go")
        asked = list((await desk.waiting(run)).values())
        assert [one.input["order"] for one in asked] == ["a", "b", "c"]
        record = await desk.store.record(run.record_id or "", tenant="acme")
        lines = (record.source or "").split("\n")
        assert ["tools.refund" in lines[one.line - 1] for one in asked] == [True] * 3
        decisions = [OK, NO, {"approved": True, "input": {"order": "c", "cents": 9000}}]
        elsewhere, tries = Script("done"), list[int]()
        pauses = desk.pauses(agent=desk.agent(elsewhere))

        async def resume(record: Any, answers: Any) -> Any:
            tries.append(len(answers))
            return await pauses.resume(record, answers)

        async with Resumer(desk.store, tenant="acme", resume=resume, with_record=True):
            for number, at in enumerate(order, 1):
                decision = {asked[at].interrupt_id: decisions[at]}
                await desk.store.decide(decision, actor="ana", tenant="acme")
                await until(lambda number=number: _is(len(tries) == number))
            assert await desk.outcome(run) == "done"
        assert tries == [1, 2, 3]  # it is looked at once for each, and not again and again
        assert elsewhere.returned("one") == ["refunded a: 500", "not this one"]
        assert elsewhere.returned("two") == "refunded c: 9000"
        assert sorted(desk.did) == [("refund", "a", 500), ("refund", "c", 9000)]

    on(tmp_path, scenario)


async def _is(value: bool) -> bool:
    return value


def test_what_it_waits_for_next_is_the_next_version_of_the_record(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(ONE_AFTER_OTHER)).run("go")
        more = Script(program(OTHER, "second"), "done")
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(agent=desk.agent(more)).resume):
            for version, order in enumerate("abc", 1):

                async def asks(order: str = order) -> bool:
                    return [one.input["order"] for one in (await desk.waiting(run)).values()] == [order]

                await until(asks)
                record = await desk.store.record(run.record_id or "", tenant="acme")
                assert (record.version, len(record.versions)) == (version, version)
                (asked,) = (await desk.waiting(run)).values()
                assert asked.input_schema is not None
                await desk.decide(run, OK)
            assert await desk.outcome(run) == "done"
        record = await desk.store.record(run.record_id or "", tenant="acme")
        assert record.source == OTHER
        assert [one["kind"] for one in record.payload["messages"]] == ["request", "response"] * 2
        assert more.returned() == ["refunded a: 500", "refunded b: 500"]
        assert more.returned("second") == "refunded c: 90000"
        assert [one[1] for one in desk.did] == ["a", "b", "c"]

    on(tmp_path, scenario)


def test_the_same_again_runs_nothing_and_gives_the_same(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(ONE_AFTER_OTHER)).run("go")
        record = await desk.store.record(run.record_id or "", tenant="acme")
        answers = {record.requests[0].interrupt_id: OK}
        pauses = desk.pauses("done")
        first, second = await asyncio.gather(pauses.resume(record, answers), pauses.resume(record, answers))
        assert first.to_dict() == second.to_dict() == (await pauses.resume(record, answers)).to_dict()
        assert first.payload == second.payload
        with pytest.raises(CodeModeProtocolError, match="other answers"):
            await pauses.resume(record, {record.requests[0].interrupt_id: NO})
        assert desk.did == [("refund", "a", 500)]

    on(tmp_path, scenario)


def test_a_record_that_was_answered_beside_its_store_has_failed(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        agent = desk.agent(Script(program(REFUND), "done"))
        run = await desk.pauses(agent=agent).run("go")
        results = DeferredToolResults(approvals={one.tool_call_id: True for one in run.output.approvals})
        beside = await agent.run(message_history=run.result.all_messages(), deferred_tool_results=results)
        assert beside.output == "done"
        await desk.decide(run, NO)
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses("never").resume):
            with pytest.raises(CodeModeProtocolError, match="other answers"):
                await desk.outcome(run)
        record = await desk.store.record(run.record_id or "", tenant="acme")
        assert (record.state, record.not_resumable) == ("failed", None)
        assert len(desk.did) == 2

    on(tmp_path, scenario)


def test_one_process_with_the_person_and_the_agent_answers_at_once(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        pauses = desk.pauses(program(TWO), "done")
        run = await pauses.run("go")
        first, second = (one.interrupt_id for one in (await desk.waiting(run)).values())
        still = await desk.store.answer(first, OK, pauses.resume, actor="ana", tenant="acme")
        assert [one.interrupt_id for one in still.requests] == [first, second]
        assert await desk.store.answer(second, NO, pauses.resume, actor="ana", tenant="acme") == "done"
        assert await desk.outcome(run) == "done"
        assert desk.did == [("refund", "a", 500)]

    on(tmp_path, scenario)


def test_another_tenant_can_neither_decide_nor_go_on(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(REFUND)).run("go")
        (asked,) = (await desk.waiting(run)).values()
        with pytest.raises(UnknownRequestError):
            await desk.store.decide({asked.interrupt_id: OK}, actor="eve", tenant="evil")
        record = await desk.store.record(run.record_id or "", tenant="acme")
        for other in (desk.pauses(tenant="evil"), desk.pauses(app="other")):
            with pytest.raises(CodeModeProtocolError, match="another"):
                await other.resume(record, {asked.interrupt_id: OK})
        assert desk.did == [("stock", "nut")]

    on(tmp_path, scenario)


def test_runs_of_all_tenants_say_whose_they_are(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        pauses = desk.pauses(program(REFUND), "done", tenant=ALL_TENANTS)
        with pytest.raises(ValueError, match="tenant="):
            await pauses.run("go")
        run = await pauses.run("go", tenant="acme")
        await desk.decide(run, OK)
        async with Resumer(desk.store, tenant=ALL_TENANTS, resume=pauses.resume):
            assert await desk.outcome(run) == "done"
        with pytest.raises(ValueError, match="belong to tenant 'acme'"):
            await desk.pauses().run("go", tenant="evil")

    on(tmp_path, scenario)


def test_another_key_leaves_the_decision_for_a_host_that_has_it(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(REFUND)).run("go")
        await desk.decide(run, OK)
        other = CodeMode({"continuation": {"keys": "another key", "guard": desk.store.guard}})
        wrong = desk.pauses(agent=desk.agent(Script(), capability=other))

        async def is_told() -> bool:
            return (await desk.store.record(run.record_id or "", tenant="acme")).not_resumable is not None

        async with Resumer(desk.store, tenant="acme", resume=wrong.resume):
            await until(is_told)
        (request,) = (await desk.store.record(run.record_id or "", tenant="acme")).requests
        assert (request.state, request.decision) == ("decided", OK)
        assert desk.did == [("stock", "nut")]

    on(tmp_path, scenario)


def test_calls_beside_programs_are_asked_about_in_the_same_record(tmp_path: Path) -> None:
    def close(order: str) -> str:
        desk_did.append(("close", order))
        return f"closed {order}"

    def look_up(order: str) -> str:
        raise CallDeferred

    desk_did: list[Any] = []

    async def scenario(desk: Desk) -> None:
        gated = Tool(desk.refund, requires_approval=True)
        tools = [gated, Tool(close, requires_approval=True), Tool(look_up)]
        keep = ["close", "look_up"]

        def agent(model: Script) -> Agent[Any, Any]:
            return desk.agent(model, tools=tools, capability=desk.capability(keep=keep))

        native = [ToolCallPart(name, {"order": "z"}, tool_call_id=f"call_{name}") for name in keep]
        # Models repeat their ids.
        run, other = [await desk.pauses(agent=agent(Script([*program(OTHER), *native]))).run("go") for _ in range(2)]
        asked = await desk.waiting(run)
        assert [one.split(" ")[0] for one in asked] == ["refund", "close", "look_up"]
        decisions = [OK, {"approved": True, "input": {"order": "y"}}, {"found": [1, None]}]
        elsewhere = Script("done")
        await desk.decide(run, *decisions)
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(agent=agent(elsewhere)).resume):
            assert await desk.outcome(run) == "done"
        told = [elsewhere.returned(one) for one in ("outer", "call_close", "call_look_up")]
        assert told == ["refunded c: 90000", "closed y", {"found": [1, None]}]
        assert (desk.did, desk_did) == ([("refund", "c", 90000)], [("close", "y")])
        assert len(await desk.waiting(other)) == 3

    on(tmp_path, scenario)


def test_a_call_that_waits_for_a_result_takes_nothing_too(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        def look_up(order: str) -> str:
            raise CallDeferred

        def agent(model: Script) -> Agent[Any, Any]:
            return desk.agent(model, tools=[Tool(look_up)])

        js = "return [await tools.look_up({ order: 'a' }), await tools.look_up({ order: 'b' })];"
        run = await desk.pauses(agent=agent(Script(program(js)))).run("go")
        elsewhere = Script("done")
        resume = desk.pauses(agent=agent(elsewhere)).resume
        async with Resumer(desk.store, tenant="acme", resume=resume):
            await desk.decide(run, None)
            await until(lambda: _has(desk, run, 'look_up {"order": "b"}'))
            await desk.decide(run, ["x"])
            assert await desk.outcome(run) == "done"
        assert elsewhere.returned() == [None, ["x"]]

    on(tmp_path, scenario)


async def _has(desk: Desk, run: StoredRun[Any], asked: str) -> bool:
    return asked in await desk.waiting(run)


@pytest.mark.parametrize("surface", ["script", "exec", "wait"])
def test_the_other_surfaces_pause_into_the_same_store(tmp_path: Path, surface: str) -> None:
    async def scenario(desk: Desk) -> None:
        settings: dict[str, Any] = {"continuation": {"keys": KEYS, "guard": desk.store.guard}}

        def agent(model: Script) -> Agent[Any, Any]:
            face = CodeCall(settings=settings) if surface == "script" else ExecWait(settings=settings)
            return desk.agent(model, capability=face)

        code = "return await callTool('refund', { order: 'a' });"
        steps: dict[str, Any] = {
            "script": [script(code)],
            "exec": [execute("return await tools.refund({ order: 'a' });")],
            "wait": [execute("await yield_control(); return await tools.refund({ order: 'a' });"), wait()],
        }
        run = await desk.pauses(agent=agent(Script(*steps[surface]))).run("go")
        record = await desk.store.record(run.record_id or "", tenant="acme")
        assert "refund" in (record.source or "")
        (asked,) = (await desk.waiting(run)).values()
        assert (asked.tool_name, asked.input) == ("refund", {"order": "a", "cents": 500})
        await desk.decide(run, {"approved": True, "input": {"order": "a", "cents": 5}})
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(agent=agent(Script("done"))).resume):
            assert await desk.outcome(run) == "done"
        assert desk.did == [("refund", "a", 5)]

    on(tmp_path, scenario)


def test_deps_are_those_that_the_record_calls_for_and_outputs_are_plain(tmp_path: Path) -> None:
    class Done(BaseModel):
        said: str

    def refund(ctx: RunContext[str], order: str) -> str:
        return f"{ctx.deps} refunded {order}"

    async def scenario(desk: Desk) -> None:
        def agent(model: Script) -> Agent[Any, Any]:
            gated = Tool(refund, requires_approval=True)
            return desk.agent(model, tools=[gated], deps_type=str, output_type=[Done, DeferredToolRequests])

        def says(messages: Any, info: Any) -> ModelResponse:
            said = messages[-1].parts[0].content
            return ModelResponse([ToolCallPart(info.output_tools[0].name, {"said": said})])

        async def settings(record: Any) -> dict[str, Any]:
            return {"deps": f"clerk {record.labels['clerk']}"}

        ended: list[Any] = []
        js = "return await tools.refund({ order: 'a' });"
        first = desk.pauses(agent=agent(Script(program(js))))
        run = await first.run("go", deps="clerk 1", labels={"clerk": "1"})
        await desk.decide(run, OK)
        more = {"resume_with": settings, "on_end": lambda record, result: ended.append((record.id, result))}
        async with Resumer(desk.store, tenant="acme", resume=desk.pauses(agent=agent(Script(says)), **more).resume):
            assert await desk.outcome(run) == {"said": "clerk 1 refunded a"}
        ((record_id, result),) = ended
        assert record_id == run.record_id
        assert result.output == Done(said="clerk 1 refunded a")

    on(tmp_path, scenario)


def test_a_run_that_waits_for_nobody_is_no_record(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses("hello").run("go")
        assert (run.output, run.record_id) == ("hello", None)
        assert (await desk.store.list(tenant="acme")).records == ()

    on(tmp_path, scenario)
    store = MemoryInterruptStore()
    assert Desk(store).pauses("hello").run_sync("go").output == "hello"


def test_what_cannot_be_kept_is_said_when_it_is_made() -> None:
    store = MemoryInterruptStore()
    desk = Desk(store)
    with pytest.raises(ValueError, match="no codemode capability"):
        stored_pauses(Agent(Script().model), store)
    with pytest.raises(ValueError, match="another guard"):
        desk.pauses(agent=desk.agent(Script(), capability=CodeMode()))
    other = MemoryInterruptStore()
    with pytest.raises(ValueError, match="guard"):
        Resumer(other, tenant="acme", resume=desk.pauses().resume)


# --- what fails


# --- parked programs in the same store


# --- hosts that die
