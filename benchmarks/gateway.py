"""W21: the gateway against direct use of the same servers: `python -m benchmarks.gateway [rounds]`.

All are processes over stdio, driven by the SDK's client: `codemode mcp`, a bare server of the SDK, and, where
`python -m benchmarks.peers.install` has installed it, fastmcp's forwarding proxy. A round measures every way once, and
the next begins with another one. A ratio is that of the medians; *best* in the notes is that of the shortest times,
which a machine that others load disturbs least.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

from codemode_gateway import Gateway, GatewayConfig, GatewayOptions, GatewaySettings
from codemode_gateway.cli.server_commands import fetch_gateway_tool

from codemode import Tool
from codemode.surfaces.modules.servers import ModuleServer

from . import prompts
from .gateway_places import PROXY, SDK, STDLIB, Places, approved, calling, client_of, noop, paused, result
from .measure import Samples
from .peers.install import PYTHON
from .table import Row, machine, table

CALLS, AT_ONCE, SERVERS, SECONDS = 100, 32, 20, 1.0

Way = Callable[[], Awaitable[float]]


class Pair(NamedTuple):
    """A row: a way, and the one it is compared with, by their names."""

    what: str
    ours: str
    floor: str
    goal: float | None = None


PAIRS = (
    Pair(f"{CALLS} calls in sequence / direct", "sequence", "direct sequence", 1.25),
    Pair(f"{CALLS} calls in sequence, journal / direct", "journal", "direct sequence"),
    Pair(f"{CALLS} calls in sequence / direct, plain server", "plain sequence", "direct plain sequence", 1.25),
    Pair(f"{AT_ONCE} calls at once / direct", "at once", "direct at once", 1.4),
    Pair(f"{CALLS} calls in sequence / by proxy", "sequence", "proxy sequence", 0.7),
    Pair(f"{AT_ONCE} calls at once / by proxy", "at once", "proxy at once", 0.7),
    Pair("a run without calls / a direct call", "nothing", "direct call", 2.0),
    Pair("first tools/list, warm / bare server", "first list", "bare first list", 1.3),
    Pair(f"{SERVERS} servers that sleep a second / one", "many servers", "one server", 1.5),
    Pair("resuming elsewhere / here", "elsewhere", "here", 1.3),
)


async def took(work: Awaitable[Any], expected: Any) -> float:
    """Return the milliseconds that something takes. Raises `ValueError` where it comes to something else."""
    began = time.perf_counter()
    found = await work
    passed = (time.perf_counter() - began) * 1000
    if found != expected:
        raise ValueError(f"{found!r} is not {expected!r}")
    return passed


def in_sequence(calls: int) -> str:
    """Return a program of so many calls, one after the other."""
    return calling(
        f"let sum = 0; for (let n = 0; n < {calls}; n++) sum += Number(await tools.noop({{ n }})); return sum"
    )


def at_once(calls: int) -> str:
    """Return a program of so many calls at one time."""
    made = f"Array.from({{ length: {calls} }}, (_, n) => tools.noop({{ n }}))"
    return calling(f"return (await Promise.all({made})).reduce((sum, one) => sum + Number(one), 0)")


def through(client: Any, code: str, expected: Any) -> Way:
    """Return how long a program takes."""
    return lambda: took(result(client, code), expected)


def directly(client: Any, calls: int, *, is_at_once: bool = False) -> Way:
    """Return how long so many calls take without a gateway."""

    async def one_by_one() -> int:
        return sum([await noop(client, n) for n in range(calls)])

    async def together() -> int:
        return sum(await asyncio.gather(*(noop(client, n) for n in range(calls))))

    return lambda: took(together() if is_at_once else one_by_one(), sum(range(calls)))


class Bench:
    """All ways of one folder, by name, and what each has taken."""

    def __init__(self, folder: Path, calls: int = CALLS, servers: int = SERVERS, seconds: float = SECONDS) -> None:
        self.samples: dict[str, Samples] = {}
        self._places = Places(folder)
        self._calls, self._servers, self._seconds = calls, servers, seconds
        self._ways: dict[str, Way] = {}

    async def measure(self, rounds: int, *, untimed: int = 1) -> None:
        """Take every way once a round, at first untimed."""
        async with AsyncExitStack() as stack:
            await self._calling(stack)
            await self._resuming(stack)
            self._starting()
            for way in [*self._ways.values()] * untimed:
                await way()
            names = list(self._ways)
            for at in range(rounds):
                turn = at % len(names)
                for name in names[turn:] + names[:turn]:
                    self.samples.setdefault(name, Samples()).add([await self._ways[name]()])

    async def _calling(self, stack: AsyncExitStack) -> None:
        gateway = await stack.enter_async_context(self._places.gateway({"tools": SDK}).client())
        journal = await stack.enter_async_context(self._places.gateway({"tools": SDK}, journal=True).client())
        plain = await stack.enter_async_context(self._places.gateway({"tools": STDLIB}).client())
        direct = await stack.enter_async_context(client_of(SDK))
        direct_plain = await stack.enter_async_context(client_of(STDLIB))
        calls, few = self._calls, min(self._calls, AT_ONCE)
        total = sum(range(calls))
        self._ways |= {
            "sequence": through(gateway, in_sequence(calls), total),
            "journal": through(journal, in_sequence(calls), total),
            "plain sequence": through(plain, in_sequence(calls), total),
            "at once": through(gateway, at_once(few), sum(range(few))),
            "nothing": through(gateway, "globalThis.__codemode_result__ = 1", 1),
            "direct sequence": directly(direct, calls),
            "direct plain sequence": directly(direct_plain, calls),
            "direct at once": directly(direct, few, is_at_once=True),
            "direct call": directly(direct, 1),
        }
        if PYTHON.exists():
            proxy = await stack.enter_async_context(client_of(PROXY))
            self._ways["proxy sequence"] = directly(proxy, calls)
            self._ways["proxy at once"] = directly(proxy, few, is_at_once=True)

    async def _resuming(self, stack: AsyncExitStack) -> None:
        key = "a key of the benchmarks, of 32 bytes"
        own: dict[str, Any] = {"keys": [key], "store": self._places.store, "journal": False}
        here, other = [
            await stack.enter_async_context(self._places.gateway({"tools": SDK}, **own).client()) for _ in range(2)
        ]

        async def resumed(client: Any) -> float:
            code = calling("return [await tools.noop({ n: 1 }), await tools.put({ n: 2 })]")
            first = await paused(here, code)
            return await took(approved(client, code, first), ["1", "2"])

        self._ways |= {"here": lambda: resumed(here), "elsewhere": lambda: resumed(other)}

    def _starting(self) -> None:
        warm = self._places.gateway({"tools": SDK})

        async def listed(command: list[str], environment: Any = None) -> float:
            began = time.perf_counter()
            async with client_of(command, environment) as client:
                await client.list_tools()
                return (time.perf_counter() - began) * 1000

        async def used(count: int) -> float:
            names = [f"s{at}" for at in range(count)]
            servers = {name: [*STDLIB, str(self._seconds)] for name in names}
            made = ", ".join(f"{name}.noop({{ n: 1 }})" for name in names)
            async with self._places.gateway(servers).client() as client:
                code = calling(f"return await Promise.all([{made}])", *names)
                return await took(result(client, code), ["1"] * count)

        self._ways |= {
            "first list": lambda: listed(warm.command, warm.environment),
            "bare first list": lambda: listed(SDK),
            "many servers": lambda: used(self._servers),
            "one server": lambda: used(1),
        }

    def rows(self) -> list[Row]:
        """Return a row for each pair that was measured."""
        return [
            row_of(pair, self.samples[pair.ours], self.samples[pair.floor])
            if {pair.ours, pair.floor} <= set(self.samples)
            else Row("W21", pair.what, note="not measured: python -m benchmarks.peers.install installs the proxy")
            for pair in PAIRS
        ]


def row_of(pair: Pair, ours: Samples, floor: Samples) -> Row:
    """Return the row of a pair."""
    ratio = ours.median / floor.median
    best = min(min(one) for one in ours.rounds) / min(min(one) for one in floor.rounds)
    row = Row("W21", pair.what, ours=ours.median, floor=floor.median, ratio=ratio, spread=ours.spread)
    row.note = f"{pair.what}: best {best:.2f}"
    if pair.goal is not None:
        row.target, row.met = f"<= {pair.goal:g}x", ratio <= pair.goal
    return row


async def token_rows() -> list[Row]:
    """Return how many tokens a client is given beside the direct listing, goals in thousandths of that."""
    many = prompts.many_servers()
    return [
        row
        for servers, goals in ((prompts.servers_of_the_sample(), (None, None)), (many, (10.0, 40.0)))
        for row in token_rows_of(servers, await given_at_start(servers), goals)
    ]


def token_rows_of(servers: Any, given: int, goals: tuple[float | None, float | None]) -> Iterator[Row]:
    """Yield a row for what a client is given at the start, and one for that with a server's declarations."""
    direct, _, longest, average = prompts.characters_of_modules(servers)
    most = f"; the longest look-up has {longest // prompts.CHARACTERS_OF_A_TOKEN:,} tokens"
    tools = f"{sum(len(one.tools) for one in servers):,} tools of {len(servers)} servers"
    for what, length, goal in (("at the start", given, goals[0]), ("and a look-up", given + average, goals[1])):
        share = 1000 * length / direct
        yield Row(
            "W21",
            f"tokens of {tools}, {what}",
            ours=length / prompts.CHARACTERS_OF_A_TOKEN,
            unit="tokens",
            floor=direct / prompts.CHARACTERS_OF_A_TOKEN,
            ratio=share / 1000,
            target="" if goal is None else f"<= 1/{1000 / goal:.0f}",
            met=None if goal is None else share <= goal,
            note=f"{tools}, {what}: 1/{1000 / share:.0f}{most}",
        )


