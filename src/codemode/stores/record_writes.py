"""Store an interrupt: as a new record, as a known version or as the next version of its record."""

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
from .answers import asked, shown
from .audit import MOST_IN_LINE, By, cut
from .errors import RequestSupersededError, StoreError, StoreFullError
from .records import OWNED, RecordState, StoredPause, record_after, request_after
from .rows import annotations_text, marks, requests_named, requests_of
from .tables import IS_OPEN, insert_labels, label_key
from .transaction import Row, Session, is_plain

MAX_PAYLOAD_BYTES = 16 << 20
MAX_LABEL_BYTES = 16 << 10
_MAX_NAME_CHARACTERS = 1000


@record
class Kept:
    """An interrupt with what its record says of it, as texts; ``forms`` has what is known of the tools, by name.

    ``waits_for_all``: it goes on with answers to all of its requests alone.
    """

    interrupt: Interrupt
    text: str
    nonce: str
    expires_at_ms: int
    outer_tool: str
    tenant: str
    app: str
    labels: str
    source: str | None
    payload: str | None
    forms: Mapping[str, tuple[str | None, str, str | None]]
    shown: Mapping[str, str]
    waits_for_all: bool = False


def kept(
    interrupt: Interrupt,
    tool: Any = None,
    tenant: str = "",
    app: str = "",
    labels: Mapping[str, str] | None = None,
    source: str | None = None,
    payload: Any = None,
) -> Kept:
    """Write what is to be kept. Raises `ValueError` for wrong arguments, `CodeModeProtocolError` for no interrupt."""
    nonce, expires_at_ms = _signed(interrupt)
    for name, text in (("tenant", tenant), ("app", app)):
        require_text(text, name)
    if source is not None and not isinstance(source, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"source must be a text, got {type(source).__name__}")
    _require_ids(interrupt)
    return Kept(
        interrupt,
        interrupt_text(interrupt),
        nonce,
        expires_at_ms,
        require_text(tool if isinstance(tool, str) else getattr(tool, "name", ""), "tool"),
        tenant,
        app,
        _label_text(labels or {}),
        None if source is None else json.dumps(source),
        None if payload is None else encode_json(payload, max_bytes=MAX_PAYLOAD_BYTES, what="the payload"),
        _forms(interrupt, tool),
        {one.interrupt_id: shown(one) for one in interrupt.requests},
        isinstance(interrupt, StoredPause) and interrupt.waits_for_all,
    )


def again(interrupt: Interrupt, tool: Any = None, payload: Any = None, source: str | None = None) -> Kept:
    """Write what a record goes on with, whose own columns stay; payload and source unless there are others."""
    return kept(interrupt, tool, payload=payload, source=source)


def put(session: Session, new: Kept, alone: str | None = None, most: int | None = None) -> str:
    """Keep it and return the record's id, in the caller's transaction. ``alone`` is as `InterruptStore.put` has it.

    ``most`` is how many open records a tenant may have, for one more. Raises `StoreFullError`.
    """
    known = session.one(
        "SELECT r.id, r.tenant FROM codemode_versions v JOIN codemode_records r ON r.id = v.record_id"
        " WHERE v.nonce = ?",
        new.nonce,
    )
    if known is None:
        named = requests_named(session, [one.interrupt_id for one in new.interrupt.requests])
        record_ids = {one.record_id for one in named.values()}
        if not record_ids:
            same = _alone(session, new, alone)
            if same is not None:
                return same
            require_room(session, new.tenant, most)
            return _insert(session, new)
        if len(record_ids) > 1:
            raise StoreError("the interrupt has requests of several records")
        known = session.one("SELECT id, tenant FROM codemode_records WHERE id = ?", *record_ids) or ("", "")
    record_id, tenant = known
    if tenant != new.tenant:
        raise StoreError("this interrupt is kept already, and not for this tenant")
    if not session.one("SELECT 1 FROM codemode_versions WHERE nonce = ?", new.nonce):
        state = _state(session, record_id)
        if state in OWNED:
            raise RequestSupersededError("somebody goes on with the record: its next version comes from there")
        pause(session, record_id, state, new)
    return record_id


