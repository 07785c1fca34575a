"""Where programs of these tests run, and what their tools remember."""

from __future__ import annotations

from typing import Any

import pytest
from paid_tools import Ledger, in_a_graph, in_an_agent
from suite import full_only


@pytest.fixture(params=[in_an_agent, in_a_graph], ids=lambda place: place.__name__)
def place(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=[False, *full_only(True)], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()
