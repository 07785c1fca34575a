"""Exit codes, errors and progress of commands, and output to a closed pipe."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

SUCCEEDED = 0
FAILED = 1
BAD_USAGE = 2
PAUSED = 3
INTERRUPTED_BY_USER = 130
OUTPUT_CLOSED = 141
"""What a shell says of a command that SIGPIPE has ended, as it ends most."""


class UsageError(Exception):
    """Something that was given cannot be used; the message says what."""


PROGRESS_DELAY_SECONDS = 1.0


@contextmanager
def show_text_if_slow(text: str) -> Generator[Callable[[], None]]:
    """Print ``text`` to stderr if the block takes over a second and stderr is a terminal. Needs an event loop.

    Yields a function after which the text is no longer printed, for use before a question at the terminal.
    """
    import asyncio  # late: most commands import it themselves, and help texts do not need it

    def print_text() -> None:
        if sys.stderr is not None and sys.stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison] - pythonw
            print(text, file=sys.stderr, flush=True)

    timer = asyncio.get_running_loop().call_later(PROGRESS_DELAY_SECONDS, print_text)
    try:
        yield timer.cancel
    finally:
        timer.cancel()


def flush_stdout() -> None:
    """Flush the output; a gateway that has served may have closed it."""
    if sys.stdout is not None and not sys.stdout.closed:  # pyright: ignore[reportUnnecessaryComparison] - pythonw
        sys.stdout.flush()


def is_stdout_reader_gone() -> bool:
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
