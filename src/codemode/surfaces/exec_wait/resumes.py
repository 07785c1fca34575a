"""Resume programs from what was stored, and wait for those of other processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...data.json_values import NOT_GIVEN
from ...data.narrowing import mapping_or_empty, string_or_empty
from ...errors import (
    CodeModeAbortedError,
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeWorkerError,
    Resumable,
)
from ...execution.call_context import CallContext, check_call
from ...execution.outcome import with_content
from ...execution.outcome_texts import (
    ABORTED,
    RUNTIME_UNAVAILABLE,
    SNAPSHOT_EXPIRED,
    SNAPSHOT_RESTORE_FAILED,
    failure_text,
    still_waits,
)
from ...execution.starting import load_continuations, prepared, with_library
from ...interrupts.interrupt import Interrupt
from ...stores.errors import AlreadyDecidedError, RecordExpiredError, RecordWithdrawnError, StoreUnavailableError
from ...trace.failures import log_failure
from .catalog import Setup
from .endings import Endings, is_nothing_run, is_of_store, yields_of
from .results import Recorded, RefusedInputError, waiting
from .run_texts import Words
from .runs import FullError, Runs
from .waiting_run import ABORTED as RUN_ABORTED
from .waiting_run import COMPLETED, EXPIRED, FAILED, RUNNING, RunAbortedError, WaitingRun

if TYPE_CHECKING:
    from ...execution.call_context import OuterCall
    from ...execution.outcome import OutputItem, RunOutcome
    from ...stores.records import Lease, Record, StoredRequest
    from .stored import StoredRuns


class KeptPrograms:
    """What whoever goes on with a kept program does with its run and its lease. Words nothing."""

    def __init__(self, setup: Setup, runs: Runs) -> None:
        self._setup = setup
        self._runs = runs

    def hold(self, stored: StoredRuns, one: WaitingRun, lease: Lease) -> None:
        """Let a run be that of this lease, which is renewed as long as the run has it."""
        from .stored import id_of

        self._runs.rename(one, id_of(lease.record.id))
        one.lease = lease
        one.keeper = asyncio.ensure_future(stored.keep(one))

    async def back(self, stored: StoredRuns, one: WaitingRun, lease: Lease, why: str | None = None) -> None:
        """Give back a run with which nothing could go on here."""
        if one.run is not None:
            await one.run.abort("it is given back")
        await stored.give_back(one, why)
        self.let_go(one, lease.record)

    def let_go(self, one: WaitingRun, record: Record) -> None:
        """Forget a run that is not gone on with here; what waits for a person is seen nevertheless."""
        self._runs.drop(one)
        if record.state == "resuming":
            asked = tuple(request.tool_name for request in still_asked(record))
            self._runs.park(one, one.run_id, asked, record.expires_at_ms)

    async def on_from(
        self, paused: Resumable | Mapping[str, Any], answers: Mapping[str, Any], outer: OuterCall
    ) -> RunOutcome:
        """Go on from what was kept; where somebody was cut off who went on from there, from where that was."""
        outcome = await self.resumed(paused, answers, outer)
        while outcome.is_replayed and isinstance(outcome.error, CodeModeAbortedError) and outcome.error.recovery:
            outcome = await self.resumed(outcome.error.recovery, {}, outer)
        return outcome

    async def resumed(
        self, paused: Resumable | Mapping[str, Any], answers: Mapping[str, Any], outer: OuterCall
    ) -> RunOutcome:
        """Go on by these answers. Raises `CodeModeProtocolError` for what is not valid here; nothing has run then."""
        setup = self._setup
        pool = await prepared(setup.pool, setup.settings)
        go_on = await pool.run_in_thread(load_continuations)
        answers_to = partial(go_on.answers_of, **{"resolution": go_on.NOT_GIVEN, "resolutions": None, **answers})
        needs = bool(answers.get("resolutions")) or "resolution" in answers
        view = setup.catalog.view("", await setup.scopes(outer.call.context))
        given = with_library(view, setup.library, None, outer.call, pool), setup.settings, outer, pool
        return await go_on.resume(setup.profile, paused, answers_to, *given, needs_answers=needs)


def still_asked(record: Record) -> list[StoredRequest]:
    """Return the requests of a record that wait for a person, or were decided and not acted on."""
    return [one for one in record.requests if one.state in ("waiting", "decided")]


_log = logging.getLogger("codemode.tools")
_AGAIN_SECONDS = 0.2


class Resumes:
    """Goes on with programs that waited for a person: by the answers of their host, or by what a store says of them."""

    def __init__(self, setup: Setup, runs: Runs, endings: Endings, words: Words) -> None:
        self._setup = setup
        self._options = setup.options
        self._stored = setup.stored
        self._runs = runs
        self._endings = endings
        self._words = words
        self._kept = KeptPrograms(setup, runs)
        self._recorded = Recorded(setup.options.snapshot_ttl_seconds)

    async def resume(
        self,
        paused: Resumable | Mapping[str, Any] | Record,
        answers: Mapping[str, Any],
        call: CallContext | None,
    ) -> Any:
        """Go on with a program that waited for a person. Raises `CodeModeProtocolError`.

        That of a record is gone on with to its end, or to what it asks next: nobody else waits for it here.
        """
        from ...stores.records import Record

        call = check_call(call)
        if isinstance(paused, Record):
            return await self._resume_record(paused, answers, call)

        def told() -> Any:
            given = {name: one for name, one in answers.items() if one is not NOT_GIVEN}
            return [paused if isinstance(paused, Mapping) else paused.to_dict(), given]

        # A guard knows what it came to, but not the run that came to rest.
        work = partial(self._resume, paused, answers, call)
        return await self._recorded.once_for(call.conversation_id or "", told, work)

    async def _resume(
        self,
        paused: Resumable | Mapping[str, Any],
        answers: Mapping[str, Any],
        call: CallContext,
    ) -> Any:
        try:
            one = self._runs.reserve(call.conversation_id or "", "")
        except FullError as full:
            return self._words.full(full)
        try:
            lease = None if self._stored is None else await self._answered(self._stored, one, paused, answers)
        except StoreUnavailableError as error:
            return self._words.broken(error)
        try:
            with one.begun_by_this_task():
                outer = self._setup.outer(replace(call, tool_call_id=None), one)
                outcome = await self._kept.resumed(paused, answers, outer)
                if self._stored is not None and lease is not None and is_nothing_run(outcome):
                    await self._kept.back(self._stored, one, lease)
                    return self._words.failed(still_waits(outcome.error), RUNTIME_UNAVAILABLE)
                return await self._endings.told(one, outcome)
        except RunAbortedError:
            return await self._endings.settled(one, self._words.aborted(one))
        except BaseException as error:
            await self._not_resumed(one, lease, error)
            raise

    async def _answered(
        self, stored: StoredRuns, one: WaitingRun, paused: Resumable | Mapping[str, Any], answers: Mapping[str, Any]
    ) -> Lease | None:
        """Go on with the record of a pause, where there is one: whoever waits for it gets what this comes to.

        What a person has decided otherwise in the store, or somebody has ended there, no answer of a host goes on with.
        """
        try:
            interrupt = Interrupt.of(paused)
            go_on = load_continuations()
            given = go_on.answers_of(interrupt, answers["resolution"], answers["resolutions"])
            lease = await stored.answered(interrupt, given, one.scope)
        except (AlreadyDecidedError, RecordExpiredError, RecordWithdrawnError, StoreUnavailableError):
            self._runs.give_up(one)
            raise
        except CodeModeError as error:  # what is wrong with it says whoever resumes
            log_failure(_log, "what its host answers could not be noted in the store", (), error)
            return None
        except BaseException:
            self._runs.give_up(one)
            raise
        if lease is not None:
            self._kept.hold(stored, one, lease)
        return lease

    async def _not_resumed(self, one: WaitingRun, lease: Lease | None, error: BaseException) -> None:
        if self._stored is None or lease is None:
            self._runs.give_up(one)
            return
        self._runs.stop_resting(one, one.run)
        refusals = dict.fromkeys(lease.resolutions, str(error)) if isinstance(error, CodeModeProtocolError) else None
        if isinstance(error, Exception):
            await self._stored.give_back(one, refusals=refusals)
        one.lease = None  # of one that was cancelled: once it is over somebody goes on from what the journal knows
        self._kept.let_go(one, lease.record)

    async def _resume_record(self, record: Record, answers: Mapping[str, Any], call: CallContext) -> Any:
        from .stored import id_of, scope_of

        scope = scope_of(record)
        paused = None if self._stored is None else await self._stored.interrupt_of(record)
        if scope is None or paused is None:
            raise CodeModeProtocolError("this record is none of a program of exec", details={"origin": "continuation"})
        try:
            one = self._runs.reserve(scope, record.source or "")
        except FullError as full:
            raise CodeModeConcurrencyError("there is no place for another run") from full
        self._runs.rename(one, id_of(record.id))
        call = replace(call, tool_call_id=None, conversation_id=scope or None)
        outer = replace(self._setup.outer(call, one), takes_output=False, keeps_output=True)
        try:
            with one.begun_by_this_task():
                outcome = await self._kept.on_from(paused, answers, outer)
            outcome, written = await self._to_its_end(one, outcome)
            if one.is_given_back or _is_cut_off(outcome):
                raise outcome.error or CodeModeConcurrencyError("the pair was closed")
        except RunAbortedError:
            self._kept.let_go(one, record)
            if one.is_given_back:
                raise CodeModeConcurrencyError("the pair was closed") from None
            return self._words.aborted(one)
        except BaseException:
            self._runs.stop_resting(one, one.run)
            self._kept.let_go(one, record)
            raise
        if outcome.interrupt is not None:
            self._runs.park_for(one, one.run_id, outcome.interrupt)
            return outcome.interrupt
        state = RUN_ABORTED if one.aborting is not None else COMPLETED if outcome.error is None else FAILED
        self._runs.park(one, one.run_id, (), record.expires_at_ms)  # what it has come to is in the store
        self._runs.unpark(one.run_id, state)
        return with_content(await self._words.ended(one, outcome, written), outcome)

    async def _to_its_end(self, one: WaitingRun, outcome: RunOutcome) -> tuple[RunOutcome, Sequence[OutputItem]]:
        """Go on with a program through every rest; without a worker for now, once there is one."""
        written = [*outcome.output]
        while outcome.rest is not None and outcome.rest.run is not None:
            run = one.run = outcome.rest.run
            if one.aborting is not None:
                return await run.abort(one.aborting), written
            try:
                outcome = await run.go_on(self._options.waits_ms)
            except (CodeModeConcurrencyError, CodeModeWorkerError):
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            written += outcome.output
        return outcome, written


def _is_cut_off(outcome: RunOutcome) -> bool:
    return is_nothing_run(outcome) or (outcome.error is not None and is_of_store(outcome.error))


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
