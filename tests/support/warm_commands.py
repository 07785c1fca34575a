"""Commands of Python that start at once: each runs in a fork of a process that has imported what they need.

`WarmCommands.python` stands where ``python`` would in a command. What is started so is a process of its own, with the
streams, folder, environment, signals and exit code that it would have. Only its id is not that of the command, signals
reach it a moment later, and its hashes have the seed of all others: where any of this matters, start a Python.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pkgutil
import runpy
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from contextlib import suppress
from pathlib import Path
from select import select
from socket import AF_UNIX, SOCK_SEQPACKET, recv_fds, socket
from types import TracebackType
from typing import Any, NoReturn, Self

MOST_BYTES = 1 << 18
WAIT_SECONDS = 60
WITH_A_VALUE = ("-W", "-X")
LAUNCHER = Path(__file__).with_name("warm_launcher.py")


class WarmCommands:
    """Starts commands, any number at once, in processes that have these modules, from its block's begin to its end.

    ``package.*`` is a package with all that is in it.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._place = Path(tempfile.gettempdir()) / f"codemode-warm-{os.getpid()}-{secrets.token_hex(4)}"
        self.python = (sys.executable, "-I", "-S", str(LAUNCHER), str(self._place))
        self._process: subprocess.Popen[bytes] | None = None

    def entry(self, *arguments: str) -> dict[str, Any]:
        """Return what a configuration has of a server that ``python`` starts with these arguments."""
        return {"command": self.python[0], "args": [*self.python[1:], *arguments]}

    def __enter__(self) -> Self:
        with socket(AF_UNIX, SOCK_SEQPACKET) as listening:
            listening.bind(str(self._place))
            listening.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listening.fileno()), *self._modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[listening.fileno()],
                start_new_session=True,
            )
        assert self._process.stdout is not None
        with self._process.stdout as said:
            assert said.readline() == b"ready\n", "what starts commands could not import what they need"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(WAIT_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._place.unlink()


GATEWAYS = WarmCommands(
    "codemode_gateway.*",
    *(f"codemode.{name}.*" for name in ("cli", "execution", "stores", "surfaces", "workers")),
    *("anyio._backends._asyncio", "attrs", "jsonschema", "mcp.server.mcpserver", "rich.logging", "rich.text"),
)
"""Gateways, their command line and servers that the SDK makes: a test that uses it asks for ``warm_gateways``."""


def _import(name: str) -> None:
    package = importlib.import_module(name.removesuffix(".*"))
    if name.endswith(".*"):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)


def _serve(listening: socket) -> list[str]:
    """Fork a process for each command, until whoever started this one is gone; return its command in each."""
    while True:
        ready, _, _ = select([listening, 0], [], [])
        if 0 in ready:
            os._exit(0)
        connection, _ = listening.accept()
        if not os.fork():
            listening.close()
            return _supervise(connection)
        connection.close()
        _reap()


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _supervise(connection: socket) -> list[str]:
    """Fork again; return in the child. Pass signals on to it, kill it when its launcher is gone, tell how it ended."""
    message, streams, _, _ = recv_fds(connection, MOST_BYTES, 3)
    if len(streams) < 3:
        os._exit(1)
    child = os.fork()
    if not child:
        connection.close()
        return _take(message, streams)
    for stream in (0, *streams):
        os.close(stream)
    ended = os.pidfd_open(child)
    while ended not in select([connection, ended], [], [])[0]:
        signals = connection.recv(16) or bytes([signal.SIGKILL])
        for number in signals:
            os.kill(child, number)
        if signal.SIGKILL in signals:
            break
    _, status = os.waitpid(child, 0)
    with suppress(OSError):  # its launcher may be gone
        connection.send(str(status).encode())
    os._exit(0)


def _take(message: bytes, streams: list[int]) -> list[str]:
    """Be the process that was asked for; return its command."""
    folder, count, *rest = os.fsdecode(message).split("\0")
    command, environment = rest[: int(count)], rest[int(count) :]
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    os.environ.clear()
    os.environ.update(entry.split("=", 1) for entry in environment)
    os.chdir(folder)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return command


def _run(command: list[str]) -> None:
    """Do what ``python`` does with these arguments."""
    while command[0].startswith("-") and command[0] not in ("-c", "-m"):
        if command[0] == "-W":
            warnings.simplefilter(command[1])  # type: ignore[arg-type]
        del command[: 2 if command[0] in WITH_A_VALUE else 1]
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    if command[0] == "-c":
        sys.argv, source, name = ["-c", *command[2:]], command[1], "<string>"
        sys.path.insert(0, "")
    else:
        sys.argv, name = command, command[0]
        source = Path(name).read_text(encoding="utf-8")
        main.__file__ = name
        sys.path.insert(0, str(Path(name).resolve().parent))
    exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)


def _code_of(command: list[str]) -> int:
    """Run a command, and return its exit code; a negative one is a signal."""
    try:
        _run(command)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return (ended.code or 0) & 0xFF
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end(code: int) -> NoReturn:
    """End as Python does, in its order, but for taking apart what was imported."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if (main := sys.modules["__main__"].__dict__) is not globals():
        main.clear()
    gc.collect()  # whatever was not closed or awaited says so
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            code = code or 120
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    for module in sys.argv[2:]:
        _import(module)
    assert threading.active_count() == 1, "an import started a thread, which no fork has"
    del sys.path[0]  # the folder of this file
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    _end(_code_of(_serve(socket(fileno=int(sys.argv[1])))))
