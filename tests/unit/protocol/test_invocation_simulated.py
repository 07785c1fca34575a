"""An invocation against a simulated kernel: whatever order things happen in, the rules hold."""

from __future__ import annotations

import json
from random import Random

import pytest
from generated_programs import Value, any_programs, awaited_programs, expected_value
from hypothesis import assume, given
from hypothesis import strategies as st
from invocation_driver import Run, fulfil, reject, wait, with_limits
from invocation_settings import limited
from simulated_kernel import Call, Never, Program, Retry, all_of, sequence
from suite import each_row

from codemode.errors import (
    CodeModeBridgeLimitError,
    CodeModeDetachedBridgeRequestError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeToolError,
)
from codemode.protocol import events
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Rejected, Waiting
from codemode.protocol.settings import InvocationSettings

seeds = st.integers(0, 2**32)
limits = st.builds(
    with_limits,
    max_bridge_requests=st.integers(1, 30),
    max_in_flight_bridge_requests=st.integers(1, 8),
    in_flight_limit=st.sampled_from(["fail", "queue"]),
)


def outcomes_of(seed: int, *, waiting: bool = False):
    """Answer by the call's name, so that every run and replay of a program gets the same outcomes."""

    def answer(entry: LedgerEntry) -> events.CallSettled:
        number = Random(f"{seed} {entry.name}").random()
        if waiting and number < 0.25 and not isinstance(entry.outcome, Waiting):
            return wait(entry)
        return reject(entry) if number > 0.7 else fulfil(entry)

    return answer


def error_of(run: Run) -> CodeModeError:
    assert isinstance(run.ending, events.Failed)
    return run.ending.error


def check_record(run: Run) -> None:
    """The ledger is what the guest did, and the guest got what the ledger says."""
    known = len(run.ledger.entries)
    assert [entry.id for entry in run.ledger.entries] == list(range(1, known + 1))
    assert [entry.name for entry in run.ledger.entries] == [request.name for request in run.kernel.issued[:known]]
    assert [message.id for message in run.sent] == run.ledger.deliveries
    assert run.kernel.delivered == run.ledger.deliveries[: len(run.kernel.delivered)]
    assert run.sent == [run.ledger[message.id].make_delivery_message() for message in run.sent]
    for request_id, settled in run.outcomes.items():
        if run.ending is None or request_id in run.ledger.deliveries:
            assert run.ledger[request_id].outcome == settled.outcome
    limits = run.machine.settings.limits
    assert limits.in_flight_limit == "queue" or run.kernel.peak_in_flight <= limits.max_in_flight_bridge_requests


def check_end(run: Run) -> None:
    check_record(run)
    assert run.machine.receive(events.DeadlinePassed()) == []
    if run.kernel.finished and not isinstance(run.ending, events.Interrupted):
        assert not run.kernel.issued_in_last_turn & set(run.invoked), "the turn in which a program ends sends nothing"


@given(any_programs, limits, seeds)
def test_every_order_of_events_ends_within_the_rules(program: Program, settings: InvocationSettings, seed: int):
    run = Run(program, settings=settings, answer=outcomes_of(seed), steps=Random(seed), asks=bool(seed % 2))
    run.finish()
    check_end(run)
    assert not isinstance(run.ending, events.Interrupted)
    if isinstance(run.ending, events.Failed):
        assert not isinstance(run.ending.error, CodeModeProtocolError), run.ending.error


@given(any_programs, limits, seeds)
def test_the_programs_clock_runs_exactly_while_the_guest_owes_a_turn(
    program: Program, settings: InvocationSettings, seed: int
):
    settings = limited(settings, timeout_includes_tools=False)
    Run(program, settings=settings, answer=outcomes_of(seed), steps=Random(seed), asks=bool(seed % 2)).finish()


