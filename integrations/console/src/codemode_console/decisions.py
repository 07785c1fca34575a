"""What somebody has decided about requests and records: read from forms, and put into words."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import quote, unquote

from codemode.data.exact_integers import restore_integers
from codemode.data.json_values import canonical_json
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import InterruptStore, Record, StoredRequest

from .bodies import FormItems, single_value
from .errors import Problem
from .forms import ABSENT, Edited, Form, MalformedForm, fields_of, is_of_form, read_form
from .forms.model import pointer_of
from .sessions import TOKEN_FIELD
from .visible import moment_text

_log = logging.getLogger("codemode.console")

PREVIEW = "preview"
MOST_REASON_CHARACTERS = 2_000
"""So much of a reason the audit keeps."""

_MOST_EXACT = 2**53 - 1
_BUTTONS_OF_FORMS = frozenset({"add", "remove", "choose"})
_WITHOUT_VALUE = frozenset({"deny", "run-again", "error"})
_OF_KIND = {
    APPROVAL_KIND: frozenset({"approve", "edit", "deny"}),
    UNKNOWN_OUTCOME_KIND: frozenset({"value", "error", "run-again"}),
}
_APPROVES = frozenset({"approve", "edit"})
_FIELDS = frozenset({"decision", "reason", "later", "version", "shown", TOKEN_FIELD})
_KEYS = {*_FIELDS, "input", "value"}


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent about a request: ``said`` is the button, ``items`` are all fields.

    ``later`` is for how long an approval is to hold beside the call, nothing where it is for the call alone.
    ``version`` and ``shown`` say what the sender was shown, and ``token`` that the console has shown it to them.
    """

    said: str
    reason: str
    later: str
    token: str
    version: str
    shown: str
    items: FormItems

    @property
    def approves(self) -> bool:
        """Whether a call is to run."""
        return self.said in _APPROVES

    @property
    def is_redraw(self) -> bool:
        """Whether a button of the form itself was pressed."""
        return any(name in _BUTTONS_OF_FORMS for name, _ in self.items)

    @property
    def needs_value(self) -> bool:
        """Whether what was typed into the form matters."""
        return self.said not in _WITHOUT_VALUE


class NotDecided(Exception):  # noqa: N818 - a person reads its words
    """What was sent cannot be decided so: ``words`` ask for something else, of the reason alone if ``is_of_reason``."""

    def __init__(self, words: str, *, is_of_reason: bool = False) -> None:
        super().__init__(words)
        self.words, self.is_of_reason = words, is_of_reason


def sent_form(items: FormItems) -> Sent:
    """Return what a form says. Raises `Problem` 400."""
    other = next((name for name, _ in items if name not in _FIELDS and not is_of_form(name)), None)
    if other is not None:  # a misspelt change would be passed over, and the rest approved
        raise Problem(400, "This is no form of a request", f"It has no field {other[:200]}.")
    said, reason = single_value(items, "decision"), single_value(items, "reason").replace("\r\n", "\n").strip()
    shown = single_value(items, "version"), single_value(items, "shown")
    return Sent(said, reason, single_value(items, "later"), single_value(items, TOKEN_FIELD), *shown, items)


def sent_json(body: Any) -> Sent:
    """Return what a JSON body says: an object with the fields of a form, and ``input`` or ``value``.

    ``reason`` and ``later`` may be left out, and what is decided without a value. Raises `Problem` 400.
    """
    said = cast("Mapping[str, Any]", body) if isinstance(body, dict) else dict[str, Any]()
    texts = {name: said.get(name, "") for name in _FIELDS}
    has_all = all(isinstance(one, str) for one in texts.values()) and all(
        texts[name] for name in texts.keys() - {"reason", "later"}
    )
    if not has_all or not said.keys() <= _KEYS or {"input", "value"} <= said.keys():
        raise Problem(400, "This decides nothing", f"A body is an object with texts, of {', '.join(sorted(_KEYS))}.")
    given = said.get("input", said.get("value", ABSENT))
    items = [] if given is ABSENT else [("json", json.dumps(given))]
    about_it = texts["later"], texts[TOKEN_FIELD], texts["version"], texts["shown"]
    return Sent(texts["decision"], texts["reason"].strip(), *about_it, items)


def require_sense(one: StoredRequest, sent: Sent, *, is_for_programs: bool = False) -> None:
    """Raise `Problem` 400 for what no card of this request sends; programs are told which decisions it takes."""
    known = _OF_KIND.get(one.kind, frozenset({"answer"}))
    if sent.is_redraw == bool(sent.said) or (sent.said and sent.said not in {*known, PREVIEW}):
        raise no_decision(sorted({*known, PREVIEW}), is_for_programs=is_for_programs)


