"""Servers over stdio: what a program gets of them, what it is told when they fail, what is left of them."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from codemode_gateway import GatewayConfig, UpstreamHooks, connect
from codemode_gateway.gateway.principals import CallOrigin
from codemode_gateway.upstreams import call_retries, reconnecting
from codemode_gateway.upstreams import upstream as upstreams
from mcp_servers.configured import HERE, of, plain, quick
from mcp_types import ToolListChangedNotification
from suite import full_only
from waiting import until, within

from codemode import ToolCallContext, create_modules_tool
from codemode.errors import CodeModeToolError


def test_a_program_calls_tools_of_a_server_and_gets_what_they_give():
    async def work():
        async with connect(of(quick(name="Some Server"))) as connected:
            tool = create_modules_tool(connected)
            code = """
            import * as s from "@codemode/servers/some-server";
            const said = [];
            for (const call of [() => s.fail({}), () => s.refuse({})]) {
              try { await call() } catch (error) { said.push(error.name, error.message) }
            }
            globalThis.__codemode_result__ = [
              await s.echo({ text: "hello" }), await s.structured({}), await s.picture({}), await s.two({}), said
            ];
            """
            return await tool.execute({"code": code})

    response = within(work())
    assert response["diagnostics"] == []
    assert response["result"] == [
        "hello",
        {"n": 7},
        {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
        {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        ["ToolCallError", "it did not work: ", "ToolCallError", "no such thing here"],
    ]


def test_nothing_is_started_before_it_is_needed_and_a_call_starts_it():
    async def work():
        async with connect(of(quick())) as connected:
            upstream = connected.upstream("quick")
            assert upstream.state == "stopped"
            result = await upstream.call("echo", {"text": "x"})
            assert upstream.state == "ready"
            return result

    assert within(work()).content == ({"type": "text", "text": "x"},)


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (quick("crash"), "it ended with exit code 4: cannot start: key"),
        (quick("silent", connect_timeout_ms=300), "it did not answer within 0.3 seconds"),
        (quick("endless_line"), "it wrote a line of more than 33554432 bytes"),
        (quick("version=1999-01-01"), "Unsupported protocol version"),
        (quick(cwd=str(HERE / "nowhere")), "working directory"),
    ],
)
def test_a_server_that_cannot_be_used_says_why_and_costs_the_others_nothing(server, reason):
    async def work():
        async with connect(of(server, quick(name="other"))) as connected:
            code = """import { echo } from "@codemode/servers/other";
            globalThis.__codemode_result__ = await echo({ text: "x" });"""
            tool = create_modules_tool(connected)
            assert (await tool.execute({"code": code}))["result"] == "x"
            failed = await tool.execute({"code": 'import { echo } from "@codemode/servers/quick";'})
            return failed["diagnostics"], connected.upstream("quick")

    diagnostics, upstream = within(work())
    assert upstream.failure is not None
    assert reason in upstream.failure
    assert [one["code"] for one in diagnostics if one["severity"] == "error"] == ["IMPORT_FAILURE"]
    assert reason in diagnostics[0]["message"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("no-such-command-anywhere", r"its command 'no-such-command-anywhere' does not exist.* of server 'x'"),
        ("no-such-command --key hidden", r"move the arguments after 'no-such-command' to args of server 'x'"),
    ],
)
def test_a_command_that_does_not_exist_is_said_so(command, said):
    async def work():
        async with connect(of(quick(name="x"))) as connected:
            object.__setattr__(connected.upstream("x").config, "command", command)
            with pytest.raises(CodeModeToolError, match=r"its command was not found$"):
                await connected.upstream("x").tools()
            problem = connected.upstream("x").problem
            assert problem is not None
            assert re.search(said, problem)
            assert "hidden" not in problem

    within(work())


def test_a_server_that_ended_is_started_again_and_a_call_is_repeated_only_without_harm(tmp_path):
    async def work():
        async with connect(of(quick(f"marks={tmp_path}"))) as connected:
            upstream = connected.upstream("quick")
            await upstream.tools()
            assert (await upstream.call("die_once", {})).content[0]["text"] == "alive"
            with pytest.raises(CodeModeToolError) as raised:
                await upstream.call("die_once_unsafe", {})
            assert raised.value.code == "OUTCOME_UNKNOWN"
            assert (await upstream.call("die_once_unsafe", {})).content[0]["text"] == "alive"

    within(work())
    log = (tmp_path / "log").read_text().splitlines()
    assert [line for line in log if line.startswith("call")] == [
        "call die_once",
        "call die_once",
        "call die_once_unsafe",
        "call die_once_unsafe",
    ]
    assert sum(line.startswith("start") for line in log) == 3


def test_a_program_hears_that_an_outcome_is_unknown():
    async def work():
        async with connect(of(quick())) as connected:
            code = """import { die } from "@codemode/servers/quick";
            try { await die({}) } catch (error) { globalThis.__codemode_result__ = [error.name, error.code] }"""
            return await create_modules_tool(connected).execute({"code": code})

    assert within(work())["result"] == ["ToolCallError", "OUTCOME_UNKNOWN"]


def test_a_program_whose_server_dies_of_each_call_is_told_to_go_on_without_it(tmp_path):
    async def work():
        async with connect(of(quick(f"marks={tmp_path}", "die_of=echo"))) as connected:
            code = """import { echo } from "@codemode/servers/quick";
            try { await echo({ text: "x" }) }
            catch (error) { globalThis.__codemode_result__ = [error.code, error.hint] }"""
            return await create_modules_tool(connected).execute({"code": code})

    assert within(work())["result"] == ["SERVER_LOST", "Do without this server, or tell the user."]
    assert (tmp_path / "log").read_text().splitlines().count("call echo") == 3


@pytest.mark.parametrize(("tool", "code"), [("slow", "OUTCOME_UNKNOWN"), ("slow_read", "TIMEOUT")])
def test_a_call_ends_in_its_time_and_the_server_is_told(tmp_path, tool, code):
    async def work():
        async with connect(of(quick(f"marks={tmp_path}", timeout_ms=200))) as connected:
            upstream = connected.upstream("quick")
            await upstream.tools()
            with pytest.raises(CodeModeToolError, match="did not answer within 200 ms") as raised:
                await upstream.call(tool, {})
            assert raised.value.code == code
            await until(lambda: "cancelled" in (tmp_path / "log").read_text())

    within(work())


@pytest.mark.full
def test_a_server_that_stands_still_is_ended_after_two_calls_and_started_for_the_next(monkeypatch, caplog):
    monkeypatch.setattr(call_retries, "_PING_SECONDS", 0.2)

    async def pid_of(upstream):
        while True:
            try:
                return (await upstream.call("pid", {})).structured_content["pid"]
            except CodeModeToolError as error:  # a busy machine may take longer too
                assert error.code == "TIMEOUT"

    async def work():
        async with connect(of(quick(timeout_ms=500))) as connected:
            upstream = connected.upstream("quick")
            await upstream.tools()
            before = await pid_of(upstream)
            os.kill(before, signal.SIGSTOP)
            assert await pid_of(upstream) != before
            await until(lambda: not Path(f"/proc/{before}").exists())

    within(work())
    assert "server 'quick' has not answered for" in caplog.text


def test_a_server_that_is_late_and_answers_otherwise_is_left_running(tmp_path, monkeypatch):
    monkeypatch.setattr(call_retries, "_PING_SECONDS", 60.0)

    async def work():
        async with connect(of(quick(f"marks={tmp_path}", timeout_ms=100))) as connected:
            upstream = connected.upstream("quick")
            await upstream.tools()
            for _ in range(5):
                with pytest.raises(CodeModeToolError, match="did not answer within 100 ms"):
                    await upstream.call("slow_read", {})
            assert upstream.state == "ready"

    within(work())
    assert sum(line.startswith("start") for line in (tmp_path / "log").read_text().splitlines()) == 1


def test_who_cancels_a_call_cancels_it_at_the_server(tmp_path):
    async def work():
        async with connect(of(quick(f"marks={tmp_path}"))) as connected:
            upstream = connected.upstream("quick")
            task = asyncio.create_task(upstream.call("slow", {}))
            await until(lambda: (tmp_path / "log").exists() and "call slow" in (tmp_path / "log").read_text())
            task.cancel()
            await until(lambda: "cancelled" in (tmp_path / "log").read_text())

    within(work())


def test_no_more_calls_are_in_flight_than_allowed(tmp_path):
    async def work():
        async with connect(of(quick(f"marks={tmp_path}", max_concurrency=2))) as connected:
            upstream = connected.upstream("quick")
            await upstream.tools()
            calls = [asyncio.create_task(upstream.call("slow", {})) for _ in range(2)]
            third = asyncio.create_task(upstream.call("echo", {"text": "x"}))
            await until(lambda: (tmp_path / "log").read_text().count("call slow") == 2)
            assert not third.done()
            calls[0].cancel()
            await third
            calls[1].cancel()

    within(work())


@pytest.mark.parametrize("tool", ["deep", "half"])
def test_an_answer_that_cannot_be_read_is_no_wait(tool):
    async def work():
        async with connect(of(quick())) as connected:
            with pytest.raises(CodeModeToolError, match="its answer cannot be read"):
                await connected.upstream("quick").call(tool, {})
            assert (await connected.upstream("quick").call("echo", {"text": "on"})).content[0]["text"] == "on"

    within(work())


def test_noise_floods_and_large_answers_harm_nobody(caplog):
    async def work():
        async with connect(of(quick("noise"))) as connected:
            upstream = connected.upstream("quick")
            await upstream.call("flood", {})
            result = await upstream.call("huge", {"size": 5_000_000})
            return len(result.content[0]["text"])

    assert within(work()) == 5_000_000
    assert sum("writes invalid messages" in record.message for record in caplog.records) == 1


def test_an_idle_server_ends_and_a_call_starts_it_again():
    async def work():
        async with connect(of(quick(idle_ms=100))) as connected:
            upstream = connected.upstream("quick")
            first = (await upstream.call("pid", {})).structured_content
            assert first["pid"] == first["group"]
            with upstream.keep_running():
                await asyncio.sleep(0.3)
                assert upstream.state == "ready"
            await until(lambda: upstream.state == "stopped")
            assert (await upstream.call("pid", {})).structured_content["pid"] != first["pid"]

    within(work())


def test_no_process_outlives_a_gateway_that_is_killed():
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    with subprocess.Popen(
        [sys.executable, str(HERE / "connected_host.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as host:
        assert host.stdout is not None
        pids = json.loads(host.stdout.readline())
        assert len(pids) == 6
        assert all(map(is_alive, pids))
        host.kill()

    async def work():
        await until(lambda: not any(map(is_alive, pids)))

    within(work())


@pytest.mark.full
def test_nothing_is_left_of_servers_that_were_closed(tmp_path):
    async def work():
        before, tasks = descriptors(), asyncio.all_tasks()
        async with connect(of(quick(name="a"), quick("stubborn", name="b"), quick("crash", name="c"))) as connected:
            said = [await one.call("children", {}) for one in connected.upstreams[:2]]
            with pytest.raises(CodeModeToolError):
                await connected.upstreams[2].tools()
            slow = asyncio.create_task(connected.upstreams[0].call("slow", {}))
            await asyncio.sleep(0)
        with pytest.raises(CodeModeToolError):
            await slow
        pids = [pid for one in said for pid in one.structured_content["pids"]]
        await until(lambda: not any(map(is_alive, pids)))
        assert asyncio.all_tasks() <= tasks
        assert descriptors() <= before

    within(work())


def test_another_event_loop_is_refused():
    async def work():
        async with connect(of(quick())) as connected:
            upstream = connected.upstream("quick")

            def elsewhere():
                return asyncio.run(upstream.tools())

            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.to_thread(elsewhere)

    within(work())


def test_tools_that_change_are_there_for_the_next_program_and_a_program_keeps_those_it_has():
    async def work():
        heard = []

        async def notified(_server, notification):
            heard.append(type(notification))

        async with connect(of(quick()), hooks=UpstreamHooks(on_notification=notified)) as connected:
            tool = create_modules_tool(connected)
            code = """import * as s from "@codemode/servers/quick";
            await s.change({});
            globalThis.__codemode_result__ = typeof s.new_0;"""
            first = await tool.execute({"code": code})
            await until(lambda: ToolListChangedNotification in heard)
            return first["result"], (await tool.execute({"code": code}))["result"]

    assert within(work()) == ("undefined", "function")


def test_a_server_that_tells_no_changes_is_looked_at(monkeypatch, tmp_path):
    monkeypatch.setattr(upstreams, "POLL_SECONDS", 0.05)

    async def work():
        async with connect(of(quick("unchanging"))) as connected:
            upstream = connected.upstream("quick")
            before = len(await upstream.tools())
            revision = upstream.revision
            await upstream.call("change", {})
            await until(lambda: upstream.revision != revision)
            assert len(await upstream.tools()) == before + 1

    within(work())


def test_progress_of_a_server_is_passed_on():
    said = []

    async def progress(message):
        said.append(message)

    async def work():
        async with connect(of(quick())) as connected:
            context = ToolCallContext(
                tool_call_id="1",
                outer_tool_call_id="0",
                context=CallOrigin(progress=progress, trace={"traceparent": "t"}),
            )
            await connected.upstream("quick").call("progress", {}, context)
            await until(lambda: said == ["step 1", "step 2"])

    within(work())


@pytest.mark.parametrize("server", [plain("s"), *full_only(quick(name="s"))])
def test_a_server_asks_within_a_call_and_is_answered(server):
    asked = []

    async def answer(config, method, params, context):
        asked.append((config.name, method, params["message"], context.outer_tool_call_id))
        return {"action": "accept", "content": {"x": "this", "which": "this"}}

    async def work(hooks):
        async with connect(of(server), hooks=hooks) as connected:
            context = ToolCallContext(tool_call_id="1", outer_tool_call_id="0")
            return await connected.upstream("s").call("ask", {}, context)

    assert "this" in str(within(work(UpstreamHooks(on_request=answer))))
    assert asked == [("s", "elicitation/create", "Which?", "0")]


def test_time_stands_still_while_a_person_is_asked():
    clocks = []

    async def answer(*_):
        clocks.extend(clock.is_paused for clock in asking.call_timeouts)
        return {"action": "decline"}

    async def work():
        nonlocal asking
        async with connect(of(quick()), hooks=UpstreamHooks(on_request=answer)) as connected:
            upstream = connected.upstream("quick")
            asking = upstream._client_requests
            return await upstream.call("ask", {})

    asking = None
    assert within(work()).structured_content == {"answer": {"action": "decline"}}
    assert clocks == [True]


def descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len([*folder.iterdir()]) if folder.exists() else 0


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return status.parent.parent.exists() is False


@pytest.mark.parametrize("policy", ["declared", "never", "always"])
def test_the_policy_of_a_configuration_holds_without_a_gateway_too(policy):
    async def work():
        async with connect(GatewayConfig((quick(approval=policy),))) as connected:
            tools = await connected.tools()
            return [bool(tools[name].needs_approval) for name in ("quick_echo", "quick_note")]

    reads, says_nothing = {"never": (False, False), "declared": (False, True), "always": (True, True)}[policy]
    assert within(work()) == [reads, says_nothing]


def test_a_server_that_starts_and_ends_again_is_not_looked_for_all_the_time(monkeypatch):
    started: list[str] = []
    start = reconnecting.ReconnectingConnection._try_open_connection

    def counted(one):
        started.append(one.state)
        return start(one)

    monkeypatch.setattr(reconnecting, "_BACKOFF_SECONDS", (0.0, 0.0, 30.0))
    monkeypatch.setattr(reconnecting.ReconnectingConnection, "_try_open_connection", counted)

    async def work():
        async with connect(of(quick("die_of=tools/list"))) as connected:
            upstream = connected.upstream("quick")
            for _ in range(2):  # the first starts it once more, the second not before some time has passed
                with pytest.raises(CodeModeToolError, match="it ended with exit code 3"):
                    await upstream.tools()
            assert upstream._link._failures == 2
            assert upstream.state == "failed"

    within(work())
    assert started == ["stopped"] * 3
