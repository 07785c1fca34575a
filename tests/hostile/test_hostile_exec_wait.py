"""Run hostile programs through exec, many after a suspension: each ends as its file says and affects no other run."""

from __future__ import annotations

import asyncio

import pytest
from suite import each_row, full_only

from codemode import WorkerPool

from .exec_wait_run import Way, run_programs
from .exec_wait_world import make_world
from .hostile_program import EXEC_FOLDER, groups, groups_of_other_surfaces, load_group, sample

# About the engine alone, which is the same on every face.
OF_THE_ENGINE = frozenset(("engine", "iterators", "memory", "natives", "parser", "recursion", "regex"))
WAYS: tuple[Way, ...] = ("plain", "warm", "cold")


@pytest.mark.parametrize("group", groups_of_other_surfaces())
def test_group(group: str, pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    def way(number: int) -> Way:
        # What takes long to compute would compute it again in a replay.
        return "plain" if group in OF_THE_ENGINE or group == "floods" else WAYS[number % len(WAYS)]

    outcomes = asyncio.run(run_programs(sample(group, "exec"), pool, way))
    assert [f"{group}/{one.program.id}: {problem}" for one in outcomes for problem in one.problems()] == []
    assert capfd.readouterr() == ("", "")


@each_row("group", groups(EXEC_FOLDER))
@each_row("way", ["warm", *full_only("cold")])
def test_hostile_programs_for_exec_only(group: str, way: Way, pool: WorkerPool) -> None:
    programs = load_group(group, "exec", EXEC_FOLDER)
    outcomes = asyncio.run(run_programs(programs, pool, lambda _: way, make=make_world))
    assert [f"{group}/{one.program.id}: {problem}" for one in outcomes for problem in one.problems()] == []
