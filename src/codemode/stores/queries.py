"""Read records, requests and counts; change nothing."""

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
from .audit import BEGINNING, AuditLine, head_text, line_of
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
from .rows import LISTED_COLUMNS, RECORD_COLUMNS, clause, marks, records_of, tenants_of, unknown
from .tables import label_key
from .transaction import Row, Session, is_plain

_CHANGES_AT_ONCE = 500
_LINES_AT_ONCE = 100


def interrupt(session: Session, interrupt_id: str, tenant: Tenant) -> str | None:
    """Return the text of the newest interrupt in which a request is pending."""
    condition, values = clause(tenant, "r.tenant")
    found = session.one(
        "SELECT r.interrupt FROM codemode_requests q JOIN codemode_records r ON r.id = q.record_id"
        f" WHERE q.interrupt_id = ? AND q.state IN ('waiting', 'decided'){condition}",
        *(interrupt_id, *values),
    )
    return None if found is None else found[0]


def last_interrupt(session: Session, record_id: str, tenant: Tenant) -> str | None:
    """Return the text of the newest interrupt of a record, also of one that has ended. Raises `UnknownRequestError`."""
    condition, values = clause(tenant)
    found = session.one(f"SELECT interrupt FROM codemode_records WHERE id = ?{condition}", record_id, *values)
    if found is None:
        raise unknown(record_id)
    return found[0]


def record(session: Session, record_id: str, tenant: Tenant) -> Record:
    """Return a record. Raises `UnknownRequestError`."""
    condition, values = clause(tenant)
    statement = f"SELECT {RECORD_COLUMNS} FROM codemode_records WHERE id = ?{condition}"
    found = records_of(session, session.rows(statement, record_id, *values))
    if not found:
        raise unknown(record_id)
    return found[0]


def last_resumed(session: Session, tenant: str, app: str) -> LastResumed | None:
    """Return who has last claimed a record of a tenant's app and could resume it, or still tries."""
    found = session.one(
        "SELECT resumed_by, resumed_at_ms FROM codemode_records WHERE tenant = ? AND app = ?"
        " AND resumed_at_ms IS NOT NULL ORDER BY resumed_at_ms DESC LIMIT 1",
        *(tenant, app),
    )
    return None if found is None else LastResumed(*found)


def outcome(session: Session, record_id: str, tenant: Tenant) -> tuple[RecordState, str | None, str | None]:
    """Return a record's state, its outcome's text once it has ended, and why no host could resume it.

    Raises `UnknownRequestError`.
    """
    condition, values = clause(tenant)
    statement = f"SELECT state, outcome, not_resumable FROM codemode_records WHERE id = ?{condition}"
    found = session.one(statement, record_id, *values)
    if found is None:
        raise unknown(record_id)
    state, text, unfit = found
    return cast("RecordState", state), text, None if unfit is None else json.loads(unfit)


def require_sequence(after: int) -> int:
    """Return a sequence that every database takes. Raises `ValueError`."""
    if not 0 <= after < 1 << 63:
        raise ValueError(f"after must be a sequence, got {after}")
    return after


def changes(session: Session, tenant: Tenant, after: int) -> list[Change]:
    """Return the next changes behind a sequence."""
    condition, values = clause(tenant)
    rows = session.rows(
        f"SELECT sequence, record_id, kind, tenant FROM codemode_changes WHERE sequence > ?{condition}"
        " ORDER BY sequence LIMIT ?",
        *(after, *values, _CHANGES_AT_ONCE),
    )
    return [Change(*row) for row in rows]


def changes_head(session: Session) -> int:
    """Return the sequence of the last change."""
    return (session.one("SELECT sequence FROM codemode_store") or (0,))[0]


@value
class Lines:
    """Which lines of the audit: those behind ``after``, in the order of their numbers or against it."""

    tenant: Tenants
    record_id: str | None
    newest_first: bool


def lines(session: Session, which: Lines, after: int | None, limit: int | None) -> list[AuditLine]:
    """Return the next lines of the audit; of several tenants by one list for each, cut at the same length."""
    count = _LINES_AT_ONCE if limit is None else min(limit, _LINES_AT_ONCE)
    several = sorted(which.tenant) if isinstance(which.tenant, AbstractSet) else [which.tenant]
    branches = [_branch(which, tenant, after, count) for tenant in several]
    if len(branches) == 1:
        ((statement, values),) = branches
        return [line_of(*row) for row in session.rows(statement, *values)]
    if not branches:
        return []
    lists = " UNION ALL ".join(f"SELECT * FROM ({one}) AS of_{number}" for number, (one, _) in enumerate(branches))
    order = " DESC" if which.newest_first else ""
    given = [value for _, values in branches for value in values]
    rows = session.rows(f"{lists} ORDER BY sequence{order} LIMIT ?", *given, count)
    return [line_of(*row) for row in rows]


