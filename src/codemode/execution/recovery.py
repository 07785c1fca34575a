"""Find out where a run can resume: calls to repeat, calls to ask about, its interrupt."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from ..continuations.keys import warn_once_if_keyed_guard_unshared
from ..continuations.sealing import encode_and_sign_continuation
from ..data.json_values import encode_canonical_json
from ..errors import CodeModeAbortedError
from ..host.cancellation import shield_until_done
from ..host.clock import now_ms
from ..host.threads import LARGE_CHARACTERS, InvocationThreads, InvocationThreadsScope, run_in_thread_if_large_or_slow
from ..interrupts.approval import ApprovalRequest, make_denial_error
from ..interrupts.interrupt import Interrupt, convert_to_pending_requests
from ..interrupts.resolutions import Answer, ApprovalAnswer, KnownOutcomeAnswer, is_denial
from ..options.parts import ApprovalPolicy, ContinuationOptions
from ..profile import HostErrorRules
from ..protocol.continuation import Continuation, continuation_to_texts
from ..protocol.guest_errors import make_rejection
from ..protocol.ledger import UNREPORTED_KINDS, Ledger, LedgerEntry, Outcome, build_recovery_ledger
from ..protocol.settings import InvocationSettings
from ..records import record
from ..tools.catalog import ToolCatalog
from ..tools.prepared import MISSING, PreparedTool
from ..workers.image import find_engine_version
from .call_content import (
    get_content_store,
    restore_handle_descriptions,
    store_and_retain_content_until_expiry,
    using_content_registry,
)
from .call_values import AnsweredPause


def must_save_executed_input(text: str, *, varies: bool) -> bool:
    """Return True if a recovery could not validate the executed input of a call again.

    A large input would block the loop; some schemas return another value each time.
    """
    return varies or len(text) >= LARGE_CHARACTERS


# As the guest runtime writes a request; a body follows the method.
_READ_ONLY_FETCH = re.compile(r'\{"url":"(?:[^"\\]|\\.)*+","method":"(?:GET|HEAD)"', re.IGNORECASE)


def build_ledger_with_started_calls(
    answered: AnsweredPause, policy: ApprovalPolicy, now_ms: int, errors: HostErrorRules
) -> Ledger:
    """Return the ledger of a resume that started with these answers; its further outcome is unknown.

    Calls that an answer allowed may have run; denials and known outcomes are recorded.
    """
    ledger = answered.continuation.ledger
    started = replace(ledger, entries=[*ledger.entries], deliveries=[*ledger.deliveries], sidecar=None)
    for request_id, answer in answered.answers.items():
        entry, checked = started[request_id], answered.inputs.get(request_id)
        outcome = _find_answer_outcome(entry, answer, policy, errors)
        if outcome is not None:
            started.record_outcome(request_id, outcome, now_ms)
            started.deliveries.append(request_id)
        elif isinstance(answer, ApprovalAnswer):
            started.record_tool_start(
                request_id, None if checked is None else checked.displayed_input_json, is_approved=True
            )
        else:
            started.record_tool_start(request_id, entry.executed_input_json, is_approved=entry.is_approved)
    return started


def _find_answer_outcome(
    entry: LedgerEntry, answer: Answer, policy: ApprovalPolicy, errors: HostErrorRules
) -> Outcome | None:
    if isinstance(answer, KnownOutcomeAnswer):
        return to_surface_outcome(entry, answer, errors)
    if not is_denial(answer):
        return None
    request = ApprovalRequest(entry.name, None, entry.tool_call_id or "")
    return make_rejection(entry, make_denial_error(request, answer.decision, policy), errors)


def to_surface_outcome(entry: LedgerEntry, answer: KnownOutcomeAnswer, errors: HostErrorRules) -> Outcome:
    """Return the reported outcome of a call as programs of this surface see it."""
    if answer.error is None or (errors.codes is None and errors.error_fields is None):
        return answer.outcome
    return make_rejection(entry, answer.error, errors)


def is_read_only_call(catalog: ToolCatalog[PreparedTool], entry: LedgerEntry) -> bool:
    """Return True for a call that changes nothing, by the tool's annotations or the fetch method."""
    if entry.kind == "fetch":
        return _READ_ONLY_FETCH.match(entry.input_json or "") is not None
    tool = catalog.get(entry.name)
    annotations: Mapping[str, Any] = {} if tool is None else tool.annotations
    return annotations.get("readOnlyHint") is True and annotations.get("destructiveHint") is not True


def make_lapsed_resume_error() -> CodeModeAbortedError:
    """Return the error of a resume whose host is gone."""
    return CodeModeAbortedError(
        "the host that went on with this program is gone and did not say how it ended: what was answered may have"
        " run, and its outcome is unknown",
        details={"is_resumed": True, "origin": "continuation"},
    )


