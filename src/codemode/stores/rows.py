"""Database rows as records, requests and outcomes, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

from ..data.json_values import decode_json, encode_json
from ..errors import CodeModeError, error_from_view
from ..host.steps import without_collector
from ..interrupts.interrupt import Interrupt
from .answers import shown
from .errors import RecordExpiredError, RecordLostError, RecordWithdrawnError, UnknownRequestError
from .records import ALL_TENANTS, Record, RecordOutcome, RecordState, RecordVersion, StoredRequest, Tenant, Tenants
from .transaction import Row, Session

_ENDS: dict[str, type[CodeModeError]] = {
    "expired": RecordExpiredError,
    "withdrawn": RecordWithdrawnError,
    "lost": RecordLostError,
}
_SAID = {
    "expired": "the record has expired before it was answered",
    "withdrawn": "the record was withdrawn",
    "lost": "nobody knows what became of the program",
}


def value_text(value: Any) -> str:
    """Write the value of a program. Raises `CodeModeSerializationError` for one that is no JSON."""
    return f'{{"value":{encode_json(value, what="the value")}}}'


def error_text(error: CodeModeError) -> str:
    """Write the error that a program ended with; of its details what is JSON."""
    details: dict[str, Any] = {}
    for name, detail in error.details.items():
        with suppress(Exception):  # a tool may raise an error with any details
            details[str(name)] = json.loads(encode_json(detail, what="a detail"))
    failure = {"name": type(error).__name__, "message": error.message, "code": error.code}
    return json.dumps({"error": failure, "details": details, "calls": list(error.calls)})


def end_text(state: RecordState, *, actor: str | None = None, reason: str = "") -> str:
    """Write that a record ended without its program."""
    return json.dumps({"end": state, "actor": actor, "reason": reason})


def told_of(text: str) -> RecordOutcome:
    """Return a kept outcome as a page shows it."""
    kept = decode_json(text)
    if "value" in kept:
        return RecordOutcome(value=kept["value"])
    return RecordOutcome(error=_error_of(kept).message)


def given_back(text: str) -> Any:
    """Return the value of a kept outcome, or raise its error."""
    kept = decode_json(text)
    if "value" in kept:
        return kept["value"]
    raise _error_of(kept)


def lost() -> RecordLostError:
    """Return the error of a record of which nobody has said yet what is to become of it."""
    return RecordLostError(_SAID["lost"], details={"actor": None, "reason": ""})


def _error_of(kept: Mapping[str, Any]) -> CodeModeError:
    if "end" in kept:
        reason = f": {kept['reason']}" if kept["reason"] else ""
        details = {"actor": kept["actor"], "reason": kept["reason"]}
        return _ENDS[kept["end"]](_SAID[kept["end"]] + reason, details=details)
    failure = kept["error"]
    error = type(error_from_view(**failure))(failure["message"], code=failure["code"], details=kept["details"])
    error.calls = tuple(kept["calls"])
    return error


MOST_TENANTS = 200
RECORD_COLUMNS = (
    "id, version, state, outer_tool, tenant, app, labels, source, payload, created_at_ms, expires_at_ms, outcome,"
    " not_resumable"
)
_LARGE_CHARACTERS = 1 << 12
LISTED_COLUMNS = RECORD_COLUMNS.replace("source, payload", "NULL, NULL")
_REQUEST_COLUMNS = (
    "interrupt_id, kind, tool_name, input, payload, input_schema, description, annotations, state, decision, actor,"
    " decided_at_ms, refusal, at_line, at_column"
)
_HEADLINE = "codemode/headline"
_OWN_COLUMNS = f"record_id, {_REQUEST_COLUMNS}, is_taken, shown"


def clause(tenant: Tenant, column: str = "tenant") -> tuple[str, Row]:
    """Return the condition for a tenant, behind others, and its values."""
    return ("", ()) if require_tenant(tenant) is ALL_TENANTS else (f" AND {column} = ?", (tenant,))


def require_tenant(tenant: Tenant) -> Tenant:
    """Return what says whose records are meant. Raises `ValueError`."""
    if tenant is not ALL_TENANTS and not isinstance(tenant, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"tenant must be a text or ALL_TENANTS, got {tenant!r}")
    return tenant


def tenants_of(tenant: Tenants) -> tuple[str | None, ...]:
    """Return the names of tenants, None for all. Raises `ValueError`."""
    if not isinstance(tenant, AbstractSet):
        return (None if require_tenant(tenant) is ALL_TENANTS else str(tenant),)
    if len(tenant) > MOST_TENANTS:
        raise ValueError(f"tenant must be at most {MOST_TENANTS} names, got {len(tenant)}")
    return tuple(sorted(str(require_tenant(one)) for one in tenant))


def unknown(what: str) -> UnknownRequestError:
    """Return the error for an id that is not kept, or not for whoever asks."""
    return UnknownRequestError(f"{what!r} is not pending: nothing is kept here under this id")


def request_of(row: Sequence[Any]) -> StoredRequest:
    """Read the columns of a request."""
    interrupt_id, kind, tool_name, given, payload, schema, description, annotations, *rest = row
    state, decision, actor, decided_at_ms, refusal, line, column = rest
    hints, title, summary = _read_annotations(annotations)
    return StoredRequest(
        interrupt_id=interrupt_id,
        kind=kind,
        tool_name=tool_name,
        input=_value(given),
        payload=_value(payload),
        input_schema=_read(schema),
        description=_value(description),
        annotations=hints,
        state=state,
        decision=_read(decision),
        actor=actor,
        decided_at_ms=decided_at_ms,
        refusal=_read(refusal),
        line=line,
        column=column,
        title=title,
        summary=summary,
    )


def annotations_text(annotations: Mapping[str, Any] | None, title: str, summary: str) -> str | None:
    """Write the annotations of a tool, with the title and the summary that its host gave it."""
    # The key is the host's alone: what a server sends under it is left out.
    written = {name: value for name, value in (annotations or {}).items() if name != _HEADLINE}
    if title or summary:
        written[_HEADLINE] = [title, summary]
    return json.dumps(written) if written else None


def _read_annotations(text: str | None) -> tuple[dict[str, Any] | None, str, str]:
    annotations: dict[str, Any] | None = _read(text)
    title, summary = ("", "") if annotations is None else annotations.pop(_HEADLINE, ("", ""))
    return annotations or None, title, summary


class KeptRequest:
    """A request as it stands in its record."""

    def __init__(self, row: Row) -> None:
        self.record_id = cast("str", row[0])
        self.request = request_of(row[1:-2])
        self.is_taken = bool(row[-2])
        self.shown = cast("str", row[-1]) or shown(self.request)  # tables of version 1 had none


def requests_of(session: Session, record_ids: Iterable[str]) -> list[KeptRequest]:
    """Return the requests of records, in their order."""
    ids = list(record_ids)
    statement = (
        f"SELECT {_OWN_COLUMNS} FROM codemode_requests WHERE record_id IN ({marks(ids)}) ORDER BY record_id, ordinal"
    )
    return [KeptRequest(row) for row in session.rows(statement, *ids)] if ids else []


def requests_named(session: Session, interrupt_ids: Iterable[str]) -> dict[str, KeptRequest]:
    """Return the requests of these ids that are kept."""
    ids = list(interrupt_ids)
    statement = f"SELECT {_OWN_COLUMNS} FROM codemode_requests WHERE interrupt_id IN ({marks(ids)})"
    found = [KeptRequest(row) for row in session.rows(statement, *ids)] if ids else []
    return {one.request.interrupt_id: one for one in found}


def records_of(session: Session, rows: Sequence[Row]) -> tuple[Record, ...]:
    """Return records, of their rows in `RECORD_COLUMNS`, with requests and versions: two more statements for all."""
    ids = [row[0] for row in rows]
    if not ids:
        return ()
    requests: dict[str, list[StoredRequest]] = {one: [] for one in ids}
    for kept in requests_of(session, ids):
        requests[kept.record_id].append(kept.request)
    versions: dict[str, list[RecordVersion]] = {one: [] for one in ids}
    statement = (
        "SELECT record_id, version, created_at_ms, interrupt_ids FROM codemode_versions"
        f" WHERE record_id IN ({marks(ids)}) ORDER BY record_id, version"
    )
    for record_id, version, created_at_ms, interrupt_ids in session.rows(statement, *ids):
        versions[record_id].append(RecordVersion(version, created_at_ms, tuple(_value(interrupt_ids))))
    return tuple(_record_of(row, requests[row[0]], versions[row[0]]) for row in rows)


def _record_of(row: Row, requests: list[StoredRequest], versions: list[RecordVersion]) -> Record:
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
        labels=_value(labels),
        source=_read(source),
        payload=_read(payload),
        created_at_ms=created,
        expires_at_ms=expires,
        requests=tuple(requests),
        outcome=None if outcome is None else told_of(outcome),
        not_resumable=_read(not_resumable),
    )


def interrupt_of(text: str) -> Interrupt:
    """Read a kept interrupt."""
    return replace(Interrupt.from_dict(_value(text)), is_stored=True)


def _value(text: str) -> Any:
    """Read kept JSON, of which a program may have written much in small pieces."""
    if len(text) < _LARGE_CHARACTERS:
        return json.loads(text)
    return without_collector(lambda: json.loads(text))


def _read(text: str | None) -> Any:
    return None if text is None else _value(text)


def marks(values: Sized) -> str:
    """Return a mark for each of the values, as a list in a statement has them."""
    return ", ".join("?" * len(values))
