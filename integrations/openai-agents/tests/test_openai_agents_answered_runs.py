"""An approval that was given to one call reaches no other one, whatever cuts the run off after it.

The application makes the run again from the state that it has, with the same decision. Each way to approve, with a
journal, with a guard alone and with a key alone.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import answered_sdk_runs
from answered_sdk_runs import ROWS, Row
from cut_off import cancel_all
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


def test_killed_after_an_answer(tmp_path: Path) -> None:
    with ForkedHosts("answered_sdk_runs", Path(__file__).parent) as hosts:
        assert hosts.run({"folder": str(tmp_path), "number": 0}).is_killed
        ended = hosts.run({"folder": str(tmp_path), "number": 1})
    for row, seen in zip(ROWS, ended.value, strict=True):
        told, (_, kept, cut) = f"{row}: {seen}", row
        if kept == "journal":
            check(row, seen)
        elif kept == "guard":  # it knows that somebody has begun, and not how far that one came
            assert (seen["asked"], seen["happened"]) == ([], ["refund a", "look"][: 1 + (cut == "look")]), told
            assert "its outcome is unknown" in seen["told"], told
        else:  # nothing tells of the process that has ended, and the decision is repeated to another one
            assert (seen["asked"], seen["done"].count("refund b")) == (["refund b"], 1), told
