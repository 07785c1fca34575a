"""Encode a paused invocation as plain JSON and decode it."""

from __future__ import annotations

import binascii
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from ..data.content import ContentKind, MediaContent
from ..data.json_values import MAX_DEPTH, decode_json, encode_canonical_json
from ..data.narrowing import is_array, is_object
from ..errors import CodeModeProtocolError
from ..options.parts import LargeHeapPolicy
from ..records import record
from .call_status import CONTINUATION_STATUSES, get_call_status
from .guest_errors import read_error_fields
from .guest_output import MAX_TIMERS, MAX_YIELDS
from .in_flight import parse_timer_delay_ms
from .ledger import Fulfilled, Ledger, LedgerEntry, Outcome, ProgramProgress, Rejected, Waiting
from .messages import REQUEST_KINDS, SourceLocation
from .references import MAX_CARRIED_BYTES, ContentRegistry
from .settings import InvocationSettings, list_recorded_limit_names

# All readers raise `CodeModeProtocolError` for any other value.


def read_object_with_keys(value: object, keys: set[str]) -> dict[str, Any]:
    """Return an object that has exactly these keys."""
    body = read_object(value)
    if set(body) != keys:
        raise CodeModeProtocolError("the continuation is malformed")
    return body


def read_object(value: object) -> dict[str, Any]:
    """Return an object."""
    if not is_object(value):
        raise CodeModeProtocolError("the continuation is malformed")
    return value


def read_list(value: object) -> list[Any]:
    """Return a list."""
    if not is_array(value):
        raise CodeModeProtocolError("the continuation is malformed")
    return value


