"""CodeCall over an agent's tools: which are hidden, which are shown, what a model reads of them, and no way around."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from codemode_pydantic_ai import CodeCall, CodeCallToolset, CodeMode, CodeModeToolset
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    Embedder,
    RunContext,
    Tool,
    ToolApproved,
    UserError,
)
from pydantic_ai.embeddings import EmbeddingResult, TestEmbeddingModel
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import FunctionToolset
from scripted import Script, meta, program, script
from suite import each_row

from codemode import CodeCallOptions, create_code_call_tools

WAIT_SECONDS = 60.0
ABLE = ("scale", "gated")
META_TOOLS = ["codecall_search", "codecall_describe", "codecall_execute"]


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


def ran(script: Script, tools: Any = (), *, capabilities: Any = None, deps: Any = None, **settings: Any) -> Any:
    agent = Agent(script.model, tools=tools, capabilities=capabilities or [CodeCall()], **settings)
    return within(agent.run("go", deps=deps))


def named(name: str, **codecall: Any) -> Tool[Any]:
    def tool(n: int) -> str:
        """Weigh a parcel."""
        return f"{name} {n}"

    return Tool(tool, name=name, metadata={"codecall": codecall} if codecall else None)


def found(answer: Any) -> list[str]:
    return [one["name"] for one in answer["tools"]]


def test_a_script_calls_the_tools_that_a_search_found() -> None:
    steps = Script(
        meta("search", query="weigh"),
        meta("describe", tools=["scale"]),
        script("return callTool('scale', {n: 2})"),
        "k",
    )
    ran(steps, [named("scale")])
    assert steps.tool_names == META_TOOLS
    assert steps.returned() == {"status": "ok", "result": "scale 2"}
    said = [part for message in steps.seen[-1][0] for part in message.parts if part.part_kind == "tool-return"]
    assert [found(part.content) for part in said[:2]] == [["scale"], ["scale"]]
    assert json.loads(said[2].model_response_str()) == {"status": "ok", "result": "scale 2"}


TOOLS = {
    "plain": {},
    "listed": {"visibleInListTools": True},
    "off": {"enabledInCodeCall": False},
    "off_listed": {"enabledInCodeCall": False, "visibleInListTools": True},
    "on": {"enabledInCodeCall": True},
    "on_listed": {"enabledInCodeCall": True, "visibleInListTools": True},
}


@pytest.mark.parametrize(
    ("mode", "indexed"),
    [
        ("codecall_only", {"plain", "listed", "on", "on_listed"}),
        ("codecall_opt_in", {"on", "on_listed"}),
        ("metadata_driven", {"on", "on_listed"}),
    ],
)
def test_a_tool_says_in_its_metadata_where_it_is(mode: Any, indexed: set[str]) -> None:
    calls = {name: script(f"return callTool('{name}', {{n: 1}})", name) for name in TOOLS}
    calls |= {f"direct {name}": meta("invoke", f"direct {name}", tool=name, input={"n": 1}) for name in TOOLS}
    steps = Script(meta("search", query="weigh parcel"), [part for call in calls.values() for part in call], "done")
    capability = CodeCall(mode=mode, direct_calls={"enabled": True})
    ran(steps, [named(name, **said) for name, said in TOOLS.items()], capabilities=[capability])
    assert set(steps.tool_names) - {*META_TOOLS, "codecall_invoke"} == {"listed", "off_listed", "on_listed"}
    assert set(found(steps.returned())) == indexed
    for name in TOOLS:
        for how in (name, f"direct {name}"):
            answer = steps.returned(how)
            assert answer["status"] == ("ok" if name in indexed else "tool_error"), answer
            assert name in indexed or answer["error"]["code"] == "UnknownTool"


def test_what_is_left_out_is_listed_as_if_there_were_no_code_call() -> None:
    heard: list[Any] = []

    def include(info: Any) -> bool:
        heard.append((info.name, info.app_id, info.tags, dict(info.annotations)))
        return info.name != "outside"

    inside = Tool(
        lambda: 1, name="inside", metadata={"readOnlyHint": True, "codecall": {"appId": "a", "tags": ["one"]}}
    )
    steps = Script(meta("search", query="inside outside"), "done")
    ran(steps, [inside, named("outside")], capabilities=[CodeCall(include_tools=include)])
    assert steps.tool_names == ["outside", *META_TOOLS]
    assert found(steps.returned()) == ["inside"]
    assert ("inside", "a", ("one",), {"readOnlyHint": True}) in heard


def test_apps_narrow_the_index() -> None:
    tools = [named("mine", appId="mine"), named("theirs", appId="theirs")]
    steps = Script(meta("search", query="weigh parcel", filter={"appIds": ["theirs"]}), "done")
    ran(steps, tools, capabilities=[CodeCall(app_ids=["mine"])])
    assert steps.tool_names == ["theirs", *META_TOOLS]
    assert found(steps.returned()) == []


def test_kept_tools_and_a_search_of_the_framework_stay_native() -> None:
    steps = Script(meta("search", query="weigh parcel"), "done")
    ran(steps, [named("kept"), named("hidden")], capabilities=[CodeCall(keep=["kept"])])
    assert steps.tool_names == ["kept", *META_TOOLS]
    assert found(steps.returned()) == ["hidden"]


def test_without_other_tools_there_is_no_code_call() -> None:
    steps = Script("done")
    ran(steps)
    assert steps.tool_names == []


@each_row("name", ["codecall_search", "codecall_x", "CodeCall.execute", "c\u043edecall_search", "codecall:"])
def test_no_tool_looks_like_a_meta_tool(name: str) -> None:
    with pytest.raises((ValueError, UserError), match=r"meta-tool|name of the CodeCall tool"):
        ran(Script("done"), [named(name), named("other")])
    with pytest.raises(UserError, match="name of the CodeCall tool"):
        ran(Script("done"), [named(name), named("other")], capabilities=[CodeCall(keep=[name])])


def test_wrong_metadata_is_told_with_its_path() -> None:
    with pytest.raises(ValueError, match=r'tools\["scale"\]\.metadata\.codecall\.tags'):
        ran(Script("done"), [named("scale", tags=3)])


@each_row(
    "given, path",
    [
        ({"top_k": 51}, "top_k"),
        ({"vm": {"preset": "loose"}}, "vm.preset"),
        ({"mode": "all"}, "mode"),
        ({"direct_calls": {"on": True}}, "direct_calls"),
        ({"settings": {"fetch_policy": {"origins": ["https://a.example"]}}}, "settings.fetch_policy"),
        ({"search": {"embed": 3}}, "search.embed"),
        ({"options": {"topL": 1}}, "topL"),
        ({"options": 3}, "options"),
        ({"nonsense": 3}, "nonsense"),
        ({"keep": "one"}, "keep"),
        ({"max_retries": -1}, "max_retries"),
        ({"script_context": {"a": 1}}, "script_context"),
    ],
)
def test_wrong_options_are_told_when_it_is_made(given: Any, path: str) -> None:
    with pytest.raises(ValueError, match=path):
        CodeCall(**given)


def test_fields_stand_above_options_and_names_are_for_models() -> None:
    given = CodeCallOptions(top_k=3, max_definitions=2)
    options = CodeCall(given, top_k=5).options
    assert (options.top_k, options.max_definitions, options.names) == (5, 2, "underscore")
    assert CodeCall({"topK": 4, "names": "colon"}).options.names == "colon"
    assert CodeCall(CodeCallOptions(names="dotted")).options.names == "dotted"
    assert options.settings.continuation.seal is True
    steps = Script("done")
    ran(steps, [named("scale")], capabilities=[CodeCall(names="dotted")])
    assert steps.tool_names == ["codecall.search", "codecall.describe", "codecall.execute"]


def test_a_capability_that_is_replaced_keeps_what_it_was_made_with() -> None:
    made: Any = CodeCall(top_k=5, keep=["kept"], id="desk", script_context=lambda ctx: {"a": 1})
    other = dataclasses.replace(made, max_retries=7)
    assert (other.options.top_k, other.keep, other.max_retries, other.id) == (5, ["kept"], 7, "desk")
    assert other.script_context is made.script_context
    assert "top_k=5" in repr(other)


def test_the_core_reads_the_metadata_of_the_frameworks_tools() -> None:
    given = [named("on"), named("off", enabledInCodeCall=False), named("seen", visibleInListTools=True)]
    tools = create_code_call_tools(given)
    assert [one.name for one in tools.list_tools()][3:] == ["seen"]
    answer = within(tools.execute({"script": "return [await callTool('on', {n: 1}), typeof getTool('off')]"}))
    assert answer == {"status": "ok", "result": ["on 1", "undefined"]}


def test_mcp_tools_keep_their_annotations_and_schemas() -> None:
    server = MCPServer("warehouse")

    @server.tool(annotations=ToolAnnotations(readOnlyHint=True))
    def stock(product: str) -> int:
        """How many of a product there are."""
        return len(product)

    steps = Script(meta("describe", tools=["stock"]), script("return callTool('stock', {product: 'nut'})"), "done")
    ran(steps, toolsets=[MCPToolset(server)])
    described = next(
        part.content for message in steps.seen[1][0] for part in message.parts if part.part_kind == "tool-return"
    )
    (tool,) = described["tools"]
    assert tool["annotations"]["readOnlyHint"] is True
    assert tool["outputSchema"]["type"] == "integer"
    assert steps.returned() == {"status": "ok", "result": 3}


def test_tools_that_change_between_steps_are_found_as_they_are() -> None:
    async def only_later(ctx: RunContext[Any], definition: ToolDefinition) -> ToolDefinition | None:
        return definition if ctx.run_step > 1 else None

    late = Tool(lambda n: f"late {n}", name="late", description="Weigh a parcel.", prepare=only_later)
    search = meta("search", query="weigh parcel")
    steps = Script(search, [*meta("search", "second", query="weigh parcel"), *script("return 1")], "done")
    ran(steps, [named("scale"), late])
    assert set(found(steps.returned("second"))) == {"late", "scale"}
    first = next(p.content for m in steps.seen[1][0] for p in m.parts if p.part_kind == "tool-return")
    assert found(first) == ["scale"]


def test_two_conversations_at_once_see_their_own_tools() -> None:
    async def only_theirs(ctx: RunContext[str], definition: ToolDefinition) -> ToolDefinition | None:
        return definition if definition.name in (ctx.deps, "shared") else None

    tools = [Tool(one.function, name=one.name, prepare=only_theirs) for one in map(named, ("a", "b", "shared"))]
    capability = CodeCall(direct_calls={"enabled": True})

    async def conversation(mine: str, other: str) -> Script:
        steps = Script(
            meta("search", query="weigh parcel"),
            [
                *script(f"return callTool('{mine}', {{n: 1}})", "mine"),
                *meta("invoke", "other", tool=other, input={"n": 1}),
            ],
            "done",
        )
        agent: Agent[str, str] = Agent(steps.model, deps_type=str, tools=tools, capabilities=[capability])
        await agent.run("go", deps=mine)
        return steps

    async def both() -> list[Script]:
        return list(await asyncio.gather(*(conversation(*pair) for pair in [("a", "b"), ("b", "a")] * 3)))

    for at, steps in enumerate(within(both())):
        mine = "ab"[at % 2]
        assert set(found(steps.returned())) == {mine, "shared"}
        assert steps.returned("mine") == {"status": "ok", "result": f"{mine} 1"}
        assert steps.returned("other")["error"]["code"] == "UnknownTool"


class Words(TestEmbeddingModel):
    """Embeds a text as whether it is about money."""

    def __init__(self) -> None:
        super().__init__()
        self.embedded: list[str] = []

    async def embed(self, inputs: Any, *, input_type: Any, settings: Any = None) -> EmbeddingResult:
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        self.embedded += texts
        money = [any(word in text.lower() for word in ("reimburse", "money")) for text in texts]
        result = await super().embed(texts, input_type=input_type, settings=settings)
        result.embeddings[:] = [[1.0, 0.0] if one else [0.0, 1.0] for one in money]
        return result


def test_an_embedder_of_the_framework_finds_what_words_do_not() -> None:
    def refund(order: str) -> None:
        """Give money back."""

    def paint(wall: str) -> None:
        """Colour a wall."""

    model = Words()
    search = [meta("search", f"search {at}", query="reimburse somebody") for at in range(6)]
    steps = Script(*search, "done")
    ran(steps, [paint, refund], capabilities=[CodeCall(search={"embed": Embedder(model)})])
    assert found(steps.returned("search 5"))[:1] == ["refund"]
    definitions = [text for text in model.embedded if "wall" in text.lower()]
    assert len(definitions) == 1


@pytest.mark.parametrize("outer", ["codeMode over CodeCall", "CodeCall over codeMode"])
def test_one_face_over_the_other_leads_around_no_gate(outer: str) -> None:
    ran_with: list[int] = []

    def gated(n: int) -> int:
        """Do what somebody must approve."""
        ran_with.append(n)
        return n

    tools = FunctionToolset([Tool(gated, requires_approval=True), named("scale")])
    if outer == "codeMode over CodeCall":
        toolset: Any = CodeModeToolset(CodeCallToolset(tools))
        inner = "return await callTool('{0}', {{n: 1}})"
        calls = [
            program(f"return await tools.codecall_execute({{ script: `{inner.format(one)}` }})", one) for one in ABLE
        ]
    else:
        toolset = CodeCallToolset(CodeModeToolset(tools))
        inner = "return await tools.{0}({{n: 1}})"
        calls = [script(f"return await callTool('codeMode', {{ js: `{inner.format(one)}` }})", one) for one in ABLE]
    steps = Script([part for call in calls for part in call], "done", "done")
    agent: Any = Agent(steps.model, toolsets=[toolset], output_type=[str, DeferredToolRequests])
    result = within(agent.run("go"))
    assert isinstance(result.output, DeferredToolRequests)
    assert ran_with == []
    approvals: Any = {call.tool_call_id: ToolApproved() for call in result.output.approvals}
    with pytest.raises(UserError, match="was approved, but its nested calls wait"):
        within(
            agent.run(
                message_history=result.all_messages(), deferred_tool_results=DeferredToolResults(approvals=approvals)
            )
        )
    assert ran_with == []


def test_one_agent_takes_one_of_them() -> None:
    with pytest.raises(UserError, match="Circular"):
        ran(Script("done"), [named("scale")], capabilities=[CodeCall(), CodeMode()])
