"""Check our answers of the comparison page (integrations/comparison/README.md).

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
# One of each part of the table: other tests keep the same promises.
BY_DEFAULT = {"approval_edit", "content_to_the_model", "error_for_the_model", "program_state", "watch_live"}


def test_the_table_has_a_row_for_each_script():
    assert list(committed("pydantic-ai")) == [one.stem for one in SCRIPTS]
    assert len({question(one) for one in SCRIPTS}) == len(SCRIPTS)
    assert not [one.stem for one in SCRIPTS if not question(one)]


@pytest.mark.parametrize(
    "script",
    [one if one.stem in BY_DEFAULT else pytest.param(one, marks=pytest.mark.full) for one in SCRIPTS],
    ids=lambda one: one.stem,
)
def test_our_side_gives_the_answer_that_is_written(script: Path):
    found = asyncio.run(asyncio.wait_for(load(script).answer(Side(OURS)), 5 * PATIENCE_SECONDS))
    written = committed("pydantic-ai")[script.stem][0]
    if script.stem.startswith("cost"):  # a figure of the machine that ran it
        found, written = (re.sub(r"[\d.,]+", "N", one) for one in (found, written))
    assert found == written
