"""Find where the chain of an audit was first changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from ..host.job_threads import run_in_own_thread
from ..records import record
from .audit import GENESIS_HASH, AuditLine, compute_hash, parse_head
from .records import ALL_TENANTS

if TYPE_CHECKING:
    from .interrupt_store import InterruptStore

_LINES_PER_PAGE = 100


@record
class BadLine:
    """Where the chain of an audit breaks first.

    ``reason`` is "changed"; "missing": there is no line of this number; or "rewritten": the chain holds, and is not
    the one of the head that was kept, from this line or from one before it on. ``line`` is what stands there, if
    anything does.
    """

    sequence: int
    reason: Literal["changed", "missing", "rewritten"]
    line: AuditLine | None


async def verify_audit(store: InterruptStore, head: str | None = None) -> BadLine | None:
    """Return where the audit of a store was first changed, or where a line was left out; None for a whole one.

    Only with a ``head`` that `InterruptStore.audit_head` gave before, and that was kept where whoever could write to
    the database could not, a chain that was rewritten or cut as a whole shows. All lines are read, in pages, off the
    event loop. Raises `ValueError` for a ``head`` that is none.
    """
    saved_head = parse_head(head) if isinstance(head, str) else None
    if head is not None and saved_head is None:
        raise ValueError(f"head must be what audit_head() gave, got {head!r}")
    current_head = parse_head(await store.audit_head())
    verifier = _ChainVerifier([known_head for known_head in (saved_head, current_head) if known_head is not None])
    while True:
        page = [line async for line in store.audit(tenant=ALL_TENANTS, after=verifier.sequence, limit=_LINES_PER_PAGE)]
        bad = await run_in_own_thread(lambda page=page: verifier.check_lines(page), "codemode-audit")
        if bad is not None:
            return bad
        if len(page) < _LINES_PER_PAGE:
            return verifier.check_end() or (BadLine(0, "changed", None) if current_head is None else None)


class _ChainVerifier:
    """A chain as far as it was read. ``heads`` are numbers and hashes of lines that it must have."""

    def __init__(self, heads: Iterable[tuple[int, str]]) -> None:
        self._heads = list(heads)
        self._last: AuditLine | None = None
        self.sequence = 0

    def check_lines(self, lines: Iterable[AuditLine]) -> BadLine | None:
        """Go on with these lines."""
        for line in lines:
            bad = self._check_line(line)
            if bad is not None:
                return bad
            self._last, self.sequence = line, line.sequence
        return None

    def check_end(self) -> BadLine | None:
        """Tell what is missing behind the last line."""
        if any(number > self.sequence for number, _ in self._heads):
            return BadLine(self.sequence + 1, "missing", None)
        return None

    def _check_line(self, line: AuditLine) -> BadLine | None:
        expected = self.sequence + 1
        if line.sequence != expected:
            return BadLine(expected, "missing", None)
        if compute_hash(line) != line.hash:
            return BadLine(expected, "changed", line)
        if line.previous != (self._last.hash if self._last is not None else GENESIS_HASH):
            # This one is as it was written: the one before is not, and has a hash that fits.
            return BadLine(self.sequence or expected, "changed", self._last or line)
        if any(number == expected and head_hash != line.hash for number, head_hash in self._heads):
            return BadLine(expected, "rewritten", line)
        return None
