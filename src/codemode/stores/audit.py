"""Lines of the audit: who decided what and what came of it, each with the hash of the one before. No database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from ..data.json_values import canonical_json, decode_json, encode_json, replace_lone_surrogates
from ..data.narrowing import is_array, is_mapping, is_object
from ..records import record

GENESIS_HASH = "0" * 64
"""What stands in the first line in place of a hash before it."""
SYSTEM = "system"
"""Who decides where nobody has."""
STORE_KINDS = frozenset(
    {
        "put",
        "decided",
        "refused",
        "paused",
        "completed",
        "failed",
        "lost",
        "closed",
        "run_again",
        "expired",
        "withdrawn",
        "purged",
        "notice_failed",
        "unreadable",
    }
)
"""The kinds of lines that a store writes by itself; `InterruptStore.note` writes all others."""
MAX_REQUESTS_IN_LINE = 50
"""Of so many requests one line tells; of more it has their number."""
_MAX_REASON_CHARACTERS = 2000
MAX_KIND_CHARACTERS = 100
MAX_DETAIL_BYTES = 16 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditLine:
    """Something that somebody has decided, or what came of it.

    ``kind`` is put, decided, refused, paused, completed, failed, lost, closed, run_again, expired, withdrawn, purged
    or notice_failed, or what `InterruptStore.note` was given.
    ``at_ms`` is Unix time by the database's clock. ``actor`` is who decided: ``system`` where time did, None where a
    program's host wrote what it came to. ``tenant`` is None for lines that belong to no tenant.
    ``decision`` is approved, edited, denied, answered, value, error or run_again, and ``reason`` its words, at most
    2,000 characters. ``shown`` is the digest of what it was about, as `InterruptStore.shown` gives it; ``digest`` the
    SHA-256 of the edited input, the answer or the outcome as canonical JSON, and ``diff`` the difference
    between the input that was shown and the edited one. ``outcome`` is what the record has come to.
    ``hash`` is the SHA-256 of all else in the line; ``salt`` keeps others from guessing what it is made of.
    """

    sequence: int
    at_ms: int
    kind: str
    actor: str | None = None
    tenant: str | None = None
    record_id: str | None = None
    interrupt_id: str | None = None
    tool_name: str | None = None
    decision: str | None = None
    reason: str | None = None
    shown: str | None = None
    digest: str | None = None
    diff: tuple[Mapping[str, Any], ...] = ()
    outcome: str | None = None
    address: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    salt: str = ""
    previous: str = GENESIS_HASH
    hash: str = ""


@record
class Attribution:
    """Who says so, why, and from where."""

    actor: str | None
    reason: str = ""
    address: str | None = None


FIELD_NAMES = tuple(audit_field.name for audit_field in fields(AuditLine))
INDEXED_COLUMNS = ("sequence", "tenant", "record_id", "previous", "hash")
"""What has a column of its own; the rest is the body."""
_BODY_FIELDS = frozenset(FIELD_NAMES) - frozenset(INDEXED_COLUMNS)


def compute_hash(line: AuditLine) -> str:
    """Return the hash that belongs into a line; "" for one that is no JSON."""
    values = {name: getattr(line, name) for name in FIELD_NAMES if name != "hash"}
    try:
        return hashlib.sha256(canonical_json(values).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return ""


def encode_body(line: AuditLine) -> str:
    """Write what has no column of its own."""
    return canonical_json({name: getattr(line, name) for name in _BODY_FIELDS})


def decode_line(sequence: Any, tenant: Any, record_id: Any, previous: Any, line_hash: Any, body: Any) -> AuditLine:
    """Read a line. Somebody may have changed it: what cannot be read is of the kind ``unreadable``."""
    values = _decode_body(body)
    if values is None:
        values = {"kind": "unreadable", "at_ms": 0}
    return AuditLine(
        sequence=sequence, tenant=tenant, record_id=record_id, previous=previous, hash=line_hash, **cast("Any", values)
    )


def _decode_body(body: Any) -> dict[str, Any] | None:
    try:
        values: Any = json.loads(body)
        if (
            is_object(values)
            and values.keys() == _BODY_FIELDS
            and is_array(values["diff"])
            and canonical_json(values) == body
        ):
            return {**values, "diff": tuple(values["diff"])}
    except (TypeError, ValueError, RecursionError):
        pass
    return None


def truncate(text: str) -> str:
    """Return a reason as a line has it."""
    if len(text) <= _MAX_REASON_CHARACTERS:
        return replace_lone_surrogates(text)
    return replace_lone_surrogates(f"{text[: _MAX_REASON_CHARACTERS - 40]}... ({len(text)} characters)")


def content_digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value in its canonical form."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def validate_note(kind: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a line that the host writes. Raises `ValueError`, `CodeModeSerializationError`."""
    if not isinstance(kind, str) or not 0 < len(kind) <= MAX_KIND_CHARACTERS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"kind must be a text of at most {MAX_KIND_CHARACTERS} characters, got {kind!r}")
    if kind in STORE_KINDS:
        raise ValueError(f"kind {kind!r} is one that the store writes by itself")
    if not is_mapping(details):
        raise ValueError(f"details must be a mapping, got {type(details).__name__}")
    return decode_json(encode_json(dict(details), max_bytes=MAX_DETAIL_BYTES, what="details"))


def format_head(sequence: int, line_hash: str) -> str:
    """Write the head of a chain: how many lines there are, and the hash of the last."""
    return f"{sequence}:{line_hash}"


def parse_head(text: str) -> tuple[int, str] | None:
    """Read what `format_head` has written; None for anything else."""
    number, _, line_hash = text.partition(":")
    if not number.isascii() or not number.isdigit() or len(number) > 18 or len(line_hash) != len(GENESIS_HASH):
        return None
    return int(number), line_hash
