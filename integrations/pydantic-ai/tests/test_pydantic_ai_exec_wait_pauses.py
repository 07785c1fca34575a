"""Programs of exec that a person is asked about: in the call of exec or of wait, over histories, in a store."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from codemode_pydantic_ai import ExecWait
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool, ToolApproved, ToolDenied
from pydantic_ai.exceptions import CallDeferred, UserError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from scripted import Script, execute, wait
from suite import each_row

import codemode
from codemode import ToolSource
from codemode.stores import SqliteInterruptStore

WAIT_SECONDS = 60.0
KEYS = {"continuation": {"keys": "k" * 32}}
REFUND = "return await tools.refund({ order: 'a' })"
YIELDED = f"text('first'); await yield_control('now'); text('then'); {REFUND}"


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


class Desk:
    """Agents with a tool that needs approval; each is one of a new process, as far as it can tell."""

    def __init__(self, **given: Any) -> None:
        self.given = given
        self.done: list[Any] = []
        self.capabilities: list[ExecWait[Any]] = []

    def agent(self, *steps: Any) -> tuple[Agent[Any, Any], Script]:
        def refund(order: str, cents: int = 500) -> str:
            self.done.append((order, cents))
            return f"refunded {cents} for {order}"

        script = Script(*steps)
        tools = [Tool(refund, requires_approval=True), Tool(outside)]
        output: Any = [str, DeferredToolRequests]
        self.capabilities.append(ExecWait(**self.given))
        return Agent(script.model, tools=tools, output_type=output, capabilities=self.capabilities[-1:]), script


def outside(question: str) -> str:
    """Ask somebody else."""
    raise CallDeferred(metadata={"question": question})


def stored(result: Any) -> list[Any]:
    """The history as it comes back from a database."""
    return ModelMessagesTypeAdapter.validate_json(result.all_messages_json())


def approvals(result: Any, answer: Any = True) -> DeferredToolResults:
    return DeferredToolResults(approvals={call.tool_call_id: answer for call in result.output.approvals})


def first_steps(where: str) -> list[Any]:
    return [execute(REFUND, "waiting")] if where == "exec" else [execute(YIELDED), wait()]


@each_row("where", ["exec", "wait"])
@each_row(
    "answer, value, done",
    [
        (True, "refunded 500 for a", [("a", 500)]),
        (ToolApproved(override_args={"order": "a", "cents": 300}), "refunded 300 for a", [("a", 300)]),
        (ToolDenied("not this one"), None, []),
    ],
)
def test_an_inner_call_is_shown_and_answered(where: str, answer: Any, value: Any, done: Any) -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        agent, script = desk.agent(*first_steps(where))
        paused = await agent.run("go")
        (call,) = paused.output.approvals
        assert (call.tool_name, call.args) == ("refund", {"order": "a", "cents": 500})
        assert desk.done == []
        assert len(script.seen) == len(first_steps(where))  # a pause asks no model

        agent, script = desk.agent("done")
        results = approvals(paused, answer)
        result = await agent.run(message_history=stored(paused), deferred_tool_results=results)
        assert result.output == "done"
        told = script.returned("waiting")
        assert desk.done == done
        if value is None:
            assert (told["status"], told["code"]) == ("failed", "nested_tool_failed")
            assert "not this one" in told["error"]
        else:
            assert (told["status"], told["value"]) == ("completed", value)
        seen = str(script.seen[-1][0])
        assert ":interrupt-" not in seen
        assert "continuation" not in seen

    within(main())


@pytest.mark.parametrize("where", ["exec", "wait"])
def test_the_same_answers_again_give_the_recorded_result_and_others_are_refused(where: str) -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        paused = await desk.agent(*first_steps(where))[0].run("go")
        for _ in range(2):
            agent, script = desk.agent("done")
            await agent.run(message_history=stored(paused), deferred_tool_results=approvals(paused))
            assert script.returned("waiting")["value"] == "refunded 500 for a"
        agent, _ = desk.agent("done")
        with pytest.raises(UserError, match=r"answered before: .* already been resumed"):
            await agent.run(message_history=stored(paused), deferred_tool_results=approvals(paused, answer=False))
        assert desk.done == [("a", 500)]

    within(main())


def test_a_resumed_program_may_wait_again_and_be_gone_on_with() -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        code = f"const a = await tools.refund({{ order: 'b' }}); await yield_control(); {REFUND}"
        paused = await desk.agent(execute(code))[0].run("go")
        agent, script = desk.agent(wait())
        again = await agent.run(message_history=stored(paused), deferred_tool_results=approvals(paused))
        assert script.returned()["reason"] == "yield"
        (call,) = again.output.approvals
        assert call.args == {"order": "a", "cents": 500}
        agent, script = desk.agent("done")
        await agent.run(message_history=stored(again), deferred_tool_results=approvals(again))
        assert script.returned("waiting")["value"] == "refunded 500 for a"
        assert desk.done == [("b", 500), ("a", 500)]

    within(main())


def test_a_repeated_resume_of_a_program_that_waits_again_gives_the_same_run() -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        code = "const a = await tools.refund({ order: 'b' }); await yield_control(); return a"
        agent, _ = desk.agent(execute(code))
        paused = await agent.run("go")
        with pytest.raises(IndexError):  # the model is away
            await agent.run(message_history=stored(paused), deferred_tool_results=approvals(paused))
        agent.model = Script(wait(), "done").model
        result = await agent.run(message_history=stored(paused), deferred_tool_results=approvals(paused))
        parts = [part for message in result.all_messages() for part in message.parts]
        told = {part.tool_call_id: part.content for part in parts if part.part_kind == "tool-return"}
        assert told["waiting"]["value"] == "refunded 500 for b"
        assert desk.done == [("b", 500)]

    within(main())


def test_some_answers_leave_the_others_waiting_in_the_same_call() -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        code = """await yield_control();
            return Promise.all(["a", "b"].map((order) => tools.refund({ order }))).then((all) => all.length)"""
        paused = await desk.agent(execute(code), wait())[0].run("go")
        first, second = paused.output.approvals
        some = DeferredToolResults(approvals={first.tool_call_id: True})
        again = await desk.agent()[0].run(message_history=stored(paused), deferred_tool_results=some)
        (left,) = again.output.approvals
        assert left.tool_call_id == second.tool_call_id
        agent, script = desk.agent("done")
        await agent.run(message_history=stored(again), deferred_tool_results=approvals(again))
        assert script.returned("waiting")["value"] == 2
        assert sorted(desk.done) == [("a", 500), ("b", 500)]

    within(main())


def test_several_calls_of_one_response_may_wait_for_a_person_at_once() -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        both = [*execute(REFUND, "other"), ToolCallPart("exec", {"code": REFUND}, tool_call_id="more")]
        paused = await desk.agent(both)[0].run("go")
        assert len(paused.output.approvals) == 2
        agent, script = desk.agent("done")
        await agent.run(message_history=stored(paused), deferred_tool_results=approvals(paused))
        assert [script.returned(one)["value"] for one in ("other", "more")] == ["refunded 500 for a"] * 2

    within(main())


def test_a_call_for_somebody_else_takes_a_result() -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        code = "await yield_control(); return await tools.outside({ question: 'why' })"
        paused = await desk.agent(execute(code), wait())[0].run("go")
        (call,) = paused.output.calls
        assert paused.output.metadata[call.tool_call_id] == {"question": "why"}
        agent, script = desk.agent("done")
        results = DeferredToolResults(calls={call.tool_call_id: "because"})
        await agent.run(message_history=stored(paused), deferred_tool_results=results)
        assert script.returned("waiting")["value"] == "because"

    within(main())


def test_a_denied_wait_ends_the_program_for_good() -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        paused = await desk.agent(execute(YIELDED), wait())[0].run("go")
        agent, script = desk.agent("done")
        denied = DeferredToolResults(approvals={"waiting": ToolDenied("stop it")})
        await agent.run(message_history=stored(paused), deferred_tool_results=denied)
        assert script.returned("waiting") == "stop it"
        agent, _ = desk.agent("done")
        with pytest.raises(UserError, match=r"answered before: .* already been resumed"):
            await agent.run(message_history=stored(paused), deferred_tool_results=approvals(paused))
        assert desk.done == []

    within(main())


@pytest.mark.parametrize("where", ["exec", "wait"])
def test_to_approve_the_outer_call_approves_nothing(where: str) -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        paused = await desk.agent(*first_steps(where))[0].run("go")
        whole = DeferredToolResults(approvals={"waiting": True})
        again = await desk.agent()[0].run(message_history=stored(paused), deferred_tool_results=whole)
        assert [call.tool_call_id for call in again.output.approvals] == [
            call.tool_call_id for call in paused.output.approvals
        ]
        assert desk.done == []

    within(main())


def test_another_conversation_cannot_answer() -> None:
    async def main() -> None:
        desk = Desk(settings=KEYS)
        paused = await desk.agent(*first_steps("wait"))[0].run("go", conversation_id="one")
        history = stored(paused)
        for message in history:
            message.conversation_id = "two"
        with pytest.raises(UserError, match="conversation"):
            await desk.agent("done")[0].run(message_history=history, deferred_tool_results=approvals(paused))
        assert desk.done == []

    within(main())


@pytest.mark.parametrize("change", ["name", "id", "args", "gone"])
def test_who_writes_metadata_chooses_no_other_call(change: str) -> None:
    """The browser of a UI may hold the metadata: answers to a wait must approve nothing else that is asked for."""

    async def main() -> None:
        desk = Desk(settings=KEYS)
        script = Script(
            execute(YIELDED),
            lambda messages, info: ModelResponse(
                parts=[*wait()(messages, info).parts, ToolCallPart("direct", {}, tool_call_id="gated")]
            ),
        )
        ran: list[str] = []
        direct = Tool(lambda: ran.append("direct"), name="direct", takes_ctx=False, requires_approval=True)
        refund = Tool(lambda order: "refunded", name="refund", takes_ctx=False, requires_approval=True)
        agent: Agent[Any, Any] = Agent(
            script.model,
            tools=[direct, refund],
            output_type=[str, DeferredToolRequests],
            capabilities=[ExecWait(direct=["direct"], **desk.given)],
        )
        paused = await agent.run("go")
        inner = next(call for call in paused.output.approvals if call.tool_name == "refund")
        told = json.loads(paused.all_messages_json())
        metadata = next(one["metadata"] for one in told if one.get("metadata"))["codemode"]
        kept = metadata.pop("waiting")
        if change == "name":
            kept["call"]["name"] = "direct"
        elif change == "args":
            kept["call"]["args"] = None
        elif change == "id":
            kept["call"]["id"] = "gated"
        if change != "gone":
            metadata["gated" if change == "id" else "waiting"] = kept
        history = ModelMessagesTypeAdapter.validate_json(json.dumps(told))
        script.steps.append("done")
        fresh = Agent(
            script.model,
            tools=[direct, refund],
            output_type=[str, DeferredToolRequests],
            capabilities=[ExecWait(direct=["direct"], **desk.given)],
        )
        answers = DeferredToolResults(approvals={inner.tool_call_id: True})
        with pytest.raises(UserError):
            await fresh.run(message_history=history, deferred_tool_results=answers)
        assert ran == []

    within(main())


@pytest.mark.parametrize("sends_metadata", [True, False], ids=["metadata", "ids"])
def test_a_client_may_keep_the_history_without_the_call_of_wait(sends_metadata: bool) -> None:
    """UI adapters take out the outer call that waits; some clients send the metadata back, some nothing but ids."""

    async def main() -> None:
        desk = Desk(settings=KEYS)
        agent, script = desk.agent(execute(YIELDED), wait())
        paused = await agent.run("go")
        history = stored(paused)
        response = history[-1]
        response.parts = [part for part in response.parts if part.tool_name != "wait"]
        assert [part.tool_name for part in response.parts] == ["refund"]
        if not sends_metadata:
            response.metadata = None
        script.steps.append("done")
        answering = desk.agent("done")[0] if sends_metadata else agent
        result = await answering.run(message_history=history, deferred_tool_results=approvals(paused))
        calls = [part for message in result.all_messages() for part in message.parts if part.part_kind == "tool-call"]
        assert [call.tool_name for call in calls] == ["exec", "wait"]
        assert desk.done == [("a", 500)]

    within(main())


def test_tools_of_sources_ask_in_the_same_way() -> None:
    async def main() -> None:
        done: list[Any] = []

        def ruled(given: Any, _context: Any) -> bool:
            return given["cents"] > 100

        pay = codemode.Tool(
            "pay",
            execute=lambda given: done.append(given) or "paid",
            input_schema={"type": "object"},
            needs_approval=ruled,
        )
        sources = ToolSource([pay], "plugin", "bank")
        code = "return [await tools.pay({ cents: 5 }), await tools.pay({ cents: 500 })]"
        script = Script(execute(code), "done")
        capability = ExecWait(sources, settings=KEYS)
        agent: Agent[Any, Any] = Agent(script.model, output_type=[str, DeferredToolRequests], capabilities=[capability])
        paused = await agent.run("go")
        (call,) = paused.output.approvals
        assert (call.tool_name, call.args, done) == ("plugin:bank:pay", {"cents": 500}, [{"cents": 5}])
        await agent.run(message_history=stored(paused), deferred_tool_results=approvals(paused))
        assert script.returned()["value"] == ["paid", "paid"]
        assert done == [{"cents": 5}, {"cents": 500}]

    within(main())


# -- in a store


def kept(store: Any, **options: Any) -> dict[str, Any]:
    return {"settings": KEYS, "store": store, "tenant": "acme", "app": "desk", "options": options}


def test_a_parked_program_waits_in_the_store_and_any_process_goes_on_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteInterruptStore(tmp_path / "runs.sqlite") as store:
            desk = Desk(**kept(store, approvals="park"))
            agent, script = desk.agent(execute(YIELDED), wait(), wait("again"), "asked")
            first = await agent.run("go")
            told = script.returned("waiting")
            assert (told["status"], [one["status"] for one in told["pendingToolCalls"]]) == ("waiting", ["approval"])
            assert script.returned("again")["status"] == "waiting"
            assert "person" in told["note"]

            (record,) = (await store.list(tenant="acme")).records
            (request,) = record.requests
            decision = {request.interrupt_id: {"approved": True}}
            await store.decide(decision, actor="boss", tenant="acme")
            agent, script = desk.agent()
            script.steps = [script.waits_to_the_end, "done"]
            await agent.run("on", message_history=stored(first))
            assert script.results[-1]["value"] == "refunded 500 for a"
            assert desk.done == [("a", 500)]

    within(main())


def test_a_program_at_rest_is_gone_on_with_by_another_process(tmp_path: Path) -> None:
    async def main() -> None:
        async with SqliteInterruptStore(tmp_path / "runs.sqlite") as store:
            desk = Desk(**kept(store))
            agent, _ = desk.agent(execute(f"text('first'); await yield_control(); {REFUND}"), "first")
            first = await agent.run("go")
            await desk.capabilities[-1].aclose()  # as a process that ends in order does

            agent, script = desk.agent(wait())
            paused = await agent.run("on", message_history=stored(first))
            (call,) = paused.output.approvals
            assert call.tool_name == "refund"
            agent, script = desk.agent("done")
            await agent.run(message_history=stored(paused), deferred_tool_results=approvals(paused))
            assert script.returned("waiting")["value"] == "refunded 500 for a"
            assert desk.done == [("a", 500)]

    within(main())
