"""Words of names, texts and queries, as they are indexed and asked for. Pure; knows nothing of tools."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from .meanings import STOP_WORDS
from .translations import LONGEST, SILENT, translations

MAX_QUERY_CHARACTERS = 500
MAX_QUERY_WORDS = 16

# In the scripts of India and South East Asia vowels are marks, and no word ends at one.
_WORD = re.compile("(?:[^\\W_]|[\u0900-\u0963\u0970-\u0e3a\u0e40-\u0e4e\u0e81-\u0eff\u1000-\u103f\u1780-\u17d3])+")
_LOWER_WORD = re.compile("[a-z0-9]+")
_ASCII_WORD = re.compile(
    "[A-Z]+(?![a-z])[a-z0-9]*|[A-Z]?[a-z0-9]+"
)  # which takes apart what `_CAMEL` does, twice as fast
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_LATIN_MARKS = re.compile("[\u0300-\u036f]")
# Chinese, Japanese, Thai, Lao, Burmese and Khmer are written without spaces: two neighbouring characters are what a
# word is elsewhere.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def words_of(text: str) -> list[str]:
    """Return words without case and accents, with ``readFile``, ``read_file`` and ``HTTPServer`` taken apart."""
    if not text.isascii():
        return _WORD.findall(_folded(_CAMEL.sub(" ", text)))
    if text.islower():
        return _LOWER_WORD.findall(text)
    parts: list[str] = _ASCII_WORD.findall(text)
    return " ".join(parts).lower().split()


def indexed_words(text: str) -> list[str]:
    """Return the words of a text, what is written without spaces in pairs of characters."""
    words = words_of(text) if text else []
    return words if text.isascii() else [part for word in words for run in runs_of(word) for part in pairs_of(run)]


def asked_words(query: str) -> list[str]:
    """Return the words of a query that say something, each once; all of them when none does."""
    parts = (part for word in words_of(query[:MAX_QUERY_CHARACTERS]) for run in runs_of(word) for part in _asked(run))
    words = list(dict.fromkeys(parts))
    return ([word for word in words if word not in STOP_WORDS] or words)[:MAX_QUERY_WORDS]


def runs_of(word: str) -> Iterator[str]:
    """Yield the parts of a word that are written with spaces and those that are not, each alone."""
    if word.isascii():
        yield word
        return
    at = 0
    for found in _UNSPACED.finditer(word):
        if found.start() > at:
            yield word[at : found.start()]
        yield found[0]
        at = found.end()
    if at < len(word):
        yield word[at:]


def is_unspaced(run: str) -> bool:
    """Whether this part of a word, given by `runs_of`, is of a script without spaces."""
    return _UNSPACED.match(run) is not None


def pairs_of(run: str) -> list[str]:
    """Return the run itself, or the pairs of neighbours in one that is written without spaces."""
    if len(run) < 3 or not is_unspaced(run):
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]


def _folded(text: str) -> str:
    plain = _LATIN_MARKS.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", plain).casefold()


def _asked(run: str) -> Iterator[str]:
    """Yield a run, or of one without spaces the words that mean something, the longest first, and the rest in pairs."""
    if not is_unspaced(run):
        yield run
        return
    known = translations()
    at = unknown = 0
    while at < len(run):
        ends = range(min(len(run), at + LONGEST), at, -1)
        end = next((end for end in ends if run[at:end] in known or run[at:end] in SILENT), 0)
        if end:
            yield from _between(run[unknown:at])
            if run[at:end] in known:
                yield run[at:end]
            unknown = end
        at = end or at + 1
    yield from _between(run[unknown:]) if unknown else pairs_of(run)


def _between(run: str) -> list[str]:
    """Return the pairs of what stands between words: one character alone is hardly ever a word of its own."""
    return pairs_of(run) if len(run) > 1 else []
