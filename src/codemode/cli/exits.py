"""Exit codes and errors of commands, and output to a closed pipe."""

from __future__ import annotations

import os
import select
import sys

SUCCEEDED = 0
FAILED = 1
BAD_USAGE = 2
PAUSED = 3
INTERRUPTED_BY_USER = 130
OUTPUT_CLOSED = 141
"""What a shell says of a command that SIGPIPE has ended, as it ends most."""


class UsageError(Exception):
    """Something that was given cannot be used; the message says what."""


def flush_stdout() -> None:
    """Print what is held back; a gateway that has served may have closed it all."""
    if sys.stdout is not None and not sys.stdout.closed:  # pyright: ignore[reportUnnecessaryComparison] - pythonw
        sys.stdout.flush()


def is_stdout_closed() -> bool:
    """Return whether the reader of the output has gone."""
    try:
        poller = select.poll()
        poller.register(sys.stdout, 0)
    except (AttributeError, OSError, ValueError):  # no polls here, or no descriptor behind what is printed to
        return False
    return any(event & select.POLLERR for _, event in poller.poll(0))


def discard_stdout() -> None:
    """Discard the remaining output: Python would report the closed pipe again at exit."""
    null_fd = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_fd, sys.stdout.fileno())
    os.close(null_fd)
