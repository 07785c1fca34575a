"""One run of exec from its reservation to its end, and the usage counters."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...data.narrowing import mapping_or_empty
from ...host.forks import create_fork_safe_lock
from ...options.parts import Telemetry
from .options import InvalidConfigError

if TYPE_CHECKING:
    from ...execution.call_context import StateBackend
    from ...execution.outcome import SuspendedRun
    from ...stores.records import Lease


COUNTER_NAMES = (
    "exec",
    "wait",
    "search",
    "describe",
    "call",
    "rests",
    "wakesWarm",
    "wakesCold",
    "evictions",
    "expiries",
)
_REPORTED_COUNTERS = frozenset(COUNTER_NAMES) - {"rests"}
_METRICS: dict[str, tuple[str, dict[str, str]]] = {
    "exec": ("exec_wait.calls", {"gen_ai.tool.name": "exec"}),
    "wait": ("exec_wait.calls", {"gen_ai.tool.name": "wait"}),
    "search": ("exec_wait.lookups", {"code_mode.operation": "search"}),
    "describe": ("exec_wait.lookups", {"code_mode.operation": "describe"}),
    "rests": ("exec_wait.rests", {}),
    "wakesWarm": ("exec_wait.wakes", {"code_mode.worker": "warm"}),
    "wakesCold": ("exec_wait.wakes", {"code_mode.worker": "cold"}),
    "evictions": ("exec_wait.evictions", {}),
    "expiries": ("exec_wait.expiries", {}),
}
_log = logging.getLogger("codemode.exec_wait")

MetricRecorder = Callable[[str, int, Any], None]
"""``(name, amount, attributes)``: adds to a metric."""


class UsageCounts:
    """Counters of one pair of tools, also reported as metrics if enabled. Thread-safe.

    ``visible``: the names of the tools that the model sees.
    """

    def __init__(self, visible: tuple[str, ...] = (), record: MetricRecorder | None = None) -> None:
        self._counts: Counter[str] = Counter()
        self._caps: Counter[str] = Counter()
        self._lock = create_fork_safe_lock()
        self._record_metric = record
        self._called_tools: Counter[str] = Counter()
        self._catalog: Mapping[str, int] = {}
        self._is_closed = False
        self.visible: tuple[str, ...] = ()
        self.record_visible_tools(visible)

    def count_event(self, event: str, by: int = 1, run: ProgramRun | None = None) -> None:
        """Count an event, also for a run if it belongs to one."""
        with self._lock:
            self._counts[event] += by
            if run is not None:
                run.counts[event] = run.counts.get(event, 0) + by
        if self._record_metric is not None:
            name, attributes = _METRICS[event]
            self._record_metric(name, by, attributes)
        if run is not None and _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: %s", shorten_run_id(run), event)

    def count_new_tool_calls(self, ids: Mapping[str, int], run: ProgramRun) -> None:
        """Count the new calls among all calls of a run so far, by tool id."""
        with self._lock:
            counted_before = run.calls_by_tool
            new = {
                name: count - counted_before.get(name, 0)
                for name, count in ids.items()
                if count > counted_before.get(name, 0)
            }
            self._counts["call"] += sum(new.values())
            self._called_tools.update(new)
            counted_before.update({name: ids[name] for name in new})
        for name, count in new.items():
            if self._record_metric is not None:
                self._record_metric("exec_wait.tool_calls", count, {"gen_ai.tool.name": name})
            _log.debug("%s: called %s", shorten_run_id(run), name)

    def count_exceeded_limit(self, code: str) -> None:
        """Count a limit that ended a program."""
        with self._lock:
            self._caps[code] += 1
        if self._record_metric is not None:
            self._record_metric("exec_wait.caps", 1, {"code_mode.cap": code})

    def record_catalog_size(self, by_source: Mapping[str, int]) -> None:
        """Record the current number of tools by source."""
        if self._record_metric is None or by_source == self._catalog or self._is_closed:
            return
        with self._lock:
            previous, self._catalog = self._catalog, dict(by_source)
        for source in previous.keys() | by_source.keys():
            change = by_source.get(source, 0) - previous.get(source, 0)
            if change:
                self._record_metric("exec_wait.catalog.tools.current", change, {"code_mode.source": source})

    def record_visible_tools(self, visible_names: tuple[str, ...]) -> None:
        """Record the tools that the model sees now."""
        previous, self.visible = self.visible, visible_names
        self._add_to_visible_gauge(previous, -1)
        self._add_to_visible_gauge(visible_names, 1)

    def _add_to_visible_gauge(self, names: tuple[str, ...], by: int) -> None:
        if self._record_metric is not None and not self._is_closed:
            for name in names:
                self._record_metric("exec_wait.visible_tools.current", by, {"gen_ai.tool.name": name})

    def close(self) -> None:
        """Subtract these tools from the gauges; counters keep their values."""
        self.record_catalog_size({})
        self._add_to_visible_gauge(self.visible, -1)
        self._is_closed = True

    def to_dict(self) -> dict[str, Any]:
        """Return all counters by name, limits by error code, visible tools and called tools."""
        with self._lock:
            counts = {name: self._counts[name] for name in COUNTER_NAMES}
            tools = {"visibleTools": list(self.visible), "calledTools": sorted(self._called_tools)}
            return {**counts, "caps": dict(self._caps), **tools}


def create_usage_counts(telemetry: Telemetry, visible: tuple[str, ...]) -> UsageCounts:
    """Return the counters, with metrics if telemetry is enabled. Raises `InvalidConfigError`."""
    if not telemetry.is_enabled:
        return UsageCounts(visible)
    from ...observe.telemetry import create_surface_metric_recorder_or_none

    try:
        return UsageCounts(visible, create_surface_metric_recorder_or_none(telemetry))
    except ValueError as error:
        raise InvalidConfigError(f"settings.{error}") from error


def shorten_run_id(run: ProgramRun) -> str:
    """Return a short id for logs, which does not give access to the run."""
    return run.run_id[:12]


def log_result(run: ProgramRun, result: Any) -> None:
    """Log the result of a call of the model."""
    if _log.isEnabledFor(logging.DEBUG):
        fields = mapping_or_empty(result)
        reason = fields.get("code") or fields.get("reason") or ""
        _log.debug("%s: %s %s", shorten_run_id(run), fields.get("status", "interrupt"), reason)


def build_telemetry(
    visible: tuple[str, ...],
    by_source: Mapping[str, int],
    called_tools: list[str],
    suspension_count: int,
    counts: Mapping[str, int],
) -> dict[str, Any]:
    """Return the telemetry of a result: names, and counters other than 0."""
    return {
        "visibleTools": list(visible),
        "catalog": {"size": sum(by_source.values()), "bySource": dict(by_source)},
        "calledTools": called_tools,
        "rests": suspension_count,
        "counts": {name: count for name, count in counts.items() if count and name in _REPORTED_COUNTERS},
    }


RUNNING, WAITING, COMPLETED = "running", "waiting", "completed"
FAILED, EXPIRED, ABORTED = "failed", "expired", "aborted"
ACTIVE_STATES = (RUNNING, WAITING)
RUN_PREFIX = "run_"


@dataclass(frozen=True)
class RunInfo:
    """One run, as returned by `ExecWaitTools.runs`.

    ``state`` is "running", "waiting", "completed", "failed", "expired" or "aborted"; ``reason`` is that of the last
    suspension: "yield", "pending_tools" or None. ``pending``: ids of tools with calls in flight. ``warm``: whether the
    run keeps a worker. ``bytes``: size of program, ledger and output at the last suspension. ``expires_at_ms``: Unix
    time at which a waiting run expires, else None.
    """

    run_id: str
    state: str
    reason: str | None
    pending: tuple[str, ...]
    warm: bool
    bytes: int
    expires_at_ms: int | None


class RunAbortedBeforeStartError(Exception):
    """The run was aborted before its program started."""


def create_run_id() -> str:
    """Return an unguessable id: with 128 random bits, lookup times reveal nothing about other ids."""
    return f"{RUN_PREFIX}{os.urandom(16).hex()}"


@dataclass(eq=False)
class ProgramRun:
    """One run. The lock of its `RunRegistry` guards its fields; its timers belong to its event loop."""

    scope: str
    code: str
    run_id: str = field(default_factory=create_run_id)
    state: str = RUNNING
    reason: str | None = None
    execution: SuspendedRun | None = None
    loop: asyncio.AbstractEventLoop | None = None
    suspension_count: int = 0
    size_bytes: int = 0
    expires_at_ms: int | None = None
    ended_at: float | None = None  # `monotonic_seconds`
    end_message: str = ""  # message for a later wait if the run was aborted or expired
    timers: list[asyncio.TimerHandle] = field(default_factory=list[asyncio.TimerHandle])
    abort_reason: str | None = None
    is_lost: bool = False  # another process has the run
    is_released: bool = False  # aborted here only: other processes may continue it
    is_parked: bool = False  # waits for a decision in the store; does not count as active
    asked_tools: tuple[str, ...] = ()  # tools that wait for a decision
    tool_ids_by_path: Mapping[str, str] = field(default_factory=dict[str, str])  # by namespace path
    lease: Lease | None = None
    lease_renewal: asyncio.Task[None] | None = None
    starting_task: asyncio.Task[Any] | None = None  # the task that starts or resumes the run
    is_start_cancelled: bool = False
    calls_by_tool: dict[str, int] = field(default_factory=dict[str, int])  # number of calls by tool id
    counts: dict[str, int] = field(default_factory=dict[str, int])
    language: str | None = None
    state_location: StateBackend | None = None  # where its program shares values with later ones
    undelivered_result: Any = None  # a result whose caller was cancelled

    @property
    def is_active(self) -> bool:
        """True while it counts as running or waiting."""
        return self.state in ACTIVE_STATES and not self.is_parked

    @property
    def is_waiting_for_person(self) -> bool:
        """True while it waits for a decision in the store."""
        return self.is_parked and self.state == WAITING

    @property
    def is_warm(self) -> bool:
        """True while it waits and keeps a worker."""
        return self.state == WAITING and self.execution is not None and self.execution.is_warm

    @property
    def has_calls_in_flight(self) -> bool:
        """True while it waits for running calls; a call that waits for a person does not count."""
        pending = () if self.execution is None or self.state != WAITING else self.execution.pending_calls
        return any(call.status == "running" for call in pending)

    def call_on_loop(self, work: Callable[[], Any]) -> None:
        """Call a function on the event loop of the run, now or soon; do nothing if the loop is closed."""
        loop = self.loop
        if loop is None or loop.is_closed():
            return
        if loop is _get_running_loop():
            work()
            return
        try:
            loop.call_soon_threadsafe(work)
        except RuntimeError:  # closed meanwhile
            return

    def cancellable_start(self) -> CancellableStart:
        """Return a context in which `cancel_start` cancels the current task. Raises `RunAbortedBeforeStartError`."""
        return CancellableStart(self)

    def cancel_start(self) -> None:
        """Cancel the task that starts the run, unless the program has started. Call it on the loop of the run."""
        if (
            self.starting_task is not None
            and not (self.execution is not None and self.execution.has_started)
            and not self.is_start_cancelled
        ):
            self.is_start_cancelled = self.starting_task.cancel()

    def cancel_timers(self) -> None:
        """Cancel the timers. Call it on the loop of the run."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()

    def cancel_lease_renewal(self) -> None:
        """Stop renewing the lease. Call it on the loop of the run."""
        renewal, self.lease_renewal = self.lease_renewal, None
        if renewal is not None:
            renewal.cancel()

    def to_ended_run(self) -> ProgramRun:
        """Return what is kept of an ended run, without its program."""
        suspension: dict[str, Any] = {
            "reason": self.reason,
            "suspension_count": self.suspension_count,
            "size_bytes": self.size_bytes,
        }
        end: dict[str, Any] = {"ended_at": self.ended_at, "end_message": self.end_message}
        return ProgramRun(self.scope, "", self.run_id, self.state, **end, **suspension)

    def to_info(self) -> RunInfo:
        """Return the public information about the run."""
        pending = () if self.execution is None or self.state != WAITING else self.execution.pending_calls
        names = tuple(call.name for call in pending) or (self.asked_tools if self.state == WAITING else ())
        return RunInfo(self.run_id, self.state, self.reason, names, self.is_warm, self.size_bytes, self.expires_at_ms)


class CancellableStart:
    """The context in which a task starts or resumes a run."""

    __slots__ = ("_run",)

    def __init__(self, run: ProgramRun) -> None:
        self._run = run

    def __enter__(self) -> None:
        if self._run.abort_reason is not None:
            raise RunAbortedBeforeStartError
        self._run.starting_task = asyncio.current_task()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task, self._run.starting_task = self._run.starting_task, None
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        if is_cancelled and self._run.is_start_cancelled and task is not None and task.uncancel() == 0:
            raise RunAbortedBeforeStartError from None


def _get_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
