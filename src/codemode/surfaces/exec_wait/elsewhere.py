"""Waits for programs that are not in this process: for whoever has them, or goes on with them from what was kept."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...data.narrowing import mapping_or_empty, string_or_empty
from ...errors import CodeModeProtocolError
from ...execution.call_context import CallContext
from ...execution.outcome_texts import failure_text
from .endings import Endings, is_nothing_run, yields_of
from .kept_programs import KeptPrograms, still_asked
from .requests import RefusedInputError
from .results import ABORTED, RUNTIME_UNAVAILABLE, SNAPSHOT_EXPIRED, SNAPSHOT_RESTORE_FAILED, waiting
from .runs import FullError, Runs
from .setup import Setup
from .waiting_run import ABORTED as RUN_ABORTED
from .waiting_run import COMPLETED, EXPIRED, FAILED, RUNNING, RunAbortedError, WaitingRun
from .words import Words, still_waits

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome
    from ...stores.records import Lease, Record
    from .stored import StoredRuns

_SOMEBODY_IS_ON_IT = "Another process is on this run, or was: call wait again."
_STATUS = {"waiting": "approval", "decided": "running"}
_ENDS = {ABORTED: RUN_ABORTED, SNAPSHOT_EXPIRED: EXPIRED}


class Elsewhere:
    """What wait does for runs that are not in this process."""

    def __init__(self, setup: Setup, runs: Runs, endings: Endings, words: Words) -> None:
        self._setup = setup
        self._options = setup.options
        self._counts = setup.counts
        self._runs = runs
        self._endings = endings
        self._words = words
        self._kept = KeptPrograms(setup, runs)

    async def wait(self, stored: StoredRuns, run_id: str, call: CallContext) -> Any:
        """Return the result of a run that another process has begun, or that a person was asked about."""
        from ...stores.records import Lease, Record

        scope = call.conversation_id or ""
        try:
            found = await stored.take(run_id, scope, self._options.waits_ms)
        except RefusedInputError as refused:
            self._runs.unpark(run_id, _ENDS.get(refused.code, FAILED))
            raise
        if isinstance(found, Record):
            return await self._waits_on(stored, run_id, found)
        if not isinstance(found, Lease):
            self._runs.unpark(run_id, COMPLETED if found.get("status") == "completed" else FAILED)
            return dict(found)
        try:
            one = self._runs.reserve(scope, string_or_empty(found.record.source))
        except FullError as full:
            await stored.give_back(WaitingRun(scope, "", lease=found))
            return self._words.full(full)
        self._kept.hold(stored, one, found)
        self._counts.add("wakesCold", one=one)
        one.counts["wait"] = 1
        return await self._taken_over(stored, one, found, call)

    async def _taken_over(self, stored: StoredRuns, one: WaitingRun, lease: Lease, call: CallContext) -> Any:
        try:
            with one.begun_by_this_task():
                return await self._going_on(stored, one, lease, call)
        except RunAbortedError:
            return self._words.aborted(one)
        except asyncio.CancelledError:
            if one.state != RUNNING:  # it was told what it came to
                raise
            if one.run is not None and one.run.is_resting:
                self._runs.back(one)
                raise
            one.lease = None  # once it is over somebody goes on from what journal and guard know
            self._runs.drop(one)
            raise
        except CodeModeProtocolError as error:
            await self._kept.back(stored, one, lease, error.message)
            return self._words.failed(failure_text(error, None), SNAPSHOT_RESTORE_FAILED)
        except Exception as error:  # noqa: BLE001 - a model is answered whatever happens
            await self._kept.back(stored, one, lease)
            return self._words.broken(error)
        finally:
            if one.lease is None:
                one.end_keeper()

    async def _going_on(self, stored: StoredRuns, one: WaitingRun, lease: Lease, call: CallContext) -> Any:
        outer = self._setup.outer(replace(call, tool_call_id=None), one)
        outcome = await self._kept.on_from(lease.interrupt, {"resolutions": dict(lease.resolutions)}, outer)
        if is_nothing_run(outcome):
            await self._kept.back(stored, one, lease)
            return self._words.failed(still_waits(outcome.error), RUNTIME_UNAVAILABLE)
        if outcome.rest is not None and outcome.rest.run is not None and _has_yielded_before(outcome, lease):
            one.run = outcome.rest.run
            outcome = await one.run.go_on(self._options.waits_ms)
        return await self._endings.told(one, outcome)

    async def _waits_on(self, stored: StoredRuns, run_id: str, record: Record) -> Any:
        """Return the result of a run that waits on: for a person, or for whoever goes on with it."""
        from .stored import REASON

        is_of_person = record.state == "pending"
        if is_of_person and self._options.approvals == "interrupt":
            interrupt = await stored.interrupt_of(record)
            if interrupt is not None:
                return interrupt
        # The id of a request begins with that of its call, under which the model was told of it.
        pending = [
            {"id": one.interrupt_id.rpartition(":")[0], "tool": one.tool_name, "status": _STATUS[one.state]}
            for one in still_asked(record)
        ]
        reason = "pending_tools" if pending else mapping_or_empty(record.payload).get(REASON)
        told = self._words.telemetry()
        result = waiting(run_id, "yield" if reason == "yield" else "pending_tools", pending, [], told)
        # All may be decided, and whoever went on with it first could not.
        is_asked = is_of_person and any(one.state == "waiting" for one in record.requests)
        return self._words.of_person(result) if is_asked else {**result, "note": _SOMEBODY_IS_ON_IT}


def _has_yielded_before(outcome: RunOutcome, lease: Lease) -> bool:
    """Tell whether a program that was at rest has come, by its journal, to nothing but where it was."""
    from .stored import YIELDS

    if outcome.rest is None or outcome.rest.reason != "yield" or lease.record.state != "resting":
        return False
    before = mapping_or_empty(lease.record.payload).get(YIELDS)
    return type(before) is int and yields_of(outcome) <= before
