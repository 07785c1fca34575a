"""Exit codes of the command line, and the error that ends a command before anything runs."""

from __future__ import annotations

DONE = 0
FAILED = 1
BAD_USAGE = 2
PAUSED = 3
INTERRUPTED_BY_USER = 130
OUTPUT_CLOSED = 141
"""What a shell says of a command that SIGPIPE has ended, as it ends most."""


class UsageError(Exception):
    """Something that was given cannot be used; the message says what."""
