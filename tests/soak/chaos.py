"""Chaos: processes are killed and stopped at random, and each run that fails is carried on from its recovery.

``python -m tests.soak.chaos [invocations] [seed] [fork|exec] [codeMode|codeCall] [programs of a worker]`` prints what
came of it. In effect every call of every program must have happened exactly once, however often its worker died.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.leftovers import children, command_line, living_children, no_orphan_left, nothing_left

from codemode import (
    CodeModeError,
    CodeModeTimeoutError,
    Interrupt,
    ToolCallContext,
    WorkerPool,
    create_code_call_tools,
    create_code_mode_tool,
    tool,
)
from codemode.errors import CodeModeWorkerError

TASKS, SPARES, TIMEOUT_MS = 8, 2, 400
# A zygote that is stopped may cost two waits for a hello before the clock of the invocation starts.
LONGEST_SECONDS = TIMEOUT_MS / 1000 + 15
MOST_ATTEMPTS = 60
_FIRST_STRIKES = 20
PROGRAM = """
const first = await tools.spend({ run: RUN, number: 1 });
const both = await Promise.all([tools.spend({ run: RUN, number: 2 }), tools.book({ run: RUN, number: 3 })]);
const last = await tools.spend({ run: RUN, number: 4 });
return [first, ...both, last];
"""


SCRIPT = "const tools = { spend: (one) => callTool('spend', one), book: (one) => callTool('book', one) };" + PROGRAM


class CodeMode:
    """Programs as inputs of codeMode."""

    def __init__(self, tools: list[Any], pool: WorkerPool) -> None:
        self._tool = create_code_mode_tool(tools, {"execution_policy": {"timeout_ms": TIMEOUT_MS}}, pool=pool)

    async def start(self, number: int) -> Any:
        """Return what a program gives."""
        return await self._tool.execute({"js": PROGRAM.replace("RUN", str(number))})

    async def go_on(self, recovery: Interrupt, answers: dict[str, Any]) -> Any:
        """Return what a program gives that goes on."""
        return await self._tool.resume(recovery, resolutions=answers)


class CodeCall:
    """The same programs as scripts of CodeCall, whose statuses are raised again."""

    def __init__(self, tools: list[Any], pool: WorkerPool) -> None:
        options = {"vm": {"timeout_ms": TIMEOUT_MS}, "settings": {"execution_policy": {"timeout_includes_tools": True}}}
        self._tools = create_code_call_tools(tools, options, pool=pool)

    async def start(self, number: int) -> Any:
        """Return what a script gives."""
        return _result(await self._tools.execute({"script": SCRIPT.replace("RUN", str(number))}))

    async def go_on(self, recovery: Interrupt, answers: dict[str, Any]) -> Any:
        """Return what a script gives that goes on."""
        return _result(await self._tools.resume(recovery, resolutions=answers))


def _result(answer: Any) -> Any:
    if answer["status"] != "ok":
        raise answer.exception
    return answer["result"]


FACES: dict[str, Callable[[list[Any], WorkerPool], CodeMode | CodeCall]] = {"codeMode": CodeMode, "codeCall": CodeCall}


class Reign:
    """Sends signals to random processes of the pool until it is told to stop."""

    def __init__(self, seed: int, not_ours: set[int], *, has_zygote: bool) -> None:
        self._random = random.Random(seed)
        self._not_ours = not_ours
        self._has_zygote = has_zygote
        self.sent: Counter[str] = Counter()

    async def last(self, results: Callable[[], int]) -> None:
        """Strike until cancelled, but no oftener than programs give values: a slow machine must get somewhere."""
        while True:
            await asyncio.sleep(self._random.uniform(0.003, 0.03))
            if sum(self.sent.values()) < _FIRST_STRIKES + results():
                self._strike()

    def _strike(self) -> None:
        kind = "zygote" if self._has_zygote and self._random.random() < 0.04 else "worker"
        # Orphaned workers that are about to die are children of the host for a moment too.
        firsts = living_children(os.getpid()) - self._not_ours
        is_first = kind == "zygote" or not self._has_zygote
        found = firsts if is_first else {second for first in firsts for second in living_children(first)}
        # A child that has not begun its program yet stands still with the thread of the host that starts it, for ever.
        victims = sorted(pid for pid in found if command_line(pid) != command_line(os.getpid()))
        if not victims:
            return
        number = signal.SIGSTOP if self._random.random() < 0.25 else signal.SIGKILL
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._random.choice(victims), number)
            self.sent[f"{kind} {number.name}"] += 1


class Effects:
    """The world that the tools change, and what is known of each change."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self.happened: Counter[tuple[int, int]] = Counter()

    def tools(self) -> list[Any]:
        """An asynchronous tool that may be cut off before and after its effect, and a synchronous one in a thread."""

        @tool
        async def spend(run: int, number: int) -> int:
            await asyncio.sleep(self._random.choice((0, 0.001, 0.01)))
            self.happened[run, number] += 1
            await asyncio.sleep(self._random.choice((0, 0.002, 0.02)))
            return value_of(run, number)

        @tool
        def book(run: int, number: int, context: ToolCallContext) -> int:
            time.sleep(0.005)
            # A thread cannot be cut off: it has to look itself whether its invocation has ended.
            with self._lock:
                if context.aborted.is_set():
                    return 0
                self.happened[run, number] += 1
            return value_of(run, number)

        return [spend, book]

    def answer(self, recovery: Interrupt) -> dict[str, Any]:
        """Say of each call of unknown outcome what really came of it."""
        answers: dict[str, Any] = {}
        for request in recovery.requests:
            call = request.input["run"], request.input["number"]
            with self._lock:
                has_happened = self.happened[call] > 0
            answers[request.interrupt_id] = {"value": value_of(*call)} if has_happened else {"runAgain": True}
        return answers


