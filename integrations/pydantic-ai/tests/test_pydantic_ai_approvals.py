"""People and the calls inside programs: pauses, answers, repeats, and what must never run."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode, CodeModeToolset, answer
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    repair_messages,
)
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program
from warm_python import WarmPython

from codemode import CodeModeProtocolError

WAIT_SECONDS = 60.0
ANSWERED_BEFORE = (
    "This paused codeMode call cannot resume: it was answered before: .* with other answers: .*"
    "Continue with the message history from the first answers"
)
REFUNDS = """
const stock = await tools.stock({ product: "nut" });
const refunds = await Promise.allSettled(["a", "b"].map((order) => tools.refund({ order })));
return [stock, ...refunds.map((one) => one.value ?? one.reason.message)];
"""


class Desk:
    """Two tools, one of which needs approval; ``did`` is what has happened."""

    def __init__(self) -> None:
        self.did: list[Any] = []

    def refund(self, order: str, cents: int = 500) -> str:
        self.did.append(("refund", order, cents))
        return f"refunded {order}: {cents}"

    def stock(self, product: str) -> int:
        self.did.append(("stock", product))
        return 7

    def tools(self) -> list[Tool[Any]]:
        return [Tool(self.stock), Tool(self.refund, requires_approval=True)]

    def agent(self, script: Script, *more: Any, options: Any = None, **settings: Any) -> Agent[Any, Any]:
        settings.setdefault("tools", self.tools())
        capabilities = [CodeMode(options), *more]
        return Agent(script.model, output_type=[str, DeferredToolRequests], capabilities=capabilities, **settings)


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def stored(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The messages after a stay in a database."""
    return ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))


def edit_and_deny(requests: DeferredToolRequests) -> DeferredToolResults:
    first, second = (call.tool_call_id for call in requests.approvals)
    edited = ToolApproved(override_args={"order": "a", "cents": 300})
    return DeferredToolResults(approvals={first: edited, second: ToolDenied("not this one")})


def test_two_refunds_wait_at_once_one_is_edited_and_one_denied() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    assert isinstance(paused.output, DeferredToolRequests)
    assert [(call.tool_name, call.args) for call in paused.output.approvals] == [
        ("refund", {"order": "a", "cents": 500}),
        ("refund", {"order": "b", "cents": 500}),
    ]
    assert len({call.tool_call_id for call in paused.output.approvals}) == 2
    assert desk.did == [("stock", "nut")]
    results = edit_and_deny(paused.output)
    result = within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results))
    assert result.output == "done"
    assert script.returned() == [7, "refunded a: 300", "not this one"]
    assert desk.did == [("stock", "nut"), ("refund", "a", 300)]
    calls = [
        part.tool_name for message in result.all_messages() for part in message.parts if hasattr(part, "tool_name")
    ]
    assert calls == ["codeMode", "codeMode"]  # the model never hears of calls that it did not make


def test_the_same_from_sync_code() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    agent = desk.agent(script)
    with closing(asyncio.new_event_loop()) as loop:  # `run_sync` would leave one of its own behind
        asyncio.set_event_loop(loop)
        paused = agent.run_sync("go")
        results = edit_and_deny(paused.output)
        assert agent.run_sync(message_history=paused.all_messages(), deferred_tool_results=results).output == "done"
        asyncio.set_event_loop(None)
    assert desk.did == [("stock", "nut"), ("refund", "a", 300)]


def test_the_same_streamed() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    agent = desk.agent(script)

    async def main() -> str:
        async with agent.run_stream("go") as stream:
            requests = await stream.get_output()
            messages = stored(stream.all_messages())
        results = edit_and_deny(requests)
        async with agent.run_stream(message_history=messages, deferred_tool_results=results) as stream:
            return await stream.get_output()

    assert within(main()) == "done"
    assert desk.did == [("stock", "nut"), ("refund", "a", 300)]


def test_the_same_node_by_node() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    agent = desk.agent(script)

    async def to_the_end(*prompt: Any, **settings: Any) -> Any:
        async with agent.iter(*prompt, **settings) as run:
            async for _ in run:
                pass
        return run.result

    paused = within(to_the_end("go"))
    results = edit_and_deny(paused.output)
    history = stored(paused.all_messages())
    assert within(to_the_end(message_history=history, deferred_tool_results=results)).output == "done"
    assert desk.did == [("stock", "nut"), ("refund", "a", 300)]


