"""A command with a person who reads and types at its terminal: a process with one of its own, or a call with a pty."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

WAIT_SECONDS = 60.0
_TAKES_IT = """
import fcntl, os, sys, termios
fcntl.ioctl(int(sys.argv[1]), termios.TIOCSCTTY, 0)
os.close(int(sys.argv[1]))
os.execv(sys.argv[2], sys.argv[2:])
"""


class _AtTerminal:
    """Reads what a terminal shows, and types."""

    def __init__(self) -> None:
        self._person, self._terminal = pty.openpty()
        self.shown = ""

    def read_until(self, text: str) -> None:
        """Read what the terminal shows until this is in it."""
        deadline = time.monotonic() + WAIT_SECONDS
        while text not in self.shown:
            ready, _, _ = select.select([self._person], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self.shown
            self.shown += os.read(self._person, 65536).decode()

    def type(self, text: str) -> None:
        """Type, and return when the terminal has echoed it."""
        before = self.shown
        self.shown = ""
        os.write(self._person, text.encode())
        self.read_until(text.replace("\n", "\r\n"))
        self.shown = before + self.shown


class Person(_AtTerminal):
    """A person at the terminal of a command, whose stdin, stdout and stderr are something else."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        super().__init__()
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


class PersonHere(_AtTerminal):
    """The same before a command that is a call in this process, which takes a twentieth of the time of another one.

    ``opened`` is given the path of the terminal that the command is to open. ``typed`` is what the person has typed
    before the command begins: of what is typed while it runs, nobody knows whether its question came first.
    """

    def __init__(self, command: Callable[[], int], opened: Callable[[str], object], typed: str = "") -> None:
        super().__init__()
        opened(os.ttyname(self._terminal))
        self.type(typed)
        self._out, self._err = io.StringIO(), io.StringIO()
        self._thread = ThreadPoolExecutor(1)
        self._code = self._thread.submit(self._run, command)

    def _run(self, command: Callable[[], int]) -> int:
        with contextlib.redirect_stdout(self._out), contextlib.redirect_stderr(self._err):
            return command()

    def end(self) -> tuple[int, str, str]:
        """Wait for the end of the command: its exit code, stdout and stderr."""
        return self._code.result(WAIT_SECONDS), self._out.getvalue(), self._err.getvalue()

    def close(self) -> None:
        """End the command where it has not ended: nobody is there any more to answer it."""
        os.close(self._person)
        self._thread.shutdown()
        os.close(self._terminal)
