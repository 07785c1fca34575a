"""The same call of a model, repeated: in a scope it gets the result that was recorded, else it is another call."""

from __future__ import annotations

import asyncio
import copy
import threading
from typing import Any

import pytest
from suite import each_row

from codemode import CallContext
from codemode.surfaces.exec_wait import results as recorded_calls
from codemode.surfaces.exec_wait.results import MAX_RECORDED_RESULTS, RecordedResults

CALL = CallContext(conversation_id="s", tool_call_id="c")
GIVEN = {"code": "return 1"}


class Work:
    def __init__(self, *results: Any) -> None:
        self.done = 0
        self._results = results

    async def __call__(self) -> Any:
        self.done += 1
        return self._results[min(self.done, len(self._results)) - 1]


def once(
    recorded: RecordedResults, work: Any, scope: str = "s", call: str | None = "call_1", given: Any = GIVEN
) -> Any:
    return asyncio.run(
        recorded.run_once("exec", CallContext(conversation_id=scope or None, tool_call_id=call), given, work)
    )


def test_the_same_call_gets_what_was_recorded_as_a_value_of_its_own():
    recorded, work = RecordedResults(900), Work({"value": [1]}, {"value": [2]})
    first = once(recorded, work)
    first["value"].append("changed")
    assert once(recorded, work) == {"value": [1]}
    assert work.done == 1


@each_row("other", [{"scope": ""}, {"scope": "t"}, {"call": None}, {"call": "call_2"}, {"given": {"code": "return 2"}}])
def test_anything_else_is_another_call(other: dict[str, Any]):
    recorded, work = RecordedResults(900), Work({"value": 1}, {"value": 2})
    once(recorded, work)
    assert once(recorded, work, **other) == {"value": 2}


@pytest.mark.parametrize("left_out", [{"scope": ""}, {"call": None}, {"given": object()}])
def test_what_is_not_one_call_alone_is_never_recorded(left_out: dict[str, Any]):
    recorded, work = RecordedResults(900), Work({"value": 1}, {"value": 2})
    once(recorded, work, **left_out)
    assert once(recorded, work, **left_out) == {"value": 2}


def test_a_result_that_says_that_nothing_ran_is_not_recorded():
    recorded, work = RecordedResults(900), Work({"code": "runtime_unavailable"}, {"value": 2})
    once(recorded, work)
    assert once(recorded, work) == {"value": 2}


def test_who_comes_while_it_runs_waits_for_it_and_goes_on_where_it_is_cancelled():
    async def main():
        recorded, begun = RecordedResults(900), asyncio.Event()
        results: list[Any] = []

        async def never() -> Any:
            begun.set()
            await asyncio.Event().wait()

        async def given() -> Any:
            results.append(1)
            return {"value": len(results)}

        first = asyncio.ensure_future(recorded.run_once("exec", CALL, GIVEN, never))
        await begun.wait()
        others = [asyncio.ensure_future(recorded.run_once("exec", CALL, GIVEN, given)) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        return await asyncio.gather(*others), first.cancelled()

    assert asyncio.run(main()) == ([{"value": 1}] * 3, True)


def test_so_many_are_kept_and_no_more():
    recorded, work = RecordedResults(900), Work(1)
    for at in range(MAX_RECORDED_RESULTS + 50):
        once(recorded, work, call=f"call_{at}")
    assert len(vars(recorded)["_calls"]) <= MAX_RECORDED_RESULTS  # there is no other way to see that they are let go
    once(recorded, work, call=f"call_{MAX_RECORDED_RESULTS + 49}")
    assert work.done == MAX_RECORDED_RESULTS + 50


@pytest.mark.parametrize(("size", "is_on_the_loop"), [(10, True), (50_000, False)])
def test_a_long_result_is_copied_beside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, size: int, is_on_the_loop: bool
):
    threads: list[int] = []

    def copied(value: Any) -> Any:
        threads.append(threading.get_ident())
        return copy.copy(value)

    monkeypatch.setattr(recorded_calls.copy, "deepcopy", copied)
    recorded, work = RecordedResults(900), Work({"value": [*range(size)]})
    assert once(recorded, work) == once(recorded, work)
    assert (work.done, len(threads)) == (1, 2)
    assert all((one == threading.get_ident()) is is_on_the_loop for one in threads)


def test_what_was_done_is_kept_though_its_caller_was_cancelled_while_it_was_copied(monkeypatch: pytest.MonkeyPatch):
    recorded, work = RecordedResults(900), Work({"value": 1}, {"value": 2})

    async def cancelled(_result: Any) -> Any:
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(recorded_calls, "_copy_result", cancelled)
        with pytest.raises(asyncio.CancelledError):
            once(recorded, work)
    assert once(recorded, work) == {"value": 1}


def test_of_a_large_input_a_digest_is_kept():
    recorded: Any = RecordedResults(900)
    for number in range(3):
        once(recorded, Work(number), call=f"call_{number}", given={"code": f"\ud800{number}" + "x" * 100_000})
    assert len(recorded._calls) == 3
    assert all(len(digest) == 64 for digest, _, _ in recorded._calls.values())
