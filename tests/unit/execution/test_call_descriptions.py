"""How the calls of a program are worded for its model."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from codemode.execution.outcome_texts import describe_calls, may_have_side_effects


def call(name: str = "pay", status: str = "fulfilled", **more: Any) -> Any:
    return {"id": "c:tool-1", "name": name, "status": status, "is_started": True, **more}


def test_each_call_stands_where_it_belongs_with_its_texts():
    table = [
        (call(input='{"a":1}', result="7"), 'Already done, do not repeat: pay({"a":1}) -> 7'),
        (call(input='{"a":1}'), 'Already done, do not repeat: pay({"a":1})'),
        (call(), "Already done, do not repeat: pay"),
        (call(reads_only=True, result="7"), "Done, only read: pay -> 7"),
        (call(status="unknown"), "May or may not have happened, find out before repeating: pay"),
        (call(status="unknown", reads_only=True), "Cut off, only reads: pay"),
        (call(status="waiting", input="1"), "Waits for a person, not done: pay(1)"),
        (call(status="denied", input="1", error="too\n dear"), "Denied, not done: pay(1): too dear"),
        (call(status="rejected", input="1", error="no"), "Failed: pay(1): no"),
        (call(name="p\x1b[2J", status="rejected"), "Failed: p\\u001b[2J"),
    ]
    for summary, line in table:
        assert describe_calls([summary]) == [line], summary
    assert describe_calls([call(), call(input="1"), call(reads_only=True)]) == [
        "Already done, do not repeat: pay; pay(1)",
        "Done, only read: pay",
    ]


def test_what_never_began_and_questions_about_tools_are_no_calls():
    for summary in (
        call(status="unknown", is_started=False),
        call(kind="catalog", reads_only=True),
        call(name="$search"),
        {"name": "pay"},
    ):
        assert describe_calls([summary]) == [], summary


def test_only_what_must_not_be_repeated_counts_as_done():
    assert may_have_side_effects([call()])
    assert may_have_side_effects([call(status="unknown")])
    for status in ("rejected", "denied", "waiting"):
        assert not may_have_side_effects([call(status=status)]), status
    assert not may_have_side_effects([call(reads_only=True), call(status="unknown", is_started=False)])


def test_texts_are_shortened_before_calls_are_left_out():
    few = [call(input="i" * 300, result="r" * 1000) for _ in range(3)]
    (line,) = describe_calls(few)
    assert line.count("pay(i") == 3
    (line,) = describe_calls([call(input=f"{n}-{'i' * 300}", result="r" * 1000) for n in range(64)])
    assert len(line) <= 3000
    assert "pay(0-iii" in line
    assert line.endswith(" more (pay)")


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.text(max_size=200),
                "status": st.sampled_from(["fulfilled", "rejected", "denied", "waiting", "unknown"]),
            },
            optional={
                "reads_only": st.booleans(),
                "input": st.text(max_size=400),
                "result": st.text(max_size=1200),
                "error": st.text(max_size=400),
            },
        ),
        max_size=80,
    ),
    st.integers(400, 3000),
)
def test_any_calls_give_visible_lines_within_the_limit(calls: Any, most: int):
    lines = describe_calls(calls, most)
    assert sum(map(len, lines)) <= most
    assert all(line.isprintable() for line in lines)
