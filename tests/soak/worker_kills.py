"""Kill workers, spares and zygotes while programs run.

``python -m tests.soak.worker_kills [invocations] [seed]`` sends SIGKILL to a random one of them every 20 to 60 ms, and
prints how the invocations ended. No call has then been made twice. A zygote is killed only while it has workers: one
that boots takes longer than the time between two kills, and nothing could ever start.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.leftovers import find_zygotes, living_children

from codemode import CodeModeError, WorkerPool, create_code_mode_tool, tool

AT_ONCE = 4
SHORTEST_SECONDS, LONGEST_SECONDS = 0.02, 0.06


@dataclass
class WorkerKills:
    """``ended`` counts how invocations ended, ``killed`` the processes, ``made`` the calls of each invocation."""

    ended: Counter[str] = field(default_factory=Counter[str])
    killed: Counter[str] = field(default_factory=Counter[str])
    made: Counter[int] = field(default_factory=Counter[int])
    seconds: float = 0.0


async def kill_at_random(kills: WorkerKills, rng: random.Random) -> None:
    """Kill a random zygote or worker again and again, until cancelled."""
    while True:
        await asyncio.sleep(rng.uniform(SHORTEST_SECONDS, LONGEST_SECONDS))
        zygotes = sorted(find_zygotes())
        workers = [worker for zygote in zygotes for worker in living_children(zygote)]
        if not workers:
            continue
        victim = rng.choice([*zygotes, *workers])
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
            kills.killed["zygote" if victim in zygotes else "worker"] += 1


async def invoke_under_kills(invocations: int, seed: int = 1) -> WorkerKills:
    """Run so many invocations, `AT_ONCE` at a time, under kills."""
    kills, slots = WorkerKills(), asyncio.Semaphore(AT_ONCE)

    @tool
    async def spend(run: int) -> int:
        """Spend."""
        kills.made[run] += 1
        return run

    async def invoke(code_mode: Any, number: int) -> None:
        async with slots:
            try:
                result = await code_mode.execute({"js": f"return await tools.spend({{ run: {number} }})"})
            except CodeModeError as error:
                kills.ended[str(error)[:80]] += 1
            else:
                assert result == number
                kills.ended["result"] += 1

    with WorkerPool({"max_workers": AT_ONCE}) as pool:
        code_mode = create_code_mode_tool([spend], {"execution_policy": {"timeout_ms": 20_000}}, pool=pool)
        await invoke(code_mode, 0)  # so that there is more than a zygote that boots
        killer = asyncio.create_task(kill_at_random(kills, random.Random(seed)))
        began = time.monotonic()
        try:
            await asyncio.gather(*(invoke(code_mode, number) for number in range(1, invocations)))
        finally:
            killer.cancel()
            await asyncio.wait([killer])
        kills.seconds = time.monotonic() - began
    return kills


def main() -> None:
    arguments = [int(one) for one in sys.argv[1:]]
    kills = asyncio.run(invoke_under_kills(*arguments or [600]))
    print(f"{kills.seconds:.1f} s, killed {dict(kills.killed)}")
    for how, count in kills.ended.most_common():
        print(f"{count:5} {how}")
    print(f"calls made twice: {sum(count > 1 for count in kills.made.values())}")


if __name__ == "__main__":
    main()
