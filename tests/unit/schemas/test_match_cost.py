"""What a match takes is found out by going through the places of a pattern as the engine does."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite import each_row, rounds

from codemode.host import steps
from codemode.host.steps import WorkLimitError
from codemode.schemas import match_cost
from codemode.schemas.match_cost import (
    MAX_NODES,
    MAX_UNITS_PER_MATCH,
    UnreadablePatternError,
    parse_pattern,
    search_within_budget,
)
from codemode.schemas.patterns import compile_linear_matcher

SINGLE = [
    "a",
    "b",
    ".",
    "[ab]",
    "[^a]",
    r"\w",
    r"\d",
    r"[\s\S]",
    "é",
    r"\.",
    "[]a]",
    "[a[b-c]]",
    r"\x61",
    r"\p{L}",
    "-",
]
TIMES = ["*", "+", "?", "{2}", "{0,3}", "{1,2}", "{2,}", "*?", "+?", "{1,3}?", "{2}{2}", "**"]
GROUPS = ["(%s)", "(?:%s)", "(?P<name>%s)", "(?<name>%s)", "(?i:%s)"]
TEXTS = st.text("abcé1.- \n", max_size=12)


def grown(inside: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    some = st.lists(inside, min_size=1, max_size=3)
    return (
        some.map("".join)
        | some.map("|".join).map("(?:%s)".__mod__)
        | st.tuples(inside, st.sampled_from(TIMES)).map(lambda pair: f"(?:{pair[0]}){pair[1]}")
        | st.tuples(st.sampled_from(GROUPS[:2]), inside).map(lambda pair: pair[0] % pair[1])
    )


PARTS = st.recursive(st.sampled_from(SINGLE), grown, max_leaves=6)
EXACT = st.tuples(st.sampled_from(["", "^", r"\A", "(?i)", "(?s)"]), PARTS).map("".join)
ANY = st.tuples(
    st.sampled_from(["", "^", r"\b", "(?m)^", "(?i)", "(?ms)"]), PARTS, st.sampled_from(["", "$", r"\z", r"\B", "|a$"])
).map("".join)


def taken() -> tuple[list[int], Any]:
    counts: list[int] = []
    return counts, counts.append


def automaton_of(pattern: str) -> Any:
    made = match_cost._get_or_create_automaton(pattern, lambda _count: None)
    assert made is not None
    return made


def comes_to_the_end(pattern: str, text: str) -> bool:
    automaton = automaton_of(pattern)
    places, _ = automaton.compute_epsilon_closure([0], is_start=True)
    found = automaton.stops_at_match(places)
    for character in text:
        state = match_cost._MatchState(tuple(place for place in places if place >= 0), 1)
        places, _ = automaton.compute_epsilon_closure(
            automaton.compute_next_places(state, automaton.find_matching_atoms(character)), is_start=False
        )
        found |= automaton.stops_at_match(places)
    return found


@settings(deadline=None, max_examples=rounds(75, 2000))
@given(EXACT, TEXTS)
def test_the_end_of_a_program_is_come_to_where_the_engine_finds_its_pattern(pattern, text):
    assert comes_to_the_end(pattern, text) == compile_linear_matcher(pattern, is_rust_syntax=True)(text)


@settings(deadline=None, max_examples=rounds(75, 2000))
@given(ANY, st.lists(TEXTS, min_size=1, max_size=3))
def test_what_is_weighed_is_found_as_what_is_not(pattern, texts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(match_cost, "_MAX_UNITS_WITHOUT_ESTIMATE", -1)
        for text in texts:
            counts, take = taken()
            assert search_within_budget(pattern, text, take, is_rust_syntax=True) == compile_linear_matcher(
                pattern, is_rust_syntax=True
            )(text)
            assert sum(counts) > 0


@given(st.text("ab|()[]{}?*+^$\\,0123<>:PimsxU-#", max_size=30))
def test_a_pattern_is_read_or_it_is_said_that_it_cannot_be(pattern):
    try:
        program = parse_pattern(pattern)
    except UnreadablePatternError:
        return
    targets = {at + far for at, node in enumerate(program.nodes) if isinstance(node, tuple) for far in node}
    assert targets <= {*range(len(program.nodes) + 1)}
    assert all(node < len(program.atoms) for node in program.nodes if isinstance(node, int))


@each_row("pattern", ["a{40000}", "(?:a{300}){300}", "(?x)a # b", "a" * 40_000, "(?U)a*", "((a{99}){99}){99}"])
def test_what_is_too_long_or_means_something_else_is_not_read(pattern):
    with pytest.raises(UnreadablePatternError):
        parse_pattern(pattern)


def test_no_program_is_longer_than_may_be():
    assert len(parse_pattern("(?:ab?){1,7000}").nodes) <= MAX_NODES
    assert len(parse_pattern("|".join(["ab"] * 8000)).nodes) <= MAX_NODES


def units(pattern: str, text: str) -> int:
    return automaton_of(pattern).estimate_match_units(text, lambda _count: None)


@pytest.mark.parametrize("size", [4, 8, 14])
def test_units_grow_with_the_places_at_which_a_match_may_be(size, monkeypatch):
    text = "a" * 2000
    pattern = f"(?:a{{1,{size}}}){{1,{size}}}b"
    assert units(pattern, text) < size * size * len(text)  # there are few states: a place is not gone through each time
    assert units(f"^a{{1,{size}}}b", text) <= 10 * size
    monkeypatch.setattr(match_cost, "_MAX_CACHED_STATES", 0)
    assert units(pattern, text) >= size * size * len(text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(?:a{1,44}){1,44}b", "a" * 2000),
        (r"\b(?:\w{1,9}){1,9}!", "é" * 20_000),
        ("[ab]*a[ab]{60}c", "".join(Random(1).choices("ab", k=70_000))),
        ("[^ab](?:[ab]{1,44}){1,44}XYZ", "ab" * 200 + "c" + "ab" * 5000 + "XYZ"),
    ],
)
def test_a_match_that_may_take_too_long_is_refused_before_it_is_made(pattern, text, monkeypatch):
    automaton = automaton_of(pattern)
    monkeypatch.setattr(automaton, "match", lambda _text: pytest.fail("it was made"))
    monkeypatch.setattr(match_cost, "_get_or_create_automaton", lambda *_: automaton)
    with pytest.raises(WorkLimitError):
        search_within_budget(pattern, text, lambda _count: None)


def test_a_pattern_that_cannot_be_read_is_weighed_by_its_size():
    pattern = "(?x) [ab]{100} # and then\n c"
    assert not search_within_budget(pattern, "ab" * 20, lambda _count: None, is_rust_syntax=True)
    with pytest.raises(WorkLimitError):
        search_within_budget(pattern, "ab" * (MAX_UNITS_PER_MATCH // 100), lambda _count: None, is_rust_syntax=True)


def test_a_look_stops_at_its_next_step():
    pattern, text = "^(?:[^,]{0,200},){1,20}$", ("x" * 150 + ",") * 19

    def stop(count: int) -> None:
        left[0] -= count
        if left[0] < 0:
            raise steps.WorkStopped

    left = [1 << 40]
    assert search_within_budget(pattern, text, stop)
    needed = (1 << 40) - left[0]
    match_cost._automata.after_fork()  # and nothing is known any more
    for share in (0, 3, 7):
        left = [needed * share // 10]
        with pytest.raises(steps.WorkStopped):
            search_within_budget(pattern, text, stop)


def test_what_is_kept_of_patterns_is_bounded():
    for number in range(40):
        pattern = f"^(?:[a-z]{{0,90}}{number},){{1,9}}$"
        for width in range(1, 90, 7):
            search_within_budget(pattern, ("b" * width + f"{number},") * 40, lambda _count: None)
    assert len(match_cost._automata) <= 64
    assert match_cost._automata._size <= 64 << 20
    assert all(one._memo.size <= 150_000 for one, _ in match_cost._automata._entries.values())


@each_row("pattern", ["$", r"\b$", "(?:)$", "(?:a|$)", r"^a|\z"])
def test_what_fits_at_the_end_of_a_text_alone_is_looked_for_all_the_way(pattern):
    assert units(pattern, "\xe9" * 50_000) > 10_000
    with pytest.raises(WorkLimitError):
        search_within_budget(pattern, "\xe9" * 3_000_000, lambda _count: None)


@pytest.mark.parametrize("pattern", ["^a", r"\Aa$", "^$", "(?:^a|^b)$"])
def test_what_cannot_fit_any_more_is_not_looked_for(pattern):
    assert units(pattern, "\xe9" * 50_000) < 1000
