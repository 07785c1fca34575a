"""Open the journal of a program: find out where it resumes or how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from ..continuations.journal import OpenedJournal
from ..data.json_values import encode_canonical_json
from ..errors import CodeModeProtocolError
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..options.parts import ContinuationOptions
from ..profile import SurfaceSettings
from ..protocol.continuation import Continuation
from ..protocol.events import CallSettled, ProgramAccepted
from ..protocol.invocation import Invocation, restore_large_strings
from ..protocol.journal_entries import JournalStep, make_outcome_step
from ..protocol.ledger import Ledger, Waiting, get_called_tool_names
from ..protocol.references import LargeStringRegistry, get_content_tag
from ..protocol.settings import InvocationSettings
from ..records import record
from ..tools.catalog import ToolCatalog
from ..tools.prepared import PreparedTool
from .call_content import load_ledger_content
from .call_context import CallContext
from .identity import (
    JOURNAL_ORIGIN,
    ActiveRun,
    ProgramAlreadyRan,
    get_journal_wait_seconds,
    make_journal_busy_error,
    require_no_self_wait,
    tracking_run,
)
from .journal import InvocationJournal, JournalAccess
from .outcome import RunOutcome, is_repeatable_error
from .pauses import restore_surface_settings
from .recovery import RecoveryLedgerBuilder


class JournalBusy(Exception):  # noqa: N818 - carries the wait; not an error of the program
    """Another run has the journal of this program.

    The run releases its worker while it waits: two runs could otherwise wait for each other, one with the last
    worker of the pool and one with the journal. ``opening`` continues the wait.
    """

    def __init__(self, opening: JournalOpening) -> None:
        super().__init__("another run has the journal of this program")
        self.opening = opening


class JournalOpening:
    """Opens the journal of one program, once, and renews its lease until it is taken."""

    def __init__(self, access: JournalAccess) -> None:
        self.reader = access
        self._journal: InvocationJournal | None = None
        self._opening = asyncio.get_running_loop().create_task(self._open_journal())

    async def wait_until_done(self, seconds: float | None = None) -> bool:
        """Wait until it is open or has failed, and return True; False if that takes longer."""
        done, _ = await asyncio.wait([self._opening], timeout=seconds)
        return bool(done)

    async def take_opened_journal(self) -> tuple[OpenedJournal, InvocationJournal | None]:
        """Return the journal and its writer, which is None if it has ended. Raises as `JournalAccess.open` does."""
        opened = await self._opening
        journal, self._journal = self._journal, None
        return opened, journal

    async def cancel_and_release(self) -> None:
        """Release what was not taken."""
        self._opening.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await self._opening
        if self._journal is not None:
            await self._journal.release()

    async def _open_journal(self) -> OpenedJournal:
        opened = await self.reader.open()
        if opened.outcome is None:
            self._journal = InvocationJournal(self.reader, opened)
        return opened


_MAX_WAIT_WITH_WORKER_SECONDS = 0.1
"""How long a run waits for its journal while it holds a worker."""


@record
class LedgerRestorer:
    """Builds the ledger to continue from out of recorded calls and the current tools."""

    catalog: ToolCatalog[PreparedTool]
    profile: SurfaceSettings
    options: ContinuationOptions

    def require_same_tools(self, begun: Continuation) -> None:
        """Raise `CodeModeProtocolError` if the tools that the program called are not the current ones."""
        try:
            self.catalog.check_resumed_program(begun.invocation_data, get_called_tool_names(begun.ledger))
        except CodeModeProtocolError as error:
            error.details.setdefault("origin", JOURNAL_ORIGIN)
            raise

    async def restore_ledger(
        self, ledger: Ledger, salt: str, sidecar: LargeStringRegistry | None = None, *, has_rich_values: bool
    ) -> Ledger:
        """Return the ledger: a call that started and did not end waits for its outcome, or is made again."""
        size = len(ledger.entries) if self.profile.sidecar is None else LARGE_CHARACTERS
        if self.profile.has_content and (contents := await load_ledger_content(ledger, salt, self.options)) is not None:
            contents.reference_key = get_content_tag(salt)
            ledger = replace(ledger, contents=contents)
        return await run_in_thread_if_large_or_slow(
            size, lambda: self._restore_strings_and_build_recovery(ledger, salt, sidecar, has_rich_values)
        )

    def _restore_strings_and_build_recovery(
        self, ledger: Ledger, salt: str, sidecar: LargeStringRegistry | None, has_rich_values: bool
    ) -> Ledger:
        rules = self.profile.sidecar
        if rules is not None:
            ledger = restore_large_strings(ledger, rules, sidecar)
        recovered = RecoveryLedgerBuilder(self.catalog, {}, has_rich_values).build_ledger(ledger, salt)
        # None of them runs on this host.
        entries = [entry._replace(is_started=False) if entry.is_started else entry for entry in recovered.entries]
        return replace(recovered, entries=entries, sidecar=ledger.sidecar)


def make_steps_if_outcome_unknown(previous: Ledger, current: Ledger) -> list[JournalStep]:
    """Return the steps for calls whose outcome is unknown."""
    pairs = zip(previous.entries, current.entries, strict=True)
    return [
        make_outcome_step(CallSettled(after.id, after.outcome, after.now_ms or 1))
        for before, after in pairs
        if isinstance(after.outcome, Waiting) and not isinstance(before.outcome, Waiting)
    ]


class RunJournaling:
    """The journal of one run; ``journal`` is set once it is open and owned by this host."""

    def __init__(
        self,
        options: ContinuationOptions,
        call: CallContext,
        catalog: ToolCatalog[PreparedTool],
        profile: SurfaceSettings,
    ) -> None:
        self.options = options
        self._call = call
        self.profile = profile
        self.calls = LedgerRestorer(catalog, profile, options)
        self.journal: InvocationJournal | None = None
        self._run: ActiveRun | None = None  # that owns this journal
        self._journal_key = ""
        self._wait: JournalOpening | None = None
        self.waits_without_worker = False  # after it released its worker
        self.waits_ms: int | None = None  # the wait limit of its tools

    @property
    def key(self) -> str | None:
        """The key of the journal, once it is open."""
        return None if self.journal is None else self._journal_key

    async def run_and_record_outcome(
        self,
        work: Callable[[], Awaitable[RunOutcome]],
        is_suspended: Callable[[], bool] = lambda: False,
        reset: Callable[[], None] = lambda: None,
    ) -> RunOutcome:
        """Run the program and record its outcome; release the journal if the run was cut off.

        A suspended run keeps the journal. If another run has it and this one ``waits_without_worker``, ``work``
        ends with its worker and runs again after ``reset`` once the journal is open. Raises
        `CodeModeAbortedError` if the outcome cannot be recorded, or another run has the journal for too long.
        """
        try:
            with tracking_run(self._journal_key) as self._run:
                try:
                    outcome = await work()
                except JournalBusy as busy:
                    if not await busy.opening.wait_until_done(get_journal_wait_seconds(self.waits_ms)):
                        raise make_journal_busy_error() from None
                    reset()
                    outcome = await work()
            error = outcome.error
            has_ended = outcome.suspension is None and (error is None or is_repeatable_error(error))
            if self.journal is not None and has_ended:
                await self.journal.record_outcome_and_release(outcome, is_final=outcome.interrupt is None)
            return outcome
        finally:
            if self._wait is not None:
                await self._wait.cancel_and_release()
            if self.journal is not None and not is_suspended():
                await self.journal.release()

    def make_access_and_set_run_key(self, js: str, settings: InvocationSettings) -> JournalAccess:
        """Return the access to the journal of this program.

        Raises `CodeModeProtocolError` within that program's own run.
        """
        keeps_output = self.profile.shows_run_details
        access = JournalAccess(self.options, self._call, js, settings, keeps_output=keeps_output)
        require_no_self_wait(access.key, "the journal of this program is held by")
        self._journal_key = access.key
        if self._run is not None:
            self._run.key = access.key
        return access

    async def open_journal_and_restore_progress(self, machine: Invocation, event: ProgramAccepted) -> ProgramAccepted:
        """Open the journal of a program that is about to run and return where it continues.

        Raises `ProgramAlreadyRan`, `JournalBusy`, `CodeModeAbortedError` if the journal cannot be used, and
        `CodeModeProtocolError` if this host cannot continue it.
        """
        if self._wait is None:
            self._wait = JournalOpening(
                self.make_access_and_set_run_key(event.js, machine.derive_program_settings(event))
            )
            if self.waits_without_worker and not await self._wait.wait_until_done(_MAX_WAIT_WITH_WORKER_SECONDS):
                raise JournalBusy(self._wait)
        access = self._wait.reader
        opened, journal = await self._take_journal_or_raise_if_ended(self._wait)
        self.journal, settings = journal, access.settings
        if access.is_newly_created(opened):
            return _add_settings_to_acceptance(event, settings)
        recorded = await access.read_recorded_run(opened)
        journal.mark_ledger_written_and_add_claims(recorded.continuation.ledger, recorded.claims)
        self.calls.require_same_tools(recorded.continuation)
        settings = self._restore_settings(recorded.continuation, settings)
        ledger = await self.calls.restore_ledger(
            recorded.continuation.ledger,
            settings.salt,
            machine.ledger.sidecar,
            has_rich_values=settings.has_rich_values,
        )
        journal.queue_steps(*make_steps_if_outcome_unknown(recorded.continuation.ledger, ledger))
        return _add_settings_to_acceptance(event, settings, ledger)

    def _restore_settings(self, begun: Continuation, fresh: InvocationSettings) -> InvocationSettings:
        """Return the settings under which the program started, possibly under another release of this host."""
        settings, parameters = begun.restore_settings(fresh), begun.replay_settings["parameters"]
        if encode_canonical_json(parameters) == encode_canonical_json(dict(fresh.profile.parameters or {})):
            return settings
        own = restore_surface_settings(begun, self.profile)
        guest = replace(own.guest, result=fresh.profile.guest.result)  # a call without a program has its own
        return replace(settings, profile=replace(own, guest=guest))

    async def _take_journal_or_raise_if_ended(self, held: JournalOpening) -> tuple[OpenedJournal, InvocationJournal]:
        access = held.reader
        opened, journal = await held.take_opened_journal()
        self._wait = None
        if journal is None:
            ended = await access.read_outcome(opened)
            if ended.has_expired:  # an expired pause: make the same one again, valid from now
                opened = await access.open(again=True)
                if opened.outcome is not None:
                    ended = await access.read_outcome(opened)
            if opened.outcome is not None:
                raise ProgramAlreadyRan(ended.outcome)
            journal = InvocationJournal(access, opened)
        return opened, journal


def _add_settings_to_acceptance(
    event: ProgramAccepted, settings: InvocationSettings, recorded: Ledger | None = None
) -> ProgramAccepted:
    return ProgramAccepted(
        event.js,
        event.invocation_data_json,
        reports_locations=event.reports_locations,
        settings=settings,
        recorded=recorded,
    )
