"""A host whose workers are scripts that say what no kernel of ours would, and the frames that they say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from codemode import (
    CodeModeError,
    WorkerPool,
    run_code_mode,
)
from codemode.protocol.framing import encode_frame
from codemode.testing.fake_worker import FakeWorker, FakeWorkerSource, Script

WAIT_SECONDS = 60.0


MAX_CONSOLE_BYTES = 2_000


PROGRAM = "return await tools.echo({})"


RESULT = {"value": "1", "unobserved": []}


THROWN = {"name": "Error", "message": "m", "code": "", "stack": ""}


def call(number: int, name: str = "echo", **changes: Any) -> dict[str, Any]:
    return {"id": number, "kind": "tool", "name": name, "input": "{}", **changes}


class Host:
    """One host: pools that are closed in the end, and a tool that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self._pools: list[WorkerPool] = []
        self.sources: list[FakeWorkerSource] = []

    def echo(self) -> str:
        self.calls += 1
        return "echo"

    def pool(self, script: Script) -> WorkerPool:
        def make() -> FakeWorkerSource:
            self.sources.append(FakeWorkerSource(script))
            return self.sources[-1]

        pool = WorkerPool({"spare_workers": 0}, source=make)
        self._pools.append(pool)
        return pool

    def run(self, script: Script, **options: Any) -> Any:
        """Run a program on a worker with this script; afterwards neither worker nor slot may be left."""
        pool = self.pool(script)
        policy = {"timeout_ms": 30_000, **options}
        work = run_code_mode(PROGRAM, {"echo": self.echo}, options={"execution_policy": policy}, pool=pool)
        try:
            return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))
        finally:
            assert pool.active == 0
            assert [source.living_count for source in self.sources] == [0] * len(self.sources)

    def error(self, script: Script, **options: Any) -> CodeModeError:
        with pytest.raises(CodeModeError) as caught:
            self.run(script, **options)
        return caught.value

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


def start(worker: FakeWorker) -> None:
    """Say hello and take the program, as far as its start."""
    worker.send_hello()
    kind, body = worker.receive_message()
    if kind == b"A":
        worker.send_frame(b"a", {"js": body["source"], "facts": None})
        kind, body = worker.receive_message()
    assert kind == b"R"


def well_behaved(worker: FakeWorker) -> None:
    start(worker)
    worker.send_frame(b"C", call(1))
    worker.send_frame(b"T", {"in_flight": 1})
    kind, body = worker.receive_message()
    assert kind == b"D"
    worker.send_frame(b"V", {"value": json.dumps(body["value"]), "unobserved": []})


def encoded(frames: Iterable[tuple[bytes, Any]]) -> bytes:
    """One text for many frames, so that the host reads them at once; bytes stand for a payload as it is."""
    return b"".join(
        encode_frame(kind, body if isinstance(body, bytes) else json.dumps(body).encode()) for kind, body in frames
    )


def says(*frames: tuple[bytes, Any]) -> Script:
    """Send these frames where the program's first turn belongs."""
    return then(frames)


def says_bytes(data: bytes) -> Script:
    def script(worker: FakeWorker) -> None:
        start(worker)
        worker.send_bytes(data)
        worker.wait_silently()

    return script


def then(*rounds: Iterable[tuple[bytes, Any]]) -> Script:
    """Send the frames of each round, waiting for a delivery between two."""

    def script(worker: FakeWorker) -> None:
        start(worker)
        for number, frames in enumerate(rounds):
            if number:
                assert worker.receive_message()[0] == b"D"
            worker.send_bytes(encoded(frames))
        worker.wait_silently()

    return script


def hello(say: Callable[[FakeWorker], None]) -> Script:
    def script(worker: FakeWorker) -> None:
        say(worker)
        worker.wait_silently()

    return script
