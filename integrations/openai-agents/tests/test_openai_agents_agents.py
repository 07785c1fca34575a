"""Whole agents in code mode: which tools are in programs, those of MCP servers too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Agent, FunctionTool, Runner, RunState, UserError, WebSearchTool, function_tool
from agents.mcp import MCPServer
from codemode_openai_agents import with_code_mode
from mcp.types import CallToolResult, ImageContent, TextContent, ToolAnnotations
from mcp.types import Tool as ServerTool
from scripted_model import QUIET, Script, agent, outputs, program

from codemode import WorkerPool

DID: list[Any] = []


@function_tool
def stock(product: str) -> int:
    """How many of a product there are."""
    return 7


@function_tool
def clock() -> str:
    """Tell the time."""
    return "noon"


def run(made: Agent[Any], given: Any = "go") -> Any:
    return asyncio.run(Runner.run(made, given, run_config=QUIET))


def shown(**settings: Any) -> dict[str, str]:
    model = Script("done")
    run(with_code_mode(agent(model, stock, clock, WebSearchTool()), **settings))
    return model.shown[0]


def test_the_tools_of_an_agent_are_in_programs() -> None:
    made = with_code_mode(agent(Script(program("return await tools.stock({ product: 'nut' });"), "done"), stock))
    result = run(made)
    assert (outputs(result)[0].output, result.final_output, made.name) == ("7", "done", "desk")


def test_what_stays_with_the_model() -> None:
    assert set(shown()) == {"codeMode", "web_search"}
    assert set(shown(keep=["clock"])) == {"codeMode", "clock", "web_search"}
    assert set(shown(tools=["clock"])) == {"codeMode", "stock", "web_search"}
    both = shown(tools="all", keep=lambda tool: tool.name == "clock")
    assert set(both) == {"codeMode", "clock", "web_search"}
    assert "clock" in both["codeMode"]
    assert "codeMode" not in shown(keep=["clock", "stock"])


@pytest.mark.parametrize("settings", [{"keep": ["clok"]}, {"tools": ["clok"]}, {"approve": {"clok": True}}])
def test_a_name_that_fits_no_tool(settings: Any) -> None:
    with pytest.raises(UserError, match="clok"):
        shown(**settings)


def test_what_is_no_agent() -> None:
    class Own(Agent[Any]):
        pass

    with pytest.raises(ValueError, match="takes an Agent"):
        with_code_mode(Own(name="own"))
    with WorkerPool() as closed:
        pass
    with pytest.raises(ValueError, match="pool is closed"):
        with_code_mode(Agent(name="desk"), pool=closed)
    with pytest.raises(ValueError, match="keep must be a list"):
        with_code_mode(Agent(name="own"), keep="clock")


OUTPUT = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


class Server(MCPServer):
    """A server in this process, which lists its tools anew for each turn."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.did: list[Any] = []

    name = "files"

    async def connect(self) -> None:
        pass

    async def cleanup(self) -> None:
        pass

    async def list_tools(self, *_: Any, **__: Any) -> list[ServerTool]:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
        kinds = {
            "read": ToolAnnotations(readOnlyHint=True),
            "remove": None,
            "picture": ToolAnnotations(readOnlyHint=True),
        }
        self.listed = [
            ServerTool(name=name, inputSchema=schema, annotations=hints, outputSchema=OUTPUT)
            for name, hints in kinds.items()
        ]
        return self.listed

    @property
    def cached_tools(self) -> list[ServerTool]:
        return self.listed

    async def call_tool(self, tool_name: str, arguments: Any, *_: Any, **__: Any) -> CallToolResult:
        self.did.append((tool_name, arguments["path"]))
        if tool_name == "picture":
            return CallToolResult(content=[ImageContent(type="image", data="aGVsbG8=", mimeType="image/png")])
        return CallToolResult(content=[TextContent(type="text", text='{"size": 3}')], isError=False)

    async def list_prompts(self, *_: Any) -> Any:
        raise NotImplementedError

    async def get_prompt(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def test_tools_of_servers_give_json_and_images() -> None:
    server = Server()
    js = "const { size } = await tools.read({ path: 'a' }); return { size, image: await tools.picture({ path: 'b' }) };"
    made = with_code_mode(agent(Script(program(js), "done"), mcp_servers=[server]))
    text, image = outputs(run(made))[0].output
    assert text.text.startswith('{"size": 3, "image": {"content": 1, "kind": "image"'), text
    assert image.image_url == "data:image/png;base64,aGVsbG8="
    assert server.did == [("read", "a"), ("picture", "b")]


def test_what_servers_do_not_declare_harmless_can_be_gated() -> None:
    server = Server()
    js = "await tools.read({ path: 'a' }); await tools.remove({ path: 'a' }); return 'gone';"
    text = None
    for turns in ((program(js),), ("done",)):
        made = with_code_mode(agent(Script(*turns), mcp_servers=[server]), approve="destructive")
        if text is None:
            result = run(made)
            assert [(one.name, one.arguments) for one in result.interruptions] == [("remove", '{"path": "a"}')]
            text = result.to_state().to_string()
        else:
            state = asyncio.run(RunState.from_string(made, text))
            state.approve(state.get_interruptions()[0])
            assert outputs(run(made, state))[-1].output == "gone"
    assert server.did == [("read", "a"), ("remove", "a")]


def test_agents_in_code_mode_hand_over_and_are_tools() -> None:
    counts = program("return await tools.stock({ product: 'nut' });")
    second = with_code_mode(Agent(name="second", model=Script(counts, "7 left", ids="second"), tools=[stock]))
    first = Agent(name="first", model=Script([("transfer_to_second", {})]), handoffs=[second])
    assert run(first).final_output == "7 left"
    second.model = Script(counts, "still 7", ids="second")
    outer = agent(Script([("second", {"input": "?"})], "done"), second.as_tool("second", "Counts."))
    assert outputs(run(outer))[0].output == "still 7"


def test_two_agents_of_one_run_wait_each() -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def made(js: str | None) -> Agent[Any]:
        turns = ["done"] if js is None else [program(js), "done"]
        second = with_code_mode(Agent(name="second", model=Script(*turns, ids="second"), tools=[pay]))
        turns = (
            []
            if js is None
            else [program("return await tools.stock({ product: 'nut' });"), [("transfer_to_second", {})]]
        )
        return with_code_mode(Agent(name="first", model=Script(*turns), tools=[stock, pay], handoffs=[second]))

    text = run(made("return await tools.pay({});")).to_state().to_string()
    again = made(None)
    state = asyncio.run(RunState.from_string(again, text))
    state.approve(state.get_interruptions()[0])
    assert outputs(run(again, state))[-1].output == "paid"


def test_an_agent_in_code_mode_is_a_tool_that_waits() -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def made(*turns: Any, own: tuple[Any, ...]) -> Agent[Any]:
        inner = with_code_mode(Agent(name="inner", model=Script(*own, ids="inner"), tools=[pay]))
        return agent(Script(*turns), inner.as_tool("inner", "Pays."))

    first = made([("inner", {"input": "?"})], own=(program("return await tools.pay({});"),))
    text = run(first).to_state().to_string()
    again = made("done", own=("it is paid",))
    state = asyncio.run(RunState.from_string(again, text))
    assert [one.name for one in state.get_interruptions()] == ["pay"]
    state.approve(state.get_interruptions()[0])
    assert outputs(run(again, state))[-1].output == "it is paid"


@pytest.mark.parametrize("asked_for", [True, False])
def test_outputs_of_servers_are_declared_where_they_are_asked_for(asked_for: bool) -> None:
    model = Script("done")
    run(with_code_mode(agent(model, mcp_servers=[Server(use_structured_content=asked_for)])))
    assert ("size: number" in model.shown[0]["codeMode"]) == asked_for


@pytest.mark.parametrize(
    "rules",
    [{"stock": True}, {"stock": lambda _context, arguments, _id: arguments["product"] == "nut"}, "destructive"],
    ids=["a name", "a function", "destructive"],
)
def test_what_is_gated_in_programs_is_gated_in_direct_calls(rules: Any) -> None:
    did: list[str] = []

    @function_tool(name_override="stock")
    def noted(product: str) -> str:
        """How many of a product there are."""
        did.append(product)
        return "7"

    def made(*turns: Any) -> Agent[Any]:
        return with_code_mode(agent(Script(*turns), noted, clock), tools="all", keep=["stock"], approve=rules)

    result = run(made([("stock", {"product": "nut"})]))
    assert [one.name for one in result.interruptions] == ["stock"]
    assert did == []
    again = made("done")
    state = asyncio.run(RunState.from_string(again, result.to_state().to_string()))
    state.approve(state.get_interruptions()[0])
    assert outputs(run(again, state))[-1].output == "7"
    assert did == ["nut"]


@pytest.mark.parametrize("cents", [500, 2000])
def test_rules_apply_next_to_a_synchronous_needs_approval_in_direct_calls(cents: int) -> None:
    def is_large(_context: Any, arguments: dict[str, Any], _call_id: str) -> bool:
        return arguments["cents"] > 1000

    @function_tool(needs_approval=is_large)  # pyright: ignore[reportArgumentType] - the SDK accepts it at run time
    def pay(cents: int) -> str:
        """Pay an amount."""
        return f"paid {cents}"

    model = Script([("pay", {"cents": cents})], "done")
    paying = with_code_mode(
        agent(model, pay, clock), tools="all", keep=["pay"], approve={"pay": lambda _context, _arguments, _id: False}
    )
    result = run(paying)
    assert [item.name for item in result.interruptions] == (["pay"] if cents > 1000 else [])
    assert [item.output for item in outputs(result)] == ([] if cents > 1000 else ["paid 500"])


def test_nobody_can_be_asked_about_what_the_provider_runs() -> None:
    with pytest.raises(UserError, match="which the provider runs"):
        shown(approve={"web_search": True})


def test_agents_with_tools_that_are_described_alike_share_none_of_them() -> None:
    did: list[str] = []
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    def pay(owner: str, *, is_gated: bool) -> FunctionTool:
        async def asks(*_: Any) -> bool:
            return is_gated

        async def paid(*_: Any) -> str:
            did.append(owner)
            return owner

        return FunctionTool("pay", "Pay.", {"type": "object", "properties": {}}, paid, False, needs_approval=asks)

    @function_tool
    async def wait() -> None:
        """Wait for the other run."""
        has_begun.set()
        await may_end.wait()

    made = with_code_mode(Agent(name="desk"))

    def of(*tools: FunctionTool, js: str) -> Agent[Any]:
        return made.clone(model=Script(program(js), "done"), tools=[*made.tools, *tools, wait])

    async def main() -> None:
        gated = of(pay("gated", is_gated=True), js="await tools.wait({}); return await tools.pay({});")
        other = of(pay("other", is_gated=False), js="return await tools.pay({});")
        waiting = asyncio.ensure_future(Runner.run(gated, "go", run_config=QUIET))
        await asyncio.wait_for(has_begun.wait(), 60)
        await Runner.run(other, "go", run_config=QUIET)
        may_end.set()
        paused = await waiting
        assert ([one.name for one in paused.interruptions], did) == (["pay"], ["other"])

    asyncio.run(main())
