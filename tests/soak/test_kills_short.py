"""Hosts that die at every point of what they do, one of each. `make soak` runs them in all ways."""

from __future__ import annotations

import sys

import pytest
from postgres_cluster import binaries
from suite import full_only
from tests.soak.kills import run_kills

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "has_journal", "only", "fewest"),
    [
        ("sqlite", True, "journal.", 10),
        *full_only(("sqlite", False, "", 22), ("sqlite", True, "", 30), ("postgres", True, "journal.", 10)),
    ],
)
def test_wherever_a_host_dies_another_one_goes_on_and_each_call_happens_once(
    kind: str, has_journal: bool, only: str, fewest: int
) -> None:
    if kind == "postgres":
        binaries()
    done = run_kills(kind, has_journal=has_journal, is_sample=True, only=only)
    # Without both the test would prove nothing.
    assert len({case.point for case in done.cases}) == len(done.cases) >= fewest
    assert 2 <= sum(map(bool, done.asked.values())) < len(done.cases)


@pytest.mark.full
def test_without_the_guard_calls_happen_twice() -> None:
    with pytest.raises(AssertionError, match=r"happened .*: 2"):
        run_kills("sqlite", has_journal=False, is_sample=True, only="after effect", has_guard=False)
