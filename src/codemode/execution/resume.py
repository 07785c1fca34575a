"""Resume a paused invocation: check everything, claim it once, run, record the outcome."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..continuations.keys import warn_once_if_keyed_guard_unshared
from ..continuations.sealing import verify_and_decode_continuation
from ..continuations.signing import SignatureInfo
from ..data.json_shape import estimate_json_length
from ..data.json_values import NOT_GIVEN
from ..errors import CodeModeProtocolError, Resumable
from ..host.clock import now_ms
from ..host.sync import require_outside_temporal_workflow
from ..host.threads import LARGE_CHARACTERS, InvocationThreads, InvocationThreadsScope, run_in_thread_if_large_or_slow
from ..interrupts.interrupt import Interrupt, convert_to_pending_requests
from ..interrupts.resolutions import Answer, read_answers
from ..options.parts import CodeModeOptions, ContinuationOptions
from ..profile import LargeStringRules, SurfaceSettings
from ..protocol.continuation import Continuation, continuation_from_texts
from ..protocol.invocation import restore_large_strings
from ..protocol.ledger import get_called_tool_names
from ..protocol.references import get_content_tag
from ..tools.catalog import ToolCatalog
from ..tools.prepared import PreparedTool
from ..workers.image import find_engine_version, is_engine_version_known
from ..workers.pool import WorkerPool, get_pool_or_default
from .call_content import (
    load_ledger_content,
    replace_part_names_in_ledger,
    should_name_parts_by_id,
    using_content_registry,
)
from .call_context import OuterCallSettings
from .call_values import AnsweredPause, CheckedInput, validate_answered_call_inputs
from .execution import Execution
from .identity import require_no_self_wait
from .optional_parts import make_journaling
from .outcome import OutcomeCodec, RunOutcome
from .pauses import open_interrupt_of_surface, open_with_any_binding, restore_surface_settings
from .resume_claims import (
    ClaimedResume,
    JournaledResume,
    ResumeClaim,
    get_guard_or_default,
    make_answers_claim,
    make_end_claim,
)


@contextmanager
def marking_continuation_errors(*, of_continuation: bool = False) -> Generator[None, None, None]:
    """Mark refusals as caused by the continuation or its answers, not by a worker.

    ``of_continuation``: this host cannot resume it with any answers; another host may.
    """
    try:
        yield
    except CodeModeProtocolError as error:
        error.details.setdefault("origin", "continuation")
        if of_continuation:
            error.details["not_resumable"] = True
        raise


@marking_continuation_errors()
def normalize_answers_by_id(
    interrupt: Interrupt, resolution: Any, resolutions: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the answers by request id.

    A ``resolution`` of True or False approves or denies every pending approval; any other value answers the first
    request. Raises `CodeModeProtocolError` for contradicting answers, and for True or False if a request is not an
    approval.
    """
    if resolutions is not None and not isinstance(resolutions, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CodeModeProtocolError("the resolutions must be an object of answers by request id")
    answers = dict(resolutions or {})
    if isinstance(resolution, bool):
        others = [request for request in interrupt.requests if not request.is_approval]
        if others:
            raise CodeModeProtocolError(
                f"resume(pause, {resolution}) answers approvals only, and {others[0].tool_name!r} waits for another"
                f" kind of answer: answer each request by its id, resolutions={{{others[0].interrupt_id!r}: ..., ...}}"
            )
        if answers:
            raise CodeModeProtocolError(
                f"resume(pause, {resolution}) answers every approval: give either that or resolutions=, not both"
            )
        return {request.interrupt_id: {"approved": resolution} for request in interrupt.requests}
    if resolution is not NOT_GIVEN:
        first = interrupt.interrupt_id
        if first in answers:
            raise CodeModeProtocolError(f"the request {first!r} is answered twice")
        answers[first] = resolution
    return answers


_SHORT_PAUSE_CHARACTERS = 1 << 15


async def resume_program(
    profile: SurfaceSettings,
    interrupt: Resumable | Mapping[str, Any],
    answers_to: Callable[[Interrupt], Mapping[str, Any]],
    catalog: ToolCatalog[PreparedTool],
    options: CodeModeOptions | Mapping[str, Any] | None,
    outer: OuterCallSettings,
    pool: WorkerPool | None,
    *,
    needs_answers: bool = True,
) -> RunOutcome:
    """Resume a paused program with these tools. ``answers_to`` returns the answers by request id.

    Without ``needs_answers`` it continues as far as it can without any: for a saved suspended program.

    Raises `CodeModeProtocolError` for an interrupt or answers that cannot be resumed and `ValueError` for wrong
    options; errors of the program are in the outcome.
    """
    require_outside_temporal_workflow()
    workers = get_pool_or_default(pool)
    await workers.start_in_thread()
    with InvocationThreadsScope(InvocationThreads(workers.threads)):
        with marking_continuation_errors():
            paused = (
                interrupt
                if isinstance(interrupt, Interrupt)
                else await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: Interrupt.from_value(interrupt))
            )
            resolutions = answers_to(paused)
        settings = CodeModeOptions.of(options)
        return await _verify_and_resume(profile, paused, resolutions, catalog, settings, outer, workers, needs_answers)


