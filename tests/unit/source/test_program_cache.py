"""The cache of analysed programs: bounded in number, in total and per program (requirement A35)."""

from __future__ import annotations

from codemode.source.cache import AnalysedProgram, ProgramCache


def program(js: str) -> AnalysedProgram:
    return AnalysedProgram(js, None)


def test_what_was_put_comes_back():
    cache = ProgramCache()
    cache.put("source", program("js"), "codeMode")
    assert cache.get("source", "codeMode") == program("js")
    assert cache.get("other", "codeMode") is None


def test_a_program_with_a_lone_surrogate_has_a_key_too():
    cache = ProgramCache()
    cache.put("\ud800", program("a"), "codeMode")
    cache.put("\ud801", program("b"), "codeMode")
    assert (cache.get("\ud800", "codeMode"), cache.get("\ud801", "codeMode")) == (program("a"), program("b"))


def test_the_least_recently_used_one_is_forgotten():
    cache = ProgramCache(max_entries=2)
    cache.put("a", program("a"), "codeMode")
    cache.put("b", program("b"), "codeMode")
    assert cache.get("a", "codeMode")
    cache.put("c", program("c"), "codeMode")
    assert [cache.get(name, "codeMode") is not None for name in "abc"] == [True, False, True]


def test_the_total_is_bounded():
    cache = ProgramCache(max_characters=10)
    cache.put("a", program("x" * 6), "codeMode")
    cache.put("b", program("x" * 4), "codeMode")
    assert cache.get("a", "codeMode")
    cache.put("c", program("x"), "codeMode")
    assert [cache.get(name, "codeMode") is not None for name in "abc"] == [True, False, True]


def test_a_large_program_is_not_kept_whichever_side_is_large():
    cache = ProgramCache(max_entry_characters=5)
    cache.put("x" * 5, program("y" * 5), "codeMode")
    cache.put("x" * 6, program("y"), "codeMode")
    cache.put("x", program("y" * 6), "codeMode")
    assert cache.get("x" * 5, "codeMode")
    assert cache.get("x" * 6, "codeMode") is None
    assert cache.get("x", "codeMode") is None


def test_facts_count_too_for_a_worker_chose_them():
    cache = ProgramCache(max_entry_characters=40)
    cache.put("a", AnalysedProgram("x", {"calls": []}), "codeMode")
    cache.put("b", AnalysedProgram("x", {"calls": ["y" * 40]}), "codeMode")
    assert cache.get("a", "codeMode") == AnalysedProgram("x", {"calls": []})
    assert cache.get("b", "codeMode") is None


def test_facts_of_any_size_are_looked_at_no_further_than_they_may_be_kept():
    class Untouched:
        """What no encoder writes."""

    cache = ProgramCache(max_entry_characters=1000)
    cache.put("a", AnalysedProgram("", {"calls": [0.5] * 1000 + [Untouched()]}), "codeMode")
    cache.put("b", AnalysedProgram("y" * 1001, {"calls": [Untouched()]}), "codeMode")
    assert (cache.get("a", "codeMode"), cache.get("b", "codeMode")) == (None, None)


def test_a_program_put_again_counts_once():
    cache = ProgramCache(max_characters=10)
    for _ in range(5):
        cache.put("a", program("x" * 6), "codeMode")
    cache.put("b", program("x" * 4), "codeMode")
    assert cache.get("a", "codeMode")
    assert cache.get("b", "codeMode")


def test_the_defaults_are_those_of_the_requirement():
    cache = ProgramCache()
    for number in range(300):
        cache.put(str(number), program("x" * (64 << 10) if number % 2 else "x"), "codeMode")
    kept = [number for number in range(300) if cache.get(str(number), "codeMode")]
    assert len(kept) <= 256
    assert sum(64 << 10 if number % 2 else 1 for number in kept) <= 4 << 20
    assert kept[-1] == 299
