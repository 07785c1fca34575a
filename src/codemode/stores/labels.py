"""Labels of records, as lists are asked for by them, kept as digests: no database indexes texts of any length."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .audit import content_digest

if TYPE_CHECKING:
    from .session import Session

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