async def _verify_and_resume(
    profile: SurfaceSettings,
    interrupt: Interrupt,
    resolutions: Mapping[str, Any],
    catalog: ToolCatalog[PreparedTool],
    settings: CodeModeOptions,
    outer: OuterCallSettings,
    pool: WorkerPool,
    needs_answers: bool,
) -> RunOutcome:
    continuation_options = settings.continuation
    verify_interrupt = partial(open_unexpired_interrupt, interrupt, profile, settings, outer.call.conversation_id)
    signed = interrupt.continuation
    # A short, uncompressed continuation takes a millisecond to verify and read.
    is_short = (
        signed.get("encoding") == "json"
        and estimate_json_length(signed, _SHORT_PAUSE_CHARACTERS) < _SHORT_PAUSE_CHARACTERS
    )
    continuation, auth = await run_in_thread_if_large_or_slow(0 if is_short else LARGE_CHARACTERS, verify_interrupt)
    tools = catalog.for_invocation(continuation.invocation_data)
    preparing = tools.prepare_for_program(None, continuation.invocation_data)
    if preparing is not None:
        await preparing
    with marking_continuation_errors():
        tools.check_resumed_program(continuation.invocation_data, get_called_tool_names(continuation.ledger))
        restored = restore_surface_settings(continuation, profile)
        continuation = await _restore_large_strings(continuation, restored.sidecar)
        continuation = await _load_continuation_contents(continuation, restored, continuation_options)
        resumes_by_itself = not needs_answers or _can_resume_without_answers(continuation)
        answers, inputs = await _read_and_validate_answers(
            continuation, resolutions, tools, settings, resumes_by_itself
        )
    answered = AnsweredPause(interrupt, continuation, answers, inputs)
    call = dataclasses.replace(outer.call, tool_call_id=interrupt.outer_tool_call_id)
    outer_call = dataclasses.replace(outer, call=call)
    # Made before the claim: wrong options must not use the continuation up.
    execution = _get_execution_type(restored)(restored, tools, settings, outer_call, pool, answered)
    warn_once_if_keyed_guard_unshared(continuation_options)
    with marking_continuation_errors():
        claim = await _make_claim(interrupt, auth, resolutions, continuation_options, restored)
    require = partial(_require_resumable, continuation, auth, continuation_options)
    journaling = make_journaling(settings, outer_call, tools, restored)
    if journaling is None:
        return await _claim_and_run(
            ClaimedResume(claim, execution), require, partial(answered.require_approved_tools_if_stored, tools)
        )
    make_execution = partial(
        _get_execution_type(restored), restored, tools, settings, outer_call, pool, journaling=journaling
    )
    with marking_continuation_errors():
        arguments = (require, settings.approval, outer_call.wait_ms)
        return await JournaledResume(answered, claim, journaling, make_execution, *arguments).resume_or_repeat_outcome(
            execution
        )


