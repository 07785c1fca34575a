"""What a pair counts of its runs: numbers and names. No input, output, source or value of the environment."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...data.narrowing import mapping_or_empty
from ...host.forks import forkable_lock
from ...options.parts import Telemetry
from .options import InvalidConfigError

if TYPE_CHECKING:
    from .waiting_run import WaitingRun

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
