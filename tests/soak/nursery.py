"""Processes that a test kills: forked from one that has imported everything and runs nothing, so that each starts fast.

``python -m tests.soak.nursery`` is that one: it does what it is told on its input, and takes all it has started along.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.support.leftovers import read_line

_PR_SET_PDEATHSIG = 1
_SECONDS_TO_IMPORT = 60.0


class Host:
    """A process of the nursery. Its pid is its own until `Nursery.buried` has said how it ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def send(self, number: int) -> None:
        """Send it a signal; one that has ended does not notice."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def has_ended(self, seconds: float = 0) -> bool:
        """Tell whether it has ended, or does so within this time."""
        return bool(select.select([self._fd], [], [], seconds)[0])

    def fileno(self) -> int:
        """What is readable once it has ended."""
        return self._fd

    def close(self) -> None:
        """Forget it."""
        os.close(self._fd)


class Nursery:
    """Starts processes that run ``module.function(*arguments)``. What they write goes to the file ``log``."""

    def __init__(self, log: Path, *modules: str) -> None:
        root = Path(__file__).parents[2]
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tests.soak.nursery", *modules],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, cwd=root,
            )  # fmt: skip
        self.hosts: list[Host] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        while self.hosts:
            self.hosts.pop().close()

    def start(self, module: str, function: str, *arguments: Any) -> Host:
        """Start a process."""
        host = Host(self._told("start", module, function, arguments))
        self.hosts.append(host)
        return host

    def buried(self, host: Host) -> int:
        """Wait for a process's end, and return how it ended: below zero the signal."""
        assert host.has_ended(60), "a host does not end"
        status = self._told("bury", host.pid)
        self.hosts.remove(host)
        host.close()
        return os.waitstatus_to_exitcode(status)

    def _told(self, *command: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return int(read_line(self._process.stdout, _SECONDS_TO_IMPORT))


def _started(module: str, function: str, arguments: list[Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)
        getattr(importlib.import_module(module), function)(*arguments)
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def main() -> None:
    """Start and bury, until there is nobody to tell how."""
    for module in sys.argv[1:]:
        importlib.import_module(module)
    pids: set[int] = set()
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "start":
            said = _started(*arguments)
            pids.add(said)
        else:
            (pid,) = arguments
            said = os.waitpid(pid, 0)[1]
            pids.discard(pid)
        print(said, flush=True)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
