"""Lines of a journal: from any beginning of them a run goes on to where it would have come, and each call once."""

from __future__ import annotations

from random import Random

import pytest
from generated_programs import awaited_programs
from hypothesis import given
from hypothesis import strategies as st
from invocation_driver import SETTINGS, Run, fulfil, reject
from suite import each_row

from codemode.errors import CodeModeProtocolError
from codemode.protocol import events
from codemode.protocol.events import CallSettled
from codemode.protocol.journal_entries import (
    JournalStep,
    decode_journal_lines,
    encode_journal_line,
    make_notification_count_step,
    make_outcome_step,
    make_request_step,
    make_resume_step,
    make_snapshot_step,
    make_tool_start_step,
    make_undelivered_outcome_step,
)
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry, Rejected, Waiting

OUTER = SETTINGS.outer_tool_call_id
TEXTS = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=20))


class Journaled(Run):
    """A run that writes lines as a host does: groups of steps, each before what comes of it."""

    lines: list[str]

    def _perform(self, effects):
        self.__dict__.setdefault("lines", [])
        self.__dict__.setdefault("written", 0)
        super()._perform(effects)

    def _call_settles(self):
        request_id = self._steps.choice(sorted(self._running))
        steps = self._news()
        if self._steps.random() < 0.5:
            steps.append(make_tool_start_step(request_id, None, is_approved=False))
            self.lines.append(encode_journal_line(steps))
            steps = self._news()
            self._perform(self.machine.receive(events.ToolStarted(request_id, None, is_approved=False)))
        outcome = self._answer(self._running.pop(request_id))
        self.lines.append(encode_journal_line([*steps, make_outcome_step(outcome)]))
        self.outcomes[request_id] = outcome
        self._perform(self.machine.receive(outcome))

    def _news(self):
        new = self.ledger.entries[self.written :]
        self.written += len(new)
        return [make_request_step(entry) for entry in new]


def by_name(seed):
    def answer(entry):
        return reject(entry) if Random(f"{seed} {entry.name}").random() > 0.7 else fulfil(entry)

    return answer


@given(awaited_programs, st.integers(0, 2**32), st.integers(0, 2**32), st.data())
def test_any_beginning_of_the_lines_leads_to_where_its_deliveries_do(program, seed, order, data):
    answer = by_name(seed)
    whole = Journaled(program, answer=answer, steps=Random(order))
    whole.finish()
    cut = data.draw(st.integers(0, len(whole.lines)))
    written = decode_journal_lines(whole.lines[:cut], OUTER)
    done = written.ledger.deliveries
    assert done == whole.ledger.deliveries[: len(done)]

    kept = Ledger([entry._replace(is_started=False) for entry in written.ledger.entries], list(done))
    on = Run(program, answer=answer, steps=Random(order + 1), recorded=kept)
    on.finish()
    assert on.ledger.deliveries[: len(done)] == done
    assert not set(on.invoked) & set(done)  # what is done is not done again
    assert set(on.invoked) | set(done) >= {entry.id for entry in on.ledger.entries if entry.outcome is not None}
    if cut == len(whole.lines):
        assert repr(on.ending) == repr(whole.ending)


