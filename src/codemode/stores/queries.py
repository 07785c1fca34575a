"""Read records, requests, counts, changes and audit lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from ..data.narrowing import is_mapping
from ..options.checked_fields import WrongTypeError
from ..records import record as value
from .audit import GENESIS_HASH, AuditLine, decode_audit_line, format_chain_head
from .records import (
    RECORD_STATES,
    Change,
    LastResumed,
    ListedState,
    ListOrder,
    Page,
    Record,
    RecordState,
    Tenant,
    Tenants,
)
from .rows import (
    LISTED_COLUMNS,
    RECORD_COLUMNS,
    create_id_not_found_error,
    create_tenant_clause,
    format_placeholders,
    load_records,
    to_tenant_names,
)
from .tables import compute_label_key
from .transaction import Row, Session, is_storable_text

_MAX_CHANGES = 500
_MAX_LINES = 100


def find_interrupt_json_of_open_request(session: Session, interrupt_id: str, tenant: Tenant) -> str | None:
    """Return the newest interrupt with this pending request, as text."""
    condition, values = create_tenant_clause(tenant, "r.tenant")
    row = session.fetch_one(
        "SELECT r.interrupt FROM codemode_requests q JOIN codemode_records r ON r.id = q.record_id"
        f" WHERE q.interrupt_id = ? AND q.state IN ('waiting', 'decided'){condition}",
        *(interrupt_id, *values),
    )
    return None if row is None else row[0]


def get_last_interrupt_json(session: Session, record_id: str, tenant: Tenant) -> str | None:
    """Return the newest interrupt of a record, also an ended one, as text. Raises `UnknownRequestError`."""
    condition, values = create_tenant_clause(tenant)
    row = session.fetch_one(f"SELECT interrupt FROM codemode_records WHERE id = ?{condition}", record_id, *values)
    if row is None:
        raise create_id_not_found_error(record_id)
    return row[0]


def get_record(session: Session, record_id: str, tenant: Tenant) -> Record:
    """Return a record. Raises `UnknownRequestError`."""
    condition, values = create_tenant_clause(tenant)
    statement = f"SELECT {RECORD_COLUMNS} FROM codemode_records WHERE id = ?{condition}"
    records = load_records(session, session.fetch_all(statement, record_id, *values))
    if not records:
        raise create_id_not_found_error(record_id)
    return records[0]


def find_last_resumed(session: Session, tenant: str, app: str) -> LastResumed | None:
    """Return who last claimed a record of a tenant's app and could resume it, or still tries."""
    row = session.fetch_one(
        "SELECT resumed_by, resumed_at_ms FROM codemode_records WHERE tenant = ? AND app = ?"
        " AND resumed_at_ms IS NOT NULL ORDER BY resumed_at_ms DESC LIMIT 1",
        *(tenant, app),
    )
    return None if row is None else LastResumed(*row)


def get_state_outcome_and_not_resumable_reason(
    session: Session, record_id: str, tenant: Tenant
) -> tuple[RecordState, str | None, str | None]:
    """Return a record's state, its outcome as text once it has ended, and why no host could resume it.

    Raises `UnknownRequestError`.
    """
    condition, values = create_tenant_clause(tenant)
    statement = f"SELECT state, outcome, not_resumable FROM codemode_records WHERE id = ?{condition}"
    row = session.fetch_one(statement, record_id, *values)
    if row is None:
        raise create_id_not_found_error(record_id)
    state, text, not_resumable = row
    return cast("RecordState", state), text, None if not_resumable is None else json.loads(not_resumable)


def require_sequence_number(after: int) -> int:
    """Return a sequence number that every database takes. Raises `ValueError`."""
    if not 0 <= after < 1 << 63:
        raise ValueError(f"after must be a sequence, got {after}")
    return after


