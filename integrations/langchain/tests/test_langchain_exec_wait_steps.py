"""The 16 steps on a LangChain agent: two real MCP servers on stdio, plugin, client and denied tools."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from codemode_langchain import ExecWaitMiddleware
from exec_wait_agent import DirectedModel, Step, answers, directed, runs, waits
from langchain.agents.middleware import AgentMiddleware
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import StructuredTool, tool
from model_waits import ModelWaits
from required import missing
from scripted_agent import agent, asks
from waiting import until

from codemode import NamespaceRegistry, Tool, ToolSource, namespace_tool
from codemode.types import Namespace

try:
    from stdio_servers import HeldCall, RunningServers, StdioServers
except ImportError:  # the SDK of MCP is not installed
    missing("mcp", "the servers need the SDK of MCP")
    raise

SECONDS = 60.0
EVENT = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}


@tool
def read_file(path: str) -> str:
    """Read a file of the project."""
    return f"text of {path}"


@tool("exec")
def shell(command: str) -> str:
    """Run a command in a shell."""
    return f"$ {command}"


@tool
def delete_everything() -> str:
    """Delete everything."""
    raise AssertionError("it was denied")


@tool
def tool_search(query: str) -> str:
    """Search for tools."""
    raise AssertionError(query)


class Denied(AgentMiddleware[Any, Any, Any]):
    """The policy of the application: one tool is not for this agent."""

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        allowed = [one for one in request.tools if one.name != delete_everything.name]
        return await handler(request.override(tools=allowed))


class Calendar:
    """A plugin with a tool and a namespace over it."""

    def __init__(self) -> None:
        self.events: list[Any] = []

        def add_event(title: str) -> dict[str, Any]:
            """Add an event to the calendar."""
            self.events.append(title)
            return {"id": len(self.events), "title": title}

        self.tool = StructuredTool.from_function(add_event)
        self.registry = NamespaceRegistry()
        scope = {"zone": "UTC", "events": {"add": namespace_tool("add_event", lambda title: {"title": title})}}
        namespace = Namespace("cal", "calendar", ("add_event",), lambda _: scope, "The calendar.", "Dates are in UTC.")
        self.registry.register("calendar", namespace)


@dataclass
class World:
    """What one test has: servers, the plugin's calendar, what a client was shown, and what hooks and traces saw."""

    servers: StdioServers
    calendar: Calendar = field(default_factory=Calendar)
    shown: list[Any] = field(default_factory=list[Any])
    hooked: list[str] = field(default_factory=list[str])
    traced: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    own: ExecWaitMiddleware | None = None
    threads: int = 0

    @property
    def sources(self) -> list[ToolSource]:
        """Tools of the plugin, of the client, and of both servers."""
        client = Tool("show", execute=lambda value, _: self.shown.append(value), description="Shows something.")
        return [
            ToolSource([self.calendar.tool], "plugin", "calendar"),
            ToolSource([client], "client", "browser"),
            *self.servers.sources,
        ]

    def waiting(self, thread: str) -> list[str]:
        """The programs of a thread that wait."""
        assert self.own is not None
        pairs = self.own._list_exec_wait_tools()
        return [one.run_id for pair in pairs for one in pair.runs(thread) if one.state == "waiting"]

    async def run(self, *steps: Step, thread: str | None = None, **settings: Any) -> tuple[DirectedModel, list[Any]]:
        """The model and the answers to its calls, of one run of the agent."""
        model = settings.pop("model", None) or directed(*steps)
        if self.own is None or settings:
            named = {"sources": self.sources, "namespaces": self.calendar.registry, **settings}
            self.own = ExecWaitMiddleware(**named)
        tools = [read_file, shell, delete_everything, tool_search]
        graph = agent((), tools, Denied(), self.own, _Hooks(self.hooked), model=model)
        self.threads += 1
        config = {"configurable": {"thread_id": thread or str(self.threads)}, "callbacks": [_Traces(self.traced)]}
        output = await asyncio.wait_for(graph.ainvoke({"messages": [HumanMessage("go")]}, config), SECONDS)
        return model, answers(output)


class _Hooks(AgentMiddleware[Any, Any, Any]):
    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        self.seen.append(request.tool_call["name"])
        return await handler(request)


class _Traces(AsyncCallbackHandler):
    """Notes which call of a tool began inside which, and what its metadata says of it."""

    def __init__(self, seen: list[tuple[str, Any]]) -> None:
        self.seen = seen
        self.names: dict[Any, str] = {}

    async def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: Any, parent_run_id: Any = None, **_: Any
    ) -> None:
        self.names[run_id] = self.names.get(parent_run_id, "")

    async def on_tool_start(self, serialized: Mapping[str, Any], input_str: str, *, run_id: Any, **more: Any) -> None:
        kind = (more.get("metadata") or {}).get("toolKind")
        self.seen.append((serialized["name"], kind or self.names.get(more.get("parent_run_id"), "")))
        self.names[run_id] = serialized["name"]


