"""The tables, indexes and migrations of a store, for all databases."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from .audit import GENESIS_HASH, compute_json_digest
from .errors import StoreUnavailableError

if TYPE_CHECKING:
    from .transaction import Session


CONTENT_TABLES = (
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


# They stay until their record is purged: each version is sent to a target once.

OUTBOX_TABLES = (
    "CREATE TABLE codemode_outboxes (target TEXT PRIMARY KEY, sequence BIGINT NOT NULL)",
    (
        "CREATE TABLE codemode_notices (record_id TEXT NOT NULL, version BIGINT NOT NULL, target TEXT NOT NULL,"
        " tenant TEXT NOT NULL, state TEXT NOT NULL, attempts BIGINT NOT NULL, number BIGINT NOT NULL,"
        " ready_at_ms BIGINT, error TEXT, changed_at_ms BIGINT NOT NULL, PRIMARY KEY (record_id, version, target))"
    ),
    ("CREATE INDEX codemode_notices_to_send ON codemode_notices (target, ready_at_ms) WHERE ready_at_ms IS NOT NULL"),
)


# ``written`` counts the groups of a journal, so that a journal whose lines were deleted is refused.

JOURNAL_TABLES = (
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
COUNT_LINE_SQL = "UPDATE codemode_journals SET written = written + 1 WHERE id = NEW.journal;"
COUNT_LINES_STEPS = (
    "ALTER TABLE codemode_journals ADD COLUMN written BIGINT NOT NULL DEFAULT 0",
    (
        "UPDATE codemode_journals SET written ="
        " (SELECT count(*) FROM codemode_journal_lines l WHERE l.journal = codemode_journals.id)"
    ),
    COUNT_LINES,
)


SAVED_PROGRAM_TABLES = (
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


# Within an index of tenants an app filters little, so it is a plain column there. Claimable records are few and queried
# at every change: each of these queries has its own index.

_REPLACED_INDEXES = ("tenant", "position", "state", "state_of_all", "readiness")
_ON_RECORDS = "ON codemode_records"
_READY_COLUMN = "ready_at_ms) WHERE ready_at_ms IS NOT NULL"
_WAITING_COLUMNS = "position, app) WHERE state = 'waiting'"

RESUMED_STEPS = (
    "ALTER TABLE codemode_records ADD COLUMN resumed_by TEXT",
    "ALTER TABLE codemode_records ADD COLUMN resumed_at_ms BIGINT",
    (
        f"CREATE INDEX codemode_records_by_resumed {_ON_RECORDS} (tenant, app, resumed_at_ms)"
        " WHERE resumed_at_ms IS NOT NULL"
    ),
)
"""Who last started to resume a record: its owner column is cleared on release."""

INDEX_STEPS = (
    *(f"DROP INDEX codemode_records_by_{name}" for name in _REPLACED_INDEXES),
    f"CREATE INDEX codemode_records_by_tenant {_ON_RECORDS} (tenant, position, app) WHERE state <> 'resting'",
    f"CREATE INDEX codemode_records_by_position {_ON_RECORDS} (position, app) WHERE state <> 'resting'",
    f"CREATE INDEX codemode_records_by_state {_ON_RECORDS} (tenant, state, position, app)",
    f"CREATE INDEX codemode_records_by_state_of_all {_ON_RECORDS} (state, position, app)",
    f"CREATE INDEX codemode_records_to_claim {_ON_RECORDS} (tenant, app, {_READY_COLUMN}",
    f"CREATE INDEX codemode_records_to_claim_of_tenant {_ON_RECORDS} (tenant, {_READY_COLUMN}",
    f"CREATE INDEX codemode_records_to_claim_of_app {_ON_RECORDS} (app, {_READY_COLUMN}",
    f"CREATE INDEX codemode_records_to_claim_of_all {_ON_RECORDS} ({_READY_COLUMN}",
    # Columns of the record that queries by tool need.
    "ALTER TABLE codemode_requests ADD COLUMN tenant TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE codemode_requests ADD COLUMN app TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE codemode_requests ADD COLUMN position BIGINT NOT NULL DEFAULT 0",
    *(
        f"UPDATE codemode_requests SET {name} ="
        f" (SELECT r.{name} FROM codemode_records r WHERE r.id = codemode_requests.record_id)"
        for name in ("tenant", "app", "position")
    ),
    f"CREATE INDEX codemode_requests_by_tool ON codemode_requests (tenant, tool_name, {_WAITING_COLUMNS}",
    f"CREATE INDEX codemode_requests_by_tool_of_all ON codemode_requests (tool_name, {_WAITING_COLUMNS}",
)


# Labels and requests repeat columns of their record that queries need. Tenant, app and position never change; state and
# expiry are updated by triggers.

FILL_LABELS = "fill the labels"
FOLLOW_RECORDS = "follow the records"
IS_OPEN = "CASE WHEN {}state IN ('pending', 'resuming') THEN 1 ELSE 0 END"
"""Whether the waiting requests of a record can be decided."""

_OF_RECORD = "FROM codemode_records r WHERE r.id = codemode_requests.record_id"
_ON_LABELS = "ON codemode_labels (label,"

LISTING_STEPS = (
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
    f"CREATE INDEX codemode_labels_by_tenant {_ON_LABELS} tenant, state, position, app)",
    f"CREATE INDEX codemode_labels_by_position {_ON_LABELS} state, position, app)",
    f"CREATE INDEX codemode_labels_by_expiry {_ON_LABELS} tenant, state, expires_at_ms, position, app)",
    f"CREATE INDEX codemode_labels_by_expiry_of_all {_ON_LABELS} state, expires_at_ms, position, app)",
    FOLLOW_RECORDS,
)

_FOLLOW_STATEMENTS = (
    "UPDATE codemode_labels SET state = NEW.state, expires_at_ms = NEW.expires_at_ms WHERE record_id = NEW.id;",
    (
        f"UPDATE codemode_requests SET is_open = {IS_OPEN.format('NEW.')}, expires_at_ms = NEW.expires_at_ms"
        f" WHERE record_id = NEW.id AND (is_open <> {IS_OPEN.format('NEW.')} OR expires_at_ms <> NEW.expires_at_ms);"
    ),
)
FOLLOW_RECORD_SQL = " ".join(_FOLLOW_STATEMENTS)
"""The trigger's statements for a record whose state or expiry has changed."""

