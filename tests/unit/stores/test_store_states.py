"""The table of states: every state against every event."""

from __future__ import annotations

from itertools import product
from typing import get_args

import pytest
from suite import each_row

from codemode import CodeModeError
from codemode.stores import RecordExpiredError, RecordLostError, RequestSettledError
from codemode.stores.records import (
    ENDED_STATES,
    RECORD_STATES,
    RECORD_TRANSITIONS,
    REQUEST_TRANSITIONS,
    RecordEvent,
    RequestEvent,
    RequestState,
    compute_next_record_state_or_raise,
    compute_next_request_state_or_raise,
)


@each_row("state, event", [*product(RECORD_STATES, get_args(RecordEvent))])
def test_a_record_goes_where_the_table_says_or_nowhere(state, event):
    if (state, event) in RECORD_TRANSITIONS:
        assert compute_next_record_state_or_raise(state, event) == RECORD_TRANSITIONS[state, event]
        assert state not in ENDED_STATES
        return
    with pytest.raises(CodeModeError, match="r1") as raised:
        compute_next_record_state_or_raise(state, event, "r1")
    assert raised.value.details["state"] == state
    expected = {
        "expired": RecordExpiredError,
        "lost": RecordLostError,
        **dict.fromkeys(ENDED_STATES - {"expired"}, RequestSettledError),
    }
    assert isinstance(raised.value, expected.get(state, CodeModeError))


def test_every_state_can_come_to_an_end():
    reached = set(ENDED_STATES)
    while more := {one for (one, _), after in RECORD_TRANSITIONS.items() if after in reached} - reached:
        reached |= more
    assert reached == set(RECORD_STATES)


@each_row("state, event", [*product(get_args(RequestState), get_args(RequestEvent))])
def test_a_request_goes_where_the_table_says_or_nowhere(state, event):
    if (state, event) in REQUEST_TRANSITIONS:
        assert compute_next_request_state_or_raise(state, event) == REQUEST_TRANSITIONS[state, event]
    else:
        with pytest.raises(CodeModeError, match=state):
            compute_next_request_state_or_raise(state, event)
