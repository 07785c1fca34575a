"""A paused invocation as plain JSON: program, settings and ledger. Pure; signing and sealing happen around it.

The text comes back signed by this host, yet every field is checked: a key may leak, and a bug must not become a replay
of something that never happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from ..data.json_values import MAX_DEPTH, canonical_json, decode_json
from ..data.narrowing import is_array, is_object
from ..errors import CodeModeProtocolError
from ..options.parts import ExecutionPolicy
from .call_status import IN_CONTINUATIONS, call_status
from .ledger import Fulfilled, Ledger, LedgerEntry, Outcome, Rejected, Waiting
from .messages import REQUEST_KINDS
from .rejections import read_fields
from .settings import Settings, limits_that

REPLAY_VERSION = 3
"""Raised whenever something changes that a replay depends on: kernel, delivery order, clock, random, limits."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Everything that a resume needs beside tools and options. ``kept`` are the settings that a replay depends on.

    ``given_json`` is what the invocation was given, JSON of an object, if anything was.
    """

    js: str
    engine: str
    kept: Mapping[str, Any]
    ledger: Ledger
    given_json: str | None = None

    @classmethod
    def of(cls, js: str, engine: str, settings: Settings, ledger: Ledger) -> Continuation:
        """Return the continuation of an invocation."""
        return cls(js, engine, replayed_settings(settings), ledger, settings.given_json)

    @property
    def given(self) -> Mapping[str, Any] | None:
        """What the invocation was given, as plain JSON."""
        return None if self.given_json is None else _read(self.given_json, MAX_DEPTH + _DEPTH_AROUND_GIVEN)

    def settings(self, fresh: Settings) -> Settings:
        """Return the settings of the resumed run: ``fresh`` ones but for what a replay depends on."""
        limits = {name: self.kept[name] for name in limits_that("is_kept", ExecutionPolicy)}
        identity = {name: self.kept[name] for name in _IDENTITY if name not in _PROFILE}
        return replace(fresh, limits=replace(fresh.limits, **limits), given_json=self.given_json, **identity)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "replayVersion": REPLAY_VERSION,
            "engine": self.engine,
            "js": self.js,
            "given": self.given_json,
            "settings": dict(self.kept),
            "ledger": [_entry_to_dict(entry) for entry in self.ledger.entries],
            "deliveries": list(self.ledger.deliveries),
            "notices": self.ledger.notices,
        }

    @classmethod
    def from_dict(cls, value: Any) -> Continuation:
        """Read it back. Raises `CodeModeProtocolError` for anything that `to_dict` could not have made."""
        _require_version(_mapping(value))
        body = _object(value, {"replayVersion", "engine", "js", "given", "settings", "ledger", "deliveries", "notices"})
        kept = _object(body["settings"], {*_IDENTITY, *limits_that("is_kept", ExecutionPolicy)})
        for name, read in _IDENTITY.items():
            read(kept[name])
        _check_limits(kept)
        entries = [_entry_from_dict(item, position) for position, item in enumerate(_list(body["ledger"]), 1)]
        deliveries = [_positive(item) for item in _list(body["deliveries"])]
        ledger = Ledger(entries, deliveries, _count(body["notices"]))
        _check_ledger(ledger, kept["outer_tool_call_id"])
        given_json = _optional_text(body["given"])
        if given_json is not None:
            _read(given_json, MAX_DEPTH + _DEPTH_AROUND_GIVEN)
        return cls(_text(body["js"]), _text(body["engine"]), kept, ledger, given_json)


def replayed_settings(settings: Settings) -> dict[str, Any]:
    """Return what a replay must find unchanged, by name; everything else comes from the options of the resume."""
    profile = settings.profile
    kept: dict[str, Any] = {name: getattr(settings, name) for name in _IDENTITY if name not in _PROFILE}
    kept |= {name: getattr(settings.limits, name) for name in limits_that("is_kept", ExecutionPolicy)}
    kept["language_names"] = list(settings.language_names)
    return {**kept, "profile": profile.name, "parameters": dict(profile.parameters)}


# What can be long stands in the wire form as it is: escaping and parsing it again would cost more than all the rest.
_DEPTH_AROUND_GIVEN = 8  # of a value in it, which may be as deep as any
_LONG_TEXTS = ("inputJson", "executedInputJson", "valueJson", "interruptPayloadJson", "shownInputJson")


def texts_of(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts in which a continuation travels.

    These are a head, the program, what it was given (an empty text for nothing), then each entry and its long texts.
    """
    yield canonical_json({key: value for key, value in body.items() if key not in ("js", "given", "ledger")})
    yield body["js"]
    yield body["given"] or ""
    for entry in body["ledger"]:
        names = [name for name in _LONG_TEXTS if name in entry]
        rest = {key: value for key, value in entry.items() if key not in names}
        yield canonical_json({"entry": rest, "texts": names})
        yield from (entry[name] for name in names)


def body_of(texts: Iterable[str]) -> dict[str, Any]:
    """Return what `texts_of` was given. Raises `CodeModeProtocolError` for texts that it could not have made."""
    rest = iter(texts)
    try:
        head = _read(next(rest))
        _require_version(head)  # on which it depends what the texts behind it are
        body: dict[str, Any] = {**head, "js": next(rest), "given": next(rest) or None}
        ledger: list[dict[str, Any]] = []
        for text in rest:
            item = _object(_read(text), {"entry", "texts"})
            long_texts = {_long_text(name): next(rest) for name in _list(item["texts"])}
            ledger.append({**_mapping(item["entry"]), **long_texts})
    except StopIteration:
        raise CodeModeProtocolError("the continuation is cut off") from None
    return {**body, "ledger": ledger}


