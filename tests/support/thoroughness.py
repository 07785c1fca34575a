"""How much of the same a test does: little wherever it runs, and all of it by `make test-thorough`."""

from __future__ import annotations

import os

IS_THOROUGH = os.environ.get("CODEMODE_THOROUGH") == "1"


def rounds(usual: int, thorough: int) -> int:
    """Return how many examples, programs or repetitions a test takes."""
    return thorough if IS_THOROUGH else usual
