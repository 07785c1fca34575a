"""A face whose errors have codes: each is decided where the error arises, and a resume says the same of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pausing import PAUSING, Spy, through_json
from strict_surface import go_on_strict, run_strict, strict
from suite import each_row
from waiting import within

from codemode import CodeModeToolApprovalDeniedError, CodeModeToolError, Tool, run_code_mode

KEYED = {**PAUSING, "continuation": {"keys": "a key of this test"}}
OK, NO = {"approved": True}, {"approved": False, "reason": "too much"}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def raising(error: BaseException) -> Tool:
    def fail(_value: Any) -> None:
        raise error

    return Tool("fail", execute=fail)


async def hang(_value: Any) -> None:
    await asyncio.Event().wait()


def named(name: str, argument: str = "{}") -> str:
    """A call that no check before the run knows of."""
    return f"await tools[{list(name)!r}.join('')]({argument})"


OWN = CodeModeToolError("no more", code="OUT_OF_STOCK", details={"left": 0})
CASES: dict[str, tuple[str, list[Any], dict[str, Any], dict[str, Any]]] = {
    "unknown": (named("nothing"), [], {}, {"code": "Unknown", "toolName": "nothing"}),
    "hidden": (named("hidden_one"), [Tool("hidden_one", execute=hang)], {}, {"code": "Unknown"}),
    "denied": (named("other"), [Tool("other", execute=hang)], {}, {"code": "Denied", "toolName": "other"}),
    "input": (named("fail", "{n: 'x'}"), [Tool("fail", execute=hang, input_schema=NUMBER)], {}, {"code": "Wrong"}),
    "large input": (
        named("fail", "'x'.repeat(99)"),
        [Tool("fail", execute=hang)],
        {"execution_policy": {"max_tool_input_bytes": 50}},
        {"code": "Wrong", "toolInput": {"bytes": 101}},
    ),
    "output": (
        named("fail"),
        [Tool("fail", execute=lambda: "x", output_schema=NUMBER, output_validation="strict")],
        {},
        {"code": "Broken"},
    ),
    "no json": (named("fail"), [Tool("fail", execute=lambda: object())], {}, {"code": "Broken"}),
    "time": (
        named("fail"),
        [Tool("fail", execute=hang)],
        {"execution_policy": {"tool_timeout_ms": 50}},
        {"code": "Slow"},
    ),
    "nobody": (named("fail"), [Tool("fail", execute=hang, needs_approval=True)], {}, {"code": "Nobody"}),
    "refused": (
        named("fail", "{n: 1}"),
        [Tool("fail", execute=hang, needs_approval=True)],
        {"approval": {"on_approval_required": lambda _request: "denied"}},
        {"code": "No", "toolInput": {"n": 1}},
    ),
    "full": (
        named("fail"),
        [Tool("fail", execute=lambda: "x" * 9_000)],
        {"execution_policy": {"max_ledger_bytes": 8_000}},
        {"code": "Full"},
    ),
    "own": (
        named("fail", "[1]"),
        [raising(OWN)],
        {},
        {
            "code": "OUT_OF_STOCK",
            "message": "no more",
            "toolName": "fail",
            "details": {"left": 0},
            "toolInput": [1],
        },
    ),
    "plain": (named("fail"), [raising(CodeModeToolError("sorry"))], {}, {"code": "Failed", "message": "sorry"}),
    "denied by itself": (named("fail"), [raising(CodeModeToolApprovalDeniedError("x"))], {}, {"code": "Failed"}),
    "host": (named("fail"), [raising(OSError("/etc/shadow"))], {}, {"code": "Failed", "message": "the tool failed"}),
    "declared": (named("fail"), [Tool("fail", execute=None)], {}, {"code": "Failed"}),
}
ALLOWED = {"allowedTools": ["fail", "refund", "nothing", "hidden_one"]}


@each_row("case", CASES)
def test_the_call_whose_error_ends_a_program_is_told(case):
    js, tools, options, expected = CASES[case]
    outcome = within(run_strict(js, tools, options, given=ALLOWED))
    assert outcome.status == "failed"
    call = outcome.error.details["call"]
    assert {key: call[key] for key in expected} == expected
    assert "shadow" not in str(call)


@each_row("case", CASES)
def test_a_program_can_read_the_code(case):
    js, tools, options, expected = CASES[case]
    caught = f"try {{ {js} }} catch (error) {{ return [error.name, error.code, error.message] }}"
    name, code, message = within(run_strict(caught, tools, options, given=ALLOWED)).value
    assert (name, code) == ("Error", expected["code"])
    assert message == expected.get("message", message)


@pytest.mark.parametrize("case", ["own", "input", "host", "unknown", "time"])
def test_a_resume_says_the_same(case):
    """The call fails, the program pauses, and goes on to let the very same error end it."""
    js, tools, options, _ = CASES[case]
    spy = Spy()
    tools = [*tools, spy.guarded()]
    settings = {**KEYED, **options}
    late = f"let kept; try {{ {js} }} catch (error) {{ kept = error }} PAUSE throw kept"
    at_once = within(run_strict(late.replace("PAUSE", ""), tools, settings, given=ALLOWED)).error
    paused = within(run_strict(late.replace("PAUSE", "await tools.refund(1);"), tools, settings, given=ALLOWED))
    interrupt = through_json(paused.interrupt)
    again = within(go_on_strict(interrupt, tools, OK, options=settings))
    repeated = within(go_on_strict(interrupt, tools, OK, options=settings))
    assert again.error.details["call"] == at_once.details["call"]
    assert (repeated.is_replayed, repeated.error.details["call"]) == (True, at_once.details["call"])
    assert [name for name, _ in spy.ran] == ["refund"]


def test_answers_of_people_have_codes_too():
    spy = Spy()
    tools = [spy.guarded()]
    js = "await tools.refund(7)"
    interrupt = within(run_strict(js, tools, KEYED)).interrupt
    denied = within(go_on_strict(interrupt, tools, NO, options=KEYED)).error.details["call"]
    assert (denied["code"], denied["toolName"], denied["toolInput"]) == ("No", "refund", 7)
    assert "too much" not in denied["message"]


@pytest.mark.parametrize("detail", ["hidden", "message"])
def test_an_outcome_that_a_person_tells_is_that_of_the_tool(passing_time, detail):
    async def late(value):
        passing_time.skip(61)
        await hang(value)

    limits = {**KEYED, "execution_policy": {"timeout_ms": 60_000}}
    recovery = within(run_strict("await tools.hang(1)", [Tool("hang", execute=late)], limits)).error.recovery
    profile = strict(detail=detail)
    answer = {"error": {"message": "it said no"}}
    call = within(go_on_strict(recovery, [], answer, options=KEYED, profile=profile)).error.details["call"]
    assert call == {"code": "Failed", "message": "it said no", "toolName": "hang", "toolInput": 1}


def test_the_text_of_host_errors_is_shown_where_the_face_shows_it_and_a_resume_shows_as_much():
    tools = [raising(OSError("no room in /var/lib/x on line 3")), Spy().guarded()]
    js = "let kept; try { await tools.fail(1) } catch (error) { kept = error } await tools.refund(1); throw kept"
    interrupt = within(run_strict(js, tools, KEYED, profile=strict(detail="message"))).interrupt
    error = within(go_on_strict(interrupt, tools, OK, options=KEYED)).error
    assert error.details["call"]["message"] == "no room in [path]"


def test_an_error_that_is_raised_again_tells_nothing_of_the_run_before():
    tools = [raising(OWN)]
    within(run_strict("await tools.fail({secret: 1})", tools))
    call = within(run_strict("await tools.fail({})", tools)).error.details["call"]
    assert call["details"] == {"left": 0}


def test_codemode_tells_what_it_always_told():
    js = "try { await tools.fail(1) } catch (error) { return Object.getOwnPropertyNames(error).sort() }"
    names = within(run_code_mode(js, [raising(CodeModeToolError("m", code="OWN", details={"a": 1}))]))
    assert names == ["code", "message", "name", "stack"]
    with pytest.raises(CodeModeToolError) as caught:
        within(run_code_mode("await tools.fail(1)", [raising(CodeModeToolError("m", code="OWN"))]))
    assert "call" not in caught.value.details


JUDGED = {"before": lambda _call: {"card": "***"}}
TO_ONE_WITH_A_CANARY = named("fail", "{card: 'CANARY'}")


async def refuse(_value: Any) -> None:
    raise OWN


@pytest.mark.parametrize(
    "approval",
    [None, {"on_approval_required": lambda _request: "denied"}, {"on_approval_required": None}, {"mode": "interrupt"}],
    ids=["runs and fails", "denied", "nobody to ask", "denied after a pause"],
)
def test_of_a_judged_input_what_was_let_through_is_told(approval):
    options = {**KEYED, "pipeline": JUDGED, "approval": approval or {}}
    tools = [Tool("fail", execute=refuse, needs_approval=approval is not None)]
    outcome = within(run_strict(TO_ONE_WITH_A_CANARY, tools, options))
    if outcome.interrupt is not None:
        outcome = within(go_on_strict(through_json(outcome.interrupt), tools, NO, options=options))
    call = outcome.error.details["call"]
    assert "CANARY" not in str(call)
    assert call["toolInput"] == {"card": "***"}


@pytest.mark.parametrize("pipeline", [JUDGED, {}], ids=["judged", "as it is"])
def test_a_replay_says_as_much_of_the_input_of_a_call_that_was_denied(pipeline):
    """It is denied, the program pauses for another, and the very error of the first ends it then."""
    options = {**KEYED, "pipeline": pipeline}
    spy = Spy()
    tools = [Tool("fail", execute=refuse, needs_approval=True), spy.guarded()]
    js = (
        f"let kept; try {{ {TO_ONE_WITH_A_CANARY} }} catch (error) {{ kept = error }} await tools.refund(1); throw kept"
    )
    first = within(run_strict(js, tools, options)).interrupt
    second = within(go_on_strict(through_json(first), tools, NO, options=options)).interrupt
    call = within(go_on_strict(through_json(second), tools, OK, options=options)).error.details["call"]
    assert call["toolInput"] == {"card": "***" if pipeline else "CANARY"}
    assert [name for name, _ in spy.ran] == ["refund"]


@pytest.mark.parametrize("refused", ["by its schema", "by the hook"])
def test_of_an_input_that_was_not_let_through_nothing_is_told(refused):
    def before(_call: Any) -> None:
        raise OWN

    schema = {"type": "object", "properties": {"card": {"type": "integer"}}}
    tool = Tool("fail", execute=refuse, input_schema=schema if refused == "by its schema" else None)
    call = within(run_strict(TO_ONE_WITH_A_CANARY, [tool], {"pipeline": {"before": before}})).error.details["call"]
    assert "toolInput" not in call
    assert "CANARY" not in str(call)
