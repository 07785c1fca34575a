"""Which events come, and in which order: success, failure, replay, pause, and hooks that misbehave (A147 to A153)."""

from __future__ import annotations

import asyncio

import pytest

from codemode import (
    CallContext,
    CodeModeError,
    CodeModeTimeoutError,
    CodeModeToolError,
    Tool,
    create_code_mode_tool,
    request_interrupt,
    tool,
)
from codemode.types import Trace

HOOKS = (
    "on_nested_tool_call", "on_nested_tool_result", "on_fetch_request", "on_fetch_result", "on_console", "on_interrupt",
    "on_trace",
)  # fmt: skip


@tool(needs_approval=True)
def refund(order: str) -> str:
    return f"refunded {order}"


def stock(product: str) -> int:
    return {"bolt": 120}[product]


async def ask_outside(value, context):
    if context.interrupt is None:
        request_interrupt({"kind": "sign-in"})
    return context.interrupt.resolution


TOOLS = [refund, stock, Tool("signIn", execute=ask_outside)]


def shape(event):
    kind = type(event).__name__.removesuffix("Event")
    name = getattr(event, "tool_name", None)
    if kind == "NestedToolCall":
        return f"{name} called" + (" again" if event.replayed else "")
    if kind == "NestedToolResult":
        return f"{name} {event.status}" + (" again" if event.replayed else "")
    return f"{kind} {event.status}" if isinstance(event, Trace) else kind


class Heard(list):
    """All events of one or more runs, as short text."""

    def __init__(self) -> None:
        super().__init__()
        self.events = []

    def __call__(self, event) -> None:
        self.events.append(event)
        self.append(shape(event))

    def options(self, **more):
        return {"lifecycle": dict.fromkeys(HOOKS, self), "approval": {"mode": "interrupt"}, **more}

    def take(self):
        taken = list(self)
        self.clear()
        return taken


def made(heard, **more):
    return create_code_mode_tool(TOOLS, heard.options(**more))


def test_success():
    heard = Heard()
    made(heard).execute_sync({"js": "console.log(1); await tools.stock({product: 'bolt'}); console.log(2)"})
    assert heard == ["Console", "stock called", "stock fulfilled", "Console", "Trace completed"]


def test_failure():
    heard = Heard()
    with pytest.raises(CodeModeToolError) as caught:
        made(heard).execute_sync({"js": "const product = 'x'; await tools.stock({product}); console.log(1)"})
    assert heard == ["stock called", "stock rejected", "Trace failed"]
    assert heard.events[-1] is caught.value.trace
    assert isinstance(heard.events[1].error.__cause__, KeyError)


def test_the_call_event_comes_before_lookup_and_validation():
    heard = Heard()
    calls = "await tools[none](1).catch(() => 0); await tools.stock({product}).catch(() => 0)"
    js = f"const none = 'none', product = 3; {calls}"
    made(heard).execute_sync({"js": js})
    assert heard == ["none called", "none rejected", "stock called", "stock rejected", "Trace completed"]


def test_pause_and_resume():
    heard = Heard()
    code_mode = made(heard)
    js = "const n = await tools.stock({product: 'bolt'}); const r = await tools.refund({order: 'a'}); "
    js += "return [n, r, await tools.signIn()]"
    paused = code_mode.execute_sync({"js": js})
    assert heard.take() == [
        "stock called", "stock fulfilled", "refund called", "refund interrupted", "Interrupt", "Trace interrupted",
    ]  # fmt: skip
    interrupt_event, trace = heard.events[-2:]
    assert interrupt_event.interrupt is paused
    assert trace.interrupted_by is paused
    assert trace.bridge_requests[-1].interrupt == {"kind": "ai-sdk-code-mode/tool-approval"}

    again = code_mode.resume_sync(paused, {"approved": True})
    assert heard.take() == [
        "stock called again", "stock fulfilled again", "refund called", "refund fulfilled", "signIn called",
        "signIn interrupted", "Interrupt", "Trace interrupted",
    ]  # fmt: skip

    assert code_mode.resume_sync(again, "me") == [120, "refunded a", "me"]
    assert heard.take() == [
        "stock called again", "stock fulfilled again", "refund called again", "refund fulfilled again", "signIn called",
        "signIn fulfilled", "Trace completed",
    ]  # fmt: skip


def test_a_repeated_resume_runs_nothing_and_tells_nothing():
    heard = Heard()
    code_mode = made(heard)
    paused = code_mode.execute_sync({"js": "return await tools.refund({order: 'a'})"})
    code_mode.resume_sync(paused, {"approved": True})
    heard.clear()
    assert code_mode.resume_sync(paused, {"approved": True}) == "refunded a"
    assert heard == []


def test_what_still_waits_after_a_partial_answer_is_told_of():
    heard = Heard()
    code_mode = made(heard)
    paused = code_mode.execute_sync(
        {"js": "return await Promise.all(['a', 'b'].map((order) => tools.refund({order})))"}
    )
    heard.clear()
    first = paused.requests[0].interrupt_id
    still = code_mode.resume_sync(paused, resolutions={first: {"approved": True}})
    assert [request.input for request in still.requests] == [{"order": "b"}]
    assert heard == [
        "refund called", "refund fulfilled", "refund called again", "refund interrupted again", "Interrupt",
        "Trace interrupted",
    ]  # fmt: skip


def test_a_denied_call_is_a_rejected_one():
    heard = Heard()
    code_mode = made(heard)
    paused = code_mode.execute_sync({"js": "return await tools.refund({order: 'a'}).catch((e) => e.name)"})
    heard.clear()
    assert code_mode.resume_sync(paused, {"approved": False}) == "CodeModeToolApprovalDeniedError"
    assert heard == ["refund called", "refund rejected", "Trace completed"]