def value_of(run: int, number: int) -> int:
    """What a call returns."""
    return 10 * run + number


class Chaos:
    """One reign over many invocations: so many at least, and until one was carried on.

    ``endings`` counts attempts, ``carried`` those that went on from a recovery.
    """

    def __init__(
        self, invocations: int, seed: int, start_method: str, face: str, programs_per_worker: int | None
    ) -> None:
        self.invocations = invocations
        self.effects = Effects(seed)
        self.endings: Counter[str] = Counter()
        self.carried = 0
        self.answered: Counter[str] = Counter()
        self.longest_seconds = 0.0
        self.most_kept = 0
        self.reign = Reign(seed, children(), has_zygote=start_method == "fork")
        # A slot stays taken while a tool of a run that was cut off is still in its thread: the next run waits for it.
        waits = {"on_saturation": "wait", "wait_timeout_ms": TIMEOUT_MS}
        settings = {"max_workers": TASKS, "spare_workers": SPARES, "start_method": start_method, **waits}
        self.pool = WorkerPool({**settings, **keeping(programs_per_worker)})
        self._face = FACES[face](self.effects.tools(), self.pool)

    async def run(self) -> None:
        """Run everything. Raises AssertionError for an invocation that ends otherwise than it may."""
        before = asyncio.all_tasks()
        numbers = itertools.count()
        reign = asyncio.create_task(self.reign.last(lambda: self.endings["result"]))
        try:
            await asyncio.gather(*(self._work(numbers) for _ in range(TASKS)))
        finally:
            reign.cancel()
            await asyncio.wait([reign])
        assert asyncio.all_tasks() == before

    async def _work(self, numbers: itertools.count[int]) -> None:
        # Where no strike has hit one that had begun, more are needed: there was nothing to carry on.
        while (number := next(numbers)) < self.invocations or not self.carried:
            self.invocations = max(self.invocations, number + 1)
            self.most_kept = max(self.most_kept, len(self.pool.supply.inventory.idle))
            value = await self._to_its_end(number)
            assert value == [value_of(number, call) for call in (1, 2, 3, 4)], value

    async def _to_its_end(self, number: int) -> Any:
        recovery: Interrupt | None = None
        answers: dict[str, Any] = {}
        for _ in range(MOST_ATTEMPTS):
            started = time.monotonic()
            try:
                if recovery is None:
                    value = await self._face.start(number)
                else:
                    self.carried += 1
                    value = await self._face.go_on(recovery, answers)
            except (CodeModeWorkerError, CodeModeTimeoutError) as error:
                self._count(type(error).__name__, started)
                # Without a recovery nothing had run: no worker was there, or the interrupt was not taken up.
                assert error.recovery is not None or not error.calls or recovery is not None, error
                if error.recovery is not None:
                    recovery = error.recovery
                    answers = self.effects.answer(recovery)
                    self.answered.update(next(iter(answer)) for answer in answers.values())
            else:
                self._count("result", started)
                return value
        raise AssertionError(f"invocation {number} did not end in {MOST_ATTEMPTS} attempts")

    def _count(self, ending: str, started: float) -> None:
        seconds = time.monotonic() - started
        self.endings[ending] += 1
        self.longest_seconds = max(self.longest_seconds, seconds)
        assert seconds < LONGEST_SECONDS, f"an invocation took {seconds:.1f} s"

    def check(self) -> None:
        """Raise AssertionError when a call happened twice in effect, or not at all."""
        expected = {(number, call): 1 for number in range(self.invocations) for call in (1, 2, 3, 4)}
        wrong = {call: count for call, count in self.effects.happened.items() if count != 1}
        assert not wrong, wrong
        assert dict(self.effects.happened) == expected
        assert self.pool.active == 0


