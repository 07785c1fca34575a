"""A run whose workers are given up at its rests equals the run that keeps its worker: value, output, order, executions.

The programs have races, parallel branches, timers, the clock and random numbers, yields, slow calls, and calls that
nobody awaits.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from programs import TOOLS, Node, program_of
from resting_world import Play, World
from suite import rounds
from waiting import within

from codemode import WorkerPool
from codemode.execution import runner
from codemode.execution.suspendable_execution import SuspendableExecution

_SOME = settings(
    max_examples=rounds(15, 40),
    phases=[Phase.generate],  # shrinking a run that hangs would take minutes
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
_CALLS = st.builds(Node, st.just("call"), st.just(()), st.sampled_from(TOOLS), st.booleans())
_SLEEPS, _YIELDS = st.just(Node("sleep")), st.just(Node("yield"))


def _programs(leaves: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def combined(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        several = st.lists(children, min_size=2, max_size=4).map(tuple)
        return st.one_of(
            st.builds(Node, st.sampled_from(["sequence", "all", "race", "any", "settled"]), several),
            st.builds(Node, st.sampled_from(["loop", "retry", "left"]), st.tuples(children)),
            st.builds(Node, st.just("branch"), st.tuples(children, children, children)),
        )

    return combined(st.recursive(leaves, combined, max_leaves=10))


with_yields = _programs(st.one_of(_CALLS, _CALLS, _SLEEPS, _YIELDS))
without_yields = _programs(st.one_of(_CALLS, _CALLS, _SLEEPS))


@pytest.fixture(scope="module")
def pool():
    made = WorkerPool({"max_workers": 2, "spare_workers": 1})
    yield made
    made.close()


@pytest.fixture
def in_world(monkeypatch):
    """Return a function that gives the runs from here on what a world has in place of time."""
    begin = SuspendableExecution._start_on_worker_and_wait

    def under(world: World) -> World:
        async def noted(run: Any, source: str) -> Any:
            world.runs.append(run)
            return await begin(run, source)

        monkeypatch.setattr(SuspendableExecution, "_start_on_worker_and_wait", noted)
        monkeypatch.setattr(runner, "TimerQueue", world.timers)
        return world

    return under


def told(outcome: Any) -> tuple[Any, ...]:
    """What a program came to, without what tells times and runs apart."""
    error = None if outcome.error is None else (type(outcome.error), outcome.error.message)
    return outcome.status, outcome.value, error, outcome.abandoned


def rows(outcome: Any) -> list[Any]:
    return [
        (row.bridge_index, row.tool_name, row.tool_call_id, row.input, row.status, row.output)
        for row in outcome.trace.bridge_requests
    ]


def giving_up_workers_changes_nothing(in_world: Any, pool: Any, node: Node, seed: int, *, early: bool) -> Play:
    js = program_of(node)

    async def both() -> Play:
        plain = Play(in_world(World()), pool, js)
        first = await plain.freely(Random(seed))
        world = World()
        world.start_ms = plain.world.start_ms
        disturbed = Play(in_world(world), pool, js)
        second = await disturbed.following(plain.actions, Random(seed + 1), early=early)
        assert told(second) == told(first)
        assert disturbed.output == plain.output
        assert world.ended == plain.world.ended
        assert sorted(world.began) == sorted(plain.world.began)
        assert len(set(world.began)) == len(world.began)
        assert not plain.dropped
        if not disturbed.moved:
            assert rows(second) == rows(first)
        return disturbed

    return within(both())


@_SOME
@given(node=with_yields, seed=st.integers(0, 1 << 30))
def test_a_run_without_its_workers_equals_the_run_that_kept_them(in_world, pool, node, seed):
    giving_up_workers_changes_nothing(in_world, pool, node, seed, early=False)


@pytest.mark.full
@_SOME
@given(node=without_yields, seed=st.integers(0, 1 << 30))
def test_calls_that_end_while_their_program_is_replayed_make_no_difference(in_world, pool, node, seed):
    giving_up_workers_changes_nothing(in_world, pool, node, seed, early=True)


@pytest.mark.full
def test_the_worlds_are_as_hard_as_they_should_be(in_world, pool):
    """Workers are given up, more than once in a run, and what was kept goes on elsewhere."""
    branch = Node(
        "sequence", (Node("call", (), "free"), Node("yield"), Node("sleep"), Node("call", (), "ask", fails=True))
    )
    node = Node("sequence", (Node("all", (branch, Node("left", (branch,)))), Node("race", (branch, branch))))
    plays = [giving_up_workers_changes_nothing(in_world, pool, node, seed, early=False) for seed in range(6)]
    assert all(play.rests >= 3 for play in plays)
    assert sum(play.dropped for play in plays) >= 12
    assert sum(play.moved for play in plays) >= 1
