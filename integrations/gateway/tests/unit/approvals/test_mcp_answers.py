"""Answers and request states as hostile input: nothing but a clear approval lets a call run, no changed state opens."""

from __future__ import annotations

import json
from typing import Any, cast

import mcp_types as types
import pytest
from approval_world import ONE, accept, begun, client_of, gone_on, hosts
from codemode_gateway.approvals.client_questions import (
    MAX_TRIES,
    ClientCall,
    ParsedDecision,
    StateSealer,
    UnusableAnswer,
    create_elicitation,
    parse_answer,
)
from codemode_gateway.approvals.questions import (
    MAX_INPUT_CHARACTERS,
    Question,
    create_form_schema,
    create_question_message,
)
from codemode_gateway.gateway.principals import LOCAL, Principal
from codemode_gateway.passthrough.client_requests import may_have_server_label
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds
from waiting import within

from codemode import CodeModeProtocolError, ContinuationOptions

SHOWN = {"order": "a", "cents": 500}
APPROVING = ("once", "session", "always")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSON = st.recursive(SCALARS, lambda inner: st.dictionaries(st.text(), inner, max_size=3))
VALUES = SCALARS | st.lists(st.text(max_size=4), max_size=2)
INPUTS = st.sampled_from(["", "{", "null", "5", '{"order": 5}', '{"order": "b"}', json.dumps(SHOWN), "NaN", "\x00"])
CONTENTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=2) | st.fixed_dictionaries(
    {},
    optional={
        "decision": st.sampled_from([*APPROVING, "deny", "Once", " once", "yes", "true", ""]) | VALUES,
        "input": INPUTS | VALUES,
        "reason": VALUES,
        "approved": st.just(True),
    },
)
CONTENT = {"decision": "once"}
RESPONSES = st.builds(
    types.ElicitResult, action=st.sampled_from(["accept", "decline", "cancel"]), content=st.none() | CONTENTS
) | st.sampled_from(
    [types.ListRootsResult(roots=[]), "accept", None, {"action": "accept", "content": {"decision": "once"}}]
)


def question(kind: Any = "approval", given: Any = SHOWN, **more: Any) -> Question:
    said = {"interrupt_id": "1", "tool_name": "shop.refund", "server": "shop", "tool": "refund", "payload": {}}
    return Question(kind=kind, input=given, **{**said, **more})


def fits(edited: Any) -> str | None:
    is_refund = isinstance(edited, dict) and isinstance(edited.get("order"), str)
    return None if is_refund else "it does not fit"


@settings(max_examples=rounds(40, 400))
@given(RESPONSES, st.integers(0, MAX_TRIES))
def test_no_malformed_answer_lets_a_call_run(response: Any, tries: int) -> None:
    answer = parse_answer(question(tries=tries), response, fits)
    if not isinstance(answer, ParsedDecision):
        assert isinstance(answer, UnusableAnswer)
        return
    if answer.resolution["approved"] is not True:
        assert "input" not in answer.resolution
        assert answer.scope is None
        return
    content = response.content
    assert response.action == "accept"
    assert content["decision"] in APPROVING
    assert answer.scope == (None if content["decision"] == "once" else content["decision"])
    edited = json.loads(content["input"]) if "input" in content else SHOWN
    assert answer.resolution.get("input", SHOWN) == edited
    assert edited == SHOWN or fits(edited) is None


@settings(max_examples=rounds(20, 200))
@given(RESPONSES)
def test_nothing_but_a_clear_word_says_what_became_of_a_call(response: Any) -> None:
    assert not isinstance(parse_answer(question("unknown"), response, fits), ParsedDecision)


@settings(max_examples=rounds(20, 200))
@given(RESPONSES)
def test_a_pause_that_nobody_knows_how_to_ask_about_is_declined(response: Any) -> None:
    assert parse_answer(question("other"), response, fits) == ParsedDecision({"action": "decline"})


@pytest.mark.parametrize("tries", range(MAX_TRIES + 1))
def test_a_wrong_edit_is_asked_about_so_often_and_then_denied(tries: int) -> None:
    answer = parse_answer(question(tries=tries), accept(input='{"order": 5}'), fits)
    assert isinstance(answer, UnusableAnswer) == (tries + 1 < MAX_TRIES)
    if isinstance(answer, ParsedDecision):
        assert answer.resolution["approved"] is False


def test_an_input_of_which_a_part_was_shown_runs_as_it_is_or_not_at_all() -> None:
    long = question(given={"order": "x" * MAX_INPUT_CHARACTERS})
    assert "input" not in create_form_schema(long)["properties"]
    assert parse_answer(long, accept(), fits) == ParsedDecision({"approved": True})
    edited = parse_answer(long, accept(input='{"order": "b"}'), fits)
    assert isinstance(edited, ParsedDecision)
    assert edited.resolution["approved"] is False
    message = create_question_message(long, "")
    assert len(message) < 6_000
    assert "more characters of the input" in message


