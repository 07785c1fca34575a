"""Store an interrupt as a new record, a known version or the next version of its record."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from typing import Any, cast

from ..data.json_values import encode_json
from ..errors import CodeModeProtocolError
from ..interrupts.interrupt import Interrupt, PendingRequest
from ..records import record
from .answers import compute_display_digest, get_displayed_kind_and_input
from .audit import MAX_REQUESTS_IN_LINE, Attribution, truncate_for_audit
from .errors import RequestSupersededError, StoreError, StoreFullError
from .records import (
    OWNED_STATES,
    RecordState,
    StoredPause,
    compute_next_record_state_or_raise,
    compute_next_request_state_or_raise,
)
from .rows import encode_annotations, format_placeholders, load_record_requests, load_requests_by_id
from .tables import IS_OPEN, compute_label_key, insert_labels
from .transaction import Row, Session, is_storable_text

MAX_PAYLOAD_BYTES = 16 << 20
MAX_LABEL_BYTES = 16 << 10
_MAX_NAME_CHARACTERS = 1000


@record
class EncodedPause:
    """An interrupt with its record's columns as texts; ``tool_forms`` describe the known tools by name.

    ``waits_for_all``: it is resumed only with answers to all of its requests.
    """

    interrupt: Interrupt
    interrupt_json: str
    nonce: str
    expires_at_ms: int
    outer_tool: str
    tenant: str
    app: str
    labels: str
    source: str | None
    payload: str | None
    tool_forms: Mapping[str, tuple[str | None, str, str | None]]
    display_digests: Mapping[str, str]
    waits_for_all: bool = False


def encode_pause(
    interrupt: Interrupt,
    tool: Any = None,
    tenant: str = "",
    app: str = "",
    labels: Mapping[str, str] | None = None,
    source: str | None = None,
    payload: Any = None,
) -> EncodedPause:
    """Encode a pause. Raises `ValueError` for invalid arguments, `CodeModeProtocolError` for an invalid interrupt."""
    nonce, expires_at_ms = _get_nonce_and_expiry(interrupt)
    for name, value in (("tenant", tenant), ("app", app)):
        require_storable_text(value, name)
    if source is not None and not isinstance(source, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"source must be a text, got {type(source).__name__}")
    _require_unique_storable_ids(interrupt)
    return EncodedPause(
        interrupt,
        encode_interrupt(interrupt),
        nonce,
        expires_at_ms,
        require_storable_text(tool if isinstance(tool, str) else getattr(tool, "name", ""), "tool"),
        tenant,
        app,
        _encode_labels(labels or {}),
        None if source is None else json.dumps(source),
        None if payload is None else encode_json(payload, max_bytes=MAX_PAYLOAD_BYTES, what="the payload"),
        _encode_requested_tool_definitions(interrupt, tool),
        {request.interrupt_id: compute_display_digest(request) for request in interrupt.requests},
        isinstance(interrupt, StoredPause) and interrupt.waits_for_all,
    )


def encode_next_pause(
    interrupt: Interrupt, tool: Any = None, payload: Any = None, source: str | None = None
) -> EncodedPause:
    """Encode the next pause of a record, which keeps its other columns; payload and source unless given."""
    return encode_pause(interrupt, tool, payload=payload, source=source)


def put_pause_or_get_duplicate_id(
    session: Session, new: EncodedPause, unique_label: str | None = None, max_open: int | None = None
) -> str:
    """Store a pause in the caller's transaction and return the record's id.

    ``unique_label`` is ``alone`` of `InterruptStore.put`, ``max_open`` the number of open records a tenant may have.
    Raises `StoreFullError`.
    """
    known = session.fetch_one(
        "SELECT r.id, r.tenant FROM codemode_versions v JOIN codemode_records r ON r.id = v.record_id"
        " WHERE v.nonce = ?",
        new.nonce,
    )
    if known is None:
        existing = load_requests_by_id(session, [request.interrupt_id for request in new.interrupt.requests])
        record_ids = {request.record_id for request in existing.values()}
        if not record_ids:
            duplicate_id = _find_open_duplicate_id(session, new, unique_label)
            if duplicate_id is not None:
                return duplicate_id
            require_open_record_capacity(session, new.tenant, max_open)
            return _insert_pending_record(session, new)
        if len(record_ids) > 1:
            raise StoreError("the interrupt has requests of several records")
        known = session.fetch_one("SELECT id, tenant FROM codemode_records WHERE id = ?", *record_ids) or ("", "")
    record_id, tenant = known
    if tenant != new.tenant:
        raise StoreError("this interrupt is already stored for another tenant")
    if not session.fetch_one("SELECT 1 FROM codemode_versions WHERE nonce = ?", new.nonce):
        state = _get_record_state(session, record_id)
        if state in OWNED_STATES:
            raise RequestSupersededError("the record is being resumed: its owner stores the next version")
        pause_record(session, record_id, state, new)
    return record_id


def require_open_record_capacity(session: Session, tenant: str, max_open: int | None) -> None:
    """Raise `StoreFullError` if a tenant has the maximum number of open records."""
    if max_open is not None and count_open_records(session, tenant, None, max_open) >= max_open:
        raise StoreFullError(
            f"{tenant!r} has {max_open} programs that wait or rest in this store, and it keeps no more of one tenant:"
            " have some of them decided or withdrawn, or raise max_open_per_tenant",
            details={"tenant": tenant, "limit": max_open},
        )


def count_open_records(session: Session, tenant: str, app: str | None, limit: int) -> int:
    """Return the number of open records of a tenant, counted up to ``limit``."""
    condition, values = ("", ()) if app is None else (" AND app = ?", (app,))
    statement = (
        "SELECT count(*) FROM (SELECT 1 FROM codemode_records WHERE tenant = ?"
        f" AND state IN ('pending', 'resuming', 'resting') AND expires_at_ms > ?{condition} LIMIT ?) AS found"
    )
    row = session.fetch_one(statement, tenant, session.now_ms, *values, limit)
    return 0 if row is None else row[0]


def _find_open_duplicate_id(session: Session, new: EncodedPause, unique_label: str | None) -> str | None:
    """Return the id of the newest open record with the same label. No other transaction writes meanwhile."""
    if unique_label is None:
        return None
    row = session.fetch_one(
        "SELECT record_id FROM codemode_labels WHERE label = ? AND tenant = ? AND app = ?"
        " AND (state = 'resuming' OR (state IN ('pending', 'resting') AND expires_at_ms > ?))"
        " ORDER BY position DESC LIMIT 1",
        *(compute_label_key(unique_label, json.loads(new.labels)[unique_label]), new.tenant, new.app, session.now_ms),
    )
    return None if row is None else row[0]


def pause_record(session: Session, record_id: str, state: RecordState, new: EncodedPause) -> None:
    """Make an interrupt the newest version of a record in this state."""
    next_state = compute_next_record_state_or_raise(state, "pause", record_id)
    record_row = session.fetch_one("SELECT version, tenant FROM codemode_records WHERE id = ?", record_id)
    version, tenant = (1, "") if record_row is None else (record_row[0] + 1, record_row[1])
    existing = {row.request.interrupt_id: row for row in load_record_requests(session, [record_id])}
    existing_forms = {row.request.tool_name: row.request for row in existing.values()}
    interrupt_ids = {row.interrupt_id for row in new.interrupt.requests}
    closed: list[Row] = []
    for interrupt_id, row in existing.items():
        request_state = row.request.state
        if interrupt_id not in interrupt_ids and request_state in ("waiting", "decided"):
            closed.append(
                (
                    compute_next_request_state_or_raise(request_state, "apply" if row.is_taken else "supersede"),
                    interrupt_id,
                )
            )
    session.execute_many("UPDATE codemode_requests SET state = ?, is_taken = 0 WHERE interrupt_id = ?", closed)
    # A decision that was applied to a pause that asks again is void.
    reopened = [
        (row.interrupt_id,)
        for row in new.interrupt.requests
        if row.interrupt_id in existing
        and (
            existing[row.interrupt_id].is_taken or existing[row.interrupt_id].request.state in ("applied", "superseded")
        )
    ]
    session.execute_many(
        "UPDATE codemode_requests SET state = 'waiting', decision = NULL, actor = NULL, decided_at_ms = NULL,"
        " is_taken = 0 WHERE interrupt_id = ?",
        reopened,
    )
    open_ids = {row[0] for row in reopened}
    is_ready = not interrupt_ids or any(
        existing[row].request.state == "decided" for row in interrupt_ids & existing.keys() if row not in open_ids
    )
    stored_forms = {name: _encode_tool_definition(row, row.input_schema) for name, row in existing_forms.items()}
    _insert_requests(session, record_id, new, stored_forms, interrupt_ids - existing.keys(), len(existing))
    session.run(
        "UPDATE codemode_records SET version = ?, state = ?, interrupt = ?, expires_at_ms = ?, owner = NULL,"
        " payload = COALESCE(?, payload), source = COALESCE(?, source), ready_at_ms = ?, rests_until_ms = NULL,"
        " not_resumable = NULL, refusals = 0 WHERE id = ?",
        *(version, next_state, new.interrupt_json, new.expires_at_ms, new.payload, new.source),
        *(session.now_ms if is_ready else None, record_id),
    )
    _insert_record_version(session, record_id, version, new)
    session.record_change(record_id, tenant, "paused")
    applied = [row[1] for row in closed if row[0] == "applied"]
    details = {**_describe_pause_for_audit(new, version), "applied": applied[:MAX_REQUESTS_IN_LINE]}
    session.add_audit_line("paused", tenant, record_id, outcome="paused", details=details)


def _insert_pending_record(session: Session, new: EncodedPause) -> str:
    # A recovery has no requests and is resumed at once.
    ready_at_ms = None if new.interrupt.requests else session.now_ms
    record_id = insert_record(session, new, "put", version=1, state="pending", claim=0, ready_at_ms=ready_at_ms)
    interrupt_ids = {request.interrupt_id for request in new.interrupt.requests}
    _insert_requests(session, record_id, new, {}, interrupt_ids, 0)
    _insert_record_version(session, record_id, 1, new)
    session.add_audit_line(
        "put", new.tenant, record_id, details={"app": truncate_for_audit(new.app), **_describe_pause_for_audit(new, 1)}
    )
    return record_id


def insert_record(session: Session, new: EncodedPause, kind: str, **columns: Any) -> str:
    """Insert a record in the state given by ``columns``, and return its id."""
    record_id = secrets.token_hex(16)
    values: dict[str, Any] = {
        "id": record_id,
        "position": session.record_change(record_id, new.tenant, kind),
        **{name: getattr(new, name) for name in ("outer_tool", "tenant", "app", "labels", "source", "payload")},
        "created_at_ms": session.now_ms,
        "expires_at_ms": new.expires_at_ms,
        "interrupt": new.interrupt_json,
        **columns,
    }
    session.run(
        f"INSERT INTO codemode_records ({', '.join(values)}) VALUES ({format_placeholders(values)})", *values.values()
    )
    insert_labels(session, [(record_id, json.loads(new.labels))])
    return record_id


def _insert_requests(
    session: Session,
    record_id: str,
    new: EncodedPause,
    stored_forms: Mapping[str, tuple[str | None, str, str | None]],
    interrupt_ids: set[str],
    first_ordinal: int,
) -> None:
    session.execute_many(
        "INSERT INTO codemode_requests (interrupt_id, record_id, ordinal, kind, tool_name, input, payload,"
        " input_schema, description, annotations, shown, at_line, at_column, state, is_taken, tenant, app, position,"
        " expires_at_ms, is_open)"
        " SELECT ?, id, ?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(? AS BIGINT), CAST(? AS BIGINT), 'waiting', 0, tenant, app,"
        f" position, expires_at_ms, {IS_OPEN.format('')} FROM codemode_records WHERE id = ?",
        (
            (
                request.interrupt_id,
                first_ordinal + index,
                *_encode_request_columns(request),
                *_get_tool_definition_columns(request, new, stored_forms),
                new.display_digests[request.interrupt_id],
                *(request.line, request.column),
                record_id,
            )
            for index, request in enumerate(new.interrupt.requests)
            if request.interrupt_id in interrupt_ids
        ),
    )


def _describe_pause_for_audit(new: EncodedPause, version: int) -> dict[str, Any]:
    """Return the audit details of a pause."""
    requests = [
        {
            "id": truncate_for_audit(request.interrupt_id),
            "tool": truncate_for_audit(request.tool_name),
            "shown": new.display_digests[request.interrupt_id],
        }
        for request in new.interrupt.requests[:MAX_REQUESTS_IN_LINE]
    ]
    return {"version": version, "requests": requests, "count": len(new.interrupt.requests)}


def _insert_record_version(session: Session, record_id: str, version: int, new: EncodedPause) -> None:
    ids = json.dumps([request.interrupt_id for request in new.interrupt.requests])
    values = (new.nonce, record_id, version, session.now_ms, ids)
    session.run("INSERT INTO codemode_versions VALUES (?, ?, ?, ?, ?)", *values)


def _get_record_state(session: Session, record_id: str) -> RecordState:
    row = session.fetch_one("SELECT state FROM codemode_records WHERE id = ?", record_id)
    return cast("RecordState", row[0]) if row is not None else "pending"


def _encode_request_columns(request: PendingRequest) -> Row:
    kind, displayed_input = get_displayed_kind_and_input(request)
    texts = require_storable_text(kind, "kind"), require_storable_text(request.tool_name, "tool_name")
    return (*texts, json.dumps(displayed_input), json.dumps(dict(request.payload)))


def _get_tool_definition_columns(
    request: PendingRequest, new: EncodedPause, stored_forms: Mapping[str, tuple[str | None, str, str | None]]
) -> Row:
    return new.tool_forms.get(request.tool_name) or stored_forms.get(request.tool_name) or (None, '""', None)


def _encode_tool_definition(tool: Any, schema: Any) -> tuple[str | None, str, str | None]:
    # Tools of frameworks and servers have neither title nor summary of the host.
    title, summary = (getattr(tool, name, "") for name in ("title", "summary"))
    return (
        _encode_optional_json(schema),
        json.dumps(tool.description),
        encode_annotations(tool.annotations, title, summary),
    )


def _encode_requested_tool_definitions(
    interrupt: Interrupt, tool: Any
) -> dict[str, tuple[str | None, str, str | None]]:
    """Return the encoded forms of the requested tools that the paused tool knows."""
    catalog = getattr(tool, "catalog", None)
    tool_forms: dict[str, tuple[str | None, str, str | None]] = {}
    for request in interrupt.requests:
        tool_form = None if catalog is None else catalog.get(request.tool_name)
        if tool_form is not None:
            tool_forms[request.tool_name] = _encode_tool_definition(tool_form, tool_form.input_json_schema)
    return tool_forms


def _encode_optional_json(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def encode_interrupt(interrupt: Interrupt) -> str:
    """Encode an interrupt as it is stored."""
    return json.dumps(interrupt.to_dict())


def get_continuation_nonce(interrupt: Interrupt) -> str:
    """Return the nonce of a continuation, also its name in the guard. Raises `CodeModeProtocolError` without one."""
    return _get_nonce_and_expiry(interrupt)[0]


def _get_nonce_and_expiry(interrupt: Interrupt) -> tuple[str, int]:
    auth: Any = interrupt.continuation.get("auth")
    nonce, expires_at_ms = (auth.get("nonce"), auth.get("expiresAtMs")) if isinstance(auth, Mapping) else (None, None)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    is_time = isinstance(expires_at_ms, int) and not isinstance(expires_at_ms, bool) and 0 <= expires_at_ms < 1 << 53
    if not isinstance(nonce, str) or not is_time:
        raise CodeModeProtocolError("the interrupt cannot be stored: its continuation is not signed")
    return require_storable_text(nonce, "nonce"), cast("int", expires_at_ms)


def _require_unique_storable_ids(interrupt: Interrupt) -> None:
    ids = [interrupt_id.interrupt_id for interrupt_id in interrupt.requests]
    if len(set(ids)) < len(ids):
        raise CodeModeProtocolError("the interrupt cannot be stored: two of its requests have the same id")
    for interrupt_id in ids:
        require_storable_text(interrupt_id, "interrupt_id")


def _encode_labels(labels: Mapping[str, str]) -> str:
    for name, text in labels.items():
        require_storable_text(text, require_storable_text(name, "labels"))
    return encode_json(dict(labels), max_bytes=MAX_LABEL_BYTES, what="labels")


def require_storable_text(value: Any, name: str) -> str:
    """Return a string that every database can store. Raises `ValueError`."""
    if not isinstance(value, str) or not is_storable_text(value):
        raise ValueError(f"{name} must be a text without NUL and lone surrogates, got {value!r}")
    return value


def require_lease_duration(lease_ms: int) -> int:
    """Return the duration of a lease. Raises `ValueError` for less than a millisecond."""
    if lease_ms < 1:
        raise ValueError(f"lease_ms must be at least 1, got {lease_ms}")
    return lease_ms


def require_short_storable_text(value: Any, name: str) -> str:
    """Return a string of at most 1,000 characters that every database can store. Raises `ValueError`."""
    if len(require_storable_text(value, name)) > _MAX_NAME_CHARACTERS:
        raise ValueError(f"{name} must have at most {_MAX_NAME_CHARACTERS} characters, got {len(value)}")
    return value


def create_attribution(actor: str, *, reason: str | None = "", address: str | None = None) -> Attribution:
    """Return the attribution of a decision for the audit. Raises `ValueError`."""
    for name, text in (("actor", actor), ("address", "" if address is None else address)):
        require_short_storable_text(text, name)
    return Attribution(actor, "" if reason is None else str(reason), address)


def require_valid_max_open_records(max_open_per_tenant: int | None) -> int | None:
    """Return the maximum number of open records of a tenant, None for unlimited. Raises `ValueError`."""
    if max_open_per_tenant is None:
        return None
    if type(max_open_per_tenant) is not int or max_open_per_tenant < 1:
        raise ValueError(f"max_open_per_tenant must be an integer of at least 1, or None, got {max_open_per_tenant!r}")
    return max_open_per_tenant


_log = logging.getLogger("codemode.stores")
_SHORT_EXPIRY_MS = 3_600_000


class ExpiryWarner:
    """Warns once per store."""

    def __init__(self) -> None:
        self._has_warned = False

    def warn_once_if_short(self, remaining_ms: int) -> None:
        """Warn when there is less than an hour left."""
        if remaining_ms >= _SHORT_EXPIRY_MS or self._has_warned:
            return
        self._has_warned = True
        _log.warning(
            "a stored pause expires in %d minutes: set continuation={'max_age_ms': ...} in the tool's"
            " options says how long its answer may take, and the default is meant for dialogs",
            max(0, remaining_ms // 60_000),
        )
