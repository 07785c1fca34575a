"""Attempts to break the promises around resuming: run a call twice, lose a ledger, run what was not shown."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Annotated, Any

import pydantic
import pytest
from pausing import NO, OK, PAUSING, go_on, start
from waiting import within

from codemode import (
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolError,
    Tool,
    continue_interrupt,
    run_code_mode,
)
from codemode.execution import resume as continuations
from codemode.stores import MemoryResumeGuard, SqliteInterruptStore

REFUND = "return await tools.refund(1)"


# --- one continuation, one run ---


class SlowGuard(MemoryResumeGuard):
    """Gives a claim only when the continuation has expired, and has forgotten who had it before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._monkeypatch = monkeypatch
        self.released: list[str] = []

    async def claim(self, claim):
        self._monkeypatch.setattr(continuations, "now_ms", lambda: claim.expires_at_ms)

    async def release(self, key):
        self.released.append(key)


def test_a_claim_that_comes_after_the_expiry_runs_nothing(spy, monkeypatch):
    guard = SlowGuard(monkeypatch)
    interrupt = start(REFUND, [spy.guarded()])
    with pytest.raises(CodeModeProtocolError, match="expired"):
        go_on(interrupt, [spy.guarded()], OK, options={**PAUSING, "continuation": {"guard": guard}})
    assert spy.ran == []
    assert guard.released == [interrupt.continuation["auth"]["nonce"]]


@pytest.mark.parametrize("order", [["interrupt", "recovery"], ["recovery", "interrupt"]])
def test_an_attempt_without_calls_can_be_resumed_once(spy, order):
    js = "try { await tools.refund(1) } catch { for (;;); } return 'refunded'"
    interrupt = start(js, [spy.guarded()])
    with pytest.raises(CodeModeTimeoutError) as caught:
        go_on(interrupt, [spy.guarded()], NO, options={**PAUSING, "execution_policy": {"timeout_ms": 200}})
    ways = {"interrupt": interrupt, "recovery": caught.value.recovery}
    assert [go_on(ways[name], [spy.guarded()], OK) for name in order] == ["refunded", "refunded"]
    assert spy.ran == [("refund", 1)]


def test_invalid_options_do_not_consume_a_continuation(spy):
    interrupt = start(REFUND, [spy.guarded()])
    with pytest.raises(ValueError, match="allowed_origins"):
        go_on(interrupt, [spy.guarded()], OK, options={**PAUSING, "fetch_policy": {"allowed_origins": ["nonsense"]}})
    assert go_on(interrupt, [spy.guarded()], OK) == {"done": "refund"}


def test_a_caller_that_is_cancelled_twice_holds_no_claim(tmp_path, spy, monkeypatch):
    held, entered = threading.Event(), threading.Event()
    guard = SqliteInterruptStore(tmp_path / "claims.sqlite").guard
    options = {**PAUSING, "continuation": {"guard": guard}}
    original = guard._try_claim_sync

    def hold(claim):
        entered.set()
        assert held.wait(60)
        return original(claim)

    async def scenario():
        interrupt = await run_code_mode(REFUND, [spy.guarded()], options=options)
        monkeypatch.setattr(guard, "_try_claim_sync", hold)
        task = asyncio.create_task(continue_interrupt(interrupt, OK, tools=[spy.guarded()], options=options))
        assert await asyncio.to_thread(entered.wait, 60)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        held.set()
        await asyncio.wait([task])
        assert task.cancelled()
        return await continue_interrupt(interrupt, NO, tools=[spy.guarded()], options=options)

    with pytest.raises(CodeModeError, match="denied"):
        within(scenario())
    assert spy.ran == []


# --- nothing begins after the end ---


async def waiting_out_a_cancellation(answer: Any) -> Any:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return answer


DECISIONS = {
    "needs_approval": ({"needs_approval": lambda _: waiting_out_a_cancellation(False)}, {}),
    "callback": (
        {"needs_approval": True},
        {"approval": {"on_approval_required": lambda _: waiting_out_a_cancellation("approved")}},
    ),
}


