"""Chaos at rest: programs of exec yield and wait while processes are killed and stopped, waits cancelled, runs aborted.

``python -m tests.soak.rests [programs] [seed] [fork|exec] [programs of a worker]`` prints what came of it. Each program
comes to its value or to a failure with a name, and none of its calls happens twice.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
import time
from collections import Counter
from typing import Any

from tests.soak.chaos import SPARES, TASKS, Effects, Reign, keeping, value_of
from tests.support.leftovers import children, no_orphan_left, nothing_left

from codemode import CallContext, ExecWaitTools, WorkerPool, create_exec_wait_tools, tool

TIMEOUT_MS, WAIT_MS = 400, 100
MOST_CALLS = 200
SCOPE = "chaos"
PROGRAM = """
const early = tools.ship({ run: RUN, number: 1 });
yield_control("begun");
const both = await Promise.all([tools.spend({ run: RUN, number: 2 }), tools.book({ run: RUN, number: 3 })]);
await yield_control("half way");
text(both.length);
const last = await tools.spend({ run: RUN, number: 4 });
return [await early, ...both, last];
"""
# What a program may come to whose worker was killed or stood still while it ran, or that somebody has aborted.
FAILURES = {"internal_error": "CodeModeWorkerError: ", "timeout": "CodeModeTimeoutError: ", "aborted": "wait: this run"}


class Rests:
    """One reign over many programs. ``ends`` counts what they came to, ``seen`` what happened on the way."""

    def __init__(self, programs: int, seed: int, start_method: str, programs_per_worker: int | None) -> None:
        self.programs = programs
        self.effects = Effects(seed)
        self.ends: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self._random = random.Random(seed)
        self.reign = Reign(seed, children(), has_zygote=start_method == "fork")
        waits = {"on_saturation": "wait", "wait_timeout_ms": TIMEOUT_MS}
        settings = {"max_workers": TASKS, "spare_workers": SPARES, "start_method": start_method, **waits}
        self.pool = WorkerPool({**settings, **keeping(programs_per_worker)})
        options = {"timeoutMs": TIMEOUT_MS, "waitTimeoutMs": WAIT_MS, "maxWarmRuns": 2}
        tools = [*self.effects.tools(), tool(self._ship, name="ship")]
        self.pair: ExecWaitTools = create_exec_wait_tools(tools, options, pool=self.pool)

    async def _ship(self, run: int, number: int) -> int:
        await asyncio.sleep(self._random.choice((0, 0.05, 0.3)))
        self.effects.happened[run, number] += 1
        return value_of(run, number)

    async def run(self) -> None:
        """Run everything. Raises AssertionError for a program that ends otherwise than it may."""
        before = asyncio.all_tasks()
        numbers = itertools.count()
        reign = asyncio.create_task(self.reign.last(lambda: self.ends["completed"]))
        try:
            await asyncio.gather(*(self._work(numbers) for _ in range(TASKS)))
        finally:
            reign.cancel()
            await asyncio.wait([reign])
            await self.pair.aclose()
        assert asyncio.all_tasks() == before

    async def _work(self, numbers: itertools.count[int]) -> None:
        while (number := next(numbers)) < self.programs:
            result = await self._to_its_end(number)
            end = "completed" if result["status"] == "completed" else result["code"]
            assert end == "completed" or result["error"].startswith(FAILURES.get(end, "none of these")), result
            if end == "completed":
                assert result["value"] == [value_of(number, call) for call in (1, 2, 3, 4)], result
                assert all(self.effects.happened[number, call] == 1 for call in (1, 2, 3, 4))
            self.ends[end] += 1

    async def _to_its_end(self, number: int) -> dict[str, Any]:
        result = await self._begun(PROGRAM.replace("RUN", str(number)))
        run_id = result.get("runId")
        for _ in range(MOST_CALLS):
            if result["status"] == "waiting":
                self.seen[result["reason"]] += 1
            elif result.get("code") != "runtime_unavailable":  # that says that it waits on
                return result
            result = await self._waited({"runId": run_id})
        raise AssertionError(f"program {number} did not end in {MOST_CALLS} calls: {result}")

    async def _begun(self, code: str) -> dict[str, Any]:
        for _ in range(MOST_CALLS):
            result: dict[str, Any] = await self.pair.exec.execute(
                {"code": code}, call=CallContext(conversation_id=SCOPE)
            )
            if result.get("code") != "runtime_unavailable":  # nothing of it ran
                return result
            self.seen["no worker"] += 1
        raise AssertionError(f"no worker in {MOST_CALLS} calls")

    async def _waited(self, run: dict[str, Any]) -> dict[str, Any]:
        chance = self._random.random()
        if chance < 0.02:
            self.seen["aborted"] += await self.pair.abort(conversation_id=SCOPE, run_id=run["runId"])
        waiting = asyncio.ensure_future(self.pair.wait.execute(run, call=CallContext(conversation_id=SCOPE)))
        if chance > 0.9:
            await asyncio.sleep(self._random.choice((0, 0.001, 0.01, 0.05)))
            waiting.cancel()
            await asyncio.wait([waiting])
        if not waiting.cancelled():
            return await waiting
        self.seen["cancelled"] += 1
        return await self.pair.wait.execute(run, call=CallContext(conversation_id=SCOPE))

    def check(self) -> None:
        """Raise AssertionError when a call happened twice, or something is left."""
        twice = {call: count for call, count in self.effects.happened.items() if count > 1}
        assert not twice, twice
        assert sum(self.ends.values()) == self.programs
        assert not [one for one in self.pair.runs(SCOPE) if one.state in ("running", "waiting")]
        assert self.pool.active == 0


def run_rests(
    programs: int,
    *,
    seed: int = 1,
    start_method: str = "fork",
    programs_per_worker: int | None = None,
    seconds: float = 600,
) -> Rests:
    """Run it, and check everything, also that nothing is left afterwards. Raises AssertionError."""
    with nothing_left(), no_orphan_left():
        rests = Rests(programs, seed, start_method, programs_per_worker)
        try:
            asyncio.run(asyncio.wait_for(rests.run(), seconds))
            rests.check()
        finally:
            rests.pool.close()
    return rests


def main() -> None:
    """Run it long, and print the figures."""
    defaults = ("500", "1", "fork", "1")
    programs, seed, start_method, most, *_ = [*sys.argv[1:], *defaults[len(sys.argv) - 1 :]]
    started = time.monotonic()
    rests = run_rests(
        int(programs), seed=int(seed), start_method=start_method, programs_per_worker=int(most), seconds=3600
    )
    counts = rests.pair.telemetry
    over = f"{TASKS} tasks, {start_method}, {most} for a worker"
    print(f"rests: {programs} programs of exec over {over}, {time.monotonic() - started:.0f} s")
    print(f"  signals sent       {sum(rests.reign.sent.values())}: {dict(sorted(rests.reign.sent.items()))}")
    print(f"  came to            {dict(sorted(rests.ends.items()))}")
    print(f"  on the way         {dict(sorted(rests.seen.items()))}")
    print(f"  rests              {counts['rests']}; gone on warm {counts['wakesWarm']}, cold {counts['wakesCold']}")
    print(f"  calls in effect    {sum(rests.effects.happened.values())}, none twice")
    print("  left afterwards    no process, no descriptor, no task")


if __name__ == "__main__":
    main()
