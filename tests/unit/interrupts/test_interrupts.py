"""Interrupts as data: only what this host signed is one, whatever bytes come back."""

from __future__ import annotations

import asyncio
import dataclasses
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pausing import APPROVAL_JSON, current_ms, done_entry, made_interrupt, waiting_entry
from suite import each_row, full_only

from codemode import (
    CodeModeOptions,
    CodeModeProtocolError,
    Interrupt,
    PendingRequest,
    is_approval_interrupt,
    is_interrupt,
    request_interrupt,
)
from codemode.execution.resume import open_unexpired_interrupt
from codemode.interrupts.interrupt import InterruptRequested, find_interrupt_request, is_same_json
from codemode.protocol.ledger import Rejected
from codemode.surfaces.code_mode.outcome import CODE_MODE

OPTIONS = {"continuation": {"keys": "key"}}
CHECKED = CodeModeOptions.of(OPTIONS)
FORMS = [{}, {"compress": True}, {"seal": True}, {"seal": True, "compress": True}]
OAUTH_JSON = '{"kind":"oauth","scopes":["a","\\u00e9"],"share":0.5}'
ENTRIES = (done_entry(1), waiting_entry(2), done_entry(3, Rejected("E", "m", "C")), waiting_entry(4, OAUTH_JSON))


def made(*entries, change=lambda body: body, now_ms=None, **settings):
    given_settings = {"keys": "key", **settings}
    return made_interrupt(*(entries or ENTRIES), options=given_settings, change=change, now_ms=now_ms)


def plain(**settings):
    return json.loads(json.dumps(made(**settings).to_dict()))


def refused(value, match=None, options=CHECKED):
    with pytest.raises(CodeModeProtocolError, match=match):
        open_unexpired_interrupt(value, CODE_MODE, options)
    assert not is_interrupt(value, options=options)


@pytest.mark.parametrize("form", FORMS)
def test_an_interrupt_survives_json(form):
    interrupt = made(**form)
    again = Interrupt.from_dict(json.loads(json.dumps(interrupt.to_dict())))
    assert again == interrupt
    assert is_interrupt(again, options=OPTIONS)
    assert is_interrupt(again.to_dict(), options=OPTIONS)
    assert is_approval_interrupt(again, options=OPTIONS)


def test_its_own_fields_are_those_of_the_first_request():
    interrupt = made()
    first, second = interrupt.requests
    assert (interrupt.interrupt_id, interrupt.tool_name, interrupt.tool_call_id) == (
        "outer:tool-2:interrupt-5a17-1", "tool2", "outer:tool-2",
    )  # fmt: skip
    assert (
        (interrupt.input, interrupt.payload)
        == (first.input, first.payload)
        == ({"amount": 900.0}, json.loads(APPROVAL_JSON))
    )
    assert (first.is_approval, second.is_approval) == (True, False)
    assert set(interrupt.to_dict()) == {
        "type", "interruptId", "toolName", "toolCallId", "outerToolCallId", "input", "payload", "continuation",
        "requests",
    }  # fmt: skip
    assert interrupt.to_dict()["type"] == "code-mode-interrupt"


def test_a_call_shows_its_place_and_no_other():
    interrupt = made_interrupt(waiting_entry(1, location=(3, 7)), waiting_entry(2))
    assert [(one.line, one.column) for one in interrupt.requests] == [(3, 7), (None, None)]
    plain = json.loads(json.dumps(interrupt.to_dict()))
    assert Interrupt.from_dict(plain) == interrupt
    assert is_interrupt(plain, options=None)
    left_out = {key: value for key, value in plain["requests"][0].items() if key not in ("line", "column")}
    assert is_interrupt({**plain, "requests": [left_out, plain["requests"][1]]}, options=None)
    for place in ({"line": 3, "column": 8}, {"line": 3}, {"line": 3, "column": "7"}, {"line": True, "column": 7}):
        forged = {**plain, "requests": [{**left_out, **place}, plain["requests"][1]]}
        assert not is_interrupt(forged, options=None)