def keeping(programs_per_worker: int | None) -> dict[str, int]:
    """Return the option of a pool that says how many programs its workers have; None leaves that open."""
    return {} if programs_per_worker is None else {"programs_per_worker": programs_per_worker}


def run_chaos(
    invocations: int,
    *,
    seed: int = 1,
    start_method: str = "fork",
    face: str = "codeMode",
    programs_per_worker: int | None = None,
    seconds: float = 600,
) -> Chaos:
    """Run it, and check everything, also that nothing is left afterwards. Raises AssertionError."""
    with nothing_left(), no_orphan_left():
        chaos = Chaos(invocations, seed, start_method, face, programs_per_worker)
        try:
            asyncio.run(asyncio.wait_for(chaos.run(), seconds))
            chaos.check()
        finally:
            chaos.pool.close()
    return chaos


def main() -> None:
    """Run it long, and print the figures."""
    defaults = ("3000", "1", "fork", "codeMode", "1")
    invocations, seed, start_method, face, most, *_ = [*sys.argv[1:], *defaults[len(sys.argv) - 1 :]]
    started = time.monotonic()
    try:
        chaos = run_chaos(
            int(invocations),
            seed=int(seed),
            start_method=start_method,
            face=face,
            programs_per_worker=int(most),
            seconds=7200,
        )
    except CodeModeError as error:
        sys.exit(f"failed: {error!r}")
    over = f"{TASKS} tasks, {face}, {start_method}, {most} for a worker"
    print(f"chaos: {chaos.invocations} invocations over {over}, {time.monotonic() - started:.0f} s")
    print(f"  signals sent       {sum(chaos.reign.sent.values())}: {_counted(chaos.reign.sent)}")
    print(f"  attempts           {sum(chaos.endings.values())}: {_counted(chaos.endings)}")
    print(f"  recoveries         {chaos.carried}; calls of unknown outcome: {_counted(chaos.answered) or 'none'}")
    print(f"  calls in effect    {sum(chaos.effects.happened.values())}, each exactly once")
    print(f"  waiting workers    at most {chaos.most_kept} that had a program before")
    print(f"  longest attempt    {chaos.longest_seconds:.1f} s (timeout_ms is {TIMEOUT_MS})")
    print("  left afterwards    no process, no descriptor, no task")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    main()
