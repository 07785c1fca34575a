"""Calls of programs are calls of the SDK: its guardrails, hooks, errors, timeouts, contexts and spans."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from agents import (
    Agent,
    AgentHooks,
    FunctionTool,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunState,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    TracingProcessor,
    UserError,
    WebSearchTool,
    function_tool,
    set_trace_processors,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.exceptions import ToolTimeoutError
from agents.tool_context import ToolContext
from codemode_openai_agents import code_mode
from pydantic import BaseModel
from scripted_model import QUIET, Script, agent, outputs, program

from codemode import CallContext

CAUGHT = "try { return await tools.one({}); } catch (error) { return `caught: ${error.message}`; }"


def run(js: str, *tools: Any, context: Any = None, run_config: RunConfig = QUIET, **settings: Any) -> Any:
    made = agent(Script(program(js), "done"), code_mode(tools, settings.pop("options", None)), **settings)
    return asyncio.run(Runner.run(made, "go", context=context, run_config=run_config))


def said(js: str, *tools: Any, **settings: Any) -> Any:
    text = outputs(run(js, *tools, **settings))[-1].output
    try:
        return json.loads(text)
    except ValueError:
        return text


def failing(**settings: Any) -> FunctionTool:
    @function_tool(name_override="one", **settings)
    def one() -> None:
        """Fail."""
        raise ValueError("/srv/secret")

    return one


def test_plain_functions_are_tools() -> None:
    def double(n: int) -> int:
        """Twice a number."""
        return 2 * n

    assert said("return await tools.double({ n: 2 });", double) == 4


@pytest.mark.parametrize("one", [WebSearchTool(), 3, dict])
def test_what_programs_cannot_call_is_refused(one: Any) -> None:
    with pytest.raises(ValueError, match="function tools and functions"):
        code_mode([one])


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two tools"):
        code_mode([failing(), failing()])


def test_the_text_of_a_failure_is_an_error_in_the_program() -> None:
    assert said(CAUGHT, failing()) == "caught: An error occurred while running the tool. Please try again."
    own = failing(failure_error_function=lambda _context, error: f"broken by {type(error).__name__}")
    assert said(CAUGHT, own) == "caught: broken by ValueError"
    config = RunConfig(tracing_disabled=True, tool_error_formatter=lambda told: f"no {told.tool_name}")
    assert said(CAUGHT, failing(), run_config=config) == "caught: no one"


def test_a_tool_without_such_a_text_ends_the_run() -> None:
    with pytest.raises(UserError, match="/srv/secret"):
        run(CAUGHT, failing(failure_error_function=None))


def test_a_failed_program_is_told_to_the_model_and_in_the_items() -> None:
    (item,) = outputs(run("await tools.one({}); return 1;", failing()))
    assert "An error occurred" in item.output
    (call,) = item.custom_data["codemode"]["calls"]
    assert (call["name"], call["outcome"], item.custom_data["codemode"]["status"]) == ("one", "failed", "failed")


def never(**settings: Any) -> FunctionTool:
    @function_tool(name_override="one", timeout=0.05, **settings)
    async def one() -> None:
        """Take for ever."""
        await asyncio.Event().wait()

    return one


def test_timeouts_of_tools_hold() -> None:
    assert said(CAUGHT, never()) == "caught: Tool 'one' timed out after 0.05 seconds."
    assert said(CAUGHT, never(timeout_error_function=lambda _context, _error: "late")) == "caught: late"
    with pytest.raises(ToolTimeoutError):
        run(CAUGHT, never(timeout_behavior="raise_exception"))


@dataclass
class User:
    name: str


def test_tools_get_the_context_of_the_run_and_of_their_own_call() -> None:
    @function_tool
    def whoami(context: ToolContext[User], n: int) -> list[Any]:
        """Tell."""
        return [context.context.name, context.tool_name, json.loads(context.tool_arguments), context.agent.name]

    assert said("return await tools.whoami({ n: 1 });", whoami, context=User("ada")) == [
        "ada",
        "whoami",
        {"n": 1},
        "desk",
    ]


def test_guardrails_of_tools_hold() -> None:
    def guarded(verdict: Any, *, output: bool = False) -> FunctionTool:
        kind = tool_output_guardrail if output else tool_input_guardrail
        given: Any = {f"tool_{'output' if output else 'input'}_guardrails": [kind(lambda _data: verdict)]}

        @function_tool(name_override="one", **given)
        def one() -> str:
            """Do it."""
            return "done"

        return one

    assert said(CAUGHT, guarded(ToolGuardrailFunctionOutput.allow())) == "done"
    assert said(CAUGHT, guarded(ToolGuardrailFunctionOutput.reject_content("no"))) == "caught: no"
    assert said(CAUGHT, guarded(ToolGuardrailFunctionOutput.reject_content("no"), output=True)) == "caught: no"
    with pytest.raises(ToolInputGuardrailTripwireTriggered):
        run(CAUGHT, guarded(ToolGuardrailFunctionOutput.raise_exception()))
    with pytest.raises(ToolOutputGuardrailTripwireTriggered):
        run(CAUGHT, guarded(ToolGuardrailFunctionOutput.raise_exception(), output=True))


def test_hooks_of_the_agent_hear_of_the_calls() -> None:
    heard: list[Any] = []

    class Hooks(AgentHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            heard.append(("start", tool.name, context.tool_call_id))

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            heard.append(("end", tool.name, result))

    def double(n: int) -> int:
        """Twice a number."""
        return 2 * n

    run("return await tools.double({ n: 2 });", double, hooks=Hooks())
    assert heard == [
        ("start", "codeMode", "outer-1"),
        ("start", "double", "outer-1:tool-1"),
        ("end", "double", 4),
        ("end", "codeMode", "4"),
    ]


@pytest.mark.parametrize(("method", "calls"), [("on_tool_start", []), ("on_tool_end", [5])])
def test_a_hook_that_raises_ends_the_run(method: str, calls: list[int]) -> None:
    charged: list[int] = []

    class Hooks(AgentHooks[Any]):
        pass

    async def fail(_hooks: Any, _context: Any, _agent: Any, tool: Any, *_: Any) -> None:
        if tool.name == "charge":
            raise RuntimeError("audit log is down")

    setattr(Hooks, method, fail)

    def charge(cents: int) -> str:
        """Charge a card."""
        charged.append(cents)
        return "charged"

    js = "for (let i = 0; i < 2; i++) try { await tools.charge({ cents: 5 }); } catch {} return 'caught';"
    with pytest.raises(UserError, match="audit log is down"):
        run(js, charge, hooks=Hooks())
    assert charged == calls


def test_a_guardrail_that_raises_ends_the_run() -> None:
    @tool_output_guardrail
    def check(_data: Any) -> ToolGuardrailFunctionOutput:
        raise RuntimeError("the classifier is down")

    @function_tool(name_override="one", tool_output_guardrails=[check])
    def one() -> str:
        """Do it."""
        return "done"

    with pytest.raises(UserError, match="the classifier is down"):
        run(CAUGHT, one)


def test_a_tool_that_is_not_enabled_is_not_called() -> None:
    @function_tool(is_enabled=lambda context, _agent: context.context == "admin")
    def one() -> str:
        """Do it."""
        return "done"

    assert said(CAUGHT, one, context="admin") == "done"
    assert said(CAUGHT, one, context="guest") == "caught: tool 'one' is disabled"


class Order(BaseModel):
    id: int
    open: bool = True


def test_values_are_json_and_outputs_are_declared() -> None:
    @function_tool
    def order(number: int, note: str | None = None) -> Order:
        """Find an order."""
        return Order(id=number)

    tool = code_mode([order])
    assert "note?:" in tool.description
    assert "open: boolean" in tool.description
    assert said("const found = await tools.order({ number: 3 }); return [found.id, found.open];", order) == [3, True]


def test_a_wrong_input_does_not_run() -> None:
    def double(n: int) -> int:
        """Twice a number."""
        raise AssertionError

    text = said("return await tools.double({ n: 'two' });", double)
    assert "integer" in text or "number" in text, text


def test_the_models_of_a_run_are_not_asked_for_pauses() -> None:
    model = Script(program("return 1;"), "done")
    made = agent(Script(), code_mode([failing()]))
    config = RunConfig(tracing_disabled=True, model=model)
    result = asyncio.run(Runner.run(made, "go", run_config=config))
    assert (result.final_output, len(model.inputs)) == ("done", 2)
    assert result.context_wrapper.usage.requests == 2


def test_an_agent_is_a_tool_of_programs() -> None:
    research = Agent(name="research", model=Script("42 of them"))
    tool = research.as_tool("research", "Finds things out.")
    result = run("return await tools.research({ input: 'how many?' });", tool)
    assert outputs(result)[0].output == "42 of them"
    assert result.context_wrapper.usage.requests == 3


def asking(did: list[str], **answers: Any) -> Any:
    """Return a tool whose agent asks twice before it answers, in a process that may be another one."""

    @function_tool(needs_approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        did.append(f"paid {cents}")
        return "paid"

    calls = [[("pay", {"cents": 5})], [("pay", {"cents": 6})]]
    model = Script(*calls, ids="inner", **answers)
    return Agent(name="clerk", model=model, tools=[pay]).as_tool("clerk", "Pays.")


def test_an_agent_that_waits_itself_pauses_the_program() -> None:
    did: list[str] = []

    async def main() -> Any:
        tool = asking(did)
        tool_of = Script(program("return await tools.clerk({ input: 'pay' });"), "done")
        made = agent(tool_of, code_mode([tool]))
        result: Any = await Runner.run(made, "go", run_config=QUIET)
        heard = []
        for number in (0, 1):
            (item,) = result.interruptions
            heard.append((item.name, item.tool_namespace, item.arguments))
            state = await RunState.from_string(made, result.to_state().to_string())
            if number:
                tool._agent_instance.model.turns = ["all is paid"]
            state.approve(state.get_interruptions()[0])
            result = await Runner.run(made, state, run_config=QUIET)
        return heard, outputs(result)[-1].output

    assert asyncio.run(main()) == (
        [("pay", "agent.clerk", '{"cents": 5}'), ("pay", "agent.clerk", '{"cents": 6}')],
        "all is paid",
    )
    assert did == ["paid 5", "paid 6"]


def test_what_is_decided_for_always_about_an_agent_holds_for_that_one() -> None:
    did: list[str] = []

    @function_tool(needs_approval=True)
    def pay(cents: int) -> str:
        """Pay."""
        raise AssertionError

    async def main() -> Any:
        tool = asking(did)
        script = Script(program("await tools.clerk({ input: 'pay' }); return await tools.pay({ cents: 7 });"), "done")
        made = agent(script, code_mode([tool, pay]))
        state = (await Runner.run(made, "go", run_config=QUIET)).to_state()
        tool._agent_instance.model.turns.append("all is paid")
        state.approve(state.get_interruptions()[0], always_approve=True)
        return [(one.name, one.arguments) for one in (await Runner.run(made, state, run_config=QUIET)).interruptions]

    assert asyncio.run(main()) == [("pay", '{"cents": 7}')]
    assert did == ["paid 5", "paid 6"]


def test_an_agent_may_have_a_tool_of_its_own_name() -> None:
    @function_tool(needs_approval=True)
    def clerk() -> str:
        """Do what clerks do."""
        return "done"

    inner = Agent(name="clerk", model=Script([("clerk", {})], "all is done", ids="inner"), tools=[clerk])
    js = program("return await tools.clerk({ input: 'x' });")
    made = agent(Script(js, "done"), code_mode([inner.as_tool("clerk", "Does it.")]))

    async def main() -> Any:
        state = (await Runner.run(made, "go", run_config=QUIET)).to_state()
        state.approve(state.get_interruptions()[0])
        return outputs(await Runner.run(made, state, run_config=QUIET))[-1].output

    assert asyncio.run(main()) == "all is done"


def test_a_rejection_reaches_the_agent() -> None:
    async def main() -> Any:
        tool = asking([], ends=lambda items: f"I was told: {items[-1]['output']}")
        made = agent(Script(program("return await tools.clerk({ input: 'pay' });"), "done"), code_mode([tool]))
        state = (await Runner.run(made, "go", run_config=QUIET)).to_state()
        state.reject(state.get_interruptions()[0], rejection_message="not today")
        return outputs(await Runner.run(made, state, run_config=QUIET))[-1].output

    assert asyncio.run(main()) == "I was told: not today"


def test_programs_leave_values_where_the_host_says() -> None:
    places: dict[str, dict[str, Any]] = {}
    tool = code_mode([failing()], state=lambda context: places.setdefault(context.context, {}))
    script = Script(program("await state.set('n', 7);"), program("return await state.get('n');"), "done")
    made = agent(script, tool)
    result = asyncio.run(Runner.run(made, "go", context="a", run_config=QUIET))
    assert (outputs(result)[-1].output, places) == ("7", {"a": {"n": 7}})
    assert "state.get(key)" in script.shown[0]["codeMode"]


@pytest.mark.parametrize("given", ["not JSON", '{"js": 1}', "[]", '{"js": "return 1", "more": 1}'])
def test_an_input_that_is_no_program(given: str) -> None:
    made = agent(Script([("codeMode", given)], "done"), code_mode([failing()]))
    result = asyncio.run(Runner.run(made, "go", run_config=QUIET))
    assert 'is {"js": "<program>"} and nothing else' in outputs(result)[0].output


def test_a_run_that_is_cancelled_cancels_its_tools() -> None:
    async def main() -> tuple[bool, bool]:
        begun, ended = asyncio.Event(), asyncio.Event()

        @function_tool
        async def one() -> None:
            """Wait."""
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        made = agent(Script(program(CAUGHT), "done"), code_mode([one]))
        running = asyncio.ensure_future(Runner.run(made, "go", run_config=QUIET))
        await asyncio.wait_for(begun.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(ended.wait(), 60)
        return running.cancelled(), ended.is_set()

    assert asyncio.run(main()) == (True, True)


def test_the_core_takes_function_tools_as_they_are() -> None:
    from codemode import create_code_mode_tool

    @function_tool
    def whoami(context: RunContextWrapper[str]) -> str:
        """Tell."""
        return context.context

    made = create_code_mode_tool([whoami])
    assert asyncio.run(made.execute({"js": "return await tools.whoami({});"}, call=CallContext(context="ada"))) == "ada"


class Spans(TracingProcessor):
    """Keeps the spans of functions."""

    def __init__(self) -> None:
        self.ended: list[Any] = []

    def on_span_end(self, span: Any) -> None:
        if span.span_data.type == "function":
            self.ended.append(span)

    def on_trace_start(self, trace: Any) -> None: ...
    def on_trace_end(self, trace: Any) -> None: ...
    def on_span_start(self, span: Any) -> None: ...
    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


@pytest.mark.parametrize("is_shown", [True, False])
def test_calls_have_spans(is_shown: bool) -> None:
    def double(n: int) -> int:
        """Twice a number."""
        return 2 * n

    spans = Spans()
    set_trace_processors([spans])
    try:
        run("return await tools.double({ n: 2 });", double, run_config=RunConfig(trace_include_sensitive_data=is_shown))
    finally:
        set_trace_processors([])
    found = {one.span_data.name: (one.span_data.input, one.span_data.output) for one in spans.ended}
    assert found["double"] == (('{"n": 2}', 4) if is_shown else (None, None))
    assert set(found) == {"double", "codeMode"}


def test_a_run_in_a_session_pauses_and_goes_on() -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    async def main() -> Any:
        session = SQLiteSession("one")
        made = agent(Script(program("return await tools.pay({});"), "done"), code_mode([pay]))
        state = (await Runner.run(made, "go", session=session, run_config=QUIET)).to_state()
        state.approve(state.get_interruptions()[0])
        await Runner.run(made, state, session=session, run_config=QUIET)
        kinds = [one.get("type", one.get("role")) for one in await session.get_items()]
        session.close()
        return kinds

    assert asyncio.run(main()) == ["user", "function_call", "function_call_output", "message"]
