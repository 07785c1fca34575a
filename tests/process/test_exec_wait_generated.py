"""A program of exec that loses its worker or its process at rests equals one that does not.

Generated programs with races, parallel branches, timers, the clock and random numbers, yields, slow calls, and calls
that nobody awaits: value, output, order, and each call made once.
"""

from __future__ import annotations

import asyncio
import dataclasses
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from exec_wait_world import KEYED, SCOPE
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from programs import Node, program_of
from resting_world import Play, World
from suite import rounds
from test_resting_generated import with_yields
from waiting import until, within

from codemode import CallContext, WorkerPool
from codemode.execution import runner
from codemode.execution.suspendable_execution import SuspendableExecution
from codemode.stores import MemoryInterruptStore
from codemode.surfaces.exec_wait.catalog import ExecWaitContext
from codemode.surfaces.exec_wait.exec_wait_tools import create_exec_wait_tools

_SOME = settings(
    max_examples=rounds(10, 25),
    phases=[Phase.generate],  # shrinking a run that hangs would take minutes
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


class PairPlay(Play):
    """One program of a pair over a store, of which other pairs may take it over. Its outcomes are what models read."""

    def __init__(self, world: World, pool: Any, js: str, max_warm_runs: int = 4) -> None:
        super().__init__(world, pool, js)
        self._pool = pool
        self._store = MemoryInterruptStore()
        self._options = {"waitTimeoutMs": 60_000, "maxWarmRuns": max_warm_runs}
        self._pair = self._new_pair()
        self._run_id = ""
        self._surface: Any = SimpleNamespace(run=self._begins)

    def _new_pair(self) -> Any:
        more = {"settings": KEYED, "pool": self._pool, "store": self._store}
        return create_exec_wait_tools(self.world.tools(), self._options, **more)

    async def _begins(self, **_: Any) -> Any:
        return SimpleNamespace(start=self._start)

    async def _start(self, js: str) -> Any:
        return self._told(
            await self._pair.exec.execute({"code": js}, call=CallContext(conversation_id=SCOPE, tool_call_id="o"))
        )

    async def _wait(self) -> Any:
        return self._told(
            await self._pair.wait.execute({"runId": self._run_id}, call=CallContext(conversation_id=SCOPE))
        )

    def _told(self, result: Any) -> Any:
        self._run_id = result.get("runId", self._run_id)
        output = [
            SimpleNamespace(kind=one["type"], value=one.get("text", one.get("value")))
            for one in result.get("output", ())
        ]
        status = "resting" if result["status"] == "waiting" else result["status"]
        return SimpleNamespace(status=status, output=output, result=result)

    async def _goes_on(self, disturbances: Random, drops: float) -> asyncio.Future[Any]:
        if self.run.pending_calls or self.run.is_warm or disturbances.random() >= drops / 2:
            return asyncio.ensure_future(self._wait())
        before = self.run
        await self._pair.aclose()
        self._pair = self._new_pair()
        self.moved += 1
        going = asyncio.ensure_future(self._wait())
        await until(lambda: self.run is not before or going.done())
        return going

    async def close(self) -> None:
        await self._pair.aclose()
        await self._store.aclose()


@pytest.fixture
def pool():
    made = WorkerPool({"max_workers": 2, "spare_workers": 1})
    yield made
    made.close()


@pytest.fixture
def in_world(monkeypatch):
    """Return a function that gives the runs from here on what a world has in place of time."""
    begin, outer = SuspendableExecution._start_on_worker_and_wait, ExecWaitContext.create_outer_call_and_bind_state

    def under(world: World) -> World:
        async def noted(run: Any, source: str) -> Any:
            world.runs.append(run)
            return await begin(run, source)

        def timed(*given: Any, **named: Any) -> Any:
            more: dict[str, Any] = {"clock_ms": world.now_ms, "started_at_ms": world.start_ms - 5000}
            made = outer(*given, **named)
            return dataclasses.replace(made, call=dataclasses.replace(made.call, **more))

        monkeypatch.setattr(SuspendableExecution, "_start_on_worker_and_wait", noted)
        monkeypatch.setattr(runner, "TimerQueue", world.timers)
        monkeypatch.setattr(ExecWaitContext, "create_outer_call_and_bind_state", timed)
        return world

    return under


def told(outcome: Any) -> tuple[Any, ...]:
    result = outcome.result
    return result["status"], result.get("value"), result.get("code"), result.get("error")


def disturbing_changes_nothing(in_world: Any, pool: Any, node: Node, seed: int, max_warm_runs: int) -> PairPlay:
    js = program_of(node)

    async def both() -> PairPlay:
        plain = PairPlay(in_world(World()), pool, js)
        first = await plain.freely(Random(seed))
        await plain.close()
        world = World()
        world.start_ms = plain.world.start_ms
        disturbed = PairPlay(in_world(world), pool, js, max_warm_runs)
        second = await disturbed.following(plain.actions, Random(seed + 1), early=False)
        await disturbed.close()
        assert told(second) == told(first)
        assert disturbed.output == plain.output
        assert world.ended == plain.world.ended
        assert sorted(world.began) == sorted(plain.world.began)
        assert len(set(world.began)) == len(world.began)
        return disturbed

    return within(both())


@_SOME
@given(node=with_yields, seed=st.integers(0, 1 << 30), max_warm_runs=st.sampled_from([0, 4]))
def test_a_program_whose_worker_or_process_is_given_up_comes_to_the_same(in_world, pool, node, seed, max_warm_runs):
    disturbing_changes_nothing(in_world, pool, node, seed, max_warm_runs)


@pytest.mark.full
@pytest.mark.parametrize("max_warm_runs", [4, 0])
def test_the_plays_are_as_hard_as_they_should_be(in_world, pool, max_warm_runs):
    """Workers are given up, and other pairs take programs over."""
    branch = Node(
        "sequence", (Node("call", (), "free"), Node("yield"), Node("sleep"), Node("call", (), "ask", fails=True))
    )
    node = Node("sequence", (Node("all", (branch, Node("left", (branch,)))), Node("race", (branch, branch))))
    plays = [disturbing_changes_nothing(in_world, pool, node, seed, max_warm_runs) for seed in range(5)]
    assert all(play.rests >= 3 for play in plays)
    assert sum(play.moved for play in plays) >= 1
