"""A host whose tool never comes back, for a test that kills it: ``resumer_host.py store effects``."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from codemode import Tool, create_code_mode_tool
from codemode.stores import ALL_TENANTS, Resumer, SqliteInterruptStore


async def main(path: str, effects: Path) -> None:
    async def refund(value: Any, context: Any) -> Any:
        with effects.open("a") as file:
            file.write("refunded\n")
        await asyncio.Event().wait()

    store = SqliteInterruptStore(path)
    options = {"approval": {"mode": "interrupt"}, "continuation": {"guard": store.guard, "keys": "k"}}
    code_mode = create_code_mode_tool([Tool("refund", execute=refund, needs_approval=True)], options)
    async with Resumer(store, tenant=ALL_TENANTS, resume=code_mode.resume):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
