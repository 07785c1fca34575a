"""Requests about state in the state machine: only where there is state, told to nobody, and never waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest
from invocation_driver import SETTINGS
from invocation_events import WAITING, assert_violation, call, done, error_of, machine, returned

from codemode.errors import CodeModeDetachedBridgeRequestError, CodeModeProtocolError
from codemode.protocol.call_status import summarize_calls
from codemode.protocol.continuation import Continuation
from codemode.protocol.events import PerformRequest
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry
from codemode.protocol.messages import TurnEnded

KINDS = SETTINGS.profile.request_kinds | {"state"}
WITHOUT = replace(SETTINGS, profile=replace(SETTINGS.profile, request_kinds=KINDS))
WITH = replace(WITHOUT, state=True)


def test_a_worker_that_asks_for_state_which_its_program_has_not_is_killed():
    assert_violation(machine(call(1, "state", "state.get"), settings=WITHOUT))
    other = replace(WITH, profile=replace(SETTINGS.profile, request_kinds=KINDS - {"state"}))
    assert_violation(machine(call(1, "state", "state.get"), settings=other))


def test_a_request_is_made_counts_as_a_call_and_nobody_is_told_of_it():
    invocation = machine(call(1, "state", "state.set"), settings=WITH)
    assert [effect.entry.name for effect in invocation.receive(TurnEnded(1)) if isinstance(effect, PerformRequest)] == [
        "state.set"
    ]
    invocation.receive(done(1))
    assert summarize_calls(invocation.ledger.entries) == ()


def test_one_that_nobody_awaits_is_an_error():
    invocation = machine(call(1, "state", "state.set"), TurnEnded(1), settings=WITH)
    invocation.receive(done(1))
    invocation.receive(returned(unobserved=(1,)))
    assert isinstance(error_of(invocation), CodeModeDetachedBridgeRequestError)
    assert "state.set" in str(error_of(invocation))


def test_a_continuation_keeps_that_there_is_state_and_no_request_that_waits():
    entry = LedgerEntry(1, "state", "state.get", '["a"]', outcome=Fulfilled("1"), now_ms=5)
    kept = Continuation.from_ledger("js", "engine", WITH, Ledger([entry], [1]))
    read = Continuation.from_dict(kept.to_dict())
    assert read.ledger.entries == [entry]
    assert read.restore_settings(WITHOUT).state
    waiting = Continuation.from_ledger("js", "engine", WITH, Ledger([entry._replace(outcome=WAITING, now_ms=None)], []))
    with pytest.raises(CodeModeProtocolError, match="about state, cannot be interrupted"):
        Continuation.from_dict(waiting.to_dict())