def require_room(session: Session, tenant: str, most: int | None) -> None:
    """Raise `StoreFullError` where a tenant has as many records that have not ended as it may."""
    if most is not None and open_records(session, tenant, None, most) >= most:
        raise StoreFullError(
            f"{tenant!r} has {most} programs that wait or rest in this store, and it keeps no more of one tenant: have"
            " some of them decided or withdrawn, or raise max_open_per_tenant",
            details={"tenant": tenant, "limit": most},
        )


def open_records(session: Session, tenant: str, app: str | None, most: int) -> int:
    """Return how many records of a tenant have not ended, counted up to ``most``."""
    condition, values = ("", ()) if app is None else (" AND app = ?", (app,))
    statement = (
        "SELECT count(*) FROM (SELECT 1 FROM codemode_records WHERE tenant = ?"
        f" AND state IN ('pending', 'resuming', 'resting') AND expires_at_ms > ?{condition} LIMIT ?) AS found"
    )
    found = session.one(statement, tenant, session.now_ms, *values, most)
    return 0 if found is None else found[0]


def _alone(session: Session, new: Kept, alone: str | None) -> str | None:
    """Return the newest record that has not ended and has this label as the new one. Nobody else writes meanwhile."""
    if alone is None:
        return None
    found = session.one(
        "SELECT record_id FROM codemode_labels WHERE label = ? AND tenant = ? AND app = ?"
        " AND (state = 'resuming' OR (state IN ('pending', 'resting') AND expires_at_ms > ?))"
        " ORDER BY position DESC LIMIT 1",
        *(label_key(alone, json.loads(new.labels)[alone]), new.tenant, new.app, session.now_ms),
    )
    return None if found is None else found[0]


def pause(session: Session, record_id: str, state: RecordState, new: Kept) -> None:
    """Make an interrupt the newest version of a record that is in this state."""
    after = record_after(state, "pause", record_id)
    found = session.one("SELECT version, tenant FROM codemode_records WHERE id = ?", record_id)
    version, tenant = (1, "") if found is None else (found[0] + 1, found[1])
    stands = {one.request.interrupt_id: one for one in requests_of(session, [record_id])}
    forms = {one.request.tool_name: one.request for one in stands.values()}
    asked = {one.interrupt_id for one in new.interrupt.requests}
    left: list[Row] = []
    for interrupt_id, one in stands.items():
        request_state = one.request.state
        if interrupt_id not in asked and request_state in ("waiting", "decided"):
            left.append((request_after(request_state, "apply" if one.is_taken else "supersede"), interrupt_id))
    session.each("UPDATE codemode_requests SET state = ?, is_taken = 0 WHERE interrupt_id = ?", left)
    # An answer that was used up by a pause that still asks is none any more.
    reopened = [
        (one.interrupt_id,)
        for one in new.interrupt.requests
        if one.interrupt_id in stands
        and (stands[one.interrupt_id].is_taken or stands[one.interrupt_id].request.state in ("applied", "superseded"))
    ]
    session.each(
        "UPDATE codemode_requests SET state = 'waiting', decision = NULL, actor = NULL, decided_at_ms = NULL,"
        " is_taken = 0 WHERE interrupt_id = ?",
        reopened,
    )
    open_ids = {row[0] for row in reopened}
    is_ready = not asked or any(
        stands[one].request.state == "decided" for one in asked & stands.keys() if one not in open_ids
    )
    known = {name: _form_texts(one, one.input_schema) for name, one in forms.items()}
    _insert_requests(session, record_id, new, known, asked - stands.keys(), len(stands))
    session.run(
        "UPDATE codemode_records SET version = ?, state = ?, interrupt = ?, expires_at_ms = ?, owner = NULL,"
        " payload = COALESCE(?, payload), source = COALESCE(?, source), ready_at_ms = ?, rests_until_ms = NULL,"
        " not_resumable = NULL, refusals = 0 WHERE id = ?",
        *(version, after, new.text, new.expires_at_ms, new.payload, new.source),
        *(session.now_ms if is_ready else None, record_id),
    )
    _insert_version(session, record_id, version, new)
    session.note(record_id, tenant, "paused")
    applied = [row[1] for row in left if row[0] == "applied"]
    details = {**_asked(new, version), "applied": applied[:MOST_IN_LINE]}
    session.audit("paused", tenant, record_id, outcome="paused", details=details)


