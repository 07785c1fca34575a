"""The checklist of namespaces in exec and wait, a test for each line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pausing import Spy

from codemode import CallContext, NamespaceRegistry, ToolSource, create_exec_wait_tools, namespace_tool
from codemode.types import InvalidConfigError, Namespace

EVENT = {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}
ZONE = {"zone": "UTC"}


def scope(_context: Any) -> Mapping[str, Any]:
    return {
        "events": {"add": namespace_tool("add_event"), "list": namespace_tool("list_events")},
        "a": ZONE,
        "b": [ZONE],
    }


class Calendar:
    """A plugin with a namespace, in a catalog that has a tool of another plugin too."""

    def __init__(self, create_scope: Any = scope, owner: str = "calendar") -> None:
        self.spy = Spy()
        own = [
            self.spy.tool("add_event", lambda value, _: value, input_schema=EVENT),
            self.spy.tool("list_events", lambda value, _: []),
            self.spy.tool("wipe", lambda value, _: None),
        ]
        self.sources = [ToolSource(own, source="plugin", owner=owner)]
        self.registry = NamespaceRegistry()
        self.registry.register("calendar", self.namespace(create_scope))

    def namespace(self, create_scope: Any = scope, **more: Any) -> Namespace:
        given = {"id": "cal", "global_name": "calendar", "required_tools": ("add_event", "list_events")}
        return Namespace(**{**given, "create_scope": create_scope, "prompt": "Add events by day.", **more})

    def pair(self, **more: Any) -> Any:
        return create_exec_wait_tools(self.sources, namespaces=self.registry, **more)


@pytest.fixture
def ran(within, pool):
    def run(plugin: Calendar, code: str) -> Any:
        pair = plugin.pair(pool=pool)

        async def main():
            try:
                return await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
            finally:
                await pair.aclose()

        return within(main())

    return run


def test_the_prompt_is_read_only_where_the_namespace_is_visible():
    assert "Add events by day." in Calendar().pair().exec.description
    assert "Add events by day." not in Calendar(owner="another").pair().exec.description
    assert "Add events by day." not in Calendar().pair().wait.description


@pytest.mark.parametrize("owner", ["another", "calendar2", "Calendar"])
def test_it_is_visible_only_over_the_plugins_own_tools(ran, owner):
    code = "return [typeof calendar, Object.keys(namespaces)]"
    assert ran(Calendar(owner=owner), code)["value"] == ["undefined", []]
    assert ran(Calendar(), code)["value"] == ["object", ["calendar"]]


def test_raw_functions_are_refused(ran):
    plugin = Calendar(lambda _: {"add": lambda value: value})
    result = ran(plugin, "return 1")
    assert (result["code"], "function" in result["error"]) == ("invalid_config", True)


def test_forged_ids_and_paths_are_unknown_tools(ran):
    plugin = Calendar()
    forged = ["namespace:cal:events.add", "namespace:cal:events.wipe", "namespace:cal:wipe", "plugin:other:wipe"]
    code = (
        f"const said = []; for (const id of {forged})"
        """
            await tools.call(id, {day: "monday"}).catch(({message}) => said.push(message.includes("no tool with the")));
        return [said, typeof calendar.events.wipe, typeof calendar.constructor.events]"""
    )
    assert ran(plugin, code)["value"] == [[True] * 4, "undefined", "undefined"]
    assert plugin.spy.ran == []


def test_tools_that_are_not_required_are_none_of_a_scope(ran):
    result = ran(Calendar(lambda _: {"wipe": namespace_tool("wipe")}), "return 1")
    assert (result["code"], "required_tools" in result["error"]) == ("invalid_config", True)


def test_scopes_are_nested_and_share_values(ran):
    code = (
        "return [calendar.a, calendar.b[0], await calendar.events.add({day: 'monday'}), await calendar.events.list()]"
    )
    assert ran(Calendar(), code)["value"] == [ZONE, ZONE, {"day": "monday"}, []]


def test_details_of_failures_are_json(ran):
    code = """return await calendar.events.add({day: 5}).catch((error) => {
        const own = {}; for (const name of Object.getOwnPropertyNames(error)) own[name] = error[name];
        return [error.name, JSON.stringify(own)]; })"""
    name, told = ran(Calendar(), code)["value"]
    assert name == "CodeModeToolError"
    assert "day" in told
    assert isinstance(json.loads(told), dict)


def test_failures_can_be_caught_and_uncaught_end_the_program(ran):
    caught = ran(Calendar(), "try { await calendar.events.add() } catch (error) { return error instanceof Error }")
    assert caught["value"] is True
    assert ran(Calendar(), "await calendar.events.add()")["code"] == "nested_tool_failed"


@pytest.mark.parametrize("max_warm_runs", [4, 0])
def test_a_program_with_a_namespace_rests_and_goes_on(within, pool, max_warm_runs):
    plugin = Calendar()
    pair = plugin.pair(options={"maxWarmRuns": max_warm_runs}, pool=pool)

    async def main():
        code = """const {events} = calendar, first = await events.add({day: "monday"});
            await yield_control();
            return [first, await events.add({day: "friday"}), calendar.a === namespaces.calendar.a]"""
        rest = await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s"))
        last = await pair.wait.execute({"runId": rest["runId"]}, call=CallContext(conversation_id="s"))
        await pair.aclose()
        return rest["reason"], last["value"], last["telemetry"]["calledTools"]

    called = ["plugin:calendar:add_event"]
    assert within(main()) == ("yield", [{"day": "monday"}, {"day": "friday"}, True], called)
    assert len(plugin.spy.ran) == 2


def test_what_a_plugin_registered_is_rolled_back_with_it(ran):
    plugin = Calendar()
    with pytest.raises(InvalidConfigError, match="taken"):
        plugin.registry.register("calendar", plugin.namespace(id="second"))
    plugin.registry.clear("calendar")
    assert ran(plugin, "return typeof calendar")["value"] == "undefined"
    assert "calendar" not in plugin.pair().exec.description.replace("plugin:calendar:", "")
    plugin.registry.register("calendar", plugin.namespace())
    assert ran(plugin, "return typeof calendar")["value"] == "object"
    plugin.registry.clear_all()
    assert ran(plugin, "return typeof calendar")["value"] == "undefined"
