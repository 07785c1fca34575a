"""Find where the chain of an audit was first changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from ..host.job_threads import in_own_thread
from ..records import record
from .audit import BEGINNING, AuditLine, hash_of, head_of
from .records import ALL_TENANTS

if TYPE_CHECKING:
    from .interrupt_store import InterruptStore

_AT_ONCE = 100


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
    kept = head_of(head) if isinstance(head, str) else None
    if head is not None and kept is None:
        raise ValueError(f"head must be what audit_head() gave, got {head!r}")
    own = head_of(await store.audit_head())
    chain = _Chain([one for one in (kept, own) if one is not None])
    while True:
        page = [line async for line in store.audit(tenant=ALL_TENANTS, after=chain.sequence, limit=_AT_ONCE)]
        bad = await in_own_thread(lambda page=page: chain.first_bad(page), "codemode-audit")
        if bad is not None:
            return bad
        if len(page) < _AT_ONCE:
            return chain.cut() or (BadLine(0, "changed", None) if own is None else None)


class _Chain:
    """A chain as far as it was read. ``heads`` are numbers and hashes of lines that it must have."""

    def __init__(self, heads: Iterable[tuple[int, str]]) -> None:
        self._heads = list(heads)
        self._last: AuditLine | None = None
        self.sequence = 0

    def first_bad(self, lines: Iterable[AuditLine]) -> BadLine | None:
        """Go on with these lines."""
        for line in lines:
            bad = self._bad(line)
            if bad is not None:
                return bad
            self._last, self.sequence = line, line.sequence
        return None

    def cut(self) -> BadLine | None:
        """Tell what is missing behind the last line."""
        if any(number > self.sequence for number, _ in self._heads):
            return BadLine(self.sequence + 1, "missing", None)
        return None

    def _bad(self, line: AuditLine) -> BadLine | None:
        expected = self.sequence + 1
        if line.sequence != expected:
            return BadLine(expected, "missing", None)
        if hash_of(line) != line.hash:
            return BadLine(expected, "changed", line)
        if line.previous != (self._last.hash if self._last is not None else BEGINNING):
            # This one is as it was written: the one before is not, and has a hash that fits.
            return BadLine(self.sequence or expected, "changed", self._last or line)
        if any(number == expected and found != line.hash for number, found in self._heads):
            return BadLine(expected, "rewritten", line)
        return None
