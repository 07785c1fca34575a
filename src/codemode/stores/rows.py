"""Convert database rows to records, requests and outcomes, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from ..data.json_values import decode_json, encode_json
from ..data.plain_json import can_encode_with_orjson
from ..data.rich_values import TAG_START, from_tagged_json, tagged_to_plain_json, to_tagged_json
from ..errors import CodeModeError, error_from_guest_fields
from ..host.steps import run_without_gc
from ..interrupts.interrupt import Interrupt
from .answers import compute_display_digest
from .errors import RecordExpiredError, RecordLostError, RecordWithdrawnError, UnknownRequestError
from .records import ALL_TENANTS, Record, RecordOutcome, RecordState, RecordVersion, StoredRequest, Tenant, Tenants
from .transaction import Row, Session

_END_ERRORS: dict[str, type[CodeModeError]] = {
    "expired": RecordExpiredError,
    "withdrawn": RecordWithdrawnError,
    "lost": RecordLostError,
}
_END_MESSAGES = {
    "expired": "the record expired before it was decided",
    "withdrawn": "the record was withdrawn",
    "lost": "the outcome of the program is unknown",
}


def encode_program_value(value: Any) -> str:
    """Encode the value of a program: as tagged JSON if that preserves its dates, bytes and sets, else as JSON.

    Raises `CodeModeSerializationError` for any other value.
    """
    if not can_encode_with_orjson(value):
        with suppress(Exception):  # a custom `resume` may return objects that cannot be tagged or compared
            text = encode_json(to_tagged_json(value), what="the value")
            outcome = f'{{"value":{text},"tagged":true}}'
            if TAG_START in text and unwrap_outcome(outcome) == value:
                return outcome
    return f'{{"value":{encode_json(value, what="the value")}}}'


def encode_program_error(error: CodeModeError) -> str:
    """Encode the error of a program, with those of its details that are JSON."""
    details: dict[str, Any] = {}
    for name, detail in error.details.items():
        with suppress(Exception):  # a tool may raise an error with any details
            details[str(name)] = json.loads(encode_json(detail, what="a detail"))
    failure = {"name": type(error).__name__, "message": error.message, "code": error.code}
    return json.dumps({"error": failure, "details": details, "calls": list(error.calls)})


def encode_record_end(state: RecordState, *, actor: str | None = None, reason: str = "") -> str:
    """Encode the end of a record without an outcome of its program."""
    return json.dumps({"end": state, "actor": actor, "reason": reason})


def decode_record_outcome(text: str) -> RecordOutcome:
    """Return a stored outcome for display, without tags."""
    stored = decode_json(text)
    if "value" in stored:
        return RecordOutcome(value=tagged_to_plain_json(stored["value"]) if _is_tagged(stored) else stored["value"])
    return RecordOutcome(error=_decode_error(stored).message)


def unwrap_outcome(text: str) -> Any:
    """Return the value of a stored outcome, or raise its error."""
    stored = decode_json(text)
    if "value" in stored:
        return from_tagged_json(stored["value"]) if _is_tagged(stored) else stored["value"]
    raise _decode_error(stored)


def _is_tagged(stored: Mapping[str, Any]) -> bool:
    return stored.get("tagged") is True


def create_lost_record_error() -> RecordLostError:
    """Return the error for a lost record that is not closed."""
    return RecordLostError(_END_MESSAGES["lost"], details={"actor": None, "reason": ""})


def _decode_error(stored: Mapping[str, Any]) -> CodeModeError:
    if "end" in stored:
        reason = f": {stored['reason']}" if stored["reason"] else ""
        details = {"actor": stored["actor"], "reason": stored["reason"]}
        return _END_ERRORS[stored["end"]](_END_MESSAGES[stored["end"]] + reason, details=details)
    failure = stored["error"]
    error = type(error_from_guest_fields(**failure))(
        failure["message"], code=failure["code"], details=stored["details"]
    )
    error.calls = tuple(stored["calls"])
    return error


MAX_TENANTS = 200
RECORD_COLUMNS = (
    "id, version, state, outer_tool, tenant, app, labels, source, payload, created_at_ms, expires_at_ms, outcome,"
    " not_resumable"
)
_LARGE_JSON_CHARACTERS = 1 << 12
LISTED_COLUMNS = RECORD_COLUMNS.replace("source, payload", "NULL, NULL")
_REQUEST_COLUMNS = (
    "interrupt_id, kind, tool_name, input, payload, input_schema, description, annotations, state, decision, actor,"
    " decided_at_ms, refusal, at_line, at_column"
)
_HEADLINE_KEY = "codemode/headline"
_REQUEST_ROW_COLUMNS = f"record_id, {_REQUEST_COLUMNS}, is_taken, shown"


def create_tenant_clause(tenant: Tenant, column: str = "tenant") -> tuple[str, Row]:
    """Return an SQL condition for a tenant, to be appended, and its values."""
    return ("", ()) if require_tenant(tenant) is ALL_TENANTS else (f" AND {column} = ?", (tenant,))


def require_tenant(tenant: Tenant) -> Tenant:
    """Return a tenant or `ALL_TENANTS`. Raises `ValueError`."""
    if tenant is not ALL_TENANTS and not isinstance(tenant, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"tenant must be a text or ALL_TENANTS, got {tenant!r}")
    return tenant


def to_tenant_names(tenant: Tenants) -> tuple[str | None, ...]:
    """Return tenant names, None for all. Raises `ValueError`."""
    if not isinstance(tenant, AbstractSet):
        return (None if require_tenant(tenant) is ALL_TENANTS else str(tenant),)
    if len(tenant) > MAX_TENANTS:
        raise ValueError(f"tenant must be at most {MAX_TENANTS} names, got {len(tenant)}")
    return tuple(sorted(str(require_tenant(name)) for name in tenant))


def create_id_not_found_error(record_or_request_id: str) -> UnknownRequestError:
    """Return the error for an id that does not exist, or belongs to another tenant."""
    return UnknownRequestError(f"{record_or_request_id!r} is not pending: unknown id")


def decode_request(row: Sequence[Any]) -> StoredRequest:
    """Decode the columns of a request."""
    interrupt_id, kind, tool_name, input_json, payload, schema, description, annotations, *rest = row
    state, decision, actor, decided_at_ms, refusal, line, column = rest
    tool_annotations, title, summary = _decode_annotations(annotations)
    return StoredRequest(
        interrupt_id=interrupt_id,
        kind=kind,
        tool_name=tool_name,
        input=_decode_json(input_json),
        payload=_decode_json(payload),
        input_schema=_decode_optional_json(schema),
        description=_decode_json(description),
        annotations=tool_annotations,
        state=state,
        decision=_decode_optional_json(decision),
        actor=actor,
        decided_at_ms=decided_at_ms,
        refusal=_decode_optional_json(refusal),
        line=line,
        column=column,
        title=title,
        summary=summary,
    )


def encode_annotations(annotations: Mapping[str, Any] | None, title: str, summary: str) -> str | None:
    """Encode the annotations of a tool, with its host's title and summary."""
    # The key is reserved for the host: a server's value under it is dropped.
    entries = {name: value for name, value in (annotations or {}).items() if name != _HEADLINE_KEY}
    if title or summary:
        entries[_HEADLINE_KEY] = [title, summary]
    return json.dumps(entries) if entries else None