@pytest.mark.parametrize("decision", DECISIONS)
def test_a_cancelled_decision_permits_nothing(spy, passing_time, decision):
    def late(value, context):
        passing_time.skip(61)
        return asyncio.Event().wait()

    settings, options = DECISIONS[decision]
    js = "const refund = tools.refund(1); await tools.look(); return await refund"
    tools = [spy.tool("refund", **settings), spy.tool("look", late)]
    with pytest.raises(CodeModeTimeoutError) as caught:
        start(js, tools, {**options, "execution_policy": {"timeout_ms": 60_000}})
    assert [name for name, _ in spy.ran] == ["look"]
    assert [(call["name"], call["is_started"]) for call in caught.value.calls] == [("refund", False), ("look", True)]


# --- a cancellation loses nothing, wherever it comes ---

ENDINGS = {
    "paused": ("await tools.refund(1); return await tools.login()", None),
    "returned": ("return (await tools.refund(1)).done", "refund"),
    "timed out": ("await tools.refund(1); for (;;);", CodeModeTimeoutError),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_cancellation_while_hooks_are_awaited_carries_the_recovery(spy, passing_time, ending):
    def refunded(value, context):
        if ending == "timed out":
            passing_time.skip(61)
        return {"done": "refund"}

    js, expected = ENDINGS[ending]
    tools = [spy.tool("refund", refunded), spy.asking()]
    minute = {**PAUSING, "execution_policy": {"timeout_ms": 60_000}}
    short = {**PAUSING, "execution_policy": {"timeout_ms": 300}}

    async def scenario():
        told, traces = asyncio.Event(), []

        async def on_trace(trace):
            traces.append(trace)
            told.set()
            await asyncio.Event().wait()

        options = {**minute, "lifecycle": {"on_trace": on_trace}}
        task = asyncio.create_task(run_code_mode(js, tools, options=options))
        await told.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.__cause__, traces[0]

    error, trace = within(scenario())
    assert type(error) is CodeModeAbortedError
    if ending == "paused":
        # The hook may have kept it: a second continuation could be resumed beside it.
        assert error.recovery == trace.interrupted_by
        assert go_on(error.recovery, tools, "token", options=minute) == "token"
    elif ending == "timed out":
        assert error.recovery == trace.error.recovery
        with pytest.raises(CodeModeTimeoutError):
            go_on(error.recovery, tools, options=short)
    else:
        assert go_on(error.recovery, tools, options=minute) == expected
    assert [one for one in spy.ran if one[0] == "refund"] == [("refund", 1)]


def test_a_call_that_is_cancelled_before_its_first_step_releases_its_slot(spy, make_pool):
    pool = make_pool(max_workers=1)

    async def scenario():
        def on_console(event):
            # The call of the same turn is begun after this, and cancelled before it has run.
            task.cancel()

        options = {"lifecycle": {"on_console": on_console}}
        js = "console.log(1); return await tools.refund(1)"
        task = asyncio.create_task(run_code_mode(js, [spy.tool("refund")], options=options, pool=pool))
        await asyncio.wait([task])
        assert task.cancelled()

    within(scenario())
    assert (spy.ran, pool.active) == ([], 0)


# --- a guard that fails, an error that cannot be recorded ---


class BrokenGuard(MemoryResumeGuard):
    async def record(self, key, outcome):
        raise OSError("disk full")


BROKEN = {**PAUSING, "continuation": {"guard": BrokenGuard()}}


def test_a_value_that_cannot_be_recorded_is_not_lost(spy):
    interrupt = start(REFUND, [spy.guarded()])
    with pytest.raises(CodeModeError, match="guard") as caught:
        go_on(interrupt, [spy.guarded()], OK, options=BROKEN)
    assert isinstance(caught.value.__cause__, OSError)
    assert go_on(caught.value.recovery, [spy.guarded()]) == {"done": "refund"}
    assert spy.ran == [("refund", 1)]


def test_an_interrupt_that_cannot_be_recorded_is_not_lost(spy):
    tools = [spy.guarded(), spy.asking()]
    interrupt = start("await tools.refund(1); return await tools.login()", tools)
    with pytest.raises(CodeModeError, match="guard") as caught:
        go_on(interrupt, tools, OK, options=BROKEN)
    assert go_on(caught.value.recovery, tools, "token") == "token"
    assert [name for name, _ in spy.ran].count("refund") == 1


def test_a_failing_guard_does_not_hide_the_recovery(spy, passing_time):
    tools = [spy.tool("refund", lambda value, context: passing_time.skip(61), needs_approval=True)]
    interrupt = start("await tools.refund(1); for (;;);", tools)
    with pytest.raises(CodeModeTimeoutError) as caught:
        go_on(interrupt, tools, OK, options={**BROKEN, "execution_policy": {"timeout_ms": 60_000}})
    assert "disk full" in caught.value.__notes__[0]
    assert caught.value.recovery is not None


def test_an_error_whose_details_are_not_json_is_recorded(spy):
    def fail(value, context):
        raise CodeModeToolError("no", details={("a", 1): object()})

    tools = [spy.tool("refund", fail, needs_approval=True)]
    interrupt = start(REFUND, tools)
    for _ in range(2):
        with pytest.raises(CodeModeToolError, match="no"):
            go_on(interrupt, tools, OK)
    assert spy.ran == [("refund", 1)]


# --- what was shown is what runs ---


class Transfer(pydantic.BaseModel):
    amount: int
    key: uuid.UUID = pydantic.Field(default_factory=uuid.uuid4)


class Doubled(Transfer):
    amount: Annotated[int, pydantic.AfterValidator(lambda amount: amount * 2)]


def test_a_value_of_a_default_factory_runs_as_it_was_shown(spy):
    interrupt = start("return await tools.pay({amount: 1})", [spy.guarded("pay", input_schema=Transfer)])
    assert go_on(interrupt, [spy.guarded("pay", input_schema=Transfer)], OK) == {"done": "pay"}
    assert [value.model_dump(mode="json") for _, value in spy.ran] == [interrupt.input]


def test_such_a_schema_that_has_changed_is_refused(spy):
    interrupt = start("return await tools.pay({amount: 1})", [spy.guarded("pay", input_schema=Transfer)])
    with pytest.raises(CodeModeProtocolError, match="schema has changed"):
        go_on(interrupt, [spy.guarded("pay", input_schema=Doubled)], OK)
    assert spy.ran == []


def test_a_large_input_is_validated_off_the_event_loop(spy):
    threads: list[str] = []

    def note(value: Any) -> Any:
        threads.append(threading.current_thread().name)
        return value

    tools = [spy.tool("keep", input_schema=Annotated[list[int], pydantic.BeforeValidator(note)])]
    start("await tools.keep([1]); await tools.keep(Array(10000).fill(1)); return 1", tools)
    assert threads[0] == threading.current_thread().name
    assert all(name.startswith("codemode-check") for name in threads[1:])
    assert len(threads) > 1


def test_a_recovery_shows_a_large_input_without_another_check(spy, passing_time):
    checks: list[int] = []

    def note(value: Any) -> Any:
        checks.append(len(value))
        return value

    def late(value, context):
        passing_time.skip(61)
        return asyncio.Event().wait()

    tools = [
        spy.tool(
            "keep",
            late,
            input_schema=Annotated[list[int], pydantic.BeforeValidator(note)],
        )
    ]
    js = "return await tools.keep(Array(10000).fill('1'))"
    with pytest.raises(CodeModeTimeoutError) as caught:
        start(js, tools, {**PAUSING, "execution_policy": {"timeout_ms": 60_000}})
    # One check of the input, one that what is shown gives the same again.
    assert checks == [10_000, 10_000]
    assert caught.value.recovery.input == [1] * 10_000
    assert go_on(caught.value.recovery, [spy.tool("keep", input_schema=list[int])], {"runAgain": True}) == {
        "done": "keep"
    }


# --- what the program may read of the host ---


def test_an_error_of_a_half_read_generator_is_hidden_from_the_program():
    def rows():
        yield 1
        raise RuntimeError("/etc/secret")

    def read():
        return rows()

    js = "try { return await tools.read() } catch (error) { return error.message }"
    # It is read by the tool's own thread: what it raises is what the tool raises.
    assert start(js, [Tool("read", execute=read)]) == "the tool failed"