async def _claim_and_run(
    resuming: ClaimedResume, require_runnable: Callable[[], Awaitable[None]], require_tools: Callable[[], None]
) -> RunOutcome:
    with marking_continuation_errors():
        result = await resuming.claim.claim_continuation()
    if result is not None:
        return await resuming.resolve_claim_result(result)
    try:
        with marking_continuation_errors():
            await require_runnable()
            require_tools()
    except CodeModeProtocolError:
        await resuming.claim.release()
        raise
    return await resuming.resume_and_record()


async def _restore_large_strings(continuation: Continuation, rules: LargeStringRules | None) -> Continuation:
    if rules is None:
        return continuation
    ledger = await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS, lambda: restore_large_strings(continuation.ledger, rules)
    )
    return dataclasses.replace(continuation, ledger=ledger)


async def _load_continuation_contents(
    continuation: Continuation, profile: SurfaceSettings, options: ContinuationOptions
) -> Continuation:
    ledger, salt = continuation.ledger, continuation.replay_settings["salt"]
    if not profile.has_content:
        ledger.contents = None
        return continuation
    if ledger.contents is not None:
        ledger.contents.reference_key = get_content_tag(salt)
        if should_name_parts_by_id(options):
            ledger = await run_in_thread_if_large_or_slow(
                LARGE_CHARACTERS, lambda: replace_part_names_in_ledger(ledger)
            )
    ledger.contents = await load_ledger_content(ledger, salt, options)
    if ledger.contents is not None:
        ledger.contents.reference_key = get_content_tag(salt)
    return dataclasses.replace(continuation, ledger=ledger)


async def _make_claim(
    interrupt: Interrupt,
    auth: SignatureInfo,
    resolutions: Mapping[str, Any],
    options: ContinuationOptions,
    profile: SurfaceSettings,
) -> ResumeClaim:
    size = estimate_json_length(resolutions, LARGE_CHARACTERS)
    claim = await run_in_thread_if_large_or_slow(size, lambda: make_answers_claim(auth, resolutions, options))
    require_no_self_wait(claim.key)
    outcomes = OutcomeCodec.for_interrupt(interrupt, auth, options, keeps_output=profile.shows_run_details)
    return ResumeClaim(get_guard_or_default(options), claim, outcomes)


async def _require_resumable(continuation: Continuation, auth: SignatureInfo, options: ContinuationOptions) -> None:
    """Raise if the continuation cannot be resumed, though its outcome may be known."""
    if now_ms() >= auth.expires_at_ms:
        # It was valid when it was verified. By now the guard may have forgotten another host's claim.
        raise CodeModeProtocolError("the continuation has expired")
    if options.any_engine:
        return
    engine = find_engine_version() if is_engine_version_known() else await asyncio.to_thread(find_engine_version)
    if continuation.engine != engine:
        raise CodeModeProtocolError(
            f"the program was paused on version {continuation.engine} of the engine, and this host has {engine}: it may"
            " behave differently here. continuation={'any_engine': True} allows it",
            details={"not_resumable": True},
        )


def _get_execution_type(profile: SurfaceSettings) -> type[Execution]:
    if profile.at_deadline == "fail":
        return Execution
    from .suspendable_execution import SuspendableExecution  # late: only suspendable programs need it

    return SuspendableExecution


def _can_resume_without_answers(continuation: Continuation) -> bool:
    """Return True for a recovery whose calls are made again; a pause needs answers."""
    return not continuation.ledger.waiting_entries or any(entry.is_open for entry in continuation.ledger.entries)