@record
class RecoveryLedgerBuilder:
    """Builds the ledger of a recovery from tools and the saved inputs of calls whose outcome is unknown."""

    catalog: ToolCatalog[PreparedTool]
    inputs: Mapping[int, str]
    has_rich_values: bool = False

    def build_ledger(self, ledger: Ledger, salt: str) -> Ledger:
        """Return the ledger to continue from."""
        contents = ledger.contents

        def get_displayed_input(entry: LedgerEntry) -> str | None:
            text = self._get_executed_input(entry)
            return text if contents is None else contents.replace_names_with_ids(text)

        with using_content_registry(
            contents, has_rich_values=self.has_rich_values
        ):  # for display: the host's own descriptions of handles
            return build_recovery_ledger(ledger, salt, self._may_repeat, get_displayed_input, self._get_repeat_input)

    def _may_repeat(self, entry: LedgerEntry) -> bool:
        """Return True for a call that does no harm if it runs twice."""
        tool = self.catalog.get(entry.name)
        if entry.kind in ("catalog", *UNREPORTED_KINDS) or not entry.is_started:
            return True
        if entry.kind == "fetch" or tool is None:
            return False
        return any(tool.annotations.get(hint) is True for hint in ("readOnlyHint", "idempotentHint"))

    def _get_repeat_input(self, entry: LedgerEntry) -> str | None:
        """Return the input of a repeated call if its schema would change it."""
        tool = self.catalog.get(entry.name) if entry.kind == "tool" and entry.is_started else None
        return (
            self._get_executed_input(entry)
            if tool is not None and tool.is_input_nondeterministic
            else entry.executed_input_json
        )

    def _get_executed_input(self, entry: LedgerEntry) -> str | None:
        """Return the validated input of a started call."""
        tool = self.catalog.get(entry.name) if entry.kind == "tool" else None
        if tool is None or entry.executed_input_json is not None:
            return entry.full_input_json if entry.executed_input_json is None else entry.executed_input_json
        saved = self.inputs.get(entry.id)
        if saved is not None:
            return saved
        try:
            issued = (
                MISSING
                if entry.input_json is None
                else restore_handle_descriptions(entry.decode_full_input(), entry.input_json)
            )
            return encode_canonical_json(tool.validate_input(issued).json_value)
        except Exception:  # noqa: BLE001 - validators are host code; this one took the same input a moment ago
            return entry.full_input_json


class RecoveryPoint:
    """The one interrupt to continue from after a run: with two, the remaining calls could run twice."""

    def __init__(self, options: ContinuationOptions, binding: str | None, threads: InvocationThreads) -> None:
        self._options = options
        self._binding = binding
        self._threads = threads
        self._interrupt: Interrupt | None = None

    @property
    def has_interrupt(self) -> bool:
        """True once the interrupt exists."""
        return self._interrupt is not None

    async def get_or_create_interrupt(
        self,
        js: str,
        settings: InvocationSettings,
        ledger: Callable[[], Ledger],
        engine: str | None = None,
        *,
        size: int = LARGE_CHARACTERS,
    ) -> Interrupt:
        """Return the interrupt to continue from; the first one that was made, also after later events.

        ``ledger`` returns the ledger and may take long. ``engine`` is the version of the pause, this host's if
        None. ``size`` estimates the characters of program and ledger.
        """
        if self._interrupt is None:
            with InvocationThreadsScope(self._threads):
                size = size if settings.profile.sidecar is None else LARGE_CHARACTERS
                await shield_until_done(self._create_and_store_interrupt(js, settings, ledger, engine, size))
        return cast("Interrupt", self._interrupt)

    async def _create_and_store_interrupt(
        self, js: str, settings: InvocationSettings, ledger: Callable[[], Ledger], engine: str | None, size: int
    ) -> None:
        # Stored here, where the caller's cancellation cannot reach: there must be no second interrupt.
        interrupt, left = await run_in_thread_if_large_or_slow(
            size, lambda: self._make_interrupt_and_ledger(js, settings, ledger(), engine)
        )
        await store_and_retain_content_until_expiry(interrupt, left, settings.salt, self._options)
        self._interrupt = interrupt

    def _make_interrupt_and_ledger(
        self, js: str, settings: InvocationSettings, ledger: Ledger, engine: str | None
    ) -> tuple[Interrupt, Ledger]:
        continuation = make_continuation(js, engine or find_engine_version(), settings, ledger, self._options)
        return make_signed_interrupt(continuation, self._options, self._binding), ledger


def make_continuation(
    js: str, engine: str, settings: InvocationSettings, ledger: Ledger, options: ContinuationOptions
) -> Continuation:
    """Return the continuation, with its content if no store has it. Raises as `Continuation.from_ledger`."""
    return Continuation.from_ledger(js, engine, settings, ledger, carries_content=get_content_store(options) is None)


def make_signed_interrupt(continuation: Continuation, options: ContinuationOptions, binding: str | None) -> Interrupt:
    """Return the signed interrupt of a continuation."""
    warn_once_if_keyed_guard_unshared(options)
    return Interrupt(
        requests=convert_to_pending_requests(continuation.ledger.waiting_entries),
        outer_tool_call_id=continuation.replay_settings["outer_tool_call_id"],
        continuation=encode_and_sign_continuation(
            continuation_to_texts(continuation.to_dict()), options, now_ms(), binding
        ),
    )