def no_decision(known: Iterable[str], *, is_for_programs: bool) -> Problem:
    """Return what is said of a form that was sent with none of its buttons, and of JSON with no such decision."""
    if not is_for_programs:
        return Problem(400, "This form decides nothing", "Send it with one of its buttons.")
    decisions = list(known)
    words = f"decision must be one of {', '.join(decisions)}."
    return Problem(400, "This decides nothing", words, facts={"decisions": decisions})


# --- what is asked ---


def about(interrupt_id: str, version: str, shown: str) -> str:
    """Return what the token of a decision's form is about: the request, as it was shown."""
    return hashlib.sha256(json.dumps([interrupt_id, version, shown]).encode()).hexdigest()


def version_of(record: Record, one: StoredRequest) -> str:
    """Return which version of a request is shown: since which of the record's, and all that is read beside its input.

    While a request waits on and nothing about it has changed it is the same, whatever the rest of its program does.
    Work in proportion to the schema.
    """
    read = [one.refusal, one.payload, one.input_schema, one.description, one.annotations]
    digest = hashlib.sha256(json.dumps(read, sort_keys=True, default=dict).encode()).hexdigest()
    return f"{_asked_since(record, one)}-{digest[:32]}"


def _asked_since(record: Record, one: StoredRequest) -> int:
    since = record.version
    for version in reversed(record.versions):
        if one.interrupt_id not in version.interrupt_ids:
            break
        since = version.version
    return since


def form_of(one: StoredRequest, *, has_fields: bool = True) -> Form:
    """Return the form in which a request is answered. The work is in proportion to schema and input."""
    schema, value = _asked(one)
    if not has_fields:
        return fields_of(None, value)
    try:
        return fields_of(schema, value)
    except Exception:  # noqa: BLE001 - a schema is a stranger's: whatever it does, its request is answered
        _log.warning("no form could be made of a schema of %.200r", one.tool_name, exc_info=True)
        return fields_of(None, value)


def edited_of(one: StoredRequest, items: FormItems) -> Edited:
    """Return what was typed into the form of a request. Raises `Problem` 400. Work as `form_of` says."""
    schema, value = _asked(one)
    try:
        edited = read_form(items, schema, value)
        return _in_words_of_a_result(edited) if one.kind == UNKNOWN_OUTCOME_KIND else edited
    except MalformedForm as error:
        raise Problem(400, "This is no form of this request", str(error)) from None
    except Exception:  # noqa: BLE001 - likewise
        _log.warning("a schema of %.200r could not be read", one.tool_name, exc_info=True)
    if any(pointer_of(name) is not None for name, _ in items):
        raise Problem(400, "This is no form of this request", "It is edited as JSON text.")
    return read_form([item for item in items if item[0] == "json"][:1], None, value)


def _in_words_of_a_result(edited: Edited) -> Edited:
    """Return what was typed as the result of a call, with problems that say what to type."""
    if not edited.problems:
        return edited
    why = "; ".join(edited.problems.get("json", ())).removeprefix("is no JSON: ")
    has_text = bool(edited.typed.json_text.strip())
    words = f"This is not JSON. Put text in quotes. ({why})" if has_text else "Say what the call returned."
    problems = {"json": [words]}
    return replace(edited, problems=problems, typed=replace(edited.typed, problems=problems))


def _asked(one: StoredRequest) -> tuple[Any, Any]:
    """Return the schema of what is asked, and the value that is shown."""
    if one.kind == APPROVAL_KIND:
        return one.input_schema, one.input
    return (None if one.kind == UNKNOWN_OUTCOME_KIND else one.payload.get("schema")), ABSENT


# --- what is decided ---


def decision_of(one: StoredRequest, sent: Sent, edited: Edited | None) -> Any:
    """Return the decision, as a store takes it. Raises `NotDecided`."""
    if len(sent.reason) > MOST_REASON_CHARACTERS:
        raise NotDecided(f"The reason has more than {MOST_REASON_CHARACTERS:,} characters.", is_of_reason=True)
    given = {"reason": sent.reason} if sent.reason else {}
    if sent.said == "deny":
        return {"approved": False, **given}
    if sent.said == "run-again":
        return {"runAgain": True}
    if sent.said == "error":
        if not sent.reason:
            raise NotDecided("Say how it failed: the program gets that as its error.", is_of_reason=True)
        return {"error": {"message": sent.reason}}
    if sent.said == "approve":
        if edited is None or not edited.unchanged:
            raise NotDecided(_CHANGED)
        return {"approved": True, **given}
    if edited is None or not edited.is_readable:
        raise NotDecided(_UNSEEN if edited is not None and edited.is_redrawn else MISFIT)
    if sent.said == "edit":
        changes = {} if edited.unchanged else {"input": _meant(one.input, edited.value)}
        return {"approved": True, **changes, **given}
    return {"value": edited.value} if sent.said == "value" else edited.value


