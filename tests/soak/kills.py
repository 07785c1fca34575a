"""Kill anywhere: a host dies at one point of what it does, and another one goes on.

``python -m tests.soak.kills [sqlite|postgres] [seed] [word]`` prints what came of it, of the cases that have the word.
Every call has then happened once, and nobody was asked about calls that cannot have begun, or have ended.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from tests.soak import kill_hosts
from tests.soak.kill_hosts import OK, Case, Death, Effects, code_mode_of, resume_of
from tests.soak.nursery import Nursery
from tests.soak.pause_hosts import Lines, store_of
from tests.soak.pauses import database_of
from tests.support.leftovers import no_orphan_left, nothing_left
from tests.support.waiting import until

from codemode import CallContext, CodeModeError, Interrupt, WorkerPool
from codemode.continuations.guard import GuardClock
from codemode.host.clock import now_ms
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import Resumer

AT_ONCE, GOING_ON, LONGEST_SECONDS, LAPSED_MS = 3, 12, 60.0, 120_000
_HOSTS = kill_hosts.__name__
_CLAIM = ("before guard.claim", "after guard.claim")
_EFFECT = ("before effect", "after effect")
_RECORD = ("before guard.record", "after guard.record")
_SETTLE = ("before store.settle", "after store.settle")
_JOURNAL = tuple(f"{when} journal.{name}" for name in ("open", "write", "end") for when in ("before", "after"))
FLOWS = {
    "resume": (
        *("before store.claim", "after store.claim", *_CLAIM, *_EFFECT, *_RECORD, *_SETTLE),
        *("before guard.renew", "after guard.renew", "before store.renew", "after store.renew"),
    ),
    "answer": (*_CLAIM, *_EFFECT, *_RECORD, *_SETTLE),
    "put": ("before store.put", "after store.put"),
    "decide": ("before store.decide", "after store.decide"),
    "full": ("before guard.release", "after guard.release", "before store.release", "after store.release"),
}
JOURNALED = {
    "first": (*_EFFECT, *_JOURNAL, "before journal.renew", "after journal.renew"),
    "resume": (*FLOWS["resume"], *_JOURNAL, "before journal.renew", "after journal.renew"),
    "answer": (*FLOWS["answer"], *_JOURNAL),
    "put": (*FLOWS["put"], *_JOURNAL),
    "full": FLOWS["full"],
    "late": ("before journal.release", "after journal.release"),
}
_RUNNING = {"after guard.claim", *_EFFECT, "before guard.record", "before guard.release"}


def all_cases(*, has_journal: bool, chance: random.Random) -> list[Case]:
    """Every point of every flow, with tools of both kinds, with one call and with four, at once and one by one."""
    cases: list[Case] = []
    flows = JOURNALED if has_journal else FLOWS
    shapes = (("pay", 1, "at once"), ("book", 1, "at once"), ("pay", 4, "at once"), ("book", 4, "at once"))
    if has_journal:
        shapes = (*shapes, ("pay", 4, "one by one"), ("book", 4, "one by one"))
    for (flow, points), (tool, calls, form) in itertools.product(flows.items(), shapes):
        for point in points:
            turns = 1
            if point in _EFFECT and flow != "answer":
                turns = calls
            elif "journal.write" in point and flow != "put":
                turns = 2 if form == "at once" else 2 * calls
            cases.append(Case("", flow, point, chance.randint(1, turns), tool, calls, form, has_journal))
    return [dataclasses.replace(case, name=f"case {number}") for number, case in enumerate(cases)]


def sampled(cases: list[Case], chance: random.Random) -> list[Case]:
    """One of each point."""
    alike: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        alike[case.point].append(case)
    return [chance.choice(ones) for ones in alike.values()]


class Later(GuardClock):
    """The clock of whoever comes when every lease of the dead is over, and to whom a minute is nothing."""

    def __init__(self) -> None:
        self._passed = 0.0

    def now_ms(self) -> int:
        return now_ms() + LAPSED_MS

    def monotonic_seconds(self) -> float:
        self._passed += 20
        return self._passed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.002)


class Kills:
    """All deaths of a run, on one database. ``asked`` has the calls that somebody was asked about, by case."""

    def __init__(self, cases: list[Case], kind: str, where: str, folder: Path) -> None:
        self._cases = cases
        self._database = kind, where
        self._effects = Lines(folder / "effects")
        self._log = folder / "log"
        self._pool = WorkerPool({"max_workers": 4, "on_saturation": "wait", "wait_timeout_ms": 60_000})
        self._before, self._after = store_of(kind, where), store_of(kind, where, Later())
        self._records: dict[str, str] = {}
        self.asked: dict[str, set[int]] = defaultdict(set)

    async def run(self) -> None:
        """Let all of them die, and go on with what they have left. Raises AssertionError."""
        for case in self._cases:
            await self._prepare(case)
        with Nursery(self._log, _HOSTS) as nursery:
            slots = asyncio.Semaphore(AT_ONCE)
            await asyncio.gather(*(self._die(case, nursery, slots) for case in self._cases))
        slots = asyncio.Semaphore(GOING_ON)
        said = await asyncio.gather(*(self._outlive(case, slots) for case in self._cases))
        wrong = [text for text in said if text is not None]
        assert not wrong, "\n".join(wrong)

    async def close(self) -> None:
        """Close what is open."""
        self._effects.close()
        self._pool.close()
        await self._before.aclose()
        await self._after.aclose()

    def _tool(self, case: Case, store: Any) -> Any:
        death = Death(None)
        tools = Effects(self._effects, death, case).tools()
        return code_mode_of(case, tools, store, death, self._pool, is_dying=False)

    async def _prepare(self, case: Case) -> None:
        if case.flow in ("first", "late", "put"):
            return
        paused = await self._tool(case, self._before).execute({"js": case.js}, call=CallContext(tool_call_id=case.name))
        self._records[case.name] = await self._before.put(paused, tenant="acme", app=case.name)
        if case.flow not in ("decide", "answer"):
            await self._before.decide({one.interrupt_id: OK for one in paused.requests}, actor="ana", tenant="acme")

    async def _die(self, case: Case, nursery: Nursery, slots: asyncio.Semaphore) -> None:
        given: list[str] = []
        if case.name in self._records:
            record = await self._before.record(self._records[case.name], tenant="acme")
            given = [one.interrupt_id for one in record.requests]
        async with slots:
            arguments = *self._database, str(self._effects.path), dataclasses.asdict(case), given
            host = nursery.start(_HOSTS, "live", *arguments)
            await until(host.has_ended)
            status = nursery.buried(host)
        assert status == -signal.SIGKILL, f"{case} ended with {status}: {self._log.read_text()[-3000:]}"

    async def _outlive(self, case: Case, slots: asyncio.Semaphore) -> str | None:
        """Go on with what a case has left, and return what is wrong with what comes of that."""
        try:
            async with slots:
                value = await asyncio.wait_for(self._value_of(case), LONGEST_SECONDS)
        except (CodeModeError, TimeoutError) as error:
            return f"{case}: {error!r}"
        happened = Counter(one["number"] for (one,) in self._effects.read() if one["of"] == case.name)
        numbers, asked = list(range(1, case.calls + 1)), self.asked[case.name]
        if value != numbers or happened != Counter(numbers) or not is_right(case, asked):
            return f"{case}: {value}, happened {dict(happened)}, asked {asked}"
        return None

    async def _value_of(self, case: Case) -> Any:
        store, code_mode = self._after, self._tool(case, self._after)
        record_id = self._records.get(case.name)
        if record_id is None:
            (record_id,) = [one.id for one in (await store.list(tenant="acme", app=case.name)).records] or [None]
        if record_id is None:
            paused = await self._started(case, code_mode)
            if not isinstance(paused, Interrupt):
                return paused
            record_id = await store.put(paused, tenant="acme", app=case.name)
        async with Resumer(store, tenant="acme", app=case.name, resume=resume_of(code_mode)):
            while (record := await store.record(record_id, tenant="acme")).state in ("pending", "resuming"):
                answers = {
                    one.interrupt_id: self._answer(case, one) for one in record.requests if one.state == "waiting"
                }
                if answers:
                    await store.decide(answers, actor="ana", tenant="acme")
                await asyncio.sleep(0.1)
            return await store.outcome(record_id, tenant="acme", timeout_ms=0)

    async def _started(self, case: Case, code_mode: Any) -> Any:
        try:
            return await code_mode.execute({"js": case.js}, call=CallContext(tool_call_id=case.name))
        except CodeModeError as error:
            if error.recovery is None:
                raise
            return error.recovery

    def _answer(self, case: Case, request: Any) -> dict[str, Any]:
        if request.kind != UNKNOWN_OUTCOME_KIND:
            return OK
        self.asked[case.name].add(request.input["number"])
        return {"value": request.input["number"]} if [request.input] in self._effects.read() else {"runAgain": True}


def is_right(case: Case, asked: set[int]) -> bool:
    """Tell whether these are the calls that somebody has to be asked about."""
    every, answered = set(range(1, case.calls + 1)), set(range(1, 2 if case.flow == "answer" else case.calls + 1))
    if not case.has_journal:
        return asked == (answered if case.point in _RUNNING or case.is_renewal else set())
    if case.point in _EFFECT or case.is_renewal:
        number = case.turn if case.point in _EFFECT else 1
        return asked == {number} if case.form == "one by one" else bool(asked) and asked <= every
    if "journal.write" in case.point:
        return len(asked) <= 1 or case.form == "at once"
    return not asked


@dataclasses.dataclass(frozen=True)
class Done:
    """What came of a run."""

    cases: list[Case]
    asked: dict[str, set[int]]


def run_kills(
    kind: str, *, has_journal: bool, seed: int = 1, is_sample: bool = False, only: str = "", has_guard: bool = True
) -> Done:
    """Run all cases, or one of each point. Raises AssertionError."""
    chance = random.Random(seed)
    cases = all_cases(has_journal=has_journal, chance=chance)
    cases = [dataclasses.replace(case, has_guard=has_guard) for case in cases if only in str(case)]
    cases = sampled(cases, chance) if is_sample else cases

    async def run(where: str, folder: Path) -> Done:
        kills = Kills(cases, kind, where, folder)
        try:
            await kills.run()
        finally:
            await kills.close()
        return Done(cases, kills.asked)

    with nothing_left(), no_orphan_left(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with database_of(kind, folder) as where:
            return asyncio.run(run(where, folder))


def main() -> None:
    """Run the whole matrix, and print the figures."""
    kind, seed, only, *_ = [*sys.argv[1:], *("sqlite", "1", "")[len(sys.argv) - 1 :]]
    for has_journal in (False, True):
        started = time.monotonic()
        done = run_kills(kind, has_journal=has_journal, seed=int(seed), only=only)
        asked = sum(map(bool, done.asked.values()))
        print(f"kills: {len(done.cases)} hosts on {kind}, {'with' if has_journal else 'without'} a journal,")
        print(
            f"  {time.monotonic() - started:.0f} s; each call happened once, after {asked} of them somebody was asked"
        )


if __name__ == "__main__":
    main()
