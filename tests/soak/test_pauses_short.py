"""Chaos over kept pauses, short. `make soak` runs it long."""

from __future__ import annotations

import sys

import pytest
from postgres_cluster import binaries
from suite import full_only, rounds
from tests.soak.pauses import run_chaos

RECORDS = rounds(6, 9)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("sqlite", "journal"),
        *full_only(("sqlite", "guard"), ("postgres", "journal")),
    ],
)
def test_whoever_is_killed_each_call_happens_once_and_each_decision_is_taken_once(kind: str, mode: str) -> None:
    if kind == "postgres":
        binaries()
    done = run_chaos(RECORDS, seed=5, kind=kind, mode=mode)
    # Without both the test would prove nothing.
    assert done.chaos.sent.total() >= RECORDS // 3
    assert done.found["refused"] >= 2 * RECORDS


@pytest.mark.full
def test_without_the_guard_calls_happen_twice() -> None:
    with pytest.raises(AssertionError, match="happened more than once"):
        run_chaos(RECORDS, mode="unguarded")
