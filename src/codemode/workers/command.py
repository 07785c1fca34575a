"""The command that workers are started with: this interpreter, or the one that was named. Starts nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import CodeModeWorkerError

# Set in whatever is started as a worker. An application that was started by mistake, because it *is* the embedded
# interpreter, finds it and starts no workers of its own: one wrong process instead of a bomb.
STARTED_AS_WORKER = "CODE_MODE_WORKER"
_INTERPRETER_NAMES = ("python", "pypy")


def command_to_start(given: Sequence[str]) -> tuple[str, ...]:
    """Return the words that start a Python interpreter; ``given`` empty means this one.

    Raises `CodeModeWorkerError` where this interpreter is part of an application and none was given, and in a process
    that was itself started as a worker.
    """
    if STARTED_AS_WORKER in os.environ:
        raise CodeModeWorkerError(
            "this application was itself started as a code mode worker: set pool.worker_command to a Python "
            f"interpreter (or, if that is not so, remove {STARTED_AS_WORKER} from the environment)"
        )
    if given:
        return tuple(given)
    reason = _why_not_an_interpreter()
    if reason:
        raise CodeModeWorkerError(
            f"workers cannot be started with this interpreter: {reason}. Set pool.worker_command to the command of a "
            f"Python {sys.version_info[0]}.{sys.version_info[1]} interpreter, as in "
            f'PoolOptions(worker_command=["/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"])'
        )
    return (sys.executable,)


def _why_not_an_interpreter() -> str:
    if "uwsgi" in sys.modules:
        return "it is embedded in uWSGI"
    if getattr(sys, "frozen", False):
        return "the application is frozen"
    if not sys.executable:
        return "it does not know its own path (sys.executable is empty)"
    path = Path(sys.executable)
    # A link to an interpreter may have any name, and so may what it points to.
    names = (path.name.lower(), Path(os.path.realpath(path)).name.lower())
    if not any(known in name for known in _INTERPRETER_NAMES for name in names):
        return f"sys.executable is {path.name!r}, which is not a Python interpreter by name"
    return ""
