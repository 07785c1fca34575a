"""Hostile programs one after the other on one worker that is kept, each followed by an innocent one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from tests.support.suite import rounds

from codemode import WorkerPool

from .hostile_program import HostileProgram, groups, load_group
from .hostile_run import Outcome, run_program

USUAL, MOST = 40, 12
# What takes seconds by itself is tried in workers of its own.
SLOW = ("memory", "loops", "floods", "regex", "parser", "recursion")


def some_of_each() -> list[HostileProgram]:
    """Return programs of all quick groups, as many as a test may take, evenly from each."""
    found = [program for group in groups() if group not in SLOW for program in load_group(group)]
    quick = [program for program in found if "returns" in program.expect.ends]
    return quick[:: max(1, len(quick) // rounds(USUAL, len(quick)))]


async def run_in_turn(programs: Iterable[HostileProgram]) -> tuple[list[Outcome], int]:
    """Run them on a pool of one worker; what came of them, and how often a worker had a further program."""
    kept = 0
    async with WorkerPool({"max_workers": 1, "spare_workers": 0, "programs_per_worker": MOST}) as pool:
        outcomes: list[Outcome] = []
        for program in programs:
            outcomes.append(await run_program(program, pool))
            kept += len(pool.supply.inventory.idle)
    return outcomes, kept


@pytest.mark.full
def test_a_hostile_program_harms_no_other_on_its_worker() -> None:
    programs = some_of_each()
    outcomes, kept = asyncio.run(run_in_turn(programs))
    assert [f"{one.program.id}: {problem}" for one in outcomes for problem in one.problems()] == []
    assert len(programs) >= USUAL
    assert kept > USUAL // 2
