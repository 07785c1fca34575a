"""Decisions about calls and actions on records: parse, check, describe."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import quote, unquote

from codemode.data.exact_integers import restore_integers
from codemode.data.json_values import encode_canonical_json
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import InterruptStore, Record, StoredRequest

from .bodies import FormItems, get_single_value
from .errors import Problem
from .forms import ABSENT, Form, FormResult, MalformedFormError, create_form, is_form_item_name, read_form
from .forms.model import parse_control_name
from .sessions import TOKEN_FIELD
from .visible_text import format_time

_log = logging.getLogger("codemode.console")

PREVIEW = "preview"
MAX_REASON_CHARACTERS = 2_000
"""The audit's limit."""

_MAX_SAFE_INTEGER = 2**53 - 1
_FORM_BUTTONS = frozenset({"add", "remove", "choose"})
_DECISIONS_WITHOUT_VALUE = frozenset({"deny", "run-again", "error"})
_DECISIONS_BY_KIND = {
    APPROVAL_KIND: frozenset({"approve", "edit", "deny"}),
    UNKNOWN_OUTCOME_KIND: frozenset({"value", "error", "run-again"}),
}
_APPROVING_DECISIONS = frozenset({"approve", "edit"})
_FORM_FIELDS = frozenset({"decision", "reason", "later", "version", "shown", TOKEN_FIELD})
_JSON_FIELDS = {*_FORM_FIELDS, "input", "value"}


@dataclass(frozen=True, slots=True)
class SubmittedDecision:
    """A submitted form or JSON body that decides one call.

    ``decision`` is the button and ``items`` are all fields. ``standing_choice`` is how long an approval holds for later
    calls, "" for this call only. ``version`` and ``display_digest`` identify what was displayed; ``form_token`` proves
    that the console displayed it to the sender.
    """

    decision: str
    reason: str
    standing_choice: str
    form_token: str
    version: str
    display_digest: str
    items: FormItems

    @property
    def is_approving(self) -> bool:
        """True if the call is to run."""
        return self.decision in _APPROVING_DECISIONS

    @property
    def changes_form(self) -> bool:
        """True if a button inside the form was pressed, which adds or removes fields."""
        return any(name in _FORM_BUTTONS for name, _ in self.items)

    @property
    def needs_value(self) -> bool:
        """True if the decision uses the typed value."""
        return self.decision not in _DECISIONS_WITHOUT_VALUE


class DecisionError(Exception):
    """A submission cannot be decided; ``concerns_reason`` if its reason is at fault."""

    def __init__(self, message: str, *, is_of_reason: bool = False) -> None:
        super().__init__(message)
        self.message, self.concerns_reason = message, is_of_reason


def parse_decision_form(items: FormItems) -> SubmittedDecision:
    """Parse a form. Raises `Problem` 400."""
    unexpected_field = next(
        (name for name, _ in items if name not in _FORM_FIELDS and not is_form_item_name(name)), None
    )
    if unexpected_field is not None:  # a misspelt field must not be ignored while the call is approved
        raise Problem(400, "This is not a form of a request", f"Unknown field {unexpected_field[:200]}.")
    decision, reason = (
        get_single_value(items, "decision"),
        get_single_value(items, "reason").replace("\r\n", "\n").strip(),
    )
    displayed = get_single_value(items, "version"), get_single_value(items, "shown")
    return SubmittedDecision(
        decision, reason, get_single_value(items, "later"), get_single_value(items, TOKEN_FIELD), *displayed, items
    )


def parse_decision_json(body: Any) -> SubmittedDecision:
    """Parse a JSON object with the fields of the form, and ``input`` or ``value``.

    ``reason`` and ``later`` are optional. Raises `Problem` 400.
    """
    fields = cast("Mapping[str, Any]", body) if isinstance(body, dict) else dict[str, Any]()
    texts = {name: fields.get(name, "") for name in _FORM_FIELDS}
    is_complete = all(isinstance(text, str) for text in texts.values()) and all(
        texts[name] for name in texts.keys() - {"reason", "later"}
    )
    if not is_complete or not fields.keys() <= _JSON_FIELDS or {"input", "value"} <= fields.keys():
        raise Problem(
            400,
            "No decision was sent",
            f"The body must be an object of texts with the keys {', '.join(sorted(_JSON_FIELDS))}.",
        )
    value = fields.get("input", fields.get("value", ABSENT))
    items = [] if value is ABSENT else [("json", json.dumps(value))]
    rest = texts["later"], texts[TOKEN_FIELD], texts["version"], texts["shown"]
    return SubmittedDecision(texts["decision"], texts["reason"].strip(), *rest, items)


