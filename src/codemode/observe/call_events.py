"""Events of one call from its ledger entry, and the size and hash of a program."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ..data.json_values import count_stringified_bytes, count_utf8_bytes, decode_json, replace_lone_surrogates
from ..data.narrowing import mapping_or_empty
from ..errors import CodeModeError, CodeModeIllegalAccessError
from ..fetch.urls import MAX_URL_CHARACTERS
from ..protocol.call_status import TRACE_STATUSES, get_call_status
from ..protocol.ledger import Fulfilled, LedgerEntry, Outcome, Rejected, Waiting, is_waiting_on_interrupt
from ..protocol.messages import NoticeKind
from ..trace.events import (
    CallStatus,
    CatalogQueryEvent,
    FetchRequestEvent,
    FetchResultEvent,
    GuestMessageEvent,
    NestedToolCallEvent,
    NestedToolResultEvent,
    RefusalEvent,
)
from ..trace.late_values import LazyValue

_CHUNK_CHARACTERS = 1 << 16


class SourceSizeAndHash(NamedTuple):
    """A text by its UTF-8 bytes and their SHA-256, which is None if it must stay unknown or is unused."""

    source_bytes: int
    source_sha256: str | None


def measure_and_hash_source(text: str, *, hashes: bool) -> SourceSizeAndHash:
    """Measure a text, however long it is: in pieces, each of them some steps."""
    if not hashes:
        return SourceSizeAndHash(count_utf8_bytes(text), None)
    size, digest = 0, hashlib.sha256()
    for start in range(0, len(text), _CHUNK_CHARACTERS):
        chunk = text[start : start + _CHUNK_CHARACTERS].encode("utf-8", "backslashreplace")
        size += len(chunk)
        digest.update(chunk)
    return SourceSizeAndHash(size, digest.hexdigest())


CallEvent: TypeAlias = NestedToolCallEvent | FetchRequestEvent
ResultEvent: TypeAlias = NestedToolResultEvent | FetchResultEvent

_SEARCH_NAMES = ("$search", "searchTools", "search")  # all other questions are about what there is

# As the kernel and the host write them. A body behind that may be long, and is nobody's business here; a longer
# URL or method than this is refused, and shown in part.
_CHARACTER = r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])'
_URL = re.compile(rf'\{{"url":"({_CHARACTER}{{0,{MAX_URL_CHARACTERS}}}+)')
_METHOD = re.compile(rf'","method":"({_CHARACTER}{{0,{MAX_URL_CHARACTERS}}}+)')
_METHOD_AFTER_LONG_URL = re.compile(rf"(?<!\\){_METHOD.pattern}")
_RESPONSE_STATUS = re.compile(r'\{"status":([0-9]{1,9})[,}]')


@dataclass(slots=True)
class CallRecord:
    """One call in progress; the events are made from it.

    Events of a hidden input have ``displayed_input_json``, its visible part, or no input while that is None.
    """

    entry: LedgerEntry
    started_at_ms: float
    replayed: bool
    completed_at_ms: float = 0.0
    outcome: Outcome | None = None
    error: BaseException | None = None
    result_event: ResultEvent | None = None
    fetch_fields: dict[str, Any] | None = None
    is_reported: bool = False
    is_input_hidden: bool = False
    displayed_input_json: str | None = None

    @property
    def status(self) -> CallStatus:
        """How the call has ended; "aborted" until then."""
        return get_call_status(self.outcome, TRACE_STATUSES)

    @property
    def duration_ms(self) -> float:
        """How long the call took; of one that was replayed, how long it took when it was made."""
        duration_us = self.entry.duration_us if self.replayed else None
        return self.completed_at_ms - self.started_at_ms if duration_us is None else duration_us / 1000

    @property
    def input_json(self) -> str | None:
        """The text of the input, as far as it may be seen."""
        return self.displayed_input_json if self.is_input_hidden else self.entry.input_json

    @property
    def input_bytes(self) -> int | LazyValue:
        """How long that text is as the program would have to write it."""
        if self.is_input_hidden:
            return LazyValue(count_stringified_bytes, self.displayed_input_json or "")
        entry = self.entry
        if entry.sidecar is not None:
            return LazyValue(_count_full_input_bytes, entry)
        return entry.input_bytes or count_utf8_bytes(entry.input_json or "")

    @property
    def input(self) -> Any:
        """The input, as far as it may be seen, to be read later."""
        if self.entry.sidecar is not None and not self.is_input_hidden:
            return LazyValue(_decode_full_input, self.entry)
        return _decode_lazily(self.input_json)


def create_start_event(record: CallRecord, ids: Mapping[str, Any]) -> CallEvent:
    """Return the event of a call that begins."""
    entry, common = record.entry, _create_common_fields(record, ids)
    if entry.kind == "fetch":
        return FetchRequestEvent(**common, **_parse_fetch_request_fields(record))
    return NestedToolCallEvent(**common, **_create_call_fields(record))


def create_result_event(record: CallRecord, ids: Mapping[str, Any]) -> ResultEvent:
    """Return the event of a call that has ended."""
    entry, outcome = record.entry, record.outcome
    text = outcome.value_json if isinstance(outcome, Fulfilled) else None
    common: dict[str, Any] = {
        **_create_common_fields(record, ids),
        "status": record.status,
        "completed_at_ms": record.completed_at_ms,
        "duration_ms": record.duration_ms,
        "output_bytes": None if text is None else LazyValue(count_stringified_bytes, text),
        "error": record.error,
    }
    if entry.kind == "fetch":
        return FetchResultEvent(**common, **_parse_fetch_request_fields(record), http_status=_parse_http_status(text))
    common |= _create_call_fields(record) | {"told_error": _create_reported_error(outcome)}
    if not isinstance(outcome, Waiting):
        return NestedToolResultEvent(**common, output=_decode_lazily(text))
    return NestedToolResultEvent(
        **common,
        interrupt=_decode_lazily(outcome.payload_json),
        interrupt_id=outcome.interrupt_id,
        shown_input=_decode_lazily(outcome.input_json),
    )


def _create_common_fields(record: CallRecord, ids: Mapping[str, Any]) -> dict[str, Any]:
    entry = record.entry
    return {
        **ids,
        "bridge_index": entry.id,
        "input_bytes": record.input_bytes,
        "replayed": record.replayed,
        "started_at_ms": record.started_at_ms,
    }


def create_catalog_event(record: CallRecord, ids: Mapping[str, Any]) -> CatalogQueryEvent:
    """Return the event of a question that a program has asked the catalog."""
    return CatalogQueryEvent(
        **ids,
        operation="search" if record.entry.name in _SEARCH_NAMES else "describe",
        source="script",
        asked=_decode_lazily(record.entry.input_json),
        started_at_ms=record.started_at_ms,
        duration_ms=record.completed_at_ms - record.started_at_ms,
        error=record.error,
    )


def create_guest_message_event(kind: NoticeKind, payload_json: str, ids: Mapping[str, Any]) -> GuestMessageEvent:
    """Return the event of a program's message to the host's listeners."""
    payload_fields = mapping_or_empty(_decode_or_none_if_invalid(payload_json))
    texts = {
        name: payload_fields[name]
        for name in ("level", "message", "event")
        if isinstance(payload_fields.get(name), str)
    }
    return GuestMessageEvent(
        **ids, kind=kind, **texts, metadata=payload_fields.get("metadata"), payload=payload_fields.get("payload")
    )


def create_refusal_event(
    error: BaseException | None, record: CallRecord | None, ids: Mapping[str, Any]
) -> RefusalEvent | None:
    """Return the event of what a surface forbids, of a call or, without one, of a program that did not run."""
    if isinstance(error, CodeModeIllegalAccessError) and record is None:
        return RefusalEvent(**ids, reason="static_rule", violations=tuple(error.details.get("violations", ())))
    if not isinstance(error, CodeModeError):
        return None
    if record is not None:
        if error.reason not in ("self_reference", "access_denied"):
            return None
        call_fields: dict[str, Any] = {"tool_name": record.entry.name, "tool_call_id": record.entry.tool_call_id}
        return RefusalEvent(**ids, reason=error.reason, **call_fields)
    if error.reason not in ("self_reference", "access_denied", "limit", "validation"):
        return None
    if error.details.get("ran") is not False:
        return None  # its event was already sent when the call was made
    call = mapping_or_empty(error.details.get("call"))
    name = call.get("toolName") or error.details.get("tool_name")
    return RefusalEvent(**ids, reason=error.reason, tool_name=name, code=call.get("code"))


def _create_reported_error(outcome: Outcome | None) -> LazyValue | None:
    return LazyValue(read_guest_error_fields, outcome) if isinstance(outcome, Rejected) else None


def read_guest_error_fields(outcome: Rejected) -> dict[str, str]:
    """Return name, message and code of an error as a program reads it."""
    fields = mapping_or_empty(_decode_or_none(outcome.fields_json))
    return {
        "name": outcome.name if outcome.fields_json is None else str(fields.get("class", "Error")),
        "message": str(fields.get("message", outcome.message)),
        "code": str(fields.get("code", outcome.code)),
    }


def _create_call_fields(record: CallRecord) -> dict[str, Any]:
    return {
        "resumed": not record.replayed and is_waiting_on_interrupt(record.entry),
        "tool_name": record.entry.name,
        "tool_call_id": record.entry.tool_call_id or "",
        "input": record.input,
        **_create_saved_program_location_fields(record.entry),
    }


def _create_saved_program_location_fields(entry: LedgerEntry) -> dict[str, Any]:
    location = entry.location
    return {"program": location[2], "line": location[0]} if location is not None and len(location) == 3 else {}


def _parse_fetch_request_fields(record: CallRecord) -> dict[str, Any]:
    if record.fetch_fields is None:
        text = record.entry.input_json or ""
        url = _URL.match(text)
        method = url and (_METHOD.match(text, url.end()) or _METHOD_AFTER_LONG_URL.search(text, url.end()))
        record.fetch_fields = {"url": _decode_json_text(url), "method": _decode_json_text(method).upper()}
    return record.fetch_fields


def _decode_json_text(match: re.Match[str] | None) -> str:
    try:
        return "" if match is None else replace_lone_surrogates(json.loads(f'"{match[1]}"'))
    except ValueError:  # a worker that is no longer ours may write anything
        return ""


def _parse_http_status(text: str | None) -> int | None:
    match = _RESPONSE_STATUS.match(text or "")
    return None if match is None else int(match[1])


def _decode_lazily(text: str | None) -> Any:
    return None if text is None else LazyValue(_decode_or_none_if_invalid, text)


def _decode_or_none(text: str | None) -> Any:
    return None if text is None else _decode_or_none_if_invalid(text)


def _decode_full_input(entry: LedgerEntry) -> Any:
    try:
        return entry.decode_full_input()
    except (ValueError, CodeModeError):  # a call that is refused for just that
        return None


def _count_full_input_bytes(entry: LedgerEntry) -> int:
    try:
        return entry.full_input_bytes
    except CodeModeError:
        return count_utf8_bytes(entry.input_json or "")


def _decode_or_none_if_invalid(text: str) -> Any:
    try:
        return decode_json(text)
    except ValueError:
        return None
