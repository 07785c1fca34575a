"""Every mode with every metadata value against list, search, describe, getTool, execute and invoke: one rule."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from suite import each_row, full_only

from codemode import CodeCallToolset, Tool, create_code_call_tools

MODES = ["codecall_only", "codecall_opt_in", "metadata_driven"]
GIVEN = [None, True, False]
TABLE = list(itertools.product(GIVEN, GIVEN, ["mine", "other", None], ["", "system:", "__"]))
"""visibleInListTools, enabledInCodeCall, appId, and how the name begins."""


def name_of(row: tuple[Any, ...]) -> str:
    return f"{row[3]}tool_{TABLE.index(row)}"


def tool_of(row: tuple[Any, ...]) -> Tool:
    keys = ("visibleInListTools", "enabledInCodeCall", "appId")
    said = {key: value for key, value in zip(keys, row, strict=False) if value is not None}
    name = name_of(row)
    return Tool(name, execute=lambda value: name, description="Does zebra things.", metadata={"codecall": said})


def places(row: tuple[Any, ...], mode: str, app_ids: Any, leaves_out: set[str]) -> tuple[bool, bool]:
    """Whether a tool is in the index, and whether it is listed: the table of the documentation, written again."""
    visible, enabled, app_id, prefix = row
    if name_of(row) in leaves_out or (app_ids is not None and app_id not in app_ids):
        return False, True
    is_enabled = enabled is not False if mode == "codecall_only" else enabled is True
    return is_enabled and not prefix, visible is True


@each_row("mode", MODES)
@each_row("app_ids", [None, ["mine"]], ids=["all apps", "one app"])
@each_row("leaves_out", [False, True], ids=["all tools", "some tools"])
def test_one_rule_everywhere(mode: str, app_ids: Any, leaves_out: bool):
    left_out = {name_of(row) for row in TABLE[::4]} if leaves_out else set[str]()
    options = {
        "mode": mode,
        "app_ids": app_ids,
        "include_tools": lambda info: info.name not in left_out,
        "direct_calls": {"enabled": True},
        "vm": {"preset": "balanced", "checkTools": False},
    }
    tools = create_code_call_tools([tool_of(row) for row in TABLE], options)
    expected = {name_of(row): places(row, mode, app_ids, left_out) for row in TABLE}
    indexed = {name for name, (is_indexed, _) in expected.items() if is_indexed}
    listed = [name for name, (_, is_listed) in expected.items() if is_listed]
    assert 0 < len(indexed) < len(TABLE)
    assert [tool.name for tool in tools.list_tools()][4:] == listed
    assert searched(tools) == indexed
    assert described(tools, expected) == indexed
    assert in_scripts(tools, list(expected)) == (indexed, indexed)
    assert invoked(tools, list(expected)) == indexed


def searched(tools: CodeCallToolset) -> set[str]:
    found: set[str] = set()
    for _ in range(3):
        answer = tools.search_sync({"query": "zebra", "topK": 50, "excludeToolNames": sorted(found)})
        found |= {one["name"] for one in answer["tools"]}
    return found


def described(tools: CodeCallToolset, expected: Any) -> set[str]:
    names = list(expected)
    answers = [tools.describe_sync({"tools": names[at : at + 50], "max": 50}) for at in range(0, len(names), 50)]
    known = {one["name"] for answer in answers for one in answer["tools"]}
    missing = {name for answer in answers for name in answer.get("notFound", [])}
    assert known | missing == set(expected)
    assert not known & missing
    return known


def in_scripts(tools: CodeCallToolset, names: list[str]) -> tuple[set[str], set[str]]:
    script = """
      const known = [], called = [], codes = new Set();
      for (const name of codecallContext.names) {
        if (getTool(name) !== undefined) known.push(name);
        const { success, data, error } = await callTool(name, {}, { throwOnError: false });
        if (success && data === name) called.push(name); else codes.add(error.code);
      }
      return { known, called, codes: [...codes] };
    """
    answer = tools.execute_sync({"script": script, "context": {"names": names}})
    assert answer["status"] == "ok", answer
    assert answer["result"]["codes"] == ["UnknownTool"]
    return set(answer["result"]["known"]), set(answer["result"]["called"])


def invoked(tools: CodeCallToolset, names: list[str]) -> set[str]:
    answers = {name: tools.invoke_sync({"tool": name, "input": {}}) for name in names}
    for name, answer in answers.items():
        assert answer == {"status": "ok", "result": name} or answer["error"]["code"] == "UnknownTool"
    return {name for name, answer in answers.items() if answer["status"] == "ok"}


# --- a hidden tool is as one that nobody has registered ---

HIDDEN = [
    Tool("payroll_export", execute=lambda value: 1, metadata={"codecall": {"enabledInCodeCall": False}}),
    Tool("system:reboot", execute=lambda value: 1),
]
SHOWN = Tool("payroll_report", execute=lambda value: 1)


@each_row("allowed", [None, [], ["payroll_report"], ["payroll_export", "system:reboot"]])
@each_row("name", ["payroll_export", "system:reboot"])
@each_row("literal", [True, *full_only(False)])
def test_a_hidden_name_is_answered_byte_for_byte_as_an_unknown_one(name: str, allowed: Any, literal: bool):
    def answers(tools: list[Tool]) -> list[Any]:
        made = create_code_call_tools(tools, {"direct_calls": {"enabled": True}})
        spelled = repr(name) if literal else f"{name[:3]!r} + {name[3:]!r}"
        more = {} if allowed is None else {"allowedTools": allowed}
        scripts = [
            f"return await callTool({spelled}, {{ a: 1 }})",
            f"return await callTool({spelled}, {{}}, {{ throwOnError: false }})",
            f"try {{ await callTool({spelled}, {{}}) }} catch (e) {{ return [e.message, e.code, e.stack] }}",
            f"return getTool({spelled}) === undefined",
        ]
        executed = [made.execute_sync({"script": script, **more}) for script in scripts]
        return [
            *executed,
            made.invoke_sync({"tool": name, "input": {}}),
            made.describe_sync({"tools": [name]}),
            made.search_sync({"query": f"{name} payroll export reboot"}),
        ]

    assert answers([*HIDDEN, SHOWN]) == answers([SHOWN])


def test_direct_calls_have_a_policy_beside_the_index():
    async def only_reads(info: Any) -> bool:
        if info.name == "raises":
            raise RuntimeError("/etc/policy is not there")
        return "read" in info.tags

    def tool(name: str, *tags: str) -> Tool:
        return Tool(name, execute=lambda value: name, metadata={"codecall": {"tags": list(tags)}})

    listed = ["reads", "writes", "raises", "gone"]
    options = {"direct_calls": {"enabled": True, "allowed_tools": listed, "filter": only_reads}}
    made = [tool("reads", "read"), tool("writes"), tool("raises", "read"), tool("other", "read")]
    tools = create_code_call_tools(made, options)

    def code(name: str) -> str:
        return tools.invoke_sync({"tool": name, "input": 1}).get("error", {}).get("code", "ok")

    assert {name: code(name) for name in ("reads", "writes", "raises", "other", "gone", "codecall.search")} == {
        "reads": "ok",
        "writes": "ACCESS_DENIED",
        "raises": "ACCESS_DENIED",
        "other": "ACCESS_DENIED",
        "gone": "UnknownTool",
        "codecall.search": "SELF_REFERENCE",
    }
    denied = tools.invoke_sync({"tool": "raises", "input": {"x": 1}})
    assert denied["error"] == {
        "source": "tool",
        "toolName": "raises",
        "toolInput": {"x": 1},
        "message": "Tool 'raises' may not be called here.",
        "code": "ACCESS_DENIED",
    }


@pytest.mark.parametrize(
    "include", [lambda info: 1 / 0, lambda info: info.nope, lambda: True], ids=["raises", "attribute", "arity"]
)
def test_a_filter_that_raises_is_a_value_error(include: Any):
    with pytest.raises(ValueError, match="include_tools raised"):
        create_code_call_tools([SHOWN], {"include_tools": include})


def test_a_filter_is_no_coroutine():
    async def include(info: Any) -> bool:
        return True

    with pytest.raises(ValueError, match="sync function"):
        create_code_call_tools([SHOWN], {"include_tools": include})
