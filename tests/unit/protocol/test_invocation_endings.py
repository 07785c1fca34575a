"""How an invocation ends: results, calls that nobody awaited, errors of the program and of the host."""

from __future__ import annotations

from typing import Any

import pytest
from invocation_driver import with_limits
from invocation_events import (
    STATES,
    WAITING,
    assert_violation,
    call,
    done,
    error_of,
    machine,
    returned,
    threw,
)
from suite import each_row

from codemode.errors import (
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeDetachedBridgeRequestError,
    CodeModeError,
    CodeModeSerializationError,
    CodeModeSyntaxError,
    CodeModeTimeoutError,
    CodeModeToolError,
    CodeModeWorkerError,
)
from codemode.protocol import events, messages
from codemode.protocol.events import CallSettled, Completed
from codemode.protocol.invocation import Invocation
from codemode.protocol.ledger import Rejected
from codemode.protocol.messages import TurnEnded

# --- results ---


@pytest.mark.parametrize("value", ["1", "null", '{"a":[]}', None])
def test_the_result_is_passed_on(value: str | None):
    assert machine(returned(value)).ending == Completed(value)


def test_a_result_is_measured_in_utf8_bytes():
    settings = with_limits(max_result_bytes=6)
    assert machine(returned('"éé"'), settings=settings).ending == Completed('"éé"')
    error = error_of(machine(returned('"ééx"'), settings=settings))
    assert isinstance(error, CodeModeSerializationError)
    assert error.details == {"bytes": 7, "max_bytes": 6}


def test_a_result_that_the_worker_withheld_must_be_too_large():
    settings = with_limits(max_result_bytes=6)
    error = error_of(machine(returned(None, size=7), settings=settings))
    assert isinstance(error, CodeModeSerializationError)
    assert error.details == {"bytes": 7, "max_bytes": 6}
    assert_violation(machine(returned(None, size=6), settings=settings))


# --- detached calls ---

REJECTED = CallSettled(1, Rejected("N", "m", "C"), 5, CodeModeToolError("m"))


def statuses(invocation: Invocation) -> list[tuple[str, str]]:
    error = error_of(invocation)
    assert isinstance(error, CodeModeDetachedBridgeRequestError)
    calls = error.details["calls"]
    assert error.details["id"] == calls[0]["id"]
    return [(each["id"], each["status"]) for each in calls]


@each_row(
    "received, expected",
    [
        pytest.param([call(1)], [("outer:tool-1", "pending")], id="made in the last turn, observed"),
        pytest.param([call(1), call(2), TurnEnded(2), done(1)], [("outer:tool-2", "pending")], id="sent"),
        pytest.param(
            [call(1), call(2), TurnEnded(2), done(1), done(2)], [("outer:tool-2", "pending")], id="delivered too late"
        ),
        pytest.param(
            [call(1), call(2), TurnEnded(2), done(2, WAITING), done(1)],
            [("outer:tool-2", "waiting")],
            id="waits for a person",
        ),
        pytest.param(
            [call(1), call(2), call(3), TurnEnded(3), done(2, WAITING), done(1)],
            [("outer:tool-2", "waiting"), ("outer:tool-3", "pending")],
            id="both",
        ),
    ],
)
def test_calls_without_an_answer_are_detached(received: list[Any], expected: list[tuple[str, str]]):
    invocation = machine(*received, returned())
    assert statuses(invocation) == expected


def test_calls_that_nobody_looked_at_are_unobserved():
    delivered = (call(1), call(2), TurnEnded(2), done(1), TurnEnded(1), done(2))
    assert statuses(machine(*delivered, returned(unobserved=(2, 1)))) == [
        ("outer:tool-1", "unobserved"),
        ("outer:tool-2", "unobserved"),
    ]
    assert statuses(machine(call(1), returned(unobserved=(1,)))) == [("outer:tool-1", "unobserved")]
    assert machine(*delivered, returned()).ending == Completed("1")


def test_a_call_without_an_answer_comes_before_one_that_nobody_looked_at():
    received = (call(1), call(2), TurnEnded(2), done(1), returned(unobserved=(1, 2)))
    assert statuses(machine(*received)) == [("outer:tool-2", "pending")]