@given(
    st.text(), st.text(), st.text(), st.recursive(SCALARS, lambda inner: st.dictionaries(st.text(), inner, max_size=3))
)
def test_nothing_that_is_shown_is_invisible_or_forges_a_line(server: str, tool: str, code: str, given: Any) -> None:
    shown = question(given=given, server=server, tool=tool, line=1)
    lines = create_question_message(shown, code).split("\n")
    assert all(line.isprintable() for line in lines)
    heads = [line.split(":")[0] for line in lines]
    assert heads[0] == "Run this call?"
    assert len(heads) == len(set(heads))
    assert set(heads[1:]) <= {"Server", "Tool", "Input", "Not shown", "Line 1 of the program"}
    default = create_form_schema(shown)["properties"]["input"]["default"]
    assert default.isprintable()
    assert json.loads(default) == given


def test_a_person_is_told_which_saved_program_makes_a_call() -> None:
    assert "Saved program: report:2" in create_question_message(question(program="report:2"), "return 1").split("\n")


def sealed() -> tuple[StateSealer, str]:
    state = StateSealer(ContinuationOptions(keys="a key"), LOCAL)
    return state, within(state.seal({"interrupt": {"a": [1, 2, 3]}, "pause": 1}, {"code": ONE}))


STATE, TEXT = sealed()


@settings(max_examples=rounds(30, 300))
@given(st.integers(0, len(TEXT) - 1), st.integers(1, 127))
def test_a_state_of_which_any_byte_was_changed_is_refused(at: int, mask: int) -> None:
    changed = TEXT[:at] + chr(ord(TEXT[at]) ^ mask) + TEXT[at + 1 :]
    with pytest.raises(CodeModeProtocolError):
        within(STATE.unseal(changed, {"code": ONE}))


@settings(max_examples=rounds(20, 100))
@given(
    st.text()
    | st.binary().map(lambda data: data.decode("latin-1"))
    | st.sampled_from(["{" * 5000, "[" * 200_000, "9" * 9000])
)
def test_a_state_that_is_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CodeModeProtocolError):
        within(STATE.unseal(text, {"code": ONE}))


def test_a_state_opens_for_its_principal_and_its_program_alone() -> None:
    assert within(STATE.unseal(TEXT, {"code": ONE, "limits": {}}))["pause"] == 1
    assert ONE not in TEXT
    for arguments in ({"code": ONE + " "}, {"resume": ONE}, {}):
        with pytest.raises(CodeModeProtocolError):
            within(STATE.unseal(TEXT, arguments))
    for other in (
        StateSealer(ContinuationOptions(keys="a key"), Principal("eve")),
        StateSealer(ContinuationOptions(keys="another key"), LOCAL),
    ):
        with pytest.raises(CodeModeProtocolError):
            within(other.unseal(TEXT, {"code": ONE}))


@each_row(
    "reply",
    [
        types.ElicitResult(action="accept"),
        types.ElicitResult(action="cancel", content={"decision": "once"}),
        types.ElicitResult(action="accept", content={"decision": "ONCE"}),
        types.ElicitResult(action="accept", content={"decision": ["once"]}),
        types.ElicitResult(action="accept", content={"decision": "once", "input": 5}),
        types.ElicitResult(action="accept", content={"decision": "once", "reason": True}),
        types.ListRootsResult(roots=[]),
    ],
)
def test_a_malformed_reply_of_a_client_denies(reply: Any) -> None:
    async def scenario() -> None:
        async with hosts() as (shop, _, host), client_of(host) as client:
            first = await begun(client, ONE)
            answer = await gone_on(client, ONE, first, dict.fromkeys(first.input_requests, reply))
            assert answer.structured_content["result"] == "APPROVAL_DENIED"
            assert shop.done == []

    within(scenario())


def test_the_form_is_flat_and_says_what_it_takes() -> None:
    form = create_form_schema(question())
    assert form["properties"]["decision"]["enum"] == ["once", "session", "always", "deny"]
    assert json.loads(form["properties"]["input"]["default"]) == SHOWN
    assert form["required"] == ["decision"]
    assert all(one["type"] == "string" for one in form["properties"].values())
    alone = create_form_schema(question(), has_session=False)["properties"]["decision"]
    assert alone["enum"] == ["once", "always", "deny"]
    assert "client leaves" not in alone["description"]


def test_a_page_that_a_server_wants_opened_is_asked_for_in_its_name() -> None:
    page = {"url": "https://evil.example/consent"}
    asked = [question("sign-in", payload=one) for one in ({**page, "askedByServer": True}, page)]
    by_server, by_gateway = (create_elicitation(one, cast("ClientCall", None)).params.message for one in asked)
    assert by_server.startswith("[shop] ")
    assert "evil.example" in by_server
    assert may_have_server_label(by_server), "`mcp run` accepts it only when a person confirms it"
    assert not may_have_server_label(by_gateway)
