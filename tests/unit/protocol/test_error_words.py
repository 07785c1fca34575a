"""The public fields of errors in a face with classes of its own: bounded, kept, read back strictly."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invocation_driver import SETTINGS
from invocation_events import assert_violation, call, error_of, machine, threw
from suite import each_row

from codemode.errors import CodeModeProtocolError, CodeModeToolError
from codemode.profile import HostErrorRules
from codemode.protocol import events
from codemode.protocol.continuation import Continuation
from codemode.protocol.guest_errors import (
    MAX_FIELDS_BYTES,
    REQUIRED_FIELDS,
    make_rejection,
    read_error_fields,
    restore_host_error,
)
from codemode.protocol.ledger import Ledger, LedgerEntry, Rejected
from codemode.protocol.messages import TurnEnded

CALL = LedgerEntry(1, "tool", "shop.echo", "{}", tool_call_id="outer:tool-1")
QUESTION = LedgerEntry(1, "catalog", "getTool", "[]")
ERROR = CodeModeToolError("no", details={"secret": 1})
GOOD = {"class": "ToolCallError", "message": "no", "code": "C", "hint": "h"}


def saying(**fields: Any) -> HostErrorRules:
    return HostErrorRules(error_fields=lambda *_: {**GOOD, **fields})


def told(entry: LedgerEntry, errors: HostErrorRules, **more: Any) -> Any:
    outcome = make_rejection(entry, ERROR, errors, **more)
    assert (outcome.name, outcome.message, outcome.code) == ("CodeModeToolError", "no", "CODE_MODE_TOOL_ERROR")
    assert outcome.fields_json is not None
    assert len(outcome.fields_json) <= 6 * MAX_FIELDS_BYTES
    return read_error_fields(outcome.fields_json)


@pytest.mark.parametrize("entry", [CALL, QUESTION])
@pytest.mark.parametrize("is_raised", [False, True])
def test_a_face_says_the_fields_of_calls_and_questions(entry: LedgerEntry, is_raised: bool):
    asked: list[Any] = []

    def words(*about: Any) -> dict[str, Any]:
        asked.append(about)
        return {**GOOD, "expected": {"type": "object"}, "example": [1, None, 2**70]}

    fields = told(entry, HostErrorRules(error_fields=words), is_raised=is_raised)
    assert fields == {**GOOD, "expected": {"type": "object"}, "example": [1, None, 2**70]}
    assert asked == [(ERROR, entry.kind, entry.name, is_raised)]


def test_a_fetch_has_no_words():
    entry = LedgerEntry(1, "fetch", "fetch", "{}")
    assert make_rejection(entry, ERROR, saying()).fields_json is None


@each_row("large", ["x" * 10**6, ["x" * 100] * 10_000, [[]] * 6_000, {"a": "\u20ac" * 40_000}, object()])
def test_what_is_too_large_or_no_json_is_left_out_alone(large: Any):
    fields = told(CALL, saying(received=large, toolName="echo"))
    assert fields == {**GOOD, "toolName": "echo"}


@each_row("depth", [10, 100, 127, 128, 129, 500, 5_000])
def test_what_is_told_can_be_read_back_however_deep_it_is(depth: int):
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    assert told(CALL, saying(received=deep)).keys() >= GOOD.keys()


def test_texts_are_cut_and_always_there():
    fields = told(
        CALL, HostErrorRules(error_fields=lambda *_: {"message": "m" * 10**6, "hint": "h" * 10**6, "code": 5})
    )
    assert (fields["class"], fields["code"]) == ("", "")
    assert len(fields["message"]) == 20_000
    assert fields["message"].endswith("\u2026")
    assert len(fields["hint"]) == 1_000


def test_no_more_fields_than_a_person_reads():
    fields = told(CALL, saying(**{f"f{number}": number for number in range(1000)}))
    assert (len(fields), fields["class"]) == (32, "ToolCallError")


@pytest.mark.parametrize("said", [None, 5, [1], RuntimeError("words")])
def test_words_that_fail_tell_that_the_call_failed(said: Any):
    def words(*_: Any) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    assert told(CALL, HostErrorRules(error_fields=words))["message"] == "the call failed"


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(st.text(max_size=9), inner, max_size=5)),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=12), json_values, max_size=40), json_values)
def test_any_fields_come_back_from_a_continuation_as_they_were_told(fields: dict[str, Any], more: Any):
    outcome = make_rejection(CALL, ERROR, HostErrorRules(error_fields=lambda *_: {**fields, "more": more}))
    ledger = Ledger([CALL._replace(outcome=outcome, now_ms=5)], [1])
    plain = Continuation.from_ledger("js", "engine", SETTINGS, ledger).to_dict()
    again = Continuation.from_dict(json.loads(json.dumps(plain))).ledger[1].outcome
    assert again == outcome
    error = restore_host_error(outcome)
    assert (type(error), error.message, error.code) == (CodeModeToolError, "no", "CODE_MODE_TOOL_ERROR")
    assert error.details == {}


@each_row(
    "text",
    [
        '{"class":"E"}',
        json.dumps({**GOOD, "hint": 5}),
        json.dumps({**GOOD, "class": None}),
        json.dumps({**GOOD, **{f"f{number}": 1 for number in range(40)}}),
        json.dumps({**GOOD, "more": "x" * (7 * MAX_FIELDS_BYTES)}),
        '["class"]',
        "[" * 10_000,
        "",
    ],
)
def test_fields_that_could_not_have_been_told_are_refused(text: str):
    with pytest.raises(CodeModeProtocolError):
        read_error_fields(text)
    ledger = Ledger([CALL._replace(outcome=Rejected("E", "m", "C", text), now_ms=5)], [1])
    with pytest.raises(CodeModeProtocolError):
        Continuation.from_dict(Continuation.from_ledger("js", "engine", SETTINGS, ledger).to_dict())


# --- how a program ends with one ---

WORDED = replace(SETTINGS, profile=replace(SETTINGS.profile, host_errors=saying(toolName="echo")))


def test_the_very_error_of_a_call_is_told_with_its_fields():
    settled = events.CallSettled(1, make_rejection(CALL, ERROR, WORDED.profile.host_errors), 5, ERROR)
    invocation = machine(call(1), TurnEnded(1), settled, threw(request_id=1), settings=WORDED)
    error = error_of(invocation)
    assert error.details["call"] == {**GOOD, "toolName": "echo", "toolInput": 0}


def test_an_error_of_the_faces_own_class_is_told_with_class_and_fields():
    thrown = threw(error_class="SchemaValidationError", fields_json='{"path":"/a"}')
    error = error_of(machine(thrown, settings=WORDED))
    assert (error.details["error_class"], error.details["fields"]) == ("SchemaValidationError", {"path": "/a"})
    cut = error_of(machine(threw(error_class="E", fields_json='{"path":'), settings=WORDED))
    assert cut.details["fields"] == '{"path":'


def test_a_class_of_errors_in_a_face_that_has_none_is_a_violation():
    assert_violation(machine(threw(error_class="E")))


assert tuple(GOOD) == REQUIRED_FIELDS
