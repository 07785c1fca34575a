"""Sets of tools that change while others search, describe and run: every answer is of one version."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from waiting import within

from codemode import Tool, create_code_call_tools

COUNT, UPDATES, THREADS = 1_000, 60, 4


def generation(number: int) -> list[Tool]:
    """Tools that all say of which generation they are; most are the very same objects in every one."""
    own = [Tool(f"gen_{number}_{at}", execute=None, description=f"Marmot of generation g{number}.") for at in range(8)]
    return [*own, *SHARED]


SHARED = [Tool(f"shared_{at}", execute=None, description=f"Does shared thing {at}.") for at in range(COUNT)]


def test_no_answer_is_torn():
    tools = create_code_call_tools(generation(0), {"topK": 50})
    ended = threading.Event()
    failures: list[Any] = []

    def ask(thread: int) -> int:
        asked = 0
        while not ended.is_set() or asked < 3:
            answer = tools.search_sync({"query": "marmot generation"})
            names = [one["name"] for one in answer["tools"] if one["name"].startswith("gen_")]
            generations = {name.split("_")[1] for name in names}
            if len(names) != 8 or len(generations) != 1 or answer["totalAvailableTools"] != COUNT + 8:
                failures.append((thread, answer))
            described = tools.describe_sync({"tools": names})
            if {one["name"] for one in described["tools"]} not in (set(names), set()):
                failures.append((thread, described))
            asked += 1
        return asked

    versions: list[int] = []
    tools.on_tools_changed(lambda change: versions.append(change["version"]))
    with ThreadPoolExecutor(THREADS) as threads:
        asking = [threads.submit(ask, thread) for thread in range(THREADS)]
        for number in range(1, UPDATES + 1):
            tools.update(generation(number))
        ended.set()
        assert all(one.result(timeout=60) >= 3 for one in asking)
    assert failures == []
    assert versions == list(range(2, UPDATES + 2))


def test_versions_are_heard_in_order_whoever_changes_the_tools():
    tools = create_code_call_tools([Tool("first", execute=None)])
    heard: list[int] = []
    tools.on_tools_changed(lambda change: heard.append(change["version"]))

    def change(thread: int) -> None:
        for number in range(25):
            tools.update([Tool(f"tool_{thread}_{number}", execute=None)])

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(change, range(THREADS), timeout=60))
    assert heard == list(range(2, 25 * THREADS + 2))


def test_a_listener_may_change_the_tools_and_the_others_hear_in_order():
    tools = create_code_call_tools([Tool("first", execute=None)])
    heard: list[int] = []

    def changes(change: dict[str, Any]) -> None:
        if change["version"] == 2:
            tools.update([Tool("third", execute=None)])

    tools.on_tools_changed(changes)
    tools.on_tools_changed(lambda change: heard.append(change["version"]))
    tools.update([Tool("second", execute=None)])
    assert heard == [2, 3]


def test_a_script_that_runs_keeps_its_own():
    async def changed_meanwhile() -> Any:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait(_value: Any) -> str:
            begun.set()
            await go_on.wait()
            return "waited"

        first = [Tool("wait", execute=wait), Tool("old", execute=lambda value: "old")]
        tools = create_code_call_tools(first)
        script = "return [await callTool('wait'), await callTool('o' + 'ld'), getTool('new') === undefined]"
        running = asyncio.ensure_future(tools.execute({"script": script}))
        await begun.wait()
        tools.update([Tool("new", execute=lambda value: "new")])
        now = await tools.execute({"script": "return await callTool('new')"})
        go_on.set()
        return await running, now

    before, after = within(changed_meanwhile())
    assert before == {"status": "ok", "result": ["waited", "old", True]}
    assert after == {"status": "ok", "result": "new"}


def test_another_set_over_other_tools_is_of_its_own():
    tools = create_code_call_tools(generation(1), {"topK": 3})
    other = tools.with_tools([Tool("only", execute=lambda value: value, description="The only one.")])
    assert [one["name"] for one in other.search_sync({"query": "only"})["tools"]] == ["only"]
    assert other.call_sync("codecall.search", {"query": "marmot"})["tools"] == []
    assert len(tools.search_sync({"query": "marmot"})["tools"]) == 3
    assert other.tools[0] is not tools.tools[0]
    heard: list[Any] = []
    tools.on_tools_changed(heard.append)
    other.update([])
    assert heard == []
