"""The checklists of exec and wait, a test for each line, over tools of the host and two real MCP servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from pausing import OK, PAUSING, Spy, through_json
from stdio_servers import RunningServers, StdioServers
from suite import full_only

from codemode import (
    CallContext,
    CodeModeToolError,
    ExecWaitTools,
    Interrupt,
    Tool,
    ToolSource,
    create_exec_wait_tools,
    plan_surface,
)

pytestmark = pytest.mark.usefixtures("warm_gateways")

SEND = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
DENIED = frozenset({"drop_database"})


@pytest.fixture(scope="module")
def running() -> Iterator[RunningServers]:
    servers = RunningServers()
    yield servers
    servers.close()


def mixed(servers: StdioServers, spy: Spy | None = None) -> list[ToolSource]:
    """Tools of the host, a plugin, a client and both servers, after what is denied has been taken out."""
    spy = spy or Spy()
    host = [spy.tool(name, lambda value, _: value) for name in ("echo", "exec", "drop_database")]
    mail = spy.tool("send_mail", lambda value, _: {"sent": value["to"]}, description="Send mail.", input_schema=SEND)
    allowed = [tool for tool in host if tool.name not in DENIED]
    return [
        ToolSource(allowed),
        ToolSource([mail], source="plugin", owner="mail"),
        ToolSource([spy.tool("beep", lambda value, _: "beep")], source="client", owner="phone"),
        *servers.sources,
    ]


@pytest.fixture
def over(running, pool):
    """Do some work with a pair over the mixed tools."""

    def run(
        work: Callable[[StdioServers, ExecWaitTools], Awaitable[Any]],
        *,
        settings: Any = None,
        spy: Spy | None = None,
        extra: tuple[ToolSource, ...] = (),
        **options: Any,
    ) -> Any:
        async def main(servers: StdioServers) -> Any:
            sources = [*mixed(servers, spy), *extra]
            pair = create_exec_wait_tools(sources, options, settings=settings, pool=pool)
            try:
                return await work(servers, pair)
            finally:
                await pair.aclose()

        return running.run(main)

    return run


@pytest.fixture
def ran(over):
    def run(code: str, *, language: str | None = None, **more: Any) -> Any:
        given = {"code": code} if language is None else {"code": code, "language": language}
        return over(lambda _, pair: pair.exec.execute(given, call=CallContext(conversation_id="s")), **more)

    return run


NAMES = ("echo", "exec", "send_mail", "beep")


@pytest.mark.parametrize("config", [None, False, {}, {"tools": {}}, {"tools": {"codeMode": False}}])
def test_a_disabled_config_leaves_the_surface_as_it_is(running, config):
    async def main(servers: StdioServers) -> Any:
        owners = [f"mcp:{one.owner}" for one in servers.sources]  # they cannot be listed on their own loop
        return plan_surface(mixed(servers), config), owners

    surface, owners = running.run(main)
    assert (surface.active, surface.pair, surface.visible) == (False, None, (*NAMES, *owners))


@pytest.mark.parametrize("value", [{}, {"timeoutMs": 500}, {"enabled": False}])
def test_an_object_without_enabled_stays_off(running, value):
    async def main(servers: StdioServers) -> Any:
        return plan_surface(mixed(servers), {"tools": {"codeMode": value}})

    assert running.run(main).active is False


@pytest.mark.parametrize("value", [True, {"enabled": True}])
def test_enabled_it_shows_exec_and_wait_alone(running, value):
    async def main(servers: StdioServers) -> Any:
        surface = plan_surface(mixed(servers), {"tools": {"codeMode": value}})
        assert surface.pair is not None
        return surface.active, surface.visible, surface.pair.exec.name, surface.pair.wait.name

    assert running.run(main) == (True, ("exec", "wait"), "exec", "wait")


def test_runs_without_tools_are_not_affected():
    surface = plan_surface([], {"tools": {"codeMode": True}})
    assert (surface.active, surface.visible, surface.pair) == (False, (), None)


def test_all_tools_holds_the_effective_tools_that_are_not_of_mcp(ran):
    ids = ran("return ALL_TOOLS.map(({id}) => id)")["value"]
    assert ids == ["client:phone:beep", "host:core:echo", "host:core:exec", "plugin:mail:send_mail"]


def test_denied_tools_are_absent_and_not_called_by_a_guessed_id(ran):
    spy = Spy()
    code = """const said = [typeof tools.drop_database, (await tools.search("drop database")).length];
        for (const id of ["host:core:drop_database", "drop_database", "plugin:mail:drop_database"])
            await tools.call(id, {}).catch(({message}) => said.push(message.includes("no tool with the id")));
        return said"""
    assert ran(code, spy=spy)["value"] == ["undefined", 0, True, True, True]
    assert spy.ran == []


def test_search_describe_and_call_work(ran):
    code = """const [found] = await tools.search("send mail", {limit: 1}), told = await tools.describe(found.id);
        const sent = await tools.call(found.id, {to: "ana"});
        return [found.id, told.parameters.required, sent, await tools.send_mail({to: "bo"})]"""
    result = ran(code)
    assert result["value"] == ["plugin:mail:send_mail", ["to"], {"sent": "ana"}, {"sent": "bo"}]


def test_api_files_are_read_without_a_call(ran):
    code = """const {files} = await API.list("mcp");
        return [files.map(({path}) => path), (await API.read("mcp/tracker.d.ts")).content.includes("createIssue(")]"""
    result = ran(code, maxPendingToolCalls=1)
    assert result["value"] == [["mcp/index.d.ts", "mcp/notes.d.ts", "mcp/tracker.d.ts"], True]
    assert result["telemetry"]["calledTools"] == []


def test_dollar_api_is_the_way_without_files(ran):
    code = "const told = await MCP.tracker.$api('create_issue', {schema: true}); return [told.header, told.schemas]"
    header, schemas = ran(code)["value"]
    assert "createIssue(input: {" in header
    assert schemas["createIssue"]["required"] == ["title"]


def test_a_tool_of_mcp_is_called_with_one_object(ran):
    result = ran("return await MCP.tracker.createIssue({title: 'a'})")
    assert result["value"] == {"number": 1, "title": "a", "state": "open"}
    assert result["telemetry"]["calledTools"] == ["mcp:tracker:create_issue"]


def test_tools_that_search_for_tools_are_hidden_everywhere(ran):
    names = ["tool_search_code", "tool_search", "tool_describe", "tool_call"]
    controls = ToolSource({name: lambda: "reached" for name in names}, source="openclaw", owner="gateway")
    code = f"""const said = [];
        for (const name of {names}) {{
            said.push(name in tools, ALL_TOOLS.some((one) => one.name === name));
            for (const way of ["call", "describe"])
                await tools[way]("openclaw:gateway:" + name, {{}}).then(() => said.push(true), () => said.push(false));
        }}
        return [said.includes(true), (await tools.search("tool search describe call")).map(({{name}}) => name)]"""
    reached, found = ran(code, extra=(controls,))["value"]
    assert reached is False
    assert not {*names} & {*found}


def test_approvals_hold_for_calls_of_programs(over):
    spy = Spy()
    gated = ToolSource([spy.tool("pay", lambda value, _: value, needs_approval=True)])

    async def work(_servers: StdioServers, pair: ExecWaitTools) -> Any:
        asked = await pair.exec.execute({"code": "return await tools.pay(7)"}, call=CallContext(conversation_id="s"))
        assert isinstance(asked, Interrupt)
        before = [*spy.ran]
        return before, await pair.resume(through_json(asked), OK, call=CallContext(conversation_id="s"))

    before, last = over(work, settings=PAUSING, extra=(gated,))
    assert (before, last["value"], len(spy.ran)) == ([], 7, 1)


def test_hooks_hold_for_calls_of_programs(ran):
    heard: list[str] = []

    def before(call: Any) -> None:
        heard.append(call.tool_id)
        if call.tool_name == "send_mail":
            raise CodeModeToolError("no mail today")

    code = """await tools.echo(1); await MCP.tracker.listIssues({});
        return await tools.send_mail({to: "ana"}).catch(({message}) => message)"""
    assert ran(code, settings={"pipeline": {"before": before}})["value"] == "no mail today"
    assert heard == ["host:core:echo", "mcp:tracker:list_issues", "plugin:mail:send_mail"]


def test_a_shell_called_exec_is_called_by_its_id_and_a_name_of_two_is_nobodys(ran):
    code = "return [await tools.call('host:core:exec', 1), await tools.exec(2)]"
    assert ran(code)["value"] == [1, 2]
    shell = Tool("exec", execute=lambda value, _: f"other {value}")
    other = ToolSource([shell], source="plugin", owner="shell")
    code = "return [typeof tools.exec, await tools.call('host:core:exec', 1), await tools.call('plugin:shell:exec', 2)]"
    assert ran(code, extra=(other,))["value"] == ["undefined", 1, "other 2"]


def test_no_program_runs_exec_or_wait(ran):
    kinds = {"toolKind": "code_mode_exec"}
    own = ToolSource(
        [Tool(name, execute=lambda: "reached", metadata=kinds) for name in ("exec", "wait")], owner="agent"
    )
    code = """const said = [typeof exec, typeof wait, typeof tools.wait];
        for (const id of ["host:agent:exec", "host:agent:wait", "wait"])
            await tools.call(id, {}).catch(() => said.push(id));
        return said"""
    expected = ["undefined", "undefined", "undefined", "host:agent:exec", "host:agent:wait", "wait"]
    assert ran(code, extra=(own,))["value"] == expected


def test_typescript_is_stripped_and_what_is_no_type_is_refused_with_its_line(ran):
    code = "type N = number;\nconst n: N = 1;\nreturn n satisfies N"
    assert ran(code, language="typescript")["value"] == 1
    for wrong in (
        "enum E { A }",
        "namespace N { export const a = 1 }",
        "class C { constructor(private a: number) {} }",
    ):
        result = ran(f"const a = 1;\n{wrong}", language="typescript")
        assert result["code"] == "typescript_transform_failed", result
        assert "line 2" in result["error"]


REFUSED = {
    "module_access_denied": [
        "import fs from 'fs'; return 1",
        "export const a = 1",
        "return require('fs')",
        "return await import('fs')",
        "return `${import.meta.url}`",
        "return `${await import('node:fs')}`",
    ]
}


@pytest.mark.parametrize("code", REFUSED["module_access_denied"])
def test_importing_modules_fails(ran, code):
    assert ran(code)["code"] == "module_access_denied"


def test_files_network_and_environment_are_not_there(ran):
    names = [
        "process",
        "fetch",
        "XMLHttpRequest",
        "WebSocket",
        "Deno",
        "Bun",
        "fs",
        "module",
        "exports",
        "Worker",
        "os",
    ]
    code = f"return {names}.filter((name) => globalThis[name] !== undefined)"
    assert ran(code)["value"] == []
    assert ran("return 'import x from require(y)'")["value"] == "import x from require(y)"


@pytest.mark.parametrize("code", ["for (;;) await null;", *full_only("for (;;);")])
def test_an_endless_loop_times_out(ran, code):
    assert ran(code, timeoutMs=300)["code"] == "timeout"


def test_the_memory_cap_ends_the_program(ran):
    code = "const kept = []; for (;;) kept.push('x'.repeat(1000) + kept.length)"
    assert ran(code, memoryLimitBytes=8 << 20)["code"] == "memory_limit_exceeded"


OVER = "try { text('x'.repeat(900)); text('x'.repeat(900)) } catch {}"


@pytest.mark.parametrize(
    "code", [f"{OVER} return 1", f"{OVER} await yield_control(); return 1", "text('a'); return 'y'.repeat(2000)"]
)
def test_output_is_capped_at_the_end_and_before_a_rest(ran, code):
    assert ran(code, maxOutputBytes=1024)["code"] == "output_limit_exceeded"


@pytest.mark.parametrize("max_warm_runs", [4, 0])
def test_the_number_of_resting_programs_is_capped(ran, max_warm_runs):
    code = "const kept = await tools.echo('x'.repeat(5000)); await yield_control(); return kept.length"
    result = ran(code, maxSnapshotBytes=1024, maxWarmRuns=max_warm_runs)
    assert result["code"] == "snapshot_limit_exceeded"


@pytest.mark.parametrize("max_warm_runs", [4, 0])
def test_wait_goes_on_with_a_program(over, max_warm_runs):
    async def work(servers: StdioServers, pair: ExecWaitTools) -> Any:
        code = """text("before"); const going = MCP.tracker.exportIssues({}); await yield_control();
            const told = await going; text("after"); return told"""
        rest = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
        await (await servers.gate.begun()).finish("all")
        return rest, await pair.wait.execute({"runId": rest["runId"]}, call=CallContext(conversation_id="s"))

    rest, last = over(work, maxWarmRuns=max_warm_runs)
    assert (rest["status"], rest["output"]) == ("waiting", [{"type": "text", "text": "before"}])
    assert (last["value"], last["output"]) == ("exported 0: all", [{"type": "text", "text": "after"}])


def test_an_unknown_run_id_fails(over):
    async def work(_servers: StdioServers, pair: ExecWaitTools) -> Any:
        rest = await pair.exec.execute(
            {"code": "await yield_control(); return 1"}, call=CallContext(conversation_id="s")
        )
        run_id = rest["runId"]
        given = [(run_id, "another"), ("run_" + "0" * 32, "s"), ("", "s"), ("12345", "s"), (5, "s"), (None, "s")]
        refused = [
            await pair.wait.execute({"runId": one}, call=CallContext(conversation_id=scope)) for one, scope in given
        ]
        first = await pair.wait.execute({"runId": run_id}, call=CallContext(conversation_id="s"))
        refused.append(await pair.wait.execute({"runId": run_id}, call=CallContext(conversation_id="s")))
        return [one["code"] for one in refused], first["value"]

    assert over(work) == (["invalid_input"] * 7, 1)


def test_telemetry_and_hooks_show_nested_calls_under_the_call_of_the_model(over):
    events: list[Any] = []
    lifecycle = {"on_nested_tool_call": events.append}

    async def work(_servers: StdioServers, pair: ExecWaitTools) -> Any:
        code = "await tools.echo(1); return await MCP.tracker.createIssue({title: 'a'})"
        return await pair.exec.execute(
            {"code": code}, call=CallContext(conversation_id="s", tool_call_id="call-7")
        ), pair.telemetry

    result, counts = over(work, settings={"lifecycle": lifecycle})
    assert result["telemetry"]["calledTools"] == ["host:core:echo", "mcp:tracker:create_issue"]
    assert result["telemetry"]["visibleTools"] == ["exec", "wait"]
    assert [one.tool_name for one in events] == ["host:core:echo", "mcp:tracker:create_issue"]
    assert all(one.outer_tool_call_id == "call-7" for one in events)
    assert (counts["exec"], counts["call"]) == (1, 2)


def test_the_same_call_of_the_model_is_answered_from_what_was_recorded(over):
    spy = Spy()

    async def work(_servers: StdioServers, pair: ExecWaitTools) -> Any:
        given = {"code": "return await tools.echo(1)"}
        return [
            await pair.exec.execute(given, call=CallContext(conversation_id="s", tool_call_id="call-7"))
            for _ in range(2)
        ]

    first, second = over(work, spy=spy)
    assert first == second
    assert len(spy.ran) == 1
