"""Nested calls that fail: a failure that a program catches costs nothing, any other is codeMode's own retry."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode, CodeModeToolset, create_code_mode_tool
from pydantic import BaseModel, TypeAdapter
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    Tool,
    UsageLimits,
)
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import RunCancelled, ToolFailed, UnexpectedModelBehavior, UsageLimitExceeded, UserError
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, program
from suite import each_row, full_only

import codemode

WAIT_SECONDS = 60.0
MANY = """
const told = [];
for (let n = 0; n < 30; n += 1) { try { await tools.fails({ n }) } catch (error) { told.push(error.message) } }
return [told.length, new Set(told).size, told[0]];
"""


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def ran(script: Script, tools: Any, *, capabilities: Any = None, **settings: Any) -> Any:
    agent = Agent(script.model, tools=tools, capabilities=capabilities or [CodeMode()], **settings)
    return within(agent.run("go"))


class Row(BaseModel):
    n: int


def retries(n: int) -> int:
    raise ModelRetry("another n, please")


def gives_up(n: int) -> int:
    raise ToolFailed("no luck")


def cannot_parse(n: int) -> Row:
    return TypeAdapter(Row).validate_python({"n": "secret-of-the-host"})


async def times_out(n: int) -> int:
    await asyncio.Event().wait()
    return n


async def refused(ctx: RunContext[Any], n: int) -> None:
    raise ModelRetry("this n is taken")


def unused(n: int) -> int:
    raise AssertionError("never runs")


FAILING = {
    "ModelRetry": (Tool(retries, name="fails"), "another n, please"),
    "ToolFailed": (Tool(gives_up, name="fails"), "no luck"),
    "ValidationError": (Tool(cannot_parse, name="fails"), "Invalid input: n: "),
    "timeout": (Tool(times_out, name="fails", timeout=0.001), "Timed out after 0.001 seconds"),
    "args_validator": (Tool(unused, name="fails", args_validator=refused), "this n is taken"),
    "accident": (Tool(lambda n: {}[n], name="fails"), "failed"),
}


@each_row("max_retries", [1, *full_only(0)])
@each_row("kind", FAILING)
def test_a_caught_failure_costs_nothing_however_often(kind: str, max_retries: int) -> None:
    tool, text = FAILING[kind]
    script = Script(program(MANY), program(MANY, "again"), "done")
    tool = Tool(
        tool.function, name="fails", max_retries=max_retries, timeout=tool.timeout, args_validator=tool.args_validator
    )
    assert ran(script, [tool], capabilities=[CodeMode(max_retries=0)]).output == "done"
    for call in ("outer", "again"):
        count, kinds, told = script.returned(call)
        assert (count, kinds) == (30, 1)
        assert text in told
        assert "secret-of-the-host" not in told


def test_wrong_input_and_unknown_tools_cost_nothing() -> None:
    js = """
    const wrong = JSON.parse('{"n": "many"}'), name = JSON.parse('"nowhere"'), told = [];
    for (let n = 0; n < 20; n += 1) {
      try { await tools.fails(wrong) } catch { told.push(n) }
      try { await tools[name]({ n }) } catch { told.push(n) }
    }
    return told.length;
    """
    script = Script(program(js), "done")
    assert ran(script, [Tool(unused, name="fails", max_retries=0)], capabilities=[CodeMode(max_retries=0)])
    assert script.returned() == 40


def test_caught_failures_of_calls_side_by_side_cost_nothing() -> None:
    js = "return (await Promise.allSettled([...Array(25).keys()].map((n) => tools.fails({ n })))).length"
    script = Script(program(js), program(js, "again"), "done")
    ran(script, [Tool(retries, name="fails", max_retries=0)], capabilities=[CodeMode(max_retries=0)])
    assert (script.returned(), script.returned("again")) == (25, 25)


def test_an_uncaught_failure_is_a_retry_of_code_mode_and_of_nothing_else() -> None:
    seen: list[tuple[int, dict[str, int]]] = []

    def fails(ctx: RunContext[Any], n: int) -> int:
        seen.append((ctx.retry, dict(ctx.retries)))
        raise ModelRetry("another n, please")

    uncaught = "return await tools.fails({ n: 1 })"
    script = Script(*(program(uncaught, f"c{n}") for n in range(3)), program("return 1", "last"), "done")
    assert ran(script, [Tool(fails, max_retries=0)]).output == "done"
    assert seen == [(0, {}), (0, {"codeMode": 1}), (0, {"codeMode": 2})]
    assert "another n, please" in str(script.returned("c0"))
    with pytest.raises(UnexpectedModelBehavior, match="'codeMode' exceeded max retries count of 1"):
        ran(Script(*(program(uncaught, f"c{n}") for n in range(3))), [fails], capabilities=[CodeMode(max_retries=1)])


def test_caught_failures_leave_codemodes_own_budget_alone() -> None:
    uncaught = "throw new Error('mine')"
    script = Script(program(MANY), program(uncaught, "a"), program(MANY, "b"), program(uncaught, "c"), "done")
    ran(script, [Tool(retries, name="fails")], capabilities=[CodeMode(max_retries=1)])
    assert script.returned("b")[0] == 30


def test_caught_failures_cost_nothing_without_the_capability() -> None:
    tool = Tool(retries, name="fails", max_retries=0)
    for given in ({"toolsets": [CodeModeToolset(FunctionToolset([tool]))]}, {"tools": [create_code_mode_tool([tool])]}):
        script = Script(program(MANY), "done")
        agent: Agent[Any, Any] = Agent(script.model, **given)  # type: ignore[arg-type]
        assert within(agent.run("go", usage_limits=UsageLimits(tool_calls_limit=2))).output == "done"
        assert script.returned()[0] == 30


def test_a_hook_that_refuses_costs_nothing() -> None:
    hooks: Hooks[Any] = Hooks()

    @hooks.on.before_tool_execute
    async def before(ctx: Any, *, call: Any, tool_def: Any, args: Any) -> Any:
        if call.tool_name == "fails":
            raise ModelRetry("the policy says no")
        return args

    script = Script(program(MANY), "done")
    ran(script, [Tool(unused, name="fails", max_retries=0)], capabilities=[CodeMode(max_retries=0), hooks])
    assert script.returned() == [30, 1, "the policy says no"]


def test_a_cancelled_sub_agent_is_a_failure_that_a_program_can_catch() -> None:
    def delegate(n: int) -> str:
        raise RunCancelled("gave up by itself")

    script = Script(program(MANY), "done")
    ran(script, [Tool(delegate, name="fails")])
    assert "sub-agent run was cancelled" in script.returned()[2]


def test_the_run_itself_still_ends_for_what_ends_runs() -> None:
    def sub_agent(n: int) -> str:
        raise UnexpectedModelBehavior("the sub-agent's model is gone")

    with pytest.raises(UnexpectedModelBehavior, match="sub-agent's model"):
        ran(Script(program(MANY), "done"), [Tool(sub_agent, name="fails")])


@dataclass
class Inner:
    calls: int = 0

    def handle(self, ctx: RunContext[Any], n: int) -> str:
        """Make a call of its own, as a dispatcher among the tools would."""
        self.calls += 1
        return f"{n} handled"


def test_a_tool_may_call_its_neighbours_through_the_manager() -> None:
    from pydantic_ai.messages import ToolCallPart

    inner = Inner()

    async def dispatch(ctx: RunContext[Any], n: int) -> str:
        assert ctx.tool_manager is not None
        return await ctx.tool_manager.handle_call(ToolCallPart("handle", {"n": n}, tool_call_id="mine"))

    script = Script(program("return await tools.dispatch({ n: 2 })"), "done")
    ran(script, [dispatch, inner.handle])
    assert (script.returned(), inner.calls) == ("2 handled", 1)


@pytest.mark.parametrize("made", ["capability", "toolset", "tool", "core"])
def test_what_a_tool_broke_on_is_in_the_log_with_its_traceback(made: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(n: int) -> int:
        return {}["a key nobody set"]

    js = "try { await tools.broken({ n: 1 }) } catch (error) { return error.message }"
    script = Script(program(js), "done")
    given: dict[str, Any] = {
        "capability": {"tools": [broken], "capabilities": [CodeMode()]},
        "toolset": {"toolsets": [CodeModeToolset(FunctionToolset([broken]))]},
        "tool": {"tools": [create_code_mode_tool([broken])]},
        "core": {},
    }[made]
    with caplog.at_level(logging.DEBUG, logger="codemode"):
        if made == "core":
            said = within(codemode.create_code_mode_tool([Tool(broken)]).execute({"js": js}))
        else:
            within(Agent(script.model, **given).run("go"))
            said = script.returned()
    assert "a key nobody set" not in said
    (record,) = [one for one in caplog.records if one.name == "codemode.tools"]
    assert record.exc_info is not None
    assert "KeyError" in caplog.text
    assert "a key nobody set" in caplog.text
    assert "in broken" in caplog.text


def test_a_validation_inside_a_tool_is_logged_and_what_was_meant_for_the_model_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    js = "for (const name of ['one', 'two', 'three']) { try { await tools[name]({ n: 1 }) } catch {} }"
    tools = [Tool(retries, name="one"), Tool(gives_up, name="two"), Tool(cannot_parse, name="three")]
    with caplog.at_level(logging.DEBUG, logger="codemode"):
        ran(Script(program(js), "done"), tools)
    (record,) = [one for one in caplog.records if one.name == "codemode.tools"]
    assert "three" in record.getMessage()
    assert "secret-of-the-host" in caplog.text


def test_a_hook_that_hears_of_it_stands_in_for_the_log(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []

    def broken(n: int) -> int:
        return {}["a key nobody set"]

    options = {"lifecycle": {"on_nested_tool_result": heard.append}}
    js = "try { await tools.broken({ n: 1 }) } catch {}"
    with caplog.at_level(logging.DEBUG, logger="codemode"):
        ran(Script(program(js), "done"), [broken], capabilities=[CodeMode(options)])
    assert len(heard) == 1
    assert [one for one in caplog.records if one.name == "codemode.tools"] == []


@each_row("limit, reason", [(1, "tool_calls_limit of 1"), (None, "UserError")])
def test_a_later_run_reads_why_an_earlier_run_ended_inside_the_resumed_program(limit: int | None, reason: str) -> None:
    def refund(order: str) -> str:
        return f"refunded {order}"

    def look() -> str:
        raise UserError("the catalog has no database")

    async def main() -> Script:
        tools = [Tool(refund, requires_approval=True), Tool(look)]
        output: Any = [str, DeferredToolRequests]
        js = "await tools.refund({ order: 'a' }); return await tools.look({});"
        script = Script(program(js), "done")
        agent = Agent(script.model, tools=tools, capabilities=[CodeMode()], output_type=output)
        paused = await agent.run("go")
        (call,) = paused.output.approvals
        history = paused.all_messages()
        results = DeferredToolResults(approvals={call.tool_call_id: True})
        with pytest.raises((UsageLimitExceeded, UserError)):
            await agent.run(
                message_history=history, deferred_tool_results=results, usage_limits=UsageLimits(tool_calls_limit=limit)
            )
        await agent.run(message_history=history, deferred_tool_results=results)
        return script

    answer = str(within(main()).returned())
    assert "the run of the agent ended at this call: " in answer
    assert reason in answer
    assert "database" not in answer
