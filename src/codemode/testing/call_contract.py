"""Checks of what plugins promise about calls of programs, and of CodeCall."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from .plugin_under_test import (
    SECRET,
    Check,
    ContractAnswer,
    ContractTool,
    Failed,
    Finished,
    Outcome,
    Paused,
    PluginUnderTest,
    RecordingTools,
    resume_run,
    run_program,
    to_program_outcome,
    wait_with_timeout,
)

_TOO_LONG_SECONDS = 31.0  # of 30 that a program may take


async def lets_programs_catch_tool_errors(plugin: PluginUnderTest) -> None:
    """Any number of failures that a program catches neither ends it nor fails the run."""
    recorder, fails = RecordingTools(), list[int]()

    def record_and_raise(n: int) -> int:
        """Fail."""
        fails.append(n)
        raise ValueError(n)

    tools = [*recorder.tools, ContractTool(name="broken", function=record_and_raise)]
    js = """
    const attempt = async (n) => {
      try { return await tools.broken({ n }); } catch (error) { return error instanceof Error; }
    };
    const caught = [await attempt(0), await attempt(1), await attempt(2), await attempt(3)];
    return [...caught, await tools.stock({ product: "nut" })];
    """
    outcome = await run_program(plugin, tools, js)
    assert outcome == Finished(value=[True] * 4 + [7]), outcome
    assert fails == [0, 1, 2, 3], fails


class _EndlessTool:
    """A tool that never ends by itself; ``begun`` and ``ended`` record its calls."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    def create_tool(self) -> ContractTool:
        async def wait_forever() -> int:
            """Wait for ever."""
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.set()
            return 1

        return ContractTool(name="endless", function=wait_forever)


async def stops_tools_at_their_timeout(plugin: PluginUnderTest) -> None:
    """``tool_timeout_ms`` bounds one call: the tool is stopped, and the program may continue without it."""
    slow = _EndlessTool()
    bounded = plugin.with_settings(options={"execution_policy": {"tool_timeout_ms": 50}})
    js = "try { return await tools.endless({}); } catch (error) { return error.message; }"
    outcome = await run_program(bounded, [slow.create_tool()], js)
    assert isinstance(outcome, Finished), outcome
    assert "50 ms" in outcome.value, outcome
    if slow.begun.is_set():
        await wait_with_timeout(slow.ended.wait())


async def excludes_tool_time_from_timeout(plugin: PluginUnderTest) -> None:
    """What a tool takes is not the program's time, unless the wall's clock is asked for."""

    async def advance_loop_clock() -> str:
        """Take longer than a program may."""
        loop = asyncio.get_running_loop()
        now = loop.time
        loop.time = lambda: now() + _TOO_LONG_SECONDS
        for _ in range(3):
            await asyncio.sleep(0)
        return "here"

    tools, js = [ContractTool(name="slow", function=advance_loop_clock)], "return await tools.slow({});"
    outcome = await run_program(plugin, tools, js)
    assert outcome == Finished(value="here"), outcome
    outcome = await run_program(
        plugin.with_settings(options={"execution_policy": {"timeout_includes_tools": True}}), tools, js
    )
    assert isinstance(outcome, Failed), outcome


async def cancels_tools_with_the_run(plugin: PluginUnderTest) -> None:
    """When the run is cancelled, the tool that a program waits for is."""
    slow = _EndlessTool()
    running = asyncio.ensure_future(run_program(plugin, [slow.create_tool()], "return await tools.endless({});"))
    await wait_with_timeout(slow.begun.wait())
    running.cancel()
    await wait_with_timeout(slow.ended.wait())
    await wait_with_timeout(asyncio.wait([running]))
    assert running.cancelled()


