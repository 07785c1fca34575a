"""Chaos over kept pauses: resumers and people in processes that are killed and stopped at random, on one database.

``python -m tests.soak.pauses [records] [seed] [sqlite|postgres] [guard|journal]`` prints what came of it. Each call has
then happened once, or not at all where it was denied, whoever died in it; each decision was taken once, though all were
made twice by each of two people. Without the guard on the database it must fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tests.soak import pause_hosts
from tests.soak.nursery import Host, Nursery
from tests.soak.pause_hosts import APP, LEASE_MS, Lines, World, code_mode_over, store_of, value_of
from tests.support.leftovers import no_orphan_left, nothing_left
from tests.support.waiting import until

from codemode import CallContext, CodeModeAbortedError, Interrupt, WorkerPool
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import ALL_TENANTS, StoredRequest, verify_audit

RESUMERS, PEOPLE, MOST_OPEN, MOST_TRIES = 3, ("ana", "bob"), 40, 20
RECORDS_EACH = 3
"""How many are made for each strike: a fast machine has to be struck as well."""
LONGEST_SECONDS = 60.0
_HOSTS = pause_hosts.__name__
_ENDS = {"completed", "failed", "lost", "expired", "withdrawn"}
_AT_ONCE = "return (await Promise.allSettled(CALLS.map(([name, one]) => tools[name](one)))).map(RESULT)"
_ONE_BY_ONE = """
const ended = [];
for (const [name, one] of CALLS) ended.push(...await Promise.allSettled([tools[name](one)]));
return ended.map(RESULT);
"""


def program(run: int, chance: random.Random, *, has_journal: bool) -> tuple[str, list[Any]]:
    """A program of one to four calls, at once or one by one, and their inputs.

    Only a journal knows what a program has done of itself behind the call that somebody has allowed.
    """
    others = ("pay", "book", "note") if has_journal else ("pay", "book")
    names = [chance.choice(("pay", "book")), *(chance.choice(others) for _ in range(chance.randint(0, 3)))]
    calls = [f"['{name}', {{ run: {run}, number: {number} }}]" for number, name in enumerate(names, 1)]
    form = chance.choice((_AT_ONCE, _ONE_BY_ONE))
    js = form.replace("CALLS", f"[{', '.join(calls)}]").replace("RESULT", "(one) => one.value ?? 'denied'")
    return js, [{"run": run, "number": number} for number in range(1, len(names) + 1)]


class Chaos:
    """One reign over many records. ``sent`` counts signals, ``changes`` what happened to the records."""

    modules: ClassVar[tuple[str, ...]] = (_HOSTS,)

    def __init__(self, records: int, seed: int, database: tuple[str, str], folder: Path, mode: str) -> None:
        self.records, self.database, self.mode = records, database, mode
        self.chance = random.Random(seed)
        self.world = Lines(folder / "world")
        self.decided = {actor: Lines(folder / actor) for actor in PEOPLE}
        self.store = store_of(*database)
        self.pool = WorkerPool({"max_workers": 2})
        self.log = folder / "log"
        self.sent: Counter[str] = Counter()
        self.changes: Counter[str] = Counter()
        self.inputs: dict[str, list[Any]] = {}
        self._hosts: dict[str, Host] = {}
        self._open = asyncio.Semaphore(MOST_OPEN)

    async def run(self) -> None:
        """Run everything, with strikes until the last record was made and most have ended."""
        with Nursery(self.log, *self.modules) as nursery:
            self._nursery = nursery
            for name in self._names():
                self._start(name)
            reign = asyncio.create_task(self._reign())
            try:
                await asyncio.gather(self._make(), self._follow())
            finally:
                reign.cancel()
                await asyncio.wait([reign])
            await self._all_clicked()

    def close(self) -> None:
        """Close files and pool."""
        self.pool.close()
        for lines in (self.world, *self.decided.values()):
            lines.close()

    def _names(self) -> list[str]:
        return [*PEOPLE, *(f"resumer {number}" for number in range(RESUMERS))]

    def _start(self, name: str) -> None:
        self._hosts[name] = self._nursery.start(*self._host(name))

    def _host(self, name: str) -> list[Any]:
        """Return module, function and arguments of a process."""
        if name in PEOPLE:
            return [_HOSTS, "decide_for_ever", *self._person(name)]
        return [_HOSTS, "resume_for_ever", *self.database, str(self.world.path), self.mode]

    def _person(self, name: str) -> list[Any]:
        lines = self.decided[name]
        after = max((line[2] for line in lines.read() if line[0] == "seen"), default=0)
        return [*self.database, str(self.world.path), str(lines.path), name, after]

    async def _make(self) -> None:
        mode = "journal" if self.mode == "journal" else "guard"
        code_mode = code_mode_over(World(self.world).tools(), self.store, mode, self.pool)
        for run in range(self.records):
            await until(lambda run=run: self._is_struck_for(run))
            await self._open.acquire()
            js, inputs = program(run, self.chance, has_journal=mode == "journal")
            paused = await self._paused(code_mode, js, f"call_{run}")
            tenant = self.chance.choice(("acme", "umbrella"))
            self.inputs[await self.store.put(paused, tool=code_mode, tenant=tenant, app=APP)] = inputs

    def _is_struck_for(self, run: int) -> bool:
        """True once a record may be made: the last one behind all strikes, which find somebody at work until then."""
        first = self.records if run + 1 == self.records else run - RECORDS_EACH * RESUMERS
        return first <= RECORDS_EACH * self.sent.total()

    async def _paused(self, code_mode: Any, js: str, tool_call_id: str) -> Interrupt:
        """Make a call, again where its journal did not answer in time: it goes on from there."""
        for _ in range(MOST_TRIES):
            with contextlib.suppress(CodeModeAbortedError):
                paused = await code_mode.execute({"js": js}, call=CallContext(tool_call_id=tool_call_id))
                assert isinstance(paused, Interrupt)
                return paused
        raise AssertionError(f"{tool_call_id} did not pause in {MOST_TRIES} tries")

    async def _follow(self) -> None:
        """Count what happens until all have ended. Raises TimeoutError when nothing happens for too long."""
        changes, ended = self.store.changes(tenant=ALL_TENANTS), 0
        with contextlib.suppress(StopAsyncIteration):
            while ended < self.records:
                change = await asyncio.wait_for(anext(changes), LONGEST_SECONDS)
                self.changes[change.kind] += 1
                if change.kind in _ENDS:
                    ended += 1
                    self._open.release()
        await changes.aclose()

    async def _reign(self) -> None:
        while self.sent.total() * RECORDS_EACH < self.records:
            await asyncio.sleep(self.chance.uniform(0.02, 0.3))
            name, chance = self.chance.choice(list(self._hosts)), self.chance.random()
            if self.mode == "unguarded" or chance < 0.4:
                self._kill(await self._in_a_call())
            elif chance < 0.7:
                self._kill(name)
            else:
                await self._stop(name)

    async def _in_a_call(self) -> str:
        """Wait for the next effect, not for long, and return who has just had it."""
        deadline = time.monotonic() + 1
        with self.world.path.open() as file:
            file.seek(0, 2)
            while time.monotonic() < deadline:
                await asyncio.sleep(0.001)
                pids = {pid for kind, _, pid in map(json.loads, file.readlines()) if kind == "effect"}
                for name, host in self._hosts.items():
                    if host.pid in pids:
                        return name
        return self.chance.choice(list(self._hosts))

    async def _stop(self, name: str) -> None:
        self._count(name, "SIGSTOP")
        self._hosts[name].send(signal.SIGSTOP)
        try:
            await asyncio.sleep(LEASE_MS / 1000 * self.chance.uniform(0.1, 3))
        finally:
            self._hosts[name].send(signal.SIGCONT)

    def _kill(self, name: str) -> None:
        self._count(name, "SIGKILL")
        self._hosts[name].send(signal.SIGKILL)
        status = self._nursery.buried(self._hosts[name])
        assert status == -signal.SIGKILL, f"{name} ended with {status}: {self.log.read_text()[-2000:]}"
        self._start(name)

    def _count(self, name: str, number: str) -> None:
        self.sent[f"{name.split(maxsplit=1)[0] if name not in PEOPLE else 'person'} {number}"] += 1

    async def _all_clicked(self) -> None:
        """Wait until both people have clicked on the last request."""
        newest = sum(self.changes.values())
        deadline = time.monotonic() + LONGEST_SECONDS
        for lines in self.decided.values():
            while not any(line[0] == "seen" and line[2] >= newest for line in lines.read()):
                assert time.monotonic() < deadline, "somebody has stopped looking"
                await asyncio.sleep(0.05)

    async def check(self) -> Counter[str]:
        """Raise AssertionError for a call, a decision or a record that is not as it must be; return what there was."""
        found: Counter[str] = Counter()
        effects = Counter(key_of(value) for kind, value, _ in self.world.read() if kind == "effect")
        found["effects"] = sum(effects.values())
        twice = {key: count for key, count in effects.items() if count > 1}
        assert not twice, f"{twice} happened more than once: {self._told_of(next(iter(twice)))}"
        records = {one: await self.store.record(one, tenant=ALL_TENANTS) for one in self.inputs}
        kept = {one.interrupt_id: one for record in records.values() for one in record.requests}
        decisions = self._decisions(found, kept)
        for record_id, inputs in self.inputs.items():
            record = records[record_id]
            found["unknown"] += sum(one.kind == UNKNOWN_OUTCOME_KIND for one in record.requests)
            found["requests"] += len(record.requests)
            allowed: dict[str, bool] = {}
            for one in record.requests:
                assert one.decision == decisions[one.interrupt_id], (one, decisions[one.interrupt_id])
                if "approved" in one.decision:
                    allowed[key_of(one.input)] = one.decision["approved"]
            given = [allowed.get(key_of(one), True) for one in inputs]
            expected = [value_of(one) if is_given else "denied" for one, is_given in zip(inputs, given, strict=True)]
            assert record.outcome is not None
            assert (record.state, record.outcome.value) == ("completed", expected), record
            assert [effects[key_of(one)] for one in inputs] == [int(is_given) for is_given in given], record
        found["lines"] = await self._check_audit(decisions)
        return found

    async def _check_audit(self, decisions: Mapping[str, Any]) -> int:
        """Whoever was killed: each decision and each end is told once, and the chain holds."""
        assert await verify_audit(self.store) is None
        lines = [line async for line in self.store.audit(tenant=ALL_TENANTS)]
        assert Counter(line.interrupt_id for line in lines if line.kind == "decided") == Counter(list(decisions))
        for kind in ("put", "completed"):
            assert Counter(line.record_id for line in lines if line.kind == kind) == Counter(list(self.inputs))
        return len(lines)

    def _decisions(self, found: Counter[str], kept: Mapping[str, StoredRequest]) -> dict[str, Any]:
        """Return the one decision about each request, for both have clicked twice or more.

        Whose answer died on its way may come again after the end, and is told no more than that: so may nobody be.
        """
        said: dict[str, list[Any]] = defaultdict(list)
        for lines in self.decided.values():
            for kind, *rest in lines.read():
                if kind != "seen":
                    said[rest[1]].append((kind, rest))
                    found["clicks"] += 1
                    found["refused"] += kind == "refused"
        decisions: dict[str, Any] = {}
        for name, all_said in said.items():
            taken = {(rest[2], str(rest[4])): rest[4] for kind, rest in all_said if kind == "decided"}
            found["untold"] += not taken
            actor, decisions[name] = kept[name].actor, kept[name].decision
            assert actor in PEOPLE, (name, kept[name])
            assert set(taken) <= {(actor, str(decisions[name]))}, (name, all_said)
            for kind, rest in all_said:
                assert kind == "decided" or rest[2].removesuffix("Error") in ("AlreadyDecided", "RequestSettled"), rest
                assert kind == "decided" or rest[2].removesuffix("Error") != "AlreadyDecided" or rest[3] == actor, rest
            clicked = Counter(rest[0] for _, rest in all_said)
            # Whoever has to look first may come after the end.
            assert ":unknown-" in name or min(clicked[actor] for actor in PEOPLE) >= 2, (name, all_said)
        return decisions

    def _told_of(self, key: str) -> list[Any]:
        return [line for line in self.world.read() if key_of(line[1]) == key]


def key_of(value: Any) -> str:
    """The name of a call, by its input."""
    return f"{value['run']}.{value['number']}"


@contextlib.contextmanager
def database_of(kind: str, folder: Path) -> Iterator[str]:
    """Where there is an empty database."""
    if kind == "sqlite":
        yield str(folder / "pauses.sqlite")
        return
    sys.path.append(str(Path(__file__).parents[1] / "support"))
    from postgres_cluster import cluster, new_database

    with cluster() as socket:
        yield new_database(socket, "chaos")


@dataclass(frozen=True)
class Done:
    """What came of a run."""

    chaos: Chaos
    found: Counter[str]


def run_chaos(
    records: int, *, seed: int = 1, kind: str = "sqlite", mode: str = "guard", of: type[Chaos] = Chaos
) -> Done:
    """Run it, and check everything, also that nothing is left afterwards. Raises AssertionError."""

    async def run(database: tuple[str, str], folder: Path) -> Done:
        chaos = of(records, seed, database, folder, mode)
        try:
            await chaos.run()
            return Done(chaos, await chaos.check())
        finally:
            chaos.close()
            await chaos.store.aclose()

    with nothing_left(), no_orphan_left(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with database_of(kind, folder) as where:
            return asyncio.run(run((kind, where), folder))


def main(name: str = "pauses", most: str = "500", *, of: type[Chaos] = Chaos) -> None:
    """Run it long, and print the figures."""
    defaults = (most, "1", "sqlite", "guard")
    records, seed, kind, mode, *_ = [*sys.argv[1:], *defaults[len(sys.argv) - 1 :]]
    started = time.monotonic()
    done = run_chaos(int(records), seed=int(seed), kind=kind, mode=mode, of=of)
    chaos, found = done.chaos, done.found
    print(f"{name}: {records} records on {kind}, {mode}, {time.monotonic() - started:.0f} s")
    print(f"  signals sent       {chaos.sent.total()}: {_counted(chaos.sent)}")
    print(f"  changes            {chaos.changes.total()}: {_counted(chaos.changes)}")
    print(f"  requests           {found['requests']}, {found['unknown']} of them about calls of unknown outcome")
    print(f"  clicks             {found['clicks']}, {found['refused']} of them refused")
    print(f"  decisions          one for each request, {found['untold']} of which nobody had the answer")
    print(f"  calls in effect    {found['effects']}, each exactly once")
    print(f"  audit              {found['lines']} lines in one chain, one for each decision and each end")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    main()
