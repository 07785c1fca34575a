"""Narrows untyped JSON to what it turns out to be. Knows nothing of what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def mapping_or_empty(value: Any) -> Mapping[Any, Any]:
    """``value`` when it is a JSON object, else an empty one."""
    return cast("Mapping[Any, Any]", value) if isinstance(value, Mapping) else {}


def list_or_empty(value: Any) -> list[Any]:
    """``value`` when it is a JSON array, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def string_or_empty(value: Any) -> str:
    """``value`` when it is a string, else an empty one."""
    return value if isinstance(value, str) else ""
