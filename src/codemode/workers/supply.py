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
from .image import GUEST_RUNTIME, WorkerImage, find_engine_version, is_engine_version_known
from .process import wait_until_readable
from .worker_generations import ExecWorkerSource, PooledWorker, SharePath, WorkerReuseState, WorkerSource
from .worker_inventory import WorkerInventory
from .zygote import Zygote

if TYPE_CHECKING:
    from ..protocol.messages import AnnounceNextProgram


_MAX_DETAIL_CHARACTERS = 200


class IsolationLayerState(StrEnum):
    """Whether one isolation layer is in force."""

    IN_FORCE = layers.IN_FORCE
    REFUSED = layers.REFUSED
    NOT_ON_THIS_PLATFORM = "not on this platform"


@record
class IsolationLayer:
    """One layer of isolation; ``detail`` says what it covers, or why it was refused."""

    name: str
    state: IsolationLayerState
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.state}" + (f" ({self.detail})" if self.detail else "")


@record
class IsolationReport:
    """Every layer in `LAYERS`, in that order."""

    layers: tuple[IsolationLayer, ...]

    @classmethod
    def from_hello(cls, value: object) -> IsolationReport:
        """Read the ``isolation`` object of a hello. Raises `CodeModeProtocolError` when it is not one.

        A layer that it leaves out is not on that worker's platform.
        """
        if not isinstance(value, Mapping):
            raise CodeModeProtocolError("the worker's isolation report is not an object")
        layer_values = cast("Mapping[object, object]", value)
        if any(name not in LAYERS for name in layer_values):
            raise CodeModeProtocolError("the worker's isolation report names an unknown layer")
        return cls(tuple(_parse_isolation_layer(name, layer_values.get(name)) for name in LAYERS))

    def __getitem__(self, name: str) -> IsolationLayer:
        return next(layer for layer in self.layers if layer.name == name)

    def __str__(self) -> str:
        return "\n".join(map(str, self.layers))


def _parse_isolation_layer(name: str, value: object) -> IsolationLayer:
    if value is None:
        return IsolationLayer(name, IsolationLayerState.NOT_ON_THIS_PLATFORM)
    if not isinstance(value, str):
        raise CodeModeProtocolError(f"the worker reported no text for isolation layer {name}")
    state, _, detail = value.partition(": ")
    if state not in (IsolationLayerState.IN_FORCE, IsolationLayerState.REFUSED):
        raise CodeModeProtocolError(f"the worker reported an unknown state of isolation layer {name}")
    return IsolationLayer(name, IsolationLayerState(state), detail[:_MAX_DETAIL_CHARACTERS])


def find_missing_required_layers(report: IsolationReport) -> tuple[IsolationLayer, ...]:
    """The required layers that are not in force."""
    return tuple(
        layer
        for layer in report.layers
        if layer.name in REQUIRED_LAYERS and layer.state is not IsolationLayerState.IN_FORCE
    )


def require_isolation(report: IsolationReport) -> None:
    """Raise `CodeModeWorkerError` naming the required layers that are missing. Details: ``missing``."""
    missing = find_missing_required_layers(report)
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
        raise CodeModeWorkerError("the worker sent more than its hello")
    return frames[0][:1], frames[0][1:]


class HelloValidator:
    """Checks hellos against one worker image. Workers of one zygote all say the same, which is then known."""

    def __init__(self, image: WorkerImage, *, isolation_required: bool) -> None:
        self._image = image
        self._isolation_required = isolation_required
        self._accepted_payload: bytes | None = None
        self.report: IsolationReport | None = None
        self.is_loaded = False

    def load_expected_identity(self) -> None:
        """Read and import what `check_and_record_hello` needs; it would do so itself, on the event loop."""
        _ = self._expected_identity
        self.is_loaded = True

    def check_and_record_hello(self, kind: bytes, payload: bytes) -> None:
        """Raise `CodeModeWorkerError` for a worker that may not run programs, `CodeModeProtocolError` for no hello."""
        if kind == b"H" and payload == self._accepted_payload:
            return
        hello = _parse_hello(payload)
        if kind == b"F":
            raise CodeModeWorkerError(f"the worker refused to start: {str(hello.get('message'))[:300]}")
        if kind != b"H":
            raise CodeModeProtocolError("the worker sent a frame before its hello")
        for name, expected in self._expected_identity.items():
            if hello.get(name) != expected:
                raise CodeModeWorkerError(f"the worker has another {name} than the host: restart the host process")
        report = IsolationReport.from_hello(hello.get("isolation"))
        if self._isolation_required:
            require_isolation(report)
        self.report, self._accepted_payload = report, payload

    @cached_property
    def _expected_identity(self) -> dict[str, str]:
        # Hashed when there is a hello to compare with: the zygote boots meanwhile.
        return {"engine": self._image.engine_version, "kernel": self._image.guest_runtime.compute_sha256()}


