"""The runs of a pair: places, states, and the timers that end what nobody comes back for. Words nothing."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...host.clock import now_ms, passed_seconds
from ...host.forks import begin_anew_in_forks, forkable_lock, leave_to_the_parent
from .options import ExecWaitOptions
from .waiting_run import ABORTED, COMPLETED, EXPIRED, LIVE, RUNNING, WAITING, Counts, RunInfo, WaitingRun

if TYPE_CHECKING:
    from ...execution.outcome import RestingRun
    from ...interrupts.interrupt import Interrupt

WARM_SECONDS = 30.0
MAX_ENDED = 10_000


class FullError(Exception):
    """There is no place for another run. ``waiting`` is how many there are; ``is_share``: in this scope."""

    def __init__(self, waiting: int, *, is_share: bool = False) -> None:
        super().__init__(waiting)
        self.waiting = waiting
        self.is_share = is_share


class Runs:
    """All runs of one pair, by id. Safe to use from several threads; the timers of a run are on its own loop."""

    def __init__(
        self,
        options: ExecWaitOptions,
        counts: Counts,
        on_expired: Callable[[WaitingRun, RestingRun | None], Coroutine[Any, Any, None]],
    ) -> None:
        self._options = options
        self._counts = counts
        self._on_expired = on_expired
        self._lock = forkable_lock()
        self._begin()
        begin_anew_in_forks(self)

    def _begin(self) -> None:
        self._runs: dict[str, WaitingRun] = {}
        self._live = 0
        self._live_in = Counter[str]()  # by scope
        self._warm: set[WaitingRun] = set()  # those that may keep their workers, and some that have none any more
        self._over: deque[WaitingRun] = deque()  # what is known of those that have ended, in that order
        self._parked: dict[str, WaitingRun] = {}  # those that wait for a person, the oldest first
        self._stopping: set[asyncio.Future[Any]] = set()  # a loop alone holds no task

    def after_fork(self) -> None:
        """In a forked child: the runs live on in its parent alone."""
        leave_to_the_parent(self._runs, self._warm, self._stopping)
        self._begin()

    def reserve(self, scope: str, code: str) -> WaitingRun:
        """Return a run that has a place. Raises `FullError`."""
        with self._lock:
            share = self._options.waiting_runs_of(scope)
            if self._live >= self._options.max_waiting_runs or self._live_in[scope] >= share:
                self._bury()
            if self._live >= self._options.max_waiting_runs:
                raise FullError(self._live)
            if self._live_in[scope] >= share:
                raise FullError(self._live_in[scope], is_share=True)
            one = WaitingRun(scope, code)
            one.loop = asyncio.get_running_loop()
            self._runs[one.run_id] = one
            self._live += 1
            self._live_in[scope] += 1
            return one

    def rename(self, one: WaitingRun, run_id: str) -> None:
        """Give a run the id under which others know it."""
        with self._lock:
            is_there = self._runs.get(one.run_id) is one
            self._forget_one(one)
            one.run_id, before = run_id, self._runs.get(run_id)
            if is_there:
                self._runs[run_id] = one
            self._parked.pop(run_id, None)
        if before is not None:
            before.at_home(before.cancel_timers)

    def drop(self, one: WaitingRun) -> None:
        """Forget a run that is somebody else's from now on, and give its place back."""
        with self._lock:
            self._forget_one(one)
            if one.is_live:
                self._ended(one, COMPLETED)
        one.at_home(one.cancel_timers)

    def park(self, one: WaitingRun, run_id: str, asked: tuple[str, ...], expires_at_ms: int) -> None:
        """Note that a run waits for a person, in a store: it is seen until it expires, and has no place any more."""
        parked = WaitingRun(one.scope, "", run_id, WAITING, "pending_tools", loop=one.loop, rests=one.rests + 1)
        parked.is_parked, parked.asked, parked.expires_at_ms = True, asked, expires_at_ms
        self.drop(one)
        with self._lock:
            self._runs[run_id] = self._parked[run_id] = parked
            oldest = self._parked.pop(next(iter(self._parked))) if len(self._parked) > MAX_ENDED else None
            if oldest is not None:
                del self._runs[oldest.run_id]
        if oldest is not None:
            oldest.at_home(oldest.cancel_timers)
        parked.at_home(lambda: self._set_expiry(parked))

    def park_for(self, one: WaitingRun, run_id: str, interrupt: Interrupt) -> None:
        """Note that a run waits for what this interrupt asks a person."""
        asked = tuple(request.tool_name for request in interrupt.requests)
        self.park(one, run_id, asked, interrupt.continuation["auth"]["expiresAtMs"])

    def unpark(self, run_id: str, state: str) -> None:
        """Note what has become of a run that waited for a person."""
        with self._lock:
            one = self._runs.get(run_id)
            if one is None or not one.waits_parked:
                return
            self._end_parked(one, state)
        one.at_home(one.cancel_timers)

    def find(self, run_id: str) -> WaitingRun | None:
        """Return the run of an id, whatever has become of it."""
        with self._lock:
            self._forget()
            return self._runs.get(run_id)

    def owe(self, run_id: str, result: Any) -> None:
        """Keep a result for the next one who waits for the run: whoever was to get it had been cancelled."""
        with self._lock:
            one = self._runs.get(run_id)
            if one is not None:
                one.owed = result

    def owed(self, scope: str, run_id: str) -> Any:
        """Return such a result, once; None where there is none."""
        with self._lock:
            one = self._runs.get(run_id)
            if one is None or one.scope != scope:
                return None
            owed, one.owed = one.owed, None
            return owed

    def of(self, scope: str, run_id: str | None = None) -> list[WaitingRun]:
        """Return the runs of a scope, or that one, as far as they are there."""
        with self._lock:
            self._forget()
            return [one for one in self._runs.values() if one.scope == scope and run_id in (None, one.run_id)]

    def all(self) -> list[WaitingRun]:
        """Return every run that has a place."""
        with self._lock:
            return [one for one in self._runs.values() if one.is_live]

    def forget_parked(self) -> None:
        """Let those that wait for a person be: they are the store's alone."""
        with self._lock:
            found = [*self._parked.values()]
            self._parked.clear()
            for one in found:
                del self._runs[one.run_id]
        for one in found:
            one.at_home(one.cancel_timers)

    def infos(self, scope: str) -> tuple[RunInfo, ...]:
        """Return what is told of the runs of a scope."""
        return tuple(one.info() for one in self.of(scope))

    def take(self, one: WaitingRun) -> bool:
        """Tell whether this caller may go on with a run, which then is nobody else's."""
        with self._lock:
            if one.state != WAITING:
                return False
            one.state = RUNNING
            one.expires_at_ms = None
        one.at_home(one.cancel_timers)
        return True

    def rest(self, one: WaitingRun, run: RestingRun, reason: str | None, size: int) -> bool:
        """Note that a run waits: somebody may go on with it until its time is up. False: it has ended meanwhile."""
        ttl = self._options.snapshot_ttl_seconds
        with self._lock:
            if not one.is_live:
                return False
            one.run, one.reason, one.size = run, reason, size
            one.rests += 1
            one.state = WAITING
            one.expires_at_ms = now_ms() + ttl * 1000
            keeps = self._may_stay_warm(one)
        self._counts.add("rests", one=one)
        one.at_home(lambda: self._set_timers(one, run, ttl, keeps_worker=keeps))
        return True

    def _may_stay_warm(self, one: WaitingRun) -> bool:
        self._warm = {other for other in self._warm if other.is_warm and other is not one}
        is_room = len(self._warm) < self._options.max_warm_runs
        if is_room:
            self._warm.add(one)
        return is_room

    def back(self, one: WaitingRun) -> None:
        """Note that nobody goes on with a run after all: it waits as it did."""
        if one.run is not None:
            one.rests -= 1
            self.rest(one, one.run, one.reason, one.size)

    def end(self, one: WaitingRun, state: str) -> bool:
        """Give the place of a run back, in this state; False when it had none any more."""
        with self._lock:
            if one.state not in LIVE:
                return False
            self._ended(one, state)
        if one.rests:  # before its first rest it has none
            one.at_home(one.cancel_timers)
        return True

    def said(self, one: WaitingRun, text: str) -> None:
        """Note what a wait for a run that was ended is told."""
        with self._lock:
            one.ended_as = text
            kept = self._runs.get(one.run_id)
            if kept is not None and kept.scope == one.scope:
                kept.ended_as = text

    def bury(self, one: WaitingRun) -> bool:
        """End a run whose loop has ended; False where it has ended before."""
        run = one.run
        is_ended = self.end(one, ABORTED)
        let_go(run)
        return is_ended

    def give_up(self, one: WaitingRun) -> None:
        """End a run whose call was cancelled: with its calls, if that was while it was put away."""
        run = one.run
        self.end(one, ABORTED)
        self.stop_resting(one, run)

    def stop_resting(self, one: WaitingRun, run: RestingRun | None) -> None:
        """End what rests and is nobody's any more, with its calls. On its loop."""
        one.end_keeper()
        if run is not None and run.is_resting:
            self.stop(_aborted(run))

    def _ended(self, one: WaitingRun, state: str) -> None:
        one.state, one.expires_at_ms = state, None
        one.run = None
        self._live -= 1
        self._live_in[one.scope] -= 1
        if not self._live_in[one.scope]:
            del self._live_in[one.scope]
        if one.rests == 0:  # nobody was told its id
            self._forget_one(one)
        elif self._runs.get(one.run_id) is one:
            one.ended_at = passed_seconds()
            self._runs[one.run_id] = rest = one.remembered()
            self._over.append(rest)
            self._forget()

    def _set_timers(self, one: WaitingRun, run: RestingRun, ttl: float, *, keeps_worker: bool) -> None:
        one.cancel_timers()
        if one.state != WAITING or one.run is not run or one.loop is None:
            return
        if run.is_warm and not keeps_worker:
            self._cool(one, run)
        elif run.is_warm:
            one.timers.append(one.loop.call_later(WARM_SECONDS, self._cool, one, run))
        one.timers.append(one.loop.call_later(ttl, self._expire, one, run))

    def _cool(self, one: WaitingRun, run: RestingRun) -> None:
        if one.state == WAITING and one.run is run and run.is_warm:
            self._counts.add("evictions", one=one)
            run.drop_worker()

    def _set_expiry(self, parked: WaitingRun) -> None:
        if parked.loop is not None and parked.state == WAITING and parked.expires_at_ms is not None:
            left = max(0, parked.expires_at_ms - now_ms()) / 1000
            parked.timers.append(parked.loop.call_later(left, self._expire_parked, parked))

    def _expire_parked(self, one: WaitingRun) -> None:
        with self._lock:
            if one.state != WAITING:
                return
            self._end_parked(one, EXPIRED)
        self._counts.add("expiries", one=one)
        self.stop(self._on_expired(one, None))

    def _end_parked(self, one: WaitingRun, state: str) -> None:
        one.state, one.ended_at, one.expires_at_ms = state, passed_seconds(), None
        self._parked.pop(one.run_id, None)
        self._over.append(one)
        self._forget()

    def _expire(self, one: WaitingRun, run: RestingRun) -> None:
        with self._lock:
            if one.state != WAITING or one.run is not run:
                return
            self._ended(one, EXPIRED)
        one.cancel_timers()
        self._counts.add("expiries", one=one)
        self.stop(self._on_expired(one, run))

    def stop(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something end a run on this loop, with nobody waiting for it but `settled`."""
        stopping = asyncio.ensure_future(work)
        self._stopping.add(stopping)
        stopping.add_done_callback(self._stopping.discard)

    async def settled(self) -> None:
        """Wait until what has expired on this loop has ended."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(one for one in self._stopping if one.get_loop() is loop), return_exceptions=True)

    def _bury(self) -> None:
        """Give back the places of runs whose loop has ended: nobody goes on with them."""
        for one in [*self._runs.values()]:
            if one.is_live and one.loop is not None and one.loop.is_closed():
                run = one.run
                self._ended(one, ABORTED)
                let_go(run)

    def _forget(self) -> None:
        """Forget what ended longer ago than a run may wait; it was told apart until then."""
        before = passed_seconds() - self._options.snapshot_ttl_seconds
        over = self._over
        while over and ((over[0].ended_at or 0.0) < before or len(over) > MAX_ENDED):
            self._forget_one(over.popleft())

    def _forget_one(self, one: WaitingRun) -> None:
        """Forget a run, unless its id is another one's by now, which goes on with what it was."""
        if self._runs.get(one.run_id) is one:
            del self._runs[one.run_id]


async def _aborted(run: RestingRun) -> None:
    await run.abort("the call was cancelled")


def let_go(run: RestingRun | None) -> None:
    """Give up the worker of a run whose loop has ended, as far as that can be done without it."""
    if run is not None:
        with suppress(RuntimeError):  # of the loop, that it is closed
            run.drop_worker()
