"""Words as they are taken from texts and queries, known, corrected and read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite import each_row

from codemode.tools.search import text_index, vocabulary
from codemode.tools.search import tokenizer as stems
from codemode.tools.search.postings import MAX_CORRECTIONS, KnownWords
from codemode.tools.search.text_index import PREFIX_WEIGHT, SYNONYM_WEIGHT, find_corrected_readings, iterate_readings
from codemode.tools.search.tokenizer import (
    MAX_QUERY_WORDS,
    get_stem,
    split_indexed_terms,
    split_query_and_drop_stopwords,
    split_terms,
)


def known(*words: str) -> KnownWords:
    one = KnownWords()
    one.add(words)
    return one


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("readFile read_file HTTPServer", ["read", "file", "read", "file", "http", "server"]),
        ("Größe ÉCOLE ﬁle ²", ["grosse", "ecole", "file", "2"]),
        ("a\x00b\ud800c", ["a", "b", "c"]),
        ("", []),
    ],
)
def test_words(text, words):
    assert split_terms(text) == words


@given(st.text("aBCde1 _-.Z", max_size=30))
def test_words_of_ascii_are_those_of_any_text(text):
    assert [*split_terms(text), "e"] == split_terms(text + " \u00e9")


def test_words_without_spaces_are_indexed_in_pairs():
    assert split_indexed_terms("git仓库管理 が") == ["git", "仓库", "库管", "管理", "が"]


@each_row(
    "query, words",
    [
        ("how do I read the file, the file", ["read", "file"]),
        ("to be or not to", ["not"]),
        ("what is it", ["what", "is", "it"]),
        ("创建一个", ["创建", "建一", "一个"]),
        ("文", ["文"]),
        ("x" * 900, ["x" * 500]),
    ],
)
def test_asked_words(query, words):
    assert split_query_and_drop_stopwords(query) == words


@given(st.text() | st.text("a文件を创建一 "))
def test_any_query_has_few_words_that_are_told_apart_by_nothing_else(query):
    words = split_query_and_drop_stopwords(query)
    assert len(words) == len(set(words)) <= MAX_QUERY_WORDS
    assert all(word and not set(word) & set('" *():^{}-+') for word in words)


@pytest.mark.parametrize(("word", "longer"), [("al", []), ("ord", ["order"]), ("zzz", []), ("orders", [])])
def test_only_a_beginning_of_three_letters_that_a_word_has_is_searched_as_one(word, longer):
    words = known("order", "orders", "alpha", "ordinary"[:3] + "er")
    found = [reading for reading in iterate_readings(word, (), words) if reading.weight == PREFIX_WEIGHT]
    assert found == ([([(stem,) for stem in longer], PREFIX_WEIGHT)] if longer else [])


def test_words_are_let_go_of_when_the_last_tool_that_has_them_goes():
    words = known("walrus", "order")
    more = words.copy()
    more.add(["walrus"])
    more.remove(["walrus", "order"])
    assert ("walrus" in more, "order" in more, "order" in words) == (True, False, True)


def test_corrections_are_few_and_the_likeliest_first():
    words = known("walrus", "wallis", "warlus", "talrus")
    words.add(["walrus"])
    found = words.suggest_corrections("wlrus")
    assert found[0] == "walrus"
    assert len(found) <= MAX_CORRECTIONS


@each_row("word", ["", "ab", "x" * 25, "walrus1", "gti", "文件夹夹"])
def test_what_cannot_be_corrected(word):
    assert known("walrus", "x" * 24, "gut", "文件").suggest_corrections(word) == []


@given(st.text("abc", min_size=1, max_size=30), st.sets(st.text("abc", min_size=1, max_size=8), max_size=20))
def test_corrections_are_known_words(word, words):
    for other in known(*words).suggest_corrections(word):
        assert set(other.split()) <= words


def test_what_means_something_is_not_corrected():
    assert find_corrected_readings("erase", known("eraser", "erased")) == []
    assert find_corrected_readings("prs", known("pros", "pr")) == []


def test_tables_of_meanings_hold_words_as_they_are_asked_for():
    """An entry with an accent or a capital would never be met."""
    for word, others in vocabulary.get_synonyms().items():
        assert split_terms(word) == [word]
        assert word not in others
    assert all(split_terms(word) == [word] for word in vocabulary.GENERIC_VERBS)
    for word, meant in vocabulary.ABBREVIATIONS.items():
        assert split_terms(word) == [word]
        assert split_terms(meant) == meant.split()
    assert all(split_terms(word) == [word] for word in vocabulary.STOP_WORDS)
    assert not vocabulary.STOP_WORDS & (vocabulary.ABBREVIATIONS.keys() | vocabulary.get_synonyms().keys())
    # By its weight a reading is known for a synonym.
    assert SYNONYM_WEIGHT not in {
        text_index.EXACT_WEIGHT,
        text_index.SPELLING_WEIGHT,
        PREFIX_WEIGHT,
        text_index.FORM_WEIGHT,
    }


def test_forms_of_a_word_have_one_stem():
    assert {get_stem(word) for word in ("create", "created", "creates", "creating")} == {"creat"}
    assert [get_stem(word) for word in ("größe", "文件", "k8s", "s")] == ["größe", "文件", "k8s", "s"]


def test_a_long_word_is_its_own_stem_and_is_not_kept():
    kept: Any = vars(stems)["_compute_stem"].cache_info
    before = kept().currsize
    words = [str(number) + "x" * 10_000 for number in range(3)]
    assert [stems.get_stem(word) for word in words] == words
    assert kept().currsize == before
