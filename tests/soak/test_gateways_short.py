"""Chaos over gateways, short, in the full suite. `make soak` runs it long."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest
from tests.soak.gateways import RUNS_EACH, VISITORS, run_chaos

RUNS = 16
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Clients whose gateway dies have much to say."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_each_call_happens_once_and_each_run_is_reported_whoever_is_killed() -> None:
    done = run_chaos(RUNS, seed=5)
    # Without these the test would prove nothing.
    assert done.chaos.sent.total() >= (RUNS - 1 - VISITORS) // RUNS_EACH
    assert done.found["effects"] >= RUNS // 3
    assert done.chaos.answers.total() >= RUNS