RECORD_CHANGED_CONDITION = "(OLD.state <> NEW.state OR OLD.expires_at_ms <> NEW.expires_at_ms)"


_LABEL_KEY_DIGITS = 32
_LABELS_PER_BATCH = 1000


def compute_label_key(name: str, text: str) -> str:
    """Return the key of a label."""
    return compute_json_digest([name, text])[:_LABEL_KEY_DIGITS]


def insert_labels(session: Session, labels: Iterable[tuple[str, Mapping[str, str]]]) -> None:
    """Insert the labels of existing records."""
    session.execute_many(
        "INSERT INTO codemode_labels (record_id, label, tenant, app, position, state, expires_at_ms)"
        " SELECT id, ?, tenant, app, position, state, expires_at_ms FROM codemode_records WHERE id = ?",
        ((compute_label_key(name, text), record_id) for record_id, texts in labels for name, text in texts.items()),
    )


def insert_labels_of_all_records(session: Session) -> None:
    """Insert the labels of all records."""
    last = ""
    while True:
        rows = session.fetch_all(
            "SELECT id, labels FROM codemode_records WHERE id > ? AND labels <> '{}' ORDER BY id LIMIT ?",
            *(last, _LABELS_PER_BATCH),
        )
        if not rows:
            return
        insert_labels(session, ((record_id, json.loads(text)) for record_id, text in rows))
        last = rows[-1][0]


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
    *JOURNAL_TABLES,
    "ALTER TABLE codemode_requests ADD COLUMN shown TEXT",
    "ALTER TABLE codemode_store ADD COLUMN audit_sequence BIGINT NOT NULL DEFAULT 0",
    f"ALTER TABLE codemode_store ADD COLUMN audit_hash TEXT NOT NULL DEFAULT '{GENESIS_HASH}'",
    (
        "CREATE TABLE codemode_audit (sequence BIGINT PRIMARY KEY, tenant TEXT, record_id TEXT, previous TEXT NOT NULL,"
        " hash TEXT NOT NULL, body TEXT NOT NULL)"
    ),
    "CREATE INDEX codemode_audit_by_tenant ON codemode_audit (tenant, sequence)",
    "CREATE INDEX codemode_audit_by_record ON codemode_audit (record_id, sequence)",
    _APPEND_ONLY,
    *INDEX_STEPS,
    "ALTER TABLE codemode_requests ADD COLUMN at_line BIGINT",
    "ALTER TABLE codemode_requests ADD COLUMN at_column BIGINT",
    "ALTER TABLE codemode_records ADD COLUMN rests_until_ms BIGINT",
    "ALTER TABLE codemode_records ADD COLUMN not_resumable TEXT",
    "ALTER TABLE codemode_records ADD COLUMN refusals BIGINT NOT NULL DEFAULT 0",
)

_VERSION_3 = (*OUTBOX_TABLES, *LISTING_STEPS, *RESUMED_STEPS)

_VERSION_4 = CONTENT_TABLES

_VERSION_5 = COUNT_LINES_STEPS

_VERSION_6 = SAVED_PROGRAM_TABLES

UPGRADES: tuple[tuple[str, ...], ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5, _VERSION_6)
"""The statements that create each version of the tables from the previous one.

``{clustered}`` makes a table an index-organized one. ``{blob}`` is the type of bytes.
"""

_PYTHON_STEPS: dict[str, Callable[[Session], None]] = {
    _APPEND_ONLY: lambda session: session.create_append_only_triggers(),
    FILL_LABELS: insert_labels_of_all_records,
    FOLLOW_RECORDS: lambda session: session.create_state_copy_triggers(),
    COUNT_LINES: lambda session: session.create_journal_line_count_triggers(),
}
_COUNTER = "CREATE TABLE codemode_store (one BIGINT PRIMARY KEY, version BIGINT NOT NULL, sequence BIGINT NOT NULL)"


def create_or_migrate_tables(session: Session) -> None:
    """Create the tables or migrate them to the current version, in the caller's transaction.

    Raises `StoreUnavailableError` for tables of a newer version.
    """
    # First, as the database user may not have the right to create tables.
    if not session.has_tables():
        session.run(_COUNTER)
    row = session.fetch_one("SELECT version FROM codemode_store")
    version = 0 if row is None else row[0]
    if version > len(UPGRADES):
        raise StoreUnavailableError(
            f"the store's tables have version {version}, but this codemode supports up to {len(UPGRADES)}: a newer"
            " version has opened it. Upgrade codemode here, or use another database"
        )
    for statements in UPGRADES[version:]:
        for statement in statements:
            if statement in _PYTHON_STEPS:
                _PYTHON_STEPS[statement](session)
            else:
                dialect = session.dialect
                session.run(
                    statement.replace("{clustered}", dialect.clustered_suffix).replace("{blob}", dialect.blob_type)
                )
    if row is None:
        session.run("INSERT INTO codemode_store (one, version, sequence) VALUES (1, ?, 0)", len(UPGRADES))
    elif version < len(UPGRADES):
        session.run("UPDATE codemode_store SET version = ?", len(UPGRADES))
