"""The wall clock may jump while a pair waits, or remembers: neither takes longer for it, nor is cut short."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from stored_pauses import paused
from waiting import until, within

from codemode import CallContext
from codemode.host import clock
from codemode.stores import MemoryInterruptStore
from codemode.stores.records import Lease, Record
from codemode.surfaces.exec_wait import program_run, results, run_registry, stored_runs
from codemode.surfaces.exec_wait.options import PROFILE_NAME, ExecWaitOptions
from codemode.surfaces.exec_wait.program_run import UsageCounts
from codemode.surfaces.exec_wait.results import RecordedResults
from codemode.surfaces.exec_wait.run_registry import RunRegistry
from codemode.surfaces.exec_wait.stored_runs import StoredRuns, to_run_id

HOUR_MS = 3_600_000
EVER_MS = 1 << 60


class Clocks:
    """A wall clock that jumps by so much whenever it is looked at, and time that passes by so many seconds."""

    def __init__(self, jumps_ms: int, passes: float = 0.0) -> None:
        self._wall_ms, self._jumps_ms = clock.now_ms(), jumps_ms
        self._passed, self._passes = 0.0, passes

    def now_ms(self) -> int:
        self._wall_ms += self._jumps_ms
        return self._wall_ms

    def monotonic_seconds(self) -> float:
        self._passed += self._passes
        return self._passed

    def run_in(self, patch: pytest.MonkeyPatch, *modules: Any) -> Clocks:
        for module in modules:
            for name in {"now_ms", "monotonic_seconds"} & vars(module).keys():
                patch.setattr(module, name, getattr(self, name))
        return self


async def held_run(store: MemoryInterruptStore) -> tuple[StoredRuns, Lease]:
    """A run that another process holds."""
    payload = {"surface": PROFILE_NAME, "scope": "s", "expiresAtMs": EVER_MS}
    lease = await store.put_suspended(paused(), owner="another", payload=payload)
    assert lease is not None
    tool: Any = SimpleNamespace(settings=SimpleNamespace(continuation=SimpleNamespace(seal=False)))
    return StoredRuns(store, "", "", 900, tool), lease


def test_a_wait_for_another_process_goes_on_though_the_clock_is_put_forward(monkeypatch):
    async def scenario() -> Any:
        store = MemoryInterruptStore()
        mine, lease = await held_run(store)
        Clocks(HOUR_MS).run_in(monkeypatch, stored_runs)
        waits = asyncio.ensure_future(mine.wait_to_claim_run_or_get_result(to_run_id(lease.record.id), "s", 60_000))
        await until(lambda: store._database._notifier._watches or waits.done())
        await store.release(lease)
        return await waits

    assert isinstance(within(scenario()), Lease)


def test_a_wait_for_another_process_ends_though_the_clock_is_put_back(monkeypatch):
    async def scenario() -> Any:
        mine, lease = await held_run(MemoryInterruptStore())
        Clocks(-HOUR_MS, passes=1.0).run_in(monkeypatch, stored_runs)
        return await mine.wait_to_claim_run_or_get_result(to_run_id(lease.record.id), "s", 2_000)

    assert isinstance(within(scenario(), 20), Record)


@pytest.mark.parametrize(("jumps_ms", "passes", "made"), [(HOUR_MS, 0.0, 1), (-HOUR_MS, 500.0, 2)])
def test_what_a_call_has_come_to_is_kept_by_the_time_that_has_passed(monkeypatch, jumps_ms, passes, made):
    Clocks(jumps_ms, passes).run_in(monkeypatch, results)
    kept, done = RecordedResults(900), []

    async def work() -> Any:
        done.append(1)
        return {"value": 1}

    for _ in range(3):
        within(kept.run_once("exec", CallContext(conversation_id="s", tool_call_id="call_1"), {}, work))
    assert len(done) == made


@pytest.mark.parametrize(("jumps_ms", "passes", "known"), [(HOUR_MS, 0.0, 3), (-HOUR_MS, 200.0, 2)])
def test_what_has_ended_is_told_apart_by_the_time_that_has_passed(monkeypatch, jumps_ms, passes, known):
    async def scenario() -> int:
        Clocks(jumps_ms, passes).run_in(monkeypatch, run_registry)
        all_runs = RunRegistry(ExecWaitOptions(), UsageCounts(), nobody)
        for number in range(3):
            one = all_runs.reserve_run_or_raise("s", f"return {number}")
            one.suspension_count = 1  # somebody was told its id
            all_runs.end(one, program_run.COMPLETED)
        return len(all_runs.list_runs_in_scope("s"))

    assert within(scenario()) == known


async def nobody(one: Any, run: Any) -> None:
    """Stand in for whoever hears of what expires."""