def list_changes(session: Session, tenant: Tenant, after: int) -> list[Change]:
    """Return the next changes after a sequence number."""
    condition, values = create_tenant_clause(tenant)
    rows = session.fetch_all(
        f"SELECT sequence, record_id, kind, tenant FROM codemode_changes WHERE sequence > ?{condition}"
        " ORDER BY sequence LIMIT ?",
        *(after, *values, _MAX_CHANGES),
    )
    return [Change(*row) for row in rows]


def get_last_change_sequence(session: Session) -> int:
    """Return the sequence number of the last change."""
    return (session.fetch_one("SELECT sequence FROM codemode_store") or (0,))[0]


@value
class AuditFilter:
    """Which audit lines to return, and in which order."""

    tenant: Tenants
    record_id: str | None
    newest_first: bool


def list_audit_lines(session: Session, filters: AuditFilter, after: int | None, limit: int | None) -> list[AuditLine]:
    """Return the next audit lines; several tenants use one limited query each, in a union."""
    count = _MAX_LINES if limit is None else min(limit, _MAX_LINES)
    tenants = sorted(filters.tenant) if isinstance(filters.tenant, AbstractSet) else [filters.tenant]
    branches = [_build_audit_select(filters, tenant, after, count) for tenant in tenants]
    if len(branches) == 1:
        ((statement, values),) = branches
        return [decode_audit_line(*row) for row in session.fetch_all(statement, *values)]
    if not branches:
        return []
    lists = " UNION ALL ".join(
        f"SELECT * FROM ({statement}) AS of_{number}" for number, (statement, _) in enumerate(branches)
    )
    order = " DESC" if filters.newest_first else ""
    values = [value for _, values in branches for value in values]
    rows = session.fetch_all(f"{lists} ORDER BY sequence{order} LIMIT ?", *values, count)
    return [decode_audit_line(*row) for row in rows]


def _build_audit_select(filters: AuditFilter, tenant: Tenant, after: int | None, count: int) -> tuple[str, Row]:
    comparison, order = ("<", " DESC") if filters.newest_first else (">", "")
    condition, values = create_tenant_clause(tenant)
    if filters.record_id is not None:
        condition, values = f"{condition} AND record_id = ?", (*values, filters.record_id)
    if after is not None:
        condition, values = f"{condition} AND sequence {comparison} ?", (*values, after)
    statement = (
        "SELECT sequence, tenant, record_id, previous, hash, body FROM codemode_audit"
        f" WHERE sequence > 0{condition} ORDER BY sequence{order} LIMIT ?"
    )
    return statement, (*values, count)


def get_audit_head(session: Session) -> str:
    """Return the head of the audit's chain."""
    sequence, line_hash = session.fetch_one("SELECT audit_sequence, audit_hash FROM codemode_store") or (
        0,
        GENESIS_HASH,
    )
    return format_chain_head(sequence, line_hash)


# A list for several tenants or states is a union of one limited query for each. For a tool and labels, the rarest of
# them drives the query, and the others are conditions.

MAX_LISTED_RECORDS = 500
MAX_LABELS = 20
MAX_COUNTED_TOOLS = 100
_ORDERS: tuple[ListOrder, ...] = get_args(ListOrder)
_STATES: tuple[ListedState, ...] = ("waiting", *RECORD_STATES)
_OPEN_STATES = ("pending", "resuming")
_UNFINISHED_STATES = (*_OPEN_STATES, "resting")
_NOT_RESTING_STATES = tuple(state for state in RECORD_STATES if state != "resting")
_CURSOR_PATTERNS = {"newest": re.compile(r"([0-9]{1,18})"), "expiring": re.compile(r"([0-9]{1,18})-([0-9]{1,18})")}
_MAX_COUNTED_ROWS = 1000
_MAX_BRANCHES = 400  # SQLite takes 500
# The first waiting request of a record, or of a record and tool.
_EARLIER_WAITING = "o.record_id = q.record_id AND o.ordinal < q.ordinal AND o.state = 'waiting'"
_EARLIER_WAITING_OF_TOOL = f"{_EARLIER_WAITING} AND o.tool_name || '' = q.tool_name"
_SOURCE_TABLES = {
    "r": ("codemode_records r", "r.id"),
    "q": ("codemode_requests q", "q.record_id"),
    "l": ("codemode_labels l", "l.record_id"),
}
_Condition = tuple[str, Row]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The filter of a list. A record must have all ``labels``, given as keys; ``after`` is the cursor's position."""

    tenants: tuple[str | None, ...]
    app: str | None
    tool: str | None
    state: ListedState | None
    labels: tuple[str, ...]
    order: ListOrder
    after: tuple[int, ...] | None
    limit: int