def _branch(which: Lines, tenant: Tenant, after: int | None, count: int) -> tuple[str, Row]:
    comparison, order = ("<", " DESC") if which.newest_first else (">", "")
    condition, values = clause(tenant)
    if which.record_id is not None:
        condition, values = f"{condition} AND record_id = ?", (*values, which.record_id)
    if after is not None:
        condition, values = f"{condition} AND sequence {comparison} ?", (*values, after)
    statement = (
        "SELECT sequence, tenant, record_id, previous, hash, body FROM codemode_audit"
        f" WHERE sequence > 0{condition} ORDER BY sequence{order} LIMIT ?"
    )
    return statement, (*values, count)


def audit_head(session: Session) -> str:
    """Return the head of the audit's chain."""
    sequence, found = session.one("SELECT audit_sequence, audit_hash FROM codemode_store") or (0, BEGINNING)
    return head_text(sequence, found)


# A list of several tenants, or of several states, is made of one list for each, cut at the same length, in one
# statement. Of a tool and labels that which fewest have is walked, and the others are compared.

MOST_LISTED = 500
MOST_LABELS = 20
MOST_TOOLS = 100
_ORDERS: tuple[ListOrder, ...] = get_args(ListOrder)
_STATES: tuple[ListedState, ...] = ("waiting", *RECORD_STATES)
_OPEN = ("pending", "resuming")
_GOES_ON = (*_OPEN, "resting")
_NOT_RESTING = tuple(one for one in RECORD_STATES if one != "resting")
_CURSORS = {"newest": re.compile(r"([0-9]{1,18})"), "expiring": re.compile(r"([0-9]{1,18})-([0-9]{1,18})")}
_FEW = 1000
_BRANCHES_AT_ONCE = 400  # SQLite takes 500
# Of several requests of one record that wait, or wait for the same tool.
_FIRST = "o.record_id = q.record_id AND o.ordinal < q.ordinal AND o.state = 'waiting'"
_FIRST_OF_TOOL = f"{_FIRST} AND o.tool_name || '' = q.tool_name"
_SOURCES = {
    "r": ("codemode_records r", "r.id"),
    "q": ("codemode_requests q", "q.record_id"),
    "l": ("codemode_labels l", "l.record_id"),
}
_Condition = tuple[str, Row]


@dataclass(frozen=True, slots=True)
class Filters:
    """What is listed. ``labels`` are keys of labels, all of which a record has; ``after`` is behind what it begins."""

    tenants: tuple[str | None, ...]
    app: str | None
    tool: str | None
    state: ListedState | None
    labels: tuple[str, ...]
    order: ListOrder
    after: tuple[int, ...] | None
    limit: int


def filters_of(
    tenant: Tenants,
    *,
    app: str | None,
    tool: str | None,
    state: ListedState | None,
    labels: Mapping[str, str] | None,
    order: ListOrder,
    after: str | None,
    limit: int,
) -> Filters:
    """Return what is asked for. Raises `ValueError` for what no list has."""
    if state is not None and state not in _STATES:
        raise ValueError(f"state must be one of {', '.join(_STATES)}, got {state!r}")
    if order not in _ORDERS:
        raise ValueError(f"order must be one of {', '.join(_ORDERS)}, got {order!r}")
    if not 1 <= limit <= MOST_LISTED:
        raise ValueError(f"limit must be from 1 to {MOST_LISTED}, got {limit}")
    if order == "expiring" and state not in (None, "waiting"):
        raise ValueError(f"order expiring is of what waits alone, got the state {state!r}")
    state = "waiting" if order == "expiring" else state
    place = None if after is None else _place_of(after, order)
    return Filters(tenants_of(tenant), app, tool, state, _label_keys(labels), order, place, limit)


