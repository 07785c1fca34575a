"""Words of names, texts and queries, and their stems."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from .meanings import STOP_WORDS
from .translations import LONGEST, SILENT, translations

_MIN_CHARACTERS = 3
_MAX_CHARACTERS = 64
_CACHED_WORDS = 1 << 15

_CONSONANTS = "[^aeiou][^aeiouy]*"
_VOWELS = "[aeiouy][aeiou]*"
_MEASURE_ABOVE_0 = re.compile(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}")
_MEASURE_IS_1 = re.compile(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}(?:{_VOWELS})?$")
_MEASURE_ABOVE_1 = re.compile(f"^(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}{_VOWELS}{_CONSONANTS}")
_HAS_VOWEL = re.compile(f"^(?:{_CONSONANTS})?[aeiouy]")
_SHORT_END = re.compile("^(?:[^aeiou][^aeiouy]*)[aeiouy][^aeiouwxy]$")
_DOUBLED = re.compile(r"([^aeiouylsz])\1$")

_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = dict.fromkeys(
    ("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou", "ism", "ate", "iti", "ous",
     "ive", "ize"), ""
) | {"sion": "s", "tion": "t"}  # fmt: skip


def stem_of(word: str) -> str:
    """Return what a word in small letters has in common with its other forms; what is not English stays as it is."""
    # Nothing is kept for longer ones: a stranger writes them.
    return _stem(word) if _MIN_CHARACTERS <= len(word) <= _MAX_CHARACTERS else word


@lru_cache(_CACHED_WORDS)
def _stem(word: str) -> str:
    if not (word.isascii() and word.isalpha()):
        return word
    first = word[0]
    # A "y" at the beginning is a consonant.
    stem = _inflected("Y" + word[1:] if first == "y" else word)
    for endings, measure in ((_STEP_2, _MEASURE_ABOVE_0), (_STEP_3, _MEASURE_ABOVE_0), (_STEP_4, _MEASURE_ABOVE_1)):
        stem = _replaced(stem, endings, measure)
    return first + _without_last_e(stem)[1:]


def _inflected(word: str) -> str:
    """Return it without the endings of plurals, of the past and of what goes on."""
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        return word[:-1] if _MEASURE_ABOVE_0.match(word[:-3]) else word
    for ending in ("ed", "ing"):
        if word.endswith(ending) and _HAS_VOWEL.match(word[: -len(ending)]):
            word = _mended(word[: -len(ending)])
            break
    return word[:-1] + "i" if word.endswith("y") and _HAS_VOWEL.match(word[:-1]) else word


def _mended(stem: str) -> str:
    if stem.endswith(("at", "bl", "iz")):
        return stem + "e"
    if _DOUBLED.search(stem):
        return stem[:-1]
    return stem + "e" if _SHORT_END.match(stem) else stem


def _replaced(word: str, endings: dict[str, str], measure: re.Pattern[str]) -> str:
    for length in range(min(7, len(word) - 1), 1, -1):
        ending = word[-length:]
        if ending in endings:
            stem = word[:-length] + endings[ending]
            return (
                stem
                if measure.match(word[:-length] + ending[0] if ending in ("sion", "tion") else word[:-length])
                else word
            )
    return word


def _without_last_e(word: str) -> str:
    if word.endswith("e"):
        rest = word[:-1]
        if _MEASURE_ABOVE_1.match(rest) or (_MEASURE_IS_1.match(rest) and not _SHORT_END.match(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _MEASURE_ABOVE_1.match(word) else word


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
