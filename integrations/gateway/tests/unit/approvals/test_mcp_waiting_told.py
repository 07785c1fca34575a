"""What a model is told to tell the user of a run that waits: where it is decided, and nothing that decides."""

from dataclasses import replace

import pytest
from codemode_gateway.approvals.questions import UNKNOWN_KEY_MESSAGE, Question, waiting_response
from suite import each_row

ID = "0123456789abcdef0123456789abcdef"


def asked(kind):
    return Question(
        interrupt_id="i", kind=kind, tool_name="notes.drop", server="notes", tool="drop", input={}, payload={}
    )


@each_row(
    "kinds, url, said",
    [
        (["approval"], None, "`codemode mcp approvals approve 01234567` in a terminal"),
        (["approval", "sign-in"], None, "`codemode mcp approvals approve 01234567` in a terminal"),
        (["approval"], "http://127.0.0.1:1/console/records/1", "open http://127.0.0.1:1/console/records/1."),
        (["sign-in"], None, "`codemode mcp login notes` in a terminal"),
        (["unknown"], None, "`codemode mcp approvals show 01234567` in a terminal"),
    ],
)
def test_the_hint_says_where_a_person_decides_and_how_the_outcome_is_had(kinds, url, said):
    response = waiting_response(ID, map(asked, kinds), 0, url)
    [told] = response["diagnostics"]
    assert said in told["hint"]
    assert f'{{"resume": "{ID}"}} later' in told["hint"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("approval", "`/e/codemode mcp --config /a.json approvals approve 01234567` in a terminal"),
        ("unknown", "`/e/codemode mcp --config /a.json approvals show 01234567` in a terminal"),
        ("sign-in", "`/e/codemode mcp --config /a.json login 'my notes'` in a terminal"),
    ],
)
def test_the_hint_has_the_words_by_which_a_terminal_reaches_this_gateway(kind, said):
    one = replace(asked(kind), server="my notes")
    [told] = waiting_response(ID, [one], 0, None, command="/e/codemode mcp --config /a.json")["diagnostics"]
    assert said in told["hint"]


@pytest.mark.parametrize(
    ("url", "said"),
    [(None, "has expired"), ("http://127.0.0.1:1/console/records/1", "is closed at http://127.0.0.1:1/")],
)
def test_of_a_run_that_no_gateway_goes_on_with_is_told_why_and_what_people_can_do(url, said):
    [told] = waiting_response(ID, [], 0, url, UNKNOWN_KEY_MESSAGE)["diagnostics"]
    assert told["message"] == f"the program cannot resume now: {UNKNOWN_KEY_MESSAGE}"
    assert "waiting does not help" in told["hint"]
    assert f'{{"resume": "{ID}"}} then gives its outcome' in told["hint"]
    assert said in told["hint"]
    assert "later" not in told["hint"]
