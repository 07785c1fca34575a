"""What a wrong input of a meta-tool gets: one error with all problems; nothing of it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from suite import each_row

from codemode import CodeModeToolError, Tool, create_code_call_tools

ECHO = Tool("echo", execute=lambda value: value, description="Says it again.")
TOOLS = create_code_call_tools([ECHO], {"direct_calls": {"enabled": True}})

BAD: list[tuple[str, Any, list[str]]] = [
    ("search", None, [""]),
    ("search", "query", [""]),
    ("search", [], [""]),
    ("search", {}, ["query"]),
    ("search", {"query": None}, ["query"]),
    ("search", {"query": 3}, ["query"]),
    ("search", {"query": "a", "topK": "3"}, ["topK"]),
    ("search", {"query": "a", "topK": True}, ["topK"]),
    ("search", {"query": "a", "topK": 2.5}, ["topK"]),
    ("search", {"query": "a", "top_k": 3}, ["top_k"]),
    ("search", {"query": "a", "filter": []}, ["filter"]),
    ("search", {"query": "a", "filter": {"apps": []}}, ["filter.apps"]),
    ("search", {"query": "a", "filter": {"tags": "a"}}, ["filter.tags"]),
    ("search", {"query": "a", "filter": {"appIds": [1]}}, ["filter.appIds"]),
    ("search", {"query": "a", "filter": {"includeInline": "no"}}, ["filter.includeInline"]),
    ("search", {"queries": []}, ["queries"]),
    ("search", {"queries": [str(one) for one in range(11)]}, ["queries"]),
    ("search", {"queries": "a"}, ["queries"]),
    ("search", {"query": "a", "minRelevanceScore": "high"}, ["minRelevanceScore"]),
    ("search", {"query": "a", "minRelevanceScore": float("nan")}, ["minRelevanceScore"]),
    ("search", {"query": "a", "minRelevanceScore": float("-inf")}, ["minRelevanceScore"]),
    ("search", {"query": "a", "excludeToolNames": {}}, ["excludeToolNames"]),
    ("search", {"query": 1, "topK": "x", "filter": {"tags": 2}}, ["query", "topK", "filter.tags"]),
    ("describe", {}, ["tools"]),
    ("describe", {"tools": "echo"}, ["tools"]),
    ("describe", {"tools": [1]}, ["tools"]),
    ("describe", {"tools": ["echo"], "max": "all"}, ["max"]),
    ("describe", {"names": ["echo"]}, ["names", "tools"]),
    ("execute", {}, ["script"]),
    ("execute", {"script": None}, ["script"]),
    ("execute", {"script": 3}, ["script"]),
    ("execute", {"script": "return 1", "allowedTools": "echo"}, ["allowedTools"]),
    ("execute", {"script": "return 1", "allowedTools": [None]}, ["allowedTools"]),
    ("execute", {"script": "return 1", "context": []}, ["context"]),
    ("execute", {"script": "return 1", "context": {"a": "x" * 70_000}}, ["context"]),
    ("execute", {"script": "return 1", "context": {"a": object()}}, ["context"]),
    ("invoke", {}, ["tool"]),
    ("invoke", {"tool": 3}, ["tool"]),
    ("invoke", {"tool": "echo", "input": [object()]}, ["input"]),
    ("invoke", {"tool": "echo", "arguments": {}}, ["arguments"]),
]


@each_row("meta_tool, given, paths", BAD)
def test_a_wrong_input_is_told_with_its_problems(meta_tool: str, given: Any, paths: list[str]):
    with pytest.raises(CodeModeToolError) as caught:
        TOOLS.call_sync(f"codecall.{meta_tool}", given)
    problems = caught.value.details["problems"]
    assert sorted(problem["path"] for problem in problems) == sorted(paths)
    assert all(problem["message"] in caught.value.message for problem in problems)
    assert caught.value.details["tool_name"] == f"codecall.{meta_tool}"


@each_row("context", [3, "text", [1], {"a": "x" * 66_000}, {"a": object()}])
def test_a_wrong_context_of_the_host_is_a_value_error(context: Any):
    with pytest.raises(ValueError, match=r"^script_context"):
        TOOLS.execute_sync({"script": "return 1"}, script_context=context)


def test_the_counts_are_brought_into_their_bounds():
    tools = create_code_call_tools([Tool(f"echo_{at}", execute=None) for at in range(70)])
    for given, most in ((0, 1), (-5, 1), (3, 3), (50, 50), (51, 50), (10**9, 50), (4.0, 4), (None, 8)):
        assert len(tools.search_sync({"query": "echo", "topK": given})["tools"]) == most
        names = [f"echo_{at}" for at in range(70)]
        described = tools.describe_sync({"tools": names, "max": given})
        assert (len(described["tools"]), described["omitted"]) == (most, 70 - most)


def test_without_direct_calls_there_is_no_such_tool():
    tools = create_code_call_tools([ECHO])
    assert [tool.name for tool in tools.tools] == ["codecall.search", "codecall.describe", "codecall.execute"]
    for call in (tools.invoke_sync, lambda given: tools.call_sync("codecall.invoke", given)):
        with pytest.raises(CodeModeToolError, match=r"no tool named 'codecall\.invoke'"):
            call({"tool": "echo", "input": {}})


def test_nothing_awaits_a_wrong_input():
    async def wrong() -> list[Any]:
        works = [TOOLS.search({}), TOOLS.describe({}), TOOLS.execute({}), TOOLS.invoke({})]
        return await asyncio.gather(*works, return_exceptions=True)

    assert [type(one) for one in asyncio.run(wrong())] == [CodeModeToolError] * 4


def test_the_item_that_is_no_string_is_named():
    with pytest.raises(CodeModeToolError, match=r"tools must be an array of strings; \[1\] is number"):
        TOOLS.describe_sync({"tools": ["echo", 3, None]})


def test_another_name_is_told_what_there_is():
    with pytest.raises(CodeModeToolError, match=r"codecall\.execute, codecall\.invoke$"):
        TOOLS.call_sync("run", {})
    with pytest.raises(CodeModeToolError, match=r"codecall_describe, codecall_execute$"):
        create_code_call_tools([ECHO], {"names": "underscore"}).call_sync("run", {})
