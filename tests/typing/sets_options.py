"""User code that sets options, as parts and as dicts, and hooks, checked strictly. Never run."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, Literal, assert_type

from codemode import (
    ApprovalPolicy,
    CodeModeOptions,
    ContinuationOptions,
    ExecutionPolicy,
    FetchPolicy,
    Lifecycle,
    ModelOutput,
    Telemetry,
    create_code_mode_tool,
    run_code_mode_sync,
)
from codemode.types import (
    ConsoleEvent,
    FetchRequestEvent,
    FetchResultEvent,
    InterruptEvent,
    NestedToolCallEvent,
    NestedToolResultEvent,
    Trace,
)


def on_call(event: NestedToolCallEvent) -> None:
    print(event.tool_name, event.tool_call_id, event.input, event.replayed)


async def on_result(event: NestedToolResultEvent) -> None:
    assert_type(event.status, Literal["fulfilled", "rejected", "interrupted", "aborted"])
    print(event.duration_ms, event.output, event.error)


def on_console(event: ConsoleEvent) -> None:
    print(event.to_dict())


def on_pause(event: InterruptEvent) -> None:
    print(event.to_dict())


def on_fetch(event: FetchRequestEvent | FetchResultEvent) -> None:
    print(event.url)


def on_trace(trace: Trace) -> None:
    print(trace.to_text())


def decide(request: Any) -> bool:
    return request.input["cents"] < 1000


parts = CodeModeOptions(
    execution_policy=ExecutionPolicy(
        timeout_ms=5000, timeout_includes_tools=False, tool_timeout_ms=1000, on_saturation="wait"
    ),
    fetch_policy=FetchPolicy(allowed_origins=("https://example.com",), allowed_methods=("GET", "POST")),
    approval=ApprovalPolicy(mode="callback", on_approval_required=decide),
    lifecycle=Lifecycle(
        on_nested_tool_call=on_call,
        on_nested_tool_result=on_result,
        on_console=on_console,
        on_interrupt=on_pause,
        on_fetch_request=on_fetch,
        on_fetch_result=on_fetch,
        on_trace=on_trace,
    ),
    telemetry=Telemetry(is_enabled=True, record_inputs=False, function_id="orders", metadata={"team": "a"}),
    model_output=ModelOutput(include_console=True, max_summary_entries=8),
    continuation=ContinuationOptions(max_age_ms=60_000, compress=True),
)
asking = ApprovalPolicy(on_approval_required=lambda request: request.tool_name == "refund")
mixed = CodeModeOptions(execution_policy={"timeout_ms": 5000}, fetch_policy=False, lifecycle={"on_trace": on_trace})
assert_type(parts.execution_policy, ExecutionPolicy)
assert_type(parts.execution_policy.timeout_ms, int)
assert_type(parts.fetch_policy, FetchPolicy | None)
create_code_mode_tool([], parts)
create_code_mode_tool([], mixed)
create_code_mode_tool([], {"approval": ApprovalPolicy(mode="interrupt"), "telemetry": {"is_enabled": False}})
run_code_mode_sync("return 1", {}, options=parts)
run_code_mode_sync("return 1", {}, options={"execution_policy": {"max_result_bytes": 100}})

# What must be refused. A check that no longer refuses it makes its comment superfluous, which is an error too.

ExecutionPolicy(timeout_ms="5 s")  # pyright: ignore[reportArgumentType]
ExecutionPolicy(timeout=5)  # pyright: ignore[reportCallIssue]
ExecutionPolicy(timeout_includes_tools="guest")  # pyright: ignore[reportArgumentType]
ExecutionPolicy(5000)  # pyright: ignore[reportCallIssue]
ApprovalPolicy(mode="ask")  # pyright: ignore[reportArgumentType]
Lifecycle(on_trace=5)  # pyright: ignore[reportArgumentType]
FetchPolicy(allowed_origins=5)  # pyright: ignore[reportArgumentType]
CodeModeOptions(execution=ExecutionPolicy())  # pyright: ignore[reportCallIssue]
CodeModeOptions(ExecutionPolicy())  # pyright: ignore[reportCallIssue]
CodeModeOptions(approval=ExecutionPolicy())  # pyright: ignore[reportArgumentType]
CodeModeOptions(fetch_policy=True)  # pyright: ignore[reportArgumentType]
parts.execution_policy.timeout_ms = 1  # pyright: ignore[reportAttributeAccessIssue]