def test_detached_calls_come_before_the_result_whatever_its_size():
    settings = with_limits(max_result_bytes=1)
    assert statuses(machine(call(1), returned("12"), settings=settings)) == [("outer:tool-1", "pending")]


def test_an_error_of_the_guest_comes_before_detached_calls():
    error = error_of(machine(call(1), call(2), TurnEnded(2), done(1), threw(message="mine")))
    assert type(error) is CodeModeError
    assert error.message == "mine"


def test_unobserved_calls_must_exist():
    assert_violation(machine(returned(unobserved=(1,))))
    assert_violation(machine(call(1), returned(unobserved=(0,))))


# --- errors ---


def test_nothing_the_guest_sets_chooses_a_class():
    error = error_of(machine(threw(name="CodeModeTimeoutError", error_code="CODE_MODE_TIMEOUT")))
    assert type(error) is CodeModeError
    assert error.code == "CODE_MODE_ERROR"
    assert (error.details["name"], error.details["code"]) == ("CodeModeTimeoutError", "CODE_MODE_TIMEOUT")


def test_a_position_in_the_program_is_kept():
    error = error_of(machine(threw(stack="at f (program.js:12:34)\nat program.js:1:2")))
    assert (error.details["line"], error.details["column"]) == (12, 34)


def test_an_uncaught_call_error_is_the_hosts_own():
    stack = "at program.js:7:8"
    invocation = machine(call(1), TurnEnded(1), REJECTED, threw(request_id=1, stack=stack))
    assert error_of(invocation) is REJECTED.error
    assert error_of(invocation).details["line"] == 7


@each_row(
    "received",
    [
        pytest.param([threw(request_id=1)], id="no such request"),
        pytest.param([call(1), threw(request_id=1)], id="not answered"),
        pytest.param([call(1), TurnEnded(1), done(1), threw(request_id=1)], id="answered with a value"),
        pytest.param([call(1), TurnEnded(1), REJECTED, threw(request_id=0)], id="request zero"),
        pytest.param(
            [call(1), call(2), TurnEnded(2), done(2), REJECTED, threw(request_id=1)], id="an answer it has not taken"
        ),
        pytest.param([threw(limit="max_result_bytes")], id="a limit that refuses no call"),
        pytest.param([threw(limit="__class__")], id="no limit"),
        pytest.param([threw(refused_tool="a")], id="a refused input on a surface without codes"),
    ],
)
def test_an_error_that_the_worker_was_not_given_breaks_the_rules(received: list[Any]):
    assert_violation(machine(*received))


@pytest.mark.parametrize(
    ("limit", "maximum"),
    [("max_bridge_requests", 256), ("max_in_flight_bridge_requests", 32), ("max_catalog_requests", 4)],
)
def test_an_uncaught_refusal_names_its_limit(limit: str, maximum: int):
    error = error_of(machine(threw(limit=limit)))
    assert isinstance(error, CodeModeBridgeLimitError)
    assert error.details == {"limit": limit, "max": maximum}


@pytest.mark.parametrize(("origin", "kind"), [("syntax", CodeModeSyntaxError), ("result", CodeModeSerializationError)])
def test_the_kernel_tells_where_an_error_comes_from(origin: str, kind: type[CodeModeError]):
    assert type(error_of(machine(threw(origin=origin)))) is kind


@each_row(
    "event, kind",
    [
        (events.DeadlinePassed(), CodeModeTimeoutError),
        (events.AbortRequested(), CodeModeAbortedError),
        (events.WorkerEnded("gone"), CodeModeWorkerError),
        (messages.EngineFailed("MemoryError"), CodeModeError),
        (events.HostFailed(CodeModeToolError("x")), CodeModeToolError),
    ],
)
def test_other_ends(event: Any, kind: type[CodeModeError]):
    for state in STATES.values():
        invocation = state()
        if invocation.ending is None:
            invocation.receive(event)
            assert type(error_of(invocation)) is kind


def test_a_timeout_names_its_limit():
    assert error_of(machine(events.DeadlinePassed())).details == {"timeout_ms": 30_000}
