"""What a workload costs without isolation: the bare engine in this process, and bare round trips to another one."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from typing import Any

from codemode.workers.image import find_engine

# The least that lets a program call tools and return a value; nothing is hidden, frozen or counted.
_HARNESS = """
(function () {
  const pending = new Map();
  let id = 0, out = [], result;
  globalThis.tools = new Proxy({}, { get: (_, name) => (input) => new Promise((resolve) => {
    pending.set(++id, resolve);
    out.push([id, name, input]);
  }) });
  return (operation, text) => {
    if (operation === "run") {
      const program = (0, eval)("(async function () {" + text + "\\n})");
      program().then((value) => { result = value === undefined ? null : value; });
    } else if (operation === "deliver") {
      const [which, value] = JSON.parse(text);
      pending.get(which)(value);
    } else {
      const answer = JSON.stringify(result === undefined ? { calls: out } : { result });
      out = [];
      return answer;
    }
    return "";
  };
})()
"""


def load_engine() -> Any:
    """Return the engine's C module."""
    path, _ = find_engine()
    loader = ExtensionFileLoader("_quickjs", path)
    module = loader.create_module(ModuleSpec("_quickjs", loader, origin=path))
    loader.exec_module(module)
    return module


class BareEngine:
    """Runs a program in a fresh context of this process, its tools as plain Python functions."""

    def __init__(self, tools: dict[str, Callable[[Any], Any]]) -> None:
        self._engine = load_engine()
        self._tools = tools

    def run(self, js: str) -> tuple[Any, int]:
        """Return the program's value and how often the outside had to be asked."""
        context = self._engine.Context()
        kernel = context.eval(_HARNESS)
        kernel("run", js)
        trips = 1
        while True:
            while context.execute_pending_job():
                pass
            state = json.loads(kernel("drain", ""))
            if "result" in state:
                return state["result"], trips
            for request_id, name, value in state["calls"]:
                kernel("deliver", json.dumps([request_id, self._tools[name](value)]))
                trips += 1


_ECHO = """
import os, struct, sys
fd = int(sys.argv[1])
while True:
    head = os.read(fd, 4)
    if not head:
        break
    (length,) = struct.unpack(">I", head)
    body = b""
    while len(body) < length:
        body += os.read(fd, length - len(body))
    os.write(fd, head + body)
"""


class RoundTrips:
    """Another Python process that sends back every frame, over a socketpair."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-I", "-S", "-c", _ECHO, str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])

    def make(self, count: int, payload: bytes = b"x" * 64) -> None:
        """Make ``count`` blocking round trips."""
        frame = struct.pack(">I", len(payload)) + payload
        for _ in range(count):
            self.socket.sendall(frame)
            received = 0
            while received < len(frame):
                received += len(self.socket.recv(1 << 16))

    async def make_async(self, count: int, payload: bytes = b"x" * 64) -> None:
        """Make ``count`` round trips through the running event loop."""
        frame = struct.pack(">I", len(payload)) + payload
        loop = asyncio.get_running_loop()
        self.socket.setblocking(False)
        for _ in range(count):
            answered: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self.socket, self._receive, answered)
            self.socket.send(frame)
            await answered
        loop.remove_reader(self.socket)
        self.socket.setblocking(True)

    def _receive(self, answered: asyncio.Future[None]) -> None:
        os.read(self.socket.fileno(), 1 << 16)
        if not answered.done():
            answered.set_result(None)

    def close(self) -> None:
        """End the other process."""
        self.socket.close()
        self._process.wait(5)
