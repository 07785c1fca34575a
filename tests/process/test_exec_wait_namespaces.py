"""Namespaces of plugins in programs of exec: globals whose functions are catalog calls, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pausing import OK, PAUSING, Spy
from suite import each_row

from codemode import CallContext, CodeModeToolError, Interrupt
from codemode.surfaces.exec_wait.exec_wait_tools import create_exec_wait_tools
from codemode.surfaces.exec_wait.namespaces import RESERVED_GLOBALS, Namespace, NamespaceRegistry, namespace_tool
from codemode.surfaces.exec_wait.options import InvalidConfigError
from codemode.surfaces.exec_wait.sources import ToolSource

SHARED = {"time_zone": "UTC"}
MONDAY = {"day": "monday", "name": "swim"}


def added(day: str, name: str) -> dict[str, str]:
    return {"day": day, "name": name}


def scope(context: Any) -> Mapping[str, Any]:
    return {
        "user": context,
        "settings": SHARED,
        "also": [SHARED, None, 1.5],
        "events": {
            "list": namespace_tool("list_events"),
            "add": namespace_tool("add", added),
        },
    }


def calendar(**more: Any) -> Namespace:
    given = {"id": "cal", "global_name": "calendar", "required_tools": ("list_events", "add"), "create_scope": scope}
    return Namespace(**{**given, **more})


def sources(spy: Spy, owner: str = "plug", **settings: Any) -> ToolSource:
    tools = [spy.tool(name, lambda value, _: value, **settings) for name in ("list_events", "add", "other")]
    return ToolSource(tools, source="plugin", owner=owner)


@pytest.fixture
def ran(within, pool):
    def run(code: str, namespace: Namespace | None = None, spy: Spy | None = None, owner: str = "plug") -> Any:
        registry = NamespaceRegistry()
        registry.register("plug", namespace or calendar())
        pair = create_exec_wait_tools(sources(spy or Spy(), owner), namespaces=registry, pool=pool)

        async def main():
            try:
                return await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s", context="ana"))
            finally:
                await pair.aclose()

        return within(main())

    return run


def test_a_scope_is_a_global_and_its_functions_are_calls_of_the_catalog(ran):
    code = """return [calendar === namespaces.calendar, Object.isFrozen(calendar.events), calendar.user,
        calendar.settings, calendar.also, await calendar.events.list(), await calendar.events.list({day: 1}, 2),
        await calendar.events.add("monday", "swim")]"""
    spy = Spy()
    result = ran(code, spy=spy)
    assert result["value"] == [
        True, True, "ana", {"time_zone": "UTC"}, [{"time_zone": "UTC"}, None, 1.5], {}, {"day": 1}, MONDAY
    ]  # fmt: skip
    assert result["telemetry"]["calledTools"] == ["plugin:plug:list_events", "plugin:plug:add"]
    assert len(spy.ran) == 3


def test_a_pipeline_is_told_the_id_of_the_tool_behind_a_path(within, pool):
    told: list[Any] = []
    registry = NamespaceRegistry()
    registry.register("plug", calendar())
    settings = {"pipeline": {"before": lambda call: told.append((call.tool_id, call.input))}}
    pair = create_exec_wait_tools(sources(Spy()), settings=settings, namespaces=registry, pool=pool)

    async def main():
        await pair.exec.execute(
            {"code": "await calendar.events.add('monday', 'swim')"}, call=CallContext(conversation_id="s")
        )
        await pair.aclose()

    within(main())
    assert told == [("plugin:plug:add", MONDAY)]


def test_it_is_there_only_where_all_its_tools_are_and_its_plugins_own(ran):
    code = "return [typeof calendar, Object.keys(namespaces)]"
    assert ran(code, owner="another")["value"] == ["undefined", []]
    missing = calendar(required_tools=("list_events", "add", "missing"))
    assert ran(code, missing)["value"] == ["undefined", []]


@pytest.mark.parametrize("path", ["namespace:cal:events.list", "namespace:cal:events.other", "namespace:cal:user"])
def test_a_forged_path_is_an_unknown_tool(ran, path):
    spy = Spy()
    result = ran(f"return await tools.call('{path}', []).catch((error) => error.message)", spy=spy)
    assert "no tool with the id" in result["value"]
    assert spy.ran == []


def test_a_failure_of_a_call_or_of_its_mapper_can_be_caught(ran):
    code = "return await calendar.events.add('too few').catch((error) => error.message)"
    assert isinstance(ran(code)["value"], str)
    assert ran("await calendar.events.add('too few')")["code"] == "nested_tool_failed"


@pytest.mark.parametrize(("raised", "told"), [(CodeModeToolError("say a day"), True), (ValueError("say a day"), False)])
def test_a_mapper_tells_the_program_why_as_a_tool_does(ran, raised, told):
    def refuse(*_: Any) -> Any:
        raise raised

    namespace = calendar(create_scope=lambda _: {"add": namespace_tool("add", refuse)})
    spy = Spy()
    result = ran("return await calendar.add().catch((error) => error.message)", namespace, spy)
    assert ("say a day" in result["value"]) is told
    assert spy.ran == []


def cyclic(_context: Any) -> Any:
    made: dict[str, Any] = {}
    made["self"] = made
    return made


@each_row(
    "made, said",
    [
        (lambda _: {"f": print}, "function"),
        (cyclic, "cycle"),
        (lambda _: {"__proto__": 1}, "__proto__"),
        (lambda _: {"constructor": 1}, "constructor"),
        (lambda _: {"a": {"prototype": 1}}, "prototype"),
        (lambda _: {"": 1}, "''"),
        (lambda _: {"a.b": 1}, "a.b"),
        (lambda _: {"f": namespace_tool("other")}, "required_tools"),
        (lambda _: {"f": object()}, "object"),
        (lambda _: 5, "mapping"),
    ],
)
def test_a_scope_that_is_none_is_refused_before_any_of_the_program_runs(ran, made, said):
    spy = Spy()
    result = ran("await tools.call('plugin:plug:other', 1)", calendar(create_scope=made), spy)
    assert (result["code"], said in result["error"]) == ("invalid_config", True), result
    assert spy.ran == []


@each_row(
    "name",
    ["", "a-b", "1a", "class", "tools", "MCP", "namespaces", "Object", "undefined", "__openclaw_x", "__codemode", None],
)
def test_a_global_name_that_means_something_is_refused(name):
    with pytest.raises(InvalidConfigError, match="global_name"):
        calendar(global_name=name)


def test_no_name_of_the_engines_own_is_free(ran):
    names = ran("return Object.getOwnPropertyNames(globalThis)")["value"]
    assert set(names) - {"calendar"} <= RESERVED_GLOBALS


def test_ids_and_global_names_are_there_once_and_go_with_their_plugin():
    registry = NamespaceRegistry()
    registry.register("plug", calendar())
    for again in (calendar(global_name="other"), calendar(id="other")):
        with pytest.raises(InvalidConfigError, match="taken"):
            registry.register("another", again)
    with pytest.raises(InvalidConfigError, match="required_tools"):
        calendar(required_tools=())
    registry.clear("another")
    pair = create_exec_wait_tools(sources(Spy()), namespaces=registry)
    assert "calendar" in pair.exec.description
    registry.clear("plug")
    assert "calendar" not in pair.exec.description
    registry.register("another", calendar(prompt=lambda _: "Ask for a day first.", description="The calendar."))
    assert "Ask for a day first." not in pair.exec.description  # its tools are another plugin's
    registry.clear_all()
    registry.register("plug", calendar(prompt=lambda _: "Ask for a day first.", description="The calendar."))
    assert "- `calendar`: The calendar.\nAsk for a day first." in pair.exec.description


@pytest.mark.parametrize("max_warm_runs", [4, 0])
def test_a_call_of_a_namespace_waits_for_a_person_and_survives_rests(within, pool, max_warm_runs):
    spy, registry = Spy(), NamespaceRegistry()
    registry.register("plug", calendar())
    tools = sources(spy, needs_approval=True)
    options = {"maxWarmRuns": max_warm_runs}
    pair = create_exec_wait_tools(tools, options, settings=PAUSING, namespaces=registry, pool=pool)

    async def main():
        code = "await yield_control(); return await calendar.events.add('monday', calendar.user)"
        rest = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s", context="ana"))
        interrupt = await pair.wait.execute({"runId": rest["runId"]}, call=CallContext(conversation_id="s"))
        assert isinstance(interrupt, Interrupt)
        assert (interrupt.input, spy.ran) == ({"day": "monday", "name": "ana"}, [])
        last = await pair.resume(interrupt, OK, call=CallContext(conversation_id="s", context="ana"))
        await pair.aclose()
        return last

    assert within(main())["value"] == {"day": "monday", "name": "ana"}
    assert len(spy.ran) == 1
