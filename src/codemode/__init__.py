"""Code mode for Python agents. The public names, nothing else: each is imported when it is asked for."""

from typing import TYPE_CHECKING

from .host.imports import late_names

if TYPE_CHECKING:
    from .continuations.guard import MemoryResumeGuard as MemoryResumeGuard
    from .continuations.guard import ResumeGuard as ResumeGuard
    from .continuations.journal import Journal as Journal
    from .continuations.journal import OpenedJournal as OpenedJournal
    from .continuations.keys import set_continuation_signing_key as set_continuation_signing_key
    from .data.content import Content as Content
    from .data.content import ContentResult as ContentResult
    from .errors import CodeModeAbortedError as CodeModeAbortedError
    from .errors import CodeModeAuthenticationError as CodeModeAuthenticationError
    from .errors import CodeModeBridgeLimitError as CodeModeBridgeLimitError
    from .errors import CodeModeConcurrencyError as CodeModeConcurrencyError
    from .errors import CodeModeDetachedBridgeRequestError as CodeModeDetachedBridgeRequestError
    from .errors import CodeModeError as CodeModeError
    from .errors import CodeModeFetchError as CodeModeFetchError
    from .errors import CodeModeHttpError as CodeModeHttpError
    from .errors import CodeModeIllegalAccessError as CodeModeIllegalAccessError
    from .errors import CodeModeProtocolError as CodeModeProtocolError
    from .errors import CodeModeSerializationError as CodeModeSerializationError
    from .errors import CodeModeSourceTooLargeError as CodeModeSourceTooLargeError
    from .errors import CodeModeSyntaxError as CodeModeSyntaxError
    from .errors import CodeModeTimeoutError as CodeModeTimeoutError
    from .errors import CodeModeToolApprovalDeniedError as CodeModeToolApprovalDeniedError
    from .errors import CodeModeToolApprovalRequiredError as CodeModeToolApprovalRequiredError
    from .errors import CodeModeToolError as CodeModeToolError
    from .errors import CodeModeWorkerError as CodeModeWorkerError
    from .execution.call_context import CallContext as CallContext
    from .execution.outcome_texts import failure_text as failure_text
    from .execution.pauses import CallView as CallView
    from .execution.pauses import PauseView as PauseView
    from .execution.pauses import inspect_interrupt as inspect_interrupt
    from .execution.pauses import is_approval_interrupt as is_approval_interrupt
    from .execution.pauses import is_interrupt as is_interrupt
    from .execution.program_library import ProgramLibrary as ProgramLibrary
    from .execution.program_library import SavedProgram as SavedProgram
    from .execution.program_library import SavedVersion as SavedVersion
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
    from .stores.audit import AuditLine as AuditLine
    from .stores.audit_chain import BadLine as BadLine
    from .stores.audit_chain import verify_audit as verify_audit
    from .stores.errors import AlreadyDecided as AlreadyDecided
    from .stores.errors import AnswerRefused as AnswerRefused
    from .stores.errors import RecordExpired as RecordExpired
    from .stores.errors import RecordLost as RecordLost
    from .stores.errors import RecordWithdrawn as RecordWithdrawn
    from .stores.errors import RequestSettled as RequestSettled
    from .stores.errors import RequestSuperseded as RequestSuperseded
    from .stores.errors import StoreError as StoreError
    from .stores.errors import StoreFull as StoreFull
    from .stores.errors import StoreUnavailable as StoreUnavailable
    from .stores.errors import UnknownRequest as UnknownRequest
    from .stores.interrupt_store import InterruptStore as InterruptStore
    from .stores.outbox import Outbox as Outbox
    from .stores.postgres import PostgresInterruptStore as PostgresInterruptStore
    from .stores.records import ALL_TENANTS as ALL_TENANTS
    from .stores.records import Change as Change
    from .stores.records import FailedNotice as FailedNotice
    from .stores.records import LastResumed as LastResumed
    from .stores.records import Lease as Lease
    from .stores.records import Notice as Notice
    from .stores.records import Page as Page
    from .stores.records import Record as Record
    from .stores.records import RecordOutcome as RecordOutcome
    from .stores.records import RecordVersion as RecordVersion
    from .stores.records import StoredPause as StoredPause
    from .stores.records import StoredRequest as StoredRequest
    from .stores.resumer import Resumer as Resumer
    from .stores.sqlite import MemoryInterruptStore as MemoryInterruptStore
    from .stores.sqlite import SqliteInterruptStore as SqliteInterruptStore
    from .surfaces.code_call.options import CodeCallOptions as CodeCallOptions
    from .surfaces.code_call.result import CodeCallResult as CodeCallResult
    from .surfaces.code_call.toolset import CodeCallToolset as CodeCallToolset
    from .surfaces.code_call.toolset import create_code_call_tools as create_code_call_tools
    from .surfaces.code_mode.messages import get_approval_response as get_approval_response
    from .surfaces.code_mode.messages import get_interrupt as get_interrupt
    from .surfaces.code_mode.messages import replace_interrupt_result as replace_interrupt_result
    from .surfaces.code_mode.messages import to_approval_messages as to_approval_messages
    from .surfaces.code_mode.messages import unwrap_result as unwrap_result
    from .surfaces.code_mode.openai_custom_tool import OpenAICustomTool as OpenAICustomTool
    from .surfaces.code_mode.program import continue_approval as continue_approval
    from .surfaces.code_mode.program import continue_approval_sync as continue_approval_sync
    from .surfaces.code_mode.program import continue_interrupt as continue_interrupt
    from .surfaces.code_mode.program import continue_interrupt_sync as continue_interrupt_sync
    from .surfaces.code_mode.program import run_code_mode as run_code_mode
    from .surfaces.code_mode.program import run_code_mode_sync as run_code_mode_sync
    from .surfaces.code_mode.tool import CodeModeTool as CodeModeTool
    from .surfaces.code_mode.tool import create_code_mode_tool as create_code_mode_tool
    from .surfaces.exec_wait.namespaces import Namespace as Namespace
    from .surfaces.exec_wait.namespaces import NamespaceRegistry as NamespaceRegistry
    from .surfaces.exec_wait.namespaces import namespace_tool as namespace_tool
    from .surfaces.exec_wait.options import ExecWaitOptions as ExecWaitOptions
    from .surfaces.exec_wait.options import InvalidConfigError as InvalidConfigError
    from .surfaces.exec_wait.pair import ExecWaitTools as ExecWaitTools
    from .surfaces.exec_wait.pair import Surface as Surface
    from .surfaces.exec_wait.pair import create_exec_wait_tools as create_exec_wait_tools
    from .surfaces.exec_wait.pair import plan_surface as plan_surface
    from .surfaces.exec_wait.sources import ToolSource as ToolSource
    from .surfaces.exec_wait.waiting_run import RunInfo as RunInfo
    from .surfaces.modules.options import RunOptions as RunOptions
    from .surfaces.modules.response import RunResponse as RunResponse
    from .surfaces.modules.run_tool import RunTool as RunTool
    from .surfaces.modules.run_tool import create_run_tool as create_run_tool
    from .surfaces.modules.servers import ModuleServer as ModuleServer
    from .tools.context import PIPELINE_NULL as PIPELINE_NULL
    from .tools.context import PipelineCall as PipelineCall
    from .tools.context import ToolCallContext as ToolCallContext
    from .tools.tool import Tool as Tool
    from .tools.tool import tool as tool
    from .tools.tool_result import ToolResult as ToolResult
    from .trace.events import CatalogEvent as CatalogEvent
    from .trace.events import ConsoleEvent as ConsoleEvent
    from .trace.events import FetchRequestEvent as FetchRequestEvent
    from .trace.events import FetchResultEvent as FetchResultEvent
    from .trace.events import GuestMessageEvent as GuestMessageEvent
    from .trace.events import InterruptEvent as InterruptEvent
    from .trace.events import InvocationStarted as InvocationStarted
    from .trace.events import NestedToolCallEvent as NestedToolCallEvent
    from .trace.events import NestedToolResultEvent as NestedToolResultEvent
    from .trace.events import RefusalEvent as RefusalEvent
    from .trace.trace import Trace as Trace
    from .workers.pool import WorkerPool as WorkerPool
    from .workers.pool import set_max_workers as set_max_workers