def require_valid_decision(call: StoredRequest, submitted: SubmittedDecision, *, is_for_programs: bool = False) -> None:
    """Raise `Problem` 400 for a decision that this kind of call does not take."""
    allowed = _DECISIONS_BY_KIND.get(call.kind, frozenset({"answer"}))
    if submitted.changes_form == bool(submitted.decision) or (
        submitted.decision and submitted.decision not in {*allowed, PREVIEW}
    ):
        raise invalid_decision_problem(sorted({*allowed, PREVIEW}), is_for_programs=is_for_programs)


def invalid_decision_problem(allowed: Iterable[str], *, is_for_programs: bool) -> Problem:
    """Return the problem of a submission without a valid decision."""
    if not is_for_programs:
        return Problem(400, "No decision was sent", "Use one of the form's buttons.")
    decisions = list(allowed)
    message = f"decision must be one of {', '.join(decisions)}."
    return Problem(400, "No decision was sent", message, facts={"decisions": decisions})


# --- Call forms ---


def compute_decision_token_subject(interrupt_id: str, version: str, display_digest: str) -> str:
    """Return what a form token is bound to: the call as displayed."""
    return hashlib.sha256(json.dumps([interrupt_id, version, display_digest]).encode()).hexdigest()


def compute_call_version(record: Record, call: StoredRequest) -> str:
    """Return the version of a call: the record version that first asked it, and a digest of its card.

    It stays the same while the call waits unchanged, even if other calls change. The work grows with the schema.
    """
    facts = [call.refusal, call.payload, call.input_schema, call.description, call.annotations]
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True, default=dict).encode()).hexdigest()
    return f"{_find_first_version_with_call(record, call)}-{digest[:32]}"


def _find_first_version_with_call(record: Record, call: StoredRequest) -> int:
    first = record.version
    for version in reversed(record.versions):
        if call.interrupt_id not in version.interrupt_ids:
            break
        first = version.version
    return first


def create_call_form(call: StoredRequest, *, has_fields: bool = True) -> Form:
    """Return the form that answers a call. The work grows with schema and input."""
    schema, value = _get_form_schema_and_value(call)
    if not has_fields:
        return create_form(None, value)
    try:
        return create_form(schema, value)
    except Exception:  # noqa: BLE001 - schemas are untrusted; the call can still be answered
        _log.warning("no form could be made of a schema of %.200r", call.tool_name, exc_info=True)
        return create_form(None, value)


def read_call_form(call: StoredRequest, items: FormItems) -> FormResult:
    """Read the submitted form of a call. Raises `Problem` 400. The work grows with schema and input."""
    schema, value = _get_form_schema_and_value(call)
    try:
        result = read_form(items, schema, value)
        return _replace_problems_with_hints(result) if call.kind == UNKNOWN_OUTCOME_KIND else result
    except MalformedFormError as error:
        raise Problem(400, "This is not a form of this request", str(error)) from None
    except Exception:  # noqa: BLE001 - as above
        _log.warning("a schema of %.200r could not be read", call.tool_name, exc_info=True)
    if any(parse_control_name(name) is not None for name, _ in items):
        raise Problem(400, "This is not a form of this request", "Edit it as JSON text.")
    return read_form([item for item in items if item[0] == "json"][:1], None, value)


def _replace_problems_with_hints(result: FormResult) -> FormResult:
    """Return the result with hints on how to type the result of a call."""
    if not result.problems:
        return result
    reason = "; ".join(result.problems.get("json", ())).removeprefix("is not JSON: ")
    has_text = bool(result.form.json_text.strip())
    message = f"This is not JSON. Put text in quotes. ({reason})" if has_text else "Enter what the call returned."
    problems = {"json": [message]}
    return replace(result, problems=problems, form=replace(result.form, problems=problems))


