"""What a program is told of a call that failed: by its face's codes where it has them, else as ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.errors import (
    CALL_TIMEOUT,
    HOST_TOOL_ERROR,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeToolApprovalDeniedError,
    CodeModeToolError,
    to_guest_error_fields,
)
from codemode.profile import HostErrorRules
from codemode.protocol.call_status import ERROR_STATUSES, get_call_status
from codemode.protocol.guest_errors import (
    MAX_DETAILS_BYTES,
    describe_failed_call,
    make_rejection,
    read_error_fields,
    restore_host_error,
)
from codemode.protocol.ledger import LedgerEntry, Rejected
from codemode.trace.trace import Trace

CODES = {"execution": "FAILED", "validation": "WRONG", "timeout": "SLOW", "limit": "FULL"}
TOLD, PLAIN = HostErrorRules(codes=CODES), HostErrorRules()
OPEN = HostErrorRules(codes=CODES, detail="message")
ENTRY = LedgerEntry(1, "tool", "pay", '{"amount":1}', tool_call_id="outer:tool-1")


def because(reason: str, error: CodeModeError) -> CodeModeError:
    error.reason = reason
    return error


def hidden(text: str) -> CodeModeToolError:
    error = CodeModeToolError("tool 'pay' failed", code=HOST_TOOL_ERROR, details={"tool_name": "pay"})
    error.__cause__ = OSError(text)
    return error


def fields(error: CodeModeError, told: HostErrorRules = TOLD, **how: Any) -> dict[str, Any]:
    text = make_rejection(ENTRY, error, told, **how).fields_json
    assert text is not None
    return json.loads(text)


@each_row(
    "error, is_raised, code",
    [
        (because("validation", CodeModeToolError("m")), False, "WRONG"),
        (because("validation", CodeModeToolError("m", code="OWN")), False, "WRONG"),
        (because("timeout", CodeModeToolError("m", code=CALL_TIMEOUT)), False, "SLOW"),
        (because("a reason without a code", CodeModeToolError("m")), False, "FAILED"),
        (CodeModeToolError("m"), False, "FAILED"),
        (CodeModeToolError("m"), True, "FAILED"),
        (CodeModeToolError("m", code="OWN"), True, "OWN"),
        (because("validation", CodeModeToolError("m")), True, "FAILED"),
        (because("validation", CodeModeToolError("m", code="OWN")), True, "OWN"),
        (CodeModeToolApprovalDeniedError("m"), True, "FAILED"),
        (CodeModeSerializationError("m"), False, "FAILED"),
        (hidden("/secret"), False, "FAILED"),
        (CodeModeToolError("m", code=HOST_TOOL_ERROR), True, "FAILED"),
    ],
)
def test_the_code_is_that_of_the_reason_or_the_tools_own(error, is_raised, code):
    assert fields(error, is_raised=is_raised)["code"] == code


@pytest.mark.parametrize("error", [CodeModeToolError("m", code="OWN", details={"a": 1}), hidden("x")])
def test_a_face_without_codes_tells_what_it_always_told(error):
    for is_raised in (True, False):
        assert make_rejection(ENTRY, error, PLAIN, is_raised=is_raised) == Rejected(*to_guest_error_fields(error))


def test_only_calls_of_tools_have_fields():
    entry = ENTRY._replace(kind="fetch")
    assert make_rejection(entry, CodeModeToolError("m"), TOLD) == Rejected(
        *to_guest_error_fields(CodeModeToolError("m"))
    )


def test_what_host_code_raised_is_hidden_unless_the_face_shows_it():
    error = hidden("no /etc/shadow on line 7")
    assert fields(error) == {"code": "FAILED", "message": "the tool failed", "toolName": "pay"}
    assert fields(error, OPEN)["message"] == "no [path]"
    assert fields(hidden("/etc/shadow"), OPEN)["message"] == "the tool failed"


def test_a_cause_that_cannot_be_read_is_hidden_all_the_same():
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("/secret")

    error = hidden("")
    error.__cause__ = Unreadable()
    assert "/secret" not in json.dumps(fields(error, OPEN))


@pytest.mark.parametrize("details", [{"a": [1, None, "\ud800"]}, {"when": 1.5, "nested": {"b": True}}])
def test_what_a_tool_says_in_its_details_is_told(details):
    told = fields(CodeModeToolError("m", details=details), is_raised=True)
    assert told["details"] == details
    assert "details" not in fields(CodeModeToolError("m", details=details), is_raised=False)
    assert "details" not in fields(CodeModeError("m", details=details), is_raised=True)
    assert "details" not in fields(CodeModeToolError("m", code=HOST_TOOL_ERROR, details=details), is_raised=True)


class Broken:
    def __iter__(self) -> Any:
        raise RuntimeError


@each_row("value", [object(), Broken(), "x" * MAX_DETAILS_BYTES, [0] * 10_000, float])
def test_details_that_are_no_small_json_are_left_out(value):
    told = fields(CodeModeToolError("m", details={"value": value}), is_raised=True)
    assert told == {"code": "FAILED", "message": "m", "toolName": "pay"}


def test_what_the_end_of_another_invocation_put_there_is_left_out():
    error = CodeModeToolError("m", details={"mine": 1, "line": 3, "stack": "x", "call": {"toolInput": "of another"}})
    assert fields(error, is_raised=True)["details"].keys() == {"mine", "line", "stack", "call"}
    error.trace = object.__new__(Trace)
    assert fields(error, is_raised=True)["details"] == {"mine": 1}


def test_the_frame_tells_the_fields_and_nothing_else():
    outcome = make_rejection(ENTRY, CodeModeToolError("m", code="OWN", details={"a": 1}), TOLD, is_raised=True)
    frame = ENTRY._replace(outcome=outcome, now_ms=5).make_delivery_message().to_frame()
    told = {"code": "OWN", "message": "m", "toolName": "pay", "details": {"a": 1}}
    error = {"name": "Error", "message": "m", "code": "OWN", "fields": told}
    assert json.loads(frame[5:]) == {"id": 1, "now": 5, "error": error}


def test_the_host_knows_the_error_again():
    late = because("timeout", CodeModeToolError("m", code=CALL_TIMEOUT))
    outcome = make_rejection(ENTRY, late, TOLD)
    assert get_call_status(outcome, ERROR_STATUSES) == "unknown"
    assert (type(restore_host_error(outcome)), restore_host_error(outcome).code) == (CodeModeToolError, CALL_TIMEOUT)
    said = make_rejection(ENTRY, CodeModeToolApprovalDeniedError("no", details={"a": 1}), TOLD, is_raised=True)
    assert (type(restore_host_error(said)), restore_host_error(said).details) == (
        CodeModeToolApprovalDeniedError,
        {"a": 1},
    )


@each_row(
    "changes, shown",
    [
        ({}, {"toolInput": {"amount": 1}}),
        ({"executed_input_json": '{"amount":2}'}, {"toolInput": {"amount": 2}}),
        ({"input_json": None}, {}),
        ({"input_json": "null"}, {"toolInput": None}),
        ({"input_json": None, "input_bytes": 5_000_000}, {"toolInput": {"bytes": 5_000_000}}),
        ({"input_json": '"' + "x" * 8190 + '"'}, {"toolInput": "x" * 8190}),
        ({"input_json": '"' + "x" * 8191 + '"'}, {"toolInput": {"bytes": 8193}}),
        ({"input_json": '"' + "\u00fc" * 4096 + '"'}, {"toolInput": {"bytes": 8194}}),
    ],
)
def test_the_call_that_ended_a_program_is_told_with_its_input(changes, shown):
    outcome = make_rejection(ENTRY, CodeModeToolError("m"), TOLD)
    call = describe_failed_call(ENTRY._replace(**changes, outcome=outcome))
    assert call == {"code": "FAILED", "message": "m", "toolName": "pay", **shown}
    assert describe_failed_call(ENTRY._replace(outcome=make_rejection(ENTRY, CodeModeToolError("m"), PLAIN))) is None
    assert describe_failed_call(ENTRY) is None


def test_a_hidden_input_is_told_as_it_ran_or_not_at_all():
    entry = ENTRY._replace(outcome=make_rejection(ENTRY, CodeModeToolError("m"), TOLD))
    assert "toolInput" not in describe_failed_call(entry, hides_input=True)
    ran = entry._replace(executed_input_json='{"amount":"*"}')
    assert describe_failed_call(ran, hides_input=True)["toolInput"] == {"amount": "*"}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.text(), st.text(), st.dictionaries(st.text(), json_values))
def test_fields_are_read_as_they_were_written(message, code, details):
    error = CodeModeToolError(message, code=code, details=details)
    outcome = make_rejection(ENTRY, error, TOLD, is_raised=True)
    assert outcome.fields_json is not None
    read_error_fields(outcome.fields_json)


@each_row("text",
    ["", "{", "[]", "1", "null", "{}", '{"code":"c","message":"m"}', '{"code":"c","message":"m","toolName":5}',
     '{"code":"c","message":null,"toolName":"t"}', '{"code":"c","message":"m","toolName":"t","more":1}'])  # fmt: skip
def test_other_fields_are_refused(text):
    with pytest.raises(CodeModeProtocolError):
        read_error_fields(text)
