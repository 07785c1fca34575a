"""Guards with the clock that they judge by."""

from __future__ import annotations

import pytest
from claim_clocks import Clock
from suite import full_only

from codemode.stores import MemoryResumeGuard, SqliteInterruptStore


@pytest.fixture(params=["memory", *full_only("sqlite")])
def made(request, tmp_path):
    """Return guard and clock: of one process, and of a file."""
    clock = Clock()
    if request.param == "memory":
        return MemoryResumeGuard(clock=clock), clock
    return SqliteInterruptStore(tmp_path / "claims", clock=clock).guard, clock