def page(session: Session, asked: Filters) -> Page:
    """Return a page of records: with two statements for their places at most, and three for what belongs to them."""
    if not asked.tenants:
        return Page((), None)
    asked, at = _walked(session, asked)
    branches = [_tenant_branch(asked, at, tenant, state) for tenant in asked.tenants for state in _states(asked, at)]
    text, values = _joined(branches, asked)
    places = session.rows(text, *values)
    records = named(session, [row[0] for row in places[: asked.limit]], (None,))
    last = places[asked.limit - 1][1:] if len(places) > asked.limit else None
    return Page(records, None if last is None else _cursor(asked.order, *last))


def named(session: Session, record_ids: Sequence[str], tenants: tuple[str | None, ...]) -> tuple[Record, ...]:
    """Return those of these records that there are, in this order, without ``source`` and ``payload``."""
    if not record_ids or not tenants:
        return ()
    condition, names = ("", ()) if None in tenants else (f" AND tenant IN ({marks(tenants)})", tenants)
    statement = f"SELECT {LISTED_COLUMNS} FROM codemode_records WHERE id IN ({marks(record_ids)}){condition}"
    rows = {row[0]: row for row in session.rows(statement, *record_ids, *names)}
    return records_of(session, [rows[one] for one in dict.fromkeys(record_ids) if one in rows])


def counts(session: Session, tenants: tuple[str | None, ...], app: str | None) -> dict[str, int]:
    """Return how many requests wait, by tool, of the `MOST_TOOLS` for which most wait."""
    if not tenants:
        return {}
    conditions, values = ["state = 'waiting'", "is_open = 1"], list[Any]()
    if None not in tenants:
        conditions.append(f"tenant IN ({marks(tenants)})")
        values += tenants
    if app is not None:
        conditions.append("app = ?")
        values.append(app)
    rows = session.rows(
        "SELECT tool_name, COUNT(*) AS number FROM codemode_requests"
        f" WHERE {' AND '.join(conditions)} GROUP BY tool_name ORDER BY number DESC, tool_name LIMIT ?",
        *(*values, MOST_TOOLS),
    )
    return dict(rows)  # pyright: ignore[reportArgumentType, reportCallIssue]


