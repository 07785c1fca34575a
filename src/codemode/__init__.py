"""Code mode for Python agents. The public names, nothing else: each is imported when it is asked for."""

from typing import TYPE_CHECKING

from .host.imports import late_names

if TYPE_CHECKING:
    from .continuations.guard import MemoryResumeGuard, ResumeGuard
    from .continuations.journal import Journal, OpenedJournal
    from .continuations.keys import set_continuation_signing_key
    from .data.content import Content, ContentResult
    from .errors import (
        CodeModeAbortedError,
        CodeModeAuthenticationError,
        CodeModeBridgeLimitError,
        CodeModeConcurrencyError,
        CodeModeDetachedBridgeRequestError,
        CodeModeError,
        CodeModeFetchError,
        CodeModeHttpError,
        CodeModeIllegalAccessError,
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
    from .execution.call_context import CallContext
    from .execution.outcome_texts import failure_text
    from .execution.pauses import CallView, PauseView, inspect_interrupt, is_approval_interrupt, is_interrupt
    from .execution.program_library import ProgramLibrary, SavedProgram, SavedVersion
    from .interrupts.interrupt import Interrupt, PendingRequest, request_interrupt
    from .observe.audit import audit_log
    from .options.parts import (
        ApprovalPolicy,
        CodeModeOptions,
        ContinuationOptions,
        ExecutionPolicy,
        FetchPolicy,
        Lifecycle,
        ModelOutput,
        Pipeline,
        PoolOptions,
        Telemetry,
    )
    from .stores.audit import AuditLine
    from .stores.audit_chain import BadLine, verify_audit
    from .stores.errors import (
        AlreadyDecided,
        AnswerRefused,
        RecordExpired,
        RecordLost,
        RecordWithdrawn,
        RequestSettled,
        RequestSuperseded,
        StoreError,
        StoreFull,
        StoreUnavailable,
        UnknownRequest,
    )
    from .stores.interrupt_store import InterruptStore
    from .stores.outbox import Outbox
    from .stores.postgres import PostgresInterruptStore
    from .stores.records import (
        ALL_TENANTS,
        Change,
        FailedNotice,
        LastResumed,
        Lease,
        Notice,
        Page,
        Record,
        RecordOutcome,
        RecordVersion,
        StoredPause,
        StoredRequest,
    )
    from .stores.resumer import Resumer
    from .stores.sqlite import MemoryInterruptStore, SqliteInterruptStore
    from .surfaces.code_call.options import CodeCallOptions
    from .surfaces.code_call.result import CodeCallResult
    from .surfaces.code_call.toolset import CodeCallToolset, create_code_call_tools
    from .surfaces.code_mode.messages import (
        get_approval_response,
        get_interrupt,
        replace_interrupt_result,
        to_approval_messages,
        unwrap_result,
    )
    from .surfaces.code_mode.openai_custom_tool import OpenAICustomTool
    from .surfaces.code_mode.program import (
        continue_approval,
        continue_approval_sync,
        continue_interrupt,
        continue_interrupt_sync,
        run_code_mode,
        run_code_mode_sync,
    )
    from .surfaces.code_mode.tool import CodeModeTool, create_code_mode_tool
    from .surfaces.exec_wait.namespaces import Namespace, NamespaceRegistry, namespace_tool
    from .surfaces.exec_wait.options import ExecWaitOptions, InvalidConfigError
    from .surfaces.exec_wait.pair import ExecWaitTools, Surface, create_exec_wait_tools, plan_surface
    from .surfaces.exec_wait.sources import ToolSource
    from .surfaces.exec_wait.waiting_run import RunInfo
    from .surfaces.modules.options import RunOptions
    from .surfaces.modules.response import RunResponse
    from .surfaces.modules.run_tool import RunTool, create_run_tool
    from .surfaces.modules.servers import ModuleServer
    from .tools.context import PIPELINE_NULL, PipelineCall, ToolCallContext
    from .tools.tool import Tool, tool
    from .tools.tool_result import ToolResult
    from .trace.events import (
        CatalogEvent,
        ConsoleEvent,
        FetchRequestEvent,
        FetchResultEvent,
        GuestMessageEvent,
        InterruptEvent,
        InvocationStarted,
        NestedToolCallEvent,
        NestedToolResultEvent,
        RefusalEvent,
    )
    from .trace.trace import Trace
    from .workers.pool import WorkerPool, set_max_workers

__all__ = [
    "ALL_TENANTS",
    "PIPELINE_NULL",
    "AlreadyDecided",
    "AnswerRefused",
    "ApprovalPolicy",
    "AuditLine",
    "BadLine",
    "CallContext",
    "CallView",
    "CatalogEvent",
    "Change",
    "CodeCallOptions",
    "CodeCallResult",
    "CodeCallToolset",
    "CodeModeAbortedError",
    "CodeModeAuthenticationError",
    "CodeModeBridgeLimitError",
    "CodeModeConcurrencyError",
    "CodeModeDetachedBridgeRequestError",
    "CodeModeError",
    "CodeModeFetchError",
    "CodeModeHttpError",
    "CodeModeIllegalAccessError",
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
    "Content",
    "ContentResult",
    "ContinuationOptions",
    "ExecWaitOptions",
    "ExecWaitTools",
    "ExecutionPolicy",
    "FailedNotice",
    "FetchPolicy",
    "FetchRequestEvent",
    "FetchResultEvent",
    "GuestMessageEvent",
    "Interrupt",
    "InterruptEvent",
    "InterruptStore",
    "InvalidConfigError",
    "InvocationStarted",
    "Journal",
    "LastResumed",
    "Lease",
    "Lifecycle",
    "MemoryInterruptStore",
    "MemoryResumeGuard",
    "ModelOutput",
    "ModuleServer",
    "Namespace",
    "NamespaceRegistry",
    "NestedToolCallEvent",
    "NestedToolResultEvent",
    "Notice",
    "OpenAICustomTool",
    "OpenedJournal",
    "Outbox",
    "Page",
    "PauseView",
    "PendingRequest",
    "Pipeline",
    "PipelineCall",
    "PoolOptions",
    "PostgresInterruptStore",
    "ProgramLibrary",
    "Record",
    "RecordExpired",
    "RecordLost",
    "RecordOutcome",
    "RecordVersion",
    "RecordWithdrawn",
    "RefusalEvent",
    "RequestSettled",
    "RequestSuperseded",
    "ResumeGuard",
    "Resumer",
    "RunInfo",
    "RunOptions",
    "RunResponse",
    "RunTool",
    "SavedProgram",
    "SavedVersion",
    "SqliteInterruptStore",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "StoredPause",
    "StoredRequest",
    "Surface",
    "Telemetry",
    "Tool",
    "ToolCallContext",
    "ToolResult",
    "ToolSource",
    "Trace",
    "UnknownRequest",
    "WorkerPool",
    "audit_log",
    "continue_approval",
    "continue_approval_sync",
    "continue_interrupt",
    "continue_interrupt_sync",
    "create_code_call_tools",
    "create_code_mode_tool",
    "create_exec_wait_tools",
    "create_run_tool",
    "failure_text",
    "get_approval_response",
    "get_interrupt",
    "inspect_interrupt",
    "is_approval_interrupt",
    "is_interrupt",
    "namespace_tool",
    "plan_surface",
    "replace_interrupt_result",
    "request_interrupt",
    "run_code_mode",
    "run_code_mode_sync",
    "set_continuation_signing_key",
    "set_max_workers",
    "to_approval_messages",
    "tool",
    "unwrap_result",
    "verify_audit",
]

# Where each of them lives; the imports above tell type checkers the same.
_LATE = {
    "data.content": "Content ContentResult",
    "continuations.keys": "set_continuation_signing_key",
    "errors": (
        "CodeModeAbortedError CodeModeAuthenticationError CodeModeBridgeLimitError CodeModeConcurrencyError "
        "CodeModeDetachedBridgeRequestError CodeModeError CodeModeFetchError CodeModeHttpError "
        "CodeModeIllegalAccessError CodeModeProtocolError CodeModeSerializationError CodeModeSourceTooLargeError "
        "CodeModeSyntaxError CodeModeTimeoutError CodeModeToolApprovalDeniedError CodeModeToolApprovalRequiredError "
        "CodeModeToolError CodeModeWorkerError"
    ),
    "options.parts": (
        "ApprovalPolicy CodeModeOptions ContinuationOptions ExecutionPolicy FetchPolicy Lifecycle ModelOutput "
        "Pipeline PoolOptions Telemetry"
    ),
    "surfaces.code_mode.openai_custom_tool": "OpenAICustomTool",
    "surfaces.code_mode.program": (
        "continue_approval continue_approval_sync continue_interrupt continue_interrupt_sync run_code_mode "
        "run_code_mode_sync"
    ),
    "surfaces.code_mode.tool": "CodeModeTool create_code_mode_tool",
    "tools.context": "PIPELINE_NULL PipelineCall ToolCallContext",
    "tools.tool": "Tool tool",
    "workers.pool": "WorkerPool set_max_workers",
    "surfaces.code_call.options": "CodeCallOptions",
    "surfaces.code_call.result": "CodeCallResult",
    "surfaces.code_call.toolset": "CodeCallToolset create_code_call_tools",
    "execution.call_context": "CallContext",
    "execution.outcome_texts": "failure_text",
    "surfaces.code_mode.messages": (
        "get_approval_response get_interrupt replace_interrupt_result to_approval_messages unwrap_result"
    ),
    "surfaces.exec_wait.namespaces": "Namespace NamespaceRegistry namespace_tool",
    "surfaces.exec_wait.options": "ExecWaitOptions InvalidConfigError",
    "surfaces.exec_wait.pair": "create_exec_wait_tools ExecWaitTools plan_surface Surface",
    "surfaces.exec_wait.sources": "ToolSource",
    "surfaces.exec_wait.waiting_run": "RunInfo",
    "surfaces.modules.options": "RunOptions",
    "surfaces.modules.response": "RunResponse",
    "surfaces.modules.run_tool": "RunTool create_run_tool",
    "surfaces.modules.servers": "ModuleServer",
    "observe.audit": "audit_log",
    "execution.pauses": "CallView inspect_interrupt is_approval_interrupt is_interrupt PauseView",
    "continuations.journal": "Journal OpenedJournal",
    "stores.audit_chain": "BadLine verify_audit",
    "stores.interrupt_store": "InterruptStore",
    "stores.outbox": "Outbox",
    "stores.records": (
        "ALL_TENANTS Change FailedNotice LastResumed Lease Notice Page Record RecordOutcome RecordVersion "
        "StoredPause StoredRequest"
    ),
    "stores.errors": (
        "AlreadyDecided AnswerRefused RecordExpired RecordLost RecordWithdrawn RequestSettled RequestSuperseded "
        "StoreError StoreFull StoreUnavailable UnknownRequest"
    ),
    "stores.postgres": "PostgresInterruptStore",
    "stores.resumer": "Resumer",
    "execution.program_library": "ProgramLibrary SavedProgram SavedVersion",
    "stores.sqlite": "MemoryInterruptStore SqliteInterruptStore",
    "stores.audit": "AuditLine",
    "tools.tool_result": "ToolResult",
    "interrupts.interrupt": "Interrupt PendingRequest request_interrupt",
    "trace.events": (
        "CatalogEvent ConsoleEvent FetchRequestEvent FetchResultEvent GuestMessageEvent InterruptEvent "
        "InvocationStarted NestedToolCallEvent NestedToolResultEvent RefusalEvent"
    ),
    "trace.trace": "Trace",
    "continuations.guard": "MemoryResumeGuard ResumeGuard",
}
__getattr__ = late_names(__name__, _LATE)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