def create_record_filter(
    tenant: Tenants,
    *,
    app: str | None,
    tool: str | None,
    state: ListedState | None,
    labels: Mapping[str, str] | None,
    order: ListOrder,
    after: str | None,
    limit: int,
) -> RecordFilter:
    """Return a validated filter. Raises `ValueError`."""
    if state is not None and state not in _STATES:
        raise ValueError(f"state must be one of {', '.join(_STATES)}, got {state!r}")
    if order not in _ORDERS:
        raise ValueError(f"order must be one of {', '.join(_ORDERS)}, got {order!r}")
    if not 1 <= limit <= MAX_LISTED_RECORDS:
        raise ValueError(f"limit must be from 1 to {MAX_LISTED_RECORDS}, got {limit}")
    if order == "expiring" and state not in (None, "waiting"):
        raise ValueError(f"order expiring is of what waits alone, got the state {state!r}")
    state = "waiting" if order == "expiring" else state
    cursor = None if after is None else _parse_cursor(after, order)
    return RecordFilter(to_tenant_names(tenant), app, tool, state, _to_label_keys(labels), order, cursor, limit)


def list_record_page(session: Session, filters: RecordFilter) -> Page:
    """Return a page of records, with at most two queries for their positions and three for their contents."""
    if not filters.tenants:
        return Page((), None)
    filters, alias = _sort_labels_and_choose_driving_table(session, filters)
    branches = [
        _build_branch_query(filters, alias, tenant, state)
        for tenant in filters.tenants
        for state in _list_branch_states(filters, alias)
    ]
    text, values = _union_branches(branches, filters)
    rows = session.fetch_all(text, *values)
    records = find_records_without_payload(session, [row[0] for row in rows[: filters.limit]], (None,))
    last = rows[filters.limit - 1][1:] if len(rows) > filters.limit else None
    return Page(records, None if last is None else _format_cursor(filters.order, *last))


def find_records_without_payload(
    session: Session, record_ids: Sequence[str], tenants: tuple[str | None, ...]
) -> tuple[Record, ...]:
    """Return the records with these ids that exist, in this order, without ``source`` and ``payload``."""
    if not record_ids or not tenants:
        return ()
    condition, names = ("", ()) if None in tenants else (f" AND tenant IN ({format_placeholders(tenants)})", tenants)
    statement = (
        f"SELECT {LISTED_COLUMNS} FROM codemode_records WHERE id IN ({format_placeholders(record_ids)}){condition}"
    )
    rows = {row[0]: row for row in session.fetch_all(statement, *record_ids, *names)}
    return load_records(session, [rows[record_id] for record_id in dict.fromkeys(record_ids) if record_id in rows])


def count_waiting_requests(session: Session, tenants: tuple[str | None, ...], app: str | None) -> dict[str, int]:
    """Return the number of waiting requests by tool, for the `MAX_COUNTED_TOOLS` with the most."""
    if not tenants:
        return {}
    conditions, values = ["state = 'waiting'", "is_open = 1"], list[Any]()
    if None not in tenants:
        conditions.append(f"tenant IN ({format_placeholders(tenants)})")
        values += tenants
    if app is not None:
        conditions.append("app = ?")
        values.append(app)
    rows = session.fetch_all(
        "SELECT tool_name, COUNT(*) AS number FROM codemode_requests"
        f" WHERE {' AND '.join(conditions)} GROUP BY tool_name ORDER BY number DESC, tool_name LIMIT ?",
        *(*values, MAX_COUNTED_TOOLS),
    )
    return dict(rows)  # pyright: ignore[reportArgumentType, reportCallIssue]


