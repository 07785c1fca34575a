"""What users write, checked strictly. Never run."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncIterator
from typing import Any, assert_type

from agents import Agent, AgentToolStreamEvent, FunctionTool, Runner, RunState, StreamEvent, function_tool
from agents.tool_context import ToolContext
from codemode_openai_agents import ApprovalRules, approve, code_mode, stream_events, with_code_mode

from codemode import CodeModeOptions, ExecutionPolicy, WorkerPool


@function_tool
def stock(product: str) -> int:
    """How many of a product are in stock."""
    return {"bolt": 120, "nut": 7}[product]


def is_large(context: ToolContext[Any], arguments: dict[str, Any], call_id: str) -> bool:
    return arguments["cents"] > 1000


def place(context: ToolContext[Any]) -> dict[str, Any]:
    return context.context["programs"]


async def heard(told: AgentToolStreamEvent) -> None:
    print(told["event"])


rules: ApprovalRules = {"stock": True, "refund": is_large}
options = CodeModeOptions(execution_policy=ExecutionPolicy(timeout_ms=5000))
tool = code_mode([stock], options, approve=rules, pool=WorkerPool(), listing="names", state=place, on_stream=heard)
assert_type(tool, FunctionTool)
code_mode([stock], {"execution_policy": {"timeout_ms": 5000}}, approve="destructive")
code_mode([stock], approve=lambda name, arguments: name == "stock" and arguments["product"] == "nut")
agent = with_code_mode(Agent[dict[str, Any]](name="desk", tools=[stock]), keep=["stock"], tools="all")
with_code_mode(agent, keep=lambda one: one.name == "stock")


async def main() -> None:
    result = Runner.run_streamed(agent, "go")
    events = stream_events(result)
    assert_type(events, AsyncIterator[StreamEvent])
    state = await RunState.from_string(agent, "")
    for item in state.get_interruptions():
        approve(state, item, input={"product": "nut"})
        approve(state, item, always_approve=True)
