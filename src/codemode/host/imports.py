"""Late imports that a fork of the host waits for.

A module that another thread is importing during a fork stays locked in the child for ever.
"""

from __future__ import annotations

import concurrent.futures.thread
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

# Both register fork handlers with locks. Imported later, their locks would be held by a fork that waits for an import
# that needs them.
_REGISTERED_BEFORE = (concurrent.futures.thread, logging)

importing = threading.RLock()
"""Held during a late import: ``with importing: import ...``."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)


def make_forks_wait_for_lock(lock: threading.RLock, seconds: float) -> None:
    """Make a fork wait for a lock before it waits for `importing`, which the lock's holder may need.

    It waits at most ``seconds``: the lock is held while code of others is loaded.
    """

    def release_if_held() -> None:
        with suppress(RuntimeError):  # it timed out
            lock.release()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lambda: lock.acquire(timeout=seconds),
            after_in_parent=release_if_held,
            after_in_child=release_if_held,
        )


def create_lazy_getattr(module: str, names_by_module: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose public names are imported on first use.

    ``names_by_module`` maps modules, relative to the package of ``module``, to names with spaces between them.
    """
    module_by_name = {name: place for place, names in names_by_module.items() for name in names.split()}

    def import_name(name: str) -> Any:
        if name not in module_by_name:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        here = sys.modules[module]
        with importing:
            value = getattr(import_module(f".{module_by_name[name]}", here.__package__), name)
        setattr(here, name, value)
        return value

    return import_name
