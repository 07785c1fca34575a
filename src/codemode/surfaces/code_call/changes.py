"""What two versions of a set of tools differ in, and who hears of it."""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from ...options.checked_fields import WrongTypeError
from .index import ToolSet
from .known_tool import KnownTool

Listener: TypeAlias = Callable[[dict[str, Any]], Any]
_log = logging.getLogger("codemode.tools")


class Listeners:
    """Functions that hear of changes. What they raise is logged, no more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Listener] = {}

    def add(self, listener: Listener) -> Callable[[], None]:
        """Let a function hear of changes; return what ends that. Raises `ValueError` for what cannot be called."""
        if not callable(listener):
            raise WrongTypeError(f"a listener must be a function, got {listener!r}")
        key = object()
        with self._lock:
            self._listeners[key] = listener

        def remove() -> None:
            with self._lock:
                self._listeners.pop(key, None)

        return remove

    def tell(self, change: dict[str, Any]) -> None:
        """Tell all of them, each with a copy."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                listener(copy.deepcopy(change))
            except Exception:  # noqa: BLE001 - it is host code, and the tools have changed
                _log.exception("a listener of changed tools failed")


def change_of(before: ToolSet, after: ToolSet) -> dict[str, Any] | None:
    """Return the names that a client can see to have come, gone or changed; None where there are none."""
    old, new = _visible(before), _visible(after)
    change: dict[str, Any] = {
        "version": after.version,
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and _differ(old[name], new[name])],
    }
    return change if change["added"] or change["removed"] or change["changed"] else None


def _visible(tools: ToolSet) -> dict[str, KnownTool]:
    return {name: one for name, one in tools.known.items() if one.is_indexed or one.is_listed}


def _differ(one: KnownTool, other: KnownTool) -> bool:
    return one is not other and _shown(one) != _shown(other)


def _shown(one: KnownTool) -> tuple[Any, ...]:
    tool = one.tool
    schemas = tool.input_json_schema, tool.output_json_schema
    return (*schemas, tool.input_examples, one.metadata, one.info, one.is_indexed, one.is_listed)