def has_open(session: Session, tenant: str, app: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a record of one of these labels waits, rests or goes on. Reads no record."""
    keys = _label_keys(labels)
    statement = (
        f"SELECT 1 FROM codemode_labels WHERE label IN ({marks(keys)}) AND tenant = ? AND state IN"
        f" ({marks(_GOES_ON)}) AND app = ? LIMIT 1"
    )
    return session.one(statement, *keys, tenant, *_GOES_ON, app) is not None


def _walked(session: Session, asked: Filters) -> tuple[Filters, str]:
    """Return what is asked for, the label that fewest have first, and what is walked: records, requests or labels."""
    if not asked.labels or (len(asked.labels) == 1 and asked.tool is None):
        return asked, "l" if asked.labels else "q" if asked.tool is not None or asked.state == "waiting" else "r"
    few = "(SELECT COUNT(*) FROM (SELECT 1 FROM {} LIMIT ?) few)"
    questions = [
        (few.format("codemode_labels WHERE label = ? ORDER BY state, position"), (one, _FEW)) for one in asked.labels
    ]
    if asked.tool is not None:
        waiting = few.format("codemode_requests WHERE tool_name = ? AND state = 'waiting' ORDER BY position")
        questions.append((waiting, (asked.tool, _FEW)))
    numbers = session.one(
        f"SELECT {', '.join(text for text, _ in questions)}", *(one for _, values in questions for one in values)
    ) or (0,)
    labels = sorted(zip(numbers, asked.labels, strict=False))
    is_label = asked.tool is None or labels[0][0] < numbers[-1]
    return replace(asked, labels=tuple(one for _, one in labels)), "l" if is_label else "q"


def _states(asked: Filters, at: str) -> tuple[str | None, ...]:
    """Return the states of which there is a list each; one None where a list is of several as it is."""
    if at == "q" or (at == "r" and asked.state is None):
        return (None,)
    if asked.state is None:
        return _NOT_RESTING
    return _OPEN if asked.state == "waiting" else (asked.state,)


def _tenant_branch(asked: Filters, at: str, tenant: str | None, state: str | None) -> _Condition:
    """Return the list of one tenant, or all, and one state: ids with their places."""
    source, record_id = _SOURCES[at]
    conditions = [*_labelled(asked, at, record_id), *_waiting(asked, at, record_id)]
    if at == "r" and asked.state is None:
        conditions.append(("r.state <> 'resting'", ()))  # as the index says it: these are listed on demand alone
    equal = {f"{at}.tenant": tenant, f"{at}.state": state, f"{at}.app": asked.app}
    conditions += [(f"{column} = ?", (one,)) for column, one in equal.items() if one is not None]
    by, behind = f"{at}.position DESC", f"{at}.position < ?"
    if asked.order == "expiring":
        by, behind = f"{at}.expires_at_ms, {at}.position", f"({at}.expires_at_ms, {at}.position) > (?, ?)"
    if asked.after is not None:
        conditions.append((behind, asked.after))
    text = (
        f"SELECT {record_id} AS id, {at}.expires_at_ms AS expires_at_ms, {at}.position AS position FROM {source}"
        f" WHERE {' AND '.join(text for text, _ in conditions)} ORDER BY {by} LIMIT ?"
    )
    return text, (*(one for _, values in conditions for one in values), asked.limit + 1)


def _labelled(asked: Filters, at: str, record_id: str) -> Iterable[_Condition]:
    if at == "l":
        yield "l.label = ?", (asked.labels[0],)
    for one in asked.labels[1:] if at == "l" else asked.labels:
        yield f"EXISTS (SELECT 1 FROM codemode_labels o WHERE o.record_id = {record_id} AND o.label = ?)", (one,)


def _waiting(asked: Filters, at: str, record_id: str) -> Iterable[_Condition]:
    if at == "q":
        yield from _first_waiting(asked)
    elif asked.tool is not None or asked.state == "waiting":
        # Not by the index of tools, which would look at all that wait for one.
        is_tool, values = ("", ()) if asked.tool is None else (" AND w.tool_name || '' = ?", (asked.tool,))
        of_record = f"w.record_id = {record_id} AND w.state = 'waiting'{is_tool}"
        yield f"EXISTS (SELECT 1 FROM codemode_requests w WHERE {of_record})", values


def _first_waiting(asked: Filters) -> Iterable[_Condition]:
    yield "q.state = 'waiting'", ()
    if asked.tool is not None:
        yield "q.tool_name = ?", (asked.tool,)
    of_others = _FIRST if asked.tool is None else _FIRST_OF_TOOL
    yield f"NOT EXISTS (SELECT 1 FROM codemode_requests o WHERE {of_others})", ()
    if asked.state == "waiting":
        yield "q.is_open = 1", ()
    else:
        is_state, values = ("<> 'resting'", ()) if asked.state is None else ("= ?", (asked.state,))
        yield f"(SELECT r.state FROM codemode_records r WHERE r.id = q.record_id) {is_state}", values


def _joined(branches: list[_Condition], asked: Filters) -> _Condition:
    if len(branches) == 1:
        return branches[0]
    if len(branches) > _BRANCHES_AT_ONCE:
        parts = [branches[at : at + _BRANCHES_AT_ONCE] for at in range(0, len(branches), _BRANCHES_AT_ONCE)]
        return _joined([_joined(one, asked) for one in parts], asked)
    by = "position DESC" if asked.order == "newest" else "expires_at_ms, position"
    lists = " UNION ALL ".join(f"SELECT * FROM ({text}) branch" for text, _ in branches)
    values = (one for _, values in branches for one in values)
    return f"{lists} ORDER BY {by} LIMIT ?", (*values, asked.limit + 1)


def _label_keys(labels: Mapping[str, str] | None) -> tuple[str, ...]:
    if labels is None:
        return ()
    if not is_mapping(labels) or not all(isinstance(one, str) for pair in labels.items() for one in pair):
        raise WrongTypeError(f"labels must be texts by their names, got {labels!r:.200}")
    if len(labels) > MOST_LABELS:
        raise ValueError(f"labels must be at most {MOST_LABELS}, got {len(labels)}")
    # What no record can have is equal to no key.
    return tuple(label_key(name, text) if is_plain(name + text) else "" for name, text in labels.items())


def _cursor(order: ListOrder, expires_at_ms: int, position: int) -> str:
    return str(position) if order == "newest" else f"{expires_at_ms}-{position}"


def _place_of(cursor: str, order: ListOrder) -> tuple[int, ...]:
    """Read the cursor of a page. Raises `ValueError` for one that no page in this order has given."""
    found = _CURSORS[order].fullmatch(cursor)
    if found is None:
        raise ValueError(f"after must be the next of a page, got {cursor!r}")
    return tuple(int(one) for one in found.groups())
