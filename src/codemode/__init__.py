"""Code mode for Python agents. All public names, imported on first use."""

from typing import TYPE_CHECKING

from .host.imports import create_lazy_getattr

if TYPE_CHECKING:
    from .continuations.keys import set_continuation_signing_key as set_continuation_signing_key
    from .data.content import MediaContent as MediaContent
    from .errors import CodeModeAbortedError as CodeModeAbortedError
    from .errors import CodeModeError as CodeModeError
    from .errors import CodeModeProtocolError as CodeModeProtocolError
    from .errors import CodeModeTimeoutError as CodeModeTimeoutError
    from .errors import CodeModeToolApprovalDeniedError as CodeModeToolApprovalDeniedError
    from .errors import CodeModeToolError as CodeModeToolError
    from .execution.call_context import CallContext as CallContext
    from .execution.outcome_texts import failure_text as failure_text
    from .execution.pauses import inspect_interrupt as inspect_interrupt
    from .execution.pauses import is_approval_interrupt as is_approval_interrupt
    from .execution.pauses import is_interrupt as is_interrupt
    from .execution.program_library import ProgramLibrary as ProgramLibrary
    from .interrupts.interrupt import Interrupt as Interrupt
    from .interrupts.interrupt import PendingRequest as PendingRequest
    from .interrupts.interrupt import request_interrupt as request_interrupt
    from .observe.audit import audit_log as audit_log
    from .options.parts import ApprovalPolicy as ApprovalPolicy
    from .options.parts import CodeModeOptions as CodeModeOptions
    from .options.parts import ContinuationOptions as ContinuationOptions
    from .options.parts import ExecutionPolicy as ExecutionPolicy
    from .options.parts import FetchPolicy as FetchPolicy
    from .options.parts import Lifecycle as Lifecycle
    from .options.parts import ModelOutput as ModelOutput
    from .options.parts import Pipeline as Pipeline
    from .options.parts import PoolOptions as PoolOptions
    from .options.parts import Telemetry as Telemetry
    from .surfaces.code_call.options import CodeCallOptions as CodeCallOptions
    from .surfaces.code_call.toolset import CodeCallToolset as CodeCallToolset
    from .surfaces.code_call.toolset import create_code_call_tools as create_code_call_tools
    from .surfaces.code_mode.messages import get_approval_response as get_approval_response
    from .surfaces.code_mode.messages import get_interrupt as get_interrupt
    from .surfaces.code_mode.messages import replace_interrupt_result as replace_interrupt_result
    from .surfaces.code_mode.messages import to_approval_messages as to_approval_messages
    from .surfaces.code_mode.messages import unwrap_result as unwrap_result
    from .surfaces.code_mode.program import continue_approval as continue_approval
    from .surfaces.code_mode.program import continue_approval_sync as continue_approval_sync
    from .surfaces.code_mode.program import continue_interrupt as continue_interrupt
    from .surfaces.code_mode.program import continue_interrupt_sync as continue_interrupt_sync
    from .surfaces.code_mode.program import run_code_mode as run_code_mode
    from .surfaces.code_mode.program import run_code_mode_sync as run_code_mode_sync
    from .surfaces.code_mode.tool import CodeModeTool as CodeModeTool
    from .surfaces.code_mode.tool import create_code_mode_tool as create_code_mode_tool
    from .surfaces.exec_wait.exec_wait_tools import ExecWaitTools as ExecWaitTools
    from .surfaces.exec_wait.exec_wait_tools import create_exec_wait_tools as create_exec_wait_tools
    from .surfaces.exec_wait.exec_wait_tools import plan_surface as plan_surface
    from .surfaces.exec_wait.namespaces import NamespaceRegistry as NamespaceRegistry
    from .surfaces.exec_wait.namespaces import namespace_tool as namespace_tool
    from .surfaces.exec_wait.options import ExecWaitOptions as ExecWaitOptions
    from .surfaces.exec_wait.sources import ToolSource as ToolSource
    from .surfaces.modules.run_tool import RunTool as RunTool
    from .surfaces.modules.run_tool import create_modules_tool as create_modules_tool
    from .surfaces.modules.servers import ModuleServer as ModuleServer
    from .tools.context import ToolCallContext as ToolCallContext
    from .tools.tool import Tool as Tool
    from .tools.tool import tool as tool
    from .tools.tool_result import ToolResult as ToolResult
    from .workers.pool import WorkerPool as WorkerPool
    from .workers.pool import set_max_workers as set_max_workers

# Names by the module that defines them. A test compares this with the imports above.
_LAZY_NAMES = {
    "continuations.keys": "set_continuation_signing_key",
    "data.content": "MediaContent",
    "errors": (
        "CodeModeAbortedError CodeModeError CodeModeProtocolError CodeModeTimeoutError "
        "CodeModeToolApprovalDeniedError CodeModeToolError"
    ),
    "execution.call_context": "CallContext",
    "execution.outcome_texts": "failure_text",
    "execution.pauses": "inspect_interrupt is_approval_interrupt is_interrupt",
    "execution.program_library": "ProgramLibrary",
    "interrupts.interrupt": "Interrupt PendingRequest request_interrupt",
    "observe.audit": "audit_log",
    "options.parts": (
        "ApprovalPolicy CodeModeOptions ContinuationOptions ExecutionPolicy FetchPolicy Lifecycle ModelOutput "
        "Pipeline PoolOptions Telemetry"
    ),
    "surfaces.code_call.options": "CodeCallOptions",
    "surfaces.code_call.toolset": "CodeCallToolset create_code_call_tools",
    "surfaces.code_mode.messages": (
        "get_approval_response get_interrupt replace_interrupt_result to_approval_messages unwrap_result"
    ),
    "surfaces.code_mode.program": (
        "continue_approval continue_approval_sync continue_interrupt continue_interrupt_sync run_code_mode "
        "run_code_mode_sync"
    ),
    "surfaces.code_mode.tool": "CodeModeTool create_code_mode_tool",
    "surfaces.exec_wait.namespaces": "namespace_tool NamespaceRegistry",
    "surfaces.exec_wait.options": "ExecWaitOptions",
    "surfaces.exec_wait.exec_wait_tools": "create_exec_wait_tools ExecWaitTools plan_surface",
    "surfaces.exec_wait.sources": "ToolSource",
    "surfaces.modules.run_tool": "create_modules_tool RunTool",
    "surfaces.modules.servers": "ModuleServer",
    "tools.context": "ToolCallContext",
    "tools.tool": "Tool tool",
    "tools.tool_result": "ToolResult",
    "workers.pool": "set_max_workers WorkerPool",
}
__all__ = [name for names in _LAZY_NAMES.values() for name in names.split()]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = create_lazy_getattr(__name__, _LAZY_NAMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