def _require_version(head: Mapping[str, Any]) -> None:
    if head.get("replayVersion") != REPLAY_VERSION:
        raise CodeModeProtocolError(
            f"the continuation has replay version {head.get('replayVersion')!r}, this host has {REPLAY_VERSION}:"
            " it was made by another version of codemode and cannot be resumed"
        )


def _read(text: str, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    try:
        return _mapping(decode_json(text, max_depth=max_depth))
    except ValueError as error:
        raise CodeModeProtocolError("the continuation cannot be read") from error


def _long_text(name: object) -> str:
    if name not in _LONG_TEXTS:
        raise CodeModeProtocolError("the continuation is malformed")
    return cast("str", name)


def _entry_to_dict(entry: LedgerEntry) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "kind": entry.kind,
        "name": entry.name,
        "inputJson": entry.input_json,
        "inputBytes": entry.input_bytes,
        "toolCallId": entry.tool_call_id,
        "executedInputJson": entry.executed_input_json,
        "dateNowMs": entry.now_ms,
        "approved": entry.is_approved or None,
        "waits": entry.waits or None,
        "status": call_status(entry.outcome, IN_CONTINUATIONS),
        **_outcome_to_dict(entry.outcome),
    }
    return {key: value for key, value in plain.items() if value is not None}


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
    "status",
    "valueJson", "error", "interruptId", "interruptPayloadJson", "attempt", "shownInputJson",
}  # fmt: skip


def _entry_from_dict(value: object, position: int) -> LedgerEntry:
    if not is_object(value) or not set(value) <= _ENTRY_KEYS:
        raise CodeModeProtocolError(f"the continuation's ledger entry {position} is malformed")
    body = value
    kind = body.get("kind")
    if kind not in REQUEST_KINDS:
        raise CodeModeProtocolError(f"the continuation's ledger entry {position} is of an unknown kind")
    return LedgerEntry(
        id=position,
        kind=kind,
        name=_text(body.get("name")),
        input_json=_optional_text(body.get("inputJson")),
        input_bytes=_optional_positive(body.get("inputBytes")),
        tool_call_id=_optional_text(body.get("toolCallId")),
        outcome=_outcome_from_dict(body),
        executed_input_json=_optional_text(body.get("executedInputJson")),
        now_ms=_optional_positive(body.get("dateNowMs")),
        is_approved=body.get("approved") is True,
        waits=_optional_positive(body.get("waits")) or 0,
    )


def _outcome_from_dict(body: Mapping[str, Any]) -> Outcome | None:
    words = IN_CONTINUATIONS
    match body.get("status"):
        case words.fulfilled:
            return Fulfilled(_optional_text(body.get("valueJson")))
        case words.rejected:
            return _rejected(_mapping(body.get("error")))
        case words.waiting:
            return Waiting(
                _text(body.get("interruptId")),
                _text(body.get("interruptPayloadJson")),
                _optional_text(body.get("shownInputJson")),
                _positive(body.get("attempt")),
            )
        case words.open:
            return None
        case _:
            raise CodeModeProtocolError("the continuation's ledger holds an unknown status")


def _rejected(error: dict[str, Any]) -> Rejected:
    if error.keys() - {"fields"} != {"name", "message", "code"}:
        raise CodeModeProtocolError("the continuation is malformed")
    fields_json = _text(error["fields"]) if "fields" in error else None
    if fields_json is not None:
        read_fields(fields_json)
    return Rejected(_text(error["name"]), _text(error["message"]), _text(error["code"]), fields_json)


def _check_ledger(ledger: Ledger, outer_tool_call_id: str) -> None:
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
    if any(entry.kind == "catalog" for entry in ledger.waiting):
        raise CodeModeProtocolError("a question to the catalog cannot be interrupted")


def _object(value: object, keys: set[str]) -> dict[str, Any]:
    body = _mapping(value)
    if set(body) != keys:
        raise CodeModeProtocolError("the continuation is malformed")
    return body


def _mapping(value: object) -> dict[str, Any]:
    if not is_object(value):
        raise CodeModeProtocolError("the continuation is malformed")
    return value


def _list(value: object) -> list[Any]:
    if not is_array(value):
        raise CodeModeProtocolError("the continuation is malformed")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise CodeModeProtocolError("the continuation holds a value that is not text")
    return value


def _texts(value: object) -> list[str]:
    return [_text(item) for item in _list(value)]


def _positive(value: object) -> int:
    if type(value) is not int or value < 1:
        raise CodeModeProtocolError("the continuation holds a value that is not a positive number")
    return value


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise CodeModeProtocolError("the continuation holds a value that is not a count")
    return value


def _check_limits(kept: Mapping[str, Any]) -> None:
    """Check each limit as the option that it was. A resume cannot widen what the machine stands."""
    try:
        ExecutionPolicy(**{name: kept[name] for name in limits_that("is_kept", ExecutionPolicy)})
    except ValueError as error:
        raise CodeModeProtocolError(f"the continuation holds a limit that cannot be: {error}") from None


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise CodeModeProtocolError("the continuation holds a value that is neither true nor false")
    return value


def _optional_text(value: object) -> str | None:
    return None if value is None else _text(value)


def _optional_positive(value: object) -> int | None:
    return None if value is None else _positive(value)


_IDENTITY: dict[str, Callable[[object], Any]] = {
    "outer_tool_call_id": _text,
    "salt": _text,
    "seed": _text,
    "started_ms": _positive,
    "profile": _text,
    "parameters": _mapping,
    "fetch": _flag,
    "language_names": _texts,
}
_PROFILE = ("profile", "parameters")  # by which the profile itself is found again