def test_a_browser_may_write_whole_numbers_its_own_way():
    text = json.dumps(plain())
    assert '"amount": 900.0' in text
    assert is_interrupt(json.loads(text.replace('"amount": 900.0', '"amount": ' + "900")), options=OPTIONS)
    refused(json.loads(text.replace('"amount": 900.0', '"amount": ' + "901")))
    refused(json.loads(text.replace('"amount": 900.0', '"amount": ' + "true")))


@each_row("left, right, same", [
    (1, 1.0, True), (-0.0, 0, True), (1e21, 10**21, True), (1, True, False), (0, False, False), (1, "1", False),
    ([1], [1.0], True), ({"a": {"b": [2.0]}}, {"a": {"b": [2]}}, True), (1.5, 1, False), (None, 0, False),
    (2**53 + 1, 2.0**53, False), (float("nan"), float("nan"), False), (float("inf"), 1, False), ({}, [], False),
])  # fmt: skip
def test_json_is_compared_as_json(left, right, same):
    assert is_same_json(left, right) is same
    assert is_same_json(right, left) is same


@pytest.mark.parametrize("form", [{"seal": True, "compress": True}, *full_only({})])
def test_no_flipped_byte_is_taken(form):
    interrupt = made(**form)
    original = json.loads(json.dumps(interrupt.to_dict()))
    data = json.dumps(original).encode()
    flipped = taken = 0
    for position in range(len(data)):
        for mask in (1, 2, 4, 16, 32, 128):
            changed = bytearray(data)
            changed[position] ^= mask
            try:
                value = json.loads(bytes(changed))
            except ValueError:
                continue
            flipped += 1
            try:
                open_unexpired_interrupt(value, CODE_MODE, CHECKED)
            except CodeModeProtocolError:
                continue
            taken += 1
            assert value == original, (
                f"taken with byte {position} changed: {bytes(changed)[position - 20 : position + 20]}"
            )
    assert flipped > len(data)
    assert taken < 20


def test_no_truncated_interrupt_is_taken():
    data = json.dumps(plain())
    for length in range(len(data)):
        with pytest.raises(ValueError):  # noqa: PT011 - the JSON decoder's own
            json.loads(data[:length])
    for key in plain():
        value = plain()
        del value[key]
        refused(value)
    for key in plain()["requests"][1]:
        value = plain()
        del value["requests"][1][key]
        refused(value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=6,
)


@given(json_values)
@example({"type": "code-mode-interrupt"})
def test_nothing_else_is_an_interrupt(value):
    assert not is_interrupt(value, options=OPTIONS)
    assert not is_approval_interrupt(value, options=OPTIONS)


@given(st.sampled_from(sorted(plain())), json_values)
def test_no_field_can_be_put_in_the_place_of_another(key, value):
    if not is_same_json(plain()[key], value):
        refused({**plain(), key: value})


@each_row("value", [None, 5, "x", b"", [], object(), Interrupt, {1: 2}])
def test_odd_values_are_no_interrupts(value):
    assert not is_interrupt(value)


def shown_otherwise(**changes):
    interrupt = made()
    first, second = interrupt.requests
    return dataclasses.replace(interrupt, requests=(dataclasses.replace(first, **changes), second))


@each_row(
    "changes",
    [
        {"input": {"amount": 9}},
        {"input": {"amount": "900"}},
        {"input": None},
        {"tool_name": "other"},
        {"tool_call_id": "outer:tool-9"},
        {"interrupt_id": "outer:tool-2:interrupt-5a17-2"},
        {"payload": {"kind": "oauth"}},
        {"payload": {}},
        {"input": object()},
    ],
)
def test_what_is_shown_must_be_what_is_signed(changes):
    interrupt = shown_otherwise(**changes)
    refused(interrupt, "requests differ")
    if not isinstance(changes.get("input"), object().__class__) or type(changes.get("input")) is not object:
        refused(interrupt.to_dict(), "requests differ")


