"""Convert tool objects of other frameworks to `Tool` through registered plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..host.forks import create_fork_safe_lock, create_fork_safe_rlock
from ..host.imports import make_forks_wait_for_lock
from ..schemas.patterns import drop_nonlinear_patterns

if TYPE_CHECKING:
    from .tool import Tool

ENTRY_POINT_GROUP = "codemode.adapters"

# Held while plugins load, which takes seconds: a module whose import a fork interrupts cannot be imported in the child.
_loading_lock = create_fork_safe_rlock()
make_forks_wait_for_lock(_loading_lock, 10.0)

Matches = Callable[[Any], bool]
Convert = Callable[[Any], "Tool"]


class AdapterRegistry:
    """The registered adapters, newest first. Plugins are discovered when no adapter knows an object."""

    def __init__(self, *, group: str = ENTRY_POINT_GROUP) -> None:
        self._group = group
        self._adapters: list[tuple[Matches, Convert]] = []
        self._failures: list[str] = []
        self._discovered = False
        self._lock = create_fork_safe_lock()

    def register(self, matches: Matches, convert: Convert) -> None:
        """Convert every object for which ``matches`` is true with ``convert``."""
        with self._lock:
            self._adapters.insert(0, (matches, convert))

    def convert_to_tool(self, value: Any) -> Tool | None:
        """Return a `Tool` for a framework's object; None if no adapter knows it."""
        found = self._find_converter(value)
        if found is None:
            self._load_plugins()
            found = self._find_converter(value)
        if found is None:
            return None
        with drop_nonlinear_patterns():
            return found(value)

    @property
    def load_failures(self) -> tuple[str, ...]:
        """Plugins that could not be loaded, and why."""
        return tuple(self._failures)

    def _find_converter(self, value: Any) -> Convert | None:
        with self._lock:
            adapters = list(self._adapters)
        return next((convert for matches, convert in adapters if matches(value)), None)

    def _load_plugins(self) -> None:
        # Other threads that need a plugin wait here.
        with _loading_lock:
            if self._discovered:
                return
            self._discovered = True
            import importlib.metadata

            for entry_point in importlib.metadata.entry_points(group=self._group):
                try:
                    entry_point.load()(self.register)
                except Exception as error:  # noqa: BLE001 - one broken plugin must not disable the others
                    self._failures.append(f"{entry_point.name}: {type(error).__name__}: {error}")


ADAPTERS = AdapterRegistry()


def register_adapter(matches: Matches, convert: Convert) -> None:
    """Teach `create_code_mode_tool` a framework's tool objects.

    A plugin names a function in the entry point group ``codemode.adapters``; it is called once with this function.
    """
    ADAPTERS.register(matches, convert)