def has_open_record_with_any_label(session: Session, tenant: str, app: str, labels: Mapping[str, str]) -> bool:
    """Return whether a record with one of these labels is open. Reads only labels."""
    keys = _to_label_keys(labels)
    statement = (
        f"SELECT 1 FROM codemode_labels WHERE label IN ({format_placeholders(keys)}) AND tenant = ? AND state IN"
        f" ({format_placeholders(_UNFINISHED_STATES)}) AND app = ? LIMIT 1"
    )
    return session.fetch_one(statement, *keys, tenant, *_UNFINISHED_STATES, app) is not None


def _sort_labels_and_choose_driving_table(session: Session, filters: RecordFilter) -> tuple[RecordFilter, str]:
    """Return the filter with its rarest label first, and the table to drive the query: records, requests or labels."""
    if not filters.labels or (len(filters.labels) == 1 and filters.tool is None):
        return (
            filters,
            "l" if filters.labels else "q" if filters.tool is not None or filters.state == "waiting" else "r",
        )
    count_up_to = "(SELECT COUNT(*) FROM (SELECT 1 FROM {} LIMIT ?) few)"
    count_queries = [
        (count_up_to.format("codemode_labels WHERE label = ? ORDER BY state, position"), (value, _MAX_COUNTED_ROWS))
        for value in filters.labels
    ]
    if filters.tool is not None:
        waiting = count_up_to.format("codemode_requests WHERE tool_name = ? AND state = 'waiting' ORDER BY position")
        count_queries.append((waiting, (filters.tool, _MAX_COUNTED_ROWS)))
    row_counts = session.fetch_one(
        f"SELECT {', '.join(text for text, _ in count_queries)}",
        *(value for _, values in count_queries for value in values),
    ) or (0,)
    labels = sorted(zip(row_counts, filters.labels, strict=False))
    is_label = filters.tool is None or labels[0][0] < row_counts[-1]
    return replace(filters, labels=tuple(value for _, value in labels)), "l" if is_label else "q"


def _list_branch_states(filters: RecordFilter, alias: str) -> tuple[str | None, ...]:
    """Return the states that need a query each; None for one query over several states."""
    if alias == "q" or (alias == "r" and filters.state is None):
        return (None,)
    if filters.state is None:
        return _NOT_RESTING_STATES
    return _OPEN_STATES if filters.state == "waiting" else (filters.state,)


def _build_branch_query(filters: RecordFilter, alias: str, tenant: str | None, state: str | None) -> _Condition:
    """Return the query for one tenant (or all) and one state: ids with their positions."""
    source, record_id = _SOURCE_TABLES[alias]
    conditions = [
        *_build_label_conditions(filters, alias, record_id),
        *_build_waiting_conditions(filters, alias, record_id),
    ]
    if alias == "r" and filters.state is None:
        conditions.append(("r.state <> 'resting'", ()))  # as in the index: resting records are listed on demand only
    equal = {f"{alias}.tenant": tenant, f"{alias}.state": state, f"{alias}.app": filters.app}
    conditions += [(f"{column} = ?", (value,)) for column, value in equal.items() if value is not None]
    order_by, after_cursor = f"{alias}.position DESC", f"{alias}.position < ?"
    if filters.order == "expiring":
        order_by, after_cursor = (
            f"{alias}.expires_at_ms, {alias}.position",
            f"({alias}.expires_at_ms, {alias}.position) > (?, ?)",
        )
    if filters.after is not None:
        conditions.append((after_cursor, filters.after))
    text = (
        f"SELECT {record_id} AS id, {alias}.expires_at_ms AS expires_at_ms, {alias}.position AS position FROM {source}"
        f" WHERE {' AND '.join(text for text, _ in conditions)} ORDER BY {order_by} LIMIT ?"
    )
    return text, (*(value for _, values in conditions for value in values), filters.limit + 1)


