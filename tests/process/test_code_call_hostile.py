"""Scripts of all kinds, hostile ones among them, end in a status; no spelling of a meta-tool gets past the guard."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hostile_scripts import hostile_scripts
from spellings import meta_spellings
from suite import full_only, rounds
from waiting import within

from codemode import CodeModeToolError, PoolOptions, Tool, WorkerPool, create_code_call_tools
from codemode.types import CodeCallResult

STATUSES = {"ok", "syntax_error", "illegal_access", "tool_error", "runtime_error", "timeout"}
SPELLINGS = meta_spellings()


def raises(value: Any) -> None:
    errors: dict[str, BaseException] = {
        "os": OSError(2, "No such file", "/root/.ssh/id_rsa"),
        "stop": StopIteration("x"),
        "exit": SystemExit(3),
        "tool": CodeModeToolError("told"),
        "code": CodeModeToolError("told", code="OWN"),
    }
    raise errors[value["how"]]


TOOLS = [
    Tool("echo", execute=lambda value: value),
    Tool("fails", execute=raises),
    Tool("constructor.prototype", execute=lambda value: "odd"),
    Tool("toString", execute=lambda value: "odd"),
    Tool("__x", execute=lambda value: "hidden"),
]


@pytest.mark.parametrize("preset", ["secure", *full_only("experimental")])
def test_every_script_ends_in_a_status_and_none_raises(preset: str):
    scripts = hostile_scripts()
    assert len(scripts) >= 200
    scripts = scripts[:: rounds(2, 1)]

    async def all_of_them() -> list[Any]:
        turns = asyncio.Semaphore(4)

        async def one(script: str) -> Any:
            async with turns:
                return await tools.execute({"script": script})

        return await asyncio.gather(*map(one, scripts), return_exceptions=True)

    with WorkerPool(PoolOptions(max_workers=4, on_saturation="wait")) as pool:
        limits = {"settings": {"execution_policy": {"memory_limit_bytes": 32 << 20}}}
        options = {"vm": {"preset": preset, "timeoutMs": 250, "maxSteps": 100}, **limits}
        tools = create_code_call_tools(TOOLS, options, pool=pool)
        answers = within(all_of_them(), 240)
    raised = [
        (script, answer) for script, answer in zip(scripts, answers, strict=True) if isinstance(answer, Exception)
    ]
    assert raised == []
    seen: dict[str, int] = {}
    for answer in answers:
        assert isinstance(answer, CodeCallResult)
        seen[answer["status"]] = seen.get(answer["status"], 0) + 1
        text = json.dumps(answer)
        assert "id_rsa" not in text
        assert "Traceback" not in text
    assert set(seen) <= STATUSES
    assert len(seen) >= 5, seen


def test_no_spelling_can_be_called():
    vm = {"preset": "balanced", "timeoutMs": 60_000}  # for hundreds of calls a busy machine takes long
    tools = create_code_call_tools(TOOLS, {"direct_calls": {"enabled": True}, "vm": vm})
    script = """
      const codes = [];
      for (const name of codecallContext.names)
        codes.push((await callTool(name, {}, { throwOnError: false })).error.code, getTool(name) === undefined);
      return codes;
    """
    answer = tools.execute_sync({"script": script}, script_context={"names": SPELLINGS})
    assert answer.get("result") == ["SELF_REFERENCE", True] * len(SPELLINGS), answer
    codes = {tools.invoke_sync({"tool": name, "input": {}})["error"]["code"] for name in SPELLINGS}
    assert codes == {"SELF_REFERENCE"}


@pytest.mark.parametrize("allowed", [None, [], ["codecall.search"], ["echo"]])
def test_the_guard_is_the_first_thing_that_a_call_meets(allowed: Any):
    tools = create_code_call_tools(TOOLS)
    more = {} if allowed is None else {"allowedTools": allowed}
    for script in (
        "return await callTool('codecall:search', { query: 'x' })",
        "const name = ['code', 'call_execute'].join(''); return await callTool(name, {})",
        "return await callTool('CodeCall/describe', {}).catch((error) => { throw error })",
    ):
        answer = tools.execute_sync({"script": script, **more})
        assert (answer["status"], answer["error"]["code"]) == ("tool_error", "SELF_REFERENCE")