async def reports_calls_while_they_run(plugin: PluginUnderTest) -> None:
    """Whoever follows the run hears of each call of a program when it begins and when it ends, not afterwards."""
    heard: list[tuple[str, str]] = []
    first_ended, second_begun = asyncio.Event(), asyncio.Event()

    def record_call_event(name: str, what: str) -> None:
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
        await wait_with_timeout(first_ended.wait())
        await wait_with_timeout(second_begun.wait())
        return 2

    tools = [ContractTool(name=function.__name__, function=function) for function in (first, second)]
    js = "return [await tools.first({}), await tools.second({})];"
    outcome = await run_program(plugin, tools, js, hear=record_call_event)
    assert outcome == Finished(value=[1, 2]), outcome
    assert heard == [(name, what) for name in ("first", "second") for what in ("begun", "ended")], heard


async def runs_sequential_tools_alone(plugin: PluginUnderTest) -> None:
    """A tool that is declared sequential never runs in parallel with another call of the program."""
    at_work: list[str] = []
    crowded: list[list[str]] = []

    def create_function(name: str) -> Any:
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

    tools = [
        ContractTool(name=name, function=create_function(name), sequential=name == "alone")
        for name in ("alone", "other")
    ]
    js = "return await Promise.all([0, 1, 2, 3].map((n) => n % 2 ? tools.other({ n }) : tools.alone({ n })));"
    outcome = await run_program(plugin, tools, js)
    assert outcome == Finished(value=[0, 1, 2, 3]), outcome
    assert crowded == [], crowded


_REFUND = "return await tools.refund({ order: 'a' });"
_ASK = "const said = await tools.ask({}); return ['outer', said];"


def _create_agent_tools(plugin: PluginUnderTest, recorder: RecordingTools, js: str) -> list[ContractTool]:
    return [ContractTool(name="ask", function=plugin.create_agent_function(recorder.tools, js))]


async def runs_agents_in_tools(plugin: PluginUnderTest) -> None:
    """A tool may run an agent of its own whose model writes programs too."""
    recorder = RecordingTools()
    tools = _create_agent_tools(plugin, recorder, "return await tools.stock({ product: 'nut' });")
    outcome = await run_program(plugin, tools, "return 1 + Number(await tools.ask({}));")
    assert outcome == Finished(value=8), outcome
    assert recorder.calls == [("stock", "nut")]


async def requires_approval_inside_agent_tools(plugin: PluginUnderTest) -> None:
    """A tool that an agent inside a tool needs approved does not run before, even if the program ends."""
    recorder = RecordingTools()
    js = "try { return await tools.ask({}); } catch { return 'caught'; }"
    await run_program(plugin, _create_agent_tools(plugin, recorder, _REFUND), js)
    assert recorder.calls == []


async def asks_approvals_for_nested_agents(plugin: PluginUnderTest) -> None:
    """The outer run asks for the approvals of an agent inside a tool: then it continues, and nothing runs twice."""
    recorder = RecordingTools()
    inner = f"await tools.stock({{ product: 'nut' }}); {_REFUND}"
    tools = _create_agent_tools(plugin, recorder, inner)
    paused = await run_program(plugin, tools, _ASK)
    assert isinstance(paused, Paused), paused
    assert [(call.tool_name, call.input) for call in paused.calls] == [("refund", {"order": "a", "cents": 500})]
    assert recorder.calls == [("stock", "nut")]
    answers = {call.id: ContractAnswer(approved=True) for call in paused.calls}
    outcome = await resume_run(plugin, tools, paused.state, answers)
    assert outcome == Finished(value=["outer", "refunded a"]), outcome
    assert recorder.calls == [("stock", "nut"), ("refund", ("a", 500))]


CALLS: tuple[Check, ...] = (
    lets_programs_catch_tool_errors,
    stops_tools_at_their_timeout,
    cancels_tools_with_the_run,
    reports_calls_while_they_run,
    runs_sequential_tools_alone,
    runs_agents_in_tools,
    requires_approval_inside_agent_tools,
    asks_approvals_for_nested_agents,
)
"""On every face. At its deadline a program of exec rests, so `excludes_tool_time_from_timeout` is for the others."""


