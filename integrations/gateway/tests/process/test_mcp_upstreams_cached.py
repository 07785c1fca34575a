"""What stays secret of a server, what is known of one before it runs, which tools of one programs see."""

import asyncio
from dataclasses import replace

import pytest
from codemode_gateway import UpstreamHooks, connect
from mcp_servers.configured import of, quick
from waiting import until, within

from codemode import create_modules_tool, run_code_mode

SECRET = "sk-abcdef/0123456789"


def secret(*modes: str, **settings):
    return quick(*modes, env={"API_TOKEN": SECRET}, secrets=(SECRET,), **settings)


@pytest.mark.parametrize("call", ["s.environment({})", "s.fail({})", "s.wordy({})"])
def test_a_secret_is_in_no_result_and_no_error(call, caplog):
    async def work():
        modes = ("wordy",) if "wordy" in call else ()
        async with connect(of(secret(*modes))) as connected:
            tool = create_modules_tool(connected)
            code = f"""import * as s from "@codemode/servers/quick";
            try {{ globalThis.__codemode_result__ = await {call}; }}
            catch (error) {{ globalThis.__codemode_result__ = error.message; }}"""
            response = await tool.execute({"code": code})
            return str(response) + tool.declarations() + str(connected.upstream("quick").listed_tools)

    said = within(work())
    assert "[secret]" in said
    assert SECRET not in said + caplog.text


def test_a_secret_is_in_no_reason_for_a_failure(caplog):
    async def work():
        async with connect(of(secret("crash"))) as connected:
            response = await create_modules_tool(connected).execute({"code": 'import "@codemode/servers/quick";'})
            return str(response) + str(connected.upstream("quick").failure)

    assert "[secret]" in within(work())
    assert SECRET not in within(work()) + caplog.text


def test_with_a_list_that_was_kept_nothing_is_started_before_a_call(tmp_path):
    config = of(quick(f"marks={tmp_path}"))

    async def known():
        async with connect(config, cache_folder=tmp_path / "lists") as connected:
            await connected.upstream("quick").tools()

    async def work():
        async with connect(config, cache_folder=tmp_path / "lists") as connected:
            upstream = connected.upstream("quick")
            tool = create_modules_tool(connected)
            await tool.refresh()
            assert "export function echo(" in tool.declarations()
            assert (upstream.state, upstream.version) == ("stopped", "1.2")
            assert upstream.capabilities is not None
            code = """import { echo } from "@codemode/servers/quick";
            globalThis.__codemode_result__ = await echo({ text: "x" });"""
            assert (await tool.execute({"code": code}))["result"] == "x"
            await until(lambda: (tmp_path / "log").read_text().count("list") == 2)
            await until(lambda: upstream.revision == 0)

    within(known())
    within(work())
    assert (tmp_path / "log").read_text().count("start") == 2


def test_a_server_whose_tools_are_others_than_those_kept_is_known_anew_once_it_runs(tmp_path):
    async def known(server):
        async with connect(of(server), cache_folder=tmp_path) as connected:
            await connected.upstream("quick").tools()

    async def work(server):
        async with connect(of(server), cache_folder=tmp_path) as connected:
            upstream = connected.upstream("quick")
            assert "echo" in {tool.name for tool in upstream.listed_tools}
            await upstream.call("echo", {"text": "x"})
            await until(lambda: upstream.revision == 1)
            return {tool.name for tool in await upstream.tools()}

    kept = quick("count=3", env={"X": "1"})
    within(known(quick(env={"X": "1"})))
    (file,) = tmp_path.iterdir()
    text = file.read_bytes()
    file.unlink()
    within(known(kept))
    (file,) = tmp_path.iterdir()
    file.write_bytes(text)
    assert within(work(kept)) == {"t0", "t1", "t2"}


def test_programs_see_the_tools_that_the_configuration_and_the_hooks_leave():
    async def listed(_server, tools):
        return [tool for tool in tools if tool.name != "two"]

    def approval(_server, tool):
        return tool.name == "echo"

    async def work():
        server = replace(quick(), allow=("e*", "t*", "slow"), deny=("env*",))
        hooks = UpstreamHooks(filter_tools=listed, get_approval_rule=approval)
        async with connect(of(server), hooks=hooks) as connected:
            return await connected.upstream("quick").tools()

    tools = within(work())
    assert {tool.name: tool.needs_approval for tool in tools} == {"echo": True, "slow": False}
    assert tools[0].annotations == {"readOnlyHint": True, "idempotentHint": False}


def test_whoever_wants_to_sees_what_a_program_gets():
    seen = []

    async def work():
        hooks = UpstreamHooks(on_result=lambda server, tool, value: seen.append((server.name, tool, value)))
        async with connect(of(quick()), hooks=hooks) as connected:
            code = """import { echo, structured, fail } from "@codemode/servers/quick";
            await echo({ text: "x" }); await structured({}); await fail({}).catch(() => 0);"""
            await create_modules_tool(connected).execute({"code": code})

    within(work())
    assert seen == [("quick", "echo", "x"), ("quick", "structured", {"n": 7})]


def test_code_mode_gets_the_tools_of_all_servers_that_can_be_used():
    async def work():
        servers = of(quick(name="my notes"), quick(name="my-notes"), quick("crash", name="c"), quick("odd", name="odd"))
        async with connect(servers) as connected:
            tools = await connected.tools()
            js = "return [await tools.my_notes_echo({text: 'a'}), await tools.my_notes_echo__2({text: 'b'})]"
            assert "odd_bad_schema" in tools
            return await run_code_mode(js, tools)

    assert within(work()) == ["a", "b"]


def test_many_servers_start_at_once(tmp_path):
    async def work():
        servers = of(*(quick("together=8", f"marks={tmp_path}", name=f"s{n}") for n in range(8)))
        async with connect(servers) as connected:
            await asyncio.gather(*(one.tools() for one in connected.upstreams))
            assert {one.state for one in connected.upstreams} == {"ready"}

    within(work())
