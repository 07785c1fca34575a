"""The TypeScript compiler, started once for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typescript_compiler import TypeScriptCompiler


@pytest.fixture(scope="session")
def compiler() -> Iterator[TypeScriptCompiler]:
    with TypeScriptCompiler() as one:
        yield one