def _insert(session: Session, new: Kept) -> str:
    # What waits for nobody, a recovery, goes on by itself.
    ready = None if new.interrupt.requests else session.now_ms
    record_id = insert_record(session, new, "put", version=1, state="pending", claim=0, ready_at_ms=ready)
    asked = {one.interrupt_id for one in new.interrupt.requests}
    _insert_requests(session, record_id, new, {}, asked, 0)
    _insert_version(session, record_id, 1, new)
    session.audit("put", new.tenant, record_id, details={"app": cut(new.app), **_asked(new, 1)})
    return record_id


def insert_record(session: Session, new: Kept, kind: str, **columns: Any) -> str:
    """Insert a record in the state that ``columns`` say, and return its id."""
    record_id = secrets.token_hex(16)
    own: dict[str, Any] = {
        "id": record_id,
        "position": session.note(record_id, new.tenant, kind),
        **{name: getattr(new, name) for name in ("outer_tool", "tenant", "app", "labels", "source", "payload")},
        "created_at_ms": session.now_ms,
        "expires_at_ms": new.expires_at_ms,
        "interrupt": new.text,
        **columns,
    }
    session.run(f"INSERT INTO codemode_records ({', '.join(own)}) VALUES ({marks(own)})", *own.values())
    insert_labels(session, [(record_id, json.loads(new.labels))])
    return record_id


def _insert_requests(
    session: Session,
    record_id: str,
    new: Kept,
    known: Mapping[str, tuple[str | None, str, str | None]],
    asked: set[str],
    first: int,
) -> None:
    session.each(
        "INSERT INTO codemode_requests (interrupt_id, record_id, ordinal, kind, tool_name, input, payload,"
        " input_schema, description, annotations, shown, at_line, at_column, state, is_taken, tenant, app, position,"
        " expires_at_ms, is_open)"
        " SELECT ?, id, ?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(? AS BIGINT), CAST(? AS BIGINT), 'waiting', 0, tenant, app,"
        f" position, expires_at_ms, {IS_OPEN.format('')} FROM codemode_records WHERE id = ?",
        (
            (
                one.interrupt_id,
                first + number,
                *_said(one),
                *_form(one, new, known),
                new.shown[one.interrupt_id],
                *(one.line, one.column),
                record_id,
            )
            for number, one in enumerate(new.interrupt.requests)
            if one.interrupt_id in asked
        ),
    )


def _asked(new: Kept, version: int) -> dict[str, Any]:
    """Return what the audit has of a pause."""
    requests = [
        {"id": cut(one.interrupt_id), "tool": cut(one.tool_name), "shown": new.shown[one.interrupt_id]}
        for one in new.interrupt.requests[:MOST_IN_LINE]
    ]
    return {"version": version, "requests": requests, "count": len(new.interrupt.requests)}


def _insert_version(session: Session, record_id: str, version: int, new: Kept) -> None:
    ids = json.dumps([one.interrupt_id for one in new.interrupt.requests])
    values = (new.nonce, record_id, version, session.now_ms, ids)
    session.run("INSERT INTO codemode_versions VALUES (?, ?, ?, ?, ?)", *values)


def _state(session: Session, record_id: str) -> RecordState:
    found = session.one("SELECT state FROM codemode_records WHERE id = ?", record_id)
    return cast("RecordState", found[0]) if found is not None else "pending"


def _said(one: PendingRequest) -> Row:
    kind, given = asked(one)
    texts = require_text(kind, "kind"), require_text(one.tool_name, "tool_name")
    return (*texts, json.dumps(given), json.dumps(dict(one.payload)))


def _form(one: PendingRequest, new: Kept, known: Mapping[str, tuple[str | None, str, str | None]]) -> Row:
    return new.forms.get(one.tool_name) or known.get(one.tool_name) or (None, '""', None)


def _form_texts(tool: Any, schema: Any) -> tuple[str | None, str, str | None]:
    # What a framework or a server brings has neither title nor summary of the host's.
    title, summary = (getattr(tool, name, "") for name in ("title", "summary"))
    return _written(schema), json.dumps(tool.description), annotations_text(tool.annotations, title, summary)


