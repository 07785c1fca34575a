"""Programs run from code that is not async: with no loop, inside a loop, from threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from codemode import CallContext, CodeModeError, CodeModeTimeoutError, Tool, create_code_mode_tool, run_code_mode_sync

ECHO = Tool("echo", execute=lambda value: value)


async def async_echo(value):
    await asyncio.sleep(0)
    return value


def test_a_program_runs_without_a_loop():
    assert run_code_mode_sync("return await tools.echo(1)", [ECHO]) == 1
    assert create_code_mode_tool([ECHO]).execute_sync({"js": "return await tools.echo(2)"}) == 2


def test_settings_reach_the_call():
    seen = []
    tools = [Tool("note", execute=lambda value, context: seen.append((context.tool_call_id, context.context)))]
    run_code_mode_sync("await tools.note()", tools, call=CallContext(tool_call_id="o", context=1))
    create_code_mode_tool(tools).execute_sync(
        {"js": "await tools.note()"}, call=CallContext(tool_call_id="p", context=2, messages=["m"])
    )
    assert seen == [("o:tool-1", 1), ("p:tool-1", 2)]


def test_errors_are_the_same():
    with pytest.raises(CodeModeError, match="mine") as caught:
        run_code_mode_sync("throw new Error('mine')", [])
    assert caught.value.trace.status == "failed"
    assert caught.value.__context__ is None  # the traceback begins with it, and with nothing of ours
    with pytest.raises(CodeModeTimeoutError):
        run_code_mode_sync("for (;;);", [], options={"execution_policy": {"timeout_ms": 100}})
    with pytest.raises(ValueError, match=r"execution_policy\.timeout_ms"):
        run_code_mode_sync("return 1", [], options={"execution_policy": {"timeout_ms": 0}})


def test_a_running_loop_is_no_obstacle(within):
    async def notebook():
        return run_code_mode_sync("return await tools.echo(1)", [Tool("echo", execute=async_echo)])

    assert within(notebook()) == 1


def test_the_context_variables_of_the_caller_reach_the_tools(within):
    who = contextvars.ContextVar("who", default="nobody")
    tools = [Tool("who", execute=lambda: who.get()), Tool("awho", execute=lambda: async_echo(who.get()))]

    async def notebook():
        who.set("caller")
        return run_code_mode_sync("return [await tools.who(), await tools.awho()]", tools)

    assert within(notebook()) == ["caller", "caller"]


def test_threads_run_programs_side_by_side():
    results = {}
    barrier = threading.Barrier(4, timeout=60)

    def meet():
        barrier.wait()

    def work(n):
        tools = [Tool("meet", execute=meet), ECHO]
        results[n] = run_code_mode_sync(f"await tools.meet(); return await tools.echo({n})", tools)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {n: n for n in range(4)}


def test_a_tool_may_run_a_program_of_its_own():
    def nested(value):
        return run_code_mode_sync("return await tools.echo('inner')", [ECHO])

    assert run_code_mode_sync("return await tools.nested(1)", [Tool("nested", execute=nested)]) == "inner"


def test_a_second_loop_in_the_same_thread_works():
    tool = create_code_mode_tool([Tool("echo", execute=async_echo)])
    assert [asyncio.run(tool.execute({"js": f"return await tools.echo({n})"})) for n in range(3)] == [0, 1, 2]
