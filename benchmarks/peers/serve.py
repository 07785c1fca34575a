"""Answers requests to measure one Python peer, a JSON line each: `python -m benchmarks.peers.serve <peer> [cold W1]`.

`{"do": "time", "workload": "W2", "runs": 40, "gap_ms": 5}`, `{"do": "rate", "in_flight": 8, "seconds": 3}`,
`{"do": "hold", "count": 8}`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import warnings
from typing import Any

from benchmarks.measure import runs_per_second, timed
from benchmarks.peers.sandboxes import SANDBOXES, Sandbox, Tools
from benchmarks.programs import Program, by_name


class Server:
    """Measures one sandbox."""

    def __init__(self, sandbox: Sandbox, tools: Tools) -> None:
        self._sandbox = sandbox
        self._tools = tools
        self._serial = 0
        self._held: list[asyncio.Future[Any]] = []

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks."""
        if request["do"] == "time":
            return await self._time(by_name(request["workload"]), request["runs"], request["gap_ms"] / 1000)
        if request["do"] == "rate":
            work = lambda: self.run(by_name("W2"))  # noqa: E731
            return {"runs_per_second": await runs_per_second(work, request["in_flight"], request["seconds"])}
        await self._hold(request["count"])
        return {"holding": True}

    async def run(self, program: Program) -> None:
        """Run a program. Raises `ValueError` when it gives anything but its result."""
        self._serial += 1
        value = await self._sandbox.run(self._sandbox.program(program, self._serial))
        if str(value).removesuffix(".0") != str(program.expected):
            raise ValueError(f"gave {str(value)[:200]!r}, not {program.expected}")

    async def _time(self, program: Program, runs: int, gap_seconds: float) -> dict[str, Any]:
        if self._serial == 0:
            await self.run(program)
        found = {"ms": await timed(lambda: self.run(program), runs, gap_seconds), "direct_ms": None}
        if (direct := self._sandbox.direct) is not None:
            found["direct_ms"] = await timed(direct, min(runs, 10), gap_seconds)
        return found

    async def _hold(self, count: int) -> None:
        if count == 0:
            await self.run(by_name("W1"))
            await asyncio.sleep(0.3)
        self._held = [asyncio.ensure_future(self._sandbox.run(self._sandbox.hold())) for _ in range(count)]
        for _ in range(count):
            await asyncio.wait_for(self._tools.arrived.acquire(), 30)

    async def let_go(self) -> None:
        """End the programs that wait."""
        self._tools.release.set()
        await asyncio.gather(*self._held)


async def serve(name: str) -> None:
    """Answer requests until there are no more."""
    tools = Tools()
    async with SANDBOXES[name](tools) as sandbox:
        server = Server(sandbox, tools)
        print(json.dumps({"ready": True}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            try:
                answer = await server.answer(json.loads(line))
            except Exception as error:  # noqa: BLE001 - a peer's failure is a finding
                answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            print(json.dumps(answer), flush=True)
        await server.let_go()


async def cold(name: str, workload: str) -> None:
    """Print the result of one program."""
    tools = Tools()
    async with SANDBOXES[name](tools) as sandbox:
        await Server(sandbox, tools).run(by_name(workload))
        print(json.dumps({"ready": True}), flush=True)


def main() -> None:
    """Do what the command line says."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    name, *rest = sys.argv[1:]
    asyncio.run(cold(name, rest[1]) if rest else serve(name))


if __name__ == "__main__":
    main()
