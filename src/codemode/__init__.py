"""Code mode for Python agents. The public names, nothing else.

What the first program of a process can do without is imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .code_mode_tool import CodeModeTool, create_code_mode_tool
from .errors import (
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeDetachedBridgeRequestError,
    CodeModeError,
    CodeModeFetchError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeSourceTooLargeError,
    CodeModeSyntaxError,
    CodeModeTimeoutError,
    CodeModeToolApprovalDeniedError,
    CodeModeToolApprovalRequiredError,
    CodeModeToolError,
    CodeModeWorkerError,
)
from .failure_text import failure_text
from .late_imports import importing
from .options import (
    ApprovalPolicy,
    CodeModeOptions,
    ContinuationOptions,
    ExecutionPolicy,
    FetchPolicy,
    Lifecycle,
    ModelOutput,
    PoolOptions,
    Telemetry,
)
from .signing_keys import set_continuation_signing_key
from .single_run import run_code_mode, run_code_mode_sync
from .tools import Tool, ToolCallContext, tool
from .workers.pool import WorkerPool, set_max_workers

if TYPE_CHECKING:
    from .approval_messages import (
        get_approval_response,
        get_interrupt,
        replace_interrupt_result,
        to_approval_messages,
        unwrap_result,
    )
    from .continuations import (
        continue_approval,
        continue_approval_sync,
        continue_interrupt,
        continue_interrupt_sync,
        is_approval_interrupt,
        is_interrupt,
    )
    from .interrupt_store import InterruptStore
    from .interrupts import Interrupt, PendingRequest, request_interrupt
    from .lifecycle import (
        ConsoleEvent,
        FetchRequestEvent,
        FetchResultEvent,
        InterruptEvent,
        NestedToolCallEvent,
        NestedToolResultEvent,
        Trace,
    )
    from .resume_guard import MemoryResumeGuard, ResumeGuard
    from .sqlite_guard import SqliteResumeGuard

__all__ = [
    "ApprovalPolicy",
    "CodeModeAbortedError",
    "CodeModeBridgeLimitError",
    "CodeModeConcurrencyError",
    "CodeModeDetachedBridgeRequestError",
    "CodeModeError",
    "CodeModeFetchError",
    "CodeModeOptions",
    "CodeModeProtocolError",
    "CodeModeSerializationError",
    "CodeModeSourceTooLargeError",
    "CodeModeSyntaxError",
    "CodeModeTimeoutError",
    "CodeModeTool",
    "CodeModeToolApprovalDeniedError",
    "CodeModeToolApprovalRequiredError",
    "CodeModeToolError",
    "CodeModeWorkerError",
    "ConsoleEvent",
    "ContinuationOptions",
    "ExecutionPolicy",
    "FetchPolicy",
    "FetchRequestEvent",
    "FetchResultEvent",
    "Interrupt",
    "InterruptEvent",
    "InterruptStore",
    "Lifecycle",
    "MemoryResumeGuard",
    "ModelOutput",
    "NestedToolCallEvent",
    "NestedToolResultEvent",
    "PendingRequest",
    "PoolOptions",
    "ResumeGuard",
    "SqliteResumeGuard",
    "Telemetry",
    "Tool",
    "ToolCallContext",
    "Trace",
    "WorkerPool",
    "continue_approval",
    "continue_approval_sync",
    "continue_interrupt",
    "continue_interrupt_sync",
    "create_code_mode_tool",
    "failure_text",
    "get_approval_response",
    "get_interrupt",
    "is_approval_interrupt",
    "is_interrupt",
    "replace_interrupt_result",
    "request_interrupt",
    "run_code_mode",
    "run_code_mode_sync",
    "set_continuation_signing_key",
    "set_max_workers",
    "to_approval_messages",
    "tool",
    "unwrap_result",
]

# Where each of the others lives; the imports above tell type checkers the same.
_LATE = {
    "approval_messages": (
        "get_approval_response get_interrupt replace_interrupt_result to_approval_messages unwrap_result"
    ),
    "continuations": (
        "continue_approval continue_approval_sync continue_interrupt continue_interrupt_sync "
        "is_approval_interrupt is_interrupt"
    ),
    "interrupt_store": "InterruptStore",
    "interrupts": "Interrupt PendingRequest request_interrupt",
    "lifecycle": (
        "ConsoleEvent FetchRequestEvent FetchResultEvent InterruptEvent NestedToolCallEvent NestedToolResultEvent Trace"
    ),
    "resume_guard": "MemoryResumeGuard ResumeGuard",
    "sqlite_guard": "SqliteResumeGuard",
}
_MODULE_OF = {name: module for module, names in _LATE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with importing:
        value = globals()[name] = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