# Where each name is. The imports above tell type checkers the same; a test compares both.
_LATE = {
    "continuations.guard": "MemoryResumeGuard ResumeGuard",
    "continuations.journal": "Journal OpenedJournal",
    "continuations.keys": "set_continuation_signing_key",
    "data.content": "Content ContentResult",
    "errors": (
        "CodeModeAbortedError CodeModeAuthenticationError CodeModeBridgeLimitError CodeModeConcurrencyError "
        "CodeModeDetachedBridgeRequestError CodeModeError CodeModeFetchError CodeModeHttpError "
        "CodeModeIllegalAccessError CodeModeProtocolError CodeModeSerializationError CodeModeSourceTooLargeError "
        "CodeModeSyntaxError CodeModeTimeoutError CodeModeToolApprovalDeniedError "
        "CodeModeToolApprovalRequiredError CodeModeToolError CodeModeWorkerError"
    ),
    "execution.call_context": "CallContext",
    "execution.outcome_texts": "failure_text",
    "execution.pauses": "CallView inspect_interrupt is_approval_interrupt is_interrupt PauseView",
    "execution.program_library": "ProgramLibrary SavedProgram SavedVersion",
    "interrupts.interrupt": "Interrupt PendingRequest request_interrupt",
    "observe.audit": "audit_log",
    "options.parts": (
        "ApprovalPolicy CodeModeOptions ContinuationOptions ExecutionPolicy FetchPolicy Lifecycle ModelOutput "
        "Pipeline PoolOptions Telemetry"
    ),
    "stores.audit": "AuditLine",
    "stores.audit_chain": "BadLine verify_audit",
    "stores.errors": (
        "AlreadyDecided AnswerRefused RecordExpired RecordLost RecordWithdrawn RequestSettled RequestSuperseded "
        "StoreError StoreFull StoreUnavailable UnknownRequest"
    ),
    "stores.interrupt_store": "InterruptStore",
    "stores.outbox": "Outbox",
    "stores.postgres": "PostgresInterruptStore",
    "stores.records": (
        "ALL_TENANTS Change FailedNotice LastResumed Lease Notice Page Record RecordOutcome RecordVersion "
        "StoredPause StoredRequest"
    ),
    "stores.resumer": "Resumer",
    "stores.sqlite": "MemoryInterruptStore SqliteInterruptStore",
    "surfaces.code_call.options": "CodeCallOptions",
    "surfaces.code_call.result": "CodeCallResult",
    "surfaces.code_call.toolset": "CodeCallToolset create_code_call_tools",
    "surfaces.code_mode.messages": (
        "get_approval_response get_interrupt replace_interrupt_result to_approval_messages unwrap_result"
    ),
    "surfaces.code_mode.openai_custom_tool": "OpenAICustomTool",
    "surfaces.code_mode.program": (
        "continue_approval continue_approval_sync continue_interrupt continue_interrupt_sync run_code_mode "
        "run_code_mode_sync"
    ),
    "surfaces.code_mode.tool": "CodeModeTool create_code_mode_tool",
    "surfaces.exec_wait.namespaces": "Namespace namespace_tool NamespaceRegistry",
    "surfaces.exec_wait.options": "ExecWaitOptions InvalidConfigError",
    "surfaces.exec_wait.pair": "create_exec_wait_tools ExecWaitTools plan_surface Surface",
    "surfaces.exec_wait.sources": "ToolSource",
    "surfaces.exec_wait.waiting_run": "RunInfo",
    "surfaces.modules.options": "RunOptions",
    "surfaces.modules.response": "RunResponse",
    "surfaces.modules.run_tool": "create_run_tool RunTool",
    "surfaces.modules.servers": "ModuleServer",
    "tools.context": "PIPELINE_NULL PipelineCall ToolCallContext",
    "tools.tool": "Tool tool",
    "tools.tool_result": "ToolResult",
    "trace.events": (
        "CatalogEvent ConsoleEvent FetchRequestEvent FetchResultEvent GuestMessageEvent InterruptEvent "
        "InvocationStarted NestedToolCallEvent NestedToolResultEvent RefusalEvent"
    ),
    "trace.trace": "Trace",
    "workers.pool": "set_max_workers WorkerPool",
}
__all__ = [name for names in _LATE.values() for name in names.split()]  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__ = late_names(__name__, _LATE)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
