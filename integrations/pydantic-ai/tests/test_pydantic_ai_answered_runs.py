"""An approval that was given to one call reaches no other one, whatever cuts the run off after it.

The application makes the run again with the answer that it has. Each form of an answer, with a journal, with a guard
alone and with a key alone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import answered_pydantic_runs
import pytest
from answered_pydantic_runs import ROWS, Row
from cut_off import cancel_all, check_without_journal
from forked_hosts import ForkedHosts


def check(row: Row, seen: dict[str, Any]) -> None:
    told, cut = f"{row}: {seen}", row[-1]
    happened = ["refund a"] if cut == "refund" else ["refund a", "look", "look"]
    assert seen["asked"] == (["unknown: refund a", "refund b"] if cut == "refund" else ["refund b"]), told
    assert seen["happened"] == happened, told
    assert seen["done"] == [*happened, *(["look"] if cut == "refund" else []), "refund b"], told
    assert seen["told"] == "['refunded a', 'seen', 'refunded b']", told


def test_cancelled_after_an_answer(tmp_path: Path) -> None:
    for row, seen in zip(ROWS, asyncio.run(cancel_all(answered_pydantic_runs.runs(tmp_path, 0))), strict=True):
        check(row, seen)


@pytest.mark.full
def test_killed_after_an_answer(tmp_path: Path) -> None:
    with ForkedHosts("answered_pydantic_runs", Path(__file__).parent) as hosts:
        assert hosts.run({"folder": str(tmp_path), "number": 0}).is_killed
        ended = hosts.run({"folder": str(tmp_path), "number": 1})
    for row, seen in zip(ROWS, ended.value, strict=True):
        (check if "journal" in row else check_without_journal)(row, seen)