OTHER_PROCESS = """
import json, sys
import codemode
from pydantic_ai import DeferredToolResults
from pydantic_ai.messages import ModelMessagesTypeAdapter
from scripted import Script
from test_pydantic_ai_approvals import Desk, edit_and_deny
codemode.set_continuation_signing_key("a key that both know")
given = json.load(sys.stdin)
desk, script = Desk(), Script("done")
approvals = {one: True for one in given["waiting"]}
result = desk.agent(script).run_sync(
    message_history=ModelMessagesTypeAdapter.validate_python(given["messages"]),
    deferred_tool_results=DeferredToolResults(approvals=approvals),
)
print(json.dumps([result.output, script.returned(), desk.did]))
"""


def in_another_process(python: WarmPython, paused: Any) -> subprocess.CompletedProcess[str]:
    waiting = [call.tool_call_id for call in paused.output.approvals]
    given = {"messages": ModelMessagesTypeAdapter.dump_python(paused.all_messages(), mode="json"), "waiting": waiting}
    return python.run("-c", OTHER_PROCESS, said=json.dumps(given), cwd=Path(__file__).parent)


def test_another_process_with_the_same_key_goes_on(pydantic_ai_python: WarmPython) -> None:
    options = {"continuation": {"keys": "a key that both know"}}
    paused = within(Desk().agent(Script(program(REFUNDS)), options=options).run("go"))
    done = in_another_process(pydantic_ai_python, paused)
    assert done.returncode == 0, done.stderr
    output, returned, did = json.loads(done.stdout)
    assert (output, returned) == ("done", [7, "refunded a: 500", "refunded b: 500"])
    assert sorted(did) == [["refund", "a", 500], ["refund", "b", 500]]


@pytest.mark.full
def test_another_process_with_another_key_refuses(pydantic_ai_python: WarmPython) -> None:
    done = in_another_process(pydantic_ai_python, within(Desk().agent(Script(program(REFUNDS))).run("go")))
    assert done.returncode != 0
    assert "set_continuation_signing_key" in done.stderr


def test_nothing_runs_twice_when_the_model_fails_after_the_resume() -> None:
    def fail(messages: Any, info: Any) -> ModelResponse:
        raise ConnectionError("the provider is down")

    desk, script = Desk(), Script(program(REFUNDS), fail, "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    results, history = edit_and_deny(paused.output), paused.all_messages_json()
    with pytest.raises(ConnectionError):
        within(
            agent.run(message_history=ModelMessagesTypeAdapter.validate_json(history), deferred_tool_results=results)
        )
    again = ModelMessagesTypeAdapter.validate_json(history)
    assert within(agent.run(message_history=again, deferred_tool_results=results)).output == "done"
    assert script.returned() == [7, "refunded a: 300", "not this one"]
    assert desk.did == [("stock", "nut"), ("refund", "a", 300)]


def test_other_answers_afterwards_are_refused() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done", "more")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    history = stored(paused.all_messages())
    first = within(agent.run(message_history=history, deferred_tool_results=edit_and_deny(paused.output)))
    ids = [call.tool_call_id for call in paused.output.approvals]
    for answers in (dict.fromkeys(ids, True), dict.fromkeys(ids[:1], False)):
        other = DeferredToolResults(approvals=answers)
        with pytest.raises(UserError, match=ANSWERED_BEFORE) as caught:
            within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=other))
        assert isinstance(caught.value.__cause__, CodeModeProtocolError)
        assert caught.value.__cause__.details["superseded"] is True
    assert desk.did == [("stock", "nut"), ("refund", "a", 300)]
    assert within(agent.run("and now?", message_history=stored(first.all_messages()))).output == "more"


def test_the_second_answer_is_refused_where_the_first_one_was_not_the_last() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    first, second = (DeferredToolResults(approvals={call.tool_call_id: True}) for call in paused.output.approvals)
    history = stored(
        within(agent.run(message_history=paused.all_messages(), deferred_tool_results=first)).all_messages()
    )
    with pytest.raises(UserError, match=ANSWERED_BEFORE):  # that history is what goes on
        within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=second))
    assert desk.did == [("stock", "nut"), ("refund", "a", 500)]
    assert within(agent.run(message_history=history, deferred_tool_results=second)).output == "done"
    assert desk.did == [("stock", "nut"), ("refund", "a", 500), ("refund", "b", 500)]