def _forms(interrupt: Interrupt, tool: Any) -> dict[str, tuple[str | None, str, str | None]]:
    """Return what a page needs of the tools that wait, as far as the tool that paused knows them."""
    catalog = getattr(tool, "catalog", None)
    forms: dict[str, tuple[str | None, str, str | None]] = {}
    for one in interrupt.requests:
        found = None if catalog is None else catalog.get(one.tool_name)
        if found is not None:
            forms[one.tool_name] = _form_texts(found, found.input_json_schema)
    return forms


def _written(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def interrupt_text(interrupt: Interrupt) -> str:
    """Write an interrupt as it is kept."""
    return json.dumps(interrupt.to_dict())


def nonce_of(interrupt: Interrupt) -> str:
    """Return what names a continuation, to its guard too. Raises `CodeModeProtocolError` for one that has none."""
    return _signed(interrupt)[0]


def _signed(interrupt: Interrupt) -> tuple[str, int]:
    auth: Any = interrupt.continuation.get("auth")
    nonce, expires_at_ms = (auth.get("nonce"), auth.get("expiresAtMs")) if isinstance(auth, Mapping) else (None, None)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    is_time = isinstance(expires_at_ms, int) and not isinstance(expires_at_ms, bool) and 0 <= expires_at_ms < 1 << 53
    if not isinstance(nonce, str) or not is_time:
        raise CodeModeProtocolError("the interrupt's continuation is not signed: it cannot be kept")
    return require_text(nonce, "nonce"), cast("int", expires_at_ms)


def _require_ids(interrupt: Interrupt) -> None:
    ids = [one.interrupt_id for one in interrupt.requests]
    if len(set(ids)) < len(ids):
        raise CodeModeProtocolError("the interrupt has two requests of one id: it cannot be kept")
    for one in ids:
        require_text(one, "interrupt_id")


def _label_text(labels: Mapping[str, str]) -> str:
    for name, text in labels.items():
        require_text(text, require_text(name, "labels"))
    return encode_json(dict(labels), max_bytes=MAX_LABEL_BYTES, what="labels")


def require_text(value: Any, name: str) -> str:
    """Return a text that every database takes. Raises `ValueError`."""
    if not isinstance(value, str) or not is_plain(value):
        raise ValueError(f"{name} must be a text without NUL and lone surrogates, got {value!r}")
    return value


def require_lease(lease_ms: int) -> int:
    """Return how long a lease is. Raises `ValueError` for one that nobody could hold."""
    if lease_ms < 1:
        raise ValueError(f"lease_ms must be at least 1, got {lease_ms}")
    return lease_ms


def require_name(value: Any, name: str) -> str:
    """Return a text of at most 1,000 characters that every database takes. Raises `ValueError`."""
    if len(require_text(value, name)) > _MAX_NAME_CHARACTERS:
        raise ValueError(f"{name} must have at most {_MAX_NAME_CHARACTERS} characters, got {len(value)}")
    return value


def said_by(actor: str, *, reason: str | None = "", address: str | None = None) -> By:
    """Return who says so, as the audit keeps it. Raises `ValueError`."""
    for name, text in (("actor", actor), ("address", "" if address is None else address)):
        require_name(text, name)
    return By(actor, "" if reason is None else str(reason), address)


def require_limit(max_open_per_tenant: int | None) -> int | None:
    """Return how many open records a tenant may have, None for any number. Raises `ValueError`."""
    if max_open_per_tenant is None:
        return None
    if type(max_open_per_tenant) is not int or max_open_per_tenant < 1:
        raise ValueError(f"max_open_per_tenant must be an integer of at least 1, or None, got {max_open_per_tenant!r}")
    return max_open_per_tenant


_log = logging.getLogger("codemode.stores")
_SOON_MS = 3_600_000


class ExpiryWarning:
    """Says it once for each store."""

    def __init__(self) -> None:
        self._has_warned = False

    def look(self, left_ms: int) -> None:
        """Warn when there is less than an hour left."""
        if left_ms >= _SOON_MS or self._has_warned:
            return
        self._has_warned = True
        _log.warning(
            "a pause that expires in %d minutes was put into a store: continuation={'max_age_ms': ...} of the tool's"
            " options says how long its answer may take, and the default is meant for dialogs",
            max(0, left_ms // 60_000),
        )