def _build_label_conditions(filters: RecordFilter, alias: str, record_id: str) -> Iterable[_Condition]:
    if alias == "l":
        yield "l.label = ?", (filters.labels[0],)
    for label in filters.labels[1:] if alias == "l" else filters.labels:
        yield f"EXISTS (SELECT 1 FROM codemode_labels o WHERE o.record_id = {record_id} AND o.label = ?)", (label,)


def _build_waiting_conditions(filters: RecordFilter, alias: str, record_id: str) -> Iterable[_Condition]:
    if alias == "q":
        yield from _build_first_waiting_conditions(filters)
    elif filters.tool is not None or filters.state == "waiting":
        # An expression, so that the index of tools is not used, which would read all requests of the tool.
        is_tool, values = ("", ()) if filters.tool is None else (" AND w.tool_name || '' = ?", (filters.tool,))
        of_record = f"w.record_id = {record_id} AND w.state = 'waiting'{is_tool}"
        yield f"EXISTS (SELECT 1 FROM codemode_requests w WHERE {of_record})", values


def _build_first_waiting_conditions(filters: RecordFilter) -> Iterable[_Condition]:
    yield "q.state = 'waiting'", ()
    if filters.tool is not None:
        yield "q.tool_name = ?", (filters.tool,)
    of_others = _EARLIER_WAITING if filters.tool is None else _EARLIER_WAITING_OF_TOOL
    yield f"NOT EXISTS (SELECT 1 FROM codemode_requests o WHERE {of_others})", ()
    if filters.state == "waiting":
        yield "q.is_open = 1", ()
    else:
        is_state, values = ("<> 'resting'", ()) if filters.state is None else ("= ?", (filters.state,))
        yield f"(SELECT r.state FROM codemode_records r WHERE r.id = q.record_id) {is_state}", values


def _union_branches(branches: list[_Condition], filters: RecordFilter) -> _Condition:
    if len(branches) == 1:
        return branches[0]
    if len(branches) > _MAX_BRANCHES:
        parts = [branches[start : start + _MAX_BRANCHES] for start in range(0, len(branches), _MAX_BRANCHES)]
        return _union_branches([_union_branches(branch, filters) for branch in parts], filters)
    order_by = "position DESC" if filters.order == "newest" else "expires_at_ms, position"
    lists = " UNION ALL ".join(f"SELECT * FROM ({text}) branch" for text, _ in branches)
    values = (branch for _, values in branches for branch in values)
    return f"{lists} ORDER BY {order_by} LIMIT ?", (*values, filters.limit + 1)


def _to_label_keys(labels: Mapping[str, str] | None) -> tuple[str, ...]:
    if labels is None:
        return ()
    if not is_mapping(labels) or not all(isinstance(part, str) for pair in labels.items() for part in pair):
        raise WrongTypeError(f"labels must be texts by their names, got {labels!r:.200}")
    if len(labels) > MAX_LABELS:
        raise ValueError(f"labels must be at most {MAX_LABELS}, got {len(labels)}")
    # A label that no record can have matches no key.
    return tuple(
        compute_label_key(name, text) if is_storable_text(name + text) else "" for name, text in labels.items()
    )


def _format_cursor(order: ListOrder, expires_at_ms: int, position: int) -> str:
    return str(position) if order == "newest" else f"{expires_at_ms}-{position}"


def _parse_cursor(cursor: str, order: ListOrder) -> tuple[int, ...]:
    """Parse the cursor of a page. Raises `ValueError` for a cursor of another order or none."""
    match = _CURSOR_PATTERNS[order].fullmatch(cursor)
    if match is None:
        raise ValueError(f"after must be the next of a page, got {cursor!r}")
    return tuple(int(number) for number in match.groups())
