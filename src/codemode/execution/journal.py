"""The journal of one invocation: read, and written in groups under a lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from ..continuations.journal import Journal, OpenedJournal
from ..continuations.keys import get_configured_keys
from ..continuations.sealing import JournalCodec, journal_key
from ..continuations.signing import Auth
from ..data.json_values import MAX_DEPTH, canonical_json, decode_json
from ..errors import CodeModeAbortedError, CodeModeError, CodeModeProtocolError
from ..host.cancellation import to_its_end
from ..host.clock import now_ms, passed_seconds
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.parts import ContinuationOptions
from ..protocol.continuation import REPLAY_VERSION, Continuation, get_replay_settings
from ..protocol.events import CallSettled
from ..protocol.journal_entries import (
    ClaimRecord,
    Step,
    decode_lines,
    encode_line,
    issue_step,
    notice_step,
    settle_step,
    start_step,
    undelivered_step,
)
from ..protocol.ledger import Ledger, ProgramProgress
from ..protocol.settings import Settings
from ..records import record
from ..workers.image import engine_version
from .call_content import complete
from .call_context import CallContext
from .identity import ORIGIN, journal_error, unavailable
from .outcome import RecordedOutcomes, RunOutcome

_HEAD, _OUTCOME = "head", "outcome"
_NOBODY = Auth("", "", 0, 0)  # its texts are sealed as all of a journal


@record
class WrittenRun:
    """What a journal says of its invocation: all that a continuation has, its calls as they stood, who has resumed.

    ``ended_ids`` are the calls whose outcome was written by the run that began them.
    """

    continuation: Continuation
    claims: Sequence[ClaimRecord]
    ended_ids: frozenset[int]


@record
class EndedRun:
    """What an invocation has come to by its journal. ``claims`` are of the resumes that led there, in their order.

    ``has_expired``: it is a pause whose continuation does not hold any more.
    """

    outcome: RunOutcome
    text: str
    claims: Sequence[ClaimRecord]
    has_expired: bool


class JournalAccess:
    """How the journal of one invocation is opened, written and read."""

    def __init__(
        self,
        options: ContinuationOptions,
        call: CallContext,
        js: str,
        settings: Settings,
        *,
        keeps_output: bool,
    ) -> None:
        self.journal: Journal = options.journal
        self.settings = settings
        self._js = js
        self._head = ""
        self._any_engine = options.any_engine
        keys = options.keys if options.keys is not None else cast("tuple[bytes, ...]", get_configured_keys())
        self.key = journal_key(settings.salt, settings.seed)
        self._texts = JournalCodec(options, keys, self.key, call.conversation_id)
        outer_id = settings.outer_tool_call_id
        self._outcomes = RecordedOutcomes(options, _NOBODY, False, outer_id, keeps_output)

    async def open(self, *, again: bool = False, engine: str | None = None) -> OpenedJournal:
        """Open it. Raises `CodeModeAbortedError` where the journal cannot be used, and what refuses a cut one."""
        plain = {
            "replayVersion": REPLAY_VERSION,
            "engine": engine or await run_check(0, engine_version),
            "settings": get_replay_settings(self.settings),
            "given": self.settings.invocation_data_json,
        }
        self._head = self._texts.encode(canonical_json(plain), _HEAD)
        try:
            return await self.journal.open(self.key, self._head, again=again)
        except CodeModeProtocolError:
            raise
        except Exception as error:
            raise unavailable("opened", error) from error

    def is_new(self, opened: OpenedJournal) -> bool:
        """True for a journal in which nothing stands but what was given when it was opened here."""
        return not opened.lines and opened.outcome is None and opened.head == self._head

    def line(self, place: int, steps: Sequence[Step]) -> str:
        """Write one line."""
        return self._texts.encode(encode_line(steps), place)

    async def read(self, opened: OpenedJournal) -> WrittenRun:
        """Return what was written so far. Raises `CodeModeProtocolError` for what this host cannot go on from."""
        size = sum(map(len, opened.lines))
        try:
            written = await run_check(size, lambda: self._read(opened))
            if not self._any_engine and written.continuation.engine != (engine := await run_check(0, engine_version)):
                raise CodeModeProtocolError(
                    f"the program was begun on version {written.continuation.engine} of the engine, and this host has"
                    f" {engine}: it may go another way here. continuation={{'any_engine': True}} lets it go on"
                )
        except CodeModeProtocolError as error:
            error.details.setdefault("origin", ORIGIN)
            raise
        return written

    def _read(self, opened: OpenedJournal) -> WrittenRun:
        begun = Continuation.from_dict(
            {
                **_object(self._texts.decode(opened.head, _HEAD)),
                "js": self._js,
                "source": self.settings.source,
                "ledger": [],
                "deliveries": [],
                "contents": [],
                "notices": 0,
                "progress": list(ProgramProgress()),
            }
        )
        ledger, claims, ended = decode_lines(
            self._texts.decode_all(opened.lines), begun.replay_settings["outer_tool_call_id"]
        )
        return WrittenRun(replace(begun, ledger=ledger), claims, ended)

    async def outcome_text(self, outcome: RunOutcome, claims: Sequence[ClaimRecord]) -> str:
        """Write what the invocation has come to."""
        expires = None if outcome.interrupt is None else outcome.interrupt.continuation["auth"]["expiresAtMs"]
        head = canonical_json({"claims": list(claims), "expires": expires})
        return await run_check(0, lambda: self._texts.encode(f"{head}\n{self._outcomes.of_outcome(outcome)}", _OUTCOME))

    async def ended(self, opened: OpenedJournal) -> EndedRun:
        """Return what the invocation has come to. Raises `CodeModeProtocolError` for what no host has written here."""
        text = opened.outcome or ""
        ended = await run_check(len(text), lambda: self._ended(text))
        await complete(ended.outcome, self._outcomes.options)
        return ended

    def _ended(self, text: str) -> EndedRun:
        try:
            head, _, recorded = self._texts.decode(text, _OUTCOME).partition("\n")
            told = _object(head)
            claims, expires = [(key, answers) for key, answers in told["claims"]], told["expires"]
            outcome = self._outcomes.replayed(recorded)
        except (CodeModeProtocolError, LookupError, ValueError) as error:
            raise CodeModeProtocolError(
                f"the recorded outcome of this program cannot be read: {error}", details={"origin": ORIGIN}
            ) from error
        has_expired = expires is not None and now_ms() >= expires
        return EndedRun(outcome, text, claims, has_expired)


def _object(text: str) -> dict[str, Any]:
    try:
        return cast("dict[str, Any]", decode_json(text, max_depth=MAX_DEPTH))
    except ValueError as error:
        raise CodeModeProtocolError("the journal cannot be read") from error


_log = logging.getLogger("codemode.continuations")
_LOST = (
    "the journal of this program is another host's by now: this one has not renewed its lease in time, and what the"
    " program came to here is not told"
)

_LARGE_LINE_CHARACTERS = 4 * LARGE_CHARACTERS  # which is written, but not read


@dataclass(slots=True)
class _Queued:
    """A step to write, and what is done once it is written; ``begins`` is of a call that waits for that to begin."""

    step: Step
    then: Callable[[], None] | None = None
    begins: asyncio.Future[None] | None = None


class InvocationJournal:
    """An opened journal that is this host's. ``claims`` are those of the resumes that have led here.

    Each step waits in a queue. What is in it when the write before has ended is written in one line; then all that was
    waiting for these steps is done in their order, so that outcomes are handed in in the order in which they stand.
    A write that fails, or is no longer this host's to make, ends the run: ``failure`` says so.
    """

    def __init__(self, access: JournalAccess, opened: OpenedJournal) -> None:
        self._access = access
        self._journal = access.journal
        self._opened = opened
        self.claims: list[ClaimRecord] = []
        self._place = len(opened.lines)
        self._loop = asyncio.get_running_loop()
        self._ledger = Ledger()
        self._issued = self._noticed = 0  # requests and notices that stand in the lines
        self._queue: list[_Queued] = []
        self._settled = set[int]()
        self._on_failure: Callable[[CodeModeError], None] = _nobody
        self._is_due = False  # the lease, to be renewed
        self._is_idle = asyncio.Event()
        self._wake: asyncio.Future[None] | None = None
        self._is_given_up = False
        self._looks = 0  # since the last answer of the journal
        self.failure: CodeModeAbortedError | None = None
        self.has_more = False  # to hand in at once, behind what is being handed in
        self._is_alone: Callable[[], bool] = _never
        self._write_at_once = getattr(self._journal, "write_at_once", None)
        self._service = self._loop.create_task(self._serve())
        self._timer = self._loop.call_later(self._journal.lease_ms / 3000, self._look)

    def has_written(self, recorded: Ledger, claims: Iterable[ClaimRecord] = ()) -> None:
        """Take all of this ledger as written, and these resumes."""
        self._issued, self._noticed = len(recorded.entries), recorded.notice_count
        self.claims += claims

    def follow(self, ledger: Ledger, on_failure: Callable[[CodeModeError], None], is_alone: Callable[[], bool]) -> None:
        """Write what comes into this ledger beyond what is written; ``on_failure`` ends the run.

        ``is_alone``: no other call may have something to write in the same moment.
        """
        self._ledger, self._on_failure, self._is_alone = ledger, on_failure, is_alone
        if self.failure is not None:
            on_failure(self.failure)

    def begun(
        self, request_id: int, executed_input_json: str | None, *, is_approved: bool, then: Callable[[], None]
    ) -> Awaitable[None] | None:
        """Write that a call begins. None: it may; else it may once that is there, which never comes after a failure."""
        step = start_step(request_id, executed_input_json, is_approved=is_approved)
        if self._is_written_at_once(step):
            then()
            return None
        begins = self._loop.create_future()
        self._put(_Queued(step, then, begins))
        return begins

    def has_settled(self, request_id: int) -> bool:
        """True for a call whose outcome is written, or is to be: what it comes to after that is no outcome."""
        return request_id in self._settled

    def settled(self, event: CallSettled, then: Callable[[CallSettled], None]) -> None:
        """Write how a request has ended, and hand that in."""

        def hand_in() -> None:
            then(event)
            ledger = self._ledger
            if event.id in ledger and ledger[event.id].is_withdrawn and ledger.deliveries[-1:] != [event.id]:
                self._put(_Queued(undelivered_step(event.id)))

        self._settled.add(event.id)
        if self.failure is not None or self._is_given_up:
            hand_in()
            return
        step = settle_step(event)
        if self._is_written_at_once(step):
            hand_in()
        else:
            self._put(_Queued(step, hand_in))

    def note(self, *steps: Step) -> None:
        """Write steps for which nothing waits, in front of all to come."""
        for step in steps:
            self._put(_Queued(step))

    async def write(self, *steps: Step) -> None:
        """Write steps, and wait for that. Raises `CodeModeAbortedError` when they cannot be written."""
        self.note(*steps)
        await self._drained()
        if self.failure is not None:
            raise self.failure

    async def end(self, outcome: RunOutcome, *, is_final: bool) -> None:
        """Keep what the invocation has come to, and give the journal up. Raises `CodeModeAbortedError`."""
        await to_its_end(self._end(outcome, is_final=is_final))

    async def put_back(self, text: str) -> None:
        """Let the outcome of a pause stand again, if it can be: nothing was done since. Never raises."""
        if self._give_up():
            await to_its_end(self._quietly(self._journal.end(self._opened, text, is_final=False)))

    async def release(self) -> None:
        """Give it up, if it still is to be: whoever asks next goes on from the lines. Never raises."""
        if not self._is_given_up:
            await to_its_end(self._release())

    async def _end(self, outcome: RunOutcome, *, is_final: bool) -> None:
        text = await self._access.outcome_text(outcome, self.claims)
        await self._drained()
        if self._give_up() and self.failure is None:
            try:
                if not await self._journal.end(self._opened, text, is_final=is_final):
                    self.failure = journal_error(_LOST, is_lost=True)
            except Exception as error:  # noqa: BLE001 - a journal is host code
                self.failure = unavailable("ended", error)
        if self.failure is not None:
            raise self.failure

    async def _release(self) -> None:
        await self._drained()
        if self._give_up() and self.failure is None:
            await self._quietly(self._journal.release(self._opened))

    async def _quietly(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - its lease will end
            _log.warning("a journal could not be given up: others have it once its lease is over", exc_info=True)
            self.failure = unavailable("given up", error)

    def _give_up(self) -> bool:
        if self._is_given_up:
            return False
        self._is_given_up = True
        self._timer.cancel()
        self._service.cancel()
        return True

    # -- the service

    def _is_written_at_once(self, step: Step) -> bool:
        """Write a step where neither the journal nor another step makes it wait; else do nothing."""
        write = self._write_at_once
        if write is None or self._queue or self.failure is not None:
            return False
        if not (self._is_idle.is_set() and self._is_alone()) or _size_of(step) > _LARGE_LINE_CHARACTERS:
            return False
        before = self._issued, self._noticed
        try:
            done = write(self._opened, [self._access.line(self._place, [*self._news(), step])])
        except Exception as error:  # noqa: BLE001 - a journal is host code
            self._fail(unavailable("written", error))
            return False
        if done is None:
            self._issued, self._noticed = before
            return False
        self._answered(done)
        self._place += done
        return done

    def _put(self, one: _Queued) -> None:
        if self.failure is not None or self._is_given_up:
            return
        self._queue.append(one)
        self._rouse()

    def _rouse(self) -> None:
        self._is_idle.clear()
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _drained(self) -> None:
        if self._queue and self.failure is None and not self._is_given_up:
            self._rouse()
        if self.failure is None and not self._is_given_up:
            await self._is_idle.wait()

    def _look(self) -> None:
        """Ask for a renewal; give up a journal that has not answered for as long as it holds."""
        self._looks += 1
        if self._looks > 3:
            self._fail(journal_error("the journal of this program has not answered for as long as its lease is"))
            self._service.cancel()
            return
        self._timer = self._loop.call_later(self._journal.lease_ms / 3000, self._look)
        self._is_due = True
        self._rouse()

    async def _serve(self) -> None:
        try:
            while self.failure is None:
                if self._is_due:
                    self._is_due = False
                    self._answered(await self._journal.renew(self._opened))
                elif self._queue:
                    await self._write_group()
                else:
                    self._is_idle.set()
                    self._wake = self._loop.create_future()
                    await self._wake
        except Exception as error:  # noqa: BLE001 - a journal is host code, and the run must not wait for ever
            self._fail(unavailable("written", error))
        finally:
            self._tell_queued()

    async def _write_group(self) -> None:
        queued = [one for one in self._queue if one.begins is None or not one.begins.cancelled()]
        self._queue.clear()
        steps = [*self._news(), *(one.step for one in queued)]
        if not steps:
            return
        try:
            size = sum(map(_size_of, steps))
            work = partial(self._access.line, self._place, steps)
            line = work() if size < _LARGE_LINE_CHARACTERS else await run_check(size, work)
            await self._write(line)
        except BaseException:
            self._queue[:0] = queued
            raise
        if self.failure is not None:
            self._queue[:0] = queued
            return
        self._place += 1
        for left, one in zip(range(len(queued) - 1, -1, -1), queued, strict=True):
            self.has_more = left > 0
            if one.then is not None:
                one.then()
            if one.begins is not None and not one.begins.done():
                one.begins.set_result(None)

    async def _write(self, line: str) -> None:
        asked_at = passed_seconds()
        self._answered(await self._journal.write(self._opened, [line]))
        # Where this host has stood still since, another may have taken it over: no call begins behind that.
        if passed_seconds() - asked_at > self._journal.lease_ms / 3000:
            self._answered(await self._journal.renew(self._opened))

    def _news(self) -> list[Step]:
        """Return what the program has said since the last line."""
        ledger = self._ledger
        steps: list[Step] = []
        if len(ledger.entries) > self._issued:
            steps += [issue_step(entry) for entry in ledger.entries[self._issued :]]
            self._issued = len(ledger.entries)
        if ledger.notice_count > self._noticed:
            self._noticed = ledger.notice_count
            steps.append(notice_step(self._noticed))
        return steps

    def _answered(self, is_ours: bool) -> None:
        self._looks = 0
        if not is_ours:
            self._fail(journal_error(_LOST, is_lost=True))

    def _fail(self, error: CodeModeAbortedError) -> None:
        if self.failure is None:
            self.failure = error
            self._timer.cancel()
            self._on_failure(error)

    def _tell_queued(self) -> None:
        """Hand in what its calls came to, now that nothing is written any more; begin nothing."""
        queued, self._queue = self._queue, []
        for one in queued:
            if one.then is not None and one.begins is None:
                one.then()
        self._is_idle.set()


def _size_of(step: Step) -> int:
    size = 0
    for text in step.texts:
        if text is not None:
            size += len(text)
    return size


def _never() -> bool:
    return False


def _nobody(_error: CodeModeError) -> None:
    """Stand in for a run that is not under way yet."""
