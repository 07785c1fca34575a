"""Chaos over gateways: servers, workers and gateways are killed at random, and clients vanish while somebody decides.

``python -m tests.soak.gateways [runs] [seed] [sqlite|postgres] [guard|journal|soak]`` prints what came of it. ``soak``
kills nobody, and says by how much the gateway has grown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from codemode_gateway.gateway.http_settings import compute_token_digest
from tests.soak import gateway_processes, vanishing_clients
from tests.soak.gateway_world import World, edited, key_of, verdict_on
from tests.soak.nursery import Host, Nursery
from tests.soak.pause_hosts import store_of
from tests.soak.pauses import database_of
from tests.soak.vanishing_clients import Gone, Lost, Visitor, is_up
from tests.support.free_ports import free_ports
from tests.support.leftovers import command_line, descriptors, living_children, no_orphan_left, nothing_left
from tests.support.waiting import until

from codemode import CodeModeError
from codemode.protocol.ledger import UNKNOWN_OUTCOME_KIND
from codemode.stores import ALL_TENANTS, StoredRequest

GATEWAYS, VISITORS, RUNS_EACH = 2, 8, 4
"""``RUNS_EACH``: how many runs there are for each strike; a fast machine has to be struck as well."""
LONGEST_SECONDS = 90.0
MOST_GROWTH_BYTES, MOST_MORE_DESCRIPTORS, WARM_UP = 32 << 20, 8, 400
TOKENS = {name: f"{name}-has-a-token-of-the-tests" for name in ("ana", "bob")}
_KEY = "a key of the tests, of 32 bytes."
_PROCESSES = gateway_processes.__name__
_SCRIPT = Path(__file__).parents[1] / "support" / "mcp_servers" / "counting_server.py"
_AT_ONCE = "const ended = await Promise.allSettled(CALLS.map((call) => call()));"
_ONE_BY_ONE = """const ended = [];
for (const call of CALLS) ended.push(...await Promise.allSettled([call()]));"""
_TOLD = """
const told = (one) => one.status === "fulfilled" ? one.value : { code: one.reason.code, message: one.reason.message };
globalThis.__codemode_result__ = ended.map(told);
"""
_OPEN = ("waiting", "pending", "resuming", "resting")


@dataclass(frozen=True)
class Call:
    """One call of a program."""

    server: str
    tool: str
    value: dict[str, int]


def program(run: int, chance: random.Random) -> tuple[str, list[Call]]:
    """A program of one to three calls, at once or one by one, one of which somebody has to decide about."""
    tools = ["pay", *(chance.choice(("pay", "note")) for _ in range(chance.randint(0, 2)))]
    calls = [
        Call(chance.choice(("shop", "desk")), tool, {"run": run, "number": number}) for number, tool in enumerate(tools)
    ]
    imports = [f'import * as {one} from "@codemode/servers/{one}";' for one in sorted({one.server for one in calls})]
    texts = [f"() => {one.server}.{one.tool}({json.dumps(one.value)})" for one in calls]
    form = chance.choice((_AT_ONCE, _ONE_BY_ONE)).replace("CALLS", f"[{', '.join(texts)}]")
    return "\n".join([*imports, form, _TOLD]), calls


class Chaos:
    """One reign over many runs. ``sent`` counts signals, ``answers`` what clients were told."""

    modules: ClassVar[tuple[str, ...]] = (_PROCESSES, vanishing_clients.__name__)
    gateways: ClassVar[int] = GATEWAYS
    eras: ClassVar[tuple[str, ...]] = ("auto", "legacy")
    runs_each = RUNS_EACH
    longest_seconds: ClassVar[float] = LONGEST_SECONDS

    def __init__(self, runs: int, seed: int, database: tuple[str, str], folder: Path, mode: str) -> None:
        self.runs, self.mode, self.folder = runs, mode, folder
        self.chance = random.Random(seed)
        self.world = World(folder / "world")
        self.store = store_of(*database)
        self.sent: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.calls: dict[int, list[Call]] = {}
        self.told: dict[int, dict[str, Any]] = {}
        self.vanished: list[int] = []
        self.memory: list[int] = []
        self.descriptors: list[int] = []
        self._hosts: dict[str, Host] = {}
        self._ended = 0
        *self._ports, self._desk = free_ports(self.gateways + 1)
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._config = self._written(database)

    @property
    def urls(self) -> list[str]:
        """Where the gateways are."""
        return [f"http://127.0.0.1:{port}/mcp" for port in self._ports]

    def piped(self) -> list[str]:
        """How a gateway over stdio is started, after ``python``."""
        folder = self.folder / "piped"
        return ["-m", _PROCESSES, str(self._config), str(folder), str(self.temporary), self.mode]

    def _written(self, database: tuple[str, str]) -> Path:
        kind, where = database
        shop = {"command": sys.executable, "args": ["-I", "-S", str(_SCRIPT), str(self.world.lines.path)]}
        users = {f"sha256:{compute_token_digest(token)}": {"name": name} for name, token in TOKENS.items()}
        own = {
            "store": f"sqlite:///{where}" if kind == "sqlite" else _url_of(where),
            "keys": [_KEY],
            "journal": self.mode != "guard",
            "auth": {"tokens": users},
            "approvalWaitMs": 50,
        }
        desk = {"url": f"http://127.0.0.1:{self._desk}/mcp"}
        path = self.folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": {"shop": shop, "desk": desk}, "codemode": own}))
        return path

    async def run(self) -> None:
        """Run everything, with strikes until all runs have ended."""
        with Nursery(self.folder / "log", *self.modules) as nursery:
            self._nursery = nursery
            for name in self._names():
                self._start(name)
            await until(lambda: all(map(is_up, self._doors())))
            others = [asyncio.create_task(one) for one in self._others()]
            try:
                async with asyncio.TaskGroup() as group:
                    for one in self._clients(iter(range(self.runs))):
                        group.create_task(one)
                await self._all_ended()
            finally:
                for one in others:
                    one.cancel()
                await asyncio.wait(others)
            for one in others:
                assert one.cancelled() or one.exception() is None, one.exception()

    def _names(self) -> list[str]:
        return ["desk", *(f"gateway {number}" for number in range(self.gateways))]

    def _doors(self) -> list[Any]:
        """Return the ports at which somebody listens who may be killed."""
        return [*self._ports, self._desk]

    def _others(self) -> list[Coroutine[Any, Any, None]]:
        """Return what goes on beside the clients until all has ended."""
        return [self._decide()] if self.mode == "soak" else [self._decide(), self._reign()]

    def _clients(self, runs: Iterable[int]) -> list[Coroutine[Any, Any, None]]:
        """Return the clients, who share the runs."""
        return [self._visit(runs, random.Random(self.chance.random()), number) for number in range(VISITORS)]

    def _manners(self, number: int) -> Sequence[str]:
        return ("rounds", "session", "console", "vanish") if number else ("piped",)

    def _start(self, name: str) -> None:
        self._hosts[name] = self._nursery.start(*self._host(name))

    def _host(self, name: str) -> list[Any]:
        if name == "desk":
            return [_PROCESSES, "serve_counting", str(self.world.lines.path), self._desk]
        number = int(name.split()[1])
        where = str(self.folder / f"gateway-{number}")
        return [
            _PROCESSES,
            "serve_gateway",
            str(self._config),
            where,
            self._ports[number],
            str(self.temporary),
            self.mode,
        ]

    async def _visit(self, runs: Iterable[int], chance: random.Random, number: int) -> None:
        urls, piped, manners = self.urls, self.piped(), self._manners(number)
        visitor = Visitor(urls, piped, TOKENS, self.world, self.folder, self._nursery, chance, self.eras)
        for run in runs:
            await until(lambda run=run: self._is_struck_for(run))
            code, self.calls[run] = program(run, chance)
            try:
                answer = await asyncio.wait_for(visitor.visit(chance.choice(manners), code), self.longest_seconds)
            except Gone:
                self.answers["vanished"] += 1
                self.vanished.append(run)
            except Lost:
                self.answers["lost connection"] += 1
            else:
                self.told[run] = answer
            self._ended += 1
            self._sample()

    def _is_struck_for(self, run: int) -> bool:
        return self.mode == "soak" or run <= self.runs_each * self.sent.total() + VISITORS

    def _sample(self) -> None:
        if self.mode == "soak" and self._ended >= WARM_UP and self._ended % 100 == 0:
            pid = self._hosts["gateway 0"].pid
            pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
            self.memory.append(pages * os.sysconf("SC_PAGE_SIZE"))
            self.descriptors.append(len(descriptors(pid)))

    async def _decide(self) -> None:
        """Be the person who decides in the store about everything that comes up there."""
        async for _ in self._looks():
            page = await self.store.list(tenant=ALL_TENANTS, state="waiting", limit=100)
            for record in page.records:
                for request in record.requests:
                    said = self._opinion(request)
                    if request.state == "waiting" and said is not None:
                        with contextlib.suppress(CodeModeError):  # somebody was faster
                            await self.store.decide({request.interrupt_id: said}, actor="person", tenant=ALL_TENANTS)

    async def _looks(self) -> AsyncIterator[None]:
        with self.store.watch() as watch:
            while True:
                yield
                await watch.wait(0.2)

    def _opinion(self, request: StoredRequest) -> dict[str, Any] | None:
        if request.kind == UNKNOWN_OUTCOME_KIND:
            return self.world.found_out(request.input)
        if verdict_on(request.input) == "deny":
            return {"approved": False}
        return {"approved": True, "input": edited(request.input)}

    async def _reign(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0.02, 0.2))
            if self.sent.total() * self.runs_each < self._ended and self._ended < self.runs:
                await self._strike()

    async def _strike(self) -> None:
        await until(lambda: all(map(is_up, self._doors())))
        chance = self.chance.random()
        if chance < 0.35:
            await self._after_effect()
        name = self.chance.choice([*self._hosts])
        if chance < 0.3:
            self._kill_server()
        elif chance < 0.6:
            self._kill_worker(f"gateway {self.chance.randrange(self.gateways)}")
        elif chance < 0.7:
            self._kill_piped()
        else:
            self._kill(name)

    async def _after_effect(self) -> None:
        """Wait for the next effect, not for long."""
        self.world.look()
        self.world.latest, deadline = None, time.monotonic() + 1
        while self.world.latest is None and time.monotonic() < deadline:
            await asyncio.sleep(0.001)
            self.world.look()

    def _kill(self, name: str) -> None:
        self.sent[name.split(maxsplit=1)[0]] += 1
        self._hosts[name].send(signal.SIGKILL)
        status = self._nursery.buried(self._hosts[name])
        assert status == -signal.SIGKILL, f"{name} ended with {status}: {self._log()}"
        self._start(name)

    def _kill_server(self) -> None:
        """Kill whoever had the latest effect, or some other server."""
        self.world.look()
        if self.world.latest == self._hosts["desk"].pid:
            self._kill("desk")
            return
        alive = [pid for pid in self.world.shops if _SCRIPT.name in command_line(pid)]
        self._send("shop", [self.world.latest] if self.world.latest in alive else alive)

    def _kill_worker(self, name: str) -> None:
        firsts = living_children(self._hosts[name].pid)
        seconds = [pid for first in firsts for pid in living_children(first)]
        self._send("worker", [pid for pid in seconds if _SCRIPT.name not in command_line(pid)])

    def _kill_piped(self) -> None:
        found = living_children(os.getpid())
        self._send("piped", [pid for pid in found if str(self.folder / "piped") in command_line(pid)])

    def _send(self, name: str, pids: list[Any]) -> None:
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.chance.choice(sorted(pids)), signal.SIGKILL)
                self.sent[name] += 1

    async def _all_ended(self) -> None:
        """Wait until nothing of all that was kept is open. Raises AssertionError when that takes too long."""
        deadline = time.monotonic() + self.longest_seconds
        for state in _OPEN:
            while records := (await self.store.list(tenant=ALL_TENANTS, state=state, limit=5)).records:
                assert time.monotonic() < deadline, f"{records} do not end: {self._log()}"
                await asyncio.sleep(0.05)

    def _log(self) -> str:
        return (self.folder / "log").read_text()[-20000:]

    async def check(self) -> Counter[str]:
        """Raise AssertionError for a call or a record that is not as it must be; return what there was."""
        self.world.look()
        found: Counter[str] = Counter()
        for key, values in self.world.effects.items():
            assert len(values) == 1, f"{key} happened more than once: {values}, {self.told.get(int(key.split('.')[0]))}"
        found["effects"] = len(self.world.effects)
        for run, answer in self.told.items():
            self._check_answer(run, answer, found)
        for run, calls in self.calls.items():
            for one in calls:
                values = self.world.effects.get(key_of(one.value), [])
                asked = one.tool == "pay"
                assert not values or not asked or verdict_on(one.value) != "deny", (run, values)
                assert not values or values[0] == (edited(one.value) if asked else one.value), (run, values)
        if not self.sent.total():
            lost = [run for run in self.vanished if not self._is_complete(run)]
            assert not lost, f"{lost} were lost with their clients"
        async for record in self._records():
            found[record.state] += 1
            assert record.state == "completed", record
        return found

    def _is_complete(self, run: int) -> bool:
        return all(
            key_of(one.value) in self.world.effects or (one.tool == "pay" and verdict_on(one.value) == "deny")
            for one in self.calls[run]
        )

    async def _records(self) -> AsyncIterator[Any]:
        after = None
        while True:
            page = await self.store.list(tenant=ALL_TENANTS, after=after, limit=100)
            for one in page.records:
                yield one
            after = page.next
            if after is None:
                return

    def _check_answer(self, run: int, answer: Mapping[str, Any], found: Counter[str]) -> None:
        results = answer.get("result")
        if results is None:
            for one in answer["diagnostics"]:
                self.answers[one["code"]] += 1
            return
        self.answers["result"] += 1
        for one, told in zip(self.calls[run], results, strict=True):
            happened = bool(self.world.effects.get(key_of(one.value)))
            if isinstance(told, str):
                assert (told, happened) == (f"done {key_of(one.value)}", True), (run, answer)
                continue
            found[told["code"]] += 1
            if told["code"] == "APPROVAL_DENIED":
                assert verdict_on(one.value) == "deny", (run, answer)
            if told["code"] != "OUTCOME_UNKNOWN" and "nobody knows" not in told["message"]:
                assert not happened, (run, told)

    def check_left(self) -> None:
        """Raise AssertionError for files that nobody will take away."""
        assert not [*self.temporary.iterdir()]
        files = [str(one.relative_to(self.folder)) for one in self.folder.rglob("*") if one.is_file()]
        assert len(files) < 100, files
        if self.memory:
            assert self.memory[-1] - self.memory[0] < MOST_GROWTH_BYTES, self.memory
            assert self.descriptors[-1] - self.descriptors[0] <= MOST_MORE_DESCRIPTORS, self.descriptors

    def close(self) -> None:
        """Close files."""
        self.world.close()


def _url_of(dsn: str) -> str:
    parts = dict(part.split("=") for part in dsn.split())
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


@dataclass(frozen=True)
class Done:
    """What came of a run."""

    chaos: Chaos
    found: Counter[str]


def run_chaos(runs: int, *, seed: int = 1, kind: str = "sqlite", mode: str = "journal") -> Done:
    """Run it, and check everything, also that nothing is left afterwards. Raises AssertionError."""

    async def run(database: tuple[str, str], folder: Path) -> Done:
        chaos = Chaos(runs, seed, database, folder, mode)
        try:
            await chaos.run()
            return Done(chaos, await chaos.check())
        finally:
            chaos.close()
            await chaos.store.aclose()

    with nothing_left(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with database_of(kind, folder) as where:
            with no_orphan_left():
                done = asyncio.run(run((kind, where), folder))
            done.chaos.check_left()
            return done


def main() -> None:
    """Run it long, and print the figures."""
    defaults = ("2000", "1", "sqlite", "journal")
    runs, seed, kind, mode, *_ = [*sys.argv[1:], *defaults[len(sys.argv) - 1 :]]
    started = time.monotonic()
    logging.disable()  # clients whose gateway dies have much to say
    done = run_chaos(int(runs), seed=int(seed), kind=kind, mode=mode)
    chaos, found = done.chaos, done.found
    print(f"gateways: {runs} runs on {kind}, {mode}, {time.monotonic() - started:.0f} s")
    print(f"  signals sent       {chaos.sent.total()}: {_counted(chaos.sent)}")
    print(f"  clients were told  {chaos.answers.total()}: {_counted(chaos.answers)}")
    print(f"  calls in effect    {found['effects']}, each exactly once")
    print(f"  calls and records  {_counted(found)}")
    print("  left afterwards    no process, no descriptor, no temporary file")
    if chaos.memory:
        memory = [one / (1 << 20) for one in chaos.memory]
        print(f"  memory             {memory[0]:.1f} MiB after {WARM_UP} runs, {memory[-1]:.1f} MiB at the end")
        print(f"  descriptors        {min(chaos.descriptors)} to {max(chaos.descriptors)}")


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


if __name__ == "__main__":
    main()
