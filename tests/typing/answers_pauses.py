"""User code that pauses, stores, answers and recovers, checked strictly. Never run."""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

from codemode import (
    CallContext,
    CodeModeError,
    CodeModeTimeoutError,
    ContinuationOptions,
    Interrupt,
    PendingRequest,
    ToolCallContext,
    continue_approval,
    continue_approval_sync,
    continue_interrupt,
    continue_interrupt_sync,
    create_code_mode_tool,
    get_approval_response,
    get_interrupt,
    is_approval_interrupt,
    is_interrupt,
    replace_interrupt_result,
    request_interrupt,
    set_continuation_signing_key,
    to_approval_messages,
    tool,
    unwrap_result,
)
from codemode.stores import (
    ALL_TENANTS,
    InterruptStore,
    MemoryInterruptStore,
    MemoryResumeGuard,
    ResumeGuard,
    SqliteInterruptStore,
)


@tool(needs_approval=True)
def refund(order: str, cents: int = 500) -> str:
    return f"refunded {cents} for {order}"


@tool
def sign_in(context: ToolCallContext) -> str:
    if context.interrupt is None:
        request_interrupt({"kind": "connection-auth", "url": "https://example.com"})
    assert_type(context.interrupt.id, str)
    return str(context.interrupt.resolution)


set_continuation_signing_key(["old", b"new"])
guard: ResumeGuard = SqliteInterruptStore(Path("resumes.sqlite")).guard
in_memory: ResumeGuard = MemoryResumeGuard()
options = {
    "approval": {"mode": "interrupt"},
    "continuation": ContinuationOptions(guard=guard, seal=True, conversation_id="tenant a"),
}
code_mode = create_code_mode_tool([refund, sign_in], options)


class OwnGuard:
    """A guard of the user's own, with the least that it must have."""

    async def claim(self, claim: Any) -> str | None:
        return None

    async def renew(self, key: str) -> bool:
        return True

    async def record(self, key: str, outcome: str) -> None: ...

    async def release(self, key: str) -> None: ...


own_guard: ResumeGuard = OwnGuard()


async def person(js: str) -> Any:
    result = await code_mode.execute({"js": js})
    if not isinstance(result, Interrupt):
        return result
    assert_type(result.requests, tuple[PendingRequest, ...])
    assert_type(result.requests[0].is_approval, bool)
    assert_type(result.requests[0].payload, Mapping[str, Any])
    stored = json.dumps(result.to_dict())
    answers = {request.interrupt_id: {"approved": True} for request in Interrupt.from_dict(json.loads(stored)).requests}
    await code_mode.resume(result, {"approved": True, "input": {"order": "a", "cents": 300}})
    await continue_interrupt(json.loads(stored), resolutions=answers, tools=[refund], options=options)
    return code_mode.resume_sync(json.loads(stored), resolutions=answers)


async def go_on(error: CodeModeError) -> Any:
    """An error's recovery is taken by everything that takes an interrupt, as it is."""
    recovery = error.recovery
    if recovery is None:
        raise error
    assert_type(recovery.requests[0].tool_name, str)
    assert_type(recovery.requests[0].payload, Mapping[str, Any])
    assert_type(recovery.interrupt_id, str)
    assert_type(recovery.outer_tool_call_id, str)
    assert_type(recovery.to_dict(), dict[str, Any])
    if is_interrupt(recovery) or is_approval_interrupt(recovery):
        to_approval_messages(recovery)
    store: InterruptStore = MemoryInterruptStore()
    assert_type(await store.put(recovery, tool=code_mode, tenant="acme", labels={"agent": "refunds"}), str)
    await code_mode.resume(recovery, {"runAgain": True})
    code_mode.resume_sync(recovery, {"value": 1})
    continue_interrupt_sync(recovery, {"error": {"message": "no"}}, tools=[refund])
    return await continue_interrupt(recovery, {"runAgain": True}, tools={"refund": refund}, options=options)


async def from_store(store: InterruptStore, interrupt_id: str) -> Any:
    known = await store.get(interrupt_id, tenant=ALL_TENANTS)
    if known is not None:
        assert_type(known, Interrupt)
    try:
        return await store.answer(interrupt_id, {"approved": False}, code_mode.resume)
    except CodeModeTimeoutError as error:
        return await go_on(error)


async def from_messages(messages: list[dict[str, Any]], result: Any) -> list[Any]:
    interrupt = get_interrupt(result, options=options)
    if interrupt is None:
        return [unwrap_result(result).value]
    assert_type(interrupt, Interrupt)
    messages = [*messages, *to_approval_messages(interrupt, options=options)]
    response = get_approval_response(messages, interrupt)
    if response is None:
        return messages
    final = await continue_approval(interrupt, response, tools=[refund], options=options)
    continue_approval_sync(interrupt, [response], tools=[refund], options=options)
    return replace_interrupt_result(messages, interrupt, final)


# What must be refused. A check that no longer refuses it makes its comment superfluous, which is an error too.


class HalfAGuard:
    async def claim(self, claim: Any) -> str | None:
        return None


half: ResumeGuard = HalfAGuard()  # pyright: ignore[reportAssignmentType]
store_of_texts = MemoryInterruptStore().put("interrupt")  # pyright: ignore[reportArgumentType]
no_store = InterruptStore()  # pyright: ignore[reportAbstractUsage, reportCallIssue]


async def wrong(error: CodeModeError, interrupt: Interrupt) -> None:
    await continue_interrupt(error.recovery, tools=[refund])  # pyright: ignore[reportArgumentType]
    await continue_interrupt(error, tools=[refund])  # pyright: ignore[reportArgumentType]
    await continue_interrupt(interrupt, {"approved": True})  # pyright: ignore[reportCallIssue]
    continue_interrupt_sync(interrupt, tools=[refund], resolution_of={})  # pyright: ignore[reportCallIssue]
    code_mode.resume_sync(interrupt, tools=[refund])  # pyright: ignore[reportCallIssue]
    await continue_interrupt(interrupt, tools=[refund], resolution_of={})  # pyright: ignore[reportCallIssue]
    _ = error.recovery.requests  # pyright: ignore[reportOptionalMemberAccess]
    interrupt.requests = ()  # pyright: ignore[reportAttributeAccessIssue]
    request_interrupt("sign-in")  # pyright: ignore[reportArgumentType]
    continue_interrupt_sync(interrupt, True)  # pyright: ignore[reportCallIssue]
    continue_approval_sync(interrupt, [], tools=[refund], resolution=1)  # pyright: ignore[reportCallIssue]
    code_mode.resume_sync(interrupt, True, call=CallContext(messages=5))  # pyright: ignore[reportArgumentType]
    code_mode.execute_sync({"js": "return 1"}, tool_call=1)  # pyright: ignore[reportCallIssue]
