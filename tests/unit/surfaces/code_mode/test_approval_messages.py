"""Interrupts in message histories: tolerant readers, strict writers (A103 to A107, A113, A115, A116)."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pausing import done_entry, made_interrupt, waiting_entry
from suite import each_row

from codemode import (
    CodeModeProtocolError,
    get_approval_response,
    get_interrupt,
    replace_interrupt_result,
    to_approval_messages,
    unwrap_result,
)
from codemode.surfaces.code_mode.messages import build_approval_resolutions

KEYS = {"keys": "those of these tests"}
OPTIONS = {"continuation": KEYS}
BUNDLE = made_interrupt(waiting_entry(1), waiting_entry(2, '{"kind":"oauth"}'), waiting_entry(3), options=KEYS)
FIRST, _, THIRD = BUNDLE.requests


def response(request=FIRST, **changes):
    part = {"type": "tool-approval-response", "approvalId": request.interrupt_id, "approved": True, **changes}
    return {key: value for key, value in part.items() if value is not ...}


def tool_message(*parts):
    return {"role": "tool", "content": list(parts)}


def test_one_assistant_message_asks_for_all_approvals():
    (message,) = to_approval_messages(BUNDLE)
    assert message == {
        "role": "assistant",
        "content": [
            {"type": "tool-call", "toolCallId": "outer:tool-1", "toolName": "tool1", "input": {"amount": 900.0}},
            {"type": "tool-approval-request", "approvalId": FIRST.interrupt_id, "toolCallId": "outer:tool-1"},
            {"type": "tool-call", "toolCallId": "outer:tool-3", "toolName": "tool3", "input": {"amount": 900.0}},
            {"type": "tool-approval-request", "approvalId": THIRD.interrupt_id, "toolCallId": "outer:tool-3"},
        ],
    }
    assert to_approval_messages(BUNDLE.to_dict(), options=OPTIONS) == [message]


def test_other_interrupts_create_no_messages():
    assert to_approval_messages(made_interrupt(waiting_entry(1, '{"kind":"oauth"}'))) == []
    assert to_approval_messages(made_interrupt(done_entry(1))) == []
    with pytest.raises(CodeModeProtocolError):
        to_approval_messages({"type": "code-mode-interrupt"})


# --- get_approval_response ---


def test_the_newest_response_counts():
    messages = [
        tool_message(response(approved=True)),
        {"role": "user", "content": "wait"},
        tool_message(response(approved=True), response(approved=False, reason="no", more=1)),
        tool_message({"type": "tool-result"}),
        {"role": "assistant", "content": [response(approved=True)]},
    ]
    assert get_approval_response(messages, BUNDLE) == {
        "approvalId": FIRST.interrupt_id, "approved": False, "reason": "no",
    }  # fmt: skip


def test_each_request_of_a_bundle_has_its_own_response():
    messages = [tool_message(response(THIRD, input={"amount": 1}), response(approved=False))]
    assert get_approval_response(messages, BUNDLE)["approved"] is False
    third = get_approval_response(messages, BUNDLE.to_dict(), interrupt_id=THIRD.interrupt_id)
    assert third == {"approvalId": THIRD.interrupt_id, "approved": True, "input": {"amount": 1}}
    assert get_approval_response(messages, BUNDLE, interrupt_id="other") is None


@each_row("part", [
        response(approvalId="other"), response(approvalId=None), response(approved="yes"), response(approved=...),
        response(approved=1), response(reason=5), response(toolCallId="outer:tool-9"), response(type="tool-result"),
        response(type=...), "text", None, 5, [],
    ])  # fmt: skip
def test_a_malformed_response_is_none(part):
    assert get_approval_response([tool_message(part)], BUNDLE) is None
    assert get_approval_response([tool_message(response()), tool_message(part)], BUNDLE) is not None


@pytest.mark.parametrize(
    "part", [response(toolCallId="outer:tool-1"), response(reason=None), response(toolCallId=None)]
)
def test_optional_fields_may_be_there(part):
    assert get_approval_response([tool_message(part)], BUNDLE)["approved"] is True


@each_row(
    "message",
    [None, 5, "x", {}, {"role": "tool"}, {"role": "tool", "content": "x"}, {"role": "user", "content": [response()]}],
)
def test_only_messages_of_tools_are_read(message):
    assert get_approval_response([message], BUNDLE) is None


_KEYS = st.sampled_from(["role", "content", "type", "output", "value", "toolResults"])
anything = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
)


@given(anything)
def test_readers_take_anything(value):
    assert get_approval_response([value, {"role": "tool", "content": [value]}], BUNDLE) is None
    assert get_interrupt(value) is None
    assert unwrap_result(value).status == "completed"


# --- the answers in responses ---


def test_responses_become_resolutions():
    given_responses = [response(), response(THIRD, approved=False, reason="no", type=...)]
    assert build_approval_resolutions(BUNDLE, given_responses) == {
        FIRST.interrupt_id: {"approved": True},
        THIRD.interrupt_id: {"approved": False, "reason": "no"},
    }
    assert build_approval_resolutions(BUNDLE, [response(input=None)]) == {
        FIRST.interrupt_id: {"approved": True, "input": None}
    }


@each_row("wrong", [
        response(approvalId="other"), response(BUNDLE.requests[1]), response(approved="yes"), response(approved=...),
        response(reason=5), response(toolCallId="outer:tool-3"), {}, None, "approved", True,
        response(type="tool-result"),
    ])  # fmt: skip
def test_malformed_responses_are_refused(wrong):
    with pytest.raises(CodeModeProtocolError):
        build_approval_resolutions(BUNDLE, [wrong])


def test_two_responses_to_one_request_are_refused():
    with pytest.raises(CodeModeProtocolError):
        build_approval_resolutions(BUNDLE, [response(), response(approved=False)])


# --- unwrap_result, get_interrupt ---

PLAIN = BUNDLE.to_dict()
WRAPPED = [
    BUNDLE,
    PLAIN,
    {"type": "json", "value": PLAIN},
    {"toolResults": [{"output": 1}, {"output": PLAIN}]},
    {"toolResults": [{"output": {"type": "json", "value": PLAIN}}]},
    {"content": [{"type": "text", "text": "x"}, {"type": "tool-result", "output": PLAIN}]},
    {"role": "tool", "content": [{"type": "tool-result", "output": {"type": "json", "value": PLAIN}}]},
    {"toolResults": "none", "content": [{"type": "tool-result", "output": BUNDLE}]},
]


@each_row("result", WRAPPED)
def test_an_interrupt_is_found_in_every_wrapping(result):
    unwrapped = unwrap_result(result, options=OPTIONS)
    assert (unwrapped.status, unwrapped.value) == ("interrupted", None)
    assert unwrapped.interrupt == get_interrupt(result, options=OPTIONS) == BUNDLE


@each_row("result, value", [
        (None, None), (5, 5), ("x", "x"), ([], []), ({"a": 1}, {"a": 1}), ({"type": "json", "value": [1]}, [1]),
        ({"type": "text", "value": "t"}, "t"),
        ({"type": "json", "value": 1, "more": 2}, {"type": "json", "value": 1, "more": 2}),
        ({"type": "image", "value": 1}, {"type": "image", "value": 1}),
        ({"content": [{"type": "text", "output": PLAIN}]}, {"content": [{"type": "text", "output": PLAIN}]}),
        ({**PLAIN, "type": "other"}, {**PLAIN, "type": "other"}),
    ])  # fmt: skip
def test_a_value_is_a_value(result, value):
    unwrapped = unwrap_result(result, options=OPTIONS)
    assert (unwrapped.status, unwrapped.value, unwrapped.interrupt) == ("completed", value, None)


# --- replace_interrupt_result ---


def result_part(output=PLAIN, call_id="outer", **changes):
    return {"type": "tool-result", "toolCallId": call_id, "toolName": "codeMode", "output": output, **changes}


HISTORY = [
    {"role": "user", "content": "refund please"},
    {"role": "assistant", "content": [{"type": "tool-call", "toolCallId": "outer"}]},
    tool_message(result_part({"a": 1}, "other"), result_part({"type": "json", "value": PLAIN})),
]


@pytest.mark.parametrize(
    ("final", "output"),
    [
        ({"done": True}, {"type": "json", "value": {"done": True}}),
        ("done", {"type": "text", "value": "done"}),
        (None, {"type": "json", "value": None}),
        (5, {"type": "json", "value": 5}),
    ],
)
def test_the_result_is_replaced(final, output):
    before = copy.deepcopy(HISTORY)
    after = replace_interrupt_result(json.loads(json.dumps(HISTORY)), BUNDLE, final)
    assert after[:2] == HISTORY[:2]
    assert after[2]["content"][0] == HISTORY[2]["content"][0]
    assert after[2]["content"][1] == {**HISTORY[2]["content"][1], "output": output}
    assert before == HISTORY


@each_row(
    "messages",
    [
        [],
        HISTORY[:2],
        [tool_message(result_part({"a": 1}))],
        [tool_message(result_part(call_id="other"))],
        [tool_message(result_part(), result_part())],
        [tool_message(result_part()), tool_message(result_part())],
        [{"role": "assistant", "content": [result_part()]}],
        [tool_message(result_part(made_interrupt(waiting_entry(1)).to_dict()))],
        [None, 5, {"role": "tool"}, tool_message(None)],
    ],
)
def test_exactly_one_result_must_hold_the_interrupt(messages):
    with pytest.raises(CodeModeProtocolError, match="expected one"):
        replace_interrupt_result(messages, BUNDLE, 1)


def test_another_interrupt_of_the_same_call_is_another_one():
    other = dataclasses.replace(BUNDLE, continuation=made_interrupt(waiting_entry(1)).continuation)
    with pytest.raises(CodeModeProtocolError):
        replace_interrupt_result(HISTORY, other, 1)