def _decode_annotations(text: str | None) -> tuple[dict[str, Any] | None, str, str]:
    annotations: dict[str, Any] | None = _decode_optional_json(text)
    title, summary = ("", "") if annotations is None else annotations.pop(_HEADLINE_KEY, ("", ""))
    return annotations or None, title, summary


class RequestRow:
    """A row of the table of requests."""

    def __init__(self, row: Row) -> None:
        self.record_id = cast("str", row[0])
        self.request = decode_request(row[1:-2])
        self.is_taken = bool(row[-2])
        self.shown = cast("str", row[-1]) or compute_display_digest(
            self.request
        )  # tables of version 1 have no such column


def load_record_requests(session: Session, record_ids: Iterable[str]) -> list[RequestRow]:
    """Return the requests of records, in their order."""
    ids = list(record_ids)
    statement = (
        f"SELECT {_REQUEST_ROW_COLUMNS} FROM codemode_requests"
        f" WHERE record_id IN ({format_placeholders(ids)}) ORDER BY record_id, ordinal"
    )
    return [RequestRow(row) for row in session.fetch_all(statement, *ids)] if ids else []


def load_requests_by_id(session: Session, interrupt_ids: Iterable[str]) -> dict[str, RequestRow]:
    """Return the existing requests with these ids."""
    ids = list(interrupt_ids)
    statement = (
        f"SELECT {_REQUEST_ROW_COLUMNS} FROM codemode_requests WHERE interrupt_id IN ({format_placeholders(ids)})"
    )
    found = [RequestRow(row) for row in session.fetch_all(statement, *ids)] if ids else []
    return {request_row.request.interrupt_id: request_row for request_row in found}


def load_records(session: Session, rows: Sequence[Row]) -> tuple[Record, ...]:
    """Return records for rows of `RECORD_COLUMNS`, with requests and versions; two more queries for all."""
    ids = [row[0] for row in rows]
    if not ids:
        return ()
    requests: dict[str, list[StoredRequest]] = {record_id: [] for record_id in ids}
    for request_row in load_record_requests(session, ids):
        requests[request_row.record_id].append(request_row.request)
    versions: dict[str, list[RecordVersion]] = {record_id: [] for record_id in ids}
    statement = (
        "SELECT record_id, version, created_at_ms, interrupt_ids FROM codemode_versions"
        f" WHERE record_id IN ({format_placeholders(ids)}) ORDER BY record_id, version"
    )
    for record_id, version, created_at_ms, interrupt_ids in session.fetch_all(statement, *ids):
        versions[record_id].append(RecordVersion(version, created_at_ms, tuple(_decode_json(interrupt_ids))))
    return tuple(_decode_record(row, requests[row[0]], versions[row[0]]) for row in rows)


def _decode_record(row: Row, requests: list[StoredRequest], versions: list[RecordVersion]) -> Record:
    record_id, version, state, outer_tool, tenant, app, labels, source, payload, created, expires, *more = row
    outcome, not_resumable = more
    return Record(
        id=record_id,
        version=version,
        versions=tuple(versions),
        state=state,
        outer_tool=outer_tool,
        tenant=tenant,
        app=app,
        labels=_decode_json(labels),
        source=_decode_optional_json(source),
        payload=_decode_optional_json(payload),
        created_at_ms=created,
        expires_at_ms=expires,
        requests=tuple(requests),
        outcome=None if outcome is None else decode_record_outcome(outcome),
        not_resumable=_decode_optional_json(not_resumable),
    )


def decode_interrupt(text: str) -> Interrupt:
    """Decode a stored interrupt."""
    return replace(Interrupt.from_dict(_decode_json(text)), is_stored=True)


def _decode_json(text: str) -> Any:
    """Decode stored JSON, which may hold very many small values."""
    if len(text) < _LARGE_JSON_CHARACTERS:
        return json.loads(text)
    return run_without_gc(lambda: json.loads(text))


def _decode_optional_json(text: str | None) -> Any:
    return None if text is None else _decode_json(text)


def format_placeholders(values: Sized) -> str:
    """Return a list of placeholders, one for each value."""
    return ", ".join("?" * len(values))
