"""What lists are asked for by: labels, and the soonest to expire. Columns and indexes, and what fills them.

Rows of labels and requests say of their record what is asked with them. Its tenant, app and place stay for ever; its
state and its expiry are followed by the database itself, whichever statement changes them.
"""

from __future__ import annotations

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