def _meant(shown: Any, edited: Any) -> Any:
    """Return an edited value with integers as text where an integer stood that a browser's numbers cannot hold.

    A store takes a text there for the integer that it says, and a number for what a browser may have made of the one
    that was shown.
    """
    if isinstance(shown, dict) and isinstance(edited, dict):
        known, given = cast("dict[str, Any]", shown), cast("dict[str, Any]", edited)
        return {name: _meant(known[name], one) if name in known else one for name, one in given.items()}
    if isinstance(shown, list) and isinstance(edited, list):
        rows, others = cast("list[Any]", shown), cast("list[Any]", edited)
        return [*(_meant(row, other) for row, other in zip(rows, others, strict=False)), *others[len(rows) :]]
    is_long = isinstance(shown, int) and abs(shown) > _MOST_EXACT
    return str(edited) if is_long and type(edited) is int and edited != shown else edited


MISFIT = "What was typed does not fit."
_UNSEEN = "Fields have appeared that nobody has filled in: look at them, and send it again."
_CHANGED = (
    "The input was changed, and nothing is decided. “Approve with changes” approves what is typed here; to approve "
    "what was asked, open the page again."
)


def edited_input(one: StoredRequest) -> Any:
    """Return the input that somebody has made of what was asked; ABSENT where it was approved as it was, or denied."""
    decision: Any = one.decision
    if one.kind != APPROVAL_KIND or not isinstance(decision, dict) or "input" not in decision:
        return ABSENT
    given = cast("dict[str, Any]", decision)["input"]
    try:
        return restore_integers(given, one.input)
    except (ValueError, RecursionError):
        return given


def is_decision(one: StoredRequest, decision: Any) -> bool:
    """Tell whether this was decided. Work in proportion to both."""
    return one.state in ("decided", "applied") and canonical_json(one.decision) == canonical_json(decision)


def decision_words(one: StoredRequest) -> str:
    """Return what was decided, in a word or two."""
    decision: Any = one.decision
    said = cast("Mapping[str, Any]", decision) if isinstance(decision, dict) else dict[str, Any]()
    if one.kind == APPROVAL_KIND:
        return (
            ("approved with changes" if "input" in said else "approved") if said.get("approved") is True else "denied"
        )
    if one.kind == UNKNOWN_OUTCOME_KIND:
        return next((words for key, words in _UNKNOWN_WORDS.items() if key in said), "answered")
    return "answered"


_UNKNOWN_WORDS = {
    "value": "answered with its value",
    "error": "answered with its error",
    "runAgain": "run again",
    "run_again": "run again",
}


def told_words(said: str) -> str:
    """Return what a line of the audit says that was decided, in the words of `decision_words`."""
    return "approved with changes" if said == "edited" else _UNKNOWN_WORDS.get(said, said)


def reason_of(one: StoredRequest) -> str:
    """Return the reason that was given; nothing where there is none."""
    decision: Any = one.decision
    reason = cast("Mapping[str, Any]", decision).get("reason") if isinstance(decision, dict) else None
    return reason if one.kind == APPROVAL_KIND and isinstance(reason, str) else ""


MOST_WHY_CHARACTERS = 2_000
"""As much of a reason as the audit keeps."""


@dataclass(frozen=True, slots=True)
class Ending:
    """One thing that may be said. ``label`` is its button, ``words`` what comes of it."""

    action: str
    label: str
    words: str


_WITHDRAW = Ending("withdraw", "Withdraw", "The program ends here, and nothing that waits is run.")
_SHUT = Ending("withdraw", "Close", "The program ends here: nobody tries to go on with it any more.")
_TRY = Ending("run-again", "Try again now", "Whoever can go on with it does so at once.")
_CLOSE = Ending("close", "Close", "It ends as failed. What its host had done when it died stays done.")
_AGAIN = Ending(
    "run-again",
    "Run again",
    "It goes on from its last pause, with the answers that it was given. What its host had begun when it died may"
    " happen twice.",
)


def endings_of(record: Record) -> tuple[Ending, ...]:
    """Return what may be said of a record as it is."""
    if record.state == "lost":
        return (_CLOSE, _AGAIN)
    if record.state not in ("pending", "resting"):
        return ()
    if record.not_resumable is None:
        return (_WITHDRAW,) if record.state == "pending" else ()
    return (_SHUT, _TRY) if record.state == "pending" else (_SHUT,)


def is_stuck(record: Record) -> bool:
    """Tell whether a record goes on only once somebody says what is to become of it."""
    return record.state == "lost" or record.not_resumable is not None


