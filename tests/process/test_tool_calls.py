"""What a tool is told of its call, and where it runs."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading

import pytest

from codemode import Tool, run_code_mode
from codemode.errors import CodeModeSerializationError


async def echo(value):
    return value


# --- what a call is told ---


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

    tools = [Tool("who", execute=who), Tool("echo", execute=echo)]
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


# --- where tools run ---


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
        assert release.wait(60)
        return threading.current_thread() is threading.main_thread()

    async def go(value):
        release.set()

    js = "const blocked = tools.block(1); await tools.go(1); return await blocked"
    assert run(js, [Tool("block", execute=block), Tool("go", execute=go)]) is False


def test_sync_tools_run_32_at_the_same_time(run):
    barrier = threading.Barrier(32, timeout=60)

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
        await asyncio.wait_for(called.wait(), 60)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    within(scenario())


def test_a_sync_function_may_give_an_awaitable(run):
    assert run("return await tools.t(4)", [Tool("t", execute=lambda value: echo(value))]) == 4


def test_host_code_runs_in_the_context_of_the_invoking_call(within):
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