def _get_form_schema_and_value(call: StoredRequest) -> tuple[Any, Any]:
    """Return the schema and the displayed value of a call's form."""
    if call.kind == APPROVAL_KIND:
        return call.input_schema, call.input
    return (None if call.kind == UNKNOWN_OUTCOME_KIND else call.payload.get("schema")), ABSENT


# --- Decisions ---


def to_store_decision(call: StoredRequest, submitted: SubmittedDecision, result: FormResult | None) -> Any:
    """Return the decision for the store. Raises `DecisionError`."""
    if len(submitted.reason) > MAX_REASON_CHARACTERS:
        raise DecisionError(f"The reason has more than {MAX_REASON_CHARACTERS:,} characters.", is_of_reason=True)
    reason_field = {"reason": submitted.reason} if submitted.reason else {}
    if submitted.decision == "deny":
        return {"approved": False, **reason_field}
    if submitted.decision == "run-again":
        return {"runAgain": True}
    if submitted.decision == "error":
        if not submitted.reason:
            raise DecisionError("Enter the error for the program.", is_of_reason=True)
        return {"error": {"message": submitted.reason}}
    if submitted.decision == "approve":
        if result is None or not result.is_unchanged:
            raise DecisionError(_INPUT_CHANGED)
        return {"approved": True, **reason_field}
    if result is None or not result.is_valid:
        raise DecisionError(_NEW_FIELDS if result is not None and result.needs_redisplay else VALUE_DOES_NOT_FIT)
    if submitted.decision == "edit":
        changes = (
            {} if result.is_unchanged else {"input": _convert_changed_long_integers_to_text(call.input, result.value)}
        )
        return {"approved": True, **changes, **reason_field}
    return {"value": result.value} if submitted.decision == "value" else result.value


def _convert_changed_long_integers_to_text(displayed: Any, edited: Any) -> Any:
    """Return the edited value with changed integers as text where a browser's numbers would lose digits.

    The store reads a text there as its integer, and a number as one that a browser may have rounded.
    """
    if isinstance(displayed, dict) and isinstance(edited, dict):
        displayed_members, edited_members = cast("dict[str, Any]", displayed), cast("dict[str, Any]", edited)
        return {
            name: _convert_changed_long_integers_to_text(displayed_members[name], value)
            if name in displayed_members
            else value
            for name, value in edited_members.items()
        }
    if isinstance(displayed, list) and isinstance(edited, list):
        displayed_items, edited_items = cast("list[Any]", displayed), cast("list[Any]", edited)
        return [
            *(
                _convert_changed_long_integers_to_text(displayed_item, edited_item)
                for displayed_item, edited_item in zip(displayed_items, edited_items, strict=False)
            ),
            *edited_items[len(displayed_items) :],
        ]
    is_long = isinstance(displayed, int) and abs(displayed) > _MAX_SAFE_INTEGER
    return str(edited) if is_long and type(edited) is int and edited != displayed else edited


VALUE_DOES_NOT_FIT = "The value is not valid."
_NEW_FIELDS = "New fields have appeared. Fill them in and send again."
_INPUT_CHANGED = (
    "The input was changed, so nothing is decided. “Approve with changes” approves the changed input; to approve the "
    "requested one, reload the page."
)


def find_edited_input(call: StoredRequest) -> Any:
    """Return the changed input of an approved call; ABSENT if it was approved unchanged or denied."""
    decision: Any = call.decision
    if call.kind != APPROVAL_KIND or not isinstance(decision, dict) or "input" not in decision:
        return ABSENT
    value = cast("dict[str, Any]", decision)["input"]
    try:
        return restore_integers(value, call.input)
    except (ValueError, RecursionError):
        return value


def has_same_decision(call: StoredRequest, decision: Any) -> bool:
    """Return whether this decision was made. The work grows with both values."""
    return call.state in ("decided", "applied") and encode_canonical_json(call.decision) == encode_canonical_json(
        decision
    )