def as_shown(record: Record) -> str:
    """Return what tells a record from what has become of it since: its version, and how much of that waits."""
    return f"{record.version}-{sum(one.state == 'waiting' for one in record.requests)}"


def about_ending(record_id: str, version: str, state: str) -> str:
    """Return what the token of such a form is about: the record, as it was shown."""
    return f"record {record_id} {version} {state}"


def ending_calls(store: InterruptStore) -> dict[str, Callable[..., Awaitable[None]]]:
    """Return what does each of them."""
    return {"withdraw": store.withdraw, "close": store.close_lost, "run-again": store.run_again}


def endings_json(record: Record, endings: Iterable[Ending], form_token: str) -> dict[str, Any]:
    """Return them for callers of the API, with what a form sends."""
    actions = {one.action: one.words for one in endings}
    return {"actions": actions, "version": as_shown(record), "state": record.state, "formToken": form_token}


_ENDED = ("completed", "failed", "withdrawn")


def no_longer_asked(record: Record, one: StoredRequest) -> Problem | None:
    """Return why a request cannot be decided any more; None where it waits."""
    facts: dict[str, Any] = {}
    who = ""
    if one.state in ("decided", "applied"):
        facts = {"actor": one.actor, "decidedAtMs": one.decided_at_ms, "decision": decision_words(one)}
        at = "" if one.decided_at_ms is None else f", {moment_text(one.decided_at_ms)}"
        who = f"{one.actor or 'Somebody'} was first: {facts['decision']}{at}."
    if record.state == "expired":
        return Problem(
            410, "It has expired", who or "Nobody decided in time.", facts={**facts, "code": "RecordExpired"}
        )
    if who:
        facts["code"] = "AlreadyDecided"
        return Problem(409, "Somebody has decided about it", who, facts=facts)
    if record.state in _ENDED:
        return _problem("RequestSettled", "It has come to its end", f"Its program is {record.state}.")
    if record.state == "lost":
        return _problem("RecordLost", "Nobody knows what became of it", "Its host has died over it.")
    if one.state == "superseded":
        words = "The program does not wait for this any more."
        return _problem("RequestSuperseded", "The program has gone on, and asks something else", words)
    return None


def changed_meanwhile(one: StoredRequest) -> Problem:
    """Return what is said to somebody who was shown another version of a request than the one that waits."""
    words = "It was refused: see why, and decide again." if one.refusal else "Look at what is new, and decide again."
    return _problem("RequestSuperseded", "Something has changed since you were shown this", words)


def _problem(code: str, title: str, words: str) -> Problem:
    return Problem(409, title, words, facts={"code": code})


MOST_AT_ONCE = 200
ABOUT_CHOICE = "many: choice"
"""What the token of the form is about in which some are chosen: it decides nothing."""
_MOST_CHARACTERS = 4096
_NO_CHOICE = "A field of the form names no request."


@dataclass(frozen=True, slots=True)
class Chosen:
    """A request that somebody has chosen, and as what it was shown, "" before it was."""

    record_id: str
    interrupt_id: str
    version: str = ""
    shown: str = ""

    def text(self) -> str:
        """Return the value of a field that names it."""
        return "/".join(quote(one, safe="") for one in (self.record_id, self.interrupt_id, self.version, self.shown))


def chosen_text(record_id: str, interrupt_id: str) -> str:
    """Return the value of a checkbox that chooses a request."""
    return f"{quote(record_id, safe='')}/{quote(interrupt_id, safe='')}"


def chosen_of(texts: Sequence[str], *, parts: int) -> list[Chosen]:
    """Read fields that name requests, each request once. Raises `Problem` 400, and 422 for none and for too many."""
    chosen: dict[tuple[str, str], Chosen] = {}
    for text in texts:
        found = text.split("/")
        if len(found) != parts or len(text) > _MOST_CHARACTERS:
            raise Problem(400, "This is no form", _NO_CHOICE)
        try:
            one = Chosen(*(unquote(part, errors="strict") for part in found))
        except UnicodeDecodeError:
            raise Problem(400, "This is no form", _NO_CHOICE) from None
        chosen.setdefault((one.record_id, one.interrupt_id), one)
    if not chosen:
        raise Problem(422, "Nothing is selected", "Go back, and select what is to be decided.")
    if len(chosen) > MOST_AT_ONCE:
        raise Problem(422, "This is too much at once", f"At most {MOST_AT_ONCE} are decided together; nothing was.")
    return list(chosen.values())


def about_many(decision: str, chosen: Iterable[Chosen]) -> str:
    """Return what the token of the form is about in which these are decided, as they were shown."""
    digest = hashlib.sha256("\n".join(one.text() for one in chosen).encode("utf-8", "surrogatepass")).hexdigest()
    return f"many: {decision} {digest}"
