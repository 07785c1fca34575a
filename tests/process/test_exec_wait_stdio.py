"""Real servers of MCP, processes on stdio behind clients of the SDK, in programs of exec."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from pausing import NO, OK, PAUSING, through_json
from stdio_servers import RunningServers, StdioServers, stdio_servers

from codemode import CallContext, CodeModeToolError, ExecWaitTools, ToolSource, create_exec_wait_tools
from codemode.stores import MemoryInterruptStore

pytestmark = pytest.mark.usefixtures("warm_gateways")


@pytest.fixture(scope="module")
def running() -> Iterator[RunningServers]:
    servers = RunningServers()
    yield servers
    servers.close()


@pytest.fixture
def over(running, pool):
    """Do some work with a pair over both servers, or what a test makes of them, which is closed after it."""

    def run(
        work: Callable[[StdioServers, ExecWaitTools], Awaitable[Any]],
        sources: Callable[[StdioServers], list[ToolSource]] = lambda servers: servers.sources,
        *,
        settings: Any = None,
        **options: Any,
    ) -> Any:
        async def main(servers: StdioServers) -> Any:
            pair = create_exec_wait_tools(sources(servers), options, settings=settings, pool=pool)
            try:
                return await work(servers, pair)
            finally:
                await pair.aclose()

        return running.run(main)

    return run


def program(code: str) -> Callable[[StdioServers, ExecWaitTools], Awaitable[Any]]:
    async def work(_servers: StdioServers, pair: ExecWaitTools) -> Any:
        return await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))

    return work


def test_a_slow_call_of_a_server_is_left_waiting_and_its_answer_is_delivered(over):
    async def work(servers: StdioServers, pair: ExecWaitTools) -> Any:
        code = """const made = await MCP.tracker.createIssue({title: "it is broken"});
            const exporting = MCP.tracker.exportIssues({format: "csv"});
            await yield_control();
            text(await exporting); return made.number"""
        rest = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
        held = await servers.gate.begun()
        assert (rest["reason"], held.arguments) == ("yield", {"format": "csv"})
        assert [one["status"] for one in rest["pendingToolCalls"]] == ["running"]
        await held.finish("all of them")
        last = await pair.wait.execute({"runId": rest["runId"]}, call=CallContext(conversation_id="s"))
        return last["value"], last["output"], await servers.issues()

    value, output, issues = over(work)
    assert (value, output) == (1, [{"type": "text", "text": "exported 1: all of them"}])
    assert [one["title"] for one in issues] == ["it is broken"]


def test_tools_have_both_names_pages_are_followed_and_answers_are_values(over):
    code = """const {tracker} = MCP, made = await tracker.create_issue({title: "a", labels: ["b"]});
        return [Object.keys(MCP), made, await tracker.createIssue({title: "c"}),
            (await tracker.listIssues()).issues.length,
            await tracker.close_issue({number: 1}), await tracker.delete_issue({number: 2}),
            await MCP.notes.searchNotes({words: "monday"}), await tracker.showBoard({})]"""
    value = over(program(code))["value"]
    first = {"number": 1, "title": "a", "state": "open"}
    assert value[:4] == [["notes", "tracker"], first, {"number": 2, "title": "c", "state": "open"}, 2]
    assert value[4:7] == [{**first, "state": "closed"}, "deleted", "plan"]
    assert [one["type"] for one in value[7]["content"]] == ["text", "image"]
    assert "data" not in value[7]["content"][1]


FAILURES = [
    ("MCP.tracker.syncIssues({})", "the other tracker is away"),
    ("MCP.tracker.closeIssue({number: 99})", "there is no issue 99"),
    ("MCP.tracker.createIssue({})", 'Invalid input for tool "create_issue": value: missing required "title"'),
    ("MCP.tracker.createIssue('a')", "tool 'create_issue' takes one object"),
    ("MCP.notes.resources.read('notes://nothing/here')", "the server says: "),
    ("MCP.notes.prompts.get('none')", "the server says: "),
    ("MCP.notes.prompts.get('summarize', {name: 5})", "arguments.name: expected string, got number"),
]


def test_failures_of_a_server_are_its_words_and_can_be_caught(over):
    async def work(_servers: StdioServers, pair: ExecWaitTools) -> Any:
        calls = ", ".join(f"() => {call}" for call, _ in FAILURES)
        code = f"""const said = [];
            for (const call of [{calls}]) await call().catch(({{name, message}}) => said.push([name, message]));
            return said"""
        caught = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
        return caught["value"], await pair.exec.execute(
            {"code": "await MCP.tracker.syncIssues()"}, call=CallContext(conversation_id="s")
        )

    said, uncaught = over(work)
    for (name, message), (_, expected) in zip(said, FAILURES, strict=True):
        assert (name, expected in message) == ("CodeModeToolError", True), message
    assert uncaught["code"] == "nested_tool_failed"
    assert "the other tracker is away" in uncaught["error"]


def test_resources_templates_and_prompts_of_a_server(over):
    code = """const {resources, prompts} = MCP.notes, listed = await resources.list();
        return [listed.resources[0].uri, listed.resourceTemplates[0].uriTemplate, await resources.read("notes://all"),
            (await resources.read("notes://one/plan")).contents[0].text, (await prompts.list()).prompts[0].arguments,
            await prompts.get("summarize", {name: "plan", style: "long"}), typeof MCP.tracker.resources]"""
    result = over(program(code))
    assert result["status"] == "completed", result
    value = result["value"]
    assert value[:2] == ["notes://all", "notes://one/{name}"]
    assert value[2]["contents"] == [{"uri": "notes://all", "mimeType": "text/plain", "text": "plan, list"}]
    assert value[3] == "Swim on Monday."
    assert [(one["name"], one["required"]) for one in value[4]] == [("name", True), ("style", False)]
    assert value[5]["messages"][0]["content"]["text"] == "Make a long summary of: Swim on Monday."
    assert value[6] == "undefined"


def test_files_declare_both_servers_without_a_call(over):
    code = """const paths = [];
        for (const prefix of [undefined, "mcp", "mcp/", "mcp/t", "none"])
            paths.push((await API.list(prefix)).files.map((one) => one.path));
        const {content} = await API.read("mcp/tracker.d.ts"), index = (await API.read("mcp/index.d.ts")).content;
        const all = await MCP.tracker.$api(undefined, {schema: true});
        return [paths, content, index, await MCP.tracker.$api("createIssue", {schema: true}),
            (await MCP.tracker.$api("create_issue")).schemas, Object.keys(all.schemas)]"""
    result = over(program(code), maxPendingToolCalls=1)
    paths, content, index, told, no_schemas, all_schemas = result["value"]
    all_paths = ["mcp/index.d.ts", "mcp/notes.d.ts", "mcp/tracker.d.ts"]
    assert paths == [all_paths, all_paths, all_paths, ["mcp/tracker.d.ts"], []]
    assert "createIssue(input: {" in content
    assert "What is wrong" in content
    assert "@annotations read-only" in content
    assert "create_issue" not in content
    assert "createIssue: Open a new issue." in index
    assert told["schemas"]["createIssue"]["properties"]["title"]["minLength"] == 1
    assert no_schemas == {}
    assert len(all_schemas) == 7
    assert result["telemetry"]["calledTools"] == []


PATHS = [
    *("mcp/../mcp/tracker.d.ts", "./mcp/index.d.ts", "mcp/./index.d.ts", "/mcp/index.d.ts", "mcp\\\\index.d.ts"),
    *("mcp//index.d.ts", "mcp/index.d.ts/", "mcp/%69ndex.d.ts", "mcp/index.d.ts\\u0000", "MCP/index.d.ts"),
    *("mcp/index", "", "mcp/", "..", "/etc/passwd", "file:///etc/passwd", "mcp/tracker", "mcp/Team Notes.d.ts"),
    *("mcp/index.d.ts?x", " mcp/index.d.ts", "mcp/\\uff49ndex.d.ts"),
]


def test_no_other_path_is_read(over):
    shown = ", ".join(f'"{path}"' for path in PATHS)
    code = f"""const read = [], told = (error) => error.name === "CodeModeToolError" || read.push(error);
        for (const path of [{shown}, undefined, null, 5, {{}}, ["mcp/index.d.ts"]])
            await API.read(path).then(() => read.push(path), told);
        const refused = [];
        for (const prefix of ["..", "mcp/..", "mcp\\\\", "/", 5])
            await API.list(prefix).catch(({{name}}) => refused.push(name));
        return [read.map(String), refused.length]"""
    assert over(program(code))["value"] == [[], 5]


def test_a_server_that_names_itself_needs_no_owner(over):
    def sources(servers: StdioServers) -> list[ToolSource]:
        return [ToolSource(servers.tracker, "mcp"), ToolSource(servers.notes, "mcp")]

    async def work(servers: StdioServers, pair: ExecWaitTools) -> Any:
        owners = [one.owner for one in sources(servers)]
        result = await pair.exec.execute(
            {"code": "await MCP.TeamNotes.add_note({name: 'plan', text: 'Swim on Monday.'})"}
        )
        return pair.exec.description, owners, result

    description, owners, result = over(work, sources)
    assert "MCP.TeamNotes, MCP.tracker" in description
    assert owners == ["tracker", "Team-Notes"]
    assert result["telemetry"]["calledTools"] == ["mcp:Team-Notes:add_note"]


def test_a_session_of_the_sdk_is_a_source_as_its_client_is(over):
    def sources(servers: StdioServers) -> list[ToolSource]:
        return [ToolSource(servers.tracker.session, "mcp"), ToolSource(servers.notes.session, "mcp")]

    code = """const {content} = await API.read("mcp/tracker.d.ts"), {resources} = await MCP.TeamNotes.resources.list();
        const {number} = await MCP.tracker.createIssue({title: "a"});
        return [content.match(/Promise</g).length, resources.length, number]"""
    assert over(program(code), sources)["value"] == [8, 1, 1]  # of three pages, and of $api


def test_a_person_is_asked_about_calls_of_a_server_as_about_others(over):
    def asks(name: str, given: Any, _context: Any) -> bool:
        return name == "delete_issue" and given["number"] < 5

    def sources(servers: StdioServers) -> list[ToolSource]:
        return [ToolSource(servers.tracker, "mcp", needs_approval=asks)]

    async def work(servers: StdioServers, pair: ExecWaitTools) -> Any:
        code = """await MCP.tracker.create_issue({title: "a"}); await MCP.tracker.delete_issue({number: 7});
            return await MCP.tracker.delete_issue({number: 1})"""
        asked = through_json(await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s")))
        before = await servers.issues()
        result = await pair.resume(asked, OK, call=CallContext(conversation_id="s"))
        denied = through_json(await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s")))
        refused = await pair.resume(denied, NO, call=CallContext(conversation_id="s"))
        return asked, before, result, await servers.issues(), refused

    asked, before, result, after, refused = over(work, sources, settings=PAUSING)
    assert (asked.requests[0].tool_name, asked.input) == ("mcp:tracker:delete_issue", {"number": 1})
    assert [len(before), result["value"], len(after)] == [1, "deleted", 1]
    assert refused["code"] == "nested_tool_failed"


def test_hooks_hear_of_calls_of_a_server_and_may_refuse_them(over):
    heard: list[Any] = []

    def before(call: Any) -> None:
        heard.append((call.tool_name, call.tool_id, call.input, call.context))
        if call.tool_name == "delete_issue":
            raise CodeModeToolError("nobody deletes here")

    async def work(servers: StdioServers, pair: ExecWaitTools) -> Any:
        code = """const made = await MCP.tracker.create_issue({title: "a"});
            return await MCP.tracker.delete_issue({number: made.number}).catch(({message}) => message)"""
        return await pair.exec.execute({"code": code}, call=CallContext(context="ana")), await servers.issues()

    lifecycle = {"on_nested_tool_call": lambda event: heard.append(event.tool_name)}
    result, issues = over(work, settings={"pipeline": {"before": before}, "lifecycle": lifecycle})
    assert (result["value"], len(issues)) == ("nobody deletes here", 1)
    assert ("create_issue", "mcp:tracker:create_issue", {"title": "a"}, "ana") in heard
    assert "mcp:tracker:create_issue" in heard


@pytest.mark.parametrize("max_warm_runs", [4, 0])
def test_an_abort_ends_the_call_on_the_server(over, max_warm_runs):
    async def work(servers: StdioServers, pair: ExecWaitTools) -> Any:
        code = "const going = MCP.tracker.exportIssues({}); await yield_control(); return await going"
        await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
        held = await servers.gate.begun()
        ended = await pair.abort(conversation_id="s")
        await held.gone()
        return ended, (
            await pair.exec.execute(
                {"code": "return await MCP.tracker.listIssues({})"}, call=CallContext(conversation_id="s")
            )
        )["value"]

    assert over(work, maxWarmRuns=max_warm_runs) == (1, {"issues": []})


def test_a_server_that_dies_in_the_middle_of_a_call_fails_the_call_alone(within, pool):
    async def work(servers: StdioServers, pair: ExecWaitTools) -> Any:
        code = """const going = MCP.tracker.exportIssues({}); await yield_control();
            const said = [await going.catch(({name}) => name), await MCP.notes.searchNotes({words: "milk"})];
            return [...said, await MCP.tracker.listIssues().catch(({name}) => name)]"""
        rest = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
        await (await servers.gate.begun()).finish("die")
        return await pair.wait.execute({"runId": rest["runId"]}, call=CallContext(conversation_id="s"))

    async def main() -> Any:
        async with stdio_servers() as servers:
            pair = create_exec_wait_tools(servers.sources, pool=pool)
            try:
                return await work(servers, pair)
            finally:
                await pair.aclose()

    result = within(main())
    assert result["value"][1] == "list", result
    assert [*map(type, result["value"])] == [str, str, str]


class Other:
    """The tracker with one tool that says something else of itself."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.server_capabilities = client.server_capabilities
        self.call_tool = client.call_tool

    async def list_tools(self, *, cursor: str | None = None) -> Any:
        page = await self._client.list_tools(cursor=cursor, cache_mode="bypass")
        for tool in page.tools:
            if tool.name == "delete_issue":
                tool.input_schema = {"type": "object"}
        return page


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("listed_before", [False, True])
def test_a_program_goes_on_elsewhere_only_over_the_same_tools_of_its_servers(running, pool, is_changed, listed_before):
    async def main(servers: StdioServers) -> Any:
        store = MemoryInterruptStore()
        given: dict[str, Any] = {"settings": {"continuation": {"keys": "a key"}}, "pool": pool, "store": store}
        first = create_exec_wait_tools([ToolSource(servers.tracker, "mcp", "tracker")], **given)
        code = """const {number} = await MCP.tracker.create_issue({title: "a"}); await yield_control();
            return [number, (await MCP.tracker.close_issue({number})).state]"""
        rest = await first.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
        await first.aclose()
        session = Other(servers.tracker) if is_changed else servers.tracker
        second = create_exec_wait_tools([ToolSource(session, "mcp", "tracker")], **given)
        if listed_before:
            await second.exec.execute({"code": "return MCP"}, call=CallContext(conversation_id="s"))
        last = await second.wait.execute({"runId": rest["runId"]}, call=CallContext(conversation_id="s"))
        await second.aclose()
        await store.aclose()
        return last, await servers.issues()

    last, issues = running.run(main)
    if is_changed:
        assert (last["code"], issues[0]["state"]) == ("snapshot_restore_failed", "open"), last
    else:
        assert (last["value"], len(issues)) == ([1, "closed"], 1), last


class Away:
    """A server that cannot be reached now."""

    async def list_tools(self) -> Any:
        raise ConnectionError("away")

    async def call_tool(self, name: str, arguments: Any) -> Any:
        raise ConnectionError("away")


def test_a_program_waits_on_while_a_server_of_its_is_away(running, pool, caplog):
    caplog.set_level(logging.CRITICAL, "codemode.tools")

    async def main(servers: StdioServers) -> Any:
        store = MemoryInterruptStore()
        given: dict[str, Any] = {"settings": {"continuation": {"keys": "a key"}}, "pool": pool, "store": store}
        code = "await MCP.tracker.listIssues({}); await yield_control(); return await MCP.tracker.listIssues({})"
        rest, said = None, []
        for session in (servers.tracker, Away(), servers.tracker):
            pair = create_exec_wait_tools([ToolSource(session, "mcp", "tracker")], **given)
            if rest is None:
                rest = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
            else:
                said.append(await pair.wait.execute({"runId": rest["runId"]}, call=CallContext(conversation_id="s")))
            await pair.aclose()
        await store.aclose()
        return said

    away, last = running.run(main)
    assert away["code"] == "runtime_unavailable", away
    assert "still waits" in away["error"]
    assert last["value"] == {"issues": []}
