"""The tables of a store, and how older ones are brought up to date. One set of statements for all databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .audit import BEGINNING
from .content_tables import CONTENT
from .errors import StoreUnavailable
from .index_tables import INDEXES, RESUMED
from .journal_tables import COUNT_LINES, COUNTED_LINES, JOURNALS
from .labels import fill_labels
from .listing_tables import FILL_LABELS, FOLLOW_RECORDS, LISTING
from .outbox_tables import OUTBOXES

if TYPE_CHECKING:
    from .session import Session

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

UPGRADES: tuple[tuple[str, ...], ...] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5)
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

    Raises `StoreUnavailable` for tables of a newer version.
    """
    # Asked first: whoever uses the store may be allowed to make no tables at all.
    if not session.has_tables():
        session.run(_COUNTER)
    found = session.one("SELECT version FROM codemode_store")
    version = 0 if found is None else found[0]
    if version > len(UPGRADES):
        raise StoreUnavailable(
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
