"""A host of a rolling deployment, with the tools of these names: ``rolling_host.py store effects ahead_ms name...``.

By its clock, which is ahead, what was given back may be taken at once. Each call that it makes is a line of effects.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from stored_pauses import Clock

from codemode import Tool, create_code_mode_tool
from codemode.stores import ALL_TENANTS, Resumer, SqliteInterruptStore


async def main(path: str, effects: Path, ahead_ms: int, names: list[str]) -> None:
    def tool_of(name: str) -> Tool:
        async def execute(value: Any, context: Any) -> Any:
            with effects.open("a") as file:
                file.write(f"{name} {value['n']}\n")
            return value

        return Tool(name, execute=execute, needs_approval=True)

    clock = Clock()
    clock.moved_ms = ahead_ms
    store = SqliteInterruptStore(path, clock=clock)
    options = {"approval": {"mode": "interrupt"}, "continuation": {"guard": store.guard, "keys": "k"}}
    code_mode = create_code_mode_tool([tool_of(name) for name in names], options)
    async with Resumer(store, tenant=ALL_TENANTS, resume=code_mode.resume):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
