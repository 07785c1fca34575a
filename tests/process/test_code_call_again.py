"""A script that runs again: what is remembered of it never stands in for other tools, rules, names or contexts."""

from __future__ import annotations

from typing import Any

import pytest

from codemode import CodeCallToolset, Tool, create_code_call_tools


def tools_of(*names: str, **vm: Any) -> CodeCallToolset:
    made = [Tool(name, execute=lambda value: value, description=f"{name}!") for name in names]
    return create_code_call_tools(made, {"vm": vm} if vm else None)


def run(tools: CodeCallToolset, script: str, **more: Any) -> Any:
    """Return what it comes to, which has to be the same three times: unknown, known, and remembered."""
    answers = [tools.execute_sync({"script": script, **more}) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    return answers[0].get("result", answers[0]["status"])


def test_other_rules_and_tools_are_compared_anew():
    script = "/* rules */ for (const one of [1]) await callTool('echo', {}); return 1"
    with_loops, without = tools_of("echo", allow_loops=True), tools_of("echo")
    assert run(with_loops, script) == 1
    assert run(without, script) == "illegal_access"
    assert run(tools_of("other", allow_loops=True), script) == "tool_error"
    assert run(tools_of("other", allow_loops=True, check_tools=False), script) == "tool_error"
    assert run(with_loops, script, allowedTools=[]) == "tool_error"
    assert run(with_loops, script) == 1
    with_loops.update([Tool("other", execute=None)])
    assert run(with_loops, script) == "tool_error"


@pytest.mark.parametrize("size", [10, 100_000])
def test_each_run_has_its_own_context_and_definitions(size):
    script = "/* given */ return [codecallContext, getTool('one')?.description, getTool('t' + 'wo') === undefined]"
    tools = tools_of("one", "two")
    large = {"a": "x" * (size // 10)}
    assert run(tools, script) == [{}, "one!", False]
    for context in ({"a": 1}, {"a": True}, {"a": 1.5}, large, {}):
        got = run(tools, script, context=context)
        assert got == [context, "one!", False]
        assert [type(value) for value in got[0].values()] == [type(value) for value in context.values()]
    assert run(tools, script, allowedTools=["one"]) == [{}, "one!", True]
    tools.update([Tool("one", execute=None, description="other")])
    assert run(tools, script) == [{}, "other", True]
    answer = tools.execute_sync({"script": script}, script_context={"b": 2})
    assert answer["result"][0] == {"b": 2}
    assert run(tools, script) == [{}, "other", True]


def test_a_namespace_of_other_tools_is_none():
    script = "/* spaces */ return typeof shop === 'undefined' ? 'none' : await shop.echo(1)"
    assert run(tools_of("shop.echo"), script) == 1
    assert run(tools_of("echo"), script) == "none"
    assert run(tools_of("shop.echo"), script, allowedTools=["shop.echo"]) == 1
    assert run(tools_of("shop.echo"), script, allowedTools=[]) == "tool_error"
