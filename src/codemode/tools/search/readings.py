"""Readings of a word of a query: as given, as what it begins, as another spelling, as a synonym.

Only words reach the engine, each in quotes: no query can be read as FTS5 syntax.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .known_words import KnownWords
from .meanings import SPELLINGS, synonyms
from .words import is_unspaced, pairs_of, runs_of

GIVEN = 1.0
SPELLING = 0.7
BEGINNING = 0.4
SYNONYM = 0.1
_MIN_PREFIX_CHARACTERS = 3  # of less than that nearly everything is found


class Reading(NamedTuple):
    """What the engine looks for, and how much it weighs beside the word as it was given."""

    expression: str
    weight: float


class Asked(NamedTuple):
    """A word of a query: its readings, itself first, and an expression for all its synonyms or none."""

    word: str
    readings: list[Reading]
    synonyms: str


def asked_readings(words: list[str], known: KnownWords) -> Iterator[Asked]:
    """Yield how each word of a query can be read where these words are known."""
    for at, word in enumerate(words):
        # Two words beside each other may be one to the author of a tool: "screen shot".
        joined = [
            one + other for one, other in zip(words[max(at - 1, 0) : at + 1], words[max(at, 1) : at + 2], strict=False)
        ]
        spellings = [one for one in joined if one in known] + [spelt for spelt in (SPELLINGS.get(word),) if spelt]
        readings = [Reading(_quoted(word), GIVEN)]
        if len(word) >= _MIN_PREFIX_CHARACTERS and not is_unspaced(word) and known.has_beginning(word):
            readings.append(Reading(_quoted(word) + "*", BEGINNING))
        readings.extend(Reading(_quoted(spelling), SPELLING) for spelling in spellings)
        yield Asked(word, readings, " OR ".join(map(_quoted, synonyms().get(word, ()))))


def corrected(word: str, known: KnownWords) -> list[Reading]:
    """Return how a word can be read that no tool has; none when it means something as it stands."""
    if word in synonyms() or word in SPELLINGS:
        return []
    return [Reading(_quoted(other), SPELLING / (at + 1)) for at, other in enumerate(known.corrections(word))]


def _quoted(words: str) -> str:
    return '"' + " ".join(pair for run in runs_of(words) for pair in pairs_of(run)) + '"'
