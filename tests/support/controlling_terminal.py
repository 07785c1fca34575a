"""A command that has a terminal of its own as its controlling one, with a person who reads and types there."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

WAIT_SECONDS = 60.0
_TAKES_IT = """
import fcntl, os, sys, termios
fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)
os.close(int(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])
"""


class Person:
    """A person at the terminal of a command, whose stdin, stdout and stderr are something else."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._person, self._terminal = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKES_IT, str(self._terminal), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(environment),
            pass_fds=[self._terminal],
            start_new_session=True,
        )
        self.shown = ""

    def read_until(self, text: str) -> None:
        """Read what the terminal shows until this is in it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in self.shown:
            ready, _, _ = select.select([self._person], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, (self.shown, self.process.poll())
            self.shown += os.read(self._person, 65536).decode()

    def type(self, text: str) -> None:
        """Type, and return when the terminal has echoed it."""
        before = self.shown
        self.shown = ""
        os.write(self._person, text.encode())
        self.read_until(text.replace("\n", "\r\n"))
        self.shown = before + self.shown

    def end(self) -> tuple[int, str, str]:
        """Wait for the end of the command: its exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=WAIT_SECONDS)
        return self.process.returncode, out, err

    def close(self) -> None:
        """End the command where it has not ended."""
        self.process.kill()
        self.process.communicate(timeout=WAIT_SECONDS)
        os.close(self._person)
        os.close(self._terminal)
