"""Audit lines: decisions and their outcomes, each line with the hash of the previous one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from ..data.json_values import decode_json, encode_canonical_json, encode_json, replace_lone_surrogates
from ..data.narrowing import is_array, is_mapping, is_object
from ..records import record

GENESIS_HASH = "0" * 64
"""The previous hash of the first line."""
SYSTEM = "system"
"""The actor of decisions that no person made."""
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
"""The kinds of lines that a store writes itself; `InterruptStore.add_audit_line` writes all others."""
MAX_REQUESTS_IN_LINE = 50
"""The maximum number of requests that a line lists; it always has their count."""
_MAX_REASON_CHARACTERS = 2000
MAX_KIND_CHARACTERS = 100
MAX_DETAIL_BYTES = 16 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditLine:
    """A decision or its outcome.

    ``kind`` is put, decided, refused, paused, completed, failed, lost, closed, run_again, expired, withdrawn,
    purged or notice_failed, or a kind passed to `InterruptStore.add_audit_line`. ``at_ms`` is Unix time by the
    database's clock. ``actor`` is who decided: ``system`` for a timeout, None for an outcome written by a program's
    host. ``tenant`` is None for lines that belong to no tenant. ``decision`` is approved, edited, denied, answered,
    value, error or run_again, and ``reason`` its text, at most 2,000 characters. ``shown`` is the digest of what
    the approver saw, as returned by `InterruptStore.compute_display_digest`; ``digest`` the SHA-256 of the edited
    input, the answer or the outcome as canonical JSON, and ``diff`` the difference between the displayed and the
    edited input. ``outcome`` is the new state of the record. ``hash`` is the SHA-256 of all other fields; ``salt``
    keeps its input from being guessed.
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
    """The actor, reason and address of a decision."""

    actor: str | None
    reason: str = ""
    address: str | None = None


FIELD_NAMES = tuple(audit_field.name for audit_field in fields(AuditLine))
INDEXED_COLUMNS = ("sequence", "tenant", "record_id", "previous", "hash")
"""The fields with a column of their own; the others are in the body."""
_BODY_FIELDS = frozenset(FIELD_NAMES) - frozenset(INDEXED_COLUMNS)


def compute_line_hash(line: AuditLine) -> str:
    """Return the hash of a line; "" if a field is not JSON."""
    values = {name: getattr(line, name) for name in FIELD_NAMES if name != "hash"}
    try:
        return hashlib.sha256(encode_canonical_json(values).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError):
        return ""


def encode_line_body(line: AuditLine) -> str:
    """Encode the fields without a column of their own."""
    return encode_canonical_json({name: getattr(line, name) for name in _BODY_FIELDS})


def decode_audit_line(
    sequence: Any, tenant: Any, record_id: Any, previous: Any, line_hash: Any, body: Any
) -> AuditLine:
    """Decode a line. A line that cannot be decoded, as it was changed, has the kind ``unreadable``."""
    values = _decode_line_body(body)
    if values is None:
        values = {"kind": "unreadable", "at_ms": 0}
    return AuditLine(
        sequence=sequence, tenant=tenant, record_id=record_id, previous=previous, hash=line_hash, **cast("Any", values)
    )


def _decode_line_body(body: Any) -> dict[str, Any] | None:
    try:
        values: Any = json.loads(body)
        if (
            is_object(values)
            and values.keys() == _BODY_FIELDS
            and is_array(values["diff"])
            and encode_canonical_json(values) == body
        ):
            return {**values, "diff": tuple(values["diff"])}
    except (TypeError, ValueError, RecursionError):
        pass
    return None


def truncate_for_audit(text: str) -> str:
    """Return a text cut to the length that a line allows, without lone surrogates."""
    if len(text) <= _MAX_REASON_CHARACTERS:
        return replace_lone_surrogates(text)
    return replace_lone_surrogates(f"{text[: _MAX_REASON_CHARACTERS - 40]}... ({len(text)} characters)")


def compute_json_digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value in its canonical form."""
    return hashlib.sha256(encode_canonical_json(value).encode()).hexdigest()


def validate_audit_kind_and_details(kind: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a host's line. Raises `ValueError`, `CodeModeSerializationError`."""
    if not isinstance(kind, str) or not 0 < len(kind) <= MAX_KIND_CHARACTERS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"kind must be a text of at most {MAX_KIND_CHARACTERS} characters, got {kind!r}")
    if kind in STORE_KINDS:
        raise ValueError(f"kind {kind!r} is one that the store writes by itself")
    if not is_mapping(details):
        raise ValueError(f"details must be a mapping, got {type(details).__name__}")
    return decode_json(encode_json(dict(details), max_bytes=MAX_DETAIL_BYTES, what="details"))


def format_chain_head(sequence: int, line_hash: str) -> str:
    """Format the head of a chain: the number of lines and the hash of the last."""
    return f"{sequence}:{line_hash}"


def parse_chain_head(text: str) -> tuple[int, str] | None:
    """Parse what `format_chain_head` returned; None for anything else."""
    number, _, line_hash = text.partition(":")
    if not number.isascii() or not number.isdigit() or len(number) > 18 or len(line_hash) != len(GENESIS_HASH):
        return None
    return int(number), line_hash
