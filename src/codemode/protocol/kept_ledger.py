"""The entries of a ledger as plain JSON, and back: what could not have been is refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..data.narrowing import is_object
from ..errors import CodeModeProtocolError
from .call_status import IN_CONTINUATIONS, call_status
from .counts import MAX_TIMERS, MAX_YIELDS
from .host_work import delay_ms
from .kept_values import read_count, read_mapping, read_optional_positive, read_optional_text, read_positive, read_text
from .ledger import Fulfilled, Ledger, LedgerEntry, Outcome, Rejected, Waiting
from .messages import REQUEST_KINDS
from .rejections import read_fields


def entry_to_dict(entry: LedgerEntry) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "kind": entry.kind,
        "name": entry.name,
        "inputJson": entry.input_json,
        "inputBytes": entry.input_bytes,
        "toolCallId": entry.tool_call_id,
        **_place_to_dict(entry.place),
        "executedInputJson": entry.executed_input_json,
        "dateNowMs": entry.now_ms,
        "approved": entry.is_approved or None,
        "waits": entry.waits or None,
        "withdrawn": entry.is_withdrawn or None,
        "lastedUs": entry.lasted_us,
        "status": call_status(entry.outcome, IN_CONTINUATIONS),
        **_outcome_to_dict(entry.outcome),
    }
    return {key: value for key, value in plain.items() if value is not None}


def _place_to_dict(place: tuple[int, int] | None) -> dict[str, int]:
    return {} if place is None else {"line": place[0], "column": place[1]}


def _outcome_to_dict(outcome: Outcome | None) -> dict[str, Any]:
    match outcome:
        case Fulfilled(value_json):
            return {"valueJson": value_json}
        case Rejected(name, message, code, fields_json):
            error = {"name": name, "message": message, "code": code}
            return {"error": error if fields_json is None else {**error, "fields": fields_json}}
        case Waiting(interrupt_id, payload_json, input_json, attempt):
            waiting = {"interruptId": interrupt_id, "interruptPayloadJson": payload_json, "attempt": attempt}
            return {**waiting, "shownInputJson": input_json}
        case None:
            return {}


_ENTRY_KEYS = {
    "kind", "name", "inputJson", "inputBytes", "toolCallId", "executedInputJson", "dateNowMs", "approved", "waits",
    "withdrawn", "status", "line", "column", "lastedUs",
    "valueJson", "error", "interruptId", "interruptPayloadJson", "attempt", "shownInputJson",
}  # fmt: skip


def entry_from_dict(value: object, position: int) -> LedgerEntry:
    if not is_object(value) or not set(value) <= _ENTRY_KEYS:
        raise CodeModeProtocolError(f"the continuation's ledger entry {position} is malformed")
    body = value
    kind = body.get("kind")
    if kind not in REQUEST_KINDS:
        raise CodeModeProtocolError(f"the continuation's ledger entry {position} is of an unknown kind")
    return LedgerEntry(
        id=position,
        kind=kind,
        name=read_text(body.get("name")),
        input_json=read_optional_text(body.get("inputJson")),
        input_bytes=read_optional_positive(body.get("inputBytes")),
        tool_call_id=read_optional_text(body.get("toolCallId")),
        place=(read_positive(body["line"]), read_positive(body.get("column"))) if "line" in body else None,
        outcome=_outcome_from_dict(body),
        executed_input_json=read_optional_text(body.get("executedInputJson")),
        now_ms=read_optional_positive(body.get("dateNowMs")),
        is_approved=body.get("approved") is True,
        waits=read_optional_positive(body.get("waits")) or 0,
        is_withdrawn=body.get("withdrawn") is True,
        lasted_us=read_count(body["lastedUs"]) if "lastedUs" in body else None,
    )


def _outcome_from_dict(body: Mapping[str, Any]) -> Outcome | None:
    words = IN_CONTINUATIONS
    match body.get("status"):
        case words.fulfilled:
            return Fulfilled(read_optional_text(body.get("valueJson")))
        case words.rejected:
            return _rejected(read_mapping(body.get("error")))
        case words.waiting:
            return Waiting(
                read_text(body.get("interruptId")),
                read_text(body.get("interruptPayloadJson")),
                read_optional_text(body.get("shownInputJson")),
                read_positive(body.get("attempt")),
            )
        case words.open:
            return None
        case _:
            raise CodeModeProtocolError("the continuation's ledger holds an unknown status")


def _rejected(error: dict[str, Any]) -> Rejected:
    if error.keys() - {"fields"} != {"name", "message", "code"}:
        raise CodeModeProtocolError("the continuation is malformed")
    fields_json = read_text(error["fields"]) if "fields" in error else None
    if fields_json is not None:
        read_fields(fields_json)
    return Rejected(read_text(error["name"]), read_text(error["message"]), read_text(error["code"]), fields_json)


def check_ledger(ledger: Ledger, outer_tool_call_id: str) -> None:
    """Only what is settled can have been delivered, once; calls are numbered in issue order."""
    settled = [entry.id for entry in ledger.entries if isinstance(entry.outcome, Fulfilled | Rejected)]
    if sorted(ledger.deliveries) != settled:
        raise CodeModeProtocolError("the continuation's deliveries do not match its ledger")
    tools = [entry for entry in ledger.entries if entry.kind == "tool"]
    if any(entry.tool_call_id != f"{outer_tool_call_id}:tool-{n}" for n, entry in enumerate(tools, 1)):
        raise CodeModeProtocolError("the continuation's calls are numbered wrongly")
    ids = [entry.outcome.interrupt_id for entry in ledger.entries if isinstance(entry.outcome, Waiting)]
    if len(set(ids)) != len(ids):
        raise CodeModeProtocolError("the continuation's request ids are not unique")
    if any(entry.kind in ("catalog", "state") for entry in ledger.waiting):
        raise CodeModeProtocolError("a question to the catalog, or about state, cannot be interrupted")
    _check_timers(ledger)
    _check_yields(ledger)


def _check_yields(ledger: Ledger) -> None:
    """Check that a program has yielded no more often than it may, and that what answers it is nothing."""
    yields = [entry for entry in ledger.entries if entry.kind == "yield"]
    if len(yields) > MAX_YIELDS:
        raise CodeModeProtocolError("the continuation holds more yields than a program may make")
    for entry in yields:
        plain = LedgerEntry(entry.id, "yield", "yield_control", entry.input_json)
        if entry.outcome is not None:
            plain = plain._replace(outcome=Fulfilled(None), now_ms=entry.now_ms or 0)
        if entry != plain:
            raise CodeModeProtocolError("the continuation holds a yield that cannot be")


def _check_timers(ledger: Ledger) -> None:
    """Check that timers have a delay and nothing else, fire or are withdrawn, and are not too many."""
    timers = [entry for entry in ledger.entries if entry.kind == "timer"]
    if any(entry.is_withdrawn and entry.kind != "timer" for entry in ledger.entries):
        raise CodeModeProtocolError("the continuation withdraws a request that is no timer")
    if len(timers) > MAX_TIMERS:
        raise CodeModeProtocolError("the continuation holds more timers than a program may set")
    for entry in timers:
        delay_ms(entry.name, entry.input_json)
        plain = LedgerEntry(entry.id, "timer", entry.name, entry.input_json)
        if entry.outcome is not None:
            plain = plain._replace(outcome=Fulfilled(None), now_ms=entry.now_ms or 0)
        elif entry.is_withdrawn:
            plain = plain._replace(is_withdrawn=True)
        if entry != plain:
            raise CodeModeProtocolError("the continuation holds a timer that cannot be")
