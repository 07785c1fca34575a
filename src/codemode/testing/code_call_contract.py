"""Checks of what a plugin promises of CodeCall alone: a hidden catalog, statuses for answers, direct calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .plugin_under_test import (
    SECRET,
    Check,
    ContractAnswer,
    ContractTool,
    Desk,
    Failed,
    Finished,
    Outcome,
    Paused,
    PluginUnderTest,
    as_read,
    resume,
    run,
)

_SEARCH, _DESCRIBE, _EXECUTE, _INVOKE = "codecall_search", "codecall_describe", "codecall_execute", "codecall_invoke"


async def _answer(plugin: PluginUnderTest, tools: Sequence[ContractTool], name: str, given: Mapping[str, Any]) -> Any:
    outcome = await plugin.call(tools, name, given)
    assert isinstance(outcome, Finished), outcome
    return outcome.value


async def _invoke(plugin: PluginUnderTest, tools: Sequence[ContractTool], tool: str, given: Any) -> Outcome:
    return await plugin.call(tools, _INVOKE, {"tool": tool, "input": given})


async def _waiting_refund(plugin: PluginUnderTest, desk: Desk) -> Paused:
    paused = await _invoke(plugin, desk.tools, "refund", {"order": "a"})
    assert isinstance(paused, Paused), paused
    return paused


async def offers_meta_tools_alone(plugin: PluginUnderTest) -> None:
    """The model is offered the meta-tools and none of the tools, of which their descriptions say nothing."""
    shown = await plugin.shown(Desk().tools)
    assert set(shown) == set(plugin.face.offered)
    assert not any(word in text for text in shown.values() for word in ("stock", "refund"))


async def costs_the_same_for_any_tools(plugin: PluginUnderTest) -> None:
    """What the model is offered does not change with the number of tools."""

    def named(name: str) -> ContractTool:
        def tool(n: int) -> int:
            """Do something with a number."""
            return n

        return ContractTool(name=name, function=tool)

    many = [named(f"tool_{number}") for number in range(50)]
    assert await plugin.shown(many) == await plugin.shown(Desk().tools)


async def finds_and_describes(plugin: PluginUnderTest) -> None:
    """A search finds a tool by what it does, and its description holds both schemas."""
    tools = Desk().tools
    found = await _answer(plugin, tools, _SEARCH, {"query": "how many of a product are there"})
    assert found["tools"][0]["name"] == "stock", found
    described = await _answer(plugin, tools, _DESCRIBE, {"tools": ["stock", "nowhere"]})
    (stock,) = described["tools"]
    assert stock["inputSchema"]["properties"]["product"]["type"] == "string", described
    assert "How many of a product there are." in stock["description"]
    assert described["notFound"] == ["nowhere"]


async def offers_no_way_around(plugin: PluginUnderTest) -> None:
    """A hidden tool cannot be called by its own name, and no meta-tool is a tool of a script."""
    desk = Desk()
    assert isinstance(await plugin.call(desk.tools, "refund", {"order": "a"}), Failed)
    assert isinstance(await plugin.call(desk.tools, "stock", {"product": "nut"}), Failed)
    for name in plugin.face.offered:
        outcome = await run(plugin, desk.tools, f'return await callTool(["{name}"][0], {{ script: "return 1" }});')
        assert isinstance(outcome, Failed), outcome
        assert "SELF_REFERENCE" in outcome.text
        assert isinstance(as_read(plugin, await _invoke(plugin, desk.tools, name, {"script": "return 1"})), Failed)
    assert desk.did == []


async def answers_with_a_status(plugin: PluginUnderTest) -> None:
    """A script that fails in any way is answered with a status: to the framework nothing has failed."""
    desk = Desk()

    def fails(n: int) -> int:
        """Fail."""
        raise ValueError(f"{SECRET}/{n}")

    tools = [*desk.tools, ContractTool(name="fails", function=fails)]
    scripts = {
        "return (": "syntax_error",
        "for (;;) {}": "illegal_access",
        "return await callTool('fails', { n: 1 });": "tool_error",
        "return await callTool('stock', { product: 1n });": "tool_error",
        "return await callTool('nowhere', {});": "tool_error",
        "throw new RangeError('mine');": "runtime_error",
        "await new Promise(() => {});": "runtime_error",
    }
    for script, status in scripts.items():
        answer = await _answer(plugin, tools, _EXECUTE, {"script": script})
        assert (answer["status"], SECRET in str(answer)) == (status, False), answer
    assert desk.did == []


async def narrows_a_script(plugin: PluginUnderTest) -> None:
    """A script calls nothing beside the tools that it is allowed, and it cannot see them."""
    desk = Desk()
    script = "return [typeof getTool(codecallContext.name), await callTool(codecallContext.name, { product: 'nut' })];"
    given = {"script": script, "allowedTools": ["refund"], "context": {"name": "stock"}}
    answer = await _answer(plugin, desk.tools, _EXECUTE, given)
    assert (answer["status"], answer["error"]["code"]) == ("tool_error", "ACCESS_DENIED"), answer
    assert desk.did == []


async def invokes_one_tool(plugin: PluginUnderTest) -> None:
    """A direct call runs once, with the same checks, and answers with a status too."""
    desk = Desk()
    assert await _invoke(plugin, desk.tools, "stock", {"product": "nut"}) == Finished(
        value={"status": "ok", "result": 7}
    )
    assert desk.did == [("stock", "nut")]
    for name, given, code in (("stock", {}, "VALIDATION"), ("nowhere", {}, "UnknownTool")):
        answer = await _answer(plugin, desk.tools, _INVOKE, {"tool": name, "input": given})
        assert (answer["status"], answer["error"]["code"]) == ("tool_error", code), answer
    assert desk.did == [("stock", "nut")]


async def invokes_behind_the_gate(plugin: PluginUnderTest) -> None:
    """A direct call waits for a person as a script's does, runs as edited, and never when it is denied."""
    desk = Desk()
    for edited, cents in ((None, 500), ({"order": "a", "cents": 300}, 300)):
        paused = await _waiting_refund(plugin, desk)
        assert [(call.tool_name, call.input) for call in paused.calls] == [("refund", {"order": "a", "cents": 500})]
        assert desk.did == []
        answers = {paused.calls[0].id: ContractAnswer(approved=True, input=edited)}
        assert await resume(plugin, desk.tools, paused.state, answers) == Finished(value="refunded a")
        assert desk.did == [("refund", ("a", cents))]
        desk.did.clear()
    paused = await _waiting_refund(plugin, desk)
    denied = {paused.calls[0].id: ContractAnswer(approved=False, reason="not this one")}
    outcome = await plugin.resume(desk.tools, paused.state, denied)
    assert isinstance(outcome, Finished), outcome
    assert (outcome.value["status"], outcome.value["error"]["code"]) == ("tool_error", "APPROVAL_DENIED"), outcome
    assert desk.did == []


async def invokes_once(plugin: PluginUnderTest) -> None:
    """The same answer to a direct call that waited repeats its outcome; another one is refused; nothing runs."""
    desk = Desk()
    paused = await _waiting_refund(plugin, desk)
    (call,) = paused.calls
    for _ in range(2):
        answers = {call.id: ContractAnswer(approved=True)}
        assert await resume(plugin, desk.tools, paused.state, answers) == Finished(value="refunded a")
    edited = {call.id: ContractAnswer(approved=True, input={"order": "a", "cents": 1})}
    try:
        outcome = await resume(plugin, desk.tools, paused.state, edited)
    except Exception:  # noqa: BLE001 - each framework refuses in its own words
        outcome = Failed(text="refused")
    assert isinstance(outcome, Failed), outcome
    assert desk.did == [("refund", ("a", 500))]


CODE_CALL_ALONE: tuple[Check, ...] = (
    offers_meta_tools_alone,
    costs_the_same_for_any_tools,
    finds_and_describes,
    offers_no_way_around,
    answers_with_a_status,
    narrows_a_script,
    invokes_one_tool,
    invokes_behind_the_gate,
    invokes_once,
)