def describe_decision(call: StoredRequest) -> str:
    """Return a decision in one or a few words."""
    decision: Any = call.decision
    members = cast("Mapping[str, Any]", decision) if isinstance(decision, dict) else dict[str, Any]()
    if call.kind == APPROVAL_KIND:
        return (
            ("approved with changes" if "input" in members else "approved")
            if members.get("approved") is True
            else "denied"
        )
    if call.kind == UNKNOWN_OUTCOME_KIND:
        return next((text for key, text in _OUTCOME_DECISION_TEXTS.items() if key in members), "answered")
    return "answered"


_OUTCOME_DECISION_TEXTS = {
    "value": "answered with its value",
    "error": "answered with its error",
    "runAgain": "run again",
    "run_again": "run again",
}


def describe_audit_decision(decision: str) -> str:
    """Return the decision of an audit line in the words of `describe_decision`."""
    return "approved with changes" if decision == "edited" else _OUTCOME_DECISION_TEXTS.get(decision, decision)


def find_decision_reason(call: StoredRequest) -> str:
    """Return the reason of a decision, "" without one."""
    decision: Any = call.decision
    reason = cast("Mapping[str, Any]", decision).get("reason") if isinstance(decision, dict) else None
    return reason if call.kind == APPROVAL_KIND and isinstance(reason, str) else ""


MAX_ACTION_REASON_CHARACTERS = 2_000
"""The audit's limit."""


@dataclass(frozen=True, slots=True)
class RecordAction:
    """An action on a whole record: its button and what it does."""

    action: str
    label: str
    description: str


_WITHDRAW_PENDING = RecordAction("withdraw", "Withdraw", "The program ends, and no pending call runs.")
_CLOSE_UNRESUMABLE = RecordAction("withdraw", "Close", "The program ends and is not resumed again.")
_RETRY_RESUME = RecordAction("run-again", "Try again now", "A host with its tools resumes it now.")
_CLOSE_LOST = RecordAction("close", "Close", "The program ends as failed. Effects of its calls remain.")
_RUN_LOST_AGAIN = RecordAction(
    "run-again",
    "Run again",
    "The program resumes from its last pause, with the recorded decisions. Calls that had started may happen twice.",
)


def list_record_actions(record: Record) -> tuple[RecordAction, ...]:
    """Return the actions that the state of a record allows."""
    if record.state == "lost":
        return (_CLOSE_LOST, _RUN_LOST_AGAIN)
    if record.state not in ("pending", "resting"):
        return ()
    if record.not_resumable is None:
        return (_WITHDRAW_PENDING,) if record.state == "pending" else ()
    return (_CLOSE_UNRESUMABLE, _RETRY_RESUME) if record.state == "pending" else (_CLOSE_UNRESUMABLE,)


def needs_record_action(record: Record) -> bool:
    """Return whether the record continues only after a record action."""
    return record.state == "lost" or record.not_resumable is not None


def compute_record_fingerprint(record: Record) -> str:
    """Return the version of a record and how many of its calls wait, to detect stale forms."""
    return f"{record.version}-{sum(call.state == 'waiting' for call in record.requests)}"


def compute_record_action_token_subject(record_id: str, fingerprint: str, state: str) -> str:
    """Return what the token of an action's form is bound to: the record as displayed."""
    return f"record {record_id} {fingerprint} {state}"


def get_record_action_methods(store: InterruptStore) -> dict[str, Callable[..., Awaitable[None]]]:
    """Return the store's methods by action."""
    return {"withdraw": store.withdraw, "close": store.close_lost, "run-again": store.run_again}


def record_actions_to_json(record: Record, record_actions: Iterable[RecordAction], form_token: str) -> dict[str, Any]:
    """Return the actions for API callers, with the values that their form sends."""
    actions = {action.action: action.description for action in record_actions}
    return {
        "actions": actions,
        "version": compute_record_fingerprint(record),
        "state": record.state,
        "formToken": form_token,
    }


_FINAL_STATES = ("completed", "failed", "withdrawn")


