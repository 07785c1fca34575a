"""What a program tells the host's listeners is passed on once; what could not be checked is compiled and never runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from invocation_events import call, done, error_of, machine, returned, threw
from invocation_settings import SETTINGS
from pausing import done_entry
from suite import each_row

from codemode.errors import CodeModeIllegalAccessError, CodeModeProtocolError, CodeModeSyntaxError, CodeModeToolError
from codemode.profile import GuestSettings
from codemode.protocol import events
from codemode.protocol.continuation import Continuation, continuation_from_texts, continuation_to_texts
from codemode.protocol.events import CheckProgram, Completed, SendMessage, SendNotification
from codemode.protocol.invocation import Invocation
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, build_recovery_ledger
from codemode.protocol.message_decoder import decode_message
from codemode.protocol.messages import (
    CallRequested,
    ConsoleWritten,
    GuestNotification,
    PartiallyStrippedProgram,
    ProgramAnalysed,
    ProgramReturned,
    RunProgram,
    TurnEnded,
)

FACE = GuestSettings(wrapper="strict", globals=("callTool", "mcpLog", "mcpNotify"), result="sanitised")
TELLING = replace(SETTINGS, profile=replace(SETTINGS.profile, guest=FACE))


def note(number: int, kind: Any = "notify") -> GuestNotification:
    return GuestNotification(kind, f'{{"event":"{number}"}}')


def told(invocation: Invocation, *received: Any) -> list[str]:
    effects = [effect for event in received for effect in invocation.receive(event)]
    return [effect.payload_json for effect in effects if isinstance(effect, SendNotification)]


def test_each_is_passed_on_at_once_and_in_order():
    invocation = machine(settings=TELLING)
    assert told(invocation, note(1), note(2, "log"), call(1), note(3), TurnEnded(1)) == [
        note(number).payload_json for number in (1, 2, 3)
    ]
    assert invocation.ledger.notice_count == 3


@pytest.mark.parametrize("kind", ["log", "notify"])
def test_a_program_without_the_global_cannot_have_sent_one(kind):
    others = tuple(name for name in FACE.globals if name != {"log": "mcpLog", "notify": "mcpNotify"}[kind])
    settings = replace(TELLING, profile=replace(TELLING.profile, guest=replace(FACE, globals=others)))
    invocation = machine(note(1, kind), settings=settings)
    assert type(error_of(invocation)) is CodeModeProtocolError


def test_none_is_sent_out_of_turn():
    invocation = machine(call(1), TurnEnded(1), note(1), settings=TELLING)
    assert type(error_of(invocation)) is CodeModeProtocolError


def test_there_are_no_more_than_the_kernel_lets_through():
    wide = replace(TELLING, limits=replace(TELLING.limits, max_console_bytes=1 << 20))
    assert machine(*[note(1)] * 4096, settings=wide).ending is None
    assert type(error_of(machine(*[note(1)] * 4097, settings=wide))) is CodeModeProtocolError
    large = GuestNotification("log", "x" * TELLING.limits.max_console_bytes)
    assert machine(large, settings=TELLING).ending is None
    assert type(error_of(machine(large, note(1), settings=TELLING))) is CodeModeProtocolError


def recorded(notices: int) -> Ledger:
    entry = LedgerEntry(1, "tool", "t", "0", None, "outer:tool-1", None, Fulfilled('"v"'))
    return Ledger([entry], [1], notices)


@given(st.integers(0, 5), st.integers(0, 4), st.integers(0, 4))
def test_a_replay_passes_on_only_what_is_new(before, in_first, in_second):
    invocation = machine(settings=TELLING, recorded=recorded(before))
    first = [note(number) for number in range(in_first)]
    second = [note(number) for number in range(in_first, in_first + in_second)]
    heard = told(invocation, *first, call(1), TurnEnded(1), *second)
    assert heard == [one.payload_json for one in [*first, *second][before:]]
    # What was cut short before it came as far again has told no less.
    invocation.receive(events.DeadlinePassed())
    assert invocation.ledger.notice_count == max(before, in_first + in_second)


@given(st.integers(0, 2**53))
def test_a_continuation_and_a_recovery_know_how_many_there_were(notices):
    ledger = Ledger([done_entry(1)], [1], notices)
    made = Continuation.from_ledger("js", "engine", TELLING, ledger)
    again = Continuation.from_dict(
        continuation_from_texts(json.loads(json.dumps([*continuation_to_texts(made.to_dict())])))
    )
    assert again.ledger == ledger
    recovered = build_recovery_ledger(again.ledger, "salt", lambda _: False, lambda _: None, lambda _: None)
    assert recovered.notice_count == notices


@each_row("wrong", [-1, True, False, 1.5, "1", None, []])
def test_their_number_is_checked(wrong):
    body = Continuation.from_ledger("js", "engine", TELLING, recorded(1)).to_dict()
    with pytest.raises(CodeModeProtocolError):
        Continuation.from_dict({**body, "notices": wrong})


@each_row(
    "body",
    [
        {"kind": "other", "event": "e"},
        {"kind": ["log"], "level": "l", "message": "m"},
        {"kind": "log", "event": "e"},
        {"kind": "notify", "event": "e" * 20_001},
        {"kind": "notify", "event": "e", "payload": "{"},
        {"kind": "notify", "event": "e", "payload": ""},
        {"kind": "notify", "event": "e", "payload": "1,2"},
        {"kind": "notify", "event": "e", "payload": '1}, "more": {'},
        {"kind": "notify", "event": "e", "payload": "NaN"},
        {"kind": "notify", "event": "e", "payload": "[" * 5000},
        {"kind": "notify", "event": "e", "payload": {"a": 1}},
    ],
)
def test_other_notices_are_refused(body):
    with pytest.raises(CodeModeProtocolError):
        decode_message(b"N" + json.dumps(body).encode())


@given(st.text(max_size=50), st.text(max_size=50), st.recursive(st.none() | st.text(), st.lists, max_leaves=5))
def test_what_is_passed_on_is_the_json_of_what_was_said(level, message, metadata):
    body = {"kind": "log", "level": level, "message": message, "metadata": json.dumps(metadata)}
    notice = decode_message(b"N" + json.dumps(body).encode())
    assert isinstance(notice, GuestNotification)
    assert json.loads(notice.payload_json) == {"level": level, "message": message, "metadata": metadata}


# --- what was cut of a result ---


def test_warnings_come_with_the_value_where_results_are_cut():
    cut = ProgramReturned("1", is_undefined=False, value_bytes=None, unobserved_ids=(), warnings=("result.a: cut",))
    assert machine(cut, settings=TELLING).ending == Completed("1", ("result.a: cut",))
    assert type(error_of(machine(cut))) is CodeModeProtocolError


@each_row("warnings", [["x"] * 33, ["x" * 201], "x", [5], None, [["x"]]])
def test_warnings_are_few_and_short(warnings):
    with pytest.raises(CodeModeProtocolError):
        decode_message(b"V" + json.dumps({"value": "1", "unobserved": [], "warnings": warnings}).encode())


# --- a program that could not be checked ---


def compiling(draft: PartiallyStrippedProgram | None = None) -> Invocation:
    invocation = Invocation(TELLING)
    invocation.start("ts", analysis_ms=50)
    assert invocation.receive(ProgramAnalysed("js", None, (), draft)) == [CheckProgram("js", None)]
    (sent,) = invocation.receive(events.ProgramAccepted("js", compile_only=True))
    told = TELLING.to_worker_fields()
    assert sent == SendMessage(RunProgram("js", told, draft, None, compile_only=True))
    return invocation


def test_one_that_compiles_is_told_to_be_too_much():
    invocation = compiling()
    invocation.receive(returned(None))
    error = error_of(invocation)
    assert type(error) is CodeModeIllegalAccessError
    assert error.details["violations"] == [{"kind": "NotAnalysable", "location": {"line": 1, "column": 1}}]
    assert (error.details["line"], error.details["column"]) == (1, 1)


def test_its_place_is_that_of_what_was_not_understood():
    invocation = compiling(PartiallyStrippedProgram("js", 3, 7, is_ambiguous=False))
    invocation.receive(returned(None))
    assert (error_of(invocation).details["line"], error_of(invocation).details["column"]) == (3, 7)


def test_one_that_does_not_compile_has_its_own_mistake():
    invocation = compiling()
    invocation.receive(threw(name="SyntaxError", message="no", origin="syntax", stack="at program.js:2:4"))
    error = error_of(invocation)
    assert type(error) is CodeModeSyntaxError
    assert (error.details["line"], error.details["column"]) == (2, 4)


@each_row(
    "event", [call(1), CallRequested(1, "fetch", "f", "0", None), ConsoleWritten("log", "x"), note(1), TurnEnded(0)]
)
def test_nothing_of_it_may_run(event):
    invocation = compiling()
    effects = invocation.receive(event)
    assert type(error_of(invocation)) is CodeModeProtocolError
    assert not any(
        isinstance(effect, events.PerformRequest | SendNotification | events.WriteConsole) for effect in effects
    )


def test_broken_rules_end_it_before_anything_runs_and_all_are_told():
    broken = tuple(
        {"kind": "DisallowedLoop", "name": "for", "location": {"line": n, "column": 2}} for n in range(1, 12)
    )
    invocation = Invocation(TELLING)
    invocation.start("ts", analysis_ms=50)
    effects = invocation.receive(events.ProgramRefused(violations=broken))
    error = error_of(invocation)
    assert effects == [events.FinishInvocation(events.Failed(error))]
    assert type(error) is CodeModeIllegalAccessError
    assert error.details["violations"] == list(broken)
    assert (error.details["line"], error.details["column"]) == (1, 2)
    assert error.message.endswith("and 3 more")


def test_a_refused_call_is_the_error_of_the_program():
    error = CodeModeToolError("no such tool")
    invocation = Invocation(TELLING)
    invocation.start("ts", analysis_ms=50)
    invocation.receive(events.ProgramRefused(error=error))
    assert error_of(invocation) is error
    assert invocation.receive(done(1)) == []
