"""Pauses for tests of stores, without a program: what a store reads of an interrupt, and no more."""

from __future__ import annotations

import json
import secrets
from typing import Any

from codemode import Interrupt, PendingRequest
from codemode.continuations.guard import GuardClock
from codemode.host.clock import now_ms
from codemode.interrupts.interrupt import APPROVAL_KIND

HOUR_MS = 3_600_000
OK, NO = {"approved": True}, {"approved": False}


class Clock(GuardClock):
    """The time of a store that a test moves."""

    def __init__(self) -> None:
        self.moved_ms = 0
        self._stopped_ms: int | None = None

    def stop(self) -> None:
        """Let nothing move it but the test: on a busy machine any step may take a second of what a test counts out."""
        self._stopped_ms = now_ms()

    def now_ms(self) -> int:
        return (now_ms() if self._stopped_ms is None else self._stopped_ms) + self.moved_ms


def request(interrupt_id: str, tool: str = "refund", given: Any = None, kind: str = APPROVAL_KIND) -> PendingRequest:
    value = {"order": "a", "cents": 2**60} if given is None else given
    return PendingRequest(
        interrupt_id=interrupt_id, tool_name=tool, tool_call_id="c", input=value, payload={"kind": kind}
    )


def paused(*requests: str | PendingRequest, age_ms: int = 30 * HOUR_MS) -> Interrupt:
    """A pause in which these wait, in a continuation of its own."""
    waiting = tuple(request(one) if isinstance(one, str) else one for one in requests)
    auth = {"nonce": secrets.token_hex(8), "expiresAtMs": now_ms() + age_ms}
    return Interrupt(
        requests=waiting, outer_tool_call_id="outer", continuation={"encoding": "plain", "body": [], "auth": auth}
    )


class Catalog:
    """The tools behind one that paused, as far as a store asks."""

    name = "codeMode"

    def __init__(self, schema: Any) -> None:
        self.catalog = self
        self.input_json_schema = schema
        self.description = "Refunds an order."
        self.annotations = {"destructiveHint": True}

    def get(self, name: str) -> Any:
        return self if name == "refund" else None


def put_as_version_2(
    database: Any,
    interrupt: Interrupt,
    *,
    number: int = 0,
    state: str = "pending",
    tenant: str = "",
    labels: str = "{}",
) -> str:
    """Keep a pause in tables of version 2, as the store of then did, and return its record's id."""
    record_id, one = f"r{number}", interrupt.requests[0]
    with database.journal_transaction() as session:
        session.run(
            "INSERT INTO codemode_records (id, position, version, state, outer_tool, tenant, app, labels,"
            " created_at_ms, expires_at_ms, interrupt, claim) VALUES (?, ?, 1, ?, '', ?, '', ?, 1, ?, ?, 0)",
            *(record_id, number, state, tenant, labels, interrupt.continuation["auth"]["expiresAtMs"]),
            json.dumps(interrupt.to_dict()),
        )
        session.run(
            "INSERT INTO codemode_requests (interrupt_id, record_id, ordinal, kind, tool_name, input, payload,"
            " description, state, is_taken, shown, tenant, app, position)"
            " VALUES (?, ?, 0, ?, ?, '{}', '{}', '\"\"', 'waiting', 0, '', ?, '', ?)",
            *(one.interrupt_id, record_id, APPROVAL_KIND, one.tool_name, tenant, number),
        )
        session.run("INSERT INTO codemode_changes VALUES (?, ?, ?, 'put')", number + 1, record_id, tenant)
        session.run("UPDATE codemode_store SET sequence = ?", number + 1)
    return record_id