def test_requests_cannot_be_left_out_added_or_reordered():
    interrupt = made()
    first, second = interrupt.requests
    for requests in ((), (first,), (second, first), (first, second, second)):
        refused(dataclasses.replace(interrupt, requests=requests), "requests differ")


def test_the_outer_call_must_be_the_signed_one():
    refused(dataclasses.replace(made(), outer_tool_call_id="other"), "outerToolCallId")


def test_own_fields_that_are_not_the_first_requests_are_refused():
    refused({**plain(), "toolName": "other"}, "own fields")


def test_continuations_of_other_hosts_are_refused():
    refused(made(keys="other"), "not known")
    refused(made(conversation_id="tenant"), "no conversation_id was given")
    refused(made_interrupt(*ENTRIES), "not known")
    refused(dataclasses.replace(made(), continuation={}), "malformed")
    unsigned = {key: value for key, value in made().continuation.items() if key != "auth"}
    refused(dataclasses.replace(made(), continuation=unsigned))
    refused(dataclasses.replace(made(), continuation={**unsigned, "auth": None}), "not signed")
    # Another pause of the same host: right signature, wrong requests.
    refused(dataclasses.replace(made(), continuation=made(waiting_entry(1)).continuation), "requests differ")


def test_expired_and_future_continuations_are_refused():
    refused(made(now_ms=current_ms() - 3_600_001), "expired")
    refused(made(now_ms=current_ms() + 120_000), "future")
    refused(made(now_ms=current_ms() - 100, max_age_ms=50), "expired")


@each_row("payload_json", ["", "nope", "5", "[]", "null", "1e999", "[" * 600 + "]" * 600])
def test_a_signed_payload_that_is_no_object_is_refused(payload_json):
    def change(body):
        body["ledger"][1]["interruptPayloadJson"] = payload_json
        return body

    interrupt = made(change=change)
    refused(interrupt)


def test_a_signed_shown_input_that_is_no_json_is_refused():
    def change(body):
        body["ledger"][1]["shownInputJson"] = "{"
        return body

    refused(made(change=change), "cannot be read")


def test_an_interrupt_without_requests_is_one_but_asks_nothing():
    interrupt = made(done_entry(1))
    assert is_interrupt(Interrupt.from_dict(interrupt.to_dict()), options=OPTIONS)
    assert not is_approval_interrupt(interrupt, options=OPTIONS)
    assert interrupt.interrupt_id == ""


def test_a_pending_request_reads_strictly():
    request = made().requests[0].to_dict()
    assert PendingRequest.from_dict(request).to_dict() == request
    for wrong in ({**request, "more": 1}, {**request, "payload": []}, {**request, "toolName": 5}, [], None):
        with pytest.raises(CodeModeProtocolError):
            PendingRequest.from_dict(wrong)


# --- request_interrupt ---


@each_row("payload", [None, 5, "oauth", [], {}, {"kind": ""}, {"kind": 5}, {"kind": None}, [("kind", "x")]])
def test_another_payload_is_a_type_error(payload):
    with pytest.raises(TypeError, match="kind"):
        request_interrupt(payload)


@pytest.mark.parametrize("kind", ["ai-sdk-code-mode/tool-approval", "code-mode/unknown-outcome"])
def test_the_kinds_of_code_mode_are_reserved(kind):
    with pytest.raises(TypeError, match="reserved"):
        request_interrupt({"kind": kind})


def test_the_pause_is_no_exception_that_a_tool_would_catch():
    assert not issubclass(InterruptRequested, Exception)


def test_a_pause_is_found_in_groups():
    pause = InterruptRequested({"kind": "x"})
    group = BaseExceptionGroup("a", [ValueError(), BaseExceptionGroup("b", [asyncio.CancelledError(), pause])])
    assert find_interrupt_request(pause) is find_interrupt_request(group) is pause
    assert find_interrupt_request(BaseExceptionGroup("a", [ValueError()])) is None
    assert find_interrupt_request(ValueError()) is None
