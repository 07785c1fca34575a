"""Python processes that have imported a framework already, for tests of scripts: each is forked from one that has.

`WarmPython` is the test's side. What it starts runs as ``python script`` would, with standard streams, a folder, an
environment and an end of its own, and need not import for seconds. At that end all of the script is let go of, and
nothing of what was imported, which takes longer than most scripts. All have one seed of hashes: where a process must be
wholly another, start one.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from select import select
from types import TracebackType
from typing import Any, NoReturn, Self

WAIT_SECONDS = 120
MOST_BYTES = 1 << 20


class Begun:
    """A process that runs a script."""

    def __init__(self, told: int) -> None:
        self._told = open(told, encoding="ascii")  # noqa: SIM115 - open until `wait` or `kill`
        self._pid = int(self._line())

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        """Return how it ended, as `subprocess.Popen.returncode` says it; one that takes longer is killed."""
        try:
            if not select([self._told], [], [], seconds)[0]:
                os.kill(self._pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(int(self._line()))
        finally:
            self._told.close()

    def kill(self) -> None:
        """Kill it, if it still runs."""
        if not self._told.closed:
            self.wait(0)

    def _line(self) -> str:
        line = self._told.readline()
        assert line, "what starts warm processes has ended"
        return line


class WarmPython:
    """Starts scripts, any number at once, in processes that have these. Leave its block to end all of it.

    Each is a module to import or a statement; what cannot be imported is left to the script that needs it.
    """

    def __init__(self, *prepared: str, flags: tuple[str, ...] = ("-W", "error")) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, *flags, __file__, str(theirs.fileno()), *prepared]
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], **streams)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()
        try:
            self._process.wait(WAIT_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()

    def begin(
        self,
        *arguments: str,
        streams: tuple[int, int, int],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Begun:
        """Begin a script (or ``-c`` and a program) with these descriptors as its standard streams."""
        telling, told = os.pipe()
        given = {"arguments": arguments, "cwd": str(cwd or Path.cwd()), "env": dict(os.environ if env is None else env)}
        try:
            socket.send_fds(self._socket, [json.dumps(given).encode()], [*streams, told])
        finally:
            os.close(told)
        return Begun(telling)

    def run(self, *arguments: str, said: str = "", **settings: Any) -> subprocess.CompletedProcess[str]:
        """Run it to its end with this text to read, as `subprocess.run` does with pipes and texts."""
        with ExitStack() as open_files:
            reading, out, err = (open_files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
            reading.write(said)
            reading.seek(0)
            code = self.begin(*arguments, streams=(reading.fileno(), out.fileno(), err.fileno()), **settings).wait()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def _serve(descriptor: int, prepared: list[str]) -> None:
    """Fork a process for each request; return in each, as one that has to run its script."""
    for one in prepared:
        with suppress(ImportError):
            exec(one if " " in one else f"import {one}", {})
    assert threading.active_count() == 1, "an import started a thread, which no fork has"
    gc.collect()
    gc.freeze()
    asked = socket.socket(fileno=descriptor)
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, MOST_BYTES, 4)
        if not message:
            break
        if not os.fork():
            asked.close()
            _supervise(json.loads(message), descriptors)
            return
        for one in descriptors:
            os.close(one)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    with suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


def _supervise(given: dict[str, Any], descriptors: list[int]) -> None:
    """Fork again, tell of the child and of its end; return in the child."""
    *streams, telling = descriptors
    child = os.fork()
    if child:
        for one in (0, 1, 2, *streams):
            os.close(one)
        os.write(telling, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        with suppress(BrokenPipeError):
            os.write(telling, f"{status}\n".encode())
        os._exit(0)
    os.close(telling)
    for place, one in enumerate(streams):
        os.dup2(one, place)
        os.close(one)
    os.environ.clear()
    os.environ.update(given["env"])
    os.chdir(given["cwd"])
    sys.argv = given["arguments"]


def _run_script() -> None:
    """Be the script that the arguments name: its own `__main__`, and its folder first in the path."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if sys.argv[0] == "-c":
        source, name = sys.argv.pop(1), "<string>"
        sys.path.insert(0, "")
    else:
        name = main.__file__ = sys.argv[0]
        source = Path(name).read_text(encoding="utf-8")
        sys.path.insert(0, str(Path(name).resolve().parent))
    sys.modules["__main__"] = main
    exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)


def _end() -> NoReturn:
    """End as Python does, in its order, but for taking apart what was imported."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.modules["__main__"].__dict__.clear()
    gc.collect()  # whatever was not closed or awaited says so
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2:])
    _run_script()
    _end()
