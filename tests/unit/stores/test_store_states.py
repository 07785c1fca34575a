"""The table of states: every state against every event."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from suite import each_row

from codemode import CodeModeError
from codemode.stores import RecordExpiredError, RecordLostError, RequestSettledError
from codemode.stores.records import (
    ENDED,
    RECORD_STATES,
    RECORDS,
    REQUESTS,
    RecordEvent,
    RequestEvent,
    RequestState,
    record_after,
    request_after,
)


@each_row("state, event", [*product(RECORD_STATES, get_args(RecordEvent))])
def test_a_record_goes_where_the_table_says_or_nowhere(state, event):
    if (state, event) in RECORDS:
        assert record_after(state, event) == RECORDS[state, event]
        assert state not in ENDED
        return
    with pytest.raises(CodeModeError, match="r1") as raised:
        record_after(state, event, "r1")
    assert raised.value.details["state"] == state
    expected = {
        "expired": RecordExpiredError,
        "lost": RecordLostError,
        **dict.fromkeys(ENDED - {"expired"}, RequestSettledError),
    }
    assert isinstance(raised.value, expected.get(state, CodeModeError))


def test_every_state_can_come_to_an_end():
    reached = set(ENDED)
    while more := {one for (one, _), after in RECORDS.items() if after in reached} - reached:
        reached |= more
    assert reached == set(RECORD_STATES)


@each_row("state, event", [*product(get_args(RequestState), get_args(RequestEvent))])
def test_a_request_goes_where_the_table_says_or_nowhere(state, event):
    if (state, event) in REQUESTS:
        assert request_after(state, event) == REQUESTS[state, event]
    else:
        with pytest.raises(CodeModeError, match=state):
            request_after(state, event)
