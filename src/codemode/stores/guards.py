"""Whether what goes on with a store's records has its claims in that store: the one rule of resumers and plugins.

Knows the tools of all surfaces by where they have their options, and none by name.
"""

from __future__ import annotations

from typing import Any

from ..options.parts import CodeModeOptions, ContinuationOptions
from .protocol import InterruptStore


def continuation_of(tool: Any) -> ContinuationOptions | None:
    """Return how a tool of whatever surface resumes programs; None for what is no such tool."""
    own = getattr(tool, "options", None)
    for found in (own, getattr(own, "settings", None), getattr(tool, "settings", None)):
        if isinstance(found, CodeModeOptions):
            return found.continuation
    return None


def require_guard(store: InterruptStore, tool: Any, whose: str = "the tool's options") -> None:
    """Raise `ValueError` where a tool has its claims elsewhere: who stood still there makes a call a second time.

    ``whose`` says which options are to name the guard.
    """
    continuation = continuation_of(tool)
    if continuation is not None and continuation.guard is not store.guard:
        raise ValueError(
            f"{whose} use another guard than the store's, and calls could run twice: write"
            " continuation={'guard': store.guard} in them"
        )
