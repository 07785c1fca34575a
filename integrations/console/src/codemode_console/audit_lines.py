"""Lines of the audit: found for whoever looks, and told. Somebody may have changed them: each may say anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, cast

from markupsafe import Markup

from codemode import AuditLine, InterruptStore
from codemode.plugins import LARGE_CHARACTERS, Tenants, run_check

from .decisions import told_words
from .diff import DiffLine, told_diff
from .errors import Problem
from .moments import moment
from .visible import Cut, cut

PAGE = 50
MOST_SCANNED = 1000
"""So many lines are looked at for one page."""
DECISIONS = ("decided", "withdrawn", "closed", "run_again")
"""Kinds of lines of what somebody has decided."""
_FIELDS = tuple(one.name for one in fields(AuditLine))
_SHOWN_APART = frozenset({"sequence", "at_ms", "kind", "actor", "tenant", "record_id", "address", "diff", "details"})
_NAME = re.compile("[A-Za-z0-9_-]{1,200}")
_PROOF = frozenset({"salt", "previous", "hash"})


@dataclass(frozen=True, slots=True)
class Found:
    """Lines, the newest first. ``next`` is the sequence behind which there may be more; None at the end."""

    lines: tuple[AuditLine, ...]
    next: int | None


async def find(
    store: InterruptStore, tenant: Tenants, after: str | None, fits: Callable[[AuditLine], bool] | None = None
) -> Found:
    """Return a page of lines, of at most `MOST_SCANNED` that are looked at. Raises `Problem` 400 for no such page."""
    found: list[AuditLine] = []
    scanned, last = 0, None
    most = PAGE + 1 if fits is None else MOST_SCANNED
    async for line in store.audit(tenant=tenant, newest_first=True, after=cursor_of(after), limit=most):
        scanned += 1
        if fits is None or fits(line):
            if len(found) == PAGE:
                return Found(tuple(found), last)
            found.append(line)
        last = line.sequence
    return Found(tuple(found), last if scanned == most else None)


def cursor_of(text: str | None) -> int | None:
    """Read where a page begins. Raises `Problem` 400."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Problem(400, "There is no such page")
    return int(text)


def line_json(line: AuditLine) -> dict[str, Any]:
    """Return all of a line under its own names: what its hash is made of, and the hash."""
    return {name: getattr(line, name) for name in _FIELDS}


async def lines_text(lines: Sequence[AuditLine]) -> str:
    """Return each as one line of ASCII JSON, whatever it holds. Made off the event loop, too."""
    return await run_check(LARGE_CHARACTERS, lambda: "".join(map(_line_text, lines)))


def _line_text(line: AuditLine) -> str:
    return json.dumps(line_json(line), separators=(",", ":"), default=repr) + "\n"


@dataclass(frozen=True, slots=True)
class Told:
    """One line for a page: all of it is text to be shown as such, but ``when``, ``diff`` and ``details``.

    ``said`` is what was decided, in the words of cards.
    """

    sequence: str
    when: Markup
    kind: str
    actor: str
    tenant: str
    address: str
    record_id: str
    has_page: bool
    tool: str
    said: str
    reason: Cut | None
    diff: tuple[DiffLine, ...]
    details: Cut | None


async def told(lines: Sequence[AuditLine]) -> list[Told]:
    """Return lines for a page, made off the event loop: nobody knows how much is in them."""
    return await run_check(LARGE_CHARACTERS, lambda: [_told(line) for line in lines])


def _told(line: AuditLine) -> Told:
    more = {name: getattr(line, name) for name in _FIELDS if name not in _SHOWN_APART | _PROOF}
    said = {name: value for name, value in more.items() if value not in (None, "", (), {})}
    if line.details:
        said["details"] = line.details
    if line.diff:
        said["diff"] = list(line.diff)
    return Told(
        sequence=_text(line.sequence),
        when=moment(line.at_ms) if type(line.at_ms) is int else Markup(),
        kind=_text(line.kind),
        actor=_text(line.actor),
        tenant=_text(line.tenant),
        address=_text(line.address),
        record_id=_text(line.record_id),
        has_page=_NAME.fullmatch(_text(line.record_id)) is not None,
        tool=_text(line.tool_name),
        said=told_words(_text(line.decision) or _text(line.kind)),
        reason=cut(_text(line.reason)) if line.reason else None,
        diff=tuple(told_diff([one for one in line.diff if isinstance(cast("Any", one), Mapping)])),
        details=cut(json.loads(json.dumps(said, default=repr))) if said else None,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else repr(value)[:200]