@given(awaited_programs, limits, seeds)
def test_the_result_is_that_of_a_direct_evaluation(program: Program, settings: InvocationSettings, seed: int):
    run = Run(program, settings=settings, answer=outcomes_of(seed), steps=Random(seed))
    run.finish()
    delivered_at = {run.ledger[request_id].name: n for n, request_id in enumerate(run.kernel.delivered, 1)}
    outcomes = {
        entry.name: Value(0, entry.name, failed=isinstance(entry.outcome, Rejected))
        for entry in run.ledger.entries
        if entry.id in run.kernel.delivered
    }
    outcomes |= {call.name: Value(0, "refused", failed=True) for call in run.kernel.refused}
    expected = expected_value(program, delivered_at, outcomes)
    assert expected is not None
    if isinstance(run.ending, events.Completed):
        assert not expected.failed
        assert json.loads(run.ending.value_json or "") == expected.value
    elif isinstance(error_of(run), CodeModeDetachedBridgeRequestError):
        assert not expected.failed
        assert len(run.kernel.delivered) < len(run.ledger.entries)
    elif expected.value == "refused":
        assert isinstance(error_of(run), CodeModeBridgeLimitError)
    else:
        assert expected.failed
        assert error_of(run).message == f"{expected.value} failed"
        assert isinstance(error_of(run), CodeModeToolError)


@given(any_programs, seeds)
def test_a_deadlock_is_reported_exactly_when_nothing_is_in_flight(program: Program, seed: int):
    run = Run(program, answer=outcomes_of(seed), steps=Random(seed))
    run.finish()
    is_deadlock = isinstance(run.ending, events.Failed) and run.ending.error.code == "CODE_MODE_DEADLOCK"
    assert is_deadlock == (not run.kernel.finished)
    if is_deadlock:
        assert run.kernel.delivered == run.ledger.deliveries
        assert len(run.kernel.delivered) == len(run.kernel.issued)


@given(any_programs, limits, seeds)
def test_a_pause_comes_exactly_when_only_people_are_left(program: Program, settings: InvocationSettings, seed: int):
    run = Run(program, settings=settings, answer=outcomes_of(seed, waiting=True), steps=Random(seed))
    run.finish()
    check_end(run)
    waiting = {entry.id for entry in run.ledger.entries if isinstance(entry.outcome, Waiting)}
    if isinstance(run.ending, events.Interrupted):
        assert waiting
        assert all(entry.outcome is not None for entry in run.ledger.entries)
        assert {entry.id for entry in run.ledger.entries} - waiting == set(run.kernel.delivered)
        assert not run.kernel.finished
    else:
        assert run.kernel.finished or not waiting


# --- replay ---


def cut(program: Program, settings: InvocationSettings, seed: int, steps: int) -> Run:
    """Run a program up to some step."""
    run = Run(program, settings=settings, answer=outcomes_of(seed, waiting=True), steps=Random(seed))
    for _ in range(steps):
        if not run.step():
            break
    return run


def some_of(seed: int, recorded: Ledger) -> set[int]:
    """Which of the waiting requests have an answer now."""
    waiting = [entry.id for entry in recorded.entries if isinstance(entry.outcome, Waiting)]
    return {request_id for request_id in waiting if Random(f"{seed} {request_id}").random() < 0.6}


@given(any_programs, limits, seeds, st.integers(0, 60), st.booleans())
def test_a_replay_answers_finished_calls_from_the_ledger(
    program: Program, settings: InvocationSettings, seed: int, steps: int, stopped: bool
):
    first = cut(program, settings, seed, steps)
    if stopped:
        first.stop()
    recorded = first.recording()
    resolved = some_of(seed, recorded)
    replay = Run(
        program,
        settings=settings,
        answer=outcomes_of(seed, waiting=True),
        steps=Random(seed + 1),
        recorded=recorded,
        resolved=resolved,
    )
    while replay.step():
        assert len(replay.sent) >= len(recorded.deliveries) or not replay.invoked, "new work before the replay was done"
    assert replay.ending is not None
    check_record(replay)
    assert replay.sent[: len(first.sent)] == first.sent
    finished = set(recorded.deliveries)
    still_waiting = {entry.id for entry in recorded.entries if isinstance(entry.outcome, Waiting)} - resolved
    assert not (finished | still_waiting) & set(replay.invoked)
    if isinstance(replay.ending, events.Failed):
        assert not isinstance(replay.ending.error, CodeModeProtocolError), replay.ending.error
    if isinstance(replay.ending, events.Interrupted):
        assert still_waiting <= {e.id for e in replay.ledger.entries if isinstance(e.outcome, Waiting)}