Steps = Callable[[Callable[[World], Any]], None]


@pytest.fixture(scope="module")
def running(warm_gateways: None) -> Iterator[RunningServers]:
    """Both servers, which are started once for all."""
    servers = RunningServers()
    yield servers
    servers.close()


@pytest.fixture
def steps(running: RunningServers) -> Steps:
    """Do something in a world of its own, with no issues on the tracker."""

    async def in_a_world(servers: StdioServers, work: Callable[[World], Any]) -> None:
        world = World(servers)
        try:
            await work(world)
        finally:
            if world.own is not None:
                await world.own.aclose()

    return lambda work: running.run(lambda servers: in_a_world(servers, work))


def value(answer: Any) -> Any:
    assert answer["status"] == "completed", answer
    return answer["value"]


# --- steps 1 to 3: switched off ---


def test_switched_off_the_agents_own_tools_are_shown_and_called(steps: Steps):
    async def work(world: World) -> None:
        for options in (False, {"enabled": False}, {"tools": {"codeMode": False}}):
            model, found = await world.run(asks(("read_file", {"path": "a"})), options=options)
            assert [one.name for one in model.shown[0]] == ["read_file", "exec", "tool_search"]
            assert found == ["text of a"]
            _, (said,) = await world.run(asks(("exec", {"command": "ls"})), options=options)
            assert said == "$ ls"
        assert world.hooked == ["read_file", "exec"] * 3

    steps(work)


# --- steps 4 to 6: switched on ---


def test_switched_on_exactly_the_pair_is_shown(steps: Steps):
    async def work(world: World) -> None:
        model, _ = await world.run(runs("return 1"))
        assert [[one.name for one in shown] for shown in model.shown] == [["exec", "wait"]] * 2
        described = model.shown[0][0].description
        assert "host:core:read_file" in described
        assert "plugin:calendar:add_event" in described
        assert "MCP.tracker" in described
        assert "Dates are in UTC." in described
        assert "delete_everything" not in described
        model, _ = await world.run(runs("return 1"), direct=["read_file"])
        assert [one.name for one in model.shown[0]] == ["read_file", "exec", "wait"]

    steps(work)


# --- steps 7 to 11: what programs see ---


def test_the_catalog_has_what_is_allowed_and_nothing_else(steps: Steps):
    async def work(world: World) -> None:
        code = """const ids = ALL_TOOLS.map((one) => one.id), found = await tools.search("read a file", {limit: 2});
            const {parameters} = await tools.describe(found[0].id);
            return [ids, found[0].id, parameters.required, await tools.call(found[0].id, {path: "a"}),
                await tools.read_file({path: "b"}), await tools.call("host:core:exec", {command: "ls"}),
                typeof tools.exec]"""
        _, (answer,) = await world.run(runs(code))
        ids, found, required, *called, kind = value(answer)
        assert ids == ["client:browser:show", "host:core:exec", "host:core:read_file", "plugin:calendar:add_event"]
        assert (found, required) == ("host:core:read_file", ["path"])
        assert (called, kind) == (["text of a", "text of b", "$ ls"], "function")

    steps(work)


def test_servers_are_files_and_calls_of_one_object(steps: Steps):
    async def work(world: World) -> None:
        code = """const {files} = await API.list("mcp"), {content} = await API.read("mcp/tracker.d.ts");
            const made = await MCP.tracker.createIssue({title: "it is broken"});
            const {header} = await MCP.tracker.$api("createIssue");
            return [files.map((one) => one.path), content.includes("createIssue"), made.number, header.length > 0,
                Object.keys(MCP), ALL_TOOLS.some((one) => one.source === "mcp"), typeof tools.create_issue]"""
        _, (answer,) = await world.run(runs(code))
        files, *others = value(answer)
        assert sorted(files) == ["mcp/index.d.ts", "mcp/notes.d.ts", "mcp/tracker.d.ts"]
        assert others[:3] == [True, 1, True]
        assert sorted(others[3]) == ["notes", "tracker"]
        assert others[4:] == [False, "undefined"]
        assert [one["title"] for one in await world.servers.issues()] == ["it is broken"]
        assert world.hooked == ["exec", "mcp:tracker:create_issue"]

    steps(work)


def test_namespaces_and_clients_are_called_through_the_agents_hooks(steps: Steps):
    async def work(world: World) -> None:
        code = """const made = await calendar.events.add("tea"); await tools.show({made});
            return [made, calendar.zone, namespaces.calendar === calendar]"""
        _, (answer,) = await world.run(runs(code))
        assert value(answer) == [{"id": 1, "title": "tea"}, "UTC", True]
        assert (world.calendar.events, world.shown) == (["tea"], [{"made": {"id": 1, "title": "tea"}}])
        assert world.hooked == ["exec", "add_event", "show"]
        assert answer["telemetry"]["calledTools"] == ["plugin:calendar:add_event", "client:browser:show"]

    steps(work)


