"""Tells interrupts that this host made from others, and opens what they continue. Resumes and claims nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..continuations.sealing import unpack
from ..continuations.signing import Auth
from ..errors import CodeModeProtocolError, Resumable
from ..interrupts.interrupt import Interrupt, PendingRequest, pending_requests, same_json
from ..options.checked_fields import text_or_none
from ..options.parts import CodeModeOptions
from ..profile import Profile
from ..protocol.continuation import Continuation, body_of


def verify(
    interrupt: Resumable | Mapping[str, Any],
    profile: Profile,
    options: CodeModeOptions,
    now_ms: int | None,
    context_binding: str | None,
) -> tuple[Continuation, Auth]:
    """Return what an interrupt continues, if this host made exactly this interrupt.

    ``now_ms`` None: at any time, expired or not. Raises `CodeModeProtocolError`.
    """
    continuation, auth = opened(Interrupt.of(interrupt), options, now_ms, context_binding)
    if continuation.kept["profile"] != profile.name:
        raise CodeModeProtocolError(
            f"the program was paused by {continuation.kept['profile']!r} and cannot go on under {profile.name!r}"
        )
    restored_profile(continuation, profile)
    return continuation, auth


def opened(
    paused: Interrupt, options: CodeModeOptions, now_ms: int | None, context_binding: str | None
) -> tuple[Continuation, Auth]:
    """Return what an interrupt of whatever face continues, as `verify` does."""
    texts, auth = unpack(paused.continuation, options.continuation, now_ms, context_binding)
    continuation = Continuation.from_dict(body_of(texts))
    if paused.outer_tool_call_id != continuation.kept["outer_tool_call_id"]:
        raise CodeModeProtocolError("the interrupt's outerToolCallId is not that of its continuation")
    recorded = pending_requests(continuation.ledger.waiting)
    shown = [request.shown() for request in paused.requests]
    if not same_json(shown, [request.shown() for request in recorded]) or _are_elsewhere(paused.requests, recorded):
        raise CodeModeProtocolError("the interrupt shows other requests than its continuation holds")
    return continuation, auth


def _are_elsewhere(shown: Sequence[PendingRequest], recorded: Sequence[PendingRequest]) -> bool:
    """Tell whether places are shown that are not those of the calls. A page may have left them out."""
    return any(one.place not in (None, other.place) for one, other in zip(shown, recorded, strict=True))


def restored_profile(continuation: Continuation, profile: Profile) -> Profile:
    """Return the profile under which the program was paused: ``profile``, with the parameters that were signed.

    Raises `CodeModeProtocolError` for those that it cannot have.
    """
    parameters: Mapping[str, Any] = continuation.kept["parameters"]
    if profile.restored is None:
        if parameters:
            raise CodeModeProtocolError(f"the program was paused with parameters that {profile.name!r} has not")
        return profile
    try:
        return profile.restored(parameters)
    except (ValueError, TypeError) as error:
        raise CodeModeProtocolError(f"the program was paused with wrong parameters: {error}") from error


def genuine_interrupt(
    value: Any, profile: Profile, options: CodeModeOptions | Mapping[str, Any] | None, context_binding: str | None
) -> Interrupt:
    """Return an interrupt: an `Interrupt` as it is, plain JSON of one when this host has signed it, expired or not.

    A program can return JSON of any shape. Raises `CodeModeProtocolError` for everything else, `ValueError` for wrong
    options.
    """
    settings = CodeModeOptions.of(options)
    text_or_none(context_binding, "context_binding")
    if isinstance(value, Interrupt):
        return value
    paused = Interrupt.from_dict(value)
    try:
        verify(paused, profile, settings, None, context_binding)
    except (AttributeError, TypeError) as error:
        raise CodeModeProtocolError("this is not an interrupt of code mode") from error
    return paused
