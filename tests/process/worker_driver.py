"""Talks frames to one worker, blocking and with a bound on every wait."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from codemode.protocol.framing import split_messages
from codemode.protocol.messages import RunProgram
from codemode.workers.image import GuestRuntimeSource, WorkerImage, find_engine
from codemode.workers.process import WorkerProcess

STUB_KERNEL = GuestRuntimeSource((str(Path(__file__).parent / "stub_kernel.js"),))
WAIT_MS = 60_000


def stub_image(kernel: GuestRuntimeSource = STUB_KERNEL, analyser_path: str | None = None) -> WorkerImage:
    path, version = find_engine()
    return WorkerImage(path, version, kernel, analyser_path, ())


def read_frame(worker: WorkerProcess) -> tuple[bytes, bytes]:
    """Kind and payload of the one message of a frame; EOFError when the worker has closed the channel."""
    (message,) = read_messages(worker)
    return message


def read_messages(worker: WorkerProcess) -> list[tuple[bytes, bytes]]:
    """Kind and payload of each message of a frame; EOFError when the worker has closed the channel."""
    worker.channel.settimeout(WAIT_MS / 1000)
    (length,) = struct.unpack(">I", _read_file(worker, 4))
    return [(message[:1], message[1:]) for message in split_messages(_read_file(worker, length))]


def read_hello(worker: WorkerProcess) -> dict[str, object]:
    kind, payload = read_frame(worker)
    assert kind == b"H", (kind, payload)
    return json.loads(payload)


def frame(kind: bytes, payload: str) -> bytes:
    return struct.pack(">I", len(payload) + 1) + kind + payload.encode("ascii")


def send(worker: WorkerProcess, kind: bytes, payload: str) -> None:
    worker.channel.sendall(frame(kind, payload))


def run_program(worker: WorkerProcess, js: str) -> None:
    limits = {"memory_limit_bytes": 16 << 20, "max_stack_size_bytes": 1 << 19}
    worker.channel.sendall(RunProgram(js, limits).to_frame())


def _read_file(worker: WorkerProcess, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = worker.channel.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data
