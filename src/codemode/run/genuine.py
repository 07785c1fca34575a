"""Verify interrupts of every surface, and open what they continue. Resumes and claims nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..continuations.sealing import unpack
from ..continuations.signing import Auth
from ..errors import CodeModeProtocolError, Resumable
from ..host.clock import now_ms
from ..interrupts.interrupt import APPROVAL_KIND, Interrupt, PendingRequest, pending_requests, same_json
from ..options.checked_fields import text_or_none
from ..options.parts import CodeModeOptions
from ..profile import Profile
from ..protocol.continuation import Continuation, body_of

OpenedT = TypeVar("OpenedT")


def verify(
    interrupt: Resumable | Mapping[str, Any],
    profile: Profile,
    options: CodeModeOptions,
    at_ms: int | None,
    binding: str | None,
) -> tuple[Continuation, Auth]:
    """Return what an interrupt continues, if this host made exactly this interrupt.

    ``at_ms`` None: at any time, expired or not. Raises `CodeModeProtocolError`.
    """
    continuation, auth = opened(Interrupt.of(interrupt), options, at_ms, binding)
    if continuation.kept["profile"] != profile.name:
        raise CodeModeProtocolError(
            f"the program was paused by {continuation.kept['profile']!r} and cannot go on under {profile.name!r}"
        )
    restored_profile(continuation, profile)
    return continuation, auth


def opened(
    paused: Interrupt, options: CodeModeOptions, at_ms: int | None, binding: str | None
) -> tuple[Continuation, Auth]:
    """Return what an interrupt of whatever face continues, as `verify` does."""
    texts, auth = unpack(paused.continuation, options.continuation, at_ms, binding)
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


def scope_binding(scope: str) -> str:
    """Return what continuations of exec and wait are bound to in this conversation."""
    return f"execWait:{scope}"


def open_for(conversation_id: str | None, open_bound: Callable[[str | None], OpenedT]) -> OpenedT:
    """Open what a surface has signed for this conversation: ``open_bound`` is called with each possible binding.

    Raises what ``open_bound`` raises, `ValueError` for a wrong ``conversation_id``.
    """
    text_or_none(conversation_id, "conversation_id")
    refused: CodeModeProtocolError | None = None
    # A pair of exec and wait binds its pauses in its own way; one with a store also those of no conversation.
    for binding in (conversation_id, scope_binding(conversation_id or "")):
        try:
            return open_bound(binding)
        except CodeModeProtocolError as error:
            if "binding" not in error.details:
                raise
            refused = refused or error
        except (AttributeError, TypeError) as error:
            raise CodeModeProtocolError("this is not an interrupt of code mode") from error
    assert refused is not None  # noqa: S101 - there is a binding
    raise refused


def genuine_interrupt(
    value: Any,
    options: CodeModeOptions | Mapping[str, Any] | None,
    conversation_id: str | None = None,
) -> Interrupt:
    """Return an interrupt: an `Interrupt` as it is, plain JSON of one when this host has signed it, expired or not.

    A program can return JSON of any shape. Raises `CodeModeProtocolError` for everything else, `ValueError` for wrong
    options.
    """
    settings = CodeModeOptions.of(options)
    text_or_none(conversation_id, "conversation_id")
    if isinstance(value, Interrupt):
        return value
    paused = Interrupt.from_dict(value)
    open_for(conversation_id, lambda binding: opened(paused, settings, None, binding))
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
    text_or_none(conversation_id, "conversation_id")
    try:
        paused = Interrupt.of(value)
        open_for(conversation_id, lambda binding: opened(paused, settings, now_ms(), binding))
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
    is_genuine = is_interrupt(value, options=options, conversation_id=conversation_id)
    return is_genuine and Interrupt.of(value).payload.get("kind") == APPROVAL_KIND
