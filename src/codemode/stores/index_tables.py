"""Indexes of what is asked of records, so that no question looks at what it does not ask for.

An app is compared within an index: beside a tenant it leaves out little. What can be claimed is little of all there is,
and is looked for at every change: there each question has its own.
"""

from __future__ import annotations

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
