"""What a model reads of a program that failed is safe to act on, on every surface."""

from __future__ import annotations

from typing import Any

import pytest
from four_surfaces import SURFACES, answer_on

from codemode import CodeModeToolError, Tool

ROWS = [{"id": n, "name": f"name {n}"} for n in range(3)]


def pay(order: str) -> dict[str, str]:
    return {"receipt": f"r-{order}"}


def lock(order: str) -> None:
    raise CodeModeToolError(f"order {order} is locked")


TOOLS = [
    Tool.from_function(pay),
    Tool.from_function(lock),
    Tool("find", execute=lambda: ROWS, annotations={"readOnlyHint": True}),
    Tool("refund", execute=lambda value: value, needs_approval=True),
]
DENYING = {
    "approval": {
        "mode": "callback",
        "on_approval_required": lambda _request: {"approved": False, "reason": "too dear"},
        "show_denial_reason": True,
    }
}
FAILS = "; [].nothing.here"


def line_of(text: str, beginning: str) -> str:
    (line,) = [line for line in text.split("\n") if line.startswith(beginning)]
    return line


@pytest.mark.parametrize("surface", SURFACES)
def test_a_failure_lists_completed_calls_with_input_and_result(surface: str):
    answer = answer_on(surface, TOOLS, "await @pay({ order: 'a' }); await @pay({ order: 'b' })" + FAILS)
    done = line_of(answer.text, "Already done, do not repeat: ")
    for order in "ab":
        assert f'pay({{"order":"{order}"}}) -> {{"receipt":"r-{order}"}}' in done
    assert "send the whole program again" not in answer.text


@pytest.mark.parametrize("surface", SURFACES)
def test_a_failure_lists_read_only_calls_separately(surface: str):
    answer = answer_on(surface, TOOLS, "const rows = await @find()" + FAILS)
    assert '{"id":2,"name":"name 2"}' in line_of(answer.text, "Done, only read: ")
    assert "do not repeat" not in answer.text


@pytest.mark.parametrize("surface", SURFACES)
def test_a_failure_separates_denied_and_failed_calls(surface: str):
    program = "await @refund({ order: 'a' }).catch(() => 0); await @lock({ order: 'b' }).catch(() => 0)"
    answer = answer_on(surface, TOOLS, program + FAILS, settings=DENYING)
    denied, failed = line_of(answer.text, "Denied, not done: "), line_of(answer.text, "Failed: ")
    assert 'refund({"order":"a"})' in denied
    assert "too dear" in denied
    assert failed.endswith('lock({"order":"b"}): order b is locked')
    assert "Already done" not in answer.text


@pytest.mark.parametrize("surface", SURFACES)
def test_a_call_that_took_too_long_may_have_happened(surface: str, hanging: Tool):
    limits = {"execution_policy": {"tool_timeout_ms": 50}}
    program = "await @hang({ order: 'a' }).catch(() => 0)" + FAILS
    answer = answer_on(surface, [hanging], program, settings=limits)
    assert 'hang({"order":"a"})' in line_of(answer.text, "May or may not have happened, find out before repeating: ")


@pytest.mark.parametrize("surface", ["codeMode", "exec"])
def test_there_is_one_hint(surface: str):
    for program in (
        "await @pay({ order: 'a' })" + FAILS,
        "await @lock({ order: 'b' })",
        "undefinedName",
        "tools.nope.nope()",
        "return () => 1; }",
    ):
        assert answer_on(surface, TOOLS, program).text.count("Hint: ") == 1, program


def test_the_hint_refers_to_the_error_of_the_tool():
    text = answer_on("codeMode", TOOLS, "await @lock({ order: 'b' })").text
    assert (
        line_of(text, "Hint: ") == "Hint: The tool says what is wrong. Change the call accordingly, or do without it."
    )


@pytest.mark.parametrize("surface", SURFACES)
def test_many_calls_and_large_texts_are_shortened_and_counted(surface: str):
    large = Tool("large", execute=lambda value: "y" * 20_000)
    program = "for (let n = 0; n < 90; n++) await @large({ n, text: 'x'.repeat(5000) })"
    options: Any = {"vm": {"allowLoops": True}} if surface == "CodeCall" else None
    answer = answer_on(surface, [large], program + FAILS, options, settings=None)
    done = line_of(answer.text, "Already done, do not repeat: ")
    assert len(done) < 3500
    assert 'large({"n":0,' in done
    assert "more (" in done


@pytest.mark.parametrize("surface", ["codeMode", "exec"])
def test_large_results_of_a_failed_program_are_kept_in_state(surface: str):
    rows = [{"id": n, "name": "x" * 50} for n in range(100)]
    find = Tool("find", execute=lambda: rows, annotations={"readOnlyHint": True})
    report = Tool("report", execute=lambda: {"text": "y" * 5000})
    state: dict[str, Any] = {}
    answer = answer_on(surface, [find, report], "await @find(); await @report()" + FAILS, settings={"state": state})
    assert '(the whole: await state.get("result:1"))' in line_of(answer.text, "Done, only read: ")
    assert '(the whole: await state.get("result:2"))' in line_of(answer.text, "Already done, do not repeat: ")
    assert state == {"result:1": rows, "result:2": {"text": "y" * 5000}}


@pytest.fixture
def hanging() -> Tool:
    import asyncio

    async def hang(_value: Any) -> None:
        await asyncio.Event().wait()

    return Tool("hang", execute=hang)
