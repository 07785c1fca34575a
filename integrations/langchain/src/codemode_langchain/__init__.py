"""Code mode for LangChain and LangGraph. The public names, nothing else."""

from typing import TYPE_CHECKING, Any

from .approvals import ApprovalConfig, ApprovalRule, ApprovalRules
from .tool import CodeModeTool, create_code_mode_tool

if TYPE_CHECKING:
    from .middleware import CodeModeMiddleware

__all__ = [
    "ApprovalConfig",
    "ApprovalRule",
    "ApprovalRules",
    "CodeModeMiddleware",
    "CodeModeTool",
    "create_code_mode_tool",
]


def __getattr__(name: str) -> Any:
    # The middleware needs langchain and langgraph; the tool does not.
    if name == "CodeModeMiddleware":
        from .middleware import CodeModeMiddleware

        return CodeModeMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
