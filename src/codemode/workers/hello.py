"""Reads a worker's first frame, its hello, and checks its engine, kernel and isolation. Starts nothing."""

from __future__ import annotations

import socket
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..cached_property import cached_property
from ..data.json_values import decode_json
from ..data.narrowing import is_object
from ..errors import CodeModeProtocolError, CodeModeWorkerError
from ..host.imports import importing
from ..protocol.framing import FrameDecoder
from .image import WorkerImage

if TYPE_CHECKING:
    from .isolation import IsolationReport

_MAX_HELLO_BYTES = 65536
_READ_BYTES = 4096


class WorkerEndedEarlyError(CodeModeWorkerError):
    """A worker ended before its hello: it was killed, or could not start."""


async def read_hello(channel: socket.socket, seconds: float) -> tuple[bytes, bytes]:
    """Return kind and payload of a worker's first frame, and make sure that it is alone.

    Raises `TimeoutError` after ``seconds``, `CodeModeWorkerError` or `OSError` for a worker that ends or says more.
    """
    import asyncio

    decoder = FrameDecoder(_MAX_HELLO_BYTES)
    try:
        frames = _frames(decoder, channel.recv(_READ_BYTES))
    except BlockingIOError:
        frames = []
    if not frames:
        async with asyncio.timeout(seconds):
            while not frames:
                frames = _frames(decoder, await asyncio.get_running_loop().sock_recv(channel, _READ_BYTES))
    if len(frames) != 1 or decoder.has_partial_frame:
        raise CodeModeWorkerError("the worker said more than hello")
    return frames[0][:1], frames[0][1:]


def _frames(decoder: FrameDecoder, data: bytes) -> list[bytes]:
    if not data:
        raise WorkerEndedEarlyError("the worker ended before it said hello")
    return decoder.feed(data)


class HelloCheck:
    """Checks hellos against one worker image. Workers of one zygote all say the same, which is then known."""

    def __init__(self, image: WorkerImage, *, isolation_required: bool) -> None:
        self._image = image
        self._isolation_required = isolation_required
        self._accepted: bytes | None = None
        self.report: IsolationReport | None = None
        self.is_prepared = False

    def prepare(self) -> None:
        """Read and import what `check` needs; it would do so itself, on the event loop."""
        _ = self._expected, self._isolation
        self.is_prepared = True

    def check(self, kind: bytes, payload: bytes) -> None:
        """Raise `CodeModeWorkerError` for a worker that may not run programs, `CodeModeProtocolError` for no hello."""
        if kind == b"H" and payload == self._accepted:
            return
        hello = _read(payload)
        if kind == b"F":
            raise CodeModeWorkerError(f"the worker refused to start: {str(hello.get('message'))[:300]}")
        if kind != b"H":
            raise CodeModeProtocolError("the worker spoke before it said hello")
        for name, expected in self._expected.items():
            if hello.get(name) != expected:
                raise CodeModeWorkerError(f"the worker has another {name} than the host: restart the host process")
        report = self._isolation.IsolationReport.from_hello(hello.get("isolation"))
        if self._isolation_required:
            self._isolation.require_isolation(report)
        self.report, self._accepted = report, payload

    @cached_property
    def _isolation(self) -> ModuleType:
        with importing:
            from . import isolation

        return isolation

    @cached_property
    def _expected(self) -> dict[str, str]:
        # Hashed when there is a hello to compare with: the zygote boots meanwhile.
        return {"engine": self._image.engine_version, "kernel": self._image.kernel.sha256()}


def _read(payload: bytes) -> dict[str, Any]:
    try:
        hello = decode_json(payload.decode("utf-8"), max_depth=8)
    except ValueError as error:
        raise CodeModeProtocolError("the worker's first frame is not JSON") from error
    if not is_object(hello):
        raise CodeModeProtocolError("the worker's first frame is not an object")
    return hello
