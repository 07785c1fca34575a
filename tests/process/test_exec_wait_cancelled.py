"""Whoever waits for a run may be cancelled at any moment: nothing that it has written or come to is lost with that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest
from exec_wait_world import KEYED, SCOPE, run, wait
from pausing import Spy
from suite import full_only
from waiting import until, within

from codemode import create_exec_wait_tools
from codemode.execution.suspendable_runner import SuspendableRunner
from codemode.stores import ALL_TENANTS, SqliteInterruptStore
from codemode.surfaces.exec_wait import program_runner

SMALL, LARGE = 10, 300_000  # what is long is read in a thread
CODE = """
const out = [await tools.act(1)]; text("A".repeat(SIZE)); await yield_control();
out.push(...await Promise.all([tools.act(2), tools.slow(3)])); text("B".repeat(SIZE)); await yield_control();
out.push(await tools.act(4)); text("C".repeat(SIZE)); return out;
"""


class Cancelling:
    """Runs a coroutine, and cancels its task as it begins its n-th wait, or (``late``) as that is over."""

    def __init__(self, work: Coroutine[Any, Any, Any], number: int, *, late: bool) -> None:
        self._work, self._left, self._late = work, number, late

    def __await__(self) -> Any:
        waits, error = self._work.__await__(), None
        while True:
            try:
                waited = waits.send(None) if error is None else waits.throw(error)
            except StopIteration as end:
                return end.value
            self._left -= 1
            task = asyncio.current_task()
            if self._left == 0 and task is not None:
                if self._late and waited is not None:
                    waited.add_done_callback(lambda _, task=task: task.cancel())
                else:
                    task.cancel()
            try:
                yield waited
                error = None
            except BaseException as raised:
                error = raised


async def cancelled_at(work: Coroutine[Any, Any, Any], number: int, how: str) -> Any:
    """Return what it comes to; None where it was cancelled."""

    async def driven() -> Any:
        return await Cancelling(work, number, late=how == "late")

    if how != "ticks":
        task = asyncio.ensure_future(driven())
    else:
        task = asyncio.ensure_future(work)
        for _ in range(number * number):
            await asyncio.sleep(0)
        task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None


async def to_the_end(pair: Any, size: int, cut: int, number: int, how: str) -> tuple[Any, list[str], bool]:
    """Run the program, cancelling one of its waits; return its last result, what was written, and whether it was."""
    result = await run(pair, CODE.replace("SIZE", str(size)))
    run_id, written, was_cut = result["runId"], [*result["output"]], False
    for step in range(1, 6):
        waiting = wait(pair, {"runId": run_id}, tool_call_id=f"call_{step}" if number % 2 else None)
        result = await (cancelled_at(waiting, number, how) if step == cut else waiting)
        was_cut = was_cut or result is None
        written += () if result is None else result.get("output", ())
        if result is not None and result["status"] != "waiting":
            break
    return result, [f"{one['text'][0]}{len(one['text'])}" for one in written], was_cut


@pytest.mark.parametrize("how", ["ticks", *full_only("late", "begins")])
@pytest.mark.parametrize(
    ("is_stored", "warm", "size"),
    [(False, 4, SMALL), (True, 4, SMALL), (True, 0, LARGE), *full_only((False, 0, LARGE))],
)
def test_a_wait_that_is_cancelled_loses_no_result_no_output_and_no_slot(pool, tmp_path, warm, size, is_stored, how):

    async def once(store: Any, cut: int, number: int) -> bool:
        spy, before = Spy(), asyncio.all_tasks()

        async def slow(value: Any, _context: Any) -> Any:
            await asyncio.sleep(0)
            return value

        tools = [spy.tool("act", lambda value, _: value), spy.tool("slow", slow)]
        options = {"maxWarmRuns": warm, "maxOutputBytes": 3_000_000}
        pair = create_exec_wait_tools(tools, options, settings=KEYED, pool=pool, store=store)
        result, written, was_cut = await to_the_end(pair, size, cut, number, how)
        shown = {name: result[name] for name in result if name in ("status", "value", "error", "code")}
        assert shown == {"status": "completed", "value": [1, 2, 3, 4]}, (cut, number)
        assert written == [f"{letter}{size}" for letter in "ABC"], (cut, number)
        assert sorted(value for _, value in spy.ran) == [1, 2, 3, 4]
        await pair.aclose()
        await until(lambda: pool.active == 0 and not asyncio.all_tasks() - before)
        return was_cut

    async def main() -> int:
        async def all_of(store: Any) -> int:
            cuts = [await once(store, cut, number) for cut in (1, 2) for number in (1, 2, 3, 4)]
            return sum(cuts)

        if not is_stored:
            return await all_of(None)
        async with SqliteInterruptStore(tmp_path / "runs.db") as store:
            return await all_of(store)

    assert within(main()) > 0


@pytest.mark.parametrize("warm", [4, 0])
def test_an_exec_that_is_cancelled_as_what_it_wrote_is_read_gives_its_slot_back(make_pool, warm):
    pool = make_pool(max_workers=1)
    pair = create_exec_wait_tools([], {"maxWarmRuns": warm, "maxOutputBytes": 3_000_000}, pool=pool)
    code = f'text("A".repeat({LARGE})); {{}} return 1'

    async def main() -> None:
        for ends in (code, code.replace("{}", "await yield_control();")):
            for how in ("begins", "late"):
                for number in range(1, 6):
                    await cancelled_at(run(pair, ends.replace("{}", "")), number, how)
                    await until(lambda: pool.active == 0 or bool(pair.runs(SCOPE)))
                    await pair.abort(conversation_id=SCOPE)
        assert (await run(pair, "return 1"))["value"] == 1
        await pair.aclose()

    within(main())


@pytest.mark.parametrize("warm", [4, 0])
def test_a_wait_that_is_cancelled_on_another_loop_leaves_the_run_waiting(pool, warm):
    spy = Spy()

    async def main() -> Any:
        gate, begun = asyncio.Event(), threading.Event()

        async def hold(value: Any, _context: Any) -> Any:
            begun.set()
            await gate.wait()
            return value

        pair = create_exec_wait_tools([spy.tool("hold", hold)], {"maxWarmRuns": warm}, pool=pool)
        first = await run(pair, "await yield_control(); text('b'); return await tools.hold(1)")
        ends: list[str] = []

        async def cancelled() -> None:
            task = asyncio.ensure_future(wait(pair, first))
            await asyncio.to_thread(begun.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            ends.extend(one.state for one in pair.runs(SCOPE))

        await asyncio.to_thread(lambda: asyncio.run(cancelled()))
        gate.set()
        last = await wait(pair, first)
        await pair.aclose()
        return ends, last["value"], last["output"], spy.ran

    ends, value, output, ran = within(main())
    assert (ends, value, ran) == (["waiting"], 1, [("hold", 1)])
    assert output == [{"type": "text", "text": "b"}]


def test_an_exec_that_is_cancelled_as_it_asks_a_person_leaves_no_question_behind(pool, tmp_path):
    spy = Spy()

    async def main() -> Any:
        async with SqliteInterruptStore(tmp_path / "runs.db") as store:
            pay = spy.tool("pay", lambda value, _: value, needs_approval=True)
            pair = create_exec_wait_tools([pay], {"approvals": "park"}, settings=KEYED, pool=pool, store=store)
            left = []
            for how in ("begins", "late"):
                for number in range(1, 8):
                    result = await cancelled_at(run(pair, "return await tools.pay(1)"), number, how)
                    await pair._runner.runs.wait_for_background_work()
                    (waiting, pending) = pair.runs(SCOPE), await store.list(tenant=ALL_TENANTS, state="pending")
                    if result is None:
                        left += [one for one in waiting if one.state == "waiting"] + [*pending.records]
                    await pair.abort(conversation_id=SCOPE)
            await pair.aclose()
            return left, pool.active

    left, active = within(main())
    assert (left, active, spy.ran) == ([], 0, [])


class HeldPlace:
    """A place for values that answers nobody before ``gate`` is set."""

    def __init__(self) -> None:
        self.asked, self.gate, self.values = asyncio.Event(), asyncio.Event(), dict[str, str]()

    async def keys(self) -> list[str]:
        self.asked.set()
        await self.gate.wait()
        return [*self.values]

    async def get(self, key: str) -> str | None:
        return self.values.get(key)

    async def set(self, key: str, value: str) -> None:
        self.values[key] = value

    async def delete(self, key: str) -> None:
        self.values.pop(key, None)


@pytest.mark.parametrize("tool_call_id", [None, "call_2"])
def test_a_wait_that_is_cancelled_while_its_result_is_put_away_leaves_it_to_the_next(make_pool, tool_call_id):
    async def main() -> Any:
        place = HeldPlace()
        settings = {"model_output": {"max_model_characters": 1_000}, "state": place}
        pair = create_exec_wait_tools([], settings=settings, pool=make_pool())
        first = await run(pair, "await yield_control(); return 'A'.repeat(2000)")
        waiting = asyncio.ensure_future(wait(pair, first, tool_call_id=tool_call_id))
        await asyncio.wait_for(place.asked.wait(), 60)
        waiting.cancel()
        place.gate.set()
        await asyncio.wait([waiting], timeout=60)
        last = await wait(pair, first)
        await pair.aclose()
        return waiting.cancelled(), last, [*place.values]

    is_cancelled, last, kept = within(main())
    assert (is_cancelled, last["status"], kept) == (True, "completed", ["result:1"])
    assert "result:1" in last["value"]


def test_a_wait_that_is_cancelled_as_its_run_fails_leaves_word_of_that(make_pool, monkeypatch):
    async def main() -> Any:
        pair = create_exec_wait_tools([], {"maxWarmRuns": 4}, pool=make_pool())
        first = await run(pair, "await yield_control(); return 1")
        begun = asyncio.Event()

        async def breaks(runner: SuspendableRunner) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                runner._end_with_exception(RuntimeError("the host broke"))

        monkeypatch.setattr(SuspendableRunner, "answer_open_yields", breaks)
        waiting = asyncio.ensure_future(wait(pair, first))
        await asyncio.wait_for(begun.wait(), 60)
        waiting.cancel()
        await asyncio.wait([waiting], timeout=60)
        told = [await wait(pair, first) for _ in range(2)]
        await pair.aclose()
        return waiting.cancelled(), told

    is_cancelled, (told, again) = within(main())
    assert (is_cancelled, told["code"], again["code"]) == (True, "internal_error", "invalid_input")
    assert told["error"] == program_runner.RESULT_LOST


def test_a_wait_that_is_cancelled_before_it_has_a_worker_leaves_the_run_waiting_though_one_comes(make_pool):
    pool, begun = make_pool(max_workers=1, on_saturation="wait", wait_timeout_ms=60_000), Spy()

    async def main() -> Any:
        gate = asyncio.Event()

        async def hold(value: Any, _context: Any) -> Any:
            await gate.wait()
            return value

        options = {"maxWarmRuns": 0, "timeoutMs": 60_000, "waitTimeoutMs": 60_000}
        pair = create_exec_wait_tools([begun.tool("hold", hold)], options, pool=pool)
        first = await run(pair, "await yield_control(); while (true);")
        other = asyncio.ensure_future(run(pair, "return await tools.hold(1)"))
        await until(lambda: begun.ran)
        waiting = asyncio.ensure_future(wait(pair, first))
        await until(lambda: sum(map(len, pool._slot_queue._waiting)) == 1)
        waiting.cancel()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        states = {one.run_id: one.state for one in pair.runs(SCOPE)}
        assert (await other)["value"] == 1
        await pair.aclose()
        return states[first["runId"]]

    assert within(main()) == "waiting"
