"""Going on with a paused invocation: check everything, claim it once, run, record the outcome."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from .approval_messages import approval_resolutions
from .blocking import run_sync
from .catalog import Catalog
from .claimed_resume import ClaimedResume, refuse_own
from .errors import CodeModeProtocolError
from .execution import Execution, OuterCall, now_ms
from .genuine import verify
from .host_threads import LARGE_CHARACTERS, run_check
from .interrupts import APPROVAL_KIND, Interrupt, pending_requests
from .json_shape import weigh
from .key_warnings import warn_if_unshared
from .option_checks import text_or_none
from .options import CodeModeOptions, ContinuationOptions
from .protocol.continuation import Continuation, body_of
from .protocol.signing import Auth
from .recorded_outcomes import RecordedOutcomes
from .resolutions import Answer, CheckedInput, check_answers, read_answers
from .resume_guard import Claim, MemoryResumeGuard, ResumeGuard
from .sealing import answers_digest, unpack
from .tools import Tool, collect_tools
from .values import NOT_GIVEN, canonical_json, encode_json
from .workers.image import engine_version, engine_version_is_known
from .workers.pool import WorkerPool, pool_or_default

_process_guard = MemoryResumeGuard()
_ENDED = '"ended"'  # no answers read so: those are an object


async def continue_interrupt(
    interrupt: Interrupt | Mapping[str, Any],
    resolution: Any = NOT_GIVEN,
    *,
    resolutions: Mapping[str, Any] | None = None,
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    messages: Sequence[Any] = (),
    context: Any = None,
    context_binding: str | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Answer pending requests and go on with the program. Returns its value, or an `Interrupt` with what still waits.

    ``resolution`` answers the first request, ``resolutions`` any by id. An approval is answered with
    ``{"approved": bool, "reason"?: str, "input"?: edited}``, a call of unknown outcome with ``{"value": ...}``,
    ``{"error": {"message": str}}`` or ``{"runAgain": True}``, a tool's own request with any JSON value. The same
    answers again give the recorded outcome and run nothing. ``context_binding`` is the one that the program was run
    with, if any. Raises `CodeModeProtocolError`, before anything runs, for
    an interrupt that is not this host's, has expired or was changed, and for answers that do not fit.
    """
    catalog = Catalog(collect_tools(tools))
    outer = OuterCall(None, messages, context, context_binding=context_binding)
    return await resume(
        interrupt, partial(answers_of, resolution=resolution, resolutions=resolutions), catalog, options, outer, pool
    )


@contextmanager
def _refusals() -> Generator[None, None, None]:
    """Mark what is refused here: the continuation or its answers are to blame, no worker."""
    try:
        yield
    except CodeModeProtocolError as error:
        error.details.setdefault("origin", "continuation")
        raise