_SEARCH, _DESCRIBE, _EXECUTE, _INVOKE = "codecall_search", "codecall_describe", "codecall_execute", "codecall_invoke"


async def _call_and_get_value(
    plugin: PluginUnderTest, tools: Sequence[ContractTool], name: str, arguments: Mapping[str, Any]
) -> Any:
    outcome = await plugin.call(tools, name, arguments)
    assert isinstance(outcome, Finished), outcome
    return outcome.value


async def _invoke_tool(plugin: PluginUnderTest, tools: Sequence[ContractTool], tool: str, arguments: Any) -> Outcome:
    return await plugin.call(tools, _INVOKE, {"tool": tool, "input": arguments})


async def _pause_on_refund(plugin: PluginUnderTest, recorder: RecordingTools) -> Paused:
    paused = await _invoke_tool(plugin, recorder.tools, "refund", {"order": "a"})
    assert isinstance(paused, Paused), paused
    return paused


async def offers_only_meta_tools(plugin: PluginUnderTest) -> None:
    """The model is offered the meta-tools and none of the tools, of which their descriptions say nothing."""
    shown = await plugin.describe_tools(RecordingTools().tools)
    assert set(shown) == set(plugin.face.offered)
    assert not any(word in text for text in shown.values() for word in ("stock", "refund"))


async def offers_same_descriptions_for_any_tools(plugin: PluginUnderTest) -> None:
    """The model's tools do not change with the number of tools."""

    def create_tool(name: str) -> ContractTool:
        def tool(n: int) -> int:
            """Do something with a number."""
            return n

        return ContractTool(name=name, function=tool)

    many = [create_tool(f"tool_{number}") for number in range(50)]
    assert await plugin.describe_tools(many) == await plugin.describe_tools(RecordingTools().tools)


async def finds_and_describes_tools(plugin: PluginUnderTest) -> None:
    """A search finds a tool by what it does, and its description holds both schemas."""
    tools = RecordingTools().tools
    found = await _call_and_get_value(plugin, tools, _SEARCH, {"query": "how many of a product are there"})
    assert found["tools"][0]["name"] == "stock", found
    described = await _call_and_get_value(plugin, tools, _DESCRIBE, {"tools": ["stock", "nowhere"]})
    (stock,) = described["tools"]
    assert stock["inputSchema"]["properties"]["product"]["type"] == "string", described
    assert "How many of a product there are." in stock["description"]
    assert described["notFound"] == ["nowhere"]


async def refuses_direct_and_recursive_calls(plugin: PluginUnderTest) -> None:
    """A hidden tool cannot be called by its own name, and no meta-tool is a tool of a script."""
    recorder = RecordingTools()
    assert isinstance(await plugin.call(recorder.tools, "refund", {"order": "a"}), Failed)
    assert isinstance(await plugin.call(recorder.tools, "stock", {"product": "nut"}), Failed)
    for name in plugin.face.offered:
        outcome = await run_program(
            plugin, recorder.tools, f'return await callTool(["{name}"][0], {{ script: "return 1" }});'
        )
        assert isinstance(outcome, Failed), outcome
        assert "SELF_REFERENCE" in outcome.text
        assert isinstance(
            to_program_outcome(plugin, await _invoke_tool(plugin, recorder.tools, name, {"script": "return 1"})), Failed
        )
    assert recorder.calls == []


async def returns_status_of_failed_scripts(plugin: PluginUnderTest) -> None:
    """A script that fails in any way is answered with a status: to the framework nothing has failed."""
    recorder = RecordingTools()

    def raise_secret_error(n: int) -> int:
        """Fail."""
        raise ValueError(f"{SECRET}/{n}")

    tools = [*recorder.tools, ContractTool(name="fails", function=raise_secret_error)]
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
        answer = await _call_and_get_value(plugin, tools, _EXECUTE, {"script": script})
        assert (answer["status"], SECRET in str(answer)) == (status, False), answer
    assert recorder.calls == []


