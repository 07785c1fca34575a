"""The tables and indexes of a store, and their migrations: one set of statements for all databases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from .audit import BEGINNING, content_digest
from .errors import StoreUnavailableError

if TYPE_CHECKING:
    from .transaction import Session


CONTENT = (
    (
        "CREATE TABLE codemode_content (tenant TEXT NOT NULL, app TEXT NOT NULL, run TEXT NOT NULL, id TEXT NOT NULL,"
        " description TEXT NOT NULL, data {blob} NOT NULL, PRIMARY KEY (tenant, app, run, id))"
    ),
    (
        "CREATE TABLE codemode_content_holds (tenant TEXT NOT NULL, app TEXT NOT NULL, run TEXT NOT NULL,"
        " holder TEXT NOT NULL, until_ms BIGINT, PRIMARY KEY (tenant, app, run, holder)){clustered}"
    ),
    "CREATE INDEX codemode_content_holds_by_holder ON codemode_content_holds (holder)",
    "CREATE INDEX codemode_content_holds_by_time ON codemode_content_holds (until_ms)",
)


# They stay until their record is purged: a version is told to a target once.

OUTBOXES = (
    "CREATE TABLE codemode_outboxes (target TEXT PRIMARY KEY, sequence BIGINT NOT NULL)",
    (
        "CREATE TABLE codemode_notices (record_id TEXT NOT NULL, version BIGINT NOT NULL, target TEXT NOT NULL,"
        " tenant TEXT NOT NULL, state TEXT NOT NULL, attempts BIGINT NOT NULL, number BIGINT NOT NULL,"
        " ready_at_ms BIGINT, error TEXT, changed_at_ms BIGINT NOT NULL, PRIMARY KEY (record_id, version, target))"
    ),
    ("CREATE INDEX codemode_notices_to_send ON codemode_notices (target, ready_at_ms) WHERE ready_at_ms IS NOT NULL"),
)


# ``written`` counts the groups of a journal, so that a journal whose lines were deleted is refused.

JOURNALS = (
    (
        "CREATE TABLE codemode_journals (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, app TEXT NOT NULL,"
        " key TEXT NOT NULL, head TEXT NOT NULL, number BIGINT NOT NULL, until_ms BIGINT, outcome TEXT,"
        " is_final BIGINT NOT NULL, is_awaited BIGINT NOT NULL, changed_at_ms BIGINT NOT NULL)"
    ),
    "CREATE UNIQUE INDEX codemode_journals_by_key ON codemode_journals (tenant, app, key)",
    "CREATE INDEX codemode_journals_by_change ON codemode_journals (changed_at_ms)",
    (
        "CREATE TABLE codemode_journal_lines (journal TEXT NOT NULL, number BIGINT NOT NULL, ordinal BIGINT NOT NULL,"
        " texts TEXT NOT NULL, PRIMARY KEY (journal, number, ordinal)){clustered}"
    ),
)

COUNT_LINES = "count lines"
LINE_WRITTEN = "UPDATE codemode_journals SET written = written + 1 WHERE id = NEW.journal;"
COUNTED_LINES = (
    "ALTER TABLE codemode_journals ADD COLUMN written BIGINT NOT NULL DEFAULT 0",
    (
        "UPDATE codemode_journals SET written ="
        " (SELECT count(*) FROM codemode_journal_lines l WHERE l.journal = codemode_journals.id)"
    ),
    COUNT_LINES,
)


SAVED_PROGRAMS = (
    (
        "CREATE TABLE codemode_saved_programs (owner TEXT NOT NULL, name TEXT NOT NULL,"
        " current_version BIGINT NOT NULL, next_version BIGINT NOT NULL, is_disabled BIGINT NOT NULL,"
        " uses BIGINT NOT NULL, used_at_ms BIGINT, stale TEXT, PRIMARY KEY (owner, name)){clustered}"
    ),
    (
        "CREATE TABLE codemode_saved_versions (owner TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL,"
        " saved_at_ms BIGINT NOT NULL, body TEXT NOT NULL, tools TEXT, confirmed_by TEXT, confirmed_at_ms BIGINT,"
        " PRIMARY KEY (owner, name, version)){clustered}"
    ),
)


# An app is compared within an index: beside a tenant it leaves out little. What can be claimed is little of all there
# is, and is looked for at every change: there each question has its own.

_REPLACED = ("tenant", "position", "state", "state_of_all", "readiness")
_LISTED = "ON codemode_records"
_CLAIMED = "ready_at_ms) WHERE ready_at_ms IS NOT NULL"
_WAITS = "position, app) WHERE state = 'waiting'"

RESUMED = (
    "ALTER TABLE codemode_records ADD COLUMN resumed_by TEXT",
    "ALTER TABLE codemode_records ADD COLUMN resumed_at_ms BIGINT",
    (
        f"CREATE INDEX codemode_records_by_resumed {_LISTED} (tenant, app, resumed_at_ms)"
        " WHERE resumed_at_ms IS NOT NULL"
    ),
)
"""Who has last begun to go on with a record: its owner is told no more once it is given back."""

INDEXES = (
    *(f"DROP INDEX codemode_records_by_{name}" for name in _REPLACED),
    f"CREATE INDEX codemode_records_by_tenant {_LISTED} (tenant, position, app) WHERE state <> 'resting'",
    f"CREATE INDEX codemode_records_by_position {_LISTED} (position, app) WHERE state <> 'resting'",
    f"CREATE INDEX codemode_records_by_state {_LISTED} (tenant, state, position, app)",
    f"CREATE INDEX codemode_records_by_state_of_all {_LISTED} (state, position, app)",
    f"CREATE INDEX codemode_records_to_claim {_LISTED} (tenant, app, {_CLAIMED}",
    f"CREATE INDEX codemode_records_to_claim_of_tenant {_LISTED} (tenant, {_CLAIMED}",
    f"CREATE INDEX codemode_records_to_claim_of_app {_LISTED} (app, {_CLAIMED}",
    f"CREATE INDEX codemode_records_to_claim_of_all {_LISTED} ({_CLAIMED}",
    # A request says of its record what is asked of it by the tool that waits.
    "ALTER TABLE codemode_requests ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE codemode_requests ADD COLUMN app TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE codemode_requests ADD COLUMN position BIGINT NOT NULL DEFAULT 0",
    *(
        f"UPDATE codemode_requests SET {name} ="
        f" (SELECT r.{name} FROM codemode_records r WHERE r.id = codemode_requests.record_id)"
        for name in ("tenant", "app", "position")
    ),
    f"CREATE INDEX codemode_requests_by_tool ON codemode_requests (tenant, tool_name, {_WAITS}",
    f"CREATE INDEX codemode_requests_by_tool_of_all ON codemode_requests (tool_name, {_WAITS}",
)


# Rows of labels and requests say of their record what is asked with them. Its tenant, app and place stay for ever; its
# state and its expiry are followed by the database itself, whichever statement changes them.

FILL_LABELS = "fill the labels"
FOLLOW_RECORDS = "follow the records"
IS_OPEN = "CASE WHEN {}state IN ('pending', 'resuming') THEN 1 ELSE 0 END"
"""Whether somebody may decide about the requests of a record that wait."""

_OF_RECORD = "FROM codemode_records r WHERE r.id = codemode_requests.record_id"
_LABELS = "ON codemode_labels (label,"

LISTING = (
    "ALTER TABLE codemode_requests ADD COLUMN expires_at_ms BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE codemode_requests ADD COLUMN is_open BIGINT NOT NULL DEFAULT 0",
    (
        f"UPDATE codemode_requests SET expires_at_ms = (SELECT r.expires_at_ms {_OF_RECORD}),"
        f" is_open = (SELECT {IS_OPEN.format('r.')} {_OF_RECORD})"
    ),
    "DROP INDEX codemode_requests_by_tool",
    "DROP INDEX codemode_requests_by_tool_of_all",
    *(
        f"CREATE INDEX codemode_requests_{name} ON codemode_requests ({columns}, app, is_open) WHERE state = 'waiting'"
        for name, columns in (
            ("by_tool", "tenant, tool_name, position"),
            ("by_tool_of_all", "tool_name, position"),
            ("by_tool_and_expiry", "tenant, tool_name, expires_at_ms, position"),
            ("by_tool_and_expiry_of_all", "tool_name, expires_at_ms, position"),
            ("by_tenant", "tenant, position"),
            ("by_position", "position"),
            ("by_expiry", "tenant, expires_at_ms, position"),
            ("by_expiry_of_all", "expires_at_ms, position"),
        )
    ),
    (
        "CREATE TABLE codemode_labels (record_id TEXT NOT NULL, label TEXT NOT NULL, tenant TEXT NOT NULL,"
        " app TEXT NOT NULL, position BIGINT NOT NULL, state TEXT NOT NULL, expires_at_ms BIGINT NOT NULL,"
        " PRIMARY KEY (record_id, label)){clustered}"
    ),
    FILL_LABELS,
    f"CREATE INDEX codemode_labels_by_tenant {_LABELS} tenant, state, position, app)",
    f"CREATE INDEX codemode_labels_by_position {_LABELS} state, position, app)",
    f"CREATE INDEX codemode_labels_by_expiry {_LABELS} tenant, state, expires_at_ms, position, app)",
    f"CREATE INDEX codemode_labels_by_expiry_of_all {_LABELS} state, expires_at_ms, position, app)",
    FOLLOW_RECORDS,
)

_FOLLOWED = (
    "UPDATE codemode_labels SET state = NEW.state, expires_at_ms = NEW.expires_at_ms WHERE record_id = NEW.id;",
    (
        f"UPDATE codemode_requests SET is_open = {IS_OPEN.format('NEW.')}, expires_at_ms = NEW.expires_at_ms"
        f" WHERE record_id = NEW.id AND (is_open <> {IS_OPEN.format('NEW.')} OR expires_at_ms <> NEW.expires_at_ms);"
    ),
)
FOLLOWED = " ".join(_FOLLOWED)
"""What a trigger does for a record of which the state or the expiry is another now."""

CHANGED = "(OLD.state <> NEW.state OR OLD.expires_at_ms <> NEW.expires_at_ms)"


_DIGITS = 32
_FILLED_AT_ONCE = 1000


def label_key(name: str, text: str) -> str:
    """Return what a label is found by."""
    return content_digest([name, text])[:_DIGITS]


def insert_labels(session: Session, labels: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """Let records, which are there, be found by their labels."""
    session.each(
        "INSERT INTO codemode_labels (record_id, label, tenant, app, position, state, expires_at_ms)"
        " SELECT id, ?, tenant, app, position, state, expires_at_ms FROM codemode_records WHERE id = ?",
        ((label_key(name, text), record_id) for record_id, said in labels for name, text in said.items()),
    )


def fill_labels(session: Session) -> None:
    """Let all records that there are be found by theirs."""
    last = ""
    while True:
        found = session.rows(
            "SELECT id, labels FROM codemode_records WHERE id > ? AND labels <> '{}' ORDER BY id LIMIT ?",
            *(last, _FILLED_AT_ONCE),
        )
        if not found:
            return
        insert_labels(session, ((record_id, json.loads(text)) for record_id, text in found))
        last = found[-1][0]


_VERSION_1 = (
    (
        "CREATE TABLE codemode_records (id TEXT PRIMARY KEY, position BIGINT NOT NULL, version BIGINT NOT NULL,"
        " state TEXT NOT NULL, outer_tool TEXT NOT NULL, tenant TEXT NOT NULL, app TEXT NOT NULL, labels TEXT NOT NULL,"
        " source TEXT, payload TEXT, created_at_ms BIGINT NOT NULL, expires_at_ms BIGINT NOT NULL, ended_at_ms BIGINT,"
        " interrupt TEXT, outcome TEXT, owner TEXT, claim BIGINT NOT NULL, ready_at_ms BIGINT)"
    ),
    "CREATE INDEX codemode_records_by_tenant ON codemode_records (tenant, position)",
    "CREATE INDEX codemode_records_by_position ON codemode_records (position)",
    "CREATE INDEX codemode_records_by_state ON codemode_records (tenant, state, position)",
    "CREATE INDEX codemode_records_by_state_of_all ON codemode_records (state, position)",
    "CREATE INDEX codemode_records_by_expiry ON codemode_records (state, expires_at_ms)",
    "CREATE INDEX codemode_records_by_readiness ON codemode_records (ready_at_ms)",
    "CREATE INDEX codemode_records_by_end ON codemode_records (ended_at_ms)",
    (
        "CREATE TABLE codemode_requests (interrupt_id TEXT PRIMARY KEY, record_id TEXT NOT NULL,"
        " ordinal BIGINT NOT NULL, kind TEXT NOT NULL, tool_name TEXT NOT NULL, input TEXT NOT NULL,"
        " payload TEXT NOT NULL, input_schema TEXT,"
        " description TEXT NOT NULL, annotations TEXT, state TEXT NOT NULL, decision TEXT, actor TEXT,"
        " decided_at_ms BIGINT, refusal TEXT, is_taken BIGINT NOT NULL)"
    ),
    "CREATE INDEX codemode_requests_by_record ON codemode_requests (record_id, ordinal)",
    (
        "CREATE TABLE codemode_versions (nonce TEXT PRIMARY KEY, record_id TEXT NOT NULL, version BIGINT NOT NULL,"
        " created_at_ms BIGINT NOT NULL, interrupt_ids TEXT NOT NULL)"
    ),
    "CREATE INDEX codemode_versions_by_record ON codemode_versions (record_id, version)",
    (
        "CREATE TABLE codemode_changes (sequence BIGINT PRIMARY KEY, record_id TEXT NOT NULL, tenant TEXT NOT NULL,"
        " kind TEXT NOT NULL)"
    ),
    "CREATE INDEX codemode_changes_by_tenant ON codemode_changes (tenant, sequence)",
    "CREATE INDEX codemode_changes_by_record ON codemode_changes (record_id)",
)

_APPEND_ONLY = "append-only"
_VERSION_2 = (
    *JOURNALS,
    "ALTER TABLE codemode_requests ADD COLUMN shown TEXT",
    "ALTER TABLE codemode_store ADD COLUMN audit_sequence BIGINT NOT NULL DEFAULT 0",
    f"ALTER TABLE codemode_store ADD COLUMN audit_hash TEXT NOT NULL DEFAULT '{BEGINNING}'",
    (
        "CREATE TABLE codemode_audit (sequence BIGINT PRIMARY KEY, tenant TEXT, record_id TEXT, previous TEXT NOT NULL,"
        " hash TEXT NOT NULL, body TEXT NOT NULL)"
    ),
    "CREATE INDEX codemode_audit_by_tenant ON codemode_audit (tenant, sequence)",
    "CREATE INDEX codemode_audit_by_record ON codemode_audit (record_id, sequence)",
    _APPEND_ONLY,
    *INDEXES,
    "ALTER TABLE codemode_requests ADD COLUMN at_line BIGINT",
    "ALTER TABLE codemode_requests ADD COLUMN at_column BIGINT",
    "ALTER TABLE codemode_records ADD COLUMN rests_until_ms BIGINT",
    "ALTER TABLE codemode_records ADD COLUMN not_resumable TEXT",
    "ALTER TABLE codemode_records ADD COLUMN refusals BIGINT NOT NULL DEFAULT 0",
)

_VERSION_3 = (*OUTBOXES, *LISTING, *RESUMED)

_VERSION_4 = CONTENT

_VERSION_5 = COUNTED_LINES

_VERSION_6 = SAVED_PROGRAMS

UPGRADES: tuple[tuple[str, ...], ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6)
"""What makes each version of the tables out of the one before. A ``{clustered}`` table lies in its primary key.

