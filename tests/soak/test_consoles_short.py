"""Chaos with consoles, short, in the full suite. `make soak` runs it long."""

from __future__ import annotations

import sys

import pytest
from tests.soak.consoles import ConsoleChaos
from tests.soak.pauses import run_chaos

RECORDS = 9
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc"),
]


def test_people_in_web_pages_decide_once_whoever_is_killed() -> None:
    done = run_chaos(RECORDS, seed=7, of=ConsoleChaos)
    # Without both the test would prove nothing.
    assert done.chaos.sent.total() >= RECORDS // 3
    assert done.found["refused"] >= 2 * RECORDS
