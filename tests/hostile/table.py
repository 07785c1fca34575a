"""Prints what came of every hostile program: ``python -m tests.hostile.table [--exec] [group ...]``."""

from __future__ import annotations

import asyncio
import sys

from . import exec_wait_run
from .hostile_program import groups, load_group
from .hostile_run import Outcome, make_pool, run_programs


def row(outcome: Outcome) -> str:
    """One line of the table."""
    program = outcome.program
    expected = "|".join(program.expect.ends)
    mark = "  FAILED" if outcome.problems() else ""
    return f"{program.id:34} {program.group:14} {expected:28} {outcome.end:14} {outcome.elapsed_ms:7.0f}{mark}"


def outcomes_of(group: str, is_exec: bool) -> list[Outcome]:
    """Run one group."""
    with make_pool() as pool:
        if not is_exec:
            return asyncio.run(run_programs(load_group(group), pool))
        return asyncio.run(exec_wait_run.run_programs(load_group(group, "exec"), pool, lambda _: "plain"))


def main() -> int:
    """Run the named groups, or all, and print the table. The exit status is 1 when one program failed.

    ``--exec``: as programs of exec.
    """
    is_exec = "--exec" in sys.argv
    names = [name for name in sys.argv[1:] if name != "--exec"]
    print(f"{'id':34} {'group':14} {'expected':28} {'end':14} {'ms':>7}")
    total, failures = 0, []
    for group in names or groups():
        for outcome in outcomes_of(group, is_exec):
            print(row(outcome))
            total += 1
            failures += [f"{group}/{outcome.program.id}: {problem}" for problem in outcome.problems()]
    print(f"\n{total} programs, {len(failures)} problems", *failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
