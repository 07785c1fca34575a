"""The journal of one invocation as texts: its key, its head, what its lines and its outcome say. Runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from ..continuations.journal import Journal, OpenedJournal
from ..continuations.journal_texts import JournalTexts, journal_key
from ..continuations.keys import set_keys
from ..continuations.signing import Auth
from ..data.json_values import MAX_DEPTH, canonical_json, decode_json
from ..data.records import record
from ..errors import CodeModeProtocolError
from ..host.clock import now_ms
from ..host.threads import run_check
from ..options.parts import ContinuationOptions
from ..protocol.continuation import REPLAY_VERSION, Continuation, replayed_settings
from ..protocol.journal_entries import Claimed, Step, line_of, read_lines
from ..protocol.ledger import Progress
from ..protocol.settings import Settings
from ..workers.image import engine_version
from .call_context import CallContext
from .content_keeping import complete
from .journal_identity import ORIGIN, unavailable
from .outcome import RunOutcome
from .recorded_outcomes import RecordedOutcomes

_HEAD, _OUTCOME = "head", "outcome"
_NOBODY = Auth("", "", 0, 0)  # its texts are sealed as all of a journal


@record
class WrittenRun:
    """What a journal says of its invocation: all that a continuation has, its calls as they stood, who has resumed.

    ``ended`` are the calls whose outcome was written by the run that began them.
    """

    continuation: Continuation
    claims: Sequence[Claimed]
    ended: frozenset[int]


@record
class EndedRun:
    """What an invocation has come to by its journal. ``claims`` are of the resumes that led there, in their order.

    ``has_expired``: it is a pause whose continuation does not hold any more.
    """

    outcome: RunOutcome
    text: str
    claims: Sequence[Claimed]
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
        keys = options.keys if options.keys is not None else cast("tuple[bytes, ...]", set_keys())
        self.key = journal_key(settings.salt, settings.seed)
        self._texts = JournalTexts(options, keys, self.key, call.conversation_id)
        outer_id = settings.outer_tool_call_id
        self._outcomes = RecordedOutcomes(options, _NOBODY, False, outer_id, keeps_output)

    async def open(self, *, again: bool = False, engine: str | None = None) -> OpenedJournal:
        """Open it. Raises `CodeModeAbortedError` where the journal cannot be used, and what refuses a cut one."""
        plain = {
            "replayVersion": REPLAY_VERSION,
            "engine": engine or await run_check(0, engine_version),
            "settings": replayed_settings(self.settings),
            "given": self.settings.given_json,
        }
        self._head = self._texts.written(canonical_json(plain), _HEAD)
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
        return self._texts.written(line_of(steps), place)

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
                **_object(self._texts.read(opened.head, _HEAD)),
                "js": self._js,
                "source": self.settings.source,
                "ledger": [],
                "deliveries": [],
                "contents": [],
                "notices": 0,
                "progress": list(Progress()),
            }
        )
        ledger, claims, ended = read_lines(self._texts.read_all(opened.lines), begun.kept["outer_tool_call_id"])
        return WrittenRun(replace(begun, ledger=ledger), claims, ended)

    async def outcome_text(self, outcome: RunOutcome, claims: Sequence[Claimed]) -> str:
        """Write what the invocation has come to."""
        expires = None if outcome.interrupt is None else outcome.interrupt.continuation["auth"]["expiresAtMs"]
        head = canonical_json({"claims": list(claims), "expires": expires})
        return await run_check(
            0, lambda: self._texts.written(f"{head}\n{self._outcomes.of_outcome(outcome)}", _OUTCOME)
        )

    async def ended(self, opened: OpenedJournal) -> EndedRun:
        """Return what the invocation has come to. Raises `CodeModeProtocolError` for what no host has written here."""
        text = opened.outcome or ""
        ended = await run_check(len(text), lambda: self._ended(text))
        await complete(ended.outcome, self._outcomes.options)
        return ended

    def _ended(self, text: str) -> EndedRun:
        try:
            head, _, recorded = self._texts.read(text, _OUTCOME).partition("\n")
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
