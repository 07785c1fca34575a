"""Imports that wait until they are needed, and that no fork of the host may cut in two.

A module that another thread is importing when the process forks stays locked in the child, for ever. What this package
imports late is imported under one lock, and a fork waits for it.
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

# These two bring locks that a fork takes too, the one that was registered last before the others. Imported later, they
# would be held by a fork that waits for an import that needs them.
_REGISTERED_BEFORE = (concurrent.futures.thread, logging)

importing = threading.RLock()
"""Held while something is imported late: ``with importing: import ...``."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)


def delay_forks_for(lock: threading.RLock, seconds: float) -> None:
    """Let a fork wait until nobody has this lock, before it waits for `importing`, which who has it may need.

    It is for what loads code of others, and waits for so long at most: nobody knows what that code waits for.
    """

    def release() -> None:
        with suppress(RuntimeError):  # it was not free in time
            lock.release()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lambda: lock.acquire(timeout=seconds), after_in_parent=release, after_in_child=release
        )


def lazy_names(module: str, names_by_module: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose public names are imported when they are asked for, and then kept.

    ``places`` are names, with spaces between them, by the module that has them, as the package of ``module`` calls it.
    """
    module_by_name = {name: place for place, names in names_by_module.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in module_by_name:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        here = sys.modules[module]
        with importing:
            value = getattr(import_module(f".{module_by_name[name]}", here.__package__), name)
        setattr(here, name, value)
        return value

    return load
