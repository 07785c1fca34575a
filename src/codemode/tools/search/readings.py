"""Readings of a word of a query: as given, as what it begins, as another spelling, as a synonym. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .known_words import KnownWords
from .meanings import SPELLINGS, synonyms
from .stems import stem_of
from .words import is_unspaced, pairs_of, runs_of

GIVEN = 1.0
SPELLING = 0.7
BEGINNING = 0.4
FORM = 0.4
SYNONYM = 0.1
_MIN_PREFIX_CHARACTERS = 3  # of less than that nearly everything is found


class Reading(NamedTuple):
    """Stems of which a tool has any, each of them several where it must have all; and how much that weighs."""

    any_of: list[tuple[str, ...]]
    weight: float


def readings_of(word: str, joined: tuple[str, ...], known: KnownWords) -> Iterator[Reading]:
    """Yield how a word of a query can be read where these words are known, itself first and its synonyms last.

    ``joined`` are the word and one beside it, written as one: "screen shot".
    """
    yield Reading([_stems(word)], GIVEN)
    spelt = SPELLINGS.get(word)
    others = [one for one in joined if one in known] + ([spelt] if spelt else [])
    if others:
        yield Reading([_stems(other) for other in others], SPELLING)
    if len(word) >= _MIN_PREFIX_CHARACTERS and not is_unspaced(word):
        own = stem_of(word)
        longer = dict.fromkeys(stem_of(other) for other in known.beginning_with(word))
        if found := [(stem,) for stem in longer if stem != own]:
            yield Reading(found, BEGINNING)
    if meant := synonyms().get(word):
        yield Reading([_stems(other) for other in meant], SYNONYM)


def corrected(word: str, known: KnownWords) -> list[Reading]:
    """Return how a word can be read that no tool has; none when it means something as it stands."""
    if word in synonyms() or word in SPELLINGS:
        return []
    return [Reading([_stems(other)], SPELLING / (at + 1)) for at, other in enumerate(known.corrections(word))]


def _stems(words: str) -> tuple[str, ...]:
    parts = (pair for word in words.split() for run in runs_of(word) for pair in pairs_of(run))
    return tuple(dict.fromkeys(map(stem_of, parts)))
