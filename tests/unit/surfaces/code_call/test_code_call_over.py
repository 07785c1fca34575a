"""A tool set over other tools, for another conversation: neither sees the other's."""

from __future__ import annotations

import asyncio
import threading

from codemode import CodeCallToolset, Tool, create_code_call_tools

WAIT_SECONDS = 60.0


def tool(name: str, description: str) -> Tool:
    return Tool(name, execute=lambda value: f"{name} {value}", description=description, input_schema={})


def test_each_set_answers_for_its_own_tools():
    heard: list[object] = []
    first = create_code_call_tools([tool("alpha", "Weigh a parcel.")], {"names": "underscore"})
    first.on_tools_changed(heard.append)
    assert [one.name for one in first.tools] == ["codecall_search", "codecall_describe", "codecall_execute"]
    second = first.with_tools([tool("beta", "Weigh a parcel."), tool("gamma", "Paint a wall.")])

    async def found(tools: CodeCallToolset) -> list[str]:
        answer = await tools.search({"query": "weigh a parcel"})
        return [one["name"] for one in answer["tools"]]

    assert asyncio.run(found(first)) == ["alpha"]
    assert asyncio.run(found(second)) == ["beta"]
    first.update([])
    assert asyncio.run(found(second)) == ["beta"]
    second.update([tool("delta", "Weigh a parcel.")])
    assert asyncio.run(found(first)) == []
    assert len(heard) == 1


def test_the_meta_tools_of_each_lead_to_its_own_tools():
    first = create_code_call_tools([tool("alpha", "Weigh a parcel.")], {"names": "underscore"})
    search = {tools.tools[0].name for tools in (first, first.with_tools([]))}
    assert search == {"codecall_search"}
    other = first.with_tools([tool("beta", "Weigh a parcel.")])
    for tools, name in ((first, "alpha"), (other, "beta")):
        described = asyncio.run(tools.call("codecall_describe", {"tools": ["alpha", "beta"]}))
        assert [one["name"] for one in described["tools"]] == [name]
        assert tools.tools[0] is not (other if tools is first else first).tools[0]


def test_a_set_holds_the_names_of_its_index():
    hidden = Tool("gamma", execute=None, metadata={"codecall": {"enabledInCodeCall": False}})
    first = create_code_call_tools([tool("alpha", "Weigh a parcel."), hidden])
    assert [name in first for name in ("alpha", "gamma", "codecall.search", "nowhere")] == [True, False, False, False]


def test_a_small_set_in_between_makes_nobody_embed_a_text_again():
    embedded: list[str] = []
    many_told, new_told = threading.Event(), threading.Event()

    def embed(texts: list[str]) -> list[list[float]]:
        embedded.extend(texts)
        if len(embedded) > 1200:
            many_told.set()
        if any("brand new" in text for text in texts):
            new_told.set()
        return [[1.0, float(len(text))] for text in texts]

    many = [tool(f"tool_{number}", f"Weigh parcel {number}.") for number in range(1200)]
    first = create_code_call_tools([], {"search": {"embed": embed}}).with_tools(many)

    async def take_turns() -> None:
        await first.search({"query": "weigh"})
        assert await asyncio.to_thread(many_told.wait, WAIT_SECONDS)
        await first.with_tools([tool("alpha", "Weigh a letter.")]).search({"query": "letter"})
        await first.with_tools([*many, tool("beta", "Weigh a brand new thing.")]).search({"query": "thing"})
        assert await asyncio.to_thread(new_told.wait, WAIT_SECONDS)

    asyncio.run(take_turns())
    assert len(embedded) == len(set(embedded))