@_refusals()
def answers_of(interrupt: Interrupt, resolution: Any, resolutions: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the answers by request id. Raises `CodeModeProtocolError` when there are none."""
    if resolutions is not None and not isinstance(resolutions, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CodeModeProtocolError("the resolutions must be an object of answers by request id")
    answers = dict(resolutions or {})
    if resolution is not NOT_GIVEN:
        first = interrupt.interrupt_id
        if first in answers:
            raise CodeModeProtocolError(f"the request {first!r} is answered twice")
        answers[first] = resolution
    return answers


async def resume(
    interrupt: Interrupt | Mapping[str, Any],
    answers_to: Callable[[Interrupt], Mapping[str, Any]],
    catalog: Catalog[Tool],
    options: CodeModeOptions | Mapping[str, Any] | None,
    outer: OuterCall,
    pool: WorkerPool | None,
) -> Any:
    """Go on with a paused program over these tools. ``answers_to`` gives the answers by request id."""
    workers = pool_or_default(pool)
    await workers.begin()
    with workers.threads.of_invocation().serving():
        with _refusals():
            paused = await run_check(0, lambda: Interrupt.of(interrupt))
            resolutions = answers_to(paused)
        return await _resume(paused, resolutions, catalog, CodeModeOptions.of(options), outer, workers)


async def _resume(
    interrupt: Interrupt,
    resolutions: Mapping[str, Any],
    catalog: Catalog[Tool],
    settings: CodeModeOptions,
    outer: OuterCall,
    pool: WorkerPool,
) -> Any:
    continuation, auth = await run_check(0, lambda: verified(interrupt, settings, outer.context_binding))
    with _refusals():
        answers, inputs = await _checked_answers(continuation, resolutions, catalog, settings)
    outer_call = dataclasses.replace(outer, tool_call_id=continuation.kept["outer_tool_call_id"])
    # Made before the claim: options that are wrong must not use the continuation up.
    execution = Execution(catalog, settings, outer_call, pool)
    keeping = settings.continuation
    warn_if_unshared(keeping)
    guard = _guard_of(keeping)
    outcomes = RecordedOutcomes.of(interrupt, auth, keeping)
    with _refusals():
        size = weigh(resolutions, LARGE_CHARACTERS)
        claim = await run_check(size, lambda: _claim(auth, resolutions, keeping))
        refuse_own(claim.key)
        standing = await guard.claim(claim)
    claimed = ClaimedResume(guard, claim, outcomes, execution, outer_call, continuation, answers, inputs, interrupt)
    if standing is not None:
        return await claimed.as_claimed(standing)
    try:
        with _refusals():
            await _require_runnable(continuation, auth, keeping)
    except CodeModeProtocolError:
        await guard.release(claim.key)
        raise
    return await claimed.run()


async def _require_runnable(continuation: Continuation, auth: Auth, options: ContinuationOptions) -> None:
    """Refuse what cannot go on, though what it has come to might be known."""
    if now_ms() >= auth.expires_at_ms:
        # It held when it was verified. By now the guard may have forgotten somebody else's claim.
        raise CodeModeProtocolError("the continuation has expired")
    if options.any_engine:
        return
    engine = engine_version() if engine_version_is_known() else await asyncio.to_thread(engine_version)
    if continuation.engine != engine:
        raise CodeModeProtocolError(
            f"the program was paused on version {continuation.engine} of the engine, and this host has {engine}: it may"
            " go another way here. continuation={'any_engine': True} lets it go on all the same"
        )


async def _checked_answers(
    continuation: Continuation, resolutions: Mapping[str, Any], catalog: Catalog[Tool], options: CodeModeOptions
) -> tuple[Mapping[int, Answer], Mapping[int, CheckedInput]]:
    entries = continuation.ledger.entries
    # A recovery may have calls that are simply made again; a pause goes on only when somebody has answered.
    goes_on_by_itself = not continuation.ledger.waiting or any(entry.outcome is None for entry in entries)
    answers: Mapping[int, Answer] = {}
    size = weigh(resolutions, LARGE_CHARACTERS)
    if resolutions or not goes_on_by_itself:
        max_values = options.execution_policy.max_values
        answers = await run_check(size, lambda: read_answers(entries, resolutions, max_values))
    size += sum(len(entries[request_id - 1].input_json or "") for request_id in answers)
    return answers, await run_check(size, lambda: check_answers(catalog, entries, answers))


@_refusals()
def verified(
    interrupt: Interrupt | Mapping[str, Any], options: CodeModeOptions, context_binding: str | None = None
) -> tuple[Continuation, Auth]:
    """Return what an interrupt continues, if this host made exactly this interrupt. Raises `CodeModeProtocolError`."""
    return verify(interrupt, options, now_ms(), context_binding)


@_refusals()
def open_continuation(
    continuation: Mapping[str, Any],
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    context_binding: str | None = None,
) -> tuple[Interrupt, str]:
    """Return the interrupt of a continuation that was kept without it, and its program, types stripped.

    For plugins that carry sealed continuations alone. Raises `CodeModeProtocolError` for one that this host did not
    make, or that has expired.
    """
    texts, _ = unpack(continuation, CodeModeOptions.of(options).continuation, now_ms(), context_binding)
    opened = Continuation.from_dict(body_of(texts))
    requests = pending_requests(opened.ledger.waiting)
    outer_tool_call_id = opened.kept["outer_tool_call_id"]
    kept = Interrupt(requests=requests, outer_tool_call_id=outer_tool_call_id, continuation=continuation)
    return kept, opened.js


async def end_continuation(
    continuation: Mapping[str, Any],
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    context_binding: str | None = None,
) -> None:
    """Let a paused program go on no more, whatever is answered from now on.

    For plugins whose users can deny a program as a whole. Raises `CodeModeProtocolError` for a continuation that this
    host did not make, that has expired or that has gone on already.
    """
    keeping = CodeModeOptions.of(options).continuation
    guard = _guard_of(keeping)
    with _refusals():
        _, auth = await run_check(0, lambda: unpack(continuation, keeping, now_ms(), context_binding))
        claim = Claim(auth.nonce, answers_digest(_ENDED, keeping, auth), auth.expires_at_ms)
        if not isinstance(await guard.claim(claim), str):
            await guard.record(claim.key, "")


def _guard_of(options: ContinuationOptions) -> ResumeGuard:
    return options.guard if options.guard is not None else _process_guard


def _claim(auth: Auth, resolutions: Mapping[str, Any], options: ContinuationOptions) -> Claim:
    text = canonical_json(json.loads(encode_json(dict(resolutions), what="the resolutions")))
    return Claim(auth.nonce, answers_digest(text, options, auth), auth.expires_at_ms)


def continue_interrupt_sync(interrupt: Interrupt | Mapping[str, Any], resolution: Any = NOT_GIVEN, **given: Any) -> Any:
    """Do what `continue_interrupt` does, from code that is not async."""
    return run_sync(continue_interrupt(interrupt, resolution, **given))


async def continue_approval(
    interrupt: Interrupt | Mapping[str, Any],
    approval_response: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    tools: Mapping[str, Any] | Iterable[Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    messages: Sequence[Any] = (),
    context: Any = None,
    context_binding: str | None = None,
    pool: WorkerPool | None = None,
) -> Any:
    """Answer approvals with responses as `get_approval_response` returns them, one or several.

    Each is ``{"approvalId": str, "approved": bool, "reason"?: str, "input"?: edited, "toolCallId"?: str}``. What needs
    approval in the rest of the run pauses again, whatever ``approval.mode`` is. Raises `CodeModeProtocolError` for a
    malformed response or one for another request.
    """
    given = [approval_response] if isinstance(approval_response, Mapping) else list(approval_response)
    settings = CodeModeOptions.of(options)
    paused = dataclasses.replace(settings.approval, mode="interrupt")
    catalog = Catalog(collect_tools(tools))
    outer = OuterCall(None, messages, context, context_binding=context_binding)
    options = settings.having(approval=paused)
    return await resume(interrupt, lambda one: approval_resolutions(one, given), catalog, options, outer, pool)


def continue_approval_sync(
    interrupt: Interrupt | Mapping[str, Any],
    approval_response: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    **given: Any,
) -> Any:
    """Do what `continue_approval` does, from code that is not async."""
    return run_sync(continue_approval(interrupt, approval_response, **given))


def is_interrupt(
    value: Any,
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    context_binding: str | None = None,
) -> bool:
    """Return True for an interrupt, or its plain JSON, that this host made and could resume now."""
    settings = CodeModeOptions.of(options)
    text_or_none(context_binding, "context_binding")
    try:
        verified(value, settings, context_binding)
    except (CodeModeProtocolError, AttributeError, TypeError):
        return False
    return True


def is_approval_interrupt(
    value: Any,
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    context_binding: str | None = None,
) -> bool:
    """Return True for such an interrupt whose first request asks a person for approval."""
    is_genuine = is_interrupt(value, options=options, context_binding=context_binding)
    return is_genuine and Interrupt.of(value).payload.get("kind") == APPROVAL_KIND
