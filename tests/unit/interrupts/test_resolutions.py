"""Answers are read strictly, before anything runs."""

from __future__ import annotations

import pytest
from pausing import waiting_entry
from suite import each_row

from codemode import CodeModeProtocolError
from codemode.interrupts.resolutions import (
    ApprovalAnswer,
    KnownOutcomeAnswer,
    RunAgainAnswer,
    ToolInterruptAnswer,
    get_waiting_kind,
    read_answers,
)
from codemode.protocol.ledger import Fulfilled, LedgerEntry, Rejected, Waiting

UNKNOWN_JSON = '{"kind":"code-mode/unknown-outcome"}'


APPROVAL, OAUTH, UNKNOWN = waiting_entry(1), waiting_entry(2, '{"kind":"oauth"}'), waiting_entry(3, UNKNOWN_JSON)


FETCH = LedgerEntry(4, "fetch", "fetch", "{}", outcome=Waiting("4:unknown-5a17-1", UNKNOWN_JSON, "{}", 1))


ENTRIES = [APPROVAL, OAUTH, UNKNOWN, FETCH]


def id_of(entry):
    return entry.outcome.interrupt_id


def read(entry, resolution):
    return read_answers(ENTRIES, {id_of(entry): resolution})[entry.id]


def refused(entry, resolution, match=None):
    with pytest.raises(CodeModeProtocolError, match=match):
        read(entry, resolution)


def test_an_approval_is_read():
    approved = read(APPROVAL, {"approved": True})
    assert isinstance(approved, ApprovalAnswer)
    assert (approved.decision.approved, approved.decision.reason, approved.input_json) == (True, None, None)
    denied = read(APPROVAL, {"approved": False, "reason": "no"})
    assert isinstance(denied, ApprovalAnswer)
    assert (denied.decision.approved, denied.decision.reason) == (False, "no")
    edited = read(APPROVAL, {"approved": True, "input": {"amount": 5}})
    assert isinstance(edited, ApprovalAnswer)
    assert edited.input_json == '{"amount":5}'
    assert read(APPROVAL, {"approved": True, "input": None}).input_json == "null"


@each_row("resolution", [
        None, True, "approved", 1, [], {}, {"approved": "yes"}, {"approved": 1}, {"approved": None},
        {"approved": True, "reason": 5}, {"approved": True, "more": 1}, {"reason": "x"}, {"Approved": True},
        {"approved": False, "input": 5}, {"approved": True, "input": object()},
        {"approved": True, "input": {1, object()}},
    ])  # fmt: skip
def test_a_malformed_approval_is_refused(resolution):
    refused(APPROVAL, resolution)


@pytest.mark.parametrize("resolution", [True, {"type": "approve"}, {"aproved": True}])
def test_what_is_no_answer_at_all_is_told_how_one_looks(resolution):
    refused(APPROVAL, resolution, r'such as \{"approved": True\}$')
    refused(UNKNOWN, resolution, r'such as \{"runAgain": True\}$')


@each_row("resolution", [None, 5, "x", [1], {"a": None}, {"approved": "maybe"}])
def test_a_tools_own_request_takes_any_json(resolution):
    assert read(OAUTH, resolution) == ToolInterruptAnswer(resolution)


def test_a_tools_own_request_takes_nothing_but_json():
    refused(OAUTH, object(), "not JSON")
    cycle = []
    cycle.append(cycle)
    refused(OAUTH, cycle, "circular")


def test_an_unknown_outcome_is_read():
    assert read(UNKNOWN, {"value": {"a": 1}}) == KnownOutcomeAnswer(Fulfilled('{"a":1}'), None)
    assert read(UNKNOWN, {"value": None}) == KnownOutcomeAnswer(Fulfilled(None), None)
    failed = read(UNKNOWN, {"error": {"message": "gone"}})
    assert isinstance(failed, KnownOutcomeAnswer)
    assert failed.outcome == Rejected("CodeModeToolError", "gone", "CODE_MODE_TOOL_ERROR")
    for key in ("runAgain", "run_again"):
        assert read(UNKNOWN, {key: True}) == RunAgainAnswer()


@each_row("resolution", [
        None, "run again", {}, {"value": 1, "error": {"message": "m"}}, {"runAgain": False}, {"runAgain": 1},
        {"error": "m"}, {"error": {}}, {"error": {"message": 5}}, {"value": object()}, {"approved": True},
        {"runAgain": True, "run_again": True},
    ])  # fmt: skip
def test_a_malformed_unknown_outcome_is_refused(resolution):
    refused(UNKNOWN, resolution)


def test_a_fetch_of_unknown_outcome_has_no_value():
    refused(FETCH, {"value": {"status": 200}})
    assert read(FETCH, {"runAgain": True}) == RunAgainAnswer()
    assert isinstance(read(FETCH, {"error": {"message": "gone"}}), KnownOutcomeAnswer)


@each_row("resolutions", [{}, {"other": 1}, {id_of(OAUTH): 1, "": 2}, {5: 1}, {None: 1}])
def test_answers_are_for_pending_requests(resolutions):
    with pytest.raises(CodeModeProtocolError):
        read_answers(ENTRIES, resolutions)


def test_a_request_that_has_ended_is_not_pending():
    ended = waiting_entry(1, outcome=Fulfilled("1"))
    with pytest.raises(CodeModeProtocolError, match="pending are none"):
        read_answers([ended], {id_of(APPROVAL): {"approved": True}})


def test_any_subset_may_be_answered():
    answers = read_answers(ENTRIES, {id_of(UNKNOWN): {"runAgain": True}, id_of(APPROVAL): {"approved": True}})
    assert set(answers) == {1, 3}
    assert [get_waiting_kind(entry) for entry in ENTRIES[1:3]] == ["oauth", "code-mode/unknown-outcome"]
