"""Stems of English words after Porter (1980), so that "repositories" finds "repository". Pure."""

from __future__ import annotations

import re
from functools import lru_cache

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
