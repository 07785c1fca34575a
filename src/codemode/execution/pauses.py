"""Verify, open and inspect interrupts of every surface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..continuations.sealing import verify_and_decode_continuation
from ..continuations.signing import SignatureInfo
from ..data.json_values import decode_json
from ..errors import CodeModeProtocolError, Resumable
from ..host.clock import now_ms
from ..interrupts.interrupt import (
    APPROVAL_KIND,
    Interrupt,
    PendingRequest,
    convert_to_pending_requests,
    get_agent_framework,
    is_same_json,
    to_location_fields,
)
from ..options.checked_fields import require_nonempty_string_or_none
from ..options.parts import CodeModeOptions
from ..profile import SurfaceSettings
from ..protocol.call_status import ERROR_STATUSES, get_call_status, get_displayed_call_id
from ..protocol.continuation import Continuation, continuation_from_texts
from ..protocol.ledger import UNREPORTED_KINDS, Fulfilled, LedgerEntry, Rejected, get_displayed_input_json

OpenedT = TypeVar("OpenedT")


def open_interrupt_of_surface(
    interrupt: Resumable | Mapping[str, Any],
    profile: SurfaceSettings,
    options: CodeModeOptions,
    at_ms: int | None,
    binding: str | None,
) -> tuple[Continuation, SignatureInfo]:
    """Verify an interrupt and return its continuation.

    ``at_ms`` None: also if expired. Raises `CodeModeProtocolError`.
    """
    continuation, auth = open_signed_interrupt(Interrupt.from_value(interrupt), options, at_ms, binding)
    if continuation.replay_settings["profile"] != profile.name:
        raise CodeModeProtocolError(
            f"the program was paused by {continuation.replay_settings['profile']!r} and cannot resume under"
            f" {profile.name!r}"
        )
    restore_surface_settings(continuation, profile)
    return continuation, auth


def open_signed_interrupt(
    paused: Interrupt, options: CodeModeOptions, at_ms: int | None, binding: str | None
) -> tuple[Continuation, SignatureInfo]:
    """Open an interrupt of any surface and return its continuation, as `open_interrupt_of_surface` does."""
    texts, auth = verify_and_decode_continuation(paused.continuation, options.continuation, at_ms, binding)
    continuation = Continuation.from_dict(continuation_from_texts(texts))
    if paused.outer_tool_call_id != continuation.replay_settings["outer_tool_call_id"]:
        raise CodeModeProtocolError("the interrupt's outerToolCallId is not that of its continuation")
    recorded = convert_to_pending_requests(continuation.ledger.waiting_entries)
    shown = [request.comparison_fields() for request in paused.requests]
    if not is_same_json(shown, [request.comparison_fields() for request in recorded]) or _have_locations_changed(
        paused.requests, recorded
    ):
        raise CodeModeProtocolError("the interrupt's requests differ from those of its continuation")
    return continuation, auth


def _have_locations_changed(displayed_requests: Sequence[PendingRequest], recorded: Sequence[PendingRequest]) -> bool:
    """Return True if an interrupt shows other locations than its continuation. A page may omit them."""
    pairs = list(zip(displayed_requests, recorded, strict=True))
    return any(
        displayed.place not in (None, recorded_request.place)
        or displayed.program not in (None, recorded_request.program)
        for displayed, recorded_request in pairs
    )


def restore_surface_settings(continuation: Continuation, profile: SurfaceSettings) -> SurfaceSettings:
    """Return the profile of the pause: ``profile`` with the signed parameters.

    Raises `CodeModeProtocolError` for parameters that the profile cannot have.
    """
    parameters: Mapping[str, Any] = continuation.replay_settings["parameters"]
    if profile.restored is None:
        if parameters:
            raise CodeModeProtocolError(f"the program was paused with parameters that {profile.name!r} does not have")
        return profile
    try:
        return profile.restored(parameters)
    except (ValueError, TypeError) as error:
        raise CodeModeProtocolError(f"the program was paused with wrong parameters: {error}") from error


def make_exec_wait_binding(scope: str) -> str:
    """Return the binding of exec and wait continuations of this conversation."""
    return f"execWait:{scope}"


def open_with_any_binding(conversation_id: str | None, open_bound: Callable[[str | None], OpenedT]) -> OpenedT:
    """Call ``open_bound`` with each binding that the conversation allows and return the first result.

    Raises what ``open_bound`` raises, `ValueError` for a wrong ``conversation_id``.
    """
    require_nonempty_string_or_none(conversation_id, "conversation_id")
    first_error: CodeModeProtocolError | None = None
    # Exec and wait bind their pauses separately; with a store also pauses without a conversation.
    for binding in (conversation_id, make_exec_wait_binding(conversation_id or "")):
        try:
            return open_bound(binding)
        except CodeModeProtocolError as error:
            if "binding" not in error.details:
                raise
            first_error = first_error or error
        except (AttributeError, TypeError) as error:
            raise CodeModeProtocolError("this is not an interrupt of code mode") from error
    assert first_error is not None  # noqa: S101 - there is a binding
    raise first_error


def ensure_interrupt(
    value: Any,
    options: CodeModeOptions | Mapping[str, Any] | None,
    conversation_id: str | None = None,
) -> Interrupt:
    """Return an `Interrupt` as it is, or read one from plain JSON that this host signed, also if expired.

    A program can return JSON of any shape. Raises `CodeModeProtocolError` for all other values, `ValueError` for
    wrong options.
    """
    settings = CodeModeOptions.of(options)
    require_nonempty_string_or_none(conversation_id, "conversation_id")
    if isinstance(value, Interrupt):
        return value
    paused = Interrupt.from_dict(value)
    open_with_any_binding(conversation_id, lambda binding: open_signed_interrupt(paused, settings, None, binding))
    return paused


def is_interrupt(
    value: Any,
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    conversation_id: str | None = None,
) -> bool:
    """Return True for an interrupt of any surface, or its plain JSON, that this host made and can resume now.

    A pause of a conversation counts only with its ``conversation_id``.
    """
    settings = CodeModeOptions.of(options)
    require_nonempty_string_or_none(conversation_id, "conversation_id")
    try:
        paused = Interrupt.from_value(value)
        open_with_any_binding(
            conversation_id, lambda binding: open_signed_interrupt(paused, settings, now_ms(), binding)
        )
    except (CodeModeProtocolError, AttributeError, TypeError):
        return False
    return True


def is_approval_interrupt(
    value: Any,
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    conversation_id: str | None = None,
) -> bool:
    """Return True for an interrupt whose first request asks for approval."""
    is_own = is_interrupt(value, options=options, conversation_id=conversation_id)
    return is_own and Interrupt.from_value(value).payload.get("kind") == APPROVAL_KIND


@dataclass(frozen=True, kw_only=True, slots=True)
class CallView:
    """One call of a paused program. ``order`` counts its calls in issue order, from 1.

    ``status`` is fulfilled with a ``value``, rejected with an ``error`` ``{"name", "message", "code"}``, waiting,
    or unknown: not started, or cut off. ``answered`` is its position in the order of delivered outcomes, from 1,
    and ``ended_at_ms`` the end of the call in Unix time; None without an outcome. ``input`` is the input that the
    call ran or waits with, else the issued one. ``line`` and ``column`` are set if a tool needs approval.
    ``program`` is the saved program that made the call, with its line.
    """

    order: int
    id: str
    kind: str
    name: str
    input: Any
    status: str
    value: Any = None
    error: Mapping[str, str] | None = None
    answered: int | None = None
    ended_at_ms: int | None = None
    line: int | None = None
    column: int | None = None
    program: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PauseView:
    """A paused program: its text, its calls so far, and the pending requests.

    ``source`` is the program as it was sent, ``js`` the text that runs: types stripped, slips repaired.
    ``unreadable`` says why there are only requests, which are then unverified: the reader lacks the key or the
    binding, or an agent's framework has the rest.
    """

    js: str | None
    calls: tuple[CallView, ...]
    requests: tuple[PendingRequest, ...]
    unreadable: str | None = None
    source: str | None = None


def inspect_interrupt(
    interrupt: Resumable | Mapping[str, Any],
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    *,
    conversation_id: str | None = None,
) -> PauseView:
    """Return the calls and pending requests of an interrupt of any surface, also if expired.

    ``options`` have the keys, as for a resume; ``conversation_id`` is that of the call. Without the key or the
    binding of a pause only its requests are returned, and ``unreadable`` names the reason. Raises
    `CodeModeProtocolError` for a value that is not an interrupt, was changed, belongs to another conversation or
    another version; `ValueError` for wrong options.
    """
    settings = CodeModeOptions.of(options)
    try:
        paused = Interrupt.from_value(interrupt)
        framework = get_agent_framework(paused.continuation)
        if framework is not None:
            reason = f"the agent's state is stored by {framework}"
            return PauseView(js=None, calls=(), requests=paused.requests, unreadable=reason)
        continuation, _ = open_with_any_binding(
            conversation_id, lambda binding: open_signed_interrupt(paused, settings, None, binding)
        )
    except (AttributeError, TypeError) as error:
        raise CodeModeProtocolError("this is not an interrupt of code mode") from error
    except CodeModeProtocolError as error:
        if error.details.get("unknown_key") is not True and error.details.get("binding") != "missing":
            raise
        return PauseView(js=None, calls=(), requests=Interrupt.from_value(interrupt).requests, unreadable=error.message)
    ledger = continuation.ledger
    entries = [entry for entry in ledger.entries if entry.kind not in UNREPORTED_KINDS]
    delivered = [
        delivered_id for delivered_id in ledger.deliveries if ledger[delivered_id].kind not in UNREPORTED_KINDS
    ]
    answered = {request_id: place for place, request_id in enumerate(delivered, 1)}
    calls = tuple(_make_call_view(order, entry, answered.get(entry.id)) for order, entry in enumerate(entries, 1))
    source = continuation.js if continuation.source is None else continuation.source
    return PauseView(js=continuation.js, calls=calls, requests=paused.requests, source=source)


def _make_call_view(order: int, entry: LedgerEntry, answered: int | None) -> CallView:
    outcome, error, value = entry.outcome, None, None
    displayed_json = get_displayed_input_json(entry)
    input_json = entry.input_json if displayed_json is None else displayed_json
    if isinstance(outcome, Rejected):
        error = {"name": outcome.name, "message": outcome.message, "code": outcome.code}
    if isinstance(outcome, Fulfilled) and outcome.value_json is not None:
        value = decode_json(outcome.value_json)
    location = to_location_fields(entry.location)
    return CallView(
        order=order,
        id=get_displayed_call_id(entry),
        kind=entry.kind,
        name=entry.name,
        input=None if input_json is None else decode_json(input_json),
        status=get_call_status(outcome, ERROR_STATUSES),
        value=value,
        error=error,
        answered=answered,
        ended_at_ms=entry.now_ms if isinstance(outcome, Fulfilled | Rejected) else None,
        **location,
    )