``{blob}`` is the type of bytes."""

_WORK: dict[str, Callable[[Session], None]] = {
    _APPEND_ONLY: lambda session: session.keep_lines(),
    FILL_LABELS: fill_labels,
    FOLLOW_RECORDS: lambda session: session.follow_records(),
    COUNT_LINES: lambda session: session.count_lines(),
}
_COUNTER = "CREATE TABLE codemode_store (one BIGINT PRIMARY KEY, version BIGINT NOT NULL, sequence BIGINT NOT NULL)"


def bring_up_to_date(session: Session) -> None:
    """Make the tables, or those of an older version into this one's, in the caller's transaction.

    Raises `StoreUnavailableError` for tables of a newer version.
    """
    # Asked first: whoever uses the store may be allowed to make no tables at all.
    if not session.has_tables():
        session.run(_COUNTER)
    found = session.one("SELECT version FROM codemode_store")
    version = 0 if found is None else found[0]
    if version > len(UPGRADES):
        raise StoreUnavailableError(
            f"the store's tables are of version {version}, and this codemode knows those up to {len(UPGRADES)}:"
            " a newer one has opened it. Use that one here too, or give this one a database of its own"
        )
    for statements in UPGRADES[version:]:
        for statement in statements:
            if statement in _WORK:
                _WORK[statement](session)
            else:
                dialect = session.dialect
                session.run(statement.replace("{clustered}", dialect.clustered).replace("{blob}", dialect.blob))
    if found is None:
        session.run("INSERT INTO codemode_store (one, version, sequence) VALUES (1, ?, 0)", len(UPGRADES))
    elif version < len(UPGRADES):
        session.run("UPDATE codemode_store SET version = ?", len(UPGRADES))