@given(any_programs, limits, seeds)
def test_a_pause_and_a_replay_end_like_one_run(program: Program, settings: InvocationSettings, seed: int):
    """Every pause is resumed with all answers; the last run's record is one that a run in one piece could have made."""
    answer = outcomes_of(seed, waiting=True)
    run = Run(program, settings=settings, answer=answer, steps=Random(seed))
    run.finish()
    invoked_in_the_end: list[int] = list(run.invoked)
    for attempt in range(1, 20):
        if not isinstance(run.ending, events.Interrupted):
            break
        recorded = run.recording()
        waiting = {entry.id for entry in recorded.entries if isinstance(entry.outcome, Waiting)}
        run = Run(
            program, settings=settings, answer=answer, steps=Random(seed + attempt), recorded=recorded, resolved=waiting
        )
        run.finish()
        assert not set(run.invoked) & set(recorded.deliveries)
        invoked_in_the_end += run.invoked
    assert not isinstance(run.ending, events.Interrupted)
    check_end(run)
    # Twice is once to be told to wait, and once to be done.
    assert all(invoked_in_the_end.count(request_id) <= 2 for request_id in invoked_in_the_end)
    whole = Run(program, settings=settings, answer=outcomes_of(seed), steps=Random(seed))
    whole.finish()
    kinds = {type(run.ending), type(whole.ending)}
    assert events.Interrupted not in kinds


@given(any_programs, seeds, st.integers(0, 60), st.integers(0, 100), st.sampled_from(["name", "input", "input_bytes"]))
def test_a_replay_of_another_program_stops_at_the_first_difference(
    program: Program, seed: int, steps: int, choice: int, key: str
):
    recorded = cut(program, with_limits(), seed, steps).recording()
    assume(recorded.entries)
    position = choice % len(recorded.entries)
    entry = recorded.entries[position]
    changes = {"name": {"name": "other"}, "input": {"input_json": "99"}, "input_bytes": {"input_bytes": 9_999_999}}
    recorded.entries[position] = entry._replace(**changes[key])  # type: ignore[arg-type]
    replay = Run(program, answer=outcomes_of(seed), steps=Random(seed + 1), recorded=recorded)
    replay.finish()
    error = error_of(replay)
    assert isinstance(error, CodeModeProtocolError)
    assert error.details["position"] == position + 1
    assert not set(replay.invoked) & set(recorded.deliveries)


def recording(*calls: Call, delivered: tuple[int, ...]) -> Ledger:
    """A ledger of these calls in this order, the delivered ones fulfilled, the others unknown."""
    entries = [
        LedgerEntry(
            number, "tool", call.name, json.dumps(call.input), tool_call_id=f"outer:tool-{number}",
            outcome=Fulfilled(json.dumps(call.name)) if number in delivered else None,
            now_ms=2_000 if number in delivered else None,
        )
        for number, call in enumerate(calls, 1)
    ]  # fmt: skip
    return Ledger(entries, list(delivered))


A, B, C = Call("a"), Call("b"), Call("c")


