"""The tables of outboxes: how far the changes were made notices, for each target, and the notices.

They stay until their record is purged: a version is told to a target once.
"""

from __future__ import annotations

OUTBOXES = (
    "CREATE TABLE codemode_outboxes (target TEXT PRIMARY KEY, sequence BIGINT NOT NULL)",
    (
        "CREATE TABLE codemode_notices (record_id TEXT NOT NULL, version BIGINT NOT NULL, target TEXT NOT NULL,"
        " tenant TEXT NOT NULL, state TEXT NOT NULL, attempts BIGINT NOT NULL, number BIGINT NOT NULL,"
        " ready_at_ms BIGINT, error TEXT, changed_at_ms BIGINT NOT NULL, PRIMARY KEY (record_id, version, target))"
    ),
    ("CREATE INDEX codemode_notices_to_send ON codemode_notices (target, ready_at_ms) WHERE ready_at_ms IS NOT NULL"),
)
