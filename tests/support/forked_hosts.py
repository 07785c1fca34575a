"""Hosts for tests that kill them: forked from a process that has imported all they need, and has no threads.

`ForkedHosts` is the test's side. ``python forked_hosts.py <module>`` serves it: for each line of JSON on its input a
child calls ``module.main(given)`` and writes what that returns; the answer is how the child ended.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from codemode.continuations.guard import GuardClock
from codemode.host.clock import now_ms

HOST_SECONDS = 60


@dataclass(frozen=True)
class Ended:
    """How a host ended. ``value`` is what its ``main`` returned, None when it was killed."""

    is_killed: bool
    value: Any


class ForkedHosts:
    """Starts hosts of one module, one after the other. Leave its block to end what forks them."""

    def __init__(self, module: str, *folders: Path) -> None:
        paths = [str(Path(__file__).parent), *map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-W", "ignore", __file__, module]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, env=environment, **pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()  # type: ignore[union-attr]

    def run(self, given: dict[str, Any]) -> Ended:
        """Run one host to its end. Raises `AssertionError` with what it said when it failed."""
        late = threading.Timer(HOST_SECONDS, self._process.kill)
        late.start()
        try:
            self._process.stdin.write(json.dumps(given) + "\n")  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
            told = json.loads(self._process.stdout.readline() or '["the hosts have ended", null]')  # type: ignore[union-attr]
        finally:
            late.cancel()
        how, value = told
        assert how in ("ended", "killed"), how
        return Ended(how == "killed", value)


class LaterClock(GuardClock):
    """For each host it is ten minutes later: what a dead one held has lapsed. Waiting goes a hundred times as fast."""

    def __init__(self, number: int) -> None:
        self.later_ms = number * 600_000

    def now_ms(self) -> int:
        return now_ms() + self.later_ms

    def monotonic_seconds(self) -> float:
        return time.monotonic() * 100


def kill_later(began: threading.Event, milliseconds: float | None) -> None:
    """Let this process be killed so long after something has begun; never when None."""

    def kill() -> None:
        began.wait()
        time.sleep((milliseconds or 0) / 1000)
        os.kill(os.getpid(), signal.SIGKILL)

    if milliseconds is not None:
        threading.Thread(target=kill, daemon=True).start()


def note_down(file: Path, text: str) -> None:
    """Append a line, in one write: the next moment this process may be gone."""
    descriptor = os.open(file, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(descriptor, (text + "\n").encode())
    finally:
        os.close(descriptor)


def _serve(name: str) -> None:
    module = importlib.import_module(name)
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _as_host(module, json.loads(line), writing)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps(["killed", None]) if killed else said or json.dumps([f"status {status}", None]), flush=True)


def _as_host(module: Any, given: dict[str, Any], writing: int) -> None:
    try:
        said = ["ended", module.main(given)]
    except BaseException:
        said = [traceback.format_exc()[-4000:], None]
    os.write(writing, json.dumps(said).encode())
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
