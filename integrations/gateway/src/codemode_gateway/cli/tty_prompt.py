"""The person at the controlling terminal of this process: shown something, then asked. Redirections change nothing."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from codemode.cli.exits import UsageError

TERMINAL = "/dev/tty"
_YES = ("y", "yes")
_MAX_ANSWER_BYTES = 4096


class ControllingTerminal:
    """What is written to and read from it is a person's, whatever stdin and stdout are."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, text: str) -> None:
        """Show a text, which must be visible already, with a line end."""
        data = f"{text}\n".encode(errors="replace")
        while data:
            data = data[os.write(self._descriptor, data) :]

    def agrees(self, question: str) -> bool:
        """Ask, and return whether the answer is yes. What was typed before the question is no answer to it."""
        import termios

        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        os.write(self._descriptor, f"{question} [y/N] ".encode(errors="replace"))
        answer = os.read(self._descriptor, _MAX_ANSWER_BYTES).decode(errors="replace")
        return answer.endswith("\n") and answer.strip().lower() in _YES


@contextmanager
def controlling_terminal(what: str) -> Generator[ControllingTerminal]:
    """Open it. Raises `UsageError` where there is none: nobody can be asked, so nothing is decided."""
    try:
        descriptor = os.open(TERMINAL, os.O_RDWR | getattr(os, "O_NOCTTY", 0))
    except OSError as error:
        raise UsageError(
            f"{what} asks a person at the terminal of this process, and it has none: do it in a terminal window"
        ) from error
    try:
        yield ControllingTerminal(descriptor)
    finally:
        os.close(descriptor)
