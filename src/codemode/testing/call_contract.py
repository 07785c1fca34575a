"""Checks of what every plugin promises about the calls that programs make: failing, slow, alone, told of, nested."""

from __future__ import annotations

import asyncio
from typing import Any

from .plugin_under_test import (
    Check,
    ContractAnswer,
    ContractTool,
    Desk,
    Failed,
    Finished,
    Paused,
    PluginUnderTest,
    resume,
    run,
    within,
)

_TOO_LONG_SECONDS = 31.0  # of 30 that a program may take


async def catches_errors_of_tools(plugin: PluginUnderTest) -> None:
    """Failures that a program catches are its own business, however many: it goes on, and has not failed."""
    desk, fails = Desk(), list[int]()

    def broken(n: int) -> int:
        """Fail."""
        fails.append(n)
        raise ValueError(n)

    tools = [*desk.tools, ContractTool(name="broken", function=broken)]
    js = """
    const attempt = async (n) => {
      try { return await tools.broken({ n }); } catch (error) { return error instanceof Error; }
    };
    const caught = [await attempt(0), await attempt(1), await attempt(2), await attempt(3)];
    return [...caught, await tools.stock({ product: "nut" })];
    """
    outcome = await run(plugin, tools, js)
    assert outcome == Finished(value=[True] * 4 + [7]), outcome
    assert fails == [0, 1, 2, 3], fails


class _Endless:
    """A tool that never ends by itself; ``begun`` and ``ended`` tell of it."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    def tool(self) -> ContractTool:
        async def endless() -> int:
            """Wait for ever."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return 1

        return ContractTool(name="endless", function=endless)


async def bounds_slow_tools(plugin: PluginUnderTest) -> None:
    """``tool_timeout_ms`` bounds a call by itself: the tool is stopped, and the program may go on without it."""
    slow = _Endless()
    bounded = plugin.having(options={"execution_policy": {"tool_timeout_ms": 50}})
    js = "try { return await tools.endless({}); } catch (error) { return error.message; }"
    outcome = await run(bounded, [slow.tool()], js)
    assert isinstance(outcome, Finished), outcome
    assert "50 ms" in outcome.value, outcome
    if slow.begun.is_set():
        await within(slow.ended.wait())


async def does_not_count_slow_tools(plugin: PluginUnderTest) -> None:
    """What a tool takes is not the program's time, unless the wall's clock is asked for."""

    async def slow() -> str:
        """Take longer than a program may."""
        loop = asyncio.get_running_loop()
        now = loop.time
        loop.time = lambda: now() + _TOO_LONG_SECONDS
        for _ in range(3):
            await asyncio.sleep(0)
        return "here"

    tools, js = [ContractTool(name="slow", function=slow)], "return await tools.slow({});"
    outcome = await run(plugin, tools, js)
    assert outcome == Finished(value="here"), outcome
    outcome = await run(plugin.having(options={"execution_policy": {"clock": "wall"}}), tools, js)
    assert isinstance(outcome, Failed), outcome


async def stops_slow_tools(plugin: PluginUnderTest) -> None:
    """When the run is cancelled, the tool that a program waits for is."""
    slow = _Endless()
    running = asyncio.ensure_future(run(plugin, [slow.tool()], "return await tools.endless({});"))
    await within(slow.begun.wait())
    running.cancel()
    await within(slow.ended.wait())
    await within(asyncio.wait([running]))
    assert running.cancelled()


