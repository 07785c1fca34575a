"""What users write, checked strictly. Never run."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from collections.abc import Sequence
from typing import Any, assert_type

from codemode_langchain import (
    ApprovalConfig,
    ApprovalRules,
    CodeCallMiddleware,
    CodeModeMiddleware,
    ExecWaitMiddleware,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
)
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import BaseTool, StructuredTool

from codemode import CodeCallOptions, CodeModeOptions, ExecutionPolicy, ToolSource, WorkerPool


def stock(product: str) -> int:
    """How many of a product are in stock."""
    return {"bolt": 120, "nut": 7}[product]


def is_large(args: dict[str, Any]) -> bool:
    return args["cents"] > 1000


def asks(name: str, args: dict[str, Any]) -> bool:
    return name == "refund" and args["cents"] > 1000


in_stock = StructuredTool.from_function(stock)
options = CodeModeOptions(execution_policy=ExecutionPolicy(timeout_ms=5000))
reviewed = ApprovalConfig(allowed_decisions=["approve", "edit"], description="A refund", when=is_large)
rules: ApprovalRules = {"stock": False, "refund": is_large, "pay": reviewed, "send": {"allowed_decisions": ["reject"]}}

code_mode = create_code_mode_tool([in_stock, stock], options, approve=rules)
assert_type(code_mode, BaseTool)
assert_type(create_code_mode_tool([in_stock], {"execution_policy": {"timeout_ms": 5000}}, approve=asks), BaseTool)
middleware = CodeModeMiddleware(options={"telemetry": {"is_enabled": True}}, keep=["stock"], approve=rules, pool=None)
CodeModeMiddleware(tools="all", keep={"team": "desk"}, listing="search")
CodeModeMiddleware(tools=lambda tool: tool.name.startswith("s"), keep=("stock",))
create_code_mode_tool([in_stock], listing="names")
given_to_create_agent: Sequence[AgentMiddleware[Any, Any, Any]] = [middleware]
assert_type(create_code_call_tools([in_stock, stock], {"top_k": 3}, approve=rules), list[BaseTool])
code_call = CodeCallMiddleware(
    options=CodeCallOptions(direct_calls={"enabled": True}, settings=options),
    approve=asks,
    script_context=lambda runtime: {"user": runtime.context},
)
also_given: Sequence[AgentMiddleware[Any, Any, Any]] = [code_call]
assert_type(create_exec_wait_tools([in_stock, stock], {"timeoutMs": 500}, approve=rules), list[BaseTool])
pair = ExecWaitMiddleware(sources=[ToolSource([stock], "plugin", "shop")], direct=[in_stock, "stock"], approve=asks)
given_too: Sequence[AgentMiddleware[Any, Any, Any]] = [pair]
with WorkerPool() as pool:
    create_code_mode_tool([in_stock], pool=pool.share("tenant", max_workers=2))

# What must be refused. A check that no longer refuses it makes its comment superfluous, which is an error too.

ApprovalConfig(allowed_decisions=["maybe"])  # pyright: ignore[reportArgumentType]
create_code_mode_tool([in_stock], approve={"refund": "yes"})  # pyright: ignore[reportArgumentType]
create_code_mode_tool([in_stock], keep=["stock"])  # pyright: ignore[reportCallIssue]
CodeModeMiddleware([in_stock])  # pyright: ignore[reportCallIssue]
CodeModeMiddleware(listing="none")  # pyright: ignore[reportArgumentType]
CodeModeMiddleware(tools=5)  # pyright: ignore[reportArgumentType]
CodeModeMiddleware(approve=5)  # pyright: ignore[reportArgumentType]
