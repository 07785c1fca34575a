"""Imports that wait until they are needed, and that no fork of the host may cut in two.

A module that another thread is importing when the process forks stays locked in the child, for ever. What this package
imports late is imported under one lock, and a fork waits for it.
"""

from __future__ import annotations

import concurrent.futures.thread
import logging
import os
import threading

# These two bring locks that a fork takes too, the one that was registered last before the others. Imported later, they
# would be held by a fork that waits for an import that needs them.
_REGISTERED_BEFORE = (concurrent.futures.thread, logging)

importing = threading.RLock()
"""Held while something is imported late: ``with importing: import ...``."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)
