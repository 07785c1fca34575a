"""Goes on with programs from what was kept of them, on this process: takes the run and its lease, or gives it back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import CodeModeAbortedError, Resumable
from ...execution.starting import load_continuations, prepared
from .runs import Runs
from .setup import Setup
from .waiting_run import WaitingRun

if TYPE_CHECKING:
    from ...execution.call_context import OuterCall
    from ...execution.outcome import RunOutcome
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
        go_on = await pool.off_loop(load_continuations)
        answers_to = partial(go_on.answers_of, **{"resolution": go_on.NOT_GIVEN, "resolutions": None, **answers})
        needs = bool(answers.get("resolutions")) or "resolution" in answers
        given = setup.catalog.view("", await setup.scopes(outer.call.context)), setup.settings, outer, pool
        return await go_on.resume(setup.profile, paused, answers_to, *given, needs_answers=needs)


def still_asked(record: Record) -> list[StoredRequest]:
    """Return the requests of a record that wait for a person, or were decided and not acted on."""
    return [one for one in record.requests if one.state in ("waiting", "decided")]