def test_two_who_answer_differently_at_once_run_one_answer() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done", "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))

    async def race() -> list[Any]:
        ids = [call.tool_call_id for call in paused.output.approvals]
        results = [DeferredToolResults(approvals=dict.fromkeys(ids, said)) for said in (True, False)]
        runs = [agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=one) for one in results]
        return await asyncio.gather(*runs, return_exceptions=True)

    ended = within(race())
    assert [one.output for one in ended if not isinstance(one, BaseException)] == ["done"]
    (error,) = (one for one in ended if isinstance(one, BaseException))
    assert isinstance(error, UserError)
    assert "Continue with the message history" in str(error)
    assert len(desk.did) in (1, 3)


def test_what_was_answered_is_not_answered_otherwise_where_nothing_translates_it() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    own = [CodeModeToolset(FunctionToolset(desk.tools()))]
    agent: Any = Agent(script.model, output_type=[str, DeferredToolRequests], toolsets=own)
    paused = within(agent.run("go"))
    (metadata,) = paused.output.metadata.values()
    ids = [one["toolCallId"] for one in metadata["codemode"]["requests"]]
    yes, no = (answer(paused.output, dict.fromkeys(ids, said)) for said in (True, False))
    within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=yes))
    with pytest.raises(UserError, match=ANSWERED_BEFORE):
        within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=no))
    assert len(desk.did) == 3


def test_answers_may_come_one_by_one() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    first, second = (call.tool_call_id for call in paused.output.approvals)
    again = within(
        agent.run(
            message_history=stored(paused.all_messages()),
            deferred_tool_results=DeferredToolResults(approvals={second: True}),
        )
    )
    assert [call.tool_call_id for call in again.output.approvals] == [first]
    assert desk.did == [("stock", "nut"), ("refund", "b", 500)]
    result = within(
        agent.run(
            message_history=stored(again.all_messages()),
            deferred_tool_results=DeferredToolResults(approvals={first: False}),
        )
    )
    assert result.output == "done"
    assert script.returned() == [7, "The tool call was denied.", "refunded b: 500"]


def test_no_answer_leaves_everything_as_it_is() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    again = within(agent.run(message_history=stored(paused.all_messages())))
    assert again.output == paused.output
    assert desk.did == [("stock", "nut")]
    with pytest.raises(UserError, match="unprocessed tool calls"):
        within(agent.run("something else", message_history=stored(paused.all_messages())))


def test_a_conversation_goes_on_without_its_paused_program() -> None:
    desk, script = Desk(), Script(program(REFUNDS), "something else")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    history = repair_messages(stored(paused.all_messages()), repair_last_response=True)
    assert within(agent.run("never mind", message_history=history)).output == "something else"
    assert [part.tool_name for part in script.seen[-1][0][1].parts] == ["codeMode"]
    assert desk.did == [("stock", "nut")]


def test_a_program_cannot_catch_a_pause() -> None:
    js = "try { await tools.refund({ order: 'a' }) } catch { await tools.stock({ product: 'x' }) } finally { return 1 }"
    desk = Desk()
    paused = within(desk.agent(Script(program(js))).run("go"))
    assert isinstance(paused.output, DeferredToolRequests)
    assert desk.did == []


def test_a_toolset_that_requires_approval() -> None:
    desk, script = Desk(), Script(program("return await tools.refund({ order: 'a' })"), "done")
    toolset = FunctionToolset[Any]([desk.refund]).approval_required()
    agent = desk.agent(script, tools=[], toolsets=[toolset])
    paused = within(agent.run("go"))
    (call,) = paused.output.approvals
    assert desk.did == []
    results = DeferredToolResults(approvals={call.tool_call_id: True})
    within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results))
    assert script.returned() == "refunded a: 500"


def test_a_tool_that_raises_approval_required_with_metadata() -> None:
    seen: list[Any] = []

    def transfer(ctx: RunContext[Any], cents: int) -> str:
        if cents > 100 and not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={"limit": 100})
        seen.append((cents, ctx.tool_call_metadata))
        return "sent"

    js = "return [await tools.transfer({ cents: 5 }), await tools.transfer({ cents: 500 })]"
    script = Script(program(js), "done")
    agent = Desk().agent(script, tools=[transfer])
    paused = within(agent.run("go"))
    (call,) = paused.output.approvals
    assert paused.output.metadata == {call.tool_call_id: {"limit": 100}}
    assert "limit" not in json.dumps(ModelMessagesTypeAdapter.dump_python(paused.all_messages(), mode="json"))
    results = DeferredToolResults(approvals={call.tool_call_id: True}, metadata={call.tool_call_id: {"by": "ann"}})
    within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results))
    assert seen == [(5, None), (500, {"by": "ann"})]


