"""One `CallContext` for every surface, programs as text, and answers to every approval at once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from waiting import within

from codemode import (
    CallContext,
    CodeModeProtocolError,
    CodeModeToolApprovalDeniedError,
    ModuleServer,
    Tool,
    ToolCallContext,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
    request_interrupt,
)

PAUSING: Any = {"approval": {"mode": "interrupt"}, "continuation": {"keys": "a key of sixteen bytes"}}
MODULE = 'import { %s } from "@codemode/servers/shop";\nglobalThis.__codemode_result__ = await %s(1);'
CALL = CallContext(tool_call_id="call_1", messages=["hello"], context="ada", conversation_id="thread 1")


@contextmanager
def surfaces(tools: list[Tool], name: str) -> Iterator[dict[str, tuple[Any, Any, str]]]:
    """Give what executes and what resumes of each surface, with its program that calls a tool."""
    code_mode, code_call = create_code_mode_tool(tools, PAUSING), create_code_call_tools(tools, {"settings": PAUSING})
    run = create_modules_tool([ModuleServer("shop", tools)], settings=PAUSING)
    pair = create_exec_wait_tools(tools, settings=PAUSING)
    yield {
        "codeMode": (code_mode, code_mode, f"return await tools.{name}(1)"),
        "CodeCall": (code_call, code_call, f"return await callTool('{name}', 1)"),
        "modules": (run, run, MODULE % (name, name)),
        "exec": (pair.exec, pair, f"return await tools.{name}(1)"),
    }
    within(pair.aclose())


def value_of(result: Any) -> Any:
    if not isinstance(result, dict):
        return result
    return result.get("value", result.get("result"))


def test_every_surface_takes_a_program_as_text_and_passes_the_call_to_its_tools():
    seen: list[ToolCallContext] = []

    def look(_value: Any, context: ToolCallContext) -> str:
        seen.append(context)
        return "seen"

    with surfaces([Tool("look", execute=look)], "look") as every:
        for surface, (executes, _, program) in every.items():
            assert value_of(executes.execute_sync(program, CALL)) == "seen", surface
            assert (seen[-1].context, [*seen[-1].messages]) == ("ada", ["hello"]), surface
            assert seen[-1].tool_call_id.startswith("call_1"), surface


def test_every_surface_resumes_in_the_conversation_of_the_call_alone():
    with surfaces([Tool("pay", execute=lambda value: value, needs_approval=True)], "pay") as every:
        for surface, (executes, resumes, program) in every.items():
            paused = executes.execute_sync(program, CALL)
            with pytest.raises(CodeModeProtocolError, match="conversation"):
                resumes.resume_sync(paused, True)
            assert value_of(resumes.resume_sync(paused, True, CALL)) == 1, surface


def test_true_approves_and_false_denies_every_pending_approval():
    paid: list[Any] = []
    pay = Tool("pay", execute=paid.append, needs_approval=True)
    code_mode = create_code_mode_tool([pay], PAUSING)
    program = "await Promise.all([tools.pay(1), tools.pay(2)]); return 'paid'"
    paused = code_mode.execute_sync(program)
    assert len(paused.requests) == 2
    assert code_mode.resume_sync(paused, True) == "paid"
    assert sorted(paid) == [1, 2]
    with pytest.raises(CodeModeToolApprovalDeniedError):
        code_mode.resume_sync(code_mode.execute_sync(program), False)
    assert len(paid) == 2


def test_true_is_refused_where_another_kind_of_request_waits():
    def ask() -> Any:
        request_interrupt({"kind": "sign-in"})

    tools = [Tool("ask", execute=ask), Tool("pay", execute=lambda _: 1, needs_approval=True)]
    code_mode = create_code_mode_tool(tools, PAUSING)
    paused = code_mode.execute_sync("return await Promise.all([tools.pay(1), tools.ask()])")
    with pytest.raises(CodeModeProtocolError, match=r"'ask' waits for another kind of answer.*resolutions="):
        code_mode.resume_sync(paused, True)
    paused = code_mode.execute_sync("return await tools.pay(1)")
    with pytest.raises(CodeModeProtocolError, match="not both"):
        code_mode.resume_sync(paused, True, resolutions={paused.interrupt_id: {"approved": True}})


def test_a_context_is_a_frozen_value_and_nothing_else_is_taken_for_one():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CALL.tool_call_id = "other"  # pyright: ignore[reportAttributeAccessIssue]
    code_mode = create_code_mode_tool([])
    for wrong in ("call_1", {"tool_call_id": "call_1"}, 5):
        with pytest.raises(ValueError, match=r"call must be a CallContext or None.*CallContext\(tool_call_id"):
            code_mode.execute_sync("return 1", wrong)  # pyright: ignore[reportArgumentType]
    for field in ({"tool_call_id": 5}, {"messages": 5}, {"conversation_id": ""}, {"clock_ms": 5}, {"started_at_ms": 0}):
        with pytest.raises(ValueError, match=next(iter(field))):
            CallContext(**field)


def test_sync_forms_work_while_a_loop_runs():
    async def main() -> Any:
        await asyncio.sleep(0)
        return create_code_mode_tool([]).execute_sync("return 2")

    assert within(main()) == 2


def test_the_state_of_a_call_stands_in_for_that_of_the_options():
    own: dict[str, Any] = {}
    pair = create_exec_wait_tools([], settings={"state": {}})
    code_mode = create_code_mode_tool([], {"state": {}})
    call = CallContext(conversation_id="thread 1", state=own)
    code_mode.execute_sync("await state.set('a', 1)", call)
    assert pair.exec.execute_sync("await state.set('b', 2); return await state.get('a')", call)["value"] == 1
    within(pair.aclose())
    assert own == {"a": 1, "b": 2}