def _parse_hello(payload: bytes) -> dict[str, Any]:
    try:
        hello = decode_json(payload.decode("utf-8"), max_depth=8)
    except ValueError as error:
        raise CodeModeProtocolError("the worker's first frame is not JSON") from error
    if not is_object(hello):
        raise CodeModeProtocolError("the worker's first frame is not an object")
    return hello


HARD_MAX_WORKERS = 32
"""More workers at once are for a pool to ask for."""
_MAX_START_ATTEMPTS = 2
# Limit of workers that end early, for example killed by the system: a few at first, because a machine may be unable to
# start any; unlimited within the invocation's time once one has started.
_MAX_FIRST_ENDED_ATTEMPTS, _MAX_ENDED_ATTEMPTS = 4, 200
_FIRST_START_SECONDS = 1.5
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.005, 0.1
ResultT = TypeVar("ResultT")


class WorkerSupply:
    """Gives ready workers as ``options`` want them. ``is_quiet`` says whether there is time to prepare spares."""

    def __init__(
        self, options: PoolOptions, is_quiet: Callable[[], bool], make_source: Callable[[], WorkerSource] | None = None
    ) -> None:
        self._options = options
        # Without a measure of a process's memory, each worker runs one program.
        self._programs_per_worker = options.programs_per_worker if sys.platform == "linux" else 1
        self._hello_validator: HelloValidator | None = None
        self._has_started = False
        max_idle = options.max_workers or HARD_MAX_WORKERS
        self.inventory = WorkerInventory(
            make_source or self._create_source_and_hello_validator, options.spare_workers, is_quiet, max_idle
        )

    @property
    def isolation(self) -> IsolationReport | None:
        """The isolation report of the workers; None before the first one is ready."""
        return self._hello_validator.report if self._hello_validator is not None else None

    def start_first_spare(self) -> None:
        """Start a first spare, unless there was one before. May wait. Failures show when a worker is needed."""
        self.inventory.start_first_spare()

    async def start_spare_and_find_engine_in_thread(self) -> None:
        """Start a first spare in a thread. Afterwards the engine's version is known too, if there is an engine."""
        if not (self.inventory.has_started and is_engine_version_known()):
            await self.run_in_start_thread(self._start_spare_and_find_engine)

    def _start_spare_and_find_engine(self) -> None:
        self.start_first_spare()
        with suppress(CodeModeWorkerError):
            find_engine_version()

    async def run_in_start_thread(self, function: Callable[[], ResultT]) -> ResultT:
        """Do something that may take a while in the thread that starts workers."""
        return await self.inventory.run_in_start_thread(function)

    async def acquire_ready_worker(self, share: SharePath = (), seconds: float = _FIRST_START_SECONDS) -> PooledWorker:
        """Return a worker whose hello was right, kept or new. Raises `CodeModeWorkerError` when none starts.

        A worker that ends before its hello is replaced for ``seconds``, where one of this pool has started before.
        """
        reuses_workers = self._programs_per_worker != 1
        if reuses_workers and (idle_worker := await self._take_ready_idle_worker(share)) is not None:
            return idle_worker
        started_at = time.monotonic()
        for attempt in count(1):
            worker = self.inventory.take_worker_nowait() or await self.inventory.take_worker_in_thread()
            try:
                hello_validator = self._hello_validator
                if hello_validator is None or not hello_validator.is_loaded:
                    hello_validator = await self._load_hello_validator()
                hello_validator.check_and_record_hello(
                    *await read_hello(worker.process.channel, worker.retirable_source.hello_seconds)
                )
            except (TimeoutError, OSError, CodeModeError) as error:
                await self._discard_worker_and_pause_or_raise(worker, error, attempt, started_at, seconds)
            except BaseException:
                self.close_worker(worker)
                raise
            else:
                generation = worker.retirable_source
                if not generation.has_started or generation.early_exits_in_a_row:
                    generation.record_worker_ready()
                self._has_started = True
                if reuses_workers:
                    worker.reuse = WorkerReuseState(share, self._programs_per_worker)
                return worker
        raise AssertionError("unreachable")

    async def _discard_worker_and_pause_or_raise(
        self, worker: PooledWorker, error: Exception, attempt: int, started_at: float, seconds: float
    ) -> None:
        """Give up a worker that did not become ready. Raises `CodeModeError` where no further one is tried."""
        has_ended = isinstance(error, (WorkerEndedEarlyError, ConnectionError))
        self.inventory.close_failed_worker_and_retire_source(worker, has_ended=has_ended)
        reason = worker.retirable_source.source.describe_failure()  # it may have come behind the end of the worker
        waited_seconds = time.monotonic() - started_at
        max_attempts = _MAX_ENDED_ATTEMPTS if self._has_started else _MAX_FIRST_ENDED_ATTEMPTS
        is_late = waited_seconds > (seconds if self._has_started else _FIRST_START_SECONDS)
        if attempt >= (max_attempts if has_ended and not reason and not is_late else _MAX_START_ATTEMPTS):
            raise _to_start_error(error, reason) from error
        await _pause_before_retry(attempt)

    def create_next_program_announcement(self, reuse: WorkerReuseState) -> AnnounceNextProgram:
        """Return the frame that a reused worker gets before each program."""
        with importing:
            from ..protocol.messages import (
                AnnounceNextProgram,  # late: a cold start would import it before a first worker
            )

        return AnnounceNextProgram(reuse.program_count)

    def keep_worker_or_mark_finished(self, worker: PooledWorker, frame: bytes = b"") -> None:
        """Keep a worker whose program ended well for the next one of its share, or close it soon.

        The host must confirm the end, and measure the remaining memory. ``frame`` is what it has sent since.
        """
        if worker.reuse is None or not worker.reuse.record_program_end_and_check_reusable(
            frame, worker.process.read_memory()
        ):
            self.inventory.finished.append(worker)
        else:
            self.inventory.keep_idle_worker_or_mark_finished(worker)

    async def _take_ready_idle_worker(self, share: SharePath) -> PooledWorker | None:
        """Return a worker that has a fresh engine, as it says itself, and has said nothing else."""
        while (worker := self.inventory.take_idle_worker(share)) is not None and (reuse := worker.reuse) is not None:
            try:
                if not reuse.frame:
                    reuse.frame = b"".join(
                        await read_hello(worker.process.channel, worker.retirable_source.hello_seconds)
                    )
            except (TimeoutError, OSError, CodeModeError):
                pass  # it has ended: its process had no engine left, or has failed
            except BaseException:
                self.close_worker(worker)
                raise
            # Whatever else there is to read is its end, or what no worker says between two programs.
            if reuse.try_begin_program() and not wait_until_readable(worker.process.channel.fileno(), 0):
                return worker
            self.close_worker(worker)
        return None

    def close_worker(self, worker: PooledWorker) -> None:
        """Kill a worker that was in use."""
        self.inventory.close_worker(worker)

    def close_idle_workers(self, share: SharePath) -> None:
        """Close the workers that are kept for this share, and for its parts."""
        self.inventory.close_idle_workers(share)

    def refill_spares(self, wanted: int | None = None) -> None:
        """Start spares until there are as many as wanted, ``spare_workers`` by default and at the most.

        Failures show when a worker is needed. Closes what is done first. Waits for nothing.
        """
        self.inventory.refill_spares(self._options.spare_workers if wanted is None else wanted)

    def close(self) -> None:
        """Kill spares and zygote, and with the zygote every worker. Waits until they are dead, for milliseconds."""
        self.inventory.close()

    def close_descriptors(self) -> None:
        """In a forked child of the host: give up every descriptor, and touch no process of the parent's."""
        self.inventory.close_descriptors()

    async def _load_hello_validator(self) -> HelloValidator:
        # The first worker boots meanwhile, and what it will be compared with is in files.
        await self.run_in_start_thread(lambda: self._get_or_create_hello_validator().load_expected_identity())
        return self._get_or_create_hello_validator()

    def _get_or_create_hello_validator(self, image: WorkerImage | None = None) -> HelloValidator:
        if self._hello_validator is None:
            self._hello_validator = HelloValidator(
                image or self._create_image(), isolation_required=self._options.isolation == "required"
            )
        return self._hello_validator

    def _create_source_and_hello_validator(self) -> WorkerSource:
        image = self._create_image()
        self._get_or_create_hello_validator(image)
        source_class = Zygote if self._uses_fork_or_raise() else ExecWorkerSource
        return source_class(
            image,
            isolation_required=self._options.isolation == "required",
            programs_per_worker=self._programs_per_worker,
        )

    def _create_image(self) -> WorkerImage:
        try:
            return WorkerImage.from_installed(GUEST_RUNTIME, self._options.worker_command or ())
        except OSError as error:
            raise CodeModeWorkerError(f"the files of a worker cannot be read: {error}") from error

    def _uses_fork_or_raise(self) -> bool:
        method = self._options.start_method
        if method == "fork" and sys.platform != "linux":
            raise CodeModeWorkerError("start_method 'fork' needs Linux; use 'auto' or 'exec'")
        return method != "exec" and sys.platform == "linux"


async def _pause_before_retry(attempt: int) -> None:
    import asyncio  # late: the first worker starts before it is imported

    await asyncio.sleep(min(_MIN_PAUSE_SECONDS * 2 ** min(attempt - 1, 10), _MAX_PAUSE_SECONDS))


def _to_start_error(error: BaseException, reason: str) -> CodeModeError:
    if reason:
        return CodeModeWorkerError(f"no worker started: {reason}")
    if isinstance(error, CodeModeError) and not isinstance(error, WorkerEndedEarlyError):
        return error
    if isinstance(error, TimeoutError):
        return CodeModeWorkerError("no worker started in time")
    return CodeModeWorkerError(f"no worker started: {error}")
