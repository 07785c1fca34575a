"""What the tests of scripts share: processes that have imported Pydantic AI already."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from warm_python import WarmPython


@pytest.fixture(scope="session")
def pydantic_ai_python() -> Iterator[WarmPython]:
    with WarmPython(
        "dbos", "pydantic_ai.durable_exec.dbos", "pydantic_ai.models.function", "codemode_pydantic_ai"
    ) as python:
        yield python