def test_a_deferred_call_gets_its_result_from_outside() -> None:
    def survey(topic: str) -> str:
        raise CallDeferred(metadata={"job": 7})

    has_questions = hasattr(DeferredToolRequests, "kind")

    def ask(question: str) -> str:
        raise CallDeferred(**({"kind": "question"} if has_questions else {}))

    js = "return await Promise.all([tools.survey({ topic: 'a' }), tools.ask({ question: 'why' })])"
    script = Script(program(js), "done")
    agent = Desk().agent(script, tools=[survey, ask])
    paused = within(agent.run("go"))
    first, second = paused.output.calls
    assert (first.tool_name, first.args, second.tool_name) == ("survey", {"topic": "a"}, "ask")
    if has_questions:
        kinds = [paused.output.kind(call.tool_call_id) for call in (first, second)]
        assert kinds == ["external", "question"]
    assert paused.output.metadata == {first.tool_call_id: {"job": 7}}
    approved = DeferredToolResults(approvals={first.tool_call_id: True})
    with pytest.raises(UserError, match="waits for a result"):
        within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=approved))
    results = DeferredToolResults(calls={first.tool_call_id: {"yes": 4}, second.tool_call_id: "because"})
    within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results))
    assert script.returned() == [{"yes": 4}, "because"]


def test_a_pause_after_a_pause() -> None:
    js = "await tools.refund({ order: 'a' }); return await tools.refund({ order: 'b' })"
    desk, script = Desk(), Script(program(js), "done")
    agent = desk.agent(script)
    result = within(agent.run("go"))
    for order in ("a", "b"):
        (call,) = result.output.approvals
        assert call.args == {"order": order, "cents": 500}
        results = DeferredToolResults(approvals={call.tool_call_id: True})
        result = within(agent.run(message_history=stored(result.all_messages()), deferred_tool_results=results))
    assert result.output == "done"
    assert desk.did == [("refund", "a", 500), ("refund", "b", 500)]


def test_two_programs_pause_in_one_response() -> None:
    js = "return await tools.refund({ order: ORDER })"
    both = [*program(js.replace("ORDER", "'a'"), "one"), *program(js.replace("ORDER", "'b'"), "two")]
    desk, script = Desk(), Script(both, "done")
    agent = desk.agent(script)
    paused = within(agent.run("go"))
    first, second = paused.output.approvals
    results = DeferredToolResults(approvals={first.tool_call_id: True})
    again = within(agent.run(message_history=stored(paused.all_messages()), deferred_tool_results=results))
    assert [call.tool_call_id for call in again.output.approvals] == [second.tool_call_id]
    results = DeferredToolResults(approvals={second.tool_call_id: True})
    within(agent.run(message_history=stored(again.all_messages()), deferred_tool_results=results))
    assert (script.returned("one"), script.returned("two")) == ("refunded a: 500", "refunded b: 500")


def test_an_inline_handler_answers_inner_calls() -> None:
    asked: list[Any] = []

    def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        asked.extend((call.tool_name, call.args) for call in requests.approvals)
        return requests.build_results(
            approvals={call.tool_call_id: call.args_as_dict()["order"] == "a" for call in requests.approvals}
        )

    desk, script = Desk(), Script(program(REFUNDS), "done")
    within(desk.agent(script, HandleDeferredToolCalls(handle)).run("go"))
    assert sorted(asked, key=str) == sorted(
        [("refund", {"order": "a", "cents": 500}), ("refund", {"order": "b", "cents": 500})], key=str
    )
    assert script.returned() == [7, "refunded a: 500", "The tool call was denied."]
    assert desk.did == [("stock", "nut"), ("refund", "a", 500)]


def test_time_stands_still_while_an_inline_handler_asks_a_person(passing_time: Any) -> None:
    async def handle(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        passing_time.skip(350)  # longer than the program may take
        await asyncio.sleep(0)  # in which a deadline would ring
        return requests.build_results(approve_all=True)

    desk, script = Desk(), Script(program("return await tools.refund({ order: 'a' })"), "done")
    options = {"execution_policy": {"timeout_ms": 60_000}}
    within(desk.agent(script, HandleDeferredToolCalls(handle), options=options).run("go"))
    assert script.returned() == "refunded a: 500"
