"""Split names, texts and queries into words, and find word stems."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from .vocabulary import STOP_WORDS

_MIN_CHARACTERS = 3
_MAX_CHARACTERS = 64
_CACHED_WORDS = 1 << 15


def get_stem(word: str) -> str:
    """Return the stem of a lower-case English word; other words unchanged."""
    # Longer words are not cached: they come from strangers.
    return _compute_stem(word) if _MIN_CHARACTERS <= len(word) <= _MAX_CHARACTERS else word


@lru_cache(_CACHED_WORDS)
def _compute_stem(word: str) -> str:
    return _get_stemmer().stemWord(word) if word.isascii() and word.isalpha() else word


@cache
def _get_stemmer() -> Any:
    # Late: only a search needs it. PyStemmer has no types. Its own cache is off.
    return import_module("Stemmer").Stemmer("porter", 0)


MAX_QUERY_CHARACTERS = 500
MAX_QUERY_WORDS = 16

# In scripts of India and South East Asia vowels are marks, which do not end a word.
_WORD = re.compile("(?:[^\\W_]|[\u0900-\u0963\u0970-\u0e3a\u0e40-\u0e4e\u0e81-\u0eff\u1000-\u103f\u1780-\u17d3])+")
_LOWER_WORD = re.compile("[a-z0-9]+")
_ASCII_WORD = re.compile("[A-Z]+(?![a-z])[a-z0-9]*|[A-Z]?[a-z0-9]+")  # splits like `_CAMEL`, twice as fast
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LATIN_MARKS = re.compile("[\u0300-\u036f]")
# Chinese, Japanese, Thai, Lao, Burmese and Khmer are written without spaces: pairs of characters serve as words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def split_terms(text: str) -> list[str]:
    """Return words without case and accents; ``readFile``, ``read_file`` and ``HTTPServer`` are split."""
    if not text.isascii():
        return _WORD.findall(_fold_case_and_accents(_CAMEL.sub(" ", text)))
    if text.islower():
        return _LOWER_WORD.findall(text)
    parts: list[str] = _ASCII_WORD.findall(text)
    return " ".join(parts).lower().split()


def split_indexed_terms(text: str) -> list[str]:
    """Return the words of a text, unspaced scripts as pairs of characters."""
    terms = split_terms(text) if text else []
    return (
        terms
        if text.isascii()
        else [part for word in terms for run in split_script_runs(word) for part in split_into_pairs_if_unspaced(run)]
    )


def split_query_and_drop_stopwords(query: str) -> list[str]:
    """Return the distinct words of a query without stop words; all of them if there are no others."""
    parts = (
        part
        for word in split_terms(query[:MAX_QUERY_CHARACTERS])
        for run in split_script_runs(word)
        for part in split_into_pairs_if_unspaced(run)
    )
    distinct_terms = list(dict.fromkeys(parts))
    return ([word for word in distinct_terms if word not in STOP_WORDS] or distinct_terms)[:MAX_QUERY_WORDS]


def split_script_runs(word: str) -> Iterator[str]:
    """Yield the parts of a word in spaced and unspaced scripts."""
    if word.isascii():
        yield word
        return
    position = 0
    for match in _UNSPACED.finditer(word):
        if match.start() > position:
            yield word[position : match.start()]
        yield match[0]
        position = match.end()
    if position < len(word):
        yield word[position:]


def is_in_unspaced_script(run: str) -> bool:
    """Return whether a part from `split_script_runs` is in a script without spaces."""
    return _UNSPACED.match(run) is not None


def split_into_pairs_if_unspaced(run: str) -> list[str]:
    """Return the part itself, or its character pairs if it is unspaced."""
    if len(run) < 3 or not is_in_unspaced_script(run):
        return [run]
    return [run[index : index + 2] for index in range(len(run) - 1)]


def _fold_case_and_accents(text: str) -> str:
    without_marks = _LATIN_MARKS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", without_marks).casefold()
