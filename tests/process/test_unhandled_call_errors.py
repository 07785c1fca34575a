"""A successful program whose calls failed without a handler keeps its value, and the answer names the failed calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from four_surfaces import SURFACES, answer_on
from waiting import within

from codemode import (
    CallContext,
    CodeModeToolError,
    ModuleServer,
    ProgramLibrary,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
)
from codemode.stores import MemoryInterruptStore


async def send(to: str) -> str:
    raise CodeModeToolError(f"mailbox {to} is full")


async def send_late(to: str) -> str:
    await asyncio.sleep(0.02)
    raise CodeModeToolError(f"mailbox {to} is full")


async def pause() -> str:
    await asyncio.sleep(0.05)
    return "done"


TOOLS = [Tool.from_function(send), Tool.from_function(send_late), Tool.from_function(pause)]
BACKGROUND = "['a', 'b'].forEach(async (to) => { await @send({ to }); }); await @pause({});"
HANDLED = (
    "['a', 'b'].forEach(async (to) => { try { await @send({ to }); } catch {} }); await @pause({});",
    "['a', 'b'].forEach((to) => { @send({ to }).catch(() => 0); }); await @pause({});",
    "['a', 'b'].forEach((to) => { @send({ to }).then(() => 1, () => 0); }); await @pause({});",
    "['a', 'b'].forEach(async (to) => { await Promise.allSettled([@send({ to })]); }); await @pause({});",
    "['a'].forEach(async (to) => { try { await @send({ to }); } finally { return 0; } }); await @pause({});",
    "const p = @send({ to: 'a' }); p['then'](() => 1, () => 0); await @pause({});",
    "await Promise.race([@send({ to: 'a' }), 1].reverse()); await @pause({});",
    "await Promise.any([@send({ to: 'a' }), 1]); await @pause({});",
)


def run_with_warnings(program: str, tools: Any = None) -> tuple[Any, list[str]]:
    """Return the value and the warnings of a program on exec."""
    pair = create_exec_wait_tools(tools or TOOLS, {"waitTimeoutMs": 60_000})
    result = pair.exec.execute_sync({"code": program.replace("@", "tools.")})
    return result["value"], result["telemetry"].get("warnings", [])


def read_warnings(surface: str, answer: Any) -> str:
    """Return what an answer says next to its value."""
    return "\n".join(answer.whole["telemetry"].get("warnings", [])) if surface == "exec" else answer.text


@pytest.mark.parametrize("surface", SURFACES)
def test_failures_in_background_callbacks_are_named_next_to_the_value(surface: str):
    end = "export default 'all sent'" if surface == "modules" else "return 'all sent'"
    answer = answer_on(surface, TOOLS, f"{BACKGROUND} {end}")
    assert answer.value == "all sent"
    warnings = read_warnings(surface, answer)
    assert "the program ended without awaiting every call" in warnings
    for to in ("a", "b"):
        assert f'send({{"to":"{to}"}}): mailbox {to} is full' in warnings


def test_model_output_of_code_mode_has_the_value_and_the_warning():
    for value, text in (("'all sent'", "all sent"), ("{ sent: [1, 2] }", '{"sent":[1,2]}'), ("null", "null")):
        answer = answer_on("codeMode", TOOLS, f"{BACKGROUND} return {value}")
        assert answer.text.startswith(f"{text}\n\nthe program ended without awaiting every call."), answer


def test_failures_in_background_callbacks_are_notes_of_the_trace():
    traces: list[Any] = []
    code_mode = create_code_mode_tool(TOOLS, {"lifecycle": {"on_trace": traces.append}})
    assert code_mode.execute_sync(f"{BACKGROUND} return 'all sent'".replace("@", "tools.")) == "all sent"
    (note,) = traces[0].notes or ()
    assert "mailbox a is full" in note


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("program", HANDLED)
def test_handled_errors_cause_no_warning(surface: str, program: str):
    end = "export default 1" if surface == "modules" else "return 1"
    answer = answer_on(surface, TOOLS, f"{program} {end}")
    assert answer.value == 1, answer
    assert "is full" not in read_warnings(surface, answer)


def test_errors_that_a_saved_program_handles_cause_no_warning():
    async def scenario() -> list[Any]:
        library = ProgramLibrary(MemoryInterruptStore())
        handled = "try { await @({ to: 'a' }) } catch { return 1 }"
        await library.save("safe", handled.replace("@", "tools.send"))
        await library.save("module", "import { send } from '@codemode/servers/box';\n" + handled.replace("@", "send"))
        code_mode = create_code_mode_tool(TOOLS, library=library)
        value = await code_mode.execute("return await saved.safe({})", CallContext(tool_call_id="a"))
        run = create_modules_tool([ModuleServer("box", TOOLS)], library=library)
        code = "import { module as f } from '@codemode/saved'; export default await f({})"
        response = await run.execute({"code": code})
        return [value, code_mode.to_model_output(value, tool_call_id="a")["value"], response["result"], response]

    *values, response = within(scenario())
    assert values == [1, 1, 1]
    assert response["diagnostics"] == []


def test_errors_returned_to_a_script_cause_no_warning():
    script = "const a = await callTool('send', { to: 'a' }, { throwOnError: false }); return a.success"
    result = create_code_call_tools(TOOLS).execute_sync({"script": script})
    assert (result["result"], result.get("warnings")) == (False, None)


def test_exec_names_calls_that_fail_after_the_program_returned():
    for program in (
        "['a'].forEach(async (to) => { await @send_late({ to }); }); return 1",
        "@send_late({ to: 'a' }); return 1",
        "setTimeout(() => { @send_late({ to: 'a' }); }, 1); await @pause({}); return 1",
    ):
        value, (warning,) = run_with_warnings(program)
        assert value == 1
        assert warning == (
            "the program ended without awaiting every call.\n"
            'Failed: host:core:send_late({"to":"a"}): mailbox a is full\n'
            "Await each call, for instance with Promise.all."
        ), program


def test_exec_names_a_call_without_any_handler_in_a_program_that_handles_others():
    program = "try { await @send({ to: 'a' }) } catch {} @send({ to: 'b' }); return 1"
    value, (warning,) = run_with_warnings(program)
    assert value == 1
    assert "mailbox b is full" in warning
    assert "mailbox a is full" not in warning


def test_successful_calls_in_background_callbacks_cause_no_warning():
    assert run_with_warnings("[1].forEach(async () => { await @pause({}); }); return 1") == (1, [])


def test_words_in_inputs_do_not_hide_a_failure():
    program = "['any questions, then?'].forEach(async (to) => { await @send({ to }); }); return 1"
    value, warnings = run_with_warnings(program)
    assert (value, len(warnings)) == (1, 1)