async def tells_of_calls_while_they_run(plugin: PluginUnderTest) -> None:
    """Whoever follows the run hears of each call of a program when it begins and when it ends, not afterwards."""
    heard: list[tuple[str, str]] = []
    first_ended, second_begun = asyncio.Event(), asyncio.Event()

    def hear(name: str, what: str) -> None:
        heard.append((name, what))
        if (name, what) == ("first", "ended"):
            first_ended.set()
        if (name, what) == ("second", "begun"):
            second_begun.set()

    def first() -> int:
        """Come first."""
        return 1

    async def second() -> int:
        """Go on when all of this was heard."""
        await within(first_ended.wait())
        await within(second_begun.wait())
        return 2

    tools = [ContractTool(name=one.__name__, function=one) for one in (first, second)]
    js = "return [await tools.first({}), await tools.second({})];"
    outcome = await run(plugin, tools, js, hear=hear)
    assert outcome == Finished(value=[1, 2]), outcome
    assert heard == [(name, what) for name in ("first", "second") for what in ("begun", "ended")], heard


async def runs_sequential_tools_alone(plugin: PluginUnderTest) -> None:
    """A tool that is declared sequential runs beside no other call of the program."""
    at_work: list[str] = []
    crowded: list[list[str]] = []

    def named(name: str) -> Any:
        async def tool(n: int) -> int:
            """Look around for a while."""
            at_work.append(name)
            for _ in range(50):
                await asyncio.sleep(0)
                if "alone" in at_work and len(at_work) > 1:
                    crowded.append([*at_work])
            at_work.remove(name)
            return n

        return tool

    tools = [ContractTool(name=name, function=named(name), sequential=name == "alone") for name in ("alone", "other")]
    js = "return await Promise.all([0, 1, 2, 3].map((n) => n % 2 ? tools.other({ n }) : tools.alone({ n })));"
    outcome = await run(plugin, tools, js)
    assert outcome == Finished(value=[0, 1, 2, 3]), outcome
    assert crowded == [], crowded


_REFUND = "return await tools.refund({ order: 'a' });"
_ASK = "const said = await tools.ask({}); return ['outer', said];"


def _asking(plugin: PluginUnderTest, desk: Desk, js: str) -> list[ContractTool]:
    return [ContractTool(name="ask", function=plugin.agent_in_a_tool(desk.tools, js))]


async def runs_agents_in_tools(plugin: PluginUnderTest) -> None:
    """A tool may run an agent of its own whose model writes programs too."""
    desk = Desk()
    tools = _asking(plugin, desk, "return await tools.stock({ product: 'nut' });")
    outcome = await run(plugin, tools, "return 1 + Number(await tools.ask({}));")
    assert outcome == Finished(value=8), outcome
    assert desk.did == [("stock", "nut")]


async def gates_agents_in_tools(plugin: PluginUnderTest) -> None:
    """What an agent inside a tool has to ask for does not run before, whatever becomes of the program."""
    desk = Desk()
    js = "try { return await tools.ask({}); } catch { return 'caught'; }"
    await run(plugin, _asking(plugin, desk, _REFUND), js)
    assert desk.did == []


async def asks_for_agents_in_tools(plugin: PluginUnderTest) -> None:
    """What an agent inside a tool has to ask for, the outer run asks: then all goes on, and nothing runs twice."""
    desk = Desk()
    inner = f"await tools.stock({{ product: 'nut' }}); {_REFUND}"
    tools = _asking(plugin, desk, inner)
    paused = await run(plugin, tools, _ASK)
    assert isinstance(paused, Paused), paused
    assert [(call.tool_name, call.input) for call in paused.calls] == [("refund", {"order": "a", "cents": 500})]
    assert desk.did == [("stock", "nut")]
    answers = {call.id: ContractAnswer(approved=True) for call in paused.calls}
    outcome = await resume(plugin, tools, paused.state, answers)
    assert outcome == Finished(value=["outer", "refunded a"]), outcome
    assert desk.did == [("stock", "nut"), ("refund", ("a", 500))]


CALLS: tuple[Check, ...] = (
    catches_errors_of_tools,
    bounds_slow_tools,
    stops_slow_tools,
    tells_of_calls_while_they_run,
    runs_sequential_tools_alone,
    runs_agents_in_tools,
    gates_agents_in_tools,
    asks_for_agents_in_tools,
)
"""On every face. At its deadline a program of exec rests, so `does_not_count_slow_tools` is for the others."""