async def given_at_start(servers: Any) -> int:
    """Return the characters of the one tool and the instructions, as a gateway over these servers gives them."""
    return len(await as_given_at_start(servers))


async def as_given_at_start(servers: Any) -> str:
    """Return the one tool as JSON, and the instructions, as a gateway over these servers gives them."""
    given = [ModuleServer(one.path, {tool.tool_name: _renamed(tool) for tool in one.tools}) for one in servers]
    with tempfile.TemporaryDirectory() as folder:
        config = GatewayConfig(settings=GatewaySettings(state_folder=Path(folder)))
        async with Gateway(config, GatewayOptions(servers=given)) as gateway:
            tool = await fetch_gateway_tool(gateway)
            said = gateway.server.instructions or ""
    return json.dumps(tool, separators=(",", ":"), ensure_ascii=False) + said


def _renamed(of_module: Any) -> Tool:
    tool = of_module.tool
    return Tool(
        of_module.tool_name,
        execute=_nothing,
        description=tool.description,
        input_schema=tool.input_json_schema,
        output_schema=tool.output_json_schema,
    )


async def _nothing(_value: Any) -> None: ...


async def gateway_rows(rounds: int, **sizes: Any) -> list[Row]:
    """Return all rows."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), **sizes)
        await bench.measure(rounds)
    return [*bench.rows(), *await token_rows()]


if __name__ == "__main__":
    print(machine(), "\n")
    print(table(asyncio.run(gateway_rows(int(sys.argv[1]) if sys.argv[1:] else 9))))
