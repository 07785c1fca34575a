"""What users write, checked strictly. Never run."""

from dataclasses import dataclass
from typing import assert_type

from codemode_pydantic_ai import (
    CodeCall,
    CodeCallToolset,
    CodeMode,
    CodeModeToolset,
    ExecWait,
    answer,
    create_code_mode_tool,
)
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, Tool
from pydantic_ai.toolsets import FunctionToolset

from codemode import CodeCallOptions, CodeModeOptions, ExecWaitOptions, ToolSource


@dataclass
class Deps:
    name: str


async def greet(ctx: RunContext[Deps], greeting: str) -> str:
    return f"{greeting} {ctx.deps.name}"


capability = CodeMode[Deps](CodeModeOptions(execution_policy={"timeout_ms": 5000}), keep=["greet"])
agent = Agent("test", deps_type=Deps, tools=[greet], output_type=[str, DeferredToolRequests], capabilities=[capability])
assert_type(agent, Agent[Deps, str | DeferredToolRequests])

toolset = CodeModeToolset(FunctionToolset[Deps]([greet]), {"execution_policy": {"timeout_ms": 5000}})
assert_type(toolset, CodeModeToolset[Deps])
tool = create_code_mode_tool(FunctionToolset[Deps]([greet]))
assert_type(tool, Tool[Deps])
other = Agent("test", deps_type=Deps, tools=[tool], toolsets=[toolset])
assert_type(answer(DeferredToolRequests(), {"id": True}), DeferredToolResults)
plain = Agent("test", capabilities=[CodeMode()])
CodeMode[Deps](tools="all", keep={"team": "desk"}, listing="search")
CodeMode[Deps](tools=lambda ctx, tool: tool.kind == "function", keep=["greet"])
CodeModeToolset(FunctionToolset[Deps]([greet]), tools=["greet"], listing="names")
create_code_mode_tool([greet], listing="full")
assert_type(plain, Agent[object, str])


def context(ctx: RunContext[Deps]) -> dict[str, str]:
    return {"name": ctx.deps.name}


calls = CodeCall[Deps](
    CodeCallOptions(vm={"preset": "balanced"}), keep=["greet"], top_k=5, direct_calls={"enabled": True},
    script_context=context,
)  # fmt: skip
caller = Agent("test", deps_type=Deps, tools=[greet], capabilities=[calls])
assert_type(caller, Agent[Deps, str])
assert_type(CodeCallToolset(FunctionToolset[Deps]([greet]), {"topK": 5}), CodeCallToolset[Deps])

waits = ExecWait[Deps](direct=["greet"], options={"waitTimeoutMs": 500}, sources=ToolSource([greet], "plugin", "desk"))
waiter = Agent("test", deps_type=Deps, tools=[greet], capabilities=[waits])
assert_type(waiter, Agent[Deps, str])
assert_type(waits.options, ExecWaitOptions)