def read_text(value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise CodeModeProtocolError("the continuation holds a value that is not text")
    return value


def read_texts(value: object) -> list[str]:
    """Return a list of texts."""
    return [read_text(item) for item in read_list(value)]


def read_positive_integer(value: object) -> int:
    """Return a whole number above 0."""
    if type(value) is not int or value < 1:
        raise CodeModeProtocolError("the continuation holds a value that is not a positive number")
    return value


def read_count(value: object) -> int:
    """Return a whole number from 0."""
    if type(value) is not int or value < 0:
        raise CodeModeProtocolError("the continuation holds a value that is not a count")
    return value


def read_boolean(value: object) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise CodeModeProtocolError("the continuation holds a value that is neither true nor false")
    return value


def read_optional_text(value: object) -> str | None:
    """Return a text, or None."""
    return None if value is None else read_text(value)


def read_optional_positive_integer(value: object) -> int | None:
    """Return a whole number above 0, or None."""
    return None if value is None else read_positive_integer(value)


_NUMBER = re.compile("#[0-9]{1,9}")
_PART_KEYS = {"at", "mimeType", "kind", "name", "origin", "data"}


def encode_content_parts(contents: ContentRegistry, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Return all parts, or those named, as plain JSON with base64 bytes."""
    selected = contents.items() if names is None else [(name, contents.get(name)) for name in names]
    return [
        {"at": name, **describe_content_part(part), "data": b64encode(part.data).decode()} for name, part in selected
    ]


def describe_content_part(part: MediaContent) -> dict[str, Any]:
    """Return the fields of a part without its bytes."""
    return {"mimeType": part.mime_type, "kind": part.kind, "name": part.name, "origin": part.origin}


def read_content_parts(items: list[Any]) -> ContentRegistry | None:
    """Return the parts that `encode_content_parts` encoded, if any. Raises `CodeModeProtocolError` otherwise."""
    if not items:
        return None
    contents = ContentRegistry()
    for item in items:
        part = read_content_part(item)
        name = read_text(item["at"])
        if not _NUMBER.fullmatch(name) and name != part.id:
            raise CodeModeProtocolError("the continuation holds content under another name")
        contents.add_admitted_part(part, name)
    if contents.total_bytes > MAX_CARRIED_BYTES or len(contents) != len(items):
        raise CodeModeProtocolError("the continuation holds content that it cannot carry")
    return contents


def read_content_part(value: object) -> MediaContent:
    """Return one part. Raises as `read_content_parts`."""
    part = read_object_with_keys(value, _PART_KEYS)
    try:
        data = binascii.a2b_base64(read_text(part["data"]), strict_mode=True)
    except ValueError as error:
        raise CodeModeProtocolError("the continuation holds content that cannot be read") from error
    return make_content_part(part, data)


def make_content_part(description: dict[str, Any], data: bytes) -> MediaContent:
    """Return the part with this description and data. Raises as `read_content_parts`."""
    name, origin = read_optional_text(description["name"]), read_optional_text(description["origin"])
    kind = cast("ContentKind", read_text(description["kind"]))
    try:
        return MediaContent(data, read_text(description["mimeType"]), kind=kind, name=name, origin=origin)
    except ValueError as error:
        raise CodeModeProtocolError("the continuation holds invalid content") from error


def entry_to_dict(entry: LedgerEntry) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "kind": entry.kind,
        "name": entry.name,
        "inputJson": entry.input_json,
        "inputBytes": entry.input_bytes,
        "toolCallId": entry.tool_call_id,
        **_location_to_dict(entry.location),
        "executedInputJson": entry.executed_input_json,
        "dateNowMs": entry.now_ms,
        "approved": entry.is_approved or None,
        "waits": entry.waits or None,
        "withdrawn": entry.is_withdrawn or None,
        "lastedUs": entry.duration_us,
        "status": get_call_status(entry.outcome, CONTINUATION_STATUSES),
        **_outcome_to_dict(entry.outcome),
    }
    return {key: value for key, value in plain.items() if value is not None}


def _location_to_dict(location: SourceLocation | None) -> dict[str, Any]:
    return {} if location is None else dict(zip(("line", "column", "program"), location, strict=False))


def _location_from_dict(body: Mapping[str, Any]) -> SourceLocation | None:
    if "line" not in body:
        return None
    line, column = read_positive_integer(body["line"]), read_positive_integer(body.get("column"))
    return (line, column, read_text(body["program"])) if "program" in body else (line, column)


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
    "withdrawn", "status", "line", "column", "program", "lastedUs",
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
        input_bytes=read_optional_positive_integer(body.get("inputBytes")),
        tool_call_id=read_optional_text(body.get("toolCallId")),
        location=_location_from_dict(body),
        outcome=_outcome_from_dict(body),
        executed_input_json=read_optional_text(body.get("executedInputJson")),
        now_ms=read_optional_positive_integer(body.get("dateNowMs")),
        is_approved=body.get("approved") is True,
        waits=read_optional_positive_integer(body.get("waits")) or 0,
        is_withdrawn=body.get("withdrawn") is True,
        duration_us=read_count(body["lastedUs"]) if "lastedUs" in body else None,
    )


def _outcome_from_dict(body: Mapping[str, Any]) -> Outcome | None:
    statuses = CONTINUATION_STATUSES
    match body.get("status"):
        case statuses.fulfilled:
            return Fulfilled(read_optional_text(body.get("valueJson")))
        case statuses.rejected:
            return _read_rejection(read_object(body.get("error")))
        case statuses.waiting:
            return Waiting(
                read_text(body.get("interruptId")),
                read_text(body.get("interruptPayloadJson")),
                read_optional_text(body.get("shownInputJson")),
                read_positive_integer(body.get("attempt")),
            )
        case statuses.open:
            return None
        case _:
            raise CodeModeProtocolError("the continuation's ledger holds an unknown status")


def _read_rejection(error: dict[str, Any]) -> Rejected:
    if error.keys() - {"fields"} != {"name", "message", "code"}:
        raise CodeModeProtocolError("the continuation is malformed")
    fields_json = read_text(error["fields"]) if "fields" in error else None
    if fields_json is not None:
        read_error_fields(fields_json)
    return Rejected(read_text(error["name"]), read_text(error["message"]), read_text(error["code"]), fields_json)


def validate_ledger(ledger: Ledger, outer_tool_call_id: str) -> None:
    """Check that exactly the settled requests were delivered, once, and that calls are numbered in issue order."""
    settled = [entry.id for entry in ledger.entries if isinstance(entry.outcome, Fulfilled | Rejected)]
    if sorted(ledger.deliveries) != settled:
        raise CodeModeProtocolError("the continuation's deliveries do not match its ledger")
    tools = [entry for entry in ledger.entries if entry.kind == "tool"]
    if any(entry.tool_call_id != f"{outer_tool_call_id}:tool-{n}" for n, entry in enumerate(tools, 1)):
        raise CodeModeProtocolError("the continuation's calls are numbered wrongly")
    ids = [entry.outcome.interrupt_id for entry in ledger.entries if isinstance(entry.outcome, Waiting)]
    if len(set(ids)) != len(ids):
        raise CodeModeProtocolError("the continuation's request ids are not unique")
    if any(entry.kind in ("catalog", "state") for entry in ledger.waiting_entries):
        raise CodeModeProtocolError("a question to the catalog, or about state, cannot be interrupted")
    _validate_timers(ledger)
    _validate_yields(ledger)


def _validate_yields(ledger: Ledger) -> None:
    """Check the number of yields and that their answers are empty."""
    yields = [entry for entry in ledger.entries if entry.kind == "yield"]
    if len(yields) > MAX_YIELDS:
        raise CodeModeProtocolError("the continuation holds more yields than a program may make")
    for entry in yields:
        plain = LedgerEntry(entry.id, "yield", "yield_control", entry.input_json)
        if entry.outcome is not None:
            plain = plain._replace(outcome=Fulfilled(None), now_ms=entry.now_ms or 0)
        if entry != plain:
            raise CodeModeProtocolError("the continuation holds an invalid yield")


def _validate_timers(ledger: Ledger) -> None:
    """Check that timers have only a delay, fire or are withdrawn, and are not too many."""
    timers = [entry for entry in ledger.entries if entry.kind == "timer"]
    if any(entry.is_withdrawn and entry.kind != "timer" for entry in ledger.entries):
        raise CodeModeProtocolError("the continuation withdraws a request that is not a timer")
    if len(timers) > MAX_TIMERS:
        raise CodeModeProtocolError("the continuation holds more timers than a program may set")
    for entry in timers:
        parse_timer_delay_ms(entry.name, entry.input_json)
        plain = LedgerEntry(entry.id, "timer", entry.name, entry.input_json)
        if entry.outcome is not None:
            plain = plain._replace(outcome=Fulfilled(None), now_ms=entry.now_ms or 0)
        elif entry.is_withdrawn:
            plain = plain._replace(is_withdrawn=True)
        if entry != plain:
            raise CodeModeProtocolError("the continuation holds an invalid timer")


# The text is signed by this host, yet every field is checked: a key may leak, and a bug must not replay something that
# never happened.

REPLAY_VERSION = 15
"""Raised with every change that a replay depends on: guest runtime, delivery order, clock, random, limits.

6: ledgers hold state requests, and continuations carry content. 8: ledgers hold durations of calls. 9: calls may wait
for others (`in_flight_limit`). 10: texts of numbers, dates and comparisons are those of en-US. 11: continuations hold
the program as it was sent. 13: continuations hold saved programs, and calls name the one that made them.
"""


@record
class Continuation:
    """Everything that a resume needs except tools and options.

    ``replay_settings`` are the settings that a replay depends on. ``invocation_data_json`` is the invocation data,
    a JSON object, if any. ``source`` is the program as it was sent, if ``js``, which runs, is another text.
    """

    js: str
    engine: str
    replay_settings: Mapping[str, Any]
    ledger: Ledger
    invocation_data_json: str | None = None
    carries_content: bool = True
    source: str | None = None

    @classmethod
    def from_ledger(
        cls, js: str, engine: str, settings: InvocationSettings, ledger: Ledger, *, carries_content: bool = True
    ) -> Continuation:
        """Return the continuation of an invocation. ``carries_content``: no store has its images, audio and files.

        Raises `CodeModeSerializationError` for more content than it can carry.
        """
        if carries_content and ledger.contents is not None:
            ledger.contents.require_fits_in_continuation()
        return cls(
            js,
            engine,
            get_replay_settings(settings),
            ledger,
            settings.invocation_data_json,
            carries_content,
            settings.source,
        )

    @property
    def invocation_data(self) -> Mapping[str, Any] | None:
        """The invocation data as plain JSON."""
        return (
            None
            if self.invocation_data_json is None
            else _read_json_object(self.invocation_data_json, MAX_DEPTH + _INVOCATION_DATA_EXTRA_DEPTH)
        )

    @property
    def has_rich_values(self) -> bool:
        """True if values cross as tagged JSON."""
        return self.replay_settings["values"] == "rich"

    def restore_settings(self, fresh: InvocationSettings) -> InvocationSettings:
        """Return the settings of the resumed run: ``fresh`` ones with those that a replay depends on."""
        limits = {name: self.replay_settings[name] for name in list_recorded_limit_names(LargeHeapPolicy)}
        identity = {name: self.replay_settings[name] for name in _SETTING_READERS if name not in _PROFILE_SETTINGS}
        return replace(
            fresh,
            limits=replace(fresh.limits, **limits),
            invocation_data_json=self.invocation_data_json,
            source=self.source,
            **identity,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON."""
        contents = self.ledger.contents
        return {
            "replayVersion": REPLAY_VERSION,
            "engine": self.engine,
            "js": self.js,
            "source": self.source,
            "given": self.invocation_data_json,
            "settings": dict(self.replay_settings),
            "ledger": [entry_to_dict(entry) for entry in self.ledger.entries],
            "contents": encode_content_parts(contents) if contents is not None and self.carries_content else [],
            "deliveries": list(self.ledger.deliveries),
            "notices": self.ledger.notice_count,
            "progress": list(self.ledger.progress),
        }

    @classmethod
    def from_dict(cls, value: Any) -> Continuation:
        """Read a continuation. Raises `CodeModeProtocolError` for a value that `to_dict` cannot return."""
        _require_replay_version(read_object(value))
        body = read_object_with_keys(value, _BODY_KEYS)
        replay_settings = read_object_with_keys(
            body["settings"], {*_SETTING_READERS, *list_recorded_limit_names(LargeHeapPolicy)}
        )
        for name, read in _SETTING_READERS.items():
            read(replay_settings[name])
        _validate_limits(replay_settings)
        entries = [entry_from_dict(item, position) for position, item in enumerate(read_list(body["ledger"]), 1)]
        deliveries = [read_positive_integer(item) for item in read_list(body["deliveries"])]
        progress, contents = _read_progress(body["progress"]), read_content_parts(read_list(body["contents"]))
        ledger = Ledger(entries, deliveries, read_count(body["notices"]), progress=progress, contents=contents)
        validate_ledger(ledger, replay_settings["outer_tool_call_id"])
        invocation_data_json = read_optional_text(body["given"])
        if invocation_data_json is not None:
            _read_json_object(invocation_data_json, MAX_DEPTH + _INVOCATION_DATA_EXTRA_DEPTH)
        js, engine, source = read_text(body["js"]), read_text(body["engine"]), read_optional_text(body["source"])
        return cls(js, engine, replay_settings, ledger, invocation_data_json, source=source)


def get_replay_settings(settings: InvocationSettings) -> dict[str, Any]:
    """Return the settings that a replay must find unchanged, by name; the others come from the resume's options."""
    profile = settings.profile
    replay_settings: dict[str, Any] = {
        name: getattr(settings, name) for name in _SETTING_READERS if name not in _PROFILE_SETTINGS
    }
    replay_settings |= {name: getattr(settings.limits, name) for name in list_recorded_limit_names(LargeHeapPolicy)}
    replay_settings["language_names"] = list(settings.language_names)
    return {**replay_settings, "profile": profile.name, "parameters": dict(profile.parameters or {})}


# Long texts stay as they are on the wire: escaping and parsing them would cost more than the rest.
_INVOCATION_DATA_EXTRA_DEPTH = 8  # of a value in it, which may have the maximum depth
_BODY_KEYS = {
    *("replayVersion", "engine", "js", "source", "given", "settings"),
    *("ledger", "contents", "deliveries", "notices", "progress"),
}
_SEPARATE_KEYS = ("js", "source", "given", "ledger", "contents")
_LONG_TEXTS = ("inputJson", "executedInputJson", "valueJson", "interruptPayloadJson", "shownInputJson")


def continuation_to_texts(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of the wire format.

    They are a head, the program, its invocation data (empty if none), the program as it was sent if that differs
    (else empty), then each entry followed by its long texts, then each part of content followed by its bytes.
    """
    yield encode_canonical_json({key: value for key, value in body.items() if key not in _SEPARATE_KEYS})
    yield body["js"]
    yield body["given"] or ""
    yield body["source"] or ""
    for entry in body["ledger"]:
        names = [name for name in _LONG_TEXTS if name in entry]
        rest = {key: value for key, value in entry.items() if key not in names}
        yield encode_canonical_json({"entry": rest, "texts": names})
        yield from (entry[name] for name in names)
    for part in body["contents"]:
        yield encode_canonical_json({"content": {**part, "data": None}})
        yield part["data"]


def continuation_from_texts(texts: Iterable[str]) -> dict[str, Any]:
    """Return what `continuation_to_texts` encoded. Raises `CodeModeProtocolError` for other texts."""
    rest = iter(texts)
    try:
        head = _read_json_object(next(rest))
        _require_replay_version(head)  # the format of the following texts depends on it
        body: dict[str, Any] = {**head, "js": next(rest)}
        body |= {"given": next(rest) or None, "source": next(rest) or None}
        ledger: list[dict[str, Any]] = []
        contents: list[dict[str, Any]] = []
        for text in rest:
            item = _read_json_object(text)
            if item.keys() == {"content"}:
                contents.append({**read_object(item["content"]), "data": next(rest)})
                continue
            item = read_object_with_keys(item, {"entry", "texts"})
            long_texts = {_read_long_text_name(name): next(rest) for name in read_list(item["texts"])}
            ledger.append({**read_object(item["entry"]), **long_texts})
    except StopIteration:
        raise CodeModeProtocolError("the continuation is cut off") from None
    return {**body, "ledger": ledger, "contents": contents}


def _require_replay_version(head: Mapping[str, Any]) -> None:
    if head.get("replayVersion") != REPLAY_VERSION:
        raise CodeModeProtocolError(
            f"the continuation has replay version {head.get('replayVersion')!r}, this host has {REPLAY_VERSION}:"
            " it was made by another version of codemode and cannot be resumed"
        )


def _read_progress(value: object) -> ProgramProgress:
    counts = [read_count(item) for item in read_list(value)]
    if len(counts) != len(ProgramProgress._fields):
        raise CodeModeProtocolError("the continuation is malformed")
    return ProgramProgress(*counts)


def _read_json_object(text: str, max_depth: int = MAX_DEPTH) -> dict[str, Any]:
    try:
        return read_object(decode_json(text, max_depth=max_depth))
    except ValueError as error:
        raise CodeModeProtocolError("the continuation cannot be read") from error


def _read_long_text_name(name: object) -> str:
    if name not in _LONG_TEXTS:
        raise CodeModeProtocolError("the continuation is malformed")
    return cast("str", name)


def _validate_limits(replay_settings: Mapping[str, Any]) -> None:
    """Check each limit like the option. A resume cannot exceed the limits of options."""
    try:
        LargeHeapPolicy(**{name: replay_settings[name] for name in list_recorded_limit_names(LargeHeapPolicy)})
    except ValueError as error:
        raise CodeModeProtocolError(f"the continuation holds an invalid limit: {error}") from None


_SETTING_READERS: dict[str, Callable[[object], Any]] = {
    "outer_tool_call_id": read_text,
    "salt": read_text,
    "seed": read_text,
    "started_ms": read_positive_integer,
    "profile": read_text,
    "parameters": read_object,
    "fetch": read_boolean,
    "state": read_boolean,
    "language_names": read_texts,
}
_PROFILE_SETTINGS = ("profile", "parameters")  # which restore the profile itself
