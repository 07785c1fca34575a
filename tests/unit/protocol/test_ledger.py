"""The ledger: what it keeps of a request, and what it hands in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.protocol.ledger import (
    Fulfilled,
    Ledger,
    LedgerEntry,
    Rejected,
    Waiting,
    make_waiting_outcome,
    parse_outer_call_id,
)
from codemode.protocol.messages import CallRequested, DeliverError, DeliverValue

ENTRY = LedgerEntry(1, "tool", "t", '{"a":1}', tool_call_id="outer:tool-1")


def test_ids_count_from_one():
    ledger = Ledger([ENTRY, ENTRY._replace(id=2)])
    assert ledger[2].id == 2
    assert [number in ledger for number in (-1, 0, 1, 2, 3)] == [False, False, True, True, False]


def test_two_ledgers_share_nothing():
    first, second = Ledger(), Ledger()
    first.entries.append(ENTRY)
    first.deliveries.append(1)
    assert (second.entries, second.deliveries) == ([], [])


def test_settling_replaces_the_entry_and_keeps_the_request():
    ledger = Ledger([ENTRY, ENTRY._replace(id=2)])
    entry = ledger.record_outcome(2, Fulfilled("1"), 99)
    assert entry == ENTRY._replace(id=2, outcome=Fulfilled("1"), now_ms=99)
    assert ledger.entries == [ENTRY, entry]


def test_attempts_are_those_of_the_pause_and_of_the_pauses_before():
    assert ENTRY.wait_count_including_current == 0
    assert ENTRY._replace(waits=2).wait_count_including_current == 2
    assert ENTRY._replace(waits=2, outcome=Waiting("i", "{}", "1", 3)).wait_count_including_current == 3


def test_a_request_that_has_started_is_unknown_until_it_is_settled():
    ledger = Ledger([ENTRY._replace(outcome=Waiting("i", "{}", "1", 1))])
    ledger.record_tool_start(1, '{"a":2}', is_approved=True)
    assert ledger[1] == ENTRY._replace(executed_input_json='{"a":2}', is_approved=True, is_started=True, waits=1)
    assert ledger.waiting_entries == []


def test_waiting_requests_are_listed_in_issue_order():
    waiting = Waiting("i", "{}", None, 1)
    ledger = Ledger([ENTRY._replace(outcome=waiting), ENTRY._replace(id=2), ENTRY._replace(id=3, outcome=waiting)])
    assert [entry.id for entry in ledger.waiting_entries] == [1, 3]


@each_row(
    "request_",
    [
        CallRequested(1, "fetch", "t", '{"a":1}', None),
        CallRequested(1, "tool", "u", '{"a":1}', None),
        CallRequested(1, "tool", "t", '{"a": 1}', None),
        CallRequested(1, "tool", "t", None, None),
        CallRequested(1, "tool", "t", '{"a":1}', 7),
    ],
)
def test_any_difference_makes_another_request(request_: CallRequested):
    assert not ENTRY.matches_request(request_)


def test_the_same_request_is_the_same_whatever_came_of_it():
    settled = ENTRY._replace(outcome=Fulfilled("1"), now_ms=5, executed_input_json="{}")
    assert settled.matches_request(CallRequested(1, "tool", "t", '{"a":1}', None))


def test_outcomes_are_handed_in_with_their_time():
    assert ENTRY._replace(outcome=Fulfilled("1"), now_ms=5).make_delivery_message() == DeliverValue(1, 5, "1")
    assert ENTRY._replace(outcome=Fulfilled(None), now_ms=5).make_delivery_message() == DeliverValue(1, 5, None)
    rejected = ENTRY._replace(outcome=Rejected("N", "m", "C"), now_ms=5)
    assert rejected.make_delivery_message() == DeliverError(1, 5, "N", "m", "C")


@pytest.mark.parametrize("outcome", [None, Waiting("i", "{}", None, 1)])
def test_what_is_not_settled_cannot_be_handed_in(outcome: Waiting | None):
    with pytest.raises(ValueError, match="request 1"):
        ENTRY._replace(outcome=outcome).make_delivery_message()


@given(
    outer=st.text(min_size=1, max_size=40), number=st.integers(1, 999), why=st.sampled_from(["interrupt", "unknown"])
)
def test_the_id_under_which_a_call_waits_says_whose_it_is(outer: str, number: int, why: Any) -> None:
    entry = LedgerEntry(1, "tool", "refund", "{}", tool_call_id=f"{outer}:tool-{number}")
    waiting_id = make_waiting_outcome(entry, why, "salt", "{}", None).interrupt_id
    assert parse_outer_call_id(waiting_id) == outer


@each_row(
    "other",
    [
        "",
        "call_1",
        "call_1:tool-1",
        f":tool-1:interrupt-{'0' * 16}-1",
        f"call_1:tool-:interrupt-{'0' * 16}-1",
        f"call_1:tool-x:interrupt-{'0' * 16}-1",
        f"call_1:fetch-1:interrupt-{'0' * 16}-1",
        f"call_1:tool-1:interrupted-{'0' * 16}-1",
        f"call_1:tool-1:interrupt-{'0' * 15}-1",
        f"call_1:tool-1:interrupt-{'G' * 16}-1",
        f"call_1:tool-1:interrupt-{'0' * 16}-",
        f"call_1:tool-1:interrupt-{'0' * 16}-1-2",
        f"call_1:tool-1:interrupt-{'0' * 16}-1:tool-2",
    ],
)
def test_no_other_id_is_taken_for_one_of_a_call_that_waits(other: str) -> None:
    assert parse_outer_call_id(other) is None
