"""Code mode, CodeCall, exec and wait for LangChain and LangGraph: public names."""

from typing import TYPE_CHECKING, Any

from .approvals import ApprovalConfig, ApprovalRule, ApprovalRules, InterruptMode
from .code_call import CodeCallTool, ScriptContext, create_code_call_tools
from .durable import durable_continuation
from .exec_wait import ExecWaitTool, create_exec_wait_tools
from .langgraph_internals import UnknownVersionError
from .stored_pauses import StoredPauses, StoredRun, stored_pauses
from .tool import CodeModeTool, create_code_mode_tool

if TYPE_CHECKING:
    from .middleware import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware

__all__ = [
    "ApprovalConfig",
    "ApprovalRule",
    "ApprovalRules",
    "CodeCallMiddleware",
    "CodeCallTool",
    "CodeModeMiddleware",
    "CodeModeTool",
    "ExecWaitMiddleware",
    "ExecWaitTool",
    "InterruptMode",
    "ScriptContext",
    "StoredPauses",
    "StoredRun",
    "UnknownVersionError",
    "create_code_call_tools",
    "create_code_mode_tool",
    "create_exec_wait_tools",
    "durable_continuation",
    "stored_pauses",
]


def __getattr__(name: str) -> Any:
    # The middleware needs langchain and langgraph; the tools do not.
    if name == "CodeCallMiddleware":
        from .middleware import CodeCallMiddleware

        return CodeCallMiddleware
    if name == "ExecWaitMiddleware":
        from .middleware import ExecWaitMiddleware

        return ExecWaitMiddleware
    if name == "CodeModeMiddleware":
        from .middleware import CodeModeMiddleware

        return CodeModeMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
