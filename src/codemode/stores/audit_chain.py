"""Find the first change in the chain of an audit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from ..host.job_threads import run_in_dedicated_thread
from ..records import record
from .audit import GENESIS_HASH, AuditLine, compute_line_hash, parse_chain_head
from .records import ALL_TENANTS

if TYPE_CHECKING:
    from .interrupt_store import InterruptStore

_LINES_PER_PAGE = 100


@record
class BadLine:
    """The first broken line of an audit's chain.

    ``reason`` is "changed"; "missing": no line has this number; or "rewritten": the chain is consistent but differs
    from the saved head, from this line or an earlier one on. ``line`` is the line found there, if any.
    """

    sequence: int
    reason: Literal["changed", "missing", "rewritten"]
    line: AuditLine | None


async def verify_audit(store: InterruptStore, head: str | None = None) -> BadLine | None:
    """Return the first changed or missing line of a store's audit; None for an intact chain.

    A chain that was rewritten or cut as a whole is detected only with a ``head`` from `InterruptStore.audit_head` that
    was saved out of reach of the database's writers. Reads all lines in pages, off the event loop. Raises `ValueError`
    for an invalid ``head``.
    """
    saved_head = parse_chain_head(head) if isinstance(head, str) else None
    if head is not None and saved_head is None:
        raise ValueError(f"head must be what audit_head() gave, got {head!r}")
    current_head = parse_chain_head(await store.audit_head())
    verifier = _ChainVerifier(
        [expected_head for expected_head in (saved_head, current_head) if expected_head is not None]
    )
    while True:
        page = [line async for line in store.audit(tenant=ALL_TENANTS, after=verifier.sequence, limit=_LINES_PER_PAGE)]
        bad = await run_in_dedicated_thread(lambda page=page: verifier.verify_lines(page), "codemode-audit")
        if bad is not None:
            return bad
        if len(page) < _LINES_PER_PAGE:
            return verifier.find_missing_end() or (BadLine(0, "changed", None) if current_head is None else None)


class _ChainVerifier:
    """Verifies a chain line by line. ``heads`` are numbers and hashes of lines that it must contain."""

    def __init__(self, heads: Iterable[tuple[int, str]]) -> None:
        self._heads = list(heads)
        self._last: AuditLine | None = None
        self.sequence = 0

    def verify_lines(self, lines: Iterable[AuditLine]) -> BadLine | None:
        """Check the next lines."""
        for line in lines:
            bad = self._verify_line(line)
            if bad is not None:
                return bad
            self._last, self.sequence = line, line.sequence
        return None

    def find_missing_end(self) -> BadLine | None:
        """Return what is missing after the last line."""
        if any(number > self.sequence for number, _ in self._heads):
            return BadLine(self.sequence + 1, "missing", None)
        return None

    def _verify_line(self, line: AuditLine) -> BadLine | None:
        expected = self.sequence + 1
        if line.sequence != expected:
            return BadLine(expected, "missing", None)
        if compute_line_hash(line) != line.hash:
            return BadLine(expected, "changed", line)
        if line.previous != (self._last.hash if self._last is not None else GENESIS_HASH):
            # This line is intact: the previous one was changed together with its hash.
            return BadLine(self.sequence or expected, "changed", self._last or line)
        if any(number == expected and head_hash != line.hash for number, head_hash in self._heads):
            return BadLine(expected, "rewritten", line)
        return None
