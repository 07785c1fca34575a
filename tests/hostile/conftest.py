"""One pool for all hostile programs of a file: starting one takes as long as many programs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from codemode import WorkerPool

from .hostile_run import make_pool


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with make_pool() as pool:
        yield pool
