"""A host in a process of its own that writes a journal, one line for each it is told, until it is killed."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from codemode.stores import PostgresInterruptStore, SqliteInterruptStore


async def main(kind: str, where: str, key: str) -> None:
    of_kind: Any = SqliteInterruptStore if kind == "sqlite" else PostgresInterruptStore
    journal = of_kind(where).journal(tenant="acme", app="support")
    opened = await journal.open(key, "head of the child")
    print(json.dumps([opened.head, list(opened.lines), opened.is_takeover]), flush=True)
    for line in sys.stdin:
        count = int(line)
        for number in range(count):
            is_written = await journal.write(opened, [f"{count}-{number}"])
            print(json.dumps([f"{count}-{number}", is_written]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
