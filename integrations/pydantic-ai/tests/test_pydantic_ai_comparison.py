"""What docs/comparison.md says of this package is so: each row's script gives the answer that is written there.

The other package's answers are checked by `make comparison` alone, which runs it.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from pydantic_ai_sides import OURS, PATIENCE_SECONDS, Side
from table import committed, load, question, scripts

SCRIPTS = scripts("pydantic-ai")
# These start processes, wait, or keep the processors busy.
FULL = {
    "approval_another_process",
    "cost_cold_start",
    "cost_next_program",
    "killed_in_a_call",
    "safety_cancelled",
    "safety_endless",
    "safety_memory",
    "safety_twenty_programs",
}


def test_the_table_has_a_row_for_each_script():
    assert list(committed("pydantic-ai")) == [one.stem for one in SCRIPTS]
    assert len({question(one) for one in SCRIPTS}) == len(SCRIPTS)
    assert not [one.stem for one in SCRIPTS if not question(one)]


@pytest.mark.parametrize(
    "script",
    [pytest.param(one, marks=pytest.mark.full) if one.stem in FULL else one for one in SCRIPTS],
    ids=lambda one: one.stem,
)
def test_our_side_gives_the_answer_that_is_written(script: Path):
    found = asyncio.run(asyncio.wait_for(load(script).answer(Side(OURS)), 5 * PATIENCE_SECONDS))
    written = committed("pydantic-ai")[script.stem][0]
    if script.stem.startswith("cost"):  # a figure of the machine that ran it
        found, written = (re.sub(r"[\d.,]+", "N", one) for one in (found, written))
    assert found == written
