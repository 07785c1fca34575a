"""One run of a pair from its reservation to its end, and what telemetry counts of runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...data.narrowing import mapping_or_empty
from ...host.forks import forkable_lock
from ...options.parts import Telemetry
from .options import InvalidConfigError

if TYPE_CHECKING:
    from ...execution.call_context import StatePlace
    from ...execution.outcome import RestingRun
    from ...stores.records import Lease


COUNTED = ("exec", "wait", "search", "describe", "call", "rests", "wakesWarm", "wakesCold", "evictions", "expiries")
_TOLD = frozenset(COUNTED) - {"rests"}
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

Metrics = Callable[[str, int, Any], None]
"""Takes the name of a metric, what to add, and its attributes."""


class Counts:
    """Counts of one pair since it was made, and metrics where they are wanted. Safe to use from several threads.

    ``visible`` are the names that the model sees.
    """

    def __init__(self, visible: tuple[str, ...] = (), record: Metrics | None = None) -> None:
        self._counts: Counter[str] = Counter()
        self._caps: Counter[str] = Counter()
        self._lock = forkable_lock()
        self._record = record
        self._called: Counter[str] = Counter()
        self._catalog: Mapping[str, int] = {}
        self._is_closed = False
        self.visible: tuple[str, ...] = ()
        self.show(visible)

    def add(self, what: str, by: int = 1, one: WaitingRun | None = None) -> None:
        """Count something that happened, to a run if it was to one."""
        with self._lock:
            self._counts[what] += by
            if one is not None:
                one.counts[what] = one.counts.get(what, 0) + by
        if self._record is not None:
            name, attributes = _METRICS[what]
            self._record(name, by, attributes)
        if one is not None and _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s: %s", short_id(one), what)

    def called(self, ids: Mapping[str, int], one: WaitingRun) -> None:
        """Count the calls that a run has made by now, by the ids of their tools."""
        with self._lock:
            was = one.called
            new = {name: count - was.get(name, 0) for name, count in ids.items() if count > was.get(name, 0)}
            self._counts["call"] += sum(new.values())
            self._called.update(new)
            was.update({name: ids[name] for name in new})
        for name, count in new.items():
            if self._record is not None:
                self._record("exec_wait.tool_calls", count, {"gen_ai.tool.name": name})
            _log.debug("%s: called %s", short_id(one), name)

    def cap(self, code: str) -> None:
        """Count a limit that ended a program."""
        with self._lock:
            self._caps[code] += 1
        if self._record is not None:
            self._record("exec_wait.caps", 1, {"code_mode.cap": code})

    def catalog(self, by_source: Mapping[str, int]) -> None:
        """Note how many tools there are now of each source."""
        if self._record is None or by_source == self._catalog or self._is_closed:
            return
        with self._lock:
            before, self._catalog = self._catalog, dict(by_source)
        for source in before.keys() | by_source.keys():
            change = by_source.get(source, 0) - before.get(source, 0)
            if change:
                self._record("exec_wait.catalog.tools.current", change, {"code_mode.source": source})

    def show(self, visible: tuple[str, ...]) -> None:
        """Note what the model sees now."""
        before, self.visible = self.visible, visible
        self._record_visible(before, -1)
        self._record_visible(visible, 1)

    def _record_visible(self, names: tuple[str, ...], by: int) -> None:
        if self._record is not None and not self._is_closed:
            for name in names:
                self._record("exec_wait.visible_tools.current", by, {"gen_ai.tool.name": name})

    def close(self) -> None:
        """Note that the pair is there no more. What has been counted is kept."""
        self.catalog({})
        self._record_visible(self.visible, -1)
        self._is_closed = True

    def shown(self) -> dict[str, Any]:
        """Return all counts by name, how often each limit has ended a program, what is visible, and what was called."""
        with self._lock:
            counted = {name: self._counts[name] for name in COUNTED}
            told = {"visibleTools": list(self.visible), "calledTools": sorted(self._called)}
            return {**counted, "caps": dict(self._caps), **told}


def counts_of(telemetry: Telemetry, visible: tuple[str, ...]) -> Counts:
    """Return the counts of a pair, metrics too where telemetry is enabled. Raises `InvalidConfigError`."""
    if not telemetry.is_enabled:
        return Counts(visible)
    from ...observe.telemetry import surface_counts

    try:
        return Counts(visible, surface_counts(telemetry))
    except ValueError as error:
        raise InvalidConfigError(f"settings.{error}") from error


def short_id(one: WaitingRun) -> str:
    """Return a name of a run for logs, with which nobody can go on with it."""
    return one.run_id[:12]


def log_result(one: WaitingRun, result: Any) -> None:
    """Say what a call of the model has come to."""
    if _log.isEnabledFor(logging.DEBUG):
        said = mapping_or_empty(result)
        why = said.get("code") or said.get("reason") or ""
        _log.debug("%s: %s %s", short_id(one), said.get("status", "interrupt"), why)


def telemetry_of(
    visible: tuple[str, ...],
    by_source: Mapping[str, int],
    called: list[str],
    rests: int,
    counts: Mapping[str, int],
) -> dict[str, Any]:
    """Return what a result tells of its run: names and numbers. Of counts those that are not 0."""
    return {
        "visibleTools": list(visible),
        "catalog": {"size": sum(by_source.values()), "bySource": dict(by_source)},
        "calledTools": called,
        "rests": rests,
        "counts": {name: count for name, count in counts.items() if count and name in _TOLD},
    }


RUNNING, WAITING, COMPLETED = "running", "waiting", "completed"
FAILED, EXPIRED, ABORTED = "failed", "expired", "aborted"
LIVE = (RUNNING, WAITING)
RUN_PREFIX = "run_"


@dataclass(frozen=True)
class RunInfo:
    """What `ExecWaitTools.runs` tells of one run.

    ``state`` is "running", "waiting", "completed", "failed", "expired" or "aborted"; ``reason`` why it has rested last,
    "yield", "pending_tools" or None. ``pending`` has the ids of the tools whose calls are in flight, ``warm`` whether
    it keeps a worker, ``bytes`` what program, ledger and output took at its last rest, ``expires_at_ms``
    (Unix time) when it ends if nobody comes back; None unless it waits.
    """

    run_id: str
    state: str
    reason: str | None
    pending: tuple[str, ...]
    warm: bool
    bytes: int
    expires_at_ms: int | None


class RunAbortedError(Exception):
    """The run was aborted before it had anything that could be ended but the call that begins it."""


def new_run_id() -> str:
    """Return a name that nobody guesses: 128 random bits, so that looking one up tells by its time of no other."""
    return f"{RUN_PREFIX}{os.urandom(16).hex()}"


@dataclass(eq=False)
class WaitingRun:
    """One run. Its fields change under the lock of its `Runs`; its timers are of the loop on which it lives."""

    scope: str
    code: str
    run_id: str = field(default_factory=new_run_id)
    state: str = RUNNING
    reason: str | None = None
    run: RestingRun | None = None
    loop: asyncio.AbstractEventLoop | None = None
    rests: int = 0
    size: int = 0
    expires_at_ms: int | None = None
    ended_at: float | None = None  # by `passed_seconds`
    ended_as: str = ""  # what a wait for it is told, where somebody has ended it
    timers: list[asyncio.TimerHandle] = field(default_factory=list[asyncio.TimerHandle])
    aborting: str | None = None
    is_lost: bool = False  # another process goes on with it
    is_given_back: bool = False  # when it is aborted: others may go on with it
    is_parked: bool = False  # it waits for a person, in a store: without a place
    asked: tuple[str, ...] = ()  # the tools for which a person is asked
    ids: Mapping[str, str] = field(default_factory=dict[str, str])  # of the tools behind paths of namespaces
    lease: Lease | None = None
    keeper: asyncio.Task[None] | None = None
    beginning: asyncio.Task[Any] | None = None  # the call that begins it, or goes on with it from where it was kept
    is_cut: bool = False
    called: dict[str, int] = field(default_factory=dict[str, int])  # how often, by the id of the tool
    counts: dict[str, int] = field(default_factory=dict[str, int])
    language: str | None = None
    place: StatePlace | None = None  # where its program keeps values for later ones
    owed: Any = None  # a result that nobody got, for whoever was to get it had been cancelled

    @property
    def is_live(self) -> bool:
        """True while it has a place."""
        return self.state in LIVE and not self.is_parked

    @property
    def waits_parked(self) -> bool:
        """True while a person is asked, and it has no place."""
        return self.is_parked and self.state == WAITING

    @property
    def is_warm(self) -> bool:
        """True while it waits and keeps a worker."""
        return self.state == WAITING and self.run is not None and self.run.is_warm

    @property
    def has_calls_in_flight(self) -> bool:
        """True while it waits and calls of it run; one that waits for a person does not."""
        pending = () if self.run is None or self.state != WAITING else self.run.pending
        return any(one.status == "running" for one in pending)

    def at_home(self, work: Callable[[], Any]) -> None:
        """Do something on the loop that it lives on: now, or as soon as that can; nothing once the loop is closed."""
        loop = self.loop
        if loop is None or loop.is_closed():
            return
        if loop is _running_loop():
            work()
            return
        try:
            loop.call_soon_threadsafe(work)
        except RuntimeError:  # it was closed meanwhile
            return

    def begun_by_this_task(self) -> Beginning:
        """Let `cut_beginning` end what is done here. Raises `RunAbortedError` then."""
        return Beginning(self)

    def cut_beginning(self) -> None:
        """End the call that begins it, unless there is a run that ends itself. On its loop."""
        if self.beginning is not None and not (self.run is not None and self.run.has_begun) and not self.is_cut:
            self.is_cut = self.beginning.cancel()

    def cancel_timers(self) -> None:
        """End its timers. On its loop."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()

    def end_keeper(self) -> None:
        """End what renews its lease. On its loop."""
        keeper, self.keeper = self.keeper, None
        if keeper is not None:
            keeper.cancel()

    def remembered(self) -> WaitingRun:
        """Return what is kept of it when it has ended: what became of it, and nothing of its program."""
        kept: dict[str, Any] = {"reason": self.reason, "rests": self.rests, "size": self.size}
        ended: dict[str, Any] = {"ended_at": self.ended_at, "ended_as": self.ended_as}
        return WaitingRun(self.scope, "", self.run_id, self.state, **ended, **kept)

    def info(self) -> RunInfo:
        """Return what is told of it."""
        pending = () if self.run is None or self.state != WAITING else self.run.pending
        names = tuple(one.name for one in pending) or (self.asked if self.state == WAITING else ())
        return RunInfo(self.run_id, self.state, self.reason, names, self.is_warm, self.size, self.expires_at_ms)


class Beginning:
    """The time in which a task begins a run, or goes on with one from where it was kept."""

    __slots__ = ("_one",)

    def __init__(self, one: WaitingRun) -> None:
        self._one = one

    def __enter__(self) -> None:
        if self._one.aborting is not None:
            raise RunAbortedError
        self._one.beginning = asyncio.current_task()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        task, self._one.beginning = self._one.beginning, None
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        if is_cancelled and self._one.is_cut and task is not None and task.uncancel() == 0:
            raise RunAbortedError from None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
