"""An approval that was given to one call reaches no other one, whatever cuts the run off after it.

The application makes the run again from the state that it has, with the same decision. Each way to approve, with a
journal, with a guard alone and with a key alone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import answered_sdk_runs
import pytest
from answered_sdk_runs import ROWS, Row
from cut_off import cancel_all, check_without_journal
from forked_hosts import ForkedHosts


def check(row: Row, seen: dict[str, Any]) -> None:
    told = f"{row}: {seen}"
    if row[-1] == "refund":
        assert seen["asked"] == ["unknown: refund a"], told
        assert (seen["happened"], seen["done"]) == (["refund a"], ["refund a"]), told
        assert "it was made" in seen["told"], told
        return
    # Nothing says that `look` changes nothing.
    assert seen["asked"] == ["unknown: look", "refund b"], told
    assert seen["happened"] == ["refund a", "look"], told
    assert seen["done"] == ["refund a", "look", "look", "refund b"], told
    assert seen["told"] == '["refunded a", "seen", "refunded b"]', told


def test_cancelled_after_an_answer(tmp_path: Path) -> None:
    for row, seen in zip(ROWS, asyncio.run(cancel_all(answered_sdk_runs.runs(tmp_path, 0))), strict=True):
        check(row, seen)


@pytest.mark.full
def test_killed_after_an_answer(tmp_path: Path) -> None:
    with ForkedHosts("answered_sdk_runs", Path(__file__).parent) as hosts:
        assert hosts.run({"folder": str(tmp_path), "number": 0}).is_killed
        ended = hosts.run({"folder": str(tmp_path), "number": 1})
    for row, seen in zip(ROWS, ended.value, strict=True):
        (check if "journal" in row else check_without_journal)(row, seen)
