"""Tools of MCP servers, as adapters make them: what programs get, what is declared, what waits for a person."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import codemode_langchain
import pytest
from codemode_langchain import (
    CodeCallMiddleware,
    CodeModeMiddleware,
    ExecWaitMiddleware,
    create_code_call_tools,
    create_code_mode_tool,
)
from codemode_langchain.conversion import convert_tool, get_annotations, is_destructive
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException, tool
from mcp_desk import PICTURE, Desk, seen
from required import missing
from scripted_agent import CONFIG, START, agent, asking, asks, content, executes, results
from suite import each_row

OLDER = Path(sys.prefix) / "clients-older" / "bin" / "python"
COUNTED = {"type": "object", "properties": {"left": {"type": "integer"}}, "required": ["left"]}
BOUND = 120.0


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, "id": "lc_1"}


def adapted(
    name: str, gives: Callable[[], Any], *, server: Any = None, metadata: dict[str, Any] | None = None, **settings: Any
) -> BaseTool:
    """A tool as adapters make it, of what a call gives: blocks and an artifact."""

    described = server or SimpleNamespace(name=name)

    async def call_tool(**arguments: Any) -> Any:
        assert described.name == name  # adapters hold it too
        return gives()

    return StructuredTool(
        name=name,
        description=name,
        args_schema={"type": "object", "properties": {}},
        coroutine=call_tool,
        response_format="content_and_artifact",
        metadata=metadata,
        **settings,
    )


def answered(*blocks: Any, structured: Any = None, **settings: Any) -> BaseTool:
    artifact = None if structured is None else {"structured_content": structured}
    return adapted("one", lambda: (list(blocks), artifact), **settings)


def given(one: BaseTool, js: str = "return await tools.one({})") -> Any:
    return asyncio.run(create_code_mode_tool([one]).ainvoke({"js": js}))


@each_row(
    "one, expected",
    [
        (answered(text('{"left": 3}'), structured={"left": 3}), {"left": 3}),
        (answered(text("[]"), structured={}), {}),
        (answered(text("Measure twice.")), "Measure twice."),
        (answered(text("a"), text("b")), {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        (answered(), {"content": []}),
        (
            answered({"type": "file", "id": "lc_2", "url": "file:///a", "mime_type": "text/plain"}),
            {"content": [{"type": "resource_link", "uri": "file:///a", "mimeType": "text/plain"}]},
        ),
        (
            answered({"type": "file", "id": "lc_2", "base64": "aGk="}),
            {"content": [{"type": "file", "base64": "aGk="}]},  # of what type nobody says
        ),
    ],
)
def test_a_program_gets_the_structured_content_else_the_text(one: BaseTool, expected: Any):
    assert given(one) == expected


def test_an_image_is_content_for_programs_and_for_the_model():
    one = answered({"type": "image", "id": "lc_2", "base64": PICTURE, "mime_type": "image/png"}, text("the shelf"))
    program = "const { content: [image, said] } = await tools.one({}); content(image); return [image.bytes, said.text];"
    (message,) = results(asyncio.run(agent([program], [one], CodeModeMiddleware()).ainvoke(START, CONFIG)))
    said, image = message.content
    assert json.loads(said["text"]) == [5, "the shelf"]
    assert image == {"type": "image", "base64": PICTURE, "mime_type": "image/png"}


def test_an_agents_program_gets_the_same():
    stock = answered(text('{"left": 3}'), structured={"left": 3})
    output = asyncio.run(
        agent(["return (await tools.one({})).left"], [stock], CodeModeMiddleware()).ainvoke(START, CONFIG)
    )
    assert content(output) == "3"


class Redacts(AgentMiddleware[Any, Any, Any]):
    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        message = await handler(request)
        return message.model_copy(update={"content": [text("redacted")]}) if message.name == "one" else message


def test_what_middleware_has_taken_out_of_an_answer_does_not_come_back():
    one = answered(text('{"secret": 3}'), structured={"secret": 3})
    graph = agent(["return await tools.one({})"], [one], CodeModeMiddleware(), Redacts())
    assert content(asyncio.run(graph.ainvoke(START, CONFIG))) == "redacted"


def fails(blocks: list[Any], *, is_handled: bool) -> BaseTool:
    def raises() -> Any:
        raise ToolException("the shelf is locked")

    return adapted(
        "one", raises, server=SimpleNamespace(name="one"), handle_tool_error=is_handled and (lambda _: blocks)
    )


@pytest.mark.parametrize("is_handled", [True, False])
def test_an_error_is_its_text(is_handled: bool):
    one = fails([text("the shelf"), text("is locked"), {"type": "image", "base64": PICTURE}], is_handled=is_handled)
    said = given(one, "try { await tools.one({}) } catch (error) { return error.message.replace('\\n', ' ') }")
    assert said == "the shelf is locked"


def test_an_output_that_the_server_declares_is_declared():
    for key in ("outputSchema", "output_schema"):
        one = answered(text("3"), structured={"left": 3}, server=SimpleNamespace(name="one", **{key: COUNTED}))
        assert "left: number;" in create_code_mode_tool([one]).description
        assert given(one) == {"left": 3}


@each_row("schema", [{"type": 5}, {"$ref": "https://example.com/x"}, {"pattern": "("}, "text", None])
def test_a_schema_of_a_server_that_cannot_be_read_costs_the_declaration_alone(schema: Any):
    one = answered(text("3"), structured={"left": 3}, server=SimpleNamespace(name="one", outputSchema=schema))
    assert given(one) == {"left": 3}
    wrong = answered(text("3"), structured=["other"], server=SimpleNamespace(name="one", outputSchema=COUNTED))
    assert given(wrong) == ["other"]


HINTS = {"readOnlyHint": True, "idempotentHint": True, "title": "One"}


@pytest.mark.parametrize(
    "metadata",
    [
        {**HINTS, "destructiveHint": None},
        {"read_only_hint": True, "idempotent_hint": True, "title": "One"},
        {"mcp": {"tool": {"annotations": {"read_only_hint": True, "idempotent_hint": True, "title": "One"}}}},
    ],
)
def test_annotations_are_those_of_either_adapter(metadata: dict[str, Any]):
    assert convert_tool(answered(metadata=metadata), print).annotations == HINTS


@pytest.mark.parametrize("metadata", [{"mcp": 5}, {"mcp": {"tool": "x"}}, {"mcp": {"tool": {"annotations": [1]}}}])
def test_annotations_of_another_shape_say_nothing(metadata: dict[str, Any]):
    assert get_annotations(answered(metadata=metadata)) == {}


@each_row(
    "hints, waits",
    [
        ({}, True),
        ({"destructiveHint": True}, True),
        ({"destructiveHint": False}, False),
        ({"readOnlyHint": True}, False),
        ({"readOnlyHint": True, "destructiveHint": True}, True),
        ({"readOnlyHint": False}, True),
        ({"idempotentHint": True}, True),
        ({"readOnlyHint": "yes"}, True),
    ],
)
def test_what_is_declared_destructive_or_not_at_all_waits(hints: dict[str, Any], waits: bool):
    made = answered(text("done"), metadata=hints)
    assert is_destructive(get_annotations(made)) is waits
    output = asyncio.run(
        agent(["return await tools.one({})"], [made], CodeModeMiddleware(approve="destructive")).ainvoke(START, CONFIG)
    )
    assert ("__interrupt__" in output) is waits


@tool
def wipe() -> str:
    """Wipe it."""
    raise AssertionError("it runs")


def test_a_kept_tool_that_would_wait_is_refused():
    model = asking(asks(("wipe", {})))
    graph = agent((), [wipe], CodeModeMiddleware(approve="destructive", keep=["wipe"]), model=model)
    (message,) = results(graph.invoke(START, CONFIG))
    assert (message.status, "needs approval for this call" in message.content) == ("error", True)


def test_a_tool_that_would_wait_and_stays_visible_is_refused():
    stays = {"codecall": {"visibleInListTools": True}}
    with pytest.raises(ValueError, match="'one' stays visible"):
        create_code_call_tools([answered(metadata=stays)], approve="destructive")
    names = [
        one.name
        for one in create_code_call_tools([answered(metadata={**stays, "readOnlyHint": True})], approve="destructive")
    ]
    assert "one" in names


def test_another_text_is_no_rule():
    with pytest.raises(ValueError, match="'destructive'"):
        CodeModeMiddleware(approve="all")  # type: ignore[arg-type]


def check(found: dict[str, Any], done: list[str]) -> None:
    assert "stock(input: { product: string }): Promise<Record<string, number>>;" in found["declared"]
    assert "@annotations read-only" in found["declared"]
    left, motto, error, picture = found["given"]
    assert (left, motto) == ({"left": 4}, "Measure twice.")
    assert error.endswith("the shelf is locked")
    assert picture == ["image", "image/png", 5]
    assert found["waiting"] == ["drop", "motto"]
    assert found["dropped"] == [3, "touched", "dropped a", "Measure twice."]
    assert done == ["a"]


def test_with_the_adapter_of_langchain():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is in beta, and says so when it is imported
        try:
            from langchain.mcp import MCPAdapter
        except ImportError as error:
            missing("fastmcp", f"LangChain's adapter is not to be had: {error}")
    import mcp.types
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    desk = Desk(MCPServer("desk"), mcp.types, ToolError)

    async def run() -> dict[str, Any]:
        async with MCPAdapter(desk.server) as adapter:
            return await seen(await adapter.list_tools())

    check(asyncio.run(run()), desk.done)


def test_with_the_adapters_of_the_older_sdk():
    if not OLDER.exists():
        missing("clients", "`make clients` has not installed langchain-mcp-adapters")
    script = Path(__file__).with_name("mcp_adapters_host.py")
    ended = subprocess.run([OLDER, script], capture_output=True, text=True, timeout=BOUND, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    check(found, found["done"])


def test_neither_adapter_nor_sdk_is_imported():
    (folder,) = codemode_langchain.__path__
    trees = [ast.walk(ast.parse(path.read_text("utf-8"))) for path in Path(folder).glob("*.py")]
    imports = [one for tree in trees for one in tree if isinstance(one, ast.Import | ast.ImportFrom)]
    names = [getattr(one, "module", None) or one.names[0].name for one in imports]
    assert "langchain_core.tools" in names
    assert not [one for one in names if one.startswith(("mcp", "fastmcp", "langchain.mcp", "langchain_mcp"))]


def wiping(faces: str, made: Any) -> Any:
    """A graph whose programs wipe, by one surface and by one way to make it."""
    rules: Any = {"approve": "destructive"}
    if faces == "codeMode":
        return agent(["return await tools.one({})"], [made], CodeModeMiddleware(**rules))
    if faces == "codeMode alone":
        return agent(["return await tools.one({})"], [create_code_mode_tool([made], **rules)])
    if faces == "CodeCall":
        messages = asking(executes("return await callTool('one', {})"))
        return agent((), [made], CodeCallMiddleware(**rules), model=messages)
    messages = asking(asks(("exec", {"code": "return await tools.one({})"})))
    return agent((), [made], ExecWaitMiddleware(**rules), model=messages)


@pytest.mark.parametrize("faces", ["codeMode", "codeMode alone", "CodeCall", "exec"])
def test_a_hint_that_changes_in_its_place_counts(faces: str):
    made = answered(text("done"), metadata={"readOnlyHint": True})
    graph = wiping(faces, made)
    made.metadata = {"destructiveHint": True}
    assert "__interrupt__" in asyncio.run(graph.ainvoke(START, CONFIG))


@pytest.mark.parametrize("kind", [CodeModeMiddleware, CodeCallMiddleware, ExecWaitMiddleware])
def test_a_hint_that_changes_between_steps_counts(kind: Any):
    made = answered(text("done"), metadata={"readOnlyHint": True})
    name, key, program = {
        CodeModeMiddleware: ("codeMode", "js", "return await tools.one({})"),
        CodeCallMiddleware: ("codecall_execute", "script", "return await callTool('one', {})"),
        ExecWaitMiddleware: ("exec", "code", "return await tools.one({})"),
    }[kind]
    twice = [asks((name, {key: program})), AIMessage("done"), asks((name, {key: program}))]
    graph = agent((), [made], kind(approve="destructive"), model=asking(*twice))
    assert "__interrupt__" not in asyncio.run(graph.ainvoke(START, CONFIG))
    assert made.metadata is not None
    made.metadata["readOnlyHint"] = False
    assert "__interrupt__" in asyncio.run(graph.ainvoke(START, CONFIG))
