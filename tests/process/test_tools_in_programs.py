"""Tools as programs see them: how they are reached, what crosses, what they are told, where they run."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import datetime as dt
import functools
import re
import threading

import pydantic
import pytest

from codemode import (
    CodeModeError,
    CodeModeSerializationError,
    Tool,
    run_code_mode,
)


async def echo(value):
    return value


ECHO = Tool("echo", execute=echo)
OBJECT_SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"default": 5}}, "required": ["a"]}


def named(*names):
    return [Tool(name, execute=functools.partial(lambda name, value: [name, value], name)) for name in names]


# --- how tools are reached (A44 to A48, A54) ---


@pytest.mark.parametrize(
    ("name", "js"),
    [
        ("a.b", "tools.a.b(1)"),
        ("a.b", "tools['a.b'](1)"),
        ("a.b.c", "tools.a['b'].c(1)"),
        ("a.b.c", "tools['a.b'].c(1)"),
        ("kebab-name", "tools['kebab-name'](1)"),
        ("with space", "tools['with space'](1)"),
        ("ünï", "tools.ünï(1)"),
        ("class", "tools.class(1)"),
        ("name", "tools.name(1)"),
        ("length", "tools.length(1)"),
        ("apply", "tools.apply(1)"),
        ("call", "tools.call(1)"),
        ("bind", "tools.bind(1)"),
        ("a.call", "tools.a.call(1)"),
        ("hasOwnProperty", "tools.hasOwnProperty(1)"),
        ("__proto__", "tools['__proto__'](1)"),
        ("0", "tools[0](1)"),
        ("echo", "(0, tools.echo)(1)"),
        ("echo", "(tools => tools.echo(1))(tools)"),
        ("echo", "(({echo}) => echo(1))(tools)"),
        ("echo", "[1].map(tools.echo)[0]"),
        ("echo", "tools?.echo?.(1)"),
        ("echo", "Reflect.apply(tools.echo, null, [1])"),
    ],
)
def test_a_property_chain_is_a_name(run, name, js):
    assert run(f"return await {js}", named(name)) == [name, 1]


@pytest.mark.parametrize(
    "js",
    [
        "tools.constructor({})",
        "tools['constructor']({})",
        "tools.toString().x()",
        "tools.prototype({})",
        "tools.toJSON({})",
        "tools.then(x => x)",
        "tools[Symbol.iterator]()",
        "new tools.echo(1)",
        "tools.echo.apply(null, [1])",
        "tools['__proto__']({})",
        "tools['a.__proto__']({})",
        "tools['echo.constructor']({})",
        "tools['']({})",
        "tools({})",
        "tools['x'.repeat(300)]({})",
        "tools.ECHO(1)",
        "tools['echo ']({})",
    ],
)
def test_what_is_no_tool_reaches_no_tool(run, js):  # A54
    ran = []

    async def note(value):
        ran.append(value)

    with pytest.raises(CodeModeError):
        run(f"return await {js}", [Tool("echo", execute=note)], check_program=False)
    assert ran == []


def test_the_tools_object_is_inert(run):  # A45
    js = """
      const awaited = await tools;
      return [typeof tools.then, typeof tools.a, typeof tools.a.b, typeof tools[Symbol.iterator], Object.keys(tools),
        'echo' in tools, JSON.stringify({tools}), awaited === tools, String(tools), Object.getPrototypeOf(tools),
        tools.echo === tools.echo];
    """
    assert run(js, [ECHO]) == [
        "undefined", "function", "function", "undefined", [], False, "{}", True, "[tool]", None, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "js",
    [
        "tools.echo = () => 1",
        "delete tools.echo",
        "Object.defineProperty(tools, 'echo', {value: 1})",
        "'use strict'; tools = 1",
        "Object.setPrototypeOf(tools, {})",
        "tools.echo.x = 1",
    ],
)
def test_the_tools_object_cannot_be_changed(fails, js):
    assert fails(CodeModeError, js, [ECHO]).details["name"] == "TypeError"


@pytest.mark.parametrize("js", ["tools()", "tools['']()", "tools(1).catch(() => 0)"])
def test_a_call_without_a_name_is_an_error(fails, js):  # A46
    assert "missing tool name" in str(fails(CodeModeError, js, [ECHO], check_program=False))


@pytest.mark.parametrize(
    "js",
    ["undefined", "() => 1", "Symbol('s')", "(() => { const a = []; a.push(a); return a })()",
     "{get x() { throw new TypeError('no') }}", "{toJSON() { throw new TypeError('no') }}", "{toJSON() {}}"],
)  # fmt: skip
def test_an_input_that_is_not_json_throws_at_the_call(run, js):  # A47
    program = f"let after = false; try {{ tools.echo({js}); after = true }} catch (e) {{ return [e.name, after] }}"
    assert run(program, [ECHO]) == ["TypeError", False]


def test_exactly_one_argument_crosses(run):  # A47
    seen = []
    tools = [Tool("note", execute=lambda value: seen.append(value))]
    assert run("return [await tools.note(), await tools.note(null), await tools.note(1, 2, 3)]", tools) == [None] * 3
    assert seen == [None, None, 1]


def test_an_absent_input_of_an_object_is_an_empty_object(run):
    schema = {"type": "object", "properties": {"b": {"default": 5}}}
    assert run("return await tools.t()", [Tool("t", execute=echo, input_schema=schema)]) == {"b": 5}


def test_undefined_comes_back_as_undefined(run):  # A60
    tools = [Tool("none", execute=lambda: None), Tool("null", execute=lambda: None, output_schema={"type": "null"})]
    assert run("return [typeof await tools.none(), (await tools.null()) === null]", tools) == ["undefined", True]


@pytest.mark.parametrize(
    "value",
    [0, -1.5, 2**53, "", "a\0b", "\u2028", "\U0001f600", "\ufffd", [], {}, {"__proto__": {"x": 1}}, {"then": 1},
     {"": None}, [[[]]], True, {"constructor": 1, "toString": 2}, "x" * 200_000],
)  # fmt: skip
def test_values_cross_both_ways_unchanged(run, value):
    seen = []

    async def note(given):
        seen.append(given)
        return given

    tools = [Tool("note", execute=note), Tool("give", execute=lambda: value)]
    assert run("return await tools.note(await tools.give())", tools) == value
    assert seen == [value]


def test_a_returned_proto_key_changes_no_prototype(run):
    js = """
      const v = await tools.give();
      return [Object.getPrototypeOf(v) === Object.prototype, typeof v.x, Object.keys(v)];
    """
    assert run(js, [Tool("give", execute=lambda: {"__proto__": {"x": 1}})]) == [True, "undefined", ["__proto__"]]


def test_a_returned_thenable_is_data(run):
    assert run("const v = await tools.give(); return v", [Tool("give", execute=lambda: {"then": "x"})]) == {"then": "x"}


def test_what_pydantic_writes_as_json_crosses(run):
    class Model(pydantic.BaseModel):
        day: dt.date

    @dataclasses.dataclass
    class Point:
        x: int

    outputs = {"m": Model(day=dt.date(2024, 1, 2)), "p": Point(3), "s": {4}, "nan": float("nan")}
    expected = {"m": {"day": "2024-01-02"}, "p": {"x": 3}, "s": [4], "nan": None}
    assert run("return await tools.give()", [Tool("give", execute=lambda: outputs)]) == expected


@pytest.mark.parametrize("value", [object(), {"a": lambda: 1}, threading.Lock()])
def test_an_output_that_is_not_json_is_a_serialization_error(run, fails, value):  # A60
    tools = [Tool("give", execute=lambda: value)]
    error = fails(CodeModeSerializationError, "return await tools.give()", tools)
    assert "'give'" in str(error)
    caught = run("try { await tools.give() } catch (e) { return [e.name, e.code] }", tools)
    assert caught == ["CodeModeSerializationError", "CODE_MODE_SERIALIZATION_ERROR"]


# --- what a call is told (A55 to A57) ---


def test_a_tool_is_told_about_its_call(run):
    seen = []

    async def note(value, context):
        seen.append(context)

    run(
        "await tools.note(1); await tools.note(2)",
        [Tool("note", execute=note)],
        tool_call_id="call_7",
        messages=["m"],
        context={"user": 1},
    )
    assert [context.tool_call_id for context in seen] == ["call_7:tool-1", "call_7:tool-2"]
    assert {context.outer_tool_call_id for context in seen} == {"call_7"}
    assert all(context.messages == ["m"] and context.context == {"user": 1} for context in seen)
    assert seen[0].interrupt is None
    assert isinstance(seen[0].aborted, asyncio.Event)


def test_call_ids_follow_the_order_of_issue(run):
    async def who(value, context):
        return context.tool_call_id.rpartition(":")[2]

    tools = [Tool("who", execute=who), ECHO]
    js = """
      const a = tools.who(1), b = tools.who(2);
      await tools.$search('who');
      return [await b, await a, await tools.who(3)];
    """
    assert run(js, tools) == ["tool-2", "tool-1", "tool-3"]


def test_failed_calls_take_a_number_too(run):
    async def who(value, context):
        return context.tool_call_id.rpartition(":")[2]

    js = "const n = 'nope'; await tools[n](1).catch(() => 0); return await tools.who(1)"
    assert run(js, [Tool("who", execute=who)]) == "tool-2"


def test_without_an_outer_id_each_invocation_has_a_random_one(run):
    tools = [Tool("who", execute=lambda value, context: context.outer_tool_call_id)]
    first, second = run("return await tools.who(1)", tools), run("return await tools.who(1)", tools)
    assert re.fullmatch(r"code-mode-[0-9a-f]{16,}", first)
    assert first != second


# --- where tools run (A27, A58, A59) ---


def test_the_last_item_of_an_async_iterator_is_the_output(run):
    async def items(value):
        for item in value:
            yield item

    async def broken(value):
        yield 1
        raise RuntimeError("late")

    tools = [Tool("items", execute=items), Tool("broken", execute=broken)]
    js = """return [await tools.items([1, 2]), typeof await tools.items([]),
      await tools.broken(1).catch(e => e.code)]"""
    assert run(js, tools) == [2, "undefined", "CODE_MODE_HOST_TOOL_ERROR"]


def test_a_sync_tool_blocks_no_one(run):
    release = threading.Event()

    def block(value):
        assert release.wait(20)
        return threading.current_thread() is threading.main_thread()

    async def go(value):
        release.set()

    js = "const blocked = tools.block(1); await tools.go(1); return await blocked"
    assert run(js, [Tool("block", execute=block), Tool("go", execute=go)]) is False


def test_32_sync_tools_run_at_the_same_time(run):
    barrier = threading.Barrier(32, timeout=20)

    def meet(value):
        barrier.wait()
        return value

    js = "return await Promise.all(Array.from({length: 32}, (_, i) => tools.meet(i)))"
    assert run(js, [Tool("meet", execute=meet)]) == list(range(32))


def test_an_async_function_that_gives_an_awaitable_has_given_its_output(fails):
    class Query:
        def __await__(self):
            raise AssertionError("awaited")

    async def find():
        return Query()

    fails(CodeModeSerializationError, "return await tools.find()", [find])


def test_calls_of_a_turn_do_not_wait_for_the_turns_behind_it(within, make_pool):
    # Both gates are answered in one turn of the event loop, so their answers reach the worker together.
    async def scenario():
        opened, entered, called = asyncio.Event(), [], asyncio.Event()

        async def gate(n: int) -> int:
            entered.append(n)
            if len(entered) == 2:
                asyncio.get_running_loop().call_soon(opened.set)
            await opened.wait()
            return n

        async def side() -> None:
            called.set()

        program = """
            const a = (async () => { await tools.gate({ n: 1 }); await tools.side() })();
            const b = (async () => { await tools.gate({ n: 2 }); for (;;); })();
            await Promise.all([a, b])
        """
        run = asyncio.ensure_future(run_code_mode(program, [gate, side], pool=make_pool()))
        await asyncio.wait_for(called.wait(), 10)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    within(scenario())


def test_a_sync_function_may_give_an_awaitable(run):
    assert run("return await tools.t(4)", [Tool("t", execute=lambda value: echo(value))]) == 4


def test_host_code_runs_in_the_context_of_the_invoking_call(within):  # A27
    who = contextvars.ContextVar("who", default="nobody")
    seen = []

    async def async_tool(value):
        return who.get()

    def sync_tool(value):
        return who.get()

    def needs(value, context):
        seen.append(who.get())
        return True

    def decide(request):
        seen.append(who.get())
        return "approved"

    async def hook(event):
        seen.append(who.get())

    tools = [Tool("a", execute=async_tool, needs_approval=needs), Tool("s", execute=sync_tool)]
    options = {
        "approval": {"on_approval_required": decide},
        "lifecycle": {"on_nested_tool_call": hook, "on_nested_tool_result": hook, "on_trace": hook, "on_console": hook},
    }
    js = "console.log(1); return [await tools.a(1), await tools.s(2), await tools.a(3)]"

    async def invoke(name):
        who.set(name)
        return await run_code_mode(js, tools, options=options)

    async def scenario():
        return await asyncio.gather(invoke("ann"), invoke("bob"))

    assert within(scenario()) == [["ann"] * 3, ["bob"] * 3]
    assert "nobody" not in seen
    assert seen.count("ann") == seen.count("bob") == 12
