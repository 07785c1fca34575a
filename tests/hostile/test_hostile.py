"""Every hostile program ends as its file says, in bounded time, and harms neither the next invocation nor the host."""

from __future__ import annotations

import asyncio

import pytest

from codemode import WorkerPool

from .hostile_program import groups, load_group, usual
from .hostile_run import run_programs


@pytest.mark.parametrize("group", groups())
def test_group(group: str, pool: WorkerPool, capfd: pytest.CaptureFixture[str]) -> None:
    outcomes = asyncio.run(run_programs(usual(group), pool))
    failures = [f"{group}/{outcome.program.id}: {problem}" for outcome in outcomes for problem in outcome.problems()]
    assert failures == []
    assert capfd.readouterr() == ("", "")


def test_suite_is_large_and_ids_are_unique() -> None:
    ids = [program.id for group in groups() for program in load_group(group)]
    assert len(ids) >= 300
    assert len(ids) == len(set(ids))
