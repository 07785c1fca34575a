"""How a call stands, by its outcome, and the words for that in each place."""

from __future__ import annotations

from typing import get_args

from suite import each_row

from codemode.errors import CALL_TIMEOUT
from codemode.protocol.call_status import (
    CONTINUATION_STATUSES,
    DETACHED_STATUSES,
    ERROR_STATUSES,
    TRACE_STATUSES,
    get_call_status,
    is_noncatalog_call_that_may_have_run,
    summarize_calls,
)
from codemode.protocol.ledger import Fulfilled, LedgerEntry, Rejected, Waiting
from codemode.trace.events import CallStatus

OUTCOMES = {
    "open": None,
    "fulfilled": Fulfilled("1"),
    "rejected": Rejected("Error", "no", "CODE_MODE_TOOL_ERROR"),
    "late": Rejected("CodeModeTimeoutError", "late", CALL_TIMEOUT),
    "waiting": Waiting("id", "{}", None, 1),
}


@each_row("state", OUTCOMES)
@each_row("words", [ERROR_STATUSES, TRACE_STATUSES, CONTINUATION_STATUSES, DETACHED_STATUSES])
def test_every_way_to_stand_has_its_word_everywhere(state, words):
    assert get_call_status(OUTCOMES[state], words) == getattr(words, state)


def test_the_public_words_are_these():
    assert [get_call_status(outcome, ERROR_STATUSES) for outcome in OUTCOMES.values()] == [
        "unknown", "fulfilled", "rejected", "unknown", "waiting",
    ]  # fmt: skip
    assert set(TRACE_STATUSES) == set(get_args(CallStatus))
    assert set(CONTINUATION_STATUSES) == {"unknown", "fulfilled", "rejected", "interrupted"}


def entry(**more):
    return LedgerEntry(
        **{"id": 3, "kind": "tool", "name": "pay", "input_json": "1", "tool_call_id": "o:tool-1", **more}
    )


def test_a_summary_says_whether_the_call_was_begun():
    entries = [entry(), entry(is_started=True), entry(outcome=OUTCOMES["late"]), entry(kind="fetch", tool_call_id=None)]
    summaries = summarize_calls(entries)
    assert [(one["id"], one["status"], one["is_started"]) for one in summaries] == [
        ("o:tool-1", "unknown", False),
        ("o:tool-1", "unknown", True),
        ("o:tool-1", "unknown", True),
        ("3", "unknown", False),
    ]
    assert [is_noncatalog_call_that_may_have_run(one) for one in summaries] == [False, True, True, False]
    asked = summarize_calls([entry(kind="catalog", name="$search", outcome=OUTCOMES["fulfilled"])])
    assert not is_noncatalog_call_that_may_have_run(asked[0])
