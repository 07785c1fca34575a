"""Keeps other processes of the same user from reading this one."""

from __future__ import annotations

import sys

_PR_SET_DUMPABLE = 4


def keep_private() -> bool:
    """Let nobody but the system's administrator read this process: its memory, and with which variables it was started.

    It then writes no core dump, and no debugger of its own user's comes to it. What it starts is as it was. False where
    the platform has nothing for it (Linux alone has).
    """
    if sys.platform != "linux":
        return False
    try:
        import ctypes  # late: it is needed here alone

        return ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False
