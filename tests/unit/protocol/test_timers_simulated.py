"""Programs whose timers and calls race: however they are paused, cut off or delivered, the rules hold."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from invocation_driver import Run, fulfil, reject, wait
from simulated_kernel import All, Call
from timed_programs import TIMED, TimedKernel, TimedRun, Timeout, outcome_of, timed_programs

from codemode.errors import CodeModeProtocolError
from codemode.protocol import events
from codemode.protocol.continuation import Continuation
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Waiting

seeds = st.integers(0, 2**32)


def kept(ledger: Ledger) -> Ledger:
    """What a continuation makes of a ledger."""
    plain = Continuation.from_ledger("program", "engine", TIMED, ledger).to_dict()
    return Continuation.from_dict(json.loads(json.dumps(plain))).ledger


@given(timed_programs, seeds)
@example(All((Timeout(Call("t1"), 12), Call("gated2"))), 0)
def test_pausing_at_every_call_gives_what_an_uninterrupted_run_gives(program: Any, seed: int):
    whole = TimedRun(program, seed=seed, pauses=False)
    whole.finish()
    run = TimedRun(program, seed=seed, pauses=True)
    while isinstance(run.finish(), events.Interrupted):
        ledger = kept(run.machine.ledger)
        had_fired = {entry.id for entry in ledger.entries if entry.kind == "timer"}
        answered = ledger.waiting_entries[0].id
        run = TimedRun(program, seed=seed, pauses=True, recorded=ledger, resolved=[answered])
        run.finish()
        assert not had_fired & set(run.set_timers), "a timer of before the pause waits again"
    assert outcome_of(run) == outcome_of(whole)


def answer(entry: LedgerEntry) -> events.CallSettled:
    if entry.kind == "timer":
        return events.CallSettled(entry.id, Fulfilled(None), 2_000 + entry.id)
    if entry.name.startswith("gated") and not isinstance(entry.outcome, Waiting):
        return wait(entry)
    return reject(entry) if entry.name.endswith("3") else fulfil(entry)


def check(run: Run) -> None:
    ledger = run.ledger
    withdrawn = {entry.id for entry in ledger.entries if entry.is_withdrawn}
    assert not withdrawn & set(ledger.deliveries)
    assert len(set(ledger.deliveries)) == len(ledger.deliveries)
    assert run.kernel.delivered == ledger.deliveries[: len(run.kernel.delivered)]
    kept(ledger)
    if isinstance(run.ending, events.Failed):
        assert not isinstance(run.ending.error, CodeModeProtocolError), run.ending.error


@given(timed_programs, seeds, st.booleans())
def test_in_whatever_order_things_happen_a_withdrawn_timer_is_never_delivered(program: Any, seed: int, asks: bool):
    run = Run(program, settings=TIMED, answer=answer, steps=Random(seed), asks=asks, kernel=TimedKernel)
    run.finish()
    check(run)


@given(timed_programs, seeds, st.integers(1, 60))
def test_a_run_that_was_cut_off_goes_on_with_its_timers(program: Any, seed: int, steps: int):
    run = Run(program, settings=TIMED, answer=answer, steps=Random(seed), kernel=TimedKernel)
    for _ in range(steps):
        run.step()
    run.stop()
    ledger = kept(run.ledger)
    again = Run(program, settings=TIMED, answer=answer, steps=Random(seed + 1), recorded=ledger, kernel=TimedKernel)
    again.finish()
    check(again)
    withdrawn = {entry.id for entry in ledger.entries if entry.is_withdrawn}
    assert not (withdrawn | set(ledger.deliveries)) & set(again.invoked)
    assert again.ledger.deliveries[: len(ledger.deliveries)] == ledger.deliveries
