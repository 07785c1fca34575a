"""Readings of a word of a query: as given, as what it begins, as another spelling, as a synonym. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from .known_words import KnownWords
from .meanings import SPELLINGS, synonyms
from .stems import stem_of
from .translations import translations
from .words import is_unspaced, pairs_of, runs_of

GIVEN = 1.0
SPELLING = 0.7
BEGINNING = 0.4
FORM = 0.6
TRANSLATION = 0.5
SYNONYM = 0.35
MEANT = 0.6  # a synonym of what no tool has: nothing else says what was asked for
_MIN_STEM_CHARACTERS = 6  # of a word in Latin letters whose end is left out
_MIN_FOREIGN_CHARACTERS = 2
_MIN_PREFIX_CHARACTERS = 3  # of less than that nearly everything is found


class Reading(NamedTuple):
    """Stems of which a tool has any, each of them several where it must have all; and how much that weighs."""

    any_of: list[tuple[str, ...]]
    weight: float


def readings_of(word: str, joined: Sequence[str], known: KnownWords) -> Iterator[Reading]:
    """Yield how a word of a query can be read where these words are known, itself first and its synonyms last.

    ``joined`` are known words that it makes with one beside it: "screen shot".
    """
    yield Reading([_stems(word)], GIVEN)
    spelt = SPELLINGS.get(word)
    others = [*joined, spelt] if spelt else joined
    if others:
        yield Reading([_stems(other) for other in others], SPELLING)
    if len(word) >= _MIN_PREFIX_CHARACTERS and not is_unspaced(word):
        own = stem_of(word)
        longer = dict.fromkeys(stem_of(other) for other in known.beginning_with(word))
        if found := [(stem,) for stem in longer if stem != own]:
            yield Reading(found, BEGINNING)
    english = translated(word)
    if english:
        yield Reading([_stems(other) for other in english], TRANSLATION)
    meant = dict.fromkeys(other for one in (word, *(spelt or "").split(), *english) for other in synonyms_of(one))
    if meant:
        yield Reading([_stems(other) for other in meant], SYNONYM)


def synonyms_of(word: str) -> tuple[str, ...]:
    """Return the words that mean about the same, whatever form of it this is."""
    known = synonyms()
    return known.get(word) or known.get(word.removesuffix("s")) or _synonyms_by_stem().get(stem_of(word), ())


@cache
def _synonyms_by_stem() -> dict[str, tuple[str, ...]]:
    return {stem_of(word): others for word, others in reversed(synonyms().items())}


@lru_cache(1 << 12)
def translated(word: str) -> tuple[str, ...]:
    """Return the English for a word of another language: its own, or that of what it begins with."""
    known = translations()
    if word in known:
        return known[word]
    least = _MIN_STEM_CHARACTERS if word.isascii() else _MIN_FOREIGN_CHARACTERS
    return next((known[word[:end]] for end in range(len(word) - 1, least - 1, -1) if word[:end] in known), ())


def corrected(word: str, known: KnownWords) -> list[Reading]:
    """Return how a word can be read that no tool has; none when it means something as it stands."""
    if synonyms_of(word) or word in SPELLINGS or translated(word):
        return []
    return [Reading([_stems(other)], SPELLING / (at + 1)) for at, other in enumerate(known.corrections(word))]


@lru_cache(1 << 12)
def _stems(words: str) -> tuple[str, ...]:
    parts = (pair for word in words.split() for run in runs_of(word) for pair in pairs_of(run))
    return tuple(dict.fromkeys(map(stem_of, parts)))