def find_not_pending_problem(record: Record, call: StoredRequest) -> Problem | None:
    """Return why a call can no longer be decided; None while it is pending."""
    facts: dict[str, Any] = {}
    decided_by = ""
    if call.state in ("decided", "applied"):
        facts = {"actor": call.actor, "decidedAtMs": call.decided_at_ms, "decision": describe_decision(call)}
        decided_at = "" if call.decided_at_ms is None else f", {format_time(call.decided_at_ms)}"
        decided_by = f"{call.actor or 'Another user'} decided first: {facts['decision']}{decided_at}."
    if record.state == "expired":
        return Problem(
            410,
            "The request has expired",
            decided_by or "It was not decided in time.",
            facts={**facts, "code": "RecordExpired"},
        )
    if decided_by:
        facts["code"] = "AlreadyDecided"
        return Problem(409, "Already decided", decided_by, facts=facts)
    if record.state in _FINAL_STATES:
        return _conflict_problem("RequestSettled", "The program has ended", f"Its state is {record.state}.")
    if record.state == "lost":
        return _conflict_problem(
            "RecordLost", "The program is lost; its outcome is unknown", "Its host ended while it ran."
        )
    if call.state == "superseded":
        message = "It continued and may wait for another call."
        return _conflict_problem("RequestSuperseded", "The program no longer waits for this call", message)
    return None


def stale_form_problem(call: StoredRequest) -> Problem:
    """Return the problem of a submission for another version of the call."""
    message = (
        "The answer was refused. Read why and decide again."
        if call.refusal
        else "Review what changed and decide again."
    )
    return _conflict_problem("RequestSuperseded", "This call has changed since you opened the page", message)


def _conflict_problem(code: str, title: str, message: str) -> Problem:
    return Problem(409, title, message, facts={"code": code})


MAX_BULK_CALLS = 200
BULK_SELECTION_SUBJECT = "many: choice"
"""Subject of the form token of the page that selects calls; it decides nothing."""
_MAX_SELECTED_CALL_CHARACTERS = 4096
_INVALID_SELECTION = "A field names no request."


@dataclass(frozen=True, slots=True)
class SelectedCall:
    """A call selected for a bulk decision; ``version`` and ``display_digest`` are "" before it was displayed."""

    record_id: str
    interrupt_id: str
    version: str = ""
    display_digest: str = ""

    def to_field_value(self) -> str:
        """Return the value of its form field."""
        return "/".join(
            quote(part, safe="") for part in (self.record_id, self.interrupt_id, self.version, self.display_digest)
        )


def encode_selection_value(record_id: str, interrupt_id: str) -> str:
    """Return the value of the checkbox that selects a call."""
    return f"{quote(record_id, safe='')}/{quote(interrupt_id, safe='')}"


def parse_selection(texts: Sequence[str], *, part_count: int) -> list[SelectedCall]:
    """Parse form fields into distinct calls. Raises `Problem` 400, and 422 for none or too many."""
    selection: dict[tuple[str, str], SelectedCall] = {}
    for text in texts:
        fields = text.split("/")
        if len(fields) != part_count or len(text) > _MAX_SELECTED_CALL_CHARACTERS:
            raise Problem(400, "This is not a form", _INVALID_SELECTION)
        try:
            selected = SelectedCall(*(unquote(part, errors="strict") for part in fields))
        except UnicodeDecodeError:
            raise Problem(400, "This is not a form", _INVALID_SELECTION) from None
        selection.setdefault((selected.record_id, selected.interrupt_id), selected)
    if not selection:
        raise Problem(422, "Nothing is selected", "Go back and select calls.")
    if len(selection) > MAX_BULK_CALLS:
        raise Problem(
            422,
            "Too many calls are selected",
            f"At most {MAX_BULK_CALLS} calls are decided together. Nothing was decided.",
        )
    return list(selection.values())


def compute_bulk_decision_token_subject(decision: str, calls: Iterable[SelectedCall]) -> str:
    """Return what the token of a bulk form is bound to: the decision and the calls as displayed."""
    digest = hashlib.sha256(
        "\n".join(call.to_field_value() for call in calls).encode("utf-8", "surrogatepass")
    ).hexdigest()
    return f"many: {decision} {digest}"
