"""A host in a process of its own: does with its store what it is told, one line of JSON each, and may be killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from stored_pauses import Clock, paused

from codemode import CodeModeError
from codemode.continuations.journal import OpenedJournal
from codemode.stores import ALL_TENANTS, Lease, PostgresInterruptStore, SqliteInterruptStore

AGE_MS = 3_600_000


class Host:
    def __init__(self) -> None:
        self.clock = Clock()
        self.store: Any = None
        self.leases: list[Lease] = []
        self.journal: Any = None
        self.opened: OpenedJournal | None = None
        self.lines = 0

    async def open(self, kind: str, where: str) -> None:
        if self.store is not None:
            await self.store.aclose()
        of_kind: Any = SqliteInterruptStore if kind == "sqlite" else PostgresInterruptStore
        self.store, self.leases = of_kind(where, clock=self.clock), []
        self.journal = self.store.journal(tenant="acme", app="support")

    async def put(self, names: list[str]) -> str:
        return await self.store.put(paused(*names, age_ms=AGE_MS))

    async def decide(self, names: list[str], reason: str) -> dict[str, Any]:
        answers = {name: {"approved": True, "reason": reason} for name in names}
        made = await self.store.decide(answers, actor=reason, tenant=ALL_TENANTS)
        return {name: one.decision["reason"] for name, one in made.items()}

    async def claim(self) -> list[Any] | None:
        lease = await self.store.claim(owner="host", tenant=ALL_TENANTS)
        if lease is None:
            return None
        self.leases.append(lease)
        return [lease.record.id, lease.number, lease.is_takeover, lease.resolutions]

    async def rest(self) -> list[Any] | None:
        if not self.leases:
            return None
        lease = self.leases.pop(0)
        rested = await self.store.put_suspended(paused(age_ms=AGE_MS), lease=lease)
        if rested is None:
            return None
        self.leases.append(rested)
        return [lease.record.id, sorted(lease.resolutions)]

    async def take(self, position: int) -> list[Any] | None:
        resting = (await self.store.list(tenant=ALL_TENANTS, state="resting")).records
        if position >= len(resting):
            return None
        lease = await self.store.claim(owner="host", tenant=ALL_TENANTS, record_id=resting[position].id)
        if lease is None:
            return None
        self.leases.append(lease)
        return [lease.record.id, lease.number, lease.is_takeover, lease.resolutions]

    async def settle(self, names: list[str] | None) -> list[Any] | None:
        if not self.leases:
            return None
        lease = self.leases.pop(0)
        left = [one.interrupt_id for one in lease.record.requests if one.state in ("waiting", "decided")]
        asked = [one for one in left if one not in lease.resolutions] + [
            f"{lease.record.id[:6]}-{one}" for one in names or ()
        ]
        result = "value" if names is None else paused(*asked, age_ms=AGE_MS)
        return [lease.record.id, lease.number, await self.store.settle(lease, result), sorted(lease.resolutions)]

    async def release(self) -> bool | None:
        return await self.store.release(self.leases.pop(0)) if self.leases else None

    async def renew(self) -> bool | None:
        return await self.store.renew(self.leases[0]) if self.leases else None

    async def sweep(self) -> int:
        return await self.store.sweep(deny_before_expiry_ms=60_000)

    async def open_journal(self, again: bool) -> list[Any] | None:
        try:
            async with asyncio.timeout(0.3):  # another host may have it
                opened = await self.journal.open("k", "h", again=again)
        except TimeoutError:
            return None
        self.opened = opened if opened.number else self.opened
        return [opened.number, list(opened.lines), opened.outcome]

    async def write_lines(self, count: int) -> list[Any] | None:
        if self.opened is None:
            return None
        first, self.lines = self.lines, self.lines + count
        lines = [f"{self.opened.number}:{os.getpid()}-{first + number}" for number in range(count)]
        return [lines, await self.journal.write(self.opened, lines)]

    async def renew_journal(self) -> bool | None:
        return None if self.opened is None else await self.journal.renew(self.opened)

    async def end_journal(self, is_paused: bool) -> bool | None:
        if self.opened is None:
            return None
        if is_paused:
            return await self.journal.end(self.opened, "paused", is_final=False)
        return await self.journal.release(self.opened)


async def main() -> None:
    host = Host()
    for line in sys.stdin:
        name, moved_ms, arguments = json.loads(line)
        host.clock.moved_ms = moved_ms
        try:
            said = ["did", await getattr(host, name)(*arguments)]
        except CodeModeError as error:
            said = ["refused", type(error).__name__]
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