def test_a_call_that_outlives_its_program_is_aborted(within, passing_time):
    heard = Heard()
    cancelled = []

    async def hang():
        passing_time.skip(61)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    code_mode = create_code_mode_tool([hang], heard.options(execution_policy={"timeout_ms": 60_000}))
    with pytest.raises(CodeModeTimeoutError) as caught:
        within(code_mode.execute({"js": "await tools.hang()"}))
    assert heard == ["hang called", "hang aborted", "Trace failed"]
    assert cancelled == [True]
    assert caught.value.calls[0]["status"] == "unknown"


def test_every_run_has_one_trace_of_its_own(within):
    heard = Heard()
    code_mode = made(heard)

    async def scenario():
        programs = [f"return await tools.stock({{product: 'bolt'}}) + {n}" for n in range(5)]
        return await asyncio.gather(*(code_mode.execute({"js": js}) for js in programs))

    assert within(scenario()) == [120, 121, 122, 123, 124]
    traces = [event for event in heard.events if isinstance(event, Trace)]
    assert len({trace.invocation_id for trace in traces}) == 5
    assert [len(trace.bridge_requests) for trace in traces] == [1] * 5


# --- hooks that misbehave


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError(), SystemExit(1)], ids=repr)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_hook_that_raises_or_is_cancelled_changes_nothing(error, is_async):
    def raise_now(_event):
        raise error

    async def raise_later(_event):
        raise error

    reports = []
    options = {
        "lifecycle": {
            **dict.fromkeys(HOOKS, raise_later if is_async else raise_now),
            "on_hook_error": lambda error, info: reports.append(info["hook"]),
        }
    }
    code_mode = create_code_mode_tool([stock], options)
    assert code_mode.execute_sync({"js": "console.log(1); return await tools.stock({product: 'bolt'})"}) == 120
    assert sorted(reports) == ["on_console", "on_nested_tool_call", "on_nested_tool_result", "on_trace"]


@pytest.fixture
def blocking(passing_time):
    """Options of a run that may take a minute, with a hook that keeps the event loop for longer than that."""
    return {
        "lifecycle": {"on_console": lambda _event: passing_time.block(350)},
        "execution_policy": {"timeout_ms": 60_000},
    }


def test_a_hook_that_blocks_does_not_use_up_the_programs_time(blocking):
    code_mode = create_code_mode_tool([stock], blocking)
    call = "await tools.stock({product: 'bolt'})"
    js = f"console.log(1); {call}; console.log(2); return {call}"
    assert code_mode.execute_sync({"js": js}) == 120


def test_the_deadline_still_counts_the_rest_of_the_time(within, blocking, passing_time):
    passed = []

    async def late(seconds):
        passed.append(seconds)
        passing_time.skip(seconds)
        await asyncio.sleep(0)  # in which a deadline would ring

    js = "console.log(1); await tools.late(50); console.log(2); await tools.late(11); for (;;);"
    with pytest.raises(CodeModeTimeoutError):
        within(create_code_mode_tool([Tool("late", execute=late)], blocking).execute({"js": js}))
    assert passed == [50, 11]


def test_async_hooks_hold_up_no_call(within):
    order = []

    async def scenario():
        gate = asyncio.Event()

        async def hook(event):
            await gate.wait()
            order.append("hook")

        async def last() -> None:
            order.append("last")
            gate.set()

        code_mode = create_code_mode_tool([stock, last], {"lifecycle": {"on_nested_tool_call": hook}})
        await code_mode.execute({"js": "await tools.stock({product: 'bolt'}); await tools.last()"})

    within(scenario())
    assert order == ["last", "hook", "hook"]


def test_the_guest_learns_nothing_of_a_hooks_failure():
    def spoil(event):
        raise RuntimeError("/host/path")

    js = "try { return await tools.stock({product: 'bolt'}) } catch (e) { return e.message }"
    code_mode = create_code_mode_tool([stock], {"lifecycle": {"on_nested_tool_result": spoil}})
    assert code_mode.execute_sync({"js": js}) == 120


def test_a_failed_resume_carries_its_trace():
    heard = Heard()
    code_mode = made(heard)
    paused = code_mode.execute_sync({"js": "await tools.refund({order: 'a'}); throw new RangeError('late')"})
    with pytest.raises(CodeModeError) as caught:
        code_mode.resume_sync(paused, {"approved": True})
    assert caught.value.trace is heard.events[-1]
    assert [request.status for request in caught.value.trace.bridge_requests] == ["fulfilled"]


def test_model_output_belongs_to_the_resumed_run():
    code_mode = made(Heard(), model_output={"include_nested_tool_summary": True})
    js = "await tools.stock({product: 'bolt'}); return {done: await tools.refund({order: 'a'})}"
    paused = code_mode.execute_sync({"js": js}, call=CallContext(tool_call_id="c1"))
    assert code_mode.to_model_output(paused) == {"type": "json", "value": paused.to_dict()}
    result = code_mode.resume_sync(paused, {"approved": True})
    assert result == {"done": "refunded a"}, "unchanged for the host"
    shown = code_mode.to_model_output(result)["value"]
    assert shown["result"] is result
    assert [(one["toolName"], one["replayed"]) for one in shown["nestedTools"]] == [("stock", True), ("refund", False)]
    repeated = code_mode.resume_sync(paused, {"approved": True})
    assert code_mode.to_model_output(repeated)["value"] == {"result": result, "nestedTools": []}