@each_row(
    "program, recorded, position",
    [
        pytest.param(all_of(B, A), recording(A, B, delivered=(1, 2)), 1, id="another order"),
        pytest.param(A, recording(A, B, delivered=(1, 2)), 2, id="ends early"),
        pytest.param(A, recording(A, B, delivered=(1,)), 2, id="ends before an unfinished request"),
        pytest.param(sequence(), recording(A, delivered=(1,)), 1, id="does nothing"),
        pytest.param(sequence(A, B), recording(A, B, C, delivered=(2, 1)), 2, id="waits where it did not"),
        pytest.param(all_of(A, B), recording(A, delivered=(1,)), 2, id="one more than before the delivery"),
        pytest.param(all_of(A, B), recording(A, delivered=()), None, id="one more than was seen of the first turn"),
        pytest.param(all_of(A, B), recording(A, C, delivered=(1, 2)), 2, id="another tool"),
        pytest.param(sequence(all_of(A, B), C), recording(A, C, delivered=(1, 2)), 2, id="a new one in between"),
    ],
)
def test_divergence_names_its_position(program: Program, recorded: Ledger, position: int | None):
    replay = Run(program, recorded=recorded)
    replay.finish()
    if position is None:
        assert isinstance(replay.ending, events.Completed)
        return
    error = error_of(replay)
    assert isinstance(error, CodeModeProtocolError)
    assert error.details["position"] == position


def test_a_request_that_was_not_recorded_before_a_recorded_delivery_is_a_difference():
    # The recorded run delivered 1 and 2, and 2 came after 1: a third request before that cannot be.
    replay = Run(sequence(A, all_of(B, C)), recorded=recording(A, B, delivered=(2, 1)))
    replay.finish()
    assert isinstance(error_of(replay), CodeModeProtocolError)


def test_a_program_that_waits_for_nothing_during_a_replay_has_diverged():
    replay = Run(Never(), recorded=recording(A, delivered=(1,)))
    replay.finish()
    assert isinstance(error_of(replay), CodeModeProtocolError)
    assert error_of(replay).details["position"] == 1


def test_an_error_that_ends_the_program_early_is_a_difference_too():
    rejected = (
        recording(A, delivered=(1,))
        .entries[0]
        ._replace(
            outcome=Rejected("CodeModeToolError", "a failed", "CODE_MODE_TOOL_ERROR"),
        )
    )
    recorded = Ledger([rejected, *recording(A, B, delivered=()).entries[1:]], [1])
    replay = Run(A, recorded=recorded)
    replay.finish()
    assert isinstance(error_of(replay), CodeModeProtocolError)
    assert error_of(replay).details["position"] == 2


def test_a_recorded_rejection_that_ends_the_program_is_that_error():
    first = Run(Retry(A, B), answer=reject)
    first.finish()
    replay = Run(Retry(A, B), recorded=first.recording())
    replay.finish()
    assert replay.invoked == []
    assert type(error_of(replay)) is type(error_of(first)) is CodeModeToolError
    assert (error_of(replay).message, error_of(replay).code) == ("b failed", error_of(first).code)


def test_unfinished_work_waits_for_the_whole_replay():
    replay = Run(all_of(C, sequence(A, B)), recorded=recording(C, A, B, delivered=(2, 3)))
    while replay.step():
        assert not replay.invoked or len(replay.sent) >= 2
    assert replay.invoked == [1]
    assert replay.ledger.deliveries == [2, 3, 1]


def test_a_finished_request_is_never_invoked_again_even_when_named_as_resolved():
    replay = Run(A, recorded=recording(A, delivered=(1,)), resolved=[1])
    replay.finish()
    assert replay.invoked == []
    assert replay.replayed == [1]


@given(any_programs, seeds, st.integers(5, 60), st.integers(0, 12))
def test_a_replay_that_is_cut_short_forgets_nothing(program: Program, seed: int, steps: int, cut_after: int):
    recorded = cut(program, with_limits(), seed, steps).recording()
    replay = Run(program, answer=outcomes_of(seed), steps=Random(seed + 1), recorded=recorded)
    for _ in range(cut_after):
        replay.step()
    replay.stop()
    again = replay.recording()
    assert len(again.entries) >= len(recorded.entries)
    assert again.deliveries[: len(recorded.deliveries)] == recorded.deliveries
    for request_id in recorded.deliveries:
        assert again[request_id] == recorded[request_id]
    last = Run(program, answer=outcomes_of(seed), steps=Random(seed + 2), recorded=again)
    last.finish()
    assert not set(last.invoked) & set(again.deliveries)
    if isinstance(last.ending, events.Failed):
        assert not isinstance(last.ending.error, CodeModeProtocolError), last.ending.error
