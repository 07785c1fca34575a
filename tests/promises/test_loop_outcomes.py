"""The outcome of a resume is written, sealed and read off the loop when it is large, and comes back as it was."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pausing import PAUSING, Spy
from suite import full_only
from waiting import within

from codemode import CodeModeTimeoutError, Interrupt, Tool, continue_interrupt, run_code_mode
from codemode.execution import outcome as recorded_outcomes
from codemode.stores import MemoryResumeGuard, SqliteInterruptStore

OK = {"approved": True}


def options(guard: Any, **continuation: Any) -> dict[str, Any]:
    return {**PAUSING, "continuation": {"keys": "key", "guard": guard, **continuation}}


@pytest.fixture(params=[{"seal": True}, {"compress": True}, *full_only({})])
def given(request, tmp_path):
    return options(SqliteInterruptStore(tmp_path / "claims").guard, **request.param)


async def text_tool(value: Any) -> str:
    return f"{value}\n" + "\u00fc" * 400_000


TOOLS = [Tool("text", execute=text_tool), Spy().guarded()]


def test_loop_a_large_pause_is_an_outcome_that_comes_back(given, monkeypatch):
    main = threading.main_thread()
    ran: set[bool] = set()
    for name in ("encode_value", "decode_outcome"):
        real = getattr(recorded_outcomes.OutcomeCodec, name)

        def watched(*arguments: Any, real: Any = real) -> Any:
            result = real(*arguments)
            ran.add(threading.current_thread() is main)
            return result

        monkeypatch.setattr(recorded_outcomes.OutcomeCodec, name, watched)
    js = "for (let i = 0; i < 5; i++) await tools.text(i); await tools.refund(1); await tools.refund(2); return 'done'"

    async def twice() -> tuple[Any, Any, Any]:
        first = await run_code_mode(js, TOOLS, options=given)
        second = await continue_interrupt(first, OK, tools=TOOLS, options=given)
        again = await continue_interrupt(first, OK, tools=TOOLS, options=given)
        return second, again, await continue_interrupt(again, OK, tools=TOOLS, options=given)

    second, again, last = within(twice())
    assert isinstance(again, Interrupt)
    assert (again.to_dict(), last) == (second.to_dict(), "done")
    assert ran == {True, False}  # the last one is small


@pytest.mark.parametrize(
    "value", ["{ b: [1, { a: null }], a: 'x\\ny' }", "undefined", "'\\u00fc\\n'", "2n ** 70n", "[]"]
)
def test_loop_a_value_comes_back_as_it_was(given, value):
    js = f"await tools.refund(1); return {value}"

    async def twice() -> tuple[Any, Any]:
        paused = await run_code_mode(js, TOOLS, options=given)
        return tuple([await continue_interrupt(paused, OK, tools=TOOLS, options=given) for _ in range(2)])

    first, again = within(twice())
    assert again == first
    assert str(again) == str(first)


def test_loop_a_deep_value_comes_back(given):
    js = "await tools.refund(1); let deep = []; for (let i = 0; i < 500; i++) deep = [deep]; return deep"

    async def twice() -> list[Any]:
        paused = await run_code_mode(js, TOOLS, options=given)
        return [await continue_interrupt(paused, OK, tools=TOOLS, options=given) for _ in range(2)]

    first, again = within(twice())
    assert first == again


@pytest.mark.full
def test_loop_a_recovery_with_a_large_ledger_is_an_outcome_that_comes_back(given, passing_time):
    async def hang(_value: Any) -> None:
        passing_time.skip(61)
        await asyncio.Event().wait()

    tools = [*TOOLS, Tool("hang", execute=hang)]
    js = "for (let i = 0; i < 5; i++) await tools.text(i); await tools.refund(1); return await tools.hang(1)"
    quick = {**given, "execution_policy": {"timeout_ms": 60_000}}

    async def twice() -> list[Any]:
        paused = await run_code_mode(js, tools, options=given)
        errors: list[Any] = []
        for _ in range(2):
            with pytest.raises(CodeModeTimeoutError) as caught:
                await continue_interrupt(paused, OK, tools=tools, options=quick)
            errors.append(caught.value)
        went_on = await continue_interrupt(errors[1].recovery, {"value": 7}, tools=tools, options=given)
        return [*errors, went_on]

    first, again, went_on = within(twice(), 60)
    assert first.recovery.to_dict() == again.recovery.to_dict()
    assert first.calls == again.calls
    assert went_on == 7


def test_loop_a_cancelled_caller_leaves_the_outcome_behind(monkeypatch):
    """It is cancelled while the outcome is written elsewhere: it is recorded nevertheless."""
    guard = MemoryResumeGuard()
    given = options(guard)
    writing, go_on = threading.Event(), threading.Event()
    real = recorded_outcomes.OutcomeCodec.encode_value

    def slow(self: Any, *written: Any) -> str:
        text = real(self, *written)
        if threading.current_thread() is not threading.main_thread():
            writing.set()
            assert go_on.wait(60)
        return text

    monkeypatch.setattr(recorded_outcomes.OutcomeCodec, "encode_value", slow)
    js = "for (let i = 0; i < 5; i++) await tools.text(i); await tools.refund(1); await tools.refund(2)"

    async def cancelled() -> Any:
        paused = await run_code_mode(js, TOOLS, options=given)
        task = asyncio.ensure_future(continue_interrupt(paused, OK, tools=TOOLS, options=given))
        assert await asyncio.to_thread(writing.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await continue_interrupt(paused, OK, tools=TOOLS, options=given)

    assert isinstance(within(cancelled()), Interrupt)
