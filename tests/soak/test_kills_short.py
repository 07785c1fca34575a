"""Hosts that die at every point of what they do, one of each. `make soak` runs them in all ways."""

from __future__ import annotations

import sys

import pytest
from postgres_cluster import binaries
from tests.soak.kills import run_kills

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


@pytest.mark.parametrize(("kind", "only"), [("sqlite", ""), ("postgres", "resume")])
def test_wherever_a_host_dies_another_one_goes_on_and_each_call_happens_once(kind: str, only: str) -> None:
    if kind == "postgres":
        binaries()
    done = run_kills(kind, has_journal=False, is_sample=True, only=only)
    # Without both the test would prove nothing.
    assert len({(case.flow, case.point) for case in done.cases}) >= 14
    assert 4 <= sum(map(bool, done.asked.values())) < len(done.cases)


def test_without_the_guard_calls_happen_twice() -> None:
    with pytest.raises(AssertionError, match=r"happened .*: 2"):
        run_kills("sqlite", has_journal=False, is_sample=True, only="after effect", has_guard=False)
