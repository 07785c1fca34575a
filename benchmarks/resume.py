"""What a resume costs by the length of its ledger, and how large an interrupt is on the wire in each form."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

from codemode import Interrupt, Tool, WorkerPool, continue_interrupt, run_code_mode
from codemode.stores import MemoryResumeGuard

ENTRIES = (16, 64, 256)
ROUNDS = 30
FORMS: dict[str, dict[str, bool]] = {
    "plain": {},
    "deflate": {"compress": True},
    "sealed": {"seal": True},
    "sealed+deflate": {"seal": True, "compress": True},
}
# An ordinary record, some 120 bytes of JSON.
PROGRAM = """
const found = [];
for (let n = 1; n < %d; n++) found.push(await tools.lookUp({ id: n }));
await tools.refund({ amount: 900 });
return found.length;
"""


async def look_up(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record."""
    number = value["id"]
    return {"id": number, "customer": f"customer-{number}@example.com", "item": "headphones", "price": 129.0 + number}


async def refund(_value: object) -> str:
    """Do nothing that takes time."""
    return "refunded"


TOOLS = [Tool("lookUp", execute=look_up), Tool("refund", execute=refund, needs_approval=True)]


def options(form: Mapping[str, bool]) -> dict[str, Any]:
    """Return options with a guard of their own, and limits that let the longest ledger through."""
    return {
        "approval": {"mode": "interrupt"},
        "execution_policy": {"max_bridge_requests": max(ENTRIES)},
        "continuation": {**form, "guard": MemoryResumeGuard()},
    }


async def resume_ms(
    entries: int, form: Mapping[str, bool], pool: WorkerPool, rounds: int = ROUNDS
) -> tuple[float, int]:
    """Return the shortest time of a resume in milliseconds and the bytes of the interrupt's JSON."""
    times: list[float] = []
    size = 0
    for _ in range(rounds):
        given = options(form)
        interrupt = await run_code_mode(PROGRAM % entries, TOOLS, options=given, pool=pool)
        text = json.dumps(interrupt.to_dict(), separators=(",", ":"))
        size = len(text)
        await asyncio.sleep(0.005)  # the spare worker is ready again
        started = time.perf_counter()
        paused = Interrupt.from_dict(json.loads(text))
        result = await continue_interrupt(paused, {"approved": True}, tools=TOOLS, options=given, pool=pool)
        times.append(time.perf_counter() - started)
        assert result == entries - 1
    return min(times) * 1000, size


async def measure(pool: WorkerPool) -> None:
    """Print one row per form and length; the cost per entry is that of what is beyond the shortest."""
    print(f"{'form':>15} {'entries':>8} {'resume ms':>10} {'us/entry':>9} {'bytes':>8} {'bytes/entry':>12}")
    for name, form in FORMS.items():
        shortest_ms, shortest_size = 0.0, 0
        for entries in ENTRIES:
            took_ms, size = await resume_ms(entries, form, pool)
            if entries == ENTRIES[0]:
                shortest_ms, shortest_size = took_ms, size
                print(f"{name:>15} {entries:>8} {took_ms:>10.2f} {'':>9} {size:>8} {'':>12}")
                continue
            more = entries - ENTRIES[0]
            per_entry_us = (took_ms - shortest_ms) / more * 1000
            per_entry_bytes = (size - shortest_size) / more
            print(f"{name:>15} {entries:>8} {took_ms:>10.2f} {per_entry_us:>9.1f} {size:>8} {per_entry_bytes:>12.1f}")


def main() -> None:
    """Measure on a pool of its own."""
    pool = WorkerPool()
    try:
        asyncio.run(measure(pool))
    finally:
        pool.close()


if __name__ == "__main__":
    main()
