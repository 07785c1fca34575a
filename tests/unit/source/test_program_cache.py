"""The cache of analysed programs: bounded in number, in total and per program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from invocation_settings import SETTINGS

from codemode.data.sized_cache import SizedCache
from codemode.execution import programs
from codemode.execution.programs import AnalysedProgram, ProgramChecker, make_program_cache
from codemode.tools.catalog import Catalog


def program(js: str) -> AnalysedProgram:
    return AnalysedProgram(js, None)


def test_what_was_put_comes_back():
    cache = make_program_cache()
    cache.put(b"source", program("js"), 2)
    assert cache.get(b"source") == program("js")
    assert cache.get(b"other") is None


def test_a_program_is_another_one_under_another_profile_or_with_another_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "_programs", make_program_cache())
    facts: Any = {"calls": []}

    def make_checker(source: str, profile: str) -> ProgramChecker:
        return ProgramChecker(source, replace(SETTINGS.profile, name=profile), Catalog({}), None, checks_tools=True)

    for source in ("", "a", "b", "\ud800", "\ud801", "codeCall\na"):
        for profile in ("codeMode", "codeCall"):
            assert make_checker(source, profile).known is None
            make_checker(source, profile).check(source, facts)
            assert make_checker(source, profile).known == AnalysedProgram(source, facts)


def test_the_least_recently_used_one_is_forgotten():
    cache = SizedCache[bytes, AnalysedProgram](1 << 20, max_entries=2)
    cache.put(b"a", program("a"), 1)
    cache.put(b"b", program("b"), 1)
    assert cache.get(b"a")
    cache.put(b"c", program("c"), 1)
    assert [cache.get(name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]


def test_the_total_is_bounded():
    cache = SizedCache[bytes, AnalysedProgram](10, max_entries=9)
    cache.put(b"a", program("a"), 6)
    cache.put(b"b", program("b"), 4)
    assert cache.get(b"a")
    cache.put(b"c", program("c"), 1)
    assert [cache.get(name) is not None for name in (b"a", b"b", b"c")] == [True, False, True]


def test_a_large_program_is_not_kept():
    cache = SizedCache[bytes, AnalysedProgram](100, max_entries=9, max_entry_size=5)
    cache.put(b"a", program("a"), 5)
    cache.put(b"b", program("b"), 6)
    assert cache.get(b"a")
    assert cache.get(b"b") is None


def test_a_program_put_again_counts_once():
    cache = SizedCache[bytes, AnalysedProgram](10, max_entries=9)
    for _ in range(5):
        cache.put(b"a", program("a"), 6)
    cache.put(b"b", program("b"), 4)
    assert cache.get(b"a")
    assert cache.get(b"b")


def test_the_defaults_are_those_of_the_requirement():
    cache = make_program_cache()
    for number in range(300):
        cache.put(b"%d" % number, program("x"), 64 << 10 if number % 2 else 1)
    kept = [number for number in range(300) if cache.get(b"%d" % number)]
    assert len(kept) <= 256
    assert sum(64 << 10 if number % 2 else 1 for number in kept) <= 4 << 20
    assert kept[-1] == 299
    cache.put(b"large", program("x"), (64 << 10) + 1)
    assert cache.get(b"large") is None
