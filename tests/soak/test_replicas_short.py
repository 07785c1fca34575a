"""Chaos over replicas, short, in the full suite. `make soak` runs it long."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest
from postgres_cluster import binaries
from tests.soak.replica_proxy import MISSING, found_nginx
from tests.soak.replicas import ROLES, Pace, run_replicas

RUNS, RUNS_EACH = 24, 1
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
    pytest.mark.skipif(found_nginx() is None, reason=MISSING),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Clients whose gateway dies have much to say."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_requests_to_any_replica_are_answered_once_whoever_is_killed() -> None:
    binaries()
    done = run_replicas(Pace(RUNS, seconds_each=0.5, runs_each=RUNS_EACH, is_patient=True), seed=3)
    # Without these the test would prove nothing.
    assert done.chaos.sent.total() >= 2
    assert len(done.chaos.came) + done.chaos.answers["result"] >= RUNS // 2
    assert done.found["decisions"] >= len(done.chaos.came) > 0
    assert {name.split()[0] for name in done.told} == {*ROLES}
