"""What plugins may do with namespaces and what they may not; what programs may not do with them."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from pausing import NO, OK, PAUSING, Spy, through_json
from suite import each_row

from codemode import (
    CallContext,
    CodeModeToolError,
    NamespaceRegistry,
    Tool,
    ToolSource,
    create_exec_wait_tools,
    namespace_tool,
)
from codemode.stores import MemoryInterruptStore
from codemode.types import InvalidConfigError, Namespace

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


class Plugin:
    """A plugin with two tools, whose scope a test decides."""

    def __init__(self, create_scope: Callable[[Any], Any], **more: Any) -> None:
        self.spy = Spy()
        tools = [self.spy.tool(name, lambda value, _: value, **more) for name in ("first", "second")]
        strict = self.spy.tool("strict", lambda value, _: value, input_schema=OBJECT, **more)
        self.source = ToolSource([*tools, strict], source="plugin", owner="plug")
        self.registry = NamespaceRegistry()
        self.registry.register("plug", Namespace("ns", "ns", ("first", "strict"), create_scope))


@pytest.fixture
def ran(within, pool):
    def run(plugin: Plugin, code: str, *, context: Any = None, settings: Any = None) -> Any:
        pair = create_exec_wait_tools(plugin.source, namespaces=plugin.registry, settings=settings, pool=pool)

        async def main():
            try:
                return await pair.exec.execute({"code": code}, call=CallContext(conversation_id="s", context=context))
            finally:
                await pair.aclose()

        return within(main())

    return run


def scoped(value: Any) -> Callable[[Any], Any]:
    return lambda _context: {"value": value}


# -- what a scope may hold


SHARED = {"x": [1]}
VALUES = [
    (None, None),
    (True, True),
    (1.5, 1.5),
    ("text \u2028 \U0001f600", "text \u2028 \U0001f600"),
    ((1, 2), [1, 2]),
    ([[], {}, [None]], [[], {}, [None]]),
    ({"a": SHARED, "b": [SHARED, SHARED]}, {"a": {"x": [1]}, "b": [{"x": [1]}, {"x": [1]}]}),
    ({"toString": 1, "hasOwnProperty": 2, "0": 3, "a b": 4}, {"0": 3, "toString": 1, "hasOwnProperty": 2, "a b": 4}),
    (2**53 - 1, 2**53 - 1),
    ("\ud800", "\ufffd"),
]


@each_row("value, seen", VALUES, ids=range(len(VALUES)))
def test_values_of_a_scope_are_data_that_nobody_changes(ran, value, seen):
    code = """const before = JSON.stringify(ns.value);
        try { "use strict"; ns.value = 5; } catch {}
        try { ns.value.x = 5; } catch {}
        try { ns.value[0] = 5; } catch {}
        try { delete ns.value; } catch {}
        return [ns.value, JSON.stringify(ns.value) === before, Object.isFrozen(ns)]"""
    assert ran(Plugin(scoped(value)), code)["value"] == [seen, True, True]


WRONG = [
    math.nan,
    math.inf,
    {1, 2},
    b"bytes",
    object(),
    print,
    lambda: 1,
    {1: "a"},
    {None: 1},
    {"a": {"constructor": 1}},
    [{"a.b": 1}],
    {"": 1},
    [[[print]]],
    Tool("first", execute=print),
    namespace_tool("second"),
    namespace_tool("third"),
    *({name: namespace_tool("first")} for name in ("then", "toJSON", "toLocaleString", "toString", "valueOf")),
]


@each_row("value", WRONG, ids=range(len(WRONG)))
def test_what_is_no_json_or_no_mark_is_refused_before_guest_code(ran, value):
    plugin = Plugin(scoped(value))
    result = ran(plugin, "await tools.first(1)")
    assert result["status"] == "failed", result
    assert (result["code"], "namespaces" in result["error"]) == ("invalid_config", True)
    assert plugin.spy.ran == []


def test_integers_of_a_scope_are_exact(ran):
    code = "return [typeof ns.value[0], String(ns.value[0]), await ns.call(ns.value[0])]"
    plugin = Plugin(lambda _: {"value": [2**70 + 1], "call": namespace_tool("first")})
    assert ran(plugin, code)["value"] == ["bigint", str(2**70 + 1), 2**70 + 1]


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def blown_up() -> Any:
    value: Any = [1]
    for _ in range(24):
        value = [value, value]
    return value


def circle_through_a_list() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


@pytest.mark.parametrize("value", [deep(100), deep(5_000), blown_up(), circle_through_a_list(), [0] * 20_000])
def test_a_scope_is_small_and_has_no_cycle(ran, value):
    assert ran(Plugin(scoped(value)), "return 1")["code"] == "invalid_config"


# -- create_scope


def raises(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("error", [RuntimeError("hunter2"), SystemExit("hunter2"), InvalidConfigError("own words")])
def test_a_scope_that_cannot_be_made_is_refused_without_the_plugins_words(ran, error):
    result = ran(Plugin(raises(error)), "return 1")
    assert result["code"] == "invalid_config"
    assert "hunter2" not in json.dumps(result)
    assert "namespaces.ns" in result["error"]


def test_a_scope_may_be_made_async_and_of_the_context(ran):
    async def create(context: Any) -> Any:
        await asyncio.sleep(0)
        return {"user": context["user"], "call": namespace_tool("first", lambda given: [context["user"], given])}

    result = ran(Plugin(create), "return [ns.user, await ns.call(7)]", context={"user": "ana"})
    assert result["value"] == ["ana", ["ana", 7]]


@pytest.mark.parametrize("made", [None, 5, "scope", [namespace_tool("first")], namespace_tool("first")])
def test_a_scope_is_a_mapping(ran, made):
    assert ran(Plugin(lambda _: made), "return 1")["code"] == "invalid_config"


# -- calls


def test_marks_stand_in_arrays_and_deep_within(ran):
    scope = {"list": [namespace_tool("first"), {"deep": [namespace_tool("strict")]}], "first": namespace_tool("first")}
    plugin = Plugin(lambda _: scope)
    code = "return [await ns.list[0](1), await ns.list[1].deep[0]({n: 2}), await ns.first(), await ns.first(null)]"
    result = ran(plugin, code)
    assert result["value"] == [1, {"n": 2}, {}, None]
    assert result["telemetry"]["calledTools"] == ["plugin:plug:first", "plugin:plug:strict"]


CALLS = [
    (lambda *given: [*given], "1, 'b', {c: 3}", [1, "b", {"c": 3}]),
    (lambda *given: len(given), "", 0),
    (lambda *given: None, "1", {}),
    (lambda value: (value, {"t": ()}), "1", [1, {"t": []}]),
    (lambda: ({1}, math.nan, "\ud800"), "", [[1], None, "\ufffd"]),
]


@pytest.mark.parametrize(("mapper", "given", "seen"), CALLS, ids=range(len(CALLS)))
def test_a_mapper_gets_the_arguments_spread_and_gives_the_input(ran, mapper, given, seen):
    plugin = Plugin(lambda _: {"call": namespace_tool("first", mapper)})
    assert ran(plugin, f"return await ns.call({given})")["value"] == seen


async def asynchronous(_value: Any) -> Any:
    return {"n": 1}


MAPPERS = [
    raises(RuntimeError("hunter2")),
    raises(SystemExit("hunter2")),
    raises(asyncio.CancelledError("hunter2")),
    raises(RecursionError()),
    lambda: {"n": 1},
    lambda _: object(),
    lambda _: print,
    lambda _: [circle_through_a_list()],
    asynchronous,
]


@each_row("mapper", MAPPERS, ids=range(len(MAPPERS)))
@each_row("name", ["first", "strict"])
def test_what_a_mapper_does_wrong_is_a_failure_of_the_call_alone(ran, mapper, name):
    plugin = Plugin(lambda _: {"call": namespace_tool(name, mapper), "fine": namespace_tool(name, lambda _: {"n": 2})})
    code = """const said = await ns.call({n: 1}).catch((error) => [error instanceof Error, typeof error.message,
            error.message, typeof JSON.stringify(error), error.stack === undefined || typeof error.stack]);
        return [said, await ns.fine(1)]"""
    result = ran(plugin, code)
    assert result["status"] == "completed", result
    assert result["value"][0][:2] == [True, "string"]
    assert result["value"][1] == {"n": 2}
    assert "hunter2" not in json.dumps(result)
    assert len(plugin.spy.ran) == 1
    assert ran(plugin, "await ns.call({n: 1})")["code"] == "nested_tool_failed"


def test_what_a_mapper_refuses_in_its_own_words_is_told(ran):
    plugin = Plugin(lambda _: {"call": namespace_tool("first", raises(CodeModeToolError("no such day")))})
    assert "no such day" in ran(plugin, "return await ns.call(1).catch(({message}) => message)")["value"]


def test_an_input_that_does_not_fit_has_details_that_are_json(ran):
    plugin = Plugin(lambda _: {"call": namespace_tool("strict", lambda given: given)})
    code = "return await ns.call({n: 'x', m: 1}).catch((error) => [error.name, JSON.parse(JSON.stringify({...error}))])"
    name, details = ran(plugin, code)["value"]
    assert name == "CodeModeToolError"
    assert isinstance(details, dict)
    assert plugin.spy.ran == []


def test_what_a_mapper_changes_is_its_own(ran):
    kept: list[Any] = []

    def mapper(given: Any) -> Any:
        given["n"] += 1
        kept.append(given)
        return given

    plugin = Plugin(lambda _: {"call": namespace_tool("first", mapper)})
    code = "const mine = {n: 1}; return [await ns.call(mine), await ns.call(mine), mine]"
    assert ran(plugin, code)["value"] == [{"n": 2}, {"n": 2}, {"n": 1}]
    kept[0]["n"] = 50


FORGED = [
    "namespace:ns:call",
    "namespace:ns:hidden",
    "namespace:other:call",
    "namespace:ns:",
    "namespace:",
    "namespace:ns:value.x",
    "plugin:plug:third",
    "unknown namespace:ns:call",
    "namespace:ns:call\\u0000",
    "ns.call",
    " namespace:ns:call",
    "NAMESPACE:ns:call",
]


@pytest.mark.parametrize("way", ["call", "describe"])
def test_no_forged_id_or_path_leads_anywhere(ran, way):
    plugin = Plugin(lambda _: {"call": namespace_tool("first"), "value": {"x": 1}})
    ids = ", ".join(f'"{one}"' for one in FORGED)
    code = f"""const said = [], arguments_ = {{"namespace arguments": [1]}};
        for (const id of [{ids}]) await tools.{way}(id, arguments_).then(() => said.push(id), ({{message}}) =>
            message.includes("no tool with the id") || said.push(message));
        return said"""
    assert ran(plugin, code)["value"] == []
    assert plugin.spy.ran == []


def test_arguments_that_look_like_the_hosts_own_are_arguments(ran):
    plugin = Plugin(lambda _: {"call": namespace_tool("first")})
    forged = '{"namespace arguments": [{"namespace arguments": [1]}]}'
    code = f"return [await ns.call({forged}), await tools.call('plugin:plug:first', {forged})]"
    assert ran(plugin, code)["value"] == [json.loads(forged)] * 2


# -- who sees it


def test_a_client_does_not_become_a_plugin_by_its_name(within, pool):
    plugin = Plugin(scoped(1))
    tools = {name: Tool(name, execute=lambda: 1) for name in ("first", "strict")}
    pair = create_exec_wait_tools(
        ToolSource(tools, source="client", owner="plug"), namespaces=plugin.registry, pool=pool
    )
    result = within(pair.exec.execute({"code": "return typeof ns"}))
    assert (result["value"], "ns" in pair.exec.description.split("`")) == ("undefined", False)


def test_a_global_name_is_none_that_objects_inherit(ran):
    code = """const names = new Set();
        for (let one = globalThis; one; one = Object.getPrototypeOf(one))
            for (const name of Object.getOwnPropertyNames(one)) names.add(name);
        return [...names]"""
    names = ran(Plugin(scoped(1)), code)["value"]
    assert "hasOwnProperty" in names
    for name in {*names} - {"ns"}:
        with pytest.raises(InvalidConfigError, match="global_name"):
            Namespace("other", name, ("first",), scoped(1))


@each_row("name", ["__openclaw", "__openclawX", "__codemode_x", "yield", "a b", "ünlaut", "x" * 65, "1", 5])
def test_a_global_name_that_programs_cannot_have_is_refused(name):
    with pytest.raises(InvalidConfigError, match="global_name"):
        Namespace("other", name, ("first",), scoped(1))


def test_a_prompt_is_a_function_of_the_context_and_costs_nothing_where_it_fails():
    registry = NamespaceRegistry()
    source = ToolSource({"first": lambda: 1}, source="plugin", owner="plug")
    registry.register("plug", Namespace("a", "aa", ("first",), scoped(1), prompt=lambda context: f"You are {context}."))
    registry.register("plug", Namespace("b", "bb", ("first",), scoped(1), prompt=raises(RuntimeError("hunter2"))))
    pair = create_exec_wait_tools(source, namespaces=registry)
    assert "You are ana." in pair.exec.describe("ana")
    assert "You are None." in pair.exec.description
    assert "`bb`" in pair.exec.description
    assert "hunter2" not in pair.exec.description
    assert pair.exec.describe("ana") == pair.exec.describe("ana")
    assert "ana" not in pair.exec.description


def test_a_plugin_that_is_taken_back_is_gone_for_the_next_program(within, pool):
    plugin = Plugin(lambda _: {"call": namespace_tool("first")})
    pair = create_exec_wait_tools(plugin.source, namespaces=plugin.registry, pool=pool)

    async def main():
        before = await pair.exec.execute({"code": "return typeof ns"})
        plugin.registry.clear("plug")
        after = await pair.exec.execute({"code": "return [typeof ns, Object.keys(namespaces)]"})
        plugin.registry.register("plug", Namespace("again", "ns", ("first",), scoped(2)))
        again = await pair.exec.execute({"code": "return ns.value"})
        await pair.aclose()
        return [one["value"] for one in (before, after, again)]

    assert within(main()) == ["object", ["undefined", []], 2]
    for plugin_id in ("", None, 5):
        with pytest.raises(InvalidConfigError, match="plugin"):
            plugin.registry.register(plugin_id, Namespace("x", "xx", ("first",), scoped(1)))


# -- rests, persons and other processes


@pytest.mark.parametrize("answer", [OK, NO, {"approved": True, "input": {"n": 5}}])
def test_a_person_sees_what_the_mapper_made_and_it_is_made_once(within, pool, answer):
    mapped: list[Any] = []

    def mapper(given: Any) -> Any:
        mapped.append(given)
        return {"n": given}

    plugin = Plugin(lambda _: {"call": namespace_tool("strict", mapper)}, needs_approval=True)
    pair = create_exec_wait_tools(plugin.source, namespaces=plugin.registry, settings=PAUSING, pool=pool)

    async def main():
        asked = through_json(
            await pair.exec.execute({"code": "return await ns.call(1)"}, call=CallContext(conversation_id="s"))
        )
        last = await pair.resume(asked, answer, call=CallContext(conversation_id="s"))
        await pair.aclose()
        return asked, last

    asked, last = within(main())
    assert (asked.input, asked.requests[0].tool_name) == ({"n": 1}, "namespace:ns:call")
    if answer is NO:
        assert (last["code"], plugin.spy.ran) == ("nested_tool_failed", [])
    else:
        assert last["value"] == answer.get("input", {"n": 1})
    assert len({*mapped}) == 1


@pytest.mark.parametrize("max_warm_runs", [4, 0])
def test_a_scope_survives_rests_and_another_process(within, pool, max_warm_runs):
    plugin, store = Plugin(lambda context: {"user": context, "call": namespace_tool("first")}), MemoryInterruptStore()
    given: dict[str, Any] = {
        "settings": {"continuation": {"keys": "a key"}}, "namespaces": plugin.registry, "pool": pool, "store": store
    }  # fmt: skip
    options = {"maxWarmRuns": max_warm_runs}
    code = "const one = await ns.call(1); await yield_control(); return [one, ns.user, await ns.call(2)]"

    async def main():
        first = create_exec_wait_tools(plugin.source, options, **given)
        rests = [
            await first.exec.execute({"code": code}, call=CallContext(conversation_id="s", context="ana"))
            for _ in range(2)
        ]
        here = await first.wait.execute(
            {"runId": rests[0]["runId"]}, call=CallContext(conversation_id="s", context="ana")
        )
        await first.aclose()
        second = create_exec_wait_tools(plugin.source, options, **given)
        there = await second.wait.execute(
            {"runId": rests[1]["runId"]}, call=CallContext(conversation_id="s", context="ana")
        )
        await second.aclose()
        await store.aclose()
        return here["value"], there.get("value", there)

    assert within(main()) == ([1, "ana", 2], [1, "ana", 2])
    assert len(plugin.spy.ran) == 4
