"""The 16 steps of exec and wait on an agent: two real servers of MCP, tools of plugin and client, and denied ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from codemode_pydantic_ai import ExecWait
from model_waits import ModelWaits
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, Tool
from pydantic_ai.capabilities import Hooks, PrepareTools
from pydantic_ai.exceptions import CallDeferred
from pydantic_ai.tools import ToolDefinition
from scripted import Script, execute, wait
from stdio_servers import StdioServers, stdio_servers

from codemode import NamespaceRegistry, ToolSource, namespace_tool
from codemode.types import Namespace

WAIT_SECONDS = 60.0
PATIENT = {"waitTimeoutMs": 20_000}
DENIED = "launch"


def within(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_SECONDS))


class World:
    """The tools of an application: its own, a plugin's, a client's, and one that policy takes out of each step."""

    def __init__(self, servers: StdioServers | None) -> None:
        self.did: list[Any] = []
        self.calls: list[str] = []
        self.servers = servers
        self.namespaces = NamespaceRegistry()
        self.namespaces.register(
            "desk", Namespace("desk", "Desk", ["greet"], lambda _: {"greet": namespace_tool("greet")})
        )

    def read_file(self, path: str) -> str:
        """Read a file of the workspace."""
        self.did.append(("read", path))
        return f"text of {path}"

    def launch(self) -> str:
        """Launch everything."""
        self.did.append("launched")
        return "launched"

    def greet(self, name: str) -> str:
        """Greet somebody at the desk."""
        self.did.append(("greet", name))
        return f"hello {name}"

    def pick(self, question: str) -> str:
        """Let the user of the client pick."""
        raise CallDeferred(metadata={"question": question})

    async def permitted(self, ctx: RunContext[Any], tools: list[ToolDefinition]) -> list[ToolDefinition]:
        return [tool for tool in tools if tool.name != DENIED]

    async def noted(self, ctx: RunContext[Any], *, call: Any, tool_def: Any, args: Any) -> Any:
        self.calls.append(call.tool_name)
        return args

    @property
    def sources(self) -> list[ToolSource]:
        plugin, client = ToolSource([self.greet], "plugin", "desk"), ToolSource([self.pick], "client", "browser")
        return [plugin, client, *([] if self.servers is None else self.servers.sources)]

    def agent(self, script: Script, options: Any = None, **more: Any) -> Agent[Any, Any]:
        pair: ExecWait[Any] = ExecWait(self.sources, options=options, namespaces=self.namespaces, **more)
        return Agent(
            script.model,
            tools=[Tool(self.read_file), Tool(self.launch)],
            output_type=[str, DeferredToolRequests],
            capabilities=[PrepareTools(self.permitted), Hooks(before_tool_execute=self.noted), pair],
        )


@pytest.fixture(scope="module")
def with_servers(warm_gateways: None) -> Iterator[Callable[[Callable[[World], Awaitable[Any]]], Any]]:
    """Do some work with both servers, which are started once for all."""
    with asyncio.Runner() as runner:
        started: asyncio.Future[StdioServers] = runner.get_loop().create_future()
        stop = asyncio.Event()

        async def serve() -> None:
            async with stdio_servers() as servers:
                started.set_result(servers)
                await stop.wait()

        serving = runner.get_loop().create_task(serve())

        async def worked(work: Callable[[World], Awaitable[Any]]) -> Any:
            await asyncio.wait([serving, started], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # servers that did not start say why
            return await asyncio.wait_for(work(World(await started)), WAIT_SECONDS)

        async def ended() -> None:
            stop.set()
            await asyncio.wait_for(serving, WAIT_SECONDS)

        yield lambda work: runner.run(worked(work))
        runner.run(ended())


@pytest.mark.parametrize("options", [False, {"enabled": False}, {"tools": {"codeMode": False}}])
def test_disabled_the_surface_is_unchanged_and_tools_are_called_directly(options: Any) -> None:
    async def main() -> None:
        world = World(None)
        direct = execute("1")[0]
        direct.tool_name, direct.args = "read_file", {"path": "a"}
        script = Script([direct], "done")
        await world.agent(script, options).run("go")
        assert script.tool_names == ["read_file"]
        assert (script.returned(), world.did) == ("text of a", [("read", "a")])

    within(main())


def test_enabled_with_mixed_tools_the_surface_is_exactly_exec_and_wait(with_servers: Any) -> None:
    async def work(world: World) -> None:
        script = Script(execute("return 1"), "done")
        await world.agent(script, {"tools": {"codeMode": {"enabled": True}}}).run("go")
        assert [sorted(tool.name for tool in info.function_tools) for _, info in script.seen] == [["exec", "wait"]] * 2
        kinds = [tool.metadata["toolKind"] for tool in script.seen[0][1].function_tools if tool.metadata]
        assert sorted(kinds) == ["code_mode_exec", "code_mode_wait"]

    with_servers(work)


def test_programs_find_and_call_what_they_may_and_nothing_else(with_servers: Any) -> None:
    async def work(world: World) -> None:
        lists = """return {
            ids: ALL_TOOLS.map((one) => one.id), kinds: [...new Set(ALL_TOOLS.map((one) => one.source))],
            found: (await tools.search("read a file")).map((one) => one.id)[0],
            described: (await tools.describe("host:core:read_file")).parameters.required,
            called: await tools.call("host:core:read_file", { path: "a" }), short: await tools.read_file({ path: "b" }),
            desk: await Desk.greet({ name: "ada" }), hidden: typeof tools.create_issue,
        }"""
        servers = """const files = (await API.list("mcp")).files.map((one) => one.path);
            const declared = (await API.read("mcp/tracker.d.ts")).content.includes("createIssue");
            const made = await MCP.tracker.createIssue({ title: "broken" });
            const noted = await MCP.notes.addNote({ name: "n", text: "t" });
            const api = typeof (await MCP.tracker.$api()).header;
            return { files, declared, made: made.title, noted: noted.name, api }"""
        guess = """const told = [];
            for (const id of ["host:core:launch", "launch", "client:browser:launch", "mcp:tracker:launch"]) {
                try { await tools.call(id, {}); told.push("ran") } catch (error) { told.push(error.name) }
            }
            return [told, typeof tools.launch, (await tools.search("launch everything")).map((one) => one.id)]"""
        script = Script(execute(lists, "lists"), execute(servers, "servers"), execute(guess, "guess"), "done")
        await world.agent(script).run("go")
        told = script.returned("lists")["value"]
        assert told["ids"] == ["client:browser:pick", "host:core:read_file", "plugin:desk:greet"]
        assert (told["found"], told["described"]) == ("host:core:read_file", ["path"])
        assert (told["called"], told["short"], told["desk"]) == ("text of a", "text of b", "hello ada")
        assert (told["kinds"], told["hidden"]) == (["client", "host", "plugin"], "undefined")

        told = script.returned("servers")["value"]
        assert told["files"] == ["mcp/index.d.ts", "mcp/notes.d.ts", "mcp/tracker.d.ts"]
        assert (told["declared"], told["made"], told["noted"], told["api"]) == (True, "broken", "n", "string")

        refused, shown, near = script.returned("guess")["value"]
        assert "ran" not in refused
        assert (shown, [one for one in near if "launch" in one]) == ("undefined", [])
        assert "launched" not in world.did

    with_servers(work)


def test_a_client_s_tool_is_answered_by_the_client(with_servers: Any) -> None:
    async def work(world: World) -> None:
        script = Script(execute("return await tools.pick({ question: 'which?' })"))
        agent = world.agent(script)
        paused = await agent.run("go")
        (call,) = paused.output.calls
        assert (call.tool_name, call.args) == ("client:browser:pick", {"question": "which?"})
        script.steps.append("done")
        answers = DeferredToolResults(calls={call.tool_call_id: "this one"})
        await agent.run(message_history=paused.all_messages(), deferred_tool_results=answers)
        assert script.returned()["value"] == "this one"

    with_servers(work)


def test_a_slow_nested_call_is_left_waiting_and_wait_delivers_it_with_all_output(
    with_servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_waits = ModelWaits(monkeypatch)

    async def work(world: World) -> None:
        assert world.servers is not None
        gate = world.servers.gate
        code = """text("before"); const made = await MCP.tracker.createIssue({ title: "slow" });
            const exported = await MCP.tracker.exportIssues({ format: "csv" });
            json({ made: made.title }); text("after"); return exported"""

        async def lets_go() -> None:
            held = await gate.begun()
            model_waits.end()
            await first.wait()
            await held.finish("all")

        def after_the_first(messages: Any, info: Any) -> Any:
            loop.call_soon_threadsafe(first.set)  # models of functions are called in threads
            return script.waits_to_the_end(messages, info)

        first, loop = asyncio.Event(), asyncio.get_running_loop()
        script = Script(execute(code), after_the_first, "done")
        letting = asyncio.create_task(lets_go())
        result = await world.agent(script, PATIENT).run("go")
        await letting
        told = script.results
        assert [(one["status"], one["reason"]) for one in told[:-1]] == [("waiting", "pending_tools")] * (len(told) - 1)
        assert len(told) > 1
        pending = [call for one in told[:-1] for call in one["pendingToolCalls"]]
        assert ("mcp:tracker:export_issues", "running") in [(call["tool"], call["status"]) for call in pending]
        count = len(await world.servers.issues())
        assert (told[-1]["status"], told[-1]["value"]) == ("completed", f"exported {count}: all")
        text = {"type": "text", "text": "before"}, {"type": "text", "text": "after"}
        made = {"type": "json", "value": {"made": "slow"}}
        assert [item for one in told for item in one.get("output", ())] == [text[0], made, text[1]]
        assert result.usage.tool_calls == len(told) + 2

    with_servers(work)


def test_timeouts_aborts_and_expiry_leave_nothing_and_the_nested_calls_can_be_seen(
    with_servers: Any, passing_time: Any
) -> None:
    async def time_passes() -> None:
        while True:
            passing_time.skip(61)
            await asyncio.sleep(0.01)

    async def work(world: World) -> None:
        assert world.servers is not None
        gate, held = world.servers.gate, []
        code = """await tools.read_file({ path: 'a' });
            const exported = MCP.tracker.exportIssues({ format: 'csv' }); await yield_control(); return exported"""

        async def when_begun(ctx: RunContext[Any], request_context: Any) -> Any:
            if ctx.run_step == 2:
                passing.cancel()
            if ctx.run_step == 4:
                held.append(await gate.begun())
            return request_context

        passing = asyncio.create_task(time_passes())  # until the endless program has ended
        script = Script(
            execute("for (;;) {}", "loops"),
            execute("await tools.read_file({ path: 'b' }); await yield_control()", "yields"),
            execute(code, "slow"),
            "first",
            wait("aborted", run_of="slow"),
            wait("alive", run_of="yields"),
            execute("return 'there is a place'", "place"),
            "second",
        )
        places = {"maxWaitingRuns": 2, "maxWaitingRunsPerConversation": 2}
        agent = world.agent(script, {"timeoutMs": 60_000, "waitTimeoutMs": 60_000, **places})
        first = await agent.run("go", capabilities=[Hooks(before_model_request=when_begun)])
        await held[0].gone()  # the server was told that nobody waits for it any more
        assert (script.returned("loops")["status"], script.returned("loops")["code"]) == ("failed", "timeout")
        second = await agent.run("on", message_history=first.all_messages())
        assert script.returned("aborted")["code"] == "aborted"
        assert script.returned("alive")["status"] == "completed"
        assert script.returned("place")["value"] == "there is a place"

        assert world.calls == [
            "exec",
            "exec",
            "read_file",
            "exec",
            "read_file",
            "mcp:tracker:export_issues",
            "wait",
            "wait",
            "exec",
        ]
        parts = [part for message in second.all_messages() for part in message.parts]
        slow = next(part.content for part in parts if part.part_kind == "tool-return" and part.tool_call_id == "slow")
        assert slow["telemetry"]["calledTools"] == ["host:core:read_file", "mcp:tracker:export_issues"]

    with_servers(work)


def test_an_expired_program_says_so_and_its_place_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "codemode.surfaces.exec_wait.run_registry.monotonic_seconds", float
    )  # what has ended is not forgotten

    async def main() -> None:
        async def sits(ctx: RunContext[Any], request_context: Any) -> Any:
            if ctx.run_step == 2:  # the timer of the program is on this loop too, and comes first
                asyncio.get_running_loop().call_later(1.1, expired.set)
                await expired.wait()
            return request_context

        expired = asyncio.Event()
        script = Script(execute("await yield_control()"), wait(), execute("return 2", "more"), "done")
        world = World(None)
        agent = world.agent(script, {"snapshotTtlSeconds": 1, "maxWaitingRuns": 1})
        await agent.run("go", capabilities=[Hooks(before_model_request=sits)])
        assert (script.returned("waiting")["status"], script.returned("waiting")["code"]) == (
            "failed",
            "snapshot_expired",
        )
        assert script.returned("more")["value"] == 2

    within(main())