async def _read_and_validate_answers(
    continuation: Continuation,
    resolutions: Mapping[str, Any],
    catalog: ToolCatalog[PreparedTool],
    options: CodeModeOptions,
    resumes_by_itself: bool,
) -> tuple[Mapping[int, Answer], Mapping[int, CheckedInput]]:
    entries = continuation.ledger.entries
    answers: Mapping[int, Answer] = {}
    size = estimate_json_length(resolutions, LARGE_CHARACTERS)
    if resolutions or not resumes_by_itself:
        max_values = options.execution_policy.max_values
        answers = await run_in_thread_if_large_or_slow(size, lambda: read_answers(entries, resolutions, max_values))
    size += sum(len(entries[request_id - 1].input_json or "") for request_id in answers)
    if continuation.ledger.sidecar is not None:
        size = max(size, LARGE_CHARACTERS)
    with using_content_registry(continuation.ledger.contents, has_rich_values=continuation.has_rich_values):
        return answers, await run_in_thread_if_large_or_slow(
            size, lambda: validate_answered_call_inputs(catalog, entries, answers)
        )


@marking_continuation_errors(of_continuation=True)
def open_unexpired_interrupt(
    interrupt: Resumable | Mapping[str, Any],
    profile: SurfaceSettings,
    options: CodeModeOptions,
    binding: str | None = None,
) -> tuple[Continuation, SignatureInfo]:
    """Return the continuation of an interrupt that this host made. Raises `CodeModeProtocolError`."""
    return open_interrupt_of_surface(interrupt, profile, options, now_ms(), binding)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenedContinuation:
    """The content of a continuation: its interrupt, the JavaScript program and the invocation data.

    ``source`` is the program as it was sent. For plugins that store sealed continuations without their interrupts.
    """

    interrupt: Interrupt
    js: str
    given: Mapping[str, Any] | None
    source: str

    @classmethod
    async def open(
        cls,
        continuation: Mapping[str, Any],
        *,
        options: CodeModeOptions | Mapping[str, Any] | None = None,
        conversation_id: str | None = None,
    ) -> OpenedContinuation:
        """Open a continuation. Raises `CodeModeProtocolError` if this host did not make it or it has expired."""
        body = continuation.get("body")
        size = len(body) if isinstance(body, str) else estimate_json_length(continuation, LARGE_CHARACTERS)
        continuation_options = CodeModeOptions.of(options).continuation
        decode = partial(
            open_with_any_binding,
            conversation_id,
            lambda binding: verify_and_decode_continuation(continuation, continuation_options, now_ms(), binding),
        )
        return await run_in_thread_if_large_or_slow(size, lambda: _open_continuation(continuation, decode))

    @staticmethod
    async def end(
        continuation: Mapping[str, Any],
        *,
        options: CodeModeOptions | Mapping[str, Any] | None = None,
        conversation_id: str | None = None,
    ) -> None:
        """End a paused program: it cannot be resumed any more.

        Raises `CodeModeProtocolError` for a continuation that this host did not make, that has expired or that
        was resumed.
        """
        continuation_options = CodeModeOptions.of(options).continuation
        guard = get_guard_or_default(continuation_options)
        with marking_continuation_errors():
            opening = partial(
                open_with_any_binding,
                conversation_id,
                lambda binding: verify_and_decode_continuation(continuation, continuation_options, now_ms(), binding),
            )
            _, auth = await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, opening)
            claim = make_end_claim(auth, continuation_options)
            if not isinstance(await guard.claim(claim), str):
                await guard.record(claim.key, "")


@marking_continuation_errors()
def _open_continuation(
    continuation: Mapping[str, Any], decode: Callable[[], tuple[list[str], SignatureInfo]]
) -> OpenedContinuation:
    texts, _ = decode()
    opened = Continuation.from_dict(continuation_from_texts(texts))
    requests = convert_to_pending_requests(opened.ledger.waiting_entries)
    outer_tool_call_id = opened.replay_settings["outer_tool_call_id"]
    interrupt = Interrupt(requests=requests, outer_tool_call_id=outer_tool_call_id, continuation=continuation)
    source = opened.js if opened.source is None else opened.source
    return OpenedContinuation(interrupt=interrupt, js=opened.js, given=opened.invocation_data, source=source)
