"""The error of an API has the same fields for programs of every surface, also after a pause."""

from __future__ import annotations

import pytest
from four_surfaces import SURFACES, answer_on
from suite import each_row

from codemode import CodeModeError, Interrupt, Tool, create_code_mode_tool
from codemode.errors import CodeModeHttpError

DETAILS = {"status": 429, "body": {"message": "slow down", "rows": [1, None]}, "retryAfterMs": 1_000}


def failing(_input: object) -> None:
    raise CodeModeHttpError("GET /a failed: 429", details=DETAILS)


PAY = Tool("pay", execute=failing, input_schema={"type": "object"})
CAUGHT = "try { await @pay({}); } catch (e) { return [e.message, e.status, e.body, e.retryAfterMs]; }"


@each_row("surface", SURFACES)
def test_a_program_reads_what_the_api_answered(surface: str):
    program = CAUGHT.replace("return", "result =") if surface == "modules" else CAUGHT
    if surface == "modules":
        program = f"let result; {program} export default result;"
    answer = answer_on(surface, [PAY], program)
    assert answer.value == ["GET /a failed: 429", 429, DETAILS["body"], 1_000], answer.whole


def test_the_host_has_the_details_of_an_error_that_ends_the_program():
    with pytest.raises(CodeModeHttpError) as caught:
        create_code_mode_tool([PAY]).execute_sync({"js": "await tools.pay({})"})
    assert {key: caught.value.details[key] for key in DETAILS} == DETAILS
    assert caught.value.code == "CODE_MODE_HTTP_ERROR"


def test_the_fields_are_those_of_the_first_time_after_a_pause():
    asked = Tool("ask", execute=lambda _input: "done", needs_approval=True)
    code_mode = create_code_mode_tool([PAY, asked], {"approval": {"mode": "interrupt"}})
    js = "const e = await tools.pay({}).catch((e) => e); return [await tools.ask({}), e.status, e.body, e.name];"
    pause = code_mode.execute_sync({"js": js})
    assert isinstance(pause, Interrupt)
    value = code_mode.resume_sync(pause, {"approved": True})
    assert value == ["done", 429, DETAILS["body"], "CodeModeHttpError"]


def test_fields_that_are_no_small_json_are_left_out_and_the_message_stays():
    def huge(_input: object) -> None:
        raise CodeModeHttpError("GET /a failed: 500", details={"status": 500, "body": "x" * 100_000})

    js = "try { await tools.pay({}); } catch (e) { return [e.message, e.body === undefined]; }"
    assert create_code_mode_tool([Tool("pay", execute=huge)]).execute_sync({"js": js}) == ["GET /a failed: 500", True]
    assert issubclass(CodeModeHttpError, CodeModeError)
