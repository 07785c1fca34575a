"""Chaos over replicas: gateways, consoles and agent servers, three of each behind a proxy that takes the next one.

``python -m tests.soak.replicas [runs] [seed] [outages]`` kills one of the nine every two seconds, all on one Postgres,
and prints what came of it: runs are asked of agent servers and of gateways, and people click in the consoles. Postgres
itself crashes ``outages`` times (0), and is away for five seconds each time. Needs nginx.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import httpx
from tests.soak import console_hosts, gateways, pauses, replica_hosts
from tests.soak.pause_hosts import Lines, value_of
from tests.soak.pauses import PEOPLE, database_of, key_of
from tests.soak.replica_clients import Asker, past
from tests.soak.replica_hosts import FIRST_ASKED, LEASE_MS
from tests.soak.replica_proxy import MISSING, Proxy, Told, found_nginx
from tests.soak.vanishing_clients import is_up
from tests.support.free_ports import free_ports
from tests.support.leftovers import living_children, no_orphan_left, nothing_left
from tests.support.waiting import until

from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import ALL_TENANTS, verify_audit

ROLES, REPLICAS, VISITORS, ASKERS = ("gateway", "console", "agent"), 3, 6, 6
SECONDS_EACH, RUNS_EACH, LONGEST_SECONDS = 2.0, 4, 300.0
"""How often one is killed, and at most how many runs there are for each."""
_HOSTS, _CONSOLES = replica_hosts.__name__, console_hosts.__name__
_AWAY_SECONDS, _WHOLE_SECONDS = 5.0, 7200.0
# What a server has raised, and nobody has taken for an answer.
_RAISED = re.compile(
    r"Exception in (?:ASGI application|thread|callback)|was never retrieved|Exception ignored in"
    r"|^(?:a request failed|a record could not be resumed)$",
    re.MULTILINE,
)


class Replicas(gateways.Chaos):
    """As its parent, with more roles and a proxy before all of them, and kills at fixed times."""

    modules: ClassVar[tuple[str, ...]] = (*gateways.Chaos.modules, _HOSTS)
    gateways: ClassVar[int] = REPLICAS
    eras: ClassVar[tuple[str, ...]] = ("2026-07-28",)
    longest_seconds: ClassVar[float] = LONGEST_SECONDS

    def __init__(self, pace: Pace, seed: int, where: str, folder: Path) -> None:
        super().__init__(pace.runs, seed, ("postgres", where), folder, "journal")
        self._pace, self.runs_each, self._where = pace, pace.runs_each, where
        behind = {"gateway": self._ports, "console": free_ports(REPLICAS), "agent": free_ports(REPLICAS)}
        self._replicas = {f"{role} {n}": port for role, ports in behind.items() for n, port in enumerate(ports)}
        self._fronts = dict(zip(ROLES, free_ports(len(ROLES)), strict=True))
        self.proxy = Proxy(folder / "nginx", {role: (self._fronts[role], behind[role]) for role in ROLES})
        self.asked: dict[int, list[Any]] = {}
        self.came: dict[int, Any] = {}
        self.decided = {actor: Lines(folder / f"decided-by-{actor}") for actor in PEOPLE}
        self.mebibytes: dict[str, float] = {}
        self.outages = 0

    @property
    def urls(self) -> list[str]:
        """Where clients find gateways."""
        return [f"http://127.0.0.1:{self._fronts['gateway']}/mcp"]

    async def run(self) -> None:
        """Do what the parent does, behind the proxy."""
        with self.proxy:
            await until(lambda: all(map(is_up, self._fronts.values())))
            try:
                await super().run()
            except BaseException as error:
                error.add_note(self._log())
                raise

    def close(self) -> None:
        """Close files."""
        super().close()
        for lines in self.decided.values():
            lines.close()

    # --- who there is ---

    def _names(self) -> list[str]:
        return ["desk", *self._replicas, *PEOPLE]

    def _doors(self) -> list[Any]:
        return [*self._replicas.values(), self._desk]

    def _host(self, name: str) -> list[Any]:
        if name in PEOPLE:
            told = [str(self.world.lines.path), str(self.decided[name].path), name, 0, [self._fronts["console"]]]
            return [_HOSTS, "click_for_ever", "postgres", self._where, *told]
        if name.startswith("console"):
            return [_CONSOLES, "serve_for_ever", "postgres", self._where, self._replicas[name], list(PEOPLE)]
        if name.startswith("agent"):
            path = str(self.world.lines.path)
            return [_HOSTS, "serve_agent", "postgres", self._where, path, self._replicas[name]]
        command = super()._host(name)
        return [*command, LEASE_MS] if name.startswith("gateway") else command

    def _others(self) -> list[Coroutine[Any, Any, None]]:
        return [self._reign(), self._break_database(), self._start_again()]

    def _clients(self, runs: Iterable[int]) -> list[Coroutine[Any, Any, None]]:
        chances = [random.Random(self.chance.random()) for _ in range(VISITORS + ASKERS)]
        visits = [self._visit(runs, chance, number) for number, chance in enumerate(chances[:VISITORS])]
        return [*visits, *(self._ask(runs, chance) for chance in chances[VISITORS:])]

    def _manners(self, number: int) -> Sequence[str]:
        return ("rounds", "console")

    # --- what happens ---

    async def _reign(self) -> None:
        began = time.monotonic()
        while self._ended < self.runs:
            await asyncio.sleep(began + self._pace.seconds_each * (self.sent.total() + 1) - time.monotonic())
            if self._pace.is_patient:
                await until(lambda: all(map(is_up, self._doors())))
            self._kill(await self._struck())

    async def _break_database(self) -> None:
        """Let Postgres crash, at times that share the runs evenly, and stay away: nobody is told before."""
        from postgres_cluster import away

        for number in range(self._pace.outages):
            due = self.runs * (number + 1) // (self._pace.outages + 1)
            await until(lambda due=due: self._ended >= due, _WHOLE_SECONDS)
            with away(self._where.split()[0].removeprefix("host=")):
                await asyncio.sleep(_AWAY_SECONDS)
            self.outages += 1

    async def _start_again(self) -> None:
        """Be what starts ended servers anew: one that begins while the database is away says so and ends."""
        while True:
            for name in self._replicas:
                self._revive(name)
            await asyncio.sleep(0.2)

    def _revive(self, name: str) -> None:
        if self._hosts[name].has_ended():
            assert self._pace.outages, f"{name} has ended: {self._log()}"
            self._nursery.buried(self._hosts[name])
            self._start(name)

    def _kill(self, name: str) -> None:
        self._revive(name)
        super()._kill(name)

    async def _struck(self) -> str:
        """Return one of the nine: half of the time whoever has just had an effect, or has had its server do it."""
        name = self.chance.choice([*self._replicas])
        if self.chance.random() < 0.5:
            await self._after_effect()
            for other in self._replicas:
                firsts = living_children(self._hosts[other].pid)
                below = firsts.union(*map(living_children, firsts))
                if self.world.latest in {self._hosts[other].pid, *below}:
                    return other
        return name

    async def _ask(self, runs: Iterable[int], chance: random.Random) -> None:
        """Ask agent servers until a run has ended; then once more, which must repeat nothing."""
        async with httpx.AsyncClient(timeout=LONGEST_SECONDS) as client:
            asker = Asker(client, f"http://127.0.0.1:{self._fronts['agent']}", self.answers)
            for number in runs:
                run = FIRST_ASKED + number
                await until(lambda number=number: self._is_struck_for(number))
                js, self.asked[run] = pauses.program(run, chance, has_journal=True)
                self.came[run] = await asyncio.wait_for(asker.ask(run, js), LONGEST_SECONDS)
                assert await asyncio.wait_for(asker.ask(run, js), LONGEST_SECONDS) == self.came[run], run
                self._ended += 1

    async def _all_ended(self) -> None:
        await until(lambda: self.outages == self._pace.outages, LONGEST_SECONDS)
        await super()._all_ended()
        for name in PEOPLE:
            assert not self._hosts[name].has_ended(), f"{name} has gone: {self._log()}"
        await self._all_clicked()
        await until(lambda: all(map(is_up, self._doors())))
        for role in (*ROLES, "desk"):
            hosts = [host.pid for name, host in self._hosts.items() if name.split()[0] == role]
            self.mebibytes[role] = max(map(_mebibytes, hosts))
        self.mebibytes["nginx"] = _mebibytes(self.proxy.process.pid)

    async def _all_clicked(self) -> None:
        """Wait until both people have dealt with all that happened."""
        deadline = time.monotonic() + LONGEST_SECONDS
        newest = max([change.sequence async for change in past(self.store)], default=0)
        for actor, lines in self.decided.items():
            while not any(line[0] == "seen" and line[2] >= newest for line in lines.read()):
                assert time.monotonic() < deadline, f"{actor} has stopped looking: {self._log()}"
                await asyncio.sleep(0.05)

    def _log(self) -> str:
        return f"{self._raised()}\n{super()._log()}"

    def _raised(self) -> str:
        """Return what servers have raised, each with what follows in the log: traces would be lost among the rest."""
        log = (self.folder / "log").read_text()
        return "\n".join(log[max(0, one.start() - 200) : one.end() + 4000] for one in _RAISED.finditer(log))[:40000]

    # --- what must be so ---

    async def check(self) -> Counter[str]:
        """Raise AssertionError for a call, a decision or a record that is not as it must be; return what there was."""
        assert not self._raised(), self._log()
        failed = {name: told.counts for name, told in self.proxy.told().items() if told.counts["500"]}
        assert not failed, (failed, self._log())
        found = await super().check()
        kept: dict[str, Any] = {}
        records: dict[str, list[Any]] = defaultdict(list)
        async for one in self._records():
            record = await self.store.record(one.id, tenant=ALL_TENANTS)
            kept.update((request.interrupt_id, request) for request in record.requests)
            records[record.labels.get("run", "")].append(record)
        found["requests"] = len(kept)
        found["unknown"] = sum(one.kind == UNKNOWN_OUTCOME_KIND for one in kept.values())
        for run, inputs in self.asked.items():
            (record,) = records[str(run)]
            self._check_run(run, inputs, record)
        self._check_clicks(kept, found)
        assert await verify_audit(self.store) is None
        lines = [line async for line in self.store.audit(tenant=ALL_TENANTS)]
        decided = Counter(line.interrupt_id for line in lines if line.kind == "decided")
        assert decided == Counter([name for name, one in kept.items() if one.decision is not None])
        found["decisions"], found["lines"] = decided.total(), len(lines)
        return found

    def _check_run(self, run: int, inputs: list[Any], record: Any) -> None:
        """Hold what a run came to against what was decided."""
        said = {key_of(one.input): one.decision["approved"] for one in record.requests if "approved" in one.decision}
        given = [said.get(key_of(one), True) for one in inputs]
        expected = [value_of(one) if is_given else "denied" for one, is_given in zip(inputs, given, strict=True)]
        assert self.came[run] == record.outcome.value == expected, (self.came[run], record)
        effects = [len(self.world.effects.get(key_of(one), ())) for one in inputs]
        assert effects == [int(is_given) for is_given in given], (effects, record)

    def _check_clicks(self, kept: dict[str, Any], found: Counter[str]) -> None:
        """Hold what people were told against what is kept: one decision for each request, whoever asked whom."""
        for lines in self.decided.values():
            for kind, actor, *rest in lines.read():
                found[kind] += 1
                if kind == "decided":
                    name, told, _, decision = rest
                    assert (kept[name].actor, kept[name].decision) == (told, decision), (actor, rest, kept[name])
                elif kind == "refused":
                    name, code, told = rest
                    assert code in ("AlreadyDecided", "RequestSettled", "RequestSuperseded"), rest
                    assert code != "AlreadyDecided" or kept[name].actor == told, (rest, kept[name])


def _mebibytes(pid: int) -> float:
    """What a process and its children have for themselves, with their part of what they share."""
    sizes = [line for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:")]
    return int(sizes[0].split()[1]) / 1024 + sum(map(_mebibytes, living_children(pid)))


@dataclass(frozen=True)
class Done:
    """What came of a run; ``told`` says it of requests through the proxy."""

    chaos: Replicas
    found: Counter[str]
    told: dict[str, Told]


@dataclass(frozen=True)
class Pace:
    """How much happens. ``is_patient``: nobody else is killed before all are up again, however long that takes."""

    runs: int
    outages: int = 0
    seconds_each: float = SECONDS_EACH
    runs_each: int = RUNS_EACH
    is_patient: bool = False


def run_replicas(pace: Pace, *, seed: int = 1) -> Done:
    """Run it, and check everything, also that nothing is left afterwards.

    Raises AssertionError; SystemExit where there is no nginx.
    """
    if found_nginx() is None:
        raise SystemExit(MISSING)

    async def run(where: str, folder: Path) -> Done:
        chaos = Replicas(pace, seed, where, folder)
        try:
            await chaos.run()
            return Done(chaos, await chaos.check(), chaos.proxy.told())
        finally:
            chaos.close()
            await chaos.store.aclose()

    with nothing_left(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with no_orphan_left(), database_of("postgres", folder) as where:  # which is started again in the middle
            done = asyncio.run(run(where, folder))
        done.chaos.check_left()
        return done


def main() -> None:
    """Run it long, and print the figures."""
    runs, seed, outages, *_ = map(int, [*sys.argv[1:], *("600", "1", "0")[len(sys.argv) - 1 :]])
    started = time.monotonic()
    logging.disable()  # clients whose gateway dies have much to say
    done = run_replicas(Pace(runs, outages), seed=seed)
    chaos, found = done.chaos, done.found
    requests = sum((one.counts for one in done.told.values()), Counter[str]())
    print(f"replicas: {runs} runs, {time.monotonic() - started:.0f} s")
    print(f"  SIGKILL            {chaos.sent.total()}: {_counted(chaos.sent)}; Postgres crashed {chaos.outages} times")
    print(f"  clients were told  {_counted(chaos.answers)}; {len(chaos.came)} values of agent servers")
    print(f"  calls in effect    {found['effects']}, each exactly once")
    print(f"  records            {found['completed']} completed, none else")
    print(f"  approvals          {found['requests']} requests, {found['unknown']} of them about unknown outcomes")
    print(
        f"  decisions          {found['decisions']}, one for each; {found['decided']} clicks told of theirs, ", end=""
    )
    print(f"{found['refused']} refused; {found['lines']} lines of the audit in one chain")
    print(f"  through the proxy  {_counted(requests)}")
    for name, told in sorted(done.told.items()):
        times = f"p50 {1000 * told.quantile(0.5):.0f} ms, p99 {1000 * told.quantile(0.99):.0f} ms"
        print(f"    {name:17}{times}, longest {1000 * told.quantile(1):.0f} ms; {_counted(told.counts)}")
    print(f"  memory at the end  {', '.join(f'{name} {size:.0f} MiB' for name, size in chaos.mebibytes.items())}")
    print("  left afterwards    no process, no descriptor, no temporary file")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    main()
