"""A script that fails names the calls that it had begun and did not see the end of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from codemode import CodeModeToolError, Tool, create_code_call_tools


def refuse(value: Any) -> None:
    raise CodeModeToolError("no stock for " + value["sku"])


async def hang(_value: Any) -> None:
    await asyncio.Event().wait()


NUMBERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOLS = [
    Tool("echo", execute=lambda value: value),
    Tool("add", execute=lambda value: value["n"] + 1, input_schema=NUMBERS),
    Tool("stock.take", execute=refuse),
    Tool("hang", execute=hang),
]


def run(script: str, options: Any = None) -> Any:
    return create_code_call_tools(TOOLS, options).execute_sync({"script": script})


OPEN = "May or may not have happened, find out before repeating: "
FAILS = "await callTool('echo', 1); await callTool('stock.take', { sku: 'a' })"


@pytest.mark.parametrize(
    ("script", "names"),
    [
        (f"await Promise.all([callTool('hang'), (async () => {{ {FAILS} }})()])", "hang"),
        (f"await Promise.all([1, 2].map(() => callTool('hang')).concat((async () => {{ {FAILS} }})()))", "hang; hang"),
        (f"const open = callTool('hang'); {FAILS}; await open", "hang"),
        ("const open = callTool('hang'); await callTool('echo', 1); throw new Error('no')", "hang"),
        ("const open = callTool('hang'); await callTool('echo', 1); return 1", "hang"),
        (
            f"await Promise.all([...Array(20)].map(() => callTool('hang')).concat((async () => {{ {FAILS} }})()))",
            "; ".join(["hang"] * 20),
        ),
    ],
)
def test_a_script_that_fails_says_which_calls_it_has_left_open(script: str, names: str):
    answer = run(script)
    assert answer["status"] in ("tool_error", "runtime_error")
    assert [line for line in answer["warnings"] if line.startswith(OPEN)] == [OPEN + names]


@pytest.mark.parametrize(
    "script",
    [
        FAILS,
        f"await Promise.all([callTool('echo', 2), (async () => {{ {FAILS} }})()])",
        "callTool('hang'); throw new Error('no')",
        "await Promise.allSettled([callTool('echo', 1)]); throw new Error('no')",
    ],
)
def test_what_has_ended_or_never_began_is_not_left_open(script: str):
    """Calls of the turn in which a script ends are never sent."""
    assert not [line for line in run(script).get("warnings", ()) if line.startswith(OPEN)]


def test_a_call_that_took_too_long_says_so_itself_and_another_is_told_of(passing_time: Any):
    slow = {"settings": {"execution_policy": {"tool_timeout_ms": 100}}}
    answer = run("return await callTool('hang')", slow)
    assert (answer["error"]["code"], "warnings" in answer) == ("TIMEOUT", False)
    late = "await callTool('hang', 1, { throwOnError: false }); throw new Error('no')"
    (line,) = run(late, slow)["warnings"]
    assert line.startswith(OPEN + "hang(1)")

    async def late(value: Any) -> None:
        passing_time.skip(61)
        await hang(value)

    clock = {"settings": {"execution_policy": {"timeout_includes_tools": True}}, "vm": {"timeoutMs": 60_000}}
    tools = create_code_call_tools([Tool("late", execute=late)], clock)
    assert tools.execute_sync({"script": "await callTool('late')"})["warnings"] == [OPEN + "late"]
