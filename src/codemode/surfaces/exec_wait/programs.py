"""Runs the programs of a pair: from an input, or from where one waits, to the result that a model reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...data.narrowing import is_mapping, string_or_empty
from ...errors import (
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeWorkerError,
)
from ...execution.call_context import CallContext, check_call
from ...execution.outcome_texts import (
    ABORTED,
    INTERNAL_ERROR,
    INVALID_INPUT,
    RUNTIME_UNAVAILABLE,
    SNAPSHOT_EXPIRED,
    aborted_text,
    ended_text,
    still_waits,
)
from ...execution.starting import load_resting, prepared
from ...trace.failures import log_failure
from .catalog import Setup
from .endings import Endings
from .options import EXEC, WAIT, InvalidConfigError
from .results import ExecRequest, Recorded, RefusedInputError, read_exec, read_wait, unknown_run
from .resumes import Elsewhere, Resumes
from .run_texts import Words
from .runs import FullError, Runs, let_go
from .waiting_run import ABORTED as RUN_ABORTED
from .waiting_run import EXPIRED, FAILED, RUNNING, WAITING, RunAbortedError, WaitingRun

if TYPE_CHECKING:
    from ...execution.outcome import RestingRun
    from .stored import StoredRuns

UNHEARD = "this run has ended as the call that waited for it was cancelled, and what it came to is not known"
ReadT = TypeVar("ReadT")
_log = logging.getLogger("codemode.tools")


class Programs:
    """What the two tools do. Raises nothing of a program or a host, but `asyncio.CancelledError`."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.runs = Runs(setup.options, setup.counts, self._expired)
        self._catalog = setup.catalog
        self._options = setup.options
        self._settings = setup.settings
        self._profile = setup.profile
        self._of_new_runs = setup.settings.under(setup.profile.limits)  # a pause brings limits of its own
        self._pool = setup.pool
        self._counts = setup.counts
        self._stored = setup.stored
        if setup.stored is not None:
            setup.stored.on_lost = self.runs.drop
        self._recorded = Recorded(setup.options.snapshot_ttl_seconds)
        self._words = Words(setup)
        self._endings = Endings(setup, self.runs, self._words)
        shared = setup, self.runs, self._endings, self._words
        self._elsewhere = Elsewhere(*shared)
        self.resume = Resumes(*shared).resume

    # -- exec

    async def exec(self, given: Any, call: CallContext | None) -> Any:
        """Run a program; return its result, or an `Interrupt`."""
        most = self._settings.execution_policy.max_source_bytes
        request = self._read(EXEC, call, lambda: read_exec(given, self._options, most))
        if not isinstance(request, ExecRequest):
            return request
        call = check_call(call)
        work = partial(self._exec, request, call)
        said = {"code": request.code, "language": request.language}
        return await self._recorded.once(EXEC, call, said, work)

    def _read(self, tool: str, call: CallContext | None, read: Callable[[], ReadT]) -> ReadT | dict[str, Any]:
        """Return what a model has sent, or the result that refuses it: of any text, and of what is none."""
        try:
            check_call(call)
            return read()
        except RefusedInputError as refused:
            self._counts.add(tool)
            return self._words.failed(refused.message, refused.code)
        except Exception as error:  # noqa: BLE001 - a mapping or a text of the host's own may do anything
            self._counts.add(tool)
            return self._words.broken(error)

    async def _exec(self, request: ExecRequest, call: CallContext) -> Any:
        self._counts.add("exec")
        try:
            one = self.runs.reserve(call.conversation_id or "", request.code)
        except FullError as full:
            return self._words.full(full)
        one.counts["exec"], one.language = 1, request.language
        try:
            with one.begun_by_this_task():
                return await self._started(one, call)
        except RunAbortedError:
            return self._words.aborted(one)
        except asyncio.CancelledError:
            self.runs.give_up(one)
            raise
        except InvalidConfigError as error:  # of a namespace
            self.runs.end(one, FAILED)
            return self._words.failed(str(error), error.code)
        except Exception as error:  # noqa: BLE001 - a model is answered whatever happens
            self.runs.end(one, FAILED)
            return self._words.broken(error)

    async def _started(self, one: WaitingRun, call: CallContext) -> Any:
        pool = await prepared(self._pool, self._settings)
        if not load_resting.cache_info().currsize:
            await pool.run_in_thread(load_resting)
        scopes = None if self._setup.namespaces is None else await self._setup.scopes(call.context)
        if scopes is not None:
            one.ids = {path: tool.id for path, tool in scopes.tools.items()}
        view = self._setup.view(one.code, scopes, call, pool)
        # A journal finds a call again by its id: without a scope that is not one call's alone.
        if not one.scope and self._stored is not None:
            call = replace(call, tool_call_id=None)
        outer = self._setup.outer(call, one)
        parts = self._profile, view, self._of_new_runs, outer, pool
        one.run = run = load_resting().RestingExecution(*parts, given=self._catalog.given)
        outcome = await run.start(one.code)
        return await self._endings.told(one, outcome, view.warnings, owe=partial(self._undone, one))

    def _undone(self, one: WaitingRun, result: Any) -> None:
        """End what has come to rest, or asks a person, though the exec was cancelled that nobody has the id of."""
        run_id = result.get("runId") if is_mapping(result) else None
        if isinstance(run_id, str):
            self.runs.stop(self._undo(one.scope, run_id))

    async def _undo(self, scope: str, run_id: str) -> None:
        await self.abort(scope, run_id, "the call was cancelled")

    # -- wait

    async def wait(self, given: Any, call: CallContext | None) -> Any:
        """Go on with a program that waits; return what `exec` does."""
        run_id = self._read(WAIT, call, lambda: read_wait(given))
        if not isinstance(run_id, str):
            return run_id
        call = check_call(call)
        work = partial(self._wait, run_id, call)
        owe = partial(self.runs.owe, run_id)
        return await self._recorded.once(WAIT, call, {"runId": run_id}, work, owe)

    async def _wait(self, run_id: str, call: CallContext) -> Any:
        scope = call.conversation_id or ""
        self._counts.add("wait")
        owed = self.runs.owed(scope, run_id)
        if owed is not None:
            return owed
        try:
            if self._stored is not None and await self._is_elsewhere(self._stored, run_id, scope):
                return await self._elsewhere.wait(self._stored, run_id, call)
            one = self._taken(run_id, scope)
        except RefusedInputError as refused:
            return self._words.failed(refused.message, refused.code)
        except Exception as error:  # noqa: BLE001 - a store may be host code
            return self._words.broken(error)
        run = one.run
        if run is None:
            return self._words.failed("wait: this run has ended", INVALID_INPUT)
        return await self._gone_on(one, run)

    async def _gone_on(self, one: WaitingRun, run: RestingRun) -> Any:
        one.counts["wait"] = one.counts.get("wait", 0) + 1
        self._counts.add("wakesWarm" if run.is_warm else "wakesCold", one=one)
        try:
            return await self._endings.told(one, await run.go_on(self._options.waits_ms))
        except asyncio.CancelledError:
            if one.state == RUNNING:  # it has not been told what it came to
                self._left(one, run)
            raise
        except (CodeModeConcurrencyError, CodeModeWorkerError) as error:
            self.runs.back(one)  # it rests on, and nothing is lost
            return self._words.failed(still_waits(error), RUNTIME_UNAVAILABLE)
        except CodeModeError as error:
            self.runs.end(one, FAILED)
            return await self._endings.settled(one, self._words.of_error(one, error, [], None))
        except Exception as error:  # noqa: BLE001 - as above
            self.runs.end(one, FAILED)
            return await self._endings.settled(one, self._words.broken(error))

    def _left(self, one: WaitingRun, run: RestingRun) -> None:
        if run.is_resting:
            self.runs.back(one)
            return
        one.at_home(one.end_keeper)
        if one.lease is not None:  # from where it was kept others go on, as soon as nobody holds it
            self.runs.drop(one)
            return
        self.runs.end(one, FAILED)
        self.runs.owe(one.run_id, self._words.failed(UNHEARD, INTERNAL_ERROR))

    async def _is_elsewhere(self, stored: StoredRuns, run_id: str, scope: str) -> bool:
        """Tell whether a run is not in this process, or as good as dead in it.

        That is one whose loop has ended, and one that has lost its journal while it was at rest.
        """
        one = self.runs.find(run_id)
        if one is None or (one.is_parked and one.scope == scope):
            return True
        if one.scope != scope or one.run is None or one.lease is None:
            return False
        if not one.run.is_lost and (one.state != WAITING or one.run.is_resting):
            return False
        one.at_home(one.end_keeper)
        await stored.give_back(one)
        self.runs.drop(one)
        return True

    def _taken(self, run_id: str, scope: str) -> WaitingRun:
        """Return a run that is now this caller's alone. Raises `RefusedInputError`."""
        one = self.runs.find(run_id)
        if one is None or one.scope != scope:
            raise unknown_run(run_id)
        if one.run is not None and one.run.is_lost and self.runs.bury(one):
            raise RefusedInputError("wait: the event loop of this run is closed, and its calls with it", ABORTED)
        if self.runs.take(one):
            return one
        if one.state == EXPIRED:
            raise RefusedInputError(f"wait: {one.ended_as or self._expired_text(None)}", SNAPSHOT_EXPIRED)
        if one.state == RUN_ABORTED:
            raise RefusedInputError(f"wait: {one.ended_as or aborted_text(None, None)}", ABORTED)
        if one.is_live:
            raise RefusedInputError("wait: another wait is on this run; call wait again when it has answered")
        raise RefusedInputError("wait: this run has ended, and its result was given")

    # -- the end

    async def _expired(self, one: WaitingRun, run: RestingRun | None) -> None:
        if run is None:
            if self._stored is not None:
                await self._stored.sweep()
            return
        message = self._expired_text(await self._stop(one, run, "nobody came back for it"))
        self.runs.said(one, message)
        await self._endings.settled(one, self._words.failed(message, SNAPSHOT_EXPIRED))

    def _expired_text(self, error: CodeModeError | None) -> str:
        ttl = self._options.snapshot_ttl_seconds
        return ended_text(f"this run has expired: it waited for more than {ttl} s", error)

    async def abort(self, scope: str, run_id: str | None, reason: str, *, only_in_flight: bool = False) -> int:
        """End the runs of a scope, or that one; return how many there were."""
        found = [one for one in self.runs.of(scope, run_id) if one.is_live or one.waits_parked]
        return await self._abort([one for one in found if one.has_calls_in_flight or not only_in_flight], reason)

    async def aclose(self) -> None:
        """End every run that is not kept in a store; those are given back, for others to go on with."""
        try:
            await self._abort(self.runs.all(), "the pair was closed", gives_back=True)
        finally:
            self.runs.forget_parked()
            await self.runs.settled()

    async def _abort(self, found: Sequence[WaitingRun], reason: str, *, gives_back: bool = False) -> int:
        text = string_or_empty(reason) or "the run was aborted"
        # A store may be host code: what it raises for one run comes when all have ended.
        ends = await asyncio.gather(*(self._abort_one(one, text, gives_back) for one in found), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end
        return len(found)

    async def _abort_one(self, one: WaitingRun, reason: str, gives_back: bool) -> None:
        if one.is_parked:
            self.runs.unpark(one.run_id, RUN_ABORTED)
            if self._stored is not None:
                await self._stored.withdraw(one.run_id, reason)
            return
        one.aborting, one.is_given_back = reason, gives_back and self._stored is not None
        run, one.ended_as = one.run, aborted_text(reason, None)
        one.at_home(one.cut_beginning)
        self.runs.end(one, RUN_ABORTED)
        error = None if run is None else await self._stop(one, run, reason)
        self.runs.said(one, aborted_text(reason, error))
        await self._endings.settled(one, self._words.aborted(one, error=error))

    async def _stop(self, one: WaitingRun, run: RestingRun, reason: str) -> CodeModeError | None:
        """End a run that has no place any more; return how it failed, with its calls, where that is known."""
        one.at_home(one.end_keeper)
        if run.is_lost:
            let_go(run)
            return None
        try:
            return (await run.abort(reason)).error
        except CodeModeError as error:
            log_failure(_log, "a run could not be ended", (), error)
            return None
