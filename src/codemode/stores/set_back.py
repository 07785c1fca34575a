"""What waits for a moment that a clock which was set back since will not come to for long.

A decision or a claim that lies ahead tells it. What differs so is counted from now; that nobody has two owners follows
from claims alone, and from no clock.
"""

from __future__ import annotations

from .session import Session

_DECIDED = (
    "SELECT id FROM codemode_records r WHERE r.ready_at_ms > ? AND r.state = 'pending' AND EXISTS"
    " (SELECT 1 FROM codemode_requests q WHERE q.record_id = r.id AND q.decided_at_ms > ?)"
)
_CLAIMED = (
    "SELECT id, ready_at_ms - resumed_at_ms FROM codemode_records"
    " WHERE ready_at_ms > ? AND state = 'resuming' AND resumed_at_ms > ?"
)


def bring_home(session: Session) -> None:
    """Let what was decided be ready, and leases that were claimed last for no longer than they would have."""
    now_ms = session.now_ms
    decided = session.rows(_DECIDED, now_ms, now_ms)
    session.each(
        "UPDATE codemode_records SET ready_at_ms = ? WHERE id = ?", ((now_ms, record_id) for (record_id,) in decided)
    )
    claimed = session.rows(_CLAIMED, now_ms, now_ms)
    session.each(
        "UPDATE codemode_records SET ready_at_ms = ?, resumed_at_ms = ? WHERE id = ?",
        ((now_ms + lease_ms, now_ms, record_id) for record_id, lease_ms in claimed),
    )
    session.has_news = session.has_news or bool(decided)


def left_of_lease(session: Session, journal: str, until_ms: int, signed_at_ms: int) -> int:
    """Return when the lease of a journal is over; it is counted from now where its last sign of life lies ahead."""
    if signed_at_ms <= session.now_ms:
        return until_ms
    until_ms = session.now_ms + until_ms - signed_at_ms
    statement = "UPDATE codemode_journals SET until_ms = ?, changed_at_ms = ? WHERE id = ?"
    session.run(statement, until_ms, session.now_ms, journal)
    return until_ms
