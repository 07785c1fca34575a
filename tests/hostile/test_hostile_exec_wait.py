"""Hostile programs as those of exec, many of them after a rest: each ends as its file says, and harms nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from codemode import PoolOptions, WorkerPool

from .exec_wait_run import Way, run_programs
from .exec_wait_world import make_world
from .hostile_program import EXEC_FOLDER, groups, load_group, sample
from .hostile_run import AT_ONCE

# About the engine alone, which is the same on every face.
OF_THE_ENGINE = frozenset(("engine", "iterators", "memory", "natives", "parser", "recursion", "regex"))
WAYS: tuple[Way, ...] = ("plain", "warm", "cold")


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    """One for all groups: starting one takes as long as many programs."""
    with WorkerPool(PoolOptions(max_workers=AT_ONCE, on_saturation="wait")) as pool:
        yield pool


@pytest.mark.parametrize("group", groups())
def test_group(group: str, pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    def way(number: int) -> Way:
        # What takes long to compute would compute it again in a replay.
        return "plain" if group in OF_THE_ENGINE or group == "floods" else WAYS[number % len(WAYS)]

    outcomes = asyncio.run(run_programs(sample(group, "exec"), pool, way))
    assert [f"{group}/{one.program.id}: {problem}" for one in outcomes for problem in one.problems()] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("group", groups(EXEC_FOLDER))
@pytest.mark.parametrize("way", ["warm", "cold"])
def test_programs_against_what_is_of_exec_alone(group: str, way: Way, pool: WorkerPool) -> None:
    programs = load_group(group, "exec", EXEC_FOLDER)
    outcomes = asyncio.run(run_programs(programs, pool, lambda _: way, make=make_world))
    assert [f"{group}/{one.program.id}: {problem}" for one in outcomes for problem in one.problems()] == []
