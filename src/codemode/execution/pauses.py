"""Verify, open and inspect interrupts of every surface."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..continuations.sealing import unpack
from ..continuations.signing import Auth
from ..data.json_values import decode_json
from ..errors import CodeModeProtocolError, Resumable
from ..host.clock import now_ms
from ..interrupts.interrupt import (
    APPROVAL_KIND,
    Interrupt,
    PendingRequest,
    get_framework,
    list_pending_requests,
    same_json,
    to_location_fields,
)
from ..options.checked_fields import require_text_or_none
from ..options.parts import CodeModeOptions
from ..profile import SurfaceSettings
from ..protocol.call_status import ERROR_STATUSES, call_id, call_status
from ..protocol.continuation import Continuation, from_texts
from ..protocol.ledger import UNREPORTED_KINDS, Fulfilled, LedgerEntry, Rejected, get_displayed_input_json

OpenedT = TypeVar("OpenedT")


def verify(
    interrupt: Resumable | Mapping[str, Any],
    profile: SurfaceSettings,
    options: CodeModeOptions,
    at_ms: int | None,
    binding: str | None,
) -> tuple[Continuation, Auth]:
    """Return what an interrupt continues, if this host made exactly this interrupt.

    ``at_ms`` None: at any time, expired or not. Raises `CodeModeProtocolError`.
    """
    continuation, auth = open_interrupt(Interrupt.of(interrupt), options, at_ms, binding)
    if continuation.replay_settings["profile"] != profile.name:
        raise CodeModeProtocolError(
            f"the program was paused by {continuation.replay_settings['profile']!r} and cannot go on under"
            f" {profile.name!r}"
        )
    restore_profile(continuation, profile)
    return continuation, auth


def open_interrupt(
    paused: Interrupt, options: CodeModeOptions, at_ms: int | None, binding: str | None
) -> tuple[Continuation, Auth]:
    """Return what an interrupt of whatever face continues, as `verify` does."""
    texts, auth = unpack(paused.continuation, options.continuation, at_ms, binding)
    continuation = Continuation.from_dict(from_texts(texts))
    if paused.outer_tool_call_id != continuation.replay_settings["outer_tool_call_id"]:
        raise CodeModeProtocolError("the interrupt's outerToolCallId is not that of its continuation")
    recorded = list_pending_requests(continuation.ledger.waiting_entries)
    shown = [request.comparison_fields() for request in paused.requests]
    if not same_json(shown, [request.comparison_fields() for request in recorded]) or _have_other_locations(
        paused.requests, recorded
    ):
        raise CodeModeProtocolError("the interrupt shows other requests than its continuation holds")
    return continuation, auth


def _have_other_locations(displayed_requests: Sequence[PendingRequest], recorded: Sequence[PendingRequest]) -> bool:
    """Tell whether places are shown that are not those of the calls. A page may have left them out."""
    pairs = list(zip(displayed_requests, recorded, strict=True))
    return any(
        displayed.place not in (None, recorded_request.place)
        or displayed.program not in (None, recorded_request.program)
        for displayed, recorded_request in pairs
    )


def restore_profile(continuation: Continuation, profile: SurfaceSettings) -> SurfaceSettings:
    """Return the profile under which the program was paused: ``profile``, with the parameters that were signed.

    Raises `CodeModeProtocolError` for those that it cannot have.
    """
    parameters: Mapping[str, Any] = continuation.replay_settings["parameters"]
    if profile.restored is None:
        if parameters:
            raise CodeModeProtocolError(f"the program was paused with parameters that {profile.name!r} has not")
        return profile
    try:
        return profile.restored(parameters)
    except (ValueError, TypeError) as error:
        raise CodeModeProtocolError(f"the program was paused with wrong parameters: {error}") from error


def make_scope_binding(scope: str) -> str:
    """Return what continuations of exec and wait are bound to in this conversation."""
    return f"execWait:{scope}"


def open_with_binding(conversation_id: str | None, open_bound: Callable[[str | None], OpenedT]) -> OpenedT:
    """Open what a surface has signed for this conversation: ``open_bound`` is called with each possible binding.

    Raises what ``open_bound`` raises, `ValueError` for a wrong ``conversation_id``.
    """
    require_text_or_none(conversation_id, "conversation_id")
    first_error: CodeModeProtocolError | None = None
    # A pair of exec and wait binds its pauses in its own way; one with a store also those of no conversation.
    for binding in (conversation_id, make_scope_binding(conversation_id or "")):
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


def read_own_interrupt(
    value: Any,
    options: CodeModeOptions | Mapping[str, Any] | None,
    conversation_id: str | None = None,
) -> Interrupt:
    """Return an interrupt: an `Interrupt` as it is, plain JSON of one when this host has signed it, expired or not.

    A program can return JSON of any shape. Raises `CodeModeProtocolError` for everything else, `ValueError` for wrong
    options.
    """
    settings = CodeModeOptions.of(options)
    require_text_or_none(conversation_id, "conversation_id")
    if isinstance(value, Interrupt):
        return value
    paused = Interrupt.from_dict(value)
    open_with_binding(conversation_id, lambda binding: open_interrupt(paused, settings, None, binding))
    return paused


def is_interrupt(
    value: Any,
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    conversation_id: str | None = None,
) -> bool:
    """Return True for an interrupt of any surface, or its plain JSON, that this host made and could resume now.

    A pause of a conversation counts only with its ``conversation_id``.
    """
    settings = CodeModeOptions.of(options)
    require_text_or_none(conversation_id, "conversation_id")
    try:
        paused = Interrupt.of(value)
        open_with_binding(conversation_id, lambda binding: open_interrupt(paused, settings, now_ms(), binding))
    except (CodeModeProtocolError, AttributeError, TypeError):
        return False
    return True


def is_approval_interrupt(
    value: Any,
    *,
    options: CodeModeOptions | Mapping[str, Any] | None = None,
    conversation_id: str | None = None,
) -> bool:
    """Return True for such an interrupt whose first request asks a person for approval."""
    is_own = is_interrupt(value, options=options, conversation_id=conversation_id)
    return is_own and Interrupt.of(value).payload.get("kind") == APPROVAL_KIND


@dataclass(frozen=True, kw_only=True, slots=True)
class CallView:
    """One call that a paused program has made. ``order`` counts its calls, as it has made them, from 1.

    ``status`` is fulfilled with a ``value``, rejected with an ``error``, which is ``{"name", "message", "code"}``,
    waiting, or unknown: not begun, or cut off. ``answered`` is the place in the order in which the program was given
    the outcomes, from 1, and ``ended_at_ms`` when the call had ended, in Unix time; None while it has no outcome.
    ``input`` is what the call ran with or waits with, else what the program gave. ``line`` and ``column`` are known
    where some tool needs approval. ``program`` is the saved program that made it, with its line.
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
    """A paused program: its text, all its calls so far, and what waits.

    ``source`` is the program as it was sent, ``js`` the text that runs: types stripped, slips repaired.
    ``unreadable`` says why there are only requests: the reader lacks the key or the binding, or an agent's framework
    keeps the rest.
    Nobody has checked them then.
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
    """Show what an interrupt of any surface has done and waits for, expired or not. Takes as long as it is long.

    ``options`` have the keys, as for a resume; ``conversation_id`` is that of the call.
    A reader without the key, or without the binding that a pause has, sees the requests alone, and ``unreadable`` says
    which. Raises `CodeModeProtocolError` for what is no interrupt, was changed, belongs to another context than the one
    given, or is of another version; `ValueError` for wrong options.
    """
    settings = CodeModeOptions.of(options)
    try:
        paused = Interrupt.of(interrupt)
        framework = get_framework(paused.continuation)
        if framework is not None:
            reason = f"what the agent goes on from is kept by {framework}"
            return PauseView(js=None, calls=(), requests=paused.requests, unreadable=reason)
        continuation, _ = open_with_binding(
            conversation_id, lambda binding: open_interrupt(paused, settings, None, binding)
        )
    except (AttributeError, TypeError) as error:
        raise CodeModeProtocolError("this is not an interrupt of code mode") from error
    except CodeModeProtocolError as error:
        if error.details.get("unknown_key") is not True and error.details.get("binding") != "missing":
            raise
        return PauseView(js=None, calls=(), requests=Interrupt.of(interrupt).requests, unreadable=error.message)
    ledger = continuation.ledger
    entries = [entry for entry in ledger.entries if entry.kind not in UNREPORTED_KINDS]
    delivered = [one for one in ledger.deliveries if ledger[one].kind not in UNREPORTED_KINDS]
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
        id=call_id(entry),
        kind=entry.kind,
        name=entry.name,
        input=None if input_json is None else decode_json(input_json),
        status=call_status(outcome, ERROR_STATUSES),
        value=value,
        error=error,
        answered=answered,
        ended_at_ms=entry.now_ms if isinstance(outcome, Fulfilled | Rejected) else None,
        **location,
    )
