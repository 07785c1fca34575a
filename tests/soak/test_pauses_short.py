"""Chaos over kept pauses, short. `make soak` runs it long."""

from __future__ import annotations

import sys

import pytest
from postgres_cluster import binaries
from tests.soak.pauses import run_chaos

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@pytest.mark.parametrize(("kind", "records"), [("sqlite", 15), ("postgres", 12)])
def test_whoever_is_killed_each_call_happens_once_and_each_decision_is_taken_once(kind: str, records: int) -> None:
    if kind == "postgres":
        binaries()
    done = run_chaos(records, seed=5, kind=kind)
    # Without both the test would prove nothing.
    assert done.chaos.sent.total() >= records // 3
    assert done.found["refused"] >= 2 * records


def test_without_the_guard_calls_happen_twice() -> None:
    with pytest.raises(AssertionError, match="happened more than once"):
        run_chaos(9, has_guard=False)
