"""A pause with a large ledger leaves the loop: packing it, opening it, comparing it, and a recovery of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pausing import PAUSING, Spy
from waiting import within

from codemode import CodeModeTimeoutError, Interrupt, Tool, continue_approval, continue_interrupt, run_code_mode
from codemode.continuations import sealing
from codemode.execution import pauses, recovery
from codemode.execution import resume as continuations

OK = {"approved": True}
SMALL_JS = "await tools.text(1); return (await tools.refund(1)).done"
LARGE_JS = "for (let i = 0; i < 5; i++) await tools.text(1);" + SMALL_JS
FORMS: list[dict[str, Any]] = [{}, {"compress": True}, {"seal": True}]


class Watch:
    """Notes in which threads something is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: set[bool] = set()
        self._monkeypatch = monkeypatch

    def over(self, owner: Any, name: str) -> Watch:
        real: Callable[..., Any] = getattr(owner, name)

        def watched(*given: Any, **named: Any) -> Any:
            result = real(*given, **named)
            self.threads.add(threading.current_thread() is threading.main_thread())
            return result

        self._monkeypatch.setattr(owner, name, watched)
        return self


@pytest.fixture
def tools():
    async def text(_value):
        return "x" * 2_000_000

    return [Tool("text", execute=text), Spy().guarded()]


@pytest.mark.parametrize("form", FORMS)
def test_loop_a_large_ledger_is_packed_and_opened_elsewhere(tools, monkeypatch, form):
    options = {**PAUSING, "continuation": {"keys": "key", **form}}
    watch = (
        Watch(monkeypatch).over(recovery, "encode_and_sign_continuation").over(continuations, "continuation_from_texts")
    )

    async def both() -> Any:
        interrupt = await run_code_mode(LARGE_JS, tools, options=options)
        return await continue_interrupt(interrupt.to_dict(), OK, tools=tools, options=options)

    assert within(both()) == "refund"
    assert watch.threads == {False}


def test_loop_a_small_pause_stays_on_the_loop(monkeypatch):
    watch = (
        Watch(monkeypatch).over(recovery, "encode_and_sign_continuation").over(continuations, "continuation_from_texts")
    )
    tools = [Spy().tool("text"), Spy().guarded()]

    async def both() -> Any:
        interrupt = await run_code_mode(SMALL_JS, tools, options=PAUSING)
        return await continue_interrupt(interrupt.to_dict(), OK, tools=tools, options=PAUSING)

    assert within(both()) == "refund"
    assert watch.threads == {True}


def test_loop_a_large_shown_input_is_compared_elsewhere(tools, monkeypatch):
    js = "return (await tools.refund({ rows: Array.from({ length: 20000 }, (_, id) => ({ id })) })).done"
    watch = Watch(monkeypatch).over(pauses, "is_same_json")

    async def both() -> Any:
        interrupt = await run_code_mode(js, tools, options=PAUSING)
        answer = {"approvalId": interrupt.interrupt_id, "approved": True}
        return await continue_approval(interrupt.to_dict(), answer, tools=tools, options=PAUSING)

    assert within(both()) == "refund"
    assert watch.threads == {False}


def test_loop_a_recovery_of_a_large_ledger_is_made_elsewhere_whoever_cancels(tools, monkeypatch):
    """The caller is cancelled twice, the second time while it is packed: the recovery is there nevertheless."""
    packing, go_on = threading.Event(), threading.Event()
    real = sealing.encode_and_sign_continuation

    def slow(*given: Any) -> Any:
        texts = [*given[0]]
        packing.set()
        assert go_on.wait(60)
        return real(texts, *given[1:])

    monkeypatch.setattr(recovery, "encode_and_sign_continuation", slow)

    async def hang(_value: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    reached = asyncio.Event()
    js = "for (let i = 0; i < 5; i++) await tools.text(1); await tools.hang(1)"

    async def cancelled() -> BaseException | None:
        task = asyncio.ensure_future(run_code_mode(js, [tools[0], Tool("hang", execute=hang)]))
        await reached.wait()
        task.cancel()
        assert await asyncio.to_thread(packing.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return caught.value.__cause__

    error: Any = within(cancelled())
    assert isinstance(error.recovery, Interrupt)
    assert [call["status"] for call in error.calls] == ["fulfilled"] * 5 + ["unknown"]


def test_loop_a_recovery_of_a_large_ledger_goes_on(tools, passing_time):
    async def slow(_value: Any) -> None:
        passing_time.skip(61)
        await asyncio.Event().wait()

    js = "for (let i = 0; i < 5; i++) await tools.text(1); return await tools.slow(1)"
    both = [tools[0], Tool("slow", execute=slow)]
    with pytest.raises(CodeModeTimeoutError) as caught:
        within(run_code_mode(js, both, options={"execution_policy": {"timeout_ms": 60_000}}))
    interrupt: Any = caught.value.recovery
    assert within(continue_interrupt(interrupt.to_dict(), {"value": 7}, tools=both)) == 7
