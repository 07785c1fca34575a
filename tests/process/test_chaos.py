"""Chaos: workers, spares and zygotes are killed and stopped at random while programs run."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
from collections import Counter

import pytest
from leftovers import children, living_children, no_orphan_left, nothing_left
from suite import full_only

from codemode import CodeModeTimeoutError, WorkerPool, run_code_mode
from codemode.errors import CodeModeWorkerError

_INVOCATIONS, _TASKS, _SPARES = 150, 8, 2
_TIMEOUT_MS = 1500
# Waiting for two workers that never get ready may come before the clock of an invocation starts, on a busy machine.
_PATIENCE_SECONDS = 60
_PROGRAM = """
const first = await tools.step({run: %d, number: 1});
const both = await Promise.all([tools.step({run: %d, number: 2}), tools.step({run: %d, number: 3})]);
return [first, ...both];
"""


class Chaos:
    """Sends signals to random processes of the pool until it is told to stop."""

    def __init__(self, seed: int, not_ours: set[int]) -> None:
        self._random = random.Random(seed)
        self._not_ours = not_ours
        self.sent: Counter[str] = Counter()

    @property
    def is_enough(self) -> bool:
        """Without enough of both the test would prove nothing."""
        return self.sent["zygote SIGKILL"] + self.sent["zygote SIGSTOP"] >= 3 and self.sent["worker SIGKILL"] >= 10

    async def reign(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.003, 0.03))
            self._strike()

    def _strike(self) -> None:
        zygotes = living_children(os.getpid()) - self._not_ours
        workers = [(worker, "worker") for zygote in zygotes for worker in living_children(zygote)]
        # Orphaned workers that are about to die are ours for a moment too; they count as zygotes here.
        victims = [(zygote, "zygote") for zygote in zygotes]
        chosen = victims if self._random.random() < 0.1 else workers
        if not chosen:
            return
        pid, kind = self._random.choice(sorted(chosen))
        number = signal.SIGSTOP if self._random.random() < 0.25 else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            self.sent[f"{kind} {number.name}"] += 1


@pytest.mark.full
@pytest.mark.parametrize("seed", [1, *full_only(2)])
def test_every_invocation_ends_and_no_call_runs_twice(seed: int) -> None:
    executed: Counter[tuple[int, int]] = Counter()
    endings: Counter[str] = Counter()

    async def step(run: int, number: int) -> int:
        executed[run, number] += 1
        await asyncio.sleep(0)
        return run * 10 + number

    async def one(run: int, pool: WorkerPool) -> None:
        options = {"execution_policy": {"timeout_ms": _TIMEOUT_MS}}
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                value = await run_code_mode(_PROGRAM % (run, run, run), [step], options=options, pool=pool)
        except (CodeModeWorkerError, CodeModeTimeoutError) as error:
            endings[type(error).__name__] += 1
        else:
            assert value == [run * 10 + 1, run * 10 + 2, run * 10 + 3]
            endings["result"] += 1

    async def main(pool: WorkerPool, chaos: Chaos) -> None:
        tasks = asyncio.all_tasks()
        # A fast machine is done before enough has happened to it, and on a slow one few get to a result: it goes on.
        runs = itertools.takewhile(
            lambda run: run < _INVOCATIONS or not chaos.is_enough or endings["result"] <= _INVOCATIONS / 6,
            itertools.count(_SPARES),
        )

        async def worker() -> None:
            for run in runs:
                await one(run, pool)

        reign = asyncio.create_task(chaos.reign())
        await asyncio.gather(*(worker() for _ in range(_TASKS)))
        reign.cancel()
        await asyncio.wait([reign])
        for spent in range(_SPARES):
            await one(spent, pool)  # a spare may have been killed or stopped at the last moment
        assert await run_code_mode("return 1", {}, pool=pool) == 1
        assert asyncio.all_tasks() == tasks

    with nothing_left(), no_orphan_left():
        chaos = Chaos(seed, children())
        pool = WorkerPool({"max_workers": _TASKS, "spare_workers": _SPARES})
        try:
            asyncio.run(asyncio.wait_for(main(pool, chaos), 4 * _PATIENCE_SECONDS))
            assert pool.active == 0
        finally:
            pool.close()
    assert max(executed.values()) == 1
    assert sum(endings.values()) >= _INVOCATIONS
    assert endings["result"] > _INVOCATIONS / 6, (endings, chaos.sent)
    assert chaos.is_enough, chaos.sent
