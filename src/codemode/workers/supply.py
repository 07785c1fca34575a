"""Supply ready workers: started in two attempts, handshake and isolation checked."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..cached_property import cached_property
from ..data.json_values import decode_json
from ..data.narrowing import is_object
from ..errors import CodeModeError, CodeModeProtocolError, CodeModeWorkerError
from ..guest import layers
from ..guest.layers import LAYERS, REQUIRED_LAYERS
from ..host.imports import importing
from ..options.parts import PoolOptions
from ..protocol.framing import FrameDecoder
from ..records import record
from .image import KERNEL, WorkerImage, engine_version, engine_version_is_known
from .process import is_readable
from .worker_generations import ExecSource, PooledWorker, Share, Tenure, WorkerSource
from .worker_inventory import Stock
from .zygote import Zygote

if TYPE_CHECKING:
    from ..protocol.messages import BeginProgram


_MAX_DETAIL_CHARACTERS = 200


class LayerState(StrEnum):
    """How one layer stands."""

    IN_FORCE = layers.IN_FORCE
    REFUSED = layers.REFUSED
    NOT_ON_THIS_PLATFORM = "not on this platform"


@record
class Layer:
    """One layer of isolation; ``detail`` says what it covers, or why it was refused."""

    name: str
    state: LayerState
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.state}" + (f" ({self.detail})" if self.detail else "")


@record
class IsolationReport:
    """Every layer in `LAYERS`, in that order."""

    layers: tuple[Layer, ...]

    @classmethod
    def from_hello(cls, value: object) -> IsolationReport:
        """Read the ``isolation`` object of a hello. Raises `CodeModeProtocolError` when it is not one.

        A layer that it leaves out is not on that worker's platform.
        """
        if not isinstance(value, Mapping):
            raise CodeModeProtocolError("the worker's isolation report is not an object")
        reported = cast("Mapping[object, object]", value)
        if any(name not in LAYERS for name in reported):
            raise CodeModeProtocolError("the worker's isolation report names an unknown layer")
        return cls(tuple(_read_layer(name, reported.get(name)) for name in LAYERS))

    def __getitem__(self, name: str) -> Layer:
        return next(layer for layer in self.layers if layer.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.layers))


def _read_layer(name: str, value: object) -> Layer:
    if value is None:
        return Layer(name, LayerState.NOT_ON_THIS_PLATFORM)
    if not isinstance(value, str):
        raise CodeModeProtocolError(f"the worker reported no text for isolation layer {name}")
    state, _, detail = value.partition(": ")
    if state not in (LayerState.IN_FORCE, LayerState.REFUSED):
        raise CodeModeProtocolError(f"the worker reported an unknown state of isolation layer {name}")
    return Layer(name, LayerState(state), detail[:_MAX_DETAIL_CHARACTERS])


def missing_required(report: IsolationReport) -> tuple[Layer, ...]:
    """The required layers that are not in force."""
    return tuple(
        layer for layer in report.layers if layer.name in REQUIRED_LAYERS and layer.state is not LayerState.IN_FORCE
    )


def require_isolation(report: IsolationReport) -> None:
    """Raise `CodeModeWorkerError` naming the required layers that are missing. Details: ``missing``."""
    missing = missing_required(report)
    if missing:
        raise CodeModeWorkerError(
            'isolation="required" is not met here; missing: ' + "; ".join(map(str, missing)),
            details={"missing": [layer.name for layer in missing]},
        )


_MAX_HELLO_BYTES = 65536
_READ_BYTES = 4096


class WorkerEndedEarlyError(CodeModeWorkerError):
    """A worker ended before its hello: it was killed, or could not start."""


async def read_hello(channel: socket.socket, seconds: float) -> tuple[bytes, bytes]:
    """Return kind and payload of a worker's first frame, and make sure that it is alone.

    Raises `TimeoutError` after ``seconds``, `CodeModeWorkerError` or `OSError` for a worker that ends or says more.
    """
    import asyncio

    decoder, frames = FrameDecoder(_MAX_HELLO_BYTES), list[bytes]()
    data: bytes | None = None
    try:
        data = channel.recv(_READ_BYTES)
        frames = decoder.feed(data)
    except BlockingIOError:
        pass
    if data != b"" and not frames:
        async with asyncio.timeout(seconds):
            while data != b"" and not frames:
                data = await asyncio.get_running_loop().sock_recv(channel, _READ_BYTES)
                frames = decoder.feed(data)
    if not frames:
        raise WorkerEndedEarlyError("the worker ended before it said hello")
    if len(frames) != 1 or decoder.buffer:
        raise CodeModeWorkerError("the worker said more than hello")
    return frames[0][:1], frames[0][1:]


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
        _ = self._expected
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
        report = IsolationReport.from_hello(hello.get("isolation"))
        if self._isolation_required:
            require_isolation(report)
        self.report, self._accepted = report, payload

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


HARD_MAXIMUM = 32
"""More workers at once are for a pool to ask for."""
_START_ATTEMPTS = 2
# Of workers that only end, as those do that somebody kills: a few at first, for a machine may not be able to start any;
# once one has started, as many as the invocation has time for.
_FIRST_ENDED_ATTEMPTS, _MAX_ENDED_ATTEMPTS = 4, 200
_FIRST_START_SECONDS = 1.5
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.005, 0.1
ResultT = TypeVar("ResultT")


class Supply:
    """Gives ready workers as ``options`` want them. ``is_quiet`` says whether there is time to prepare spares."""

    def __init__(
        self, options: PoolOptions, is_quiet: Callable[[], bool], make_source: Callable[[], WorkerSource] | None = None
    ) -> None:
        self._options = options
        # Where nothing tells how much memory a process has, each runs one.
        self._programs_per_worker = options.programs_per_worker if sys.platform == "linux" else 1
        self._hello: HelloCheck | None = None
        self._has_started = False
        most_kept = options.max_workers or HARD_MAXIMUM
        self.stock = Stock(make_source or self._installed_source, options.spare_workers, is_quiet, most_kept)

    @property
    def isolation(self) -> IsolationReport | None:
        """What confines the workers; None before the first one is ready."""
        return self._hello.report if self._hello is not None else None

    def start(self) -> None:
        """Start a first spare, unless there was one before. May wait. Failures show when a worker is needed."""
        self.stock.start()

    async def begin(self) -> None:
        """Do what `start` does, in a thread. Afterwards the engine's version is known too, if there is an engine."""
        if not (self.stock.has_begun and engine_version_is_known()):
            await self.off_loop(self._begin)

    def _begin(self) -> None:
        self.start()
        with suppress(CodeModeWorkerError):
            engine_version()

    async def off_loop(self, work: Callable[[], ResultT]) -> ResultT:
        """Do something that may take a while in the thread that starts workers."""
        return await self.stock.off_loop(work)

    async def ready_worker(self, share: Share = (), seconds: float = _FIRST_START_SECONDS) -> PooledWorker:
        """Return a worker whose hello was right, kept or new. Raises `CodeModeWorkerError` when none starts.

        A worker that ends before its hello is replaced for ``seconds``, where one of this pool has started before.
        """
        keeps = self._programs_per_worker != 1
        if keeps and (kept := await self._kept_worker(share)) is not None:
            return kept
        began = time.monotonic()
        for attempt in count(1):
            worker = self.stock.take_at_once() or await self.stock.take()
            try:
                check = self._hello
                if check is None or not check.is_prepared:
                    check = await self._prepared_check()
                check.check(*await read_hello(worker.process.channel, worker.generation.hello_seconds))
            except (TimeoutError, OSError, CodeModeError) as error:
                await self._replace_or_raise(worker, error, attempt, began, seconds)
            except BaseException:
                self.close_worker(worker)
                raise
            else:
                generation = worker.generation
                if not generation.has_started or generation.ended_in_a_row:
                    generation.started()
                self._has_started = True
                if keeps:
                    worker.tenure = Tenure(share, self._programs_per_worker)
                return worker
        raise AssertionError("unreachable")

    async def _replace_or_raise(
        self, worker: PooledWorker, error: Exception, attempt: int, began: float, seconds: float
    ) -> None:
        """Give up a worker that did not become ready. Raises `CodeModeError` where no further one is tried."""
        has_ended = isinstance(error, (WorkerEndedEarlyError, ConnectionError))
        self.stock.did_not_start(worker, has_ended=has_ended)
        reason = worker.generation.source.failure()  # it may have come behind the end of the worker
        waited = time.monotonic() - began
        attempts = _MAX_ENDED_ATTEMPTS if self._has_started else _FIRST_ENDED_ATTEMPTS
        is_late = waited > (seconds if self._has_started else _FIRST_START_SECONDS)
        if attempt >= (attempts if has_ended and not reason and not is_late else _START_ATTEMPTS):
            raise _not_started(error, reason) from error
        await _pause(attempt)

    def first_message(self, tenure: Tenure) -> BeginProgram:
        """Return what a worker that runs more than one program is told before each."""
        with importing:
            from ..protocol.messages import BeginProgram  # late: a cold start would import it before a first worker

        return BeginProgram(tenure.programs)

    def keep(self, worker: PooledWorker, said: bytes = b"") -> None:
        """Let a worker whose program has ended well wait for the next one of its share, or be closed soon.

        It is for the host to say that it has, and to measure what is left. ``said``: the frame that was sent since.
        """
        if worker.tenure is None or not worker.tenure.end(said, worker.process.memory()):
            self.stock.done.append(worker)
        else:
            self.stock.keep(worker)

    async def _kept_worker(self, share: Share) -> PooledWorker | None:
        """Return a worker that has a fresh engine, as it says itself, and has said nothing else."""
        while (worker := self.stock.take_kept(share)) is not None and (tenure := worker.tenure) is not None:
            try:
                if not tenure.said:
                    tenure.said = b"".join(await read_hello(worker.process.channel, worker.generation.hello_seconds))
            except (TimeoutError, OSError, CodeModeError):
                pass  # it has ended: its process had no engine left, or has failed
            except BaseException:
                self.close_worker(worker)
                raise
            # Whatever else there is to read is its end, or what no worker says between two programs.
            if tenure.begin() and not is_readable(worker.process.channel.fileno(), 0):
                return worker
            self.close_worker(worker)
        return None

    def close_worker(self, worker: PooledWorker) -> None:
        """Kill a worker that was in use."""
        self.stock.close_worker(worker)

    def end_kept(self, share: Share) -> None:
        """Close the workers that are kept for this share, and for its parts."""
        self.stock.end_kept(share)

    def refill(self, wanted: int | None = None) -> None:
        """Start spares until there are as many as wanted, ``spare_workers`` by default and at the most.

        Failures show when a worker is needed. Closes what is done first. Waits for nothing.
        """
        self.stock.refill(self._options.spare_workers if wanted is None else wanted)

    def close(self) -> None:
        """Kill spares and zygote, and with the zygote every worker. Waits until they are dead, for milliseconds."""
        self.stock.close()

    def abandon(self) -> None:
        """In a forked child of the host: give up every descriptor, and touch no process of the parent's."""
        self.stock.abandon()

    async def _prepared_check(self) -> HelloCheck:
        # The first worker boots meanwhile, and what it will be compared with is in files.
        await self.off_loop(lambda: self._hello_check().prepare())
        return self._hello_check()

    def _hello_check(self, image: WorkerImage | None = None) -> HelloCheck:
        if self._hello is None:
            self._hello = HelloCheck(image or self._image(), isolation_required=self._options.isolation == "required")
        return self._hello

    def _installed_source(self) -> WorkerSource:
        image = self._image()
        self._hello_check(image)
        make = Zygote if self._forks() else ExecSource
        return make(
            image,
            isolation_required=self._options.isolation == "required",
            programs_per_worker=self._programs_per_worker,
        )

    def _image(self) -> WorkerImage:
        try:
            return WorkerImage.installed(KERNEL, self._options.worker_command or ())
        except OSError as error:
            raise CodeModeWorkerError(f"the files of a worker cannot be read: {error}") from error

    def _forks(self) -> bool:
        method = self._options.start_method
        if method == "fork" and sys.platform != "linux":
            raise CodeModeWorkerError("start_method 'fork' needs Linux; use 'auto' or 'exec'")
        return method != "exec" and sys.platform == "linux"


async def _pause(attempt: int) -> None:
    import asyncio  # late: the first worker starts before it is imported

    await asyncio.sleep(min(_MIN_PAUSE_SECONDS * 2 ** min(attempt - 1, 10), _MAX_PAUSE_SECONDS))


def _not_started(error: BaseException, reason: str) -> CodeModeError:
    if reason:
        return CodeModeWorkerError(f"no worker started: {reason}")
    if isinstance(error, CodeModeError) and not isinstance(error, WorkerEndedEarlyError):
        return error
    if isinstance(error, TimeoutError):
        return CodeModeWorkerError("no worker started in time")
    return CodeModeWorkerError(f"no worker started: {error}")
