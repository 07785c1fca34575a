"""The TypeScript compiler, started once for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typescript_compiler import TypeScriptCompiler


@pytest.fixture(scope="module")
def compiler() -> Iterator[TypeScriptCompiler]:
    with TypeScriptCompiler() as one:
        yield one
