"""A pause shows, keeps and compares integers exactly, through a browser too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from exact_programs import ORDER, giving, numbers, run, values
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

from codemode import (
    CallContext,
    CodeModeProtocolError,
    Interrupt,
    Tool,
    continue_approval_sync,
    create_code_mode_tool,
    get_approval_response,
    is_interrupt,
    replace_interrupt_result,
    to_approval_messages,
)
from codemode.data.exact_integers import (
    POINTERS_KEY,
    protect_integers,
    restore_edited_integers,
    restore_listed_integers,
)
from codemode.interrupts.interrupt import is_same_json

PAUSING = {"approval": {"mode": "interrupt"}}


def in_a_browser(value: Any) -> Any:
    """What JSON.parse and JSON.stringify make of plain JSON."""
    return json.loads(run("return JSON.stringify(JSON.parse(await tools.give({})))", [giving(json.dumps(value))]))


def refunding(ran: list[Any], **settings: Any) -> list[Tool]:
    schema = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": {"type": "integer"}}, "x": {}},
    }
    given = {"needs_approval": True, "input_schema": schema, **settings}
    return [Tool("refund", execute=lambda value: ran.append(value) or value["id"], **given)]


INPUT = {
    "id": ORDER,
    "lines": [1, ORDER + 1, -ORDER],
    "x": {"a/b~c": ORDER, "10": 1, "text": str(ORDER), "f": 1.5},
}


JS = f"""
const f = await tools.give({{}});
const x = {{ "a/b~c": {ORDER}n, 10: 1, text: "{ORDER}", f }};
return [typeof f, await tools.refund({{ id: {ORDER}n, lines: [1n, {ORDER + 1}n, -{ORDER}n], x }})];
"""


def paused(ran: list[Any], js: str = JS) -> tuple[Interrupt, list[Tool], Any]:
    tools = [*refunding(ran), giving(1.5)]
    code_mode = create_code_mode_tool(tools, PAUSING)
    interrupt = code_mode.execute_sync({"js": js}, call=CallContext(tool_call_id="c"))
    assert isinstance(interrupt, Interrupt)
    return interrupt, tools, code_mode


def test_an_interrupt_survives_a_browser_and_shows_what_runs():
    ran: list[Any] = []
    interrupt, _, code_mode = paused(ran)
    assert interrupt.input == INPUT
    sent = in_a_browser(interrupt.to_dict())
    assert sent["input"]["id"] == sent["requests"][0]["input"]["id"] == str(ORDER)
    assert sorted(sent[POINTERS_KEY]) == [
        "/input/id",
        "/input/lines/1",
        "/input/lines/2",
        "/input/x/a~1b~0c",
    ]
    assert Interrupt.from_dict(sent).input["id"] == ORDER
    assert is_interrupt(sent)
    assert code_mode.resume_sync(sent, {"approved": True}) == ["number", ORDER]
    assert ran == [INPUT]
    # the same answer again, from the page and from here
    assert code_mode.resume_sync(sent, {"approved": True}) == ["number", ORDER]
    assert code_mode.resume_sync(interrupt, {"approved": True}) == ["number", ORDER]
    assert len(ran) == 1


def test_a_form_without_places_of_integers_is_taken_too():
    interrupt, _, code_mode = paused([])
    (request,) = interrupt.to_dict()["requests"]
    as_they_are = {**interrupt.to_dict(), "input": INPUT, "requests": [{**request, "input": INPUT}]}
    del as_they_are[POINTERS_KEY], as_they_are["requests"][0][POINTERS_KEY]
    assert Interrupt.from_dict(as_they_are) == Interrupt.from_dict(interrupt.to_dict()) == interrupt
    assert code_mode.resume_sync(as_they_are, {"approved": True}) == ["number", ORDER]


@pytest.mark.parametrize(
    ("edit", "runs"),
    [
        ({"id": str(ORDER)}, {"id": ORDER}),
        ({"id": str(ORDER + 4)}, {"id": ORDER + 4}),
        ({"id": ORDER}, {"id": ORDER}),
        ({"id": 5, "lines": [2, str(ORDER)]}, {"id": 5, "lines": [2, ORDER]}),
        ({"id": 5, "x": {"text": str(ORDER)}}, {"id": 5, "x": {"text": str(ORDER)}}),
    ],
)
def test_an_edit_from_a_page_is_read_as_it_was_shown(edit, runs):
    ran: list[Any] = []
    interrupt, _, code_mode = paused(ran)
    code_mode.resume_sync(in_a_browser(interrupt.to_dict()), {"approved": True, "input": edit})
    assert ran == [runs]


@pytest.mark.parametrize("rounded", [1180591620717411300, float(ORDER)])
def test_an_edit_with_what_a_browser_makes_of_an_integer_is_refused(rounded):
    ran: list[Any] = []
    interrupt, _, code_mode = paused(ran)
    with pytest.raises(CodeModeProtocolError, match="as in a browser"):
        code_mode.resume_sync(interrupt, {"approved": True, "input": {"id": rounded}})
    assert ran == []
    code_mode.resume_sync(interrupt, {"approved": True, "input": {"id": "1180591620717411300"}})
    assert ran == [{"id": 1180591620717411300}]


def test_an_edit_may_list_its_own_integers():
    ran: list[Any] = []
    interrupt, tools, _ = paused(ran)
    answer = {
        "approvalId": interrupt.interrupt_id, "approved": True,
        "input": {"id": 5, "lines": [str(ORDER)] * 2}, POINTERS_KEY: ["/input/lines/0", "/input/lines/1"],
    }  # fmt: skip
    messages = [{"role": "tool", "content": [{"type": "tool-approval-response", **answer}]}]
    response = get_approval_response(in_a_browser(messages), interrupt)
    assert response is not None
    continue_approval_sync(interrupt, response, tools=tools)
    assert ran == [{"id": 5, "lines": [ORDER, ORDER]}]


@each_row("places", [5, [5], ["/input/no"], ["/input/text"], [""], ["/input/lines/7"], ["x"], ["/approved"]])
def test_wrong_places_of_integers_are_refused_and_use_nothing_up(places):
    ran: list[Any] = []
    interrupt, _, code_mode = paused(ran)
    wrong = {"approved": True, "input": {"id": 5, "text": "abc", "lines": ["1"]}, POINTERS_KEY: places}
    with pytest.raises(CodeModeProtocolError):
        code_mode.resume_sync(interrupt, wrong)
    broken = {**interrupt.to_dict(), POINTERS_KEY: places}
    with pytest.raises(CodeModeProtocolError):
        Interrupt.from_dict(broken)
    assert not is_interrupt(broken)
    assert ran == []
    assert code_mode.resume_sync(interrupt, {"approved": True}) == ["number", ORDER]


@pytest.mark.parametrize("changed", [ORDER + 1, str(ORDER), float(ORDER), ORDER - 3])
def test_another_integer_than_the_pending_one_is_refused(changed):
    interrupt, _, code_mode = paused([])
    shown = {**INPUT, "id": changed}
    request = {**interrupt.requests[0].comparison_fields(), "input": shown}
    forged = {**interrupt.to_dict(), "input": shown, "requests": [request]}
    del forged[POINTERS_KEY]
    with pytest.raises(CodeModeProtocolError, match="requests differ"):
        code_mode.resume_sync(forged, {"approved": True})


def test_messages_for_a_page_show_a_long_integer_as_text():
    interrupt, _, _ = paused([])
    (message,) = in_a_browser(to_approval_messages(interrupt))
    call = message["content"][0]
    assert call["input"]["id"] == str(ORDER)
    assert "/input/id" in call[POINTERS_KEY]
    held = {
        "type": "tool-result",
        "toolCallId": "c",
        "output": {"type": "json", "value": in_a_browser(interrupt.to_dict())},
    }
    (replaced,) = replace_interrupt_result([{"role": "tool", "content": [held]}], interrupt, 1)
    assert replaced["content"][0]["output"] == {"type": "json", "value": 1}


def test_callbacks_and_rules_see_the_exact_integer():
    seen: list[Any] = []

    def rule(value: Any) -> bool:
        return bool(seen.append(value["id"])) or True

    def ask(request: Any) -> str:
        seen.append(request.input["id"])
        return "approved"

    tools = refunding(seen, needs_approval=rule)
    run(f"await tools.refund({{ id: {ORDER}n }})", tools, options={"approval": {"on_approval_required": ask}})
    assert seen == [ORDER, ORDER, {"id": ORDER}]


def test_a_recorded_answer_is_replayed_exactly():
    ran: list[Any] = []
    tools = [*refunding(ran), giving([ORDER, 2**53])]
    code_mode = create_code_mode_tool(tools, PAUSING)
    js = "const [id, edge] = await tools.give({}); await tools.refund({ id }); return [id, typeof edge, id + 1n]"
    interrupt = code_mode.execute_sync({"js": js})
    assert code_mode.resume_sync(interrupt, {"approved": True}) == [ORDER, "number", ORDER + 1]
    assert code_mode.resume_sync(interrupt, {"approved": True}) == [ORDER, "number", ORDER + 1]


@given(values)
def test_texts_and_places_give_the_same_value_back(value):
    whole = {"input": value, "payload": {"kind": "k"}}
    sent = protect_integers(whole)
    assert restore_listed_integers(json.loads(json.dumps(sent))) == whole
    assert all(abs(one) <= 2**53 for one in _integers(sent))
    assert restore_edited_integers(value, json.loads(json.dumps(sent))["input"]) == value


def _integers(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in _integers(item)]
    if isinstance(value, list):
        return [found for item in value for found in _integers(item)]
    return [value] if isinstance(value, int) else []


@settings(max_examples=rounds(25, 60), deadline=None)
@given(st.lists(numbers, min_size=1, max_size=30))
def test_a_browser_changes_nothing_that_is_compared(shown):
    sent = protect_integers({"input": shown})
    back = restore_listed_integers(in_a_browser(sent))
    assert is_same_json(back, {"input": shown})
    assert is_same_json({"input": shown}, back)
