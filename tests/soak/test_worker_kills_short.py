"""Workers, spares and zygotes that are killed at random, short. `python -m tests.soak.worker_kills` does it long."""

from __future__ import annotations

import asyncio
import sys

import pytest
from tests.soak.worker_kills import invoke_under_kills

pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")]


def test_most_invocations_end_with_a_result_whatever_is_killed_and_no_call_is_made_twice() -> None:
    kills = asyncio.run(asyncio.wait_for(invoke_under_kills(150), 240))
    assert sum(kills.ended.values()) == 150
    assert max(kills.made.values()) == 1
    assert kills.killed.total() >= 5, "without kills this proves nothing"
    assert kills.ended["result"] >= 100, kills.ended
