"""Check our answers of the comparison page (integrations/comparison/README.md) without a framework.

The other packages' answers are checked by `make comparison` alone, which runs them.
"""

from __future__ import annotations

import asyncio

import pytest
from core_sides import OURS, PATIENCE_SECONDS, Side
from table import SIDES, committed, load, question, scripts

SCRIPTS = scripts("core")


def test_the_table_has_a_row_for_each_script():
    assert list(committed("core")) == [one.stem for one in SCRIPTS]
    assert len({question(one) for one in SCRIPTS}) == len(SCRIPTS)
    assert all(len(cells) == len(SIDES["core"]) for cells in committed("core").values())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_our_side_gives_the_answers_that_are_written():
    for script in SCRIPTS:
        found = asyncio.run(asyncio.wait_for(load(script).answer(Side(OURS)), 5 * PATIENCE_SECONDS))
        assert found == committed("core")[script.stem][0], script.stem
