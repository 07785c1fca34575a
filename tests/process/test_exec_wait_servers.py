"""Servers of MCP in programs of exec: their tools, resources and prompts, and the files that declare them."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest

from codemode import CallContext, CodeModeToolError, ProgramLibrary, Tool
from codemode.stores import MemoryInterruptStore
from codemode.surfaces.exec_wait.exec_wait_tools import create_exec_wait_tools
from codemode.surfaces.exec_wait.options import InvalidConfigError
from codemode.surfaces.exec_wait.sources import ToolSource

ISSUE = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
NUMBERED = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


def block(text: str) -> Any:
    told = {"type": "text", "text": text}
    return SimpleNamespace(**told, model_dump=lambda **_: told)


class Session:
    """A server as a session of the SDK shows one: two pages of tools, resources, and no prompts."""

    def __init__(self, *, fails: int = 0) -> None:
        self.calls: list[Any] = []
        self.listings = 0
        self._fails = fails
        self.server_info = SimpleNamespace(name="Git Hub")

    def get_server_capabilities(self) -> Any:
        return SimpleNamespace(resources=SimpleNamespace(), prompts=None)

    async def list_tools(self, cursor: str | None = None) -> Any:
        self.listings += 1
        if self._fails > 0:
            self._fails -= 1
            raise ConnectionError("not yet")
        if cursor is None:
            create = SimpleNamespace(name="create_issue", description="Creates an issue. Really.", inputSchema=ISSUE)
            create.outputSchema = NUMBERED
            return SimpleNamespace(tools=[create], nextCursor="next")
        odd = SimpleNamespace(name="constructor", description="", inputSchema={"type": "object"}, outputSchema=None)
        return SimpleNamespace(tools=[odd], nextCursor=None)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        self.calls.append((name, arguments))
        if name == "create_issue":
            return SimpleNamespace(content=[], structuredContent={"number": 7}, isError=False)
        return SimpleNamespace(content=[block("it is broken")], structuredContent=None, isError=True)

    async def list_resources(self, cursor: str | None = None) -> Any:
        return SimpleNamespace(resources=[SimpleNamespace(model_dump=lambda **_: {"uri": "file:///a"})])

    async def read_resource(self, uri: str) -> Any:
        return SimpleNamespace(model_dump=lambda **_: {"contents": [{"uri": uri, "text": "text of a"}]})

    async def list_prompts(self) -> Any:
        raise AssertionError("this server has no prompts")

    async def get_prompt(self, name: str, arguments: Any) -> Any:
        raise AssertionError((name, arguments))


@pytest.fixture
def ran(within, pool):
    """Run a program over a session and one tool of the host; give its result."""

    def run(session: Session, code: str, owner: str | None = "github", **options: Any) -> Any:
        local = Tool("local", execute=lambda value, _: value)
        sources = [ToolSource([local]), ToolSource(session, source="mcp", owner=owner)]
        pair = create_exec_wait_tools(sources, options, pool=pool)

        async def main():
            try:
                return await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
            finally:
                await pair.aclose()

        return within(main())

    return run


def test_a_tool_of_a_server_is_called_with_one_object_under_both_names(ran):
    session = Session()
    result = ran(
        session, "return [await MCP.github.create_issue({title: 'a'}), await MCP.github.createIssue({title: 'b'})]"
    )
    assert result["value"] == [{"number": 7}, {"number": 7}]
    assert session.calls == [("create_issue", {"title": "a"}), ("create_issue", {"title": "b"})]
    assert result["telemetry"]["calledTools"] == ["mcp:github:create_issue"]
    assert result["telemetry"]["catalog"]["bySource"] == {"host": 1, "mcp": 2}


def test_servers_are_in_nothing_else(ran):
    session = Session()
    code = """const told = [ALL_TOOLS.map((one) => one.id), Object.keys(tools), typeof tools.create_issue];
        const refused = [];
        for (const id of ["mcp:github:create_issue", "mcp:github:resources/list"])
            for (const way of ["call", "describe"])
                await tools[way](id, {title: "a"}).catch(({message}) => refused.push(message.includes("no tool with")));
        return [...told, refused, (await tools.search("create an issue")).map((one) => one.id), Object.keys(MCP)]"""
    names, keys, kind, refused, found, servers = ran(session, code)["value"]
    assert names == ["host:core:local"]
    assert (keys, kind) == (["search", "describe", "call", "local"], "undefined")
    assert refused == [True] * 4
    assert (found, servers) == ([], ["github"])
    assert session.calls == []


def test_resources_are_there_where_the_server_has_them(ran):
    code = """return [await MCP.github.resources.list(), await MCP.github.resources.read("file:///a"),
        typeof MCP.github.prompts, Object.keys(MCP.github).sort()]"""
    listed, read, prompts, names = ran(Session(), code)["value"]
    assert listed == {"resources": [{"uri": "file:///a"}]}
    assert read == {"contents": [{"uri": "file:///a", "text": "text of a"}]}
    assert (prompts, names) == ("undefined", ["constructor2", "createIssue", "create_issue", "resources"])


def test_what_a_server_raises_that_says_nothing_of_its_prompts_is_in_the_log(ran, caplog):
    session = Session()
    session.get_server_capabilities = lambda: None
    session.list_prompts = AsyncMock(side_effect=ConnectionError("the line is dead"))
    with caplog.at_level(logging.INFO, logger="codemode.tools"):
        assert ran(session, "return typeof MCP.github.prompts")["value"] == "undefined"
    (told,) = [one for one in caplog.records if "prompts" in one.getMessage()]
    assert "the line is dead" in str(told.exc_info[1])


def test_files_declare_what_there_is_and_are_no_calls(ran):
    session = Session()
    code = """const {files} = await API.list();
        const same = JSON.stringify(await API.list("mcp")) === JSON.stringify(await API.list("mcp/"));
        return [files.map((one) => one.path), same, (await API.read("mcp/github.d.ts")).content,
            (await API.read("mcp/index.d.ts")).content, await MCP.github.$api("create_issue", {schema: true}),
            Object.keys((await MCP.github.$api()).schemas)]"""
    result = ran(session, code, maxPendingToolCalls=1)
    paths, same, declared, index, told, schemas = result["value"]
    assert (paths, same, schemas) == (["mcp/index.d.ts", "mcp/github.d.ts"], True, [])
    assert "createIssue(input: {" in declared
    assert "Creates an issue. Really." in declared
    assert "resources: {" in declared
    assert "prompts" not in declared
    assert "MCP.github, 2 tools" in index
    assert told["schemas"]["createIssue"]["required"] == ["title"]
    assert "constructor2" not in told["header"]
    assert result["telemetry"]["calledTools"] == []
    assert session.calls == []


@pytest.mark.parametrize(
    "path",
    ["mcp/nothing.d.ts", "mcp/../mcp/github.d.ts", "./mcp/github.d.ts", "mcp\\\\github.d.ts", "/mcp/github.d.ts", 5],
)
def test_other_paths_are_refused(ran, path):
    shown = path if isinstance(path, int) else f"'{path}'"
    result = ran(Session(), f"return await API.read({shown}).then(() => 'read', (error) => error.name)")
    assert result["value"] == "CodeModeToolError"


def test_what_a_server_says_of_a_failed_call_is_an_error(ran):
    result = ran(Session(), "return await MCP.github.constructor2({}).catch((error) => error.message)")
    assert "it is broken" in result["value"]
    assert ran(Session(), "await MCP.github.constructor2({})")["code"] == "nested_tool_failed"
    assert ran(Session(), "await MCP.github.createIssue({})")["code"] == "nested_tool_failed"


def test_a_server_is_listed_once_and_only_for_programs_that_look(ran, within, pool):
    session = Session()
    assert ran(session, "return 1")["value"] == 1
    assert session.listings == 0
    failing = Session(fails=1)
    pair = create_exec_wait_tools(ToolSource(failing, source="mcp", owner="github"), pool=pool)

    async def main():
        results = [await pair.exec.execute({"code": "return Object.keys(MCP)"}) for _ in range(3)]
        await pair.aclose()
        return [one["value"] for one in results]

    assert within(main()) == [[], ["github"], ["github"]]
    assert failing.listings == 3  # one that failed, and two pages


def test_a_server_without_an_owner_has_its_own_name(ran):
    assert ran(Session(), "return Object.keys(MCP)", owner=None)["value"] == ["GitHub"]


def test_a_pipeline_tells_servers_apart_and_may_refuse(within, pool):
    def before(call: Any) -> None:
        told.append((call.tool_name, call.tool_id))
        if call.tool_id == "mcp:other:create_issue":
            raise CodeModeToolError("not there")

    told: list[Any] = []
    here, other = Session(), Session()
    sources = [ToolSource(here, source="mcp", owner="github"), ToolSource(other, source="mcp", owner="other")]
    pair = create_exec_wait_tools(sources, settings={"pipeline": {"before": before}}, pool=pool)
    code = """const told = await MCP.other.createIssue({title: "b"}).catch((error) => error.message);
        return [await MCP.github.createIssue({title: "a"}), told]"""

    async def main():
        result = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
        await pair.aclose()
        return result

    assert within(main())["value"] == [{"number": 7}, "not there"]
    assert sorted(told) == [("create_issue", "mcp:github:create_issue"), ("create_issue", "mcp:other:create_issue")]
    assert (len(here.calls), other.calls) == (1, [])


def test_what_is_no_session_is_refused_and_so_is_an_owner_twice():
    with pytest.raises(InvalidConfigError, match="session"):
        ToolSource([], source="mcp")
    twice = [ToolSource(Session(), source="mcp", owner="a"), ToolSource(Session(), source="mcp", owner="a")]
    with pytest.raises(InvalidConfigError, match="same owner"):
        create_exec_wait_tools(twice)


def test_a_saved_program_is_pinned_to_the_tools_of_servers(within):
    library = ProgramLibrary(MemoryInterruptStore())

    async def main() -> Any:
        await library.save("create", "return MCP.hub.create_issue({ title: input.title })")
        pair = create_exec_wait_tools([ToolSource(Session(), source="mcp", owner="hub")], library=library)
        try:
            result = await pair.exec.execute("return await saved.create({ title: 'x' })")
        finally:
            await pair.aclose()
        return result["value"], (await library.get("create")).current.tools

    assert within(main()) == ({"number": 7}, ("mcp:hub:create_issue",))
