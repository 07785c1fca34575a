"""Read the journal of one invocation and write it in groups under a lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from ..continuations.journal import Journal, OpenedJournal
from ..continuations.keys import get_configured_keys
from ..continuations.sealing import JournalCodec, compute_journal_key
from ..continuations.signing import SignatureInfo
from ..data.json_values import MAX_DEPTH, decode_json, encode_canonical_json
from ..errors import CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from ..host.cancellation import shield_until_done
from ..host.clock import monotonic_seconds, now_ms
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..options.parts import ContinuationOptions
from ..protocol.continuation import REPLAY_VERSION, Continuation, get_replay_settings
from ..protocol.events import CallSettled
from ..protocol.journal_entries import (
    ClaimRecord,
    JournalStep,
    decode_journal_lines,
    encode_journal_line,
    make_notification_count_step,
    make_outcome_step,
    make_request_step,
    make_tool_start_step,
    make_undelivered_outcome_step,
)
from ..protocol.ledger import Ledger, ProgramProgress
from ..protocol.settings import InvocationSettings
from ..records import record
from ..workers.image import find_engine_version
from .call_content import load_outcome_content
from .call_context import CallContext
from .identity import JOURNAL_ORIGIN, make_journal_error, make_journal_unavailable_error
from .outcome import OutcomeCodec, RunOutcome

_HEAD_POSITION, _OUTCOME_POSITION = "head", "outcome"
_NO_AUTH = SignatureInfo("", "", 0, 0)  # a journal seals whole entries, so outcomes need no seal of their own


@record
class RecordedRun:
    """An invocation as its journal records it: its continuation, its calls and its resumes.

    ``ended_ids`` are the calls whose outcome was written by the run that started them.
    """

    continuation: Continuation
    claims: Sequence[ClaimRecord]
    ended_ids: frozenset[int]


@record
class RecordedOutcome:
    """The recorded outcome of an invocation. ``claims`` are the resumes that led to it, in order.

    ``has_expired``: it is a pause whose continuation has expired.
    """

    outcome: RunOutcome
    text: str
    claims: Sequence[ClaimRecord]
    has_expired: bool


class JournalAccess:
    """Opens, reads and writes the journal of one invocation."""

    def __init__(
        self,
        options: ContinuationOptions,
        call: CallContext,
        js: str,
        settings: InvocationSettings,
        *,
        keeps_output: bool,
    ) -> None:
        self.journal: Journal = options.journal
        self.settings = settings
        self._js = js
        self._head = ""
        self._allows_any_engine = options.any_engine
        keys = options.keys if options.keys is not None else cast("tuple[bytes, ...]", get_configured_keys())
        self.key = compute_journal_key(settings.salt, settings.seed)
        self._codec = JournalCodec(options, keys, self.key, call.conversation_id)
        outer_id = settings.outer_tool_call_id
        self._outcomes = OutcomeCodec(options, _NO_AUTH, False, outer_id, keeps_output)

    async def open(self, *, again: bool = False, engine: str | None = None) -> OpenedJournal:
        """Open the journal. Raises `CodeModeAbortedError` if it cannot be used."""
        head = {
            "replayVersion": REPLAY_VERSION,
            "engine": engine or await run_in_thread_if_large_or_slow(0, find_engine_version),
            "settings": get_replay_settings(self.settings),
            "given": self.settings.invocation_data_json,
        }
        self._head = self._codec.sign_and_seal(encode_canonical_json(head), _HEAD_POSITION)
        try:
            return await self.journal.open(self.key, self._head, again=again)
        except CodeModeProtocolError:
            raise
        except Exception as error:
            raise make_journal_unavailable_error("opened", error) from error

    def is_newly_created(self, opened: OpenedJournal) -> bool:
        """True if the journal has nothing but the head written here."""
        return not opened.lines and opened.outcome is None and opened.head == self._head

    def encode_line(self, position: int, steps: Sequence[JournalStep]) -> str:
        """Return the encoded line at this position."""
        return self._codec.sign_and_seal(encode_journal_line(steps), position)

    async def read_recorded_run(self, opened: OpenedJournal) -> RecordedRun:
        """Return the recorded run. Raises `CodeModeProtocolError` if this host cannot continue it."""
        size = sum(map(len, opened.lines))
        try:
            written = await run_in_thread_if_large_or_slow(size, lambda: self._decode_recorded_run(opened))
            if not self._allows_any_engine and written.continuation.engine != (
                engine := await run_in_thread_if_large_or_slow(0, find_engine_version)
            ):
                raise CodeModeProtocolError(
                    f"the program started on version {written.continuation.engine} of the engine, and this host has"
                    f" {engine}: it may behave differently here. continuation={{'any_engine': True}} allows it"
                )
        except CodeModeProtocolError as error:
            error.details.setdefault("origin", JOURNAL_ORIGIN)
            raise
        return written

    def _decode_recorded_run(self, opened: OpenedJournal) -> RecordedRun:
        begun = Continuation.from_dict(
            {
                **_decode_object(self._codec.verify_and_unseal(opened.head, _HEAD_POSITION)),
                "js": self._js,
                "source": self.settings.source,
                "ledger": [],
                "deliveries": [],
                "contents": [],
                "notices": 0,
                "progress": list(ProgramProgress()),
            }
        )
        ledger, claims, ended = decode_journal_lines(
            self._codec.verify_and_unseal_lines(opened.lines), begun.replay_settings["outer_tool_call_id"]
        )
        return RecordedRun(replace(begun, ledger=ledger), claims, ended)

    async def encode_outcome(self, outcome: RunOutcome, claims: Sequence[ClaimRecord]) -> str:
        """Encode the outcome of the invocation."""
        expires = None if outcome.interrupt is None else outcome.interrupt.continuation["auth"]["expiresAtMs"]
        head = encode_canonical_json({"claims": list(claims), "expires": expires})
        return await run_in_thread_if_large_or_slow(
            0, lambda: self._codec.sign_and_seal(f"{head}\n{self._outcomes.encode_outcome(outcome)}", _OUTCOME_POSITION)
        )

    async def read_outcome(self, opened: OpenedJournal) -> RecordedOutcome:
        """Return the recorded outcome. Raises `CodeModeProtocolError` if no host wrote it for this invocation."""
        text = opened.outcome or ""
        ended = await run_in_thread_if_large_or_slow(len(text), lambda: self._decode_outcome(text))
        await load_outcome_content(ended.outcome, self._outcomes.options)
        return ended

    def _decode_outcome(self, text: str) -> RecordedOutcome:
        try:
            head, _, recorded = self._codec.verify_and_unseal(text, _OUTCOME_POSITION).partition("\n")
            fields = _decode_object(head)
            claims, expires = [(key, answers) for key, answers in fields["claims"]], fields["expires"]
            outcome = self._outcomes.decode_outcome(recorded)
        except (CodeModeProtocolError, LookupError, ValueError) as error:
            raise CodeModeProtocolError(
                f"the recorded outcome of this program cannot be read: {error}", details={"origin": JOURNAL_ORIGIN}
            ) from error
        has_expired = expires is not None and now_ms() >= expires
        return RecordedOutcome(outcome, text, claims, has_expired)


def _decode_object(text: str) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", decode_json(text, max_depth=MAX_DEPTH))
    except ValueError as error:
        raise CodeModeProtocolError("the journal cannot be read") from error


_log = logging.getLogger("codemode.continuations")
_LEASE_LOST = (
    "the journal of this program now belongs to another host: this host did not renew its lease in time, and its"
    " outcome is discarded"
)

_MAX_INLINE_LINE_CHARACTERS = 4 * LARGE_CHARACTERS  # written, but not read


@dataclass(slots=True)
class _QueuedStep:
    """A step to write and a callback for when it is written; ``may_start`` is set if a call waits for it to start."""

    step: JournalStep
    on_written: Callable[[], None] | None = None
    may_start: asyncio.Future[None] | None = None


class InvocationJournal:
    """An opened journal that this host owns. ``claims`` are the resumes that led here.

    Steps wait in a queue. All steps that queued up during one write go into the next line; then their callbacks run
    in order, so that outcomes are delivered in the order of the lines. A failed write or a lost lease ends the run
    and sets ``failure``.
    """

    def __init__(self, access: JournalAccess, opened: OpenedJournal) -> None:
        self._reader = access
        self._journal = access.journal
        self._opened = opened
        self.claims: list[ClaimRecord] = []
        self._line_count = len(opened.lines)
        self._loop = asyncio.get_running_loop()
        self._ledger = Ledger()
        self._written_requests = self._written_notices = 0  # in lines that are already written
        self._queue: list[_QueuedStep] = []
        self._settled_ids = set[int]()
        self._on_failure: Callable[[CodeModeError], None] = _ignore_failure
        self._is_renewal_due = False  # whether the lease is to be renewed
        self._is_idle = asyncio.Event()
        self._wake: asyncio.Future[None] | None = None
        self._is_closed = False
        self._unanswered_renewals = 0  # renewals since the journal last answered
        self.failure: CodeModeAbortedError | None = None
        self.has_more_to_deliver = False  # more outcomes after the one being delivered
        self._is_only_call: Callable[[], bool] = _always_false
        self._write_at_once = getattr(self._journal, "write_nowait", None)
        self._writer_task = self._loop.create_task(self._run_writer())
        self._timer = self._loop.call_later(self._journal.lease_ms / 3000, self._request_renewal_or_fail_run)

    def mark_ledger_written_and_add_claims(self, recorded: Ledger, claims: Iterable[ClaimRecord] = ()) -> None:
        """Treat this ledger and these resumes as written."""
        self._written_requests, self._written_notices = len(recorded.entries), recorded.notice_count
        self.claims += claims

    def attach_ledger(
        self, ledger: Ledger, on_failure: Callable[[CodeModeError], None], is_alone: Callable[[], bool]
    ) -> None:
        """Write what is added to this ledger; ``on_failure`` ends the run.

        ``is_alone``: no other call may have something to write at the same time.
        """
        self._ledger, self._on_failure, self._is_only_call = ledger, on_failure, is_alone
        if self.failure is not None:
            on_failure(self.failure)

    def write_call_start(
        self, request_id: int, executed_input_json: str | None, *, is_approved: bool, on_written: Callable[[], None]
    ) -> Awaitable[None] | None:
        """Write that a call starts.

        Returns None if it may start now, else an awaitable, which never completes after a failure.
        """
        step = make_tool_start_step(request_id, executed_input_json, is_approved=is_approved)
        if self._try_write_now(step):
            on_written()
            return None
        may_start = self._loop.create_future()
        self._enqueue_step(_QueuedStep(step, on_written, may_start))
        return may_start

    def has_call_outcome(self, request_id: int) -> bool:
        """True if the outcome of a call is written or queued; a later outcome is ignored."""
        return request_id in self._settled_ids

    def write_and_deliver_call_outcome(self, event: CallSettled, deliver: Callable[[CallSettled], None]) -> None:
        """Write the outcome of a request, then deliver it."""

        def deliver_and_record_withdrawal() -> None:
            deliver(event)
            ledger = self._ledger
            if event.id in ledger and ledger[event.id].is_withdrawn and ledger.deliveries[-1:] != [event.id]:
                self._enqueue_step(_QueuedStep(make_undelivered_outcome_step(event.id)))

        self._settled_ids.add(event.id)
        if self.failure is not None or self._is_closed:
            deliver_and_record_withdrawal()
            return
        step = make_outcome_step(event)
        if self._try_write_now(step):
            deliver_and_record_withdrawal()
        else:
            self._enqueue_step(_QueuedStep(step, deliver_and_record_withdrawal))

    def queue_steps(self, *steps: JournalStep) -> None:
        """Queue steps for which nothing waits."""
        for step in steps:
            self._enqueue_step(_QueuedStep(step))

    async def write_steps(self, *steps: JournalStep) -> None:
        """Write steps and wait for it. Raises `CodeModeAbortedError` if they cannot be written."""
        self.queue_steps(*steps)
        await self._wait_until_written()
        if self.failure is not None:
            raise self.failure

    async def record_outcome_and_release(self, outcome: RunOutcome, *, is_final: bool) -> None:
        """Record the outcome of the invocation and release the journal. Raises `CodeModeAbortedError`."""
        await shield_until_done(self._record_outcome_and_release(outcome, is_final=is_final))

    async def write_back_pause_outcome_and_release(self, text: str) -> None:
        """Write the outcome of the pause back, as nothing ran since. Never raises."""
        if self._close_if_open():
            await shield_until_done(self._run_and_store_failure(self._journal.end(self._opened, text, is_final=False)))

    async def release(self) -> None:
        """Release the journal if it is owned: the next owner continues from its lines. Never raises."""
        if not self._is_closed:
            await shield_until_done(self._release())

    async def _record_outcome_and_release(self, outcome: RunOutcome, *, is_final: bool) -> None:
        text = await self._reader.encode_outcome(outcome, self.claims)
        await self._wait_until_written()
        if self._close_if_open() and self.failure is None:
            try:
                if not await self._journal.end(self._opened, text, is_final=is_final):
                    self.failure = make_journal_error(_LEASE_LOST, is_lost=True)
            except Exception as error:  # noqa: BLE001 - a journal is host code
                self.failure = make_journal_unavailable_error("ended", error)
        if self.failure is not None:
            raise self.failure

    async def _release(self) -> None:
        await self._wait_until_written()
        if self._close_if_open() and self.failure is None:
            await self._run_and_store_failure(self._journal.release(self._opened))

    async def _run_and_store_failure(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - its lease will end
            _log.warning(
                "a journal could not be released: another host can claim it once the lease expires", exc_info=True
            )
            self.failure = make_journal_unavailable_error("given up", error)

    def _close_if_open(self) -> bool:
        if self._is_closed:
            return False
        self._is_closed = True
        self._timer.cancel()
        self._writer_task.cancel()
        return True

    # -- the writer task

    def _try_write_now(self, step: JournalStep) -> bool:
        """Write a step now if neither the journal nor another step makes it wait; returns whether it did."""
        write = self._write_at_once
        if write is None or self._queue or self.failure is not None:
            return False
        if (
            not (self._is_idle.is_set() and self._is_only_call())
            or _count_characters(step) > _MAX_INLINE_LINE_CHARACTERS
        ):
            return False
        previous_counts = self._written_requests, self._written_notices
        try:
            is_written = write(
                self._opened, [self._reader.encode_line(self._line_count, [*self._take_new_ledger_steps(), step])]
            )
        except Exception as error:  # noqa: BLE001 - a journal is host code
            self._fail_run(make_journal_unavailable_error("written", error))
            return False
        if is_written is None:
            self._written_requests, self._written_notices = previous_counts
            return False
        self._count_answer_and_fail_unless_owned(is_written)
        self._line_count += is_written
        return is_written

    def _enqueue_step(self, queued: _QueuedStep) -> None:
        if self.failure is not None or self._is_closed:
            return
        self._queue.append(queued)
        self._wake_writer()

    def _wake_writer(self) -> None:
        self._is_idle.clear()
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _wait_until_written(self) -> None:
        if self._queue and self.failure is None and not self._is_closed:
            self._wake_writer()
        if self.failure is None and not self._is_closed:
            await self._is_idle.wait()

    def _request_renewal_or_fail_run(self) -> None:
        """Request a renewal; fail if the journal has not answered for the length of its lease."""
        self._unanswered_renewals += 1
        if self._unanswered_renewals > 3:
            self._fail_run(
                make_journal_error("the journal of this program has not answered for the length of its lease")
            )
            self._writer_task.cancel()
            return
        self._timer = self._loop.call_later(self._journal.lease_ms / 3000, self._request_renewal_or_fail_run)
        self._is_renewal_due = True
        self._wake_writer()

    async def _run_writer(self) -> None:
        try:
            while self.failure is None:
                if self._is_renewal_due:
                    self._is_renewal_due = False
                    self._count_answer_and_fail_unless_owned(await self._journal.renew(self._opened))
                elif self._queue:
                    await self._write_queued_steps()
                else:
                    self._is_idle.set()
                    self._wake = self._loop.create_future()
                    await self._wake
        except Exception as error:  # noqa: BLE001 - a journal is host code, and the run must not wait for ever
            self._fail_run(make_journal_unavailable_error("written", error))
        finally:
            self._deliver_queued_outcomes()

    async def _write_queued_steps(self) -> None:
        queued = [entry for entry in self._queue if entry.may_start is None or not entry.may_start.cancelled()]
        self._queue.clear()
        steps = [*self._take_new_ledger_steps(), *(entry.step for entry in queued)]
        if not steps:
            return
        try:
            size = sum(map(_count_characters, steps))
            work = partial(self._reader.encode_line, self._line_count, steps)
            line = work() if size < _MAX_INLINE_LINE_CHARACTERS else await run_in_thread_if_large_or_slow(size, work)
            await self._write_line(line)
        except BaseException:
            self._queue[:0] = queued
            raise
        if self.failure is not None:
            self._queue[:0] = queued
            return
        self._line_count += 1
        for remaining, entry in zip(range(len(queued) - 1, -1, -1), queued, strict=True):
            self.has_more_to_deliver = remaining > 0
            if entry.on_written is not None:
                entry.on_written()
            if entry.may_start is not None and not entry.may_start.done():
                entry.may_start.set_result(None)

    async def _write_line(self, line: str) -> None:
        asked_at = monotonic_seconds()
        self._count_answer_and_fail_unless_owned(await self._journal.write(self._opened, [line]))
        # If this host was suspended, another may own the journal now: start no call.
        if monotonic_seconds() - asked_at > self._journal.lease_ms / 3000:
            self._count_answer_and_fail_unless_owned(await self._journal.renew(self._opened))

    def _take_new_ledger_steps(self) -> list[JournalStep]:
        """Return the steps for requests and notices since the last line."""
        ledger = self._ledger
        steps: list[JournalStep] = []
        if len(ledger.entries) > self._written_requests:
            steps += [make_request_step(entry) for entry in ledger.entries[self._written_requests :]]
            self._written_requests = len(ledger.entries)
        if ledger.notice_count > self._written_notices:
            self._written_notices = ledger.notice_count
            steps.append(make_notification_count_step(self._written_notices))
        return steps

    def _count_answer_and_fail_unless_owned(self, is_ours: bool) -> None:
        self._unanswered_renewals = 0
        if not is_ours:
            self._fail_run(make_journal_error(_LEASE_LOST, is_lost=True))

    def _fail_run(self, error: CodeModeAbortedError) -> None:
        if self.failure is None:
            self.failure = error
            self._timer.cancel()
            self._on_failure(error)

    def _deliver_queued_outcomes(self) -> None:
        """Deliver queued outcomes after writing has ended; start nothing."""
        queued, self._queue = self._queue, []
        for entry in queued:
            if entry.on_written is not None and entry.may_start is None:
                entry.on_written()
        self._is_idle.set()


def _count_characters(step: JournalStep) -> int:
    size = 0
    for text in step.texts:
        if text is not None:
            size += len(text)
    return size


def _always_false() -> bool:
    return False


def _ignore_failure(_error: CodeModeError) -> None:
    """Ignore a failure before the run has started."""