@given(
    st.lists(st.tuples(st.sampled_from(["tool", "catalog"]), TEXTS, TEXTS, st.integers(0, 4)), max_size=6),
    st.integers(0, 2**32),
)
def test_what_is_written_is_read_back(calls, seed):
    random, ledger, steps, tools = Random(seed), Ledger(), [], 0
    for number, (kind, text, value, how) in enumerate(calls, 1):
        tools += kind == "tool"
        place = (number, 3) if how % 2 else None
        entry = LedgerEntry(
            number, kind, "t", text, tool_call_id=f"{OUTER}:tool-{tools}" if kind == "tool" else None, location=place
        )
        ledger.entries.append(entry)
        steps.append(make_request_step(entry))
        if how and kind == "tool":
            ledger.record_tool_start(number, value, is_approved=how == 1)
            steps.append(make_tool_start_step(number, value, is_approved=how == 1))
        outcome = [None, Fulfilled(value), Rejected("N", "a\nb\x00", "C"), Waiting(f"i{number}", "{}", value, 1)][
            how % 4
        ]
        if outcome is not None and not (kind == "catalog" and how == 3):
            event = CallSettled(
                number, outcome, 5 + number, displayed_input_json=value, duration_us=number if seed % 2 else None
            )
            ledger.record_outcome(number, outcome, event.now_ms, value, event.duration_us)
            steps.append(make_outcome_step(event))
            if not isinstance(outcome, Waiting):
                ledger.deliveries.append(number)
    cuts = sorted(random.sample(range(len(steps) + 1), min(2, len(steps) + 1)))
    parts = [steps[: cuts[0]], steps[cuts[0] :]] if cuts else [steps]
    lines = [encode_journal_line(part) for part in parts]
    assert decode_journal_lines(lines, OUTER).ledger == ledger
    plain = [entry._replace(is_started=False) for entry in ledger.entries]
    again = decode_journal_lines(
        [
            encode_journal_line(
                [make_notification_count_step(3), make_snapshot_step(ledger), make_resume_step(("key", "answers"))]
            )
        ],
        OUTER,
    )
    assert again.ledger.entries == plain
    assert again.ledger.deliveries == ledger.deliveries
    assert again.claims == (("key", "answers"),)


def test_a_timer_that_fired_and_was_cleared_meanwhile_was_not_handed_over():
    timer = LedgerEntry(1, "timer", "setTimeout", "5")
    fired = make_outcome_step(CallSettled(1, Fulfilled(None), 7))
    ledger = decode_journal_lines(
        [
            encode_journal_line([make_request_step(timer), fired]),
            encode_journal_line([make_undelivered_outcome_step(1)]),
        ],
        OUTER,
    ).ledger
    assert ledger.entries == [timer._replace(is_withdrawn=True)]
    assert ledger.deliveries == []


CALL = LedgerEntry(1, "tool", "t", "{}")
DONE = make_outcome_step(CallSettled(1, Fulfilled("1"), 7))


@each_row(
    "lines",
    [
        pytest.param(["[]"], id="no end of the head"),
        pytest.param(["nothing\n"], id="no JSON"),
        pytest.param(["{}\n"], id="no steps"),
        pytest.param(['[["z"]]\n'], id="no step"),
        pytest.param(['["i"]\n'], id="not an array"),
        pytest.param([encode_journal_line([make_request_step(CALL)]) + "x"], id="too long"),
        pytest.param([encode_journal_line([make_request_step(CALL)])[:-1]], id="too short"),
        pytest.param([encode_journal_line([DONE])], id="an outcome of nothing"),
        pytest.param([encode_journal_line([make_request_step(CALL), DONE, DONE])], id="two outcomes"),
        pytest.param(
            [encode_journal_line([make_request_step(CALL), DONE, make_tool_start_step(1, None, is_approved=False)])],
            id="begun after its end",
        ),
        pytest.param(
            [encode_journal_line([make_tool_start_step(1, None, is_approved=True)])], id="begun before it was issued"
        ),
        pytest.param([encode_journal_line([make_request_step(CALL._replace(kind="other"))])], id="another kind"),
        pytest.param(
            [encode_journal_line([make_request_step(CALL), make_undelivered_outcome_step(1)])],
            id="nothing to take back",
        ),
        pytest.param(
            [encode_journal_line([make_request_step(CALL), DONE, make_undelivered_outcome_step(1)])],
            id="a tool that was cleared",
        ),
        pytest.param([encode_journal_line([JournalStep(("i", "tool", "t", None, [1]), (None,))])], id="half a place"),
        pytest.param([encode_journal_line([JournalStep(("l", 1, [], 0), ("{}",))])], id="no ledger"),
    ],
)
def test_lines_that_no_run_writes_are_refused(lines):
    with pytest.raises(CodeModeProtocolError):
        decode_journal_lines(lines, OUTER)
