"""An approval that was given to one call reaches no other one, whatever cuts the thread off after it.

Each form of an answer, with a journal, with a guard alone and with a key alone. A person is asked about a call whose
outcome nobody knows, and about every later one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import answered_threads
import pytest
from answered_threads import Row
from cut_off import cancel_all
from forked_hosts import ForkedHosts
from suite import full_only

ALL = ["refunded a", "seen", "refunded b"]


@pytest.fixture(scope="module")
def hosts() -> Iterator[ForkedHosts]:
    with ForkedHosts("answered_threads", Path(__file__).parent) as forked:
        yield forked


def check(row: Row, seen: dict[str, Any], *, is_precise: bool) -> None:
    """``is_precise``: it is known which calls had begun, else the program as a whole is asked about."""
    told, cut = f"{row}: {seen}", row[-1]
    before = ["refund a"] if cut == "refund" else ["refund a", "look"]
    if not is_precise and "batched" in row:
        assert seen["asked"] == ["unknown: program", "refund b"], told
        assert (seen["happened"], seen["done"]) == (before, [*before, "refund a", "look", "refund b"]), told
        assert seen["told"] in (ALL, json.dumps(ALL)), told
        return
    if not is_precise:
        assert seen["asked"] == ["unknown: program"], told
        assert (seen["happened"], seen["done"], seen["is_well"]) == (before, before, False), told
        return
    # What only reads is called again by itself.
    happened = before if cut == "refund" else [*before, "look"]
    assert seen["asked"] == (["unknown: refund a", "refund b"] if cut == "refund" else ["refund b"]), told
    assert seen["happened"] == happened, told
    assert seen["done"] == [*happened, *(["look"] if cut == "refund" else []), "refund b"], told
    assert seen["told"] in (ALL, json.dumps(ALL)), told


@pytest.mark.full
@pytest.mark.parametrize("kind", ["toolkit", *full_only("agent", "code call")])
def test_cancelled_after_an_answer(tmp_path: Path, kind: str) -> None:
    given = asyncio.run(cancel_all(answered_threads.cases(tmp_path, kind, 0)))
    for row, seen in zip(answered_threads.rows(kind), given, strict=True):
        check(row, seen, is_precise=True)


@pytest.mark.parametrize("kind", ["agent", *full_only("toolkit", "code call")])
def test_killed_after_an_answer(hosts: ForkedHosts, tmp_path: Path, kind: str) -> None:
    given = {"folder": str(tmp_path), "kind": kind}
    assert hosts.run({**given, "number": 0}).is_killed
    ended = hosts.run({**given, "number": 1})
    for row, seen in zip(answered_threads.rows(kind), ended.value, strict=True):
        check(row, seen, is_precise="journal" in row)
