"""What a model is told to tell the user of a run that waits: where it is decided, and nothing that decides."""

import pytest

from codemode.mcp.approvals.questions import Question
from codemode.mcp.approvals.responses import waiting

ID = "0123456789abcdef0123456789abcdef"


def asked(kind):
    return Question(
        interrupt_id="i", kind=kind, tool_name="notes.drop", server="notes", tool="drop", input={}, payload={}
    )


@pytest.mark.parametrize(
    ("kinds", "url", "said"),
    [
        (["approval"], None, "`codemode mcp approvals approve 01234567` in a terminal"),
        (["approval", "sign-in"], None, "`codemode mcp approvals approve 01234567` in a terminal"),
        (["approval"], "http://127.0.0.1:1/console/records/1", "open http://127.0.0.1:1/console/records/1."),
        (["sign-in"], None, "`codemode mcp login notes` in a terminal"),
        (["unknown"], None, "`codemode mcp approvals show 01234567` in a terminal"),
    ],
)
def test_the_hint_says_where_a_person_decides_and_how_the_outcome_is_had(kinds, url, said):
    response = waiting(ID, map(asked, kinds), 0, url)
    [told] = response["diagnostics"]
    assert said in told["hint"]
    assert f'{{"resume": "{ID}"}} later' in told["hint"]
