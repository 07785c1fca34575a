"""What a paused program is and has done, for whoever is to decide about it. Resumes and claims nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..data.json_values import decode_json
from ..errors import CodeModeProtocolError, Resumable
from ..interrupts.agent_pauses import kept_by
from ..interrupts.interrupt import Interrupt, PendingRequest
from ..options.parts import CodeModeOptions
from ..protocol.call_status import IN_ERRORS, call_id, call_status
from ..protocol.ledger import UNTOLD, Fulfilled, LedgerEntry, Rejected, shown_text
from .genuine import open_for, opened


@dataclass(frozen=True, kw_only=True, slots=True)
class CallView:
    """One call that a paused program has made. ``order`` counts its calls, as it has made them, from 1.

    ``status`` is fulfilled with a ``value``, rejected with an ``error``, which is ``{"name", "message", "code"}``,
    waiting, or unknown: not begun, or cut off. ``answered`` is the place in the order in which the program was given
    the outcomes, from 1, and ``ended_at_ms`` when the call had ended, in Unix time; None while it has no outcome.
    ``input`` is what the call ran with or waits with, else what the program gave. ``line`` and ``column`` are known
    where some tool needs approval.
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
        framework = kept_by(paused.continuation)
        if framework is not None:
            said = f"what the agent goes on from is kept by {framework}"
            return PauseView(js=None, calls=(), requests=paused.requests, unreadable=said)
        continuation, _ = open_for(conversation_id, lambda binding: opened(paused, settings, None, binding))
    except (AttributeError, TypeError) as error:
        raise CodeModeProtocolError("this is not an interrupt of code mode") from error
    except CodeModeProtocolError as error:
        if error.details.get("unknown_key") is not True and error.details.get("binding") != "missing":
            raise
        return PauseView(js=None, calls=(), requests=Interrupt.of(interrupt).requests, unreadable=error.message)
    ledger = continuation.ledger
    entries = [entry for entry in ledger.entries if entry.kind not in UNTOLD]
    delivered = [one for one in ledger.deliveries if ledger[one].kind not in UNTOLD]
    answered = {request_id: place for place, request_id in enumerate(delivered, 1)}
    calls = tuple(_call(order, entry, answered.get(entry.id)) for order, entry in enumerate(entries, 1))
    source = continuation.js if continuation.source is None else continuation.source
    return PauseView(js=continuation.js, calls=calls, requests=paused.requests, source=source)


def _call(order: int, entry: LedgerEntry, answered: int | None) -> CallView:
    outcome, error, value = entry.outcome, None, None
    shown = shown_text(entry)
    given = entry.input_json if shown is None else shown
    if isinstance(outcome, Rejected):
        error = {"name": outcome.name, "message": outcome.message, "code": outcome.code}
    if isinstance(outcome, Fulfilled) and outcome.value_json is not None:
        value = decode_json(outcome.value_json)
    line, column = (None, None) if entry.place is None else entry.place
    return CallView(
        order=order,
        id=call_id(entry),
        kind=entry.kind,
        name=entry.name,
        input=None if given is None else decode_json(given),
        status=call_status(outcome, IN_ERRORS),
        value=value,
        error=error,
        answered=answered,
        ended_at_ms=entry.now_ms if isinstance(outcome, Fulfilled | Rejected) else None,
        line=line,
        column=column,
    )
