"""Processes that have a pair over one store each, as a test starts, stops and kills them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any, Self

from waiting import WAIT_SECONDS

from codemode import Interrupt

_FOLDER = Path(__file__).parent


class Process:
    """One process with a pair; ``began`` are the calls that have begun in it."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._numbers = count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._news = asyncio.Event()
        self.began: list[str] = []
        self._is_ready = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read_file())

    @classmethod
    async def started(cls, **given: Any) -> Self:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, str(_FOLDER / "exec_wait_host.py"), json.dumps(given))
        made = cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, cwd=_FOLDER, limit=1 << 24))
        await asyncio.wait_for(made._is_ready.wait(), WAIT_SECONDS)
        return made

    def ask(self, tool: str, value: Any, **more: Any) -> asyncio.Future[Any]:
        """Have it call exec or wait; the future gives the result."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps([number, tool, value, more]).encode() + b"\n")
        return self._answers[number]

    async def run(self, code: str, **more: Any) -> Any:
        return await asyncio.wait_for(self.ask("exec", {"code": code}, **more), WAIT_SECONDS)

    async def wait(self, result: Any) -> Any:
        return await asyncio.wait_for(self.ask("wait", {"runId": result["runId"]}), WAIT_SECONDS)

    async def until_began(self, many: int = 1) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.began) < many:
                self._news.clear()
                await self._news.wait()

    async def gone(self) -> None:
        """Wait until it is gone."""
        await asyncio.wait_for(self._child.wait(), WAIT_SECONDS)

    async def kill(self) -> None:
        """End it as if the power had gone, and wait until it is gone."""
        if self._child.returncode is None:
            self._child.kill()
        await asyncio.wait_for(self._child.wait(), WAIT_SECONDS)
        await asyncio.wait([self._reading])

    def stop(self) -> None:
        """Let it stand still."""
        os.kill(self._child.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self._child.pid, signal.SIGCONT)

    async def _read_file(self) -> None:
        assert self._child.stdout is not None
        async for line in self._child.stdout:
            told = json.loads(line)
            if "ready" in told:
                self._is_ready.set()
            elif "began" in told:
                self.began.append(told["began"])
                self._news.set()
            else:
                result = told["result"]
                is_asked = "interrupt" in result
                self._answers.pop(told["number"]).set_result(
                    Interrupt.from_dict(result["interrupt"]) if is_asked else result
                )


class Processes:
    """All processes of a test, on one store; leaving it kills them."""

    def __init__(self, kind: str, where: str, notes: Path, **options: Any) -> None:
        self._given = {"kind": kind, "where": where, "notes": str(notes), "options": options}
        self._started: list[Process] = []

    async def start(self, *held: str, moved_ms: int = 0, dies_at_rest: bool = False) -> Process:
        """Start one whose store has this clock. ``dies_at_rest``: before it could store its first rest."""
        more = {"held": held, "moved_ms": moved_ms, "dies_at_rest": dies_at_rest}
        self._started.append(await Process.started(**self._given, **more))
        return self._started[-1]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in self._started:
            await one.kill()