async def limits_scripts_to_allowed_tools(plugin: PluginUnderTest) -> None:
    """A script calls only the tools that it is allowed, and cannot see others."""
    recorder = RecordingTools()
    script = "return [typeof getTool(codecallContext.name), await callTool(codecallContext.name, { product: 'nut' })];"
    arguments = {"script": script, "allowedTools": ["refund"], "context": {"name": "stock"}}
    answer = await _call_and_get_value(plugin, recorder.tools, _EXECUTE, arguments)
    assert (answer["status"], answer["error"]["code"]) == ("tool_error", "ACCESS_DENIED"), answer
    assert recorder.calls == []


async def invokes_tool_without_script(plugin: PluginUnderTest) -> None:
    """A direct call runs once, with the same checks, and answers with a status too."""
    recorder = RecordingTools()
    assert await _invoke_tool(plugin, recorder.tools, "stock", {"product": "nut"}) == Finished(
        value={"status": "ok", "result": 7}
    )
    assert recorder.calls == [("stock", "nut")]
    for name, arguments, code in (("stock", {}, "VALIDATION"), ("nowhere", {}, "UnknownTool")):
        answer = await _call_and_get_value(plugin, recorder.tools, _INVOKE, {"tool": name, "input": arguments})
        assert (answer["status"], answer["error"]["code"]) == ("tool_error", code), answer
    assert recorder.calls == [("stock", "nut")]


async def invokes_tool_after_approval(plugin: PluginUnderTest) -> None:
    """A direct call waits for a person as a script's does, runs as edited, and never when it is denied."""
    recorder = RecordingTools()
    for edited, cents in ((None, 500), ({"order": "a", "cents": 300}, 300)):
        paused = await _pause_on_refund(plugin, recorder)
        assert [(call.tool_name, call.input) for call in paused.calls] == [("refund", {"order": "a", "cents": 500})]
        assert recorder.calls == []
        answers = {paused.calls[0].id: ContractAnswer(approved=True, input=edited)}
        assert await resume_run(plugin, recorder.tools, paused.state, answers) == Finished(value="refunded a")
        assert recorder.calls == [("refund", ("a", cents))]
        recorder.calls.clear()
    paused = await _pause_on_refund(plugin, recorder)
    denied = {paused.calls[0].id: ContractAnswer(approved=False, reason="not this one")}
    outcome = await plugin.resume(recorder.tools, paused.state, denied)
    assert isinstance(outcome, Finished), outcome
    assert (outcome.value["status"], outcome.value["error"]["code"]) == ("tool_error", "APPROVAL_DENIED"), outcome
    assert recorder.calls == []


async def invokes_approved_tool_once(plugin: PluginUnderTest) -> None:
    """The same answer to a direct call that waited repeats its outcome; another one is refused; nothing runs."""
    recorder = RecordingTools()
    paused = await _pause_on_refund(plugin, recorder)
    (call,) = paused.calls
    for _ in range(2):
        answers = {call.id: ContractAnswer(approved=True)}
        assert await resume_run(plugin, recorder.tools, paused.state, answers) == Finished(value="refunded a")
    edited = {call.id: ContractAnswer(approved=True, input={"order": "a", "cents": 1})}
    try:
        outcome = await resume_run(plugin, recorder.tools, paused.state, edited)
    except Exception:  # noqa: BLE001 - each framework refuses in its own words
        outcome = Failed(text="refused")
    assert isinstance(outcome, Failed), outcome
    assert recorder.calls == [("refund", ("a", 500))]


CODE_CALL_ALONE: tuple[Check, ...] = (
    offers_only_meta_tools,
    offers_same_descriptions_for_any_tools,
    finds_and_describes_tools,
    refuses_direct_and_recursive_calls,
    returns_status_of_failed_scripts,
    limits_scripts_to_allowed_tools,
    invokes_tool_without_script,
    invokes_tool_after_approval,
    invokes_approved_tool_once,
)
