"""What two versions of a set of tools differ in, and who hears of it."""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from ...host.forks import begin_anew_in_forks, forkable_lock
from ...options.checked_fields import WrongTypeError
from .index import ToolSet
from .known_tool import KnownTool

Listener: TypeAlias = Callable[[dict[str, Any]], Any]
_log = logging.getLogger("codemode.tools")


class Listeners:
    """Functions that hear of changes, in the order in which they came. What they raise is logged, no more."""

    def __init__(self) -> None:
        self._lock = forkable_lock()
        self._listeners: dict[object, Listener] = {}
        self._untold: deque[dict[str, Any]] = deque()
        self._is_telling = False
        begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: a thread that is not in it may have been telling. What it had not told is told next."""
        self._is_telling = False

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

    def note(self, change: dict[str, Any]) -> None:
        """Keep a change until it is told."""
        self._untold.append(change)

    def tell(self) -> None:
        """Tell all of what is kept, each with a copy, unless another thread, or a caller of this one, does already."""
        with self._lock:
            if self._is_telling:
                return
            self._is_telling = True
        try:
            while (told := self._next()) is not None:
                change, listeners = told
                for listener in listeners:
                    _tell(listener, copy.deepcopy(change))
        except BaseException:  # such as the end of the process: the next change is told again
            self._is_telling = False
            raise

    def _next(self) -> tuple[dict[str, Any], list[Listener]] | None:
        with self._lock:
            if self._untold:
                return self._untold.popleft(), list(self._listeners.values())
            self._is_telling = False  # what is kept from here on is told by who keeps it
            return None


def _tell(listener: Listener, change: dict[str, Any]) -> None:
    try:
        listener(change)
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
