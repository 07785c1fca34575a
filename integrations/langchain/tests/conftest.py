"""What the tests of scripts share: processes that have imported LangChain already."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from warm_python import WarmPython


@pytest.fixture(scope="session")
def langchain_python() -> Iterator[WarmPython]:
    with WarmPython("langchain.agents", "langgraph.checkpoint.sqlite.aio", "codemode_langchain") as python:
        yield python
