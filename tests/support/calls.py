"""Keyword arguments of a test's own helpers as the `CallContext` of a call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codemode import CallContext

_FIELDS = ("tool_call_id", "messages", "context", "conversation_id", "started_at_ms", "clock_ms", "state")


def with_call(settings: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """Return the settings with those of a `CallContext` gathered in ``call``."""
    fields = {**defaults, **{name: value for name, value in settings.items() if name in _FIELDS}}
    rest = {name: value for name, value in settings.items() if name not in _FIELDS}
    return {**rest, "call": CallContext(**fields)} if fields else rest
