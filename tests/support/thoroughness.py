"""How much of the same a test does: little wherever it runs, and all of it by `make test-thorough`."""

from __future__ import annotations

import os
from typing import Any

import pytest

IS_THOROUGH = os.environ.get("CODEMODE_THOROUGH") == "1"


def rounds(usual: int, thorough: int) -> int:
    """Return how many examples, programs or repetitions a test takes."""
    return thorough if IS_THOROUGH else usual


def more_of_the_same(*values: Any) -> list[Any]:
    """Return parameters of a test that are left to `make test-thorough`."""
    given: list[tuple[Any, ...]] = [one if isinstance(one, tuple) else (one,) for one in values]
    return [pytest.param(*one, marks=pytest.mark.thorough) for one in given]