def test_a_denied_tool_is_not_reached_by_any_id(steps: Steps):
    async def work(world: World) -> None:
        code = """const said = [];
            for (const id of ["host:core:delete_everything", "delete_everything", "plugin:calendar:delete_everything",
                "host:core:tool_search", "host:core:wait", "mcp:tracker:create_issue", "namespace:cal:events.clear"])
                said.push(await tools.call(id, {title: "x", query: "x"}).then(() => id, (error) => error.name));
            return [said, typeof tools.delete_everything, await tools.search("delete everything")]"""
        _, (answer, refused) = await world.run(runs(code), asks(("delete_everything", {})))
        said, kind, found = value(answer)
        assert said == ["CodeModeToolError"] * 7
        assert kind == "undefined"
        assert "delete_everything" not in [one["name"] for one in found]
        assert refused.startswith("there is no tool 'delete_everything' to call directly")
        assert await world.servers.issues() == []

    steps(work)


# --- steps 12 to 14: waiting ---


async def left_alone(world: World, model_waits: ModelWaits) -> HeldCall:
    """The slow call that begins next, of a program that is left waiting then."""
    held = await world.servers.gate.begun()
    model_waits.end()
    return held


@pytest.mark.parametrize("warm", [4, 0])
def test_a_slow_call_is_waited_for(steps: Steps, warm: int, monkeypatch: pytest.MonkeyPatch):
    model_waits = ModelWaits(monkeypatch)

    async def work(world: World) -> None:
        async def finish(answer: Any) -> AIMessage:
            await (await leaving).finish("all")
            return waits(answer)

        code = """text("before"); await MCP.tracker.createIssue({title: "a"});
            const got = await MCP.tracker.exportIssues({format: "csv"}); text("after"); json({got}); return got"""
        options = {"waitTimeoutMs": 20_000, "maxWarmRuns": warm}
        leaving = asyncio.create_task(left_alone(world, model_waits))
        _, (first, last) = await world.run(runs(code), finish, options=options)
        assert (first["status"], first["reason"]) == ("waiting", "pending_tools")
        assert [one["tool"] for one in first["pendingToolCalls"]] == ["mcp:tracker:export_issues"]
        assert first["output"] == [{"type": "text", "text": "before"}]
        got = value(last)
        assert last["output"] == [{"type": "text", "text": "after"}, {"type": "json", "value": {"got": got}}]
        assert "exported 1: all" in str(got)
        assert world.hooked == ["exec", "mcp:tracker:create_issue", "mcp:tracker:export_issues", "wait"]

    steps(work)


# --- steps 15 and 16: clean endings, and what is told of them ---


def test_time_abort_and_expiry_leave_nothing(steps: Steps, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "codemode.surfaces.exec_wait.run_registry.monotonic_seconds", float
    )  # what has ended is not forgotten
    model_waits = ModelWaits(monkeypatch)

    async def work(world: World) -> None:
        _, (endless,) = await world.run(runs("for (;;);"), options={"timeoutMs": 300, "waitTimeoutMs": 20_000})
        assert (endless["status"], endless["code"]) == ("failed", "timeout")

        leaving = asyncio.create_task(left_alone(world, model_waits))
        code = "await MCP.tracker.exportIssues({format: 'csv'})"
        _, (left,) = await world.run(runs(code), thread="t", options={"waitTimeoutMs": 20_000})
        await (await leaving).gone()  # the run of the agent has ended, and the call with it
        _, (told,) = await world.run(waits(left), thread="t")
        assert told["code"] == "aborted"
        assert not world.waiting("t")

        options = {"waitTimeoutMs": 20_000, "snapshotTtlSeconds": 1}  # for this one alone: the others take their time
        _, (idle,) = await world.run(runs("await yield_control()"), thread="u", options=options)
        assert idle["reason"] == "yield"
        await until(lambda: not world.waiting("u"), seconds=SECONDS)
        _, (expired,) = await world.run(waits(idle), thread="u")
        assert expired["code"] == "snapshot_expired"

    steps(work)


def test_what_is_exported_shows_inner_calls_under_theirs(steps: Steps):
    async def work(world: World) -> None:
        code = """const got = [await tools.read_file({path: "a"}), await calendar.events.add("tea")];
            await MCP.tracker.createIssue({title: "a"}); return got.length"""
        _, (answer,) = await world.run(runs(code))
        assert value(answer) == 2
        assert world.traced == [
            ("exec", "code_mode_exec"),
            ("read_file", "exec"),
            ("add_event", "exec"),
            ("mcp:tracker:create_issue", "exec"),
        ]
        told = answer["telemetry"]
        assert told["calledTools"] == ["host:core:read_file", "plugin:calendar:add_event", "mcp:tracker:create_issue"]
        assert told["visibleTools"] == ["exec", "wait"]
        assert told["catalog"]["bySource"]["plugin"] == 1
        assert "tea" not in str(told)

    steps(work)
