"""Which notices were given up, for pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from codemode import ALL_TENANTS, FailedNotice, InterruptStore, Record


async def failures_of(store: InterruptStore, records: Iterable[Record]) -> Mapping[str, tuple[FailedNotice, ...]]:
    """Return the notices that were given up, by the ids of records that have some; one statement for all of these.

    At most 500 records, which are the visitor's to see. The ``target`` of each is a name that the host chose, and its
    ``error`` words of this package.
    """
    found: dict[str, tuple[FailedNotice, ...]] = {}
    for one in await store.failed_notices([record.id for record in records], tenant=ALL_TENANTS):
        found[one.record_id] = (*found.get(one.record_id, ()), one)
    return found
