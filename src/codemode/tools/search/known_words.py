"""The words that were indexed, and which of them a misspelt one may have meant. Pure, and bounded for any query."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from ...cached_property import cached_property
from ...host import steps

MAX_CORRECTIONS = 2
_MAX_CHARACTERS = 24
_MIN_CHARACTERS = 3  # of which only neighbours may be exchanged
_MIN_TWO_MISTAKES = 6
_MAX_COMPARED = 4000
_STEPS_OF_A_COMPARISON = 2
_MAX_BEGINNING = 64
_MAX_LETTERS_APART = 4
_MAX_KEPT = 1000
_LAST = "\U0010ffff"  # comes after any that a word has
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class KnownWords:
    """Words, and in how many tools each of them is. Unchanging once anything was asked of it."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts = dict(counts or {})
        self._corrections: dict[str, list[str]] = {}

    def __contains__(self, word: object) -> bool:
        return word in self._counts

    def copy(self) -> KnownWords:
        """Return the same words, to be changed."""
        return KnownWords(self._counts)

    def add(self, words: Iterable[str]) -> None:
        """Take in the words of one more tool, each given once."""
        for word in words:
            self._counts[word] = self._counts.get(word, 0) + 1

    def remove(self, words: Iterable[str]) -> None:
        """Let go of the words of a tool that was added."""
        for word in words:
            if self._counts[word] == 1:
                del self._counts[word]
            else:
                self._counts[word] -= 1

    def beginning_with(self, beginning: str) -> list[str]:
        """Return the first of the longer words that begin like this, in alphabetical order."""
        steps.take(_MAX_BEGINNING)
        ordered = self._ordered
        at = bisect_right(ordered, beginning)
        end = bisect_left(ordered, beginning + _LAST, at, min(at + _MAX_BEGINNING, len(ordered)))
        return ordered[at:end]

    def corrections(self, word: str) -> list[str]:
        """Return at most two known words, or pairs of them, that ``word`` may have meant, best first."""
        if not _MIN_CHARACTERS <= len(word) <= _MAX_CHARACTERS or not word.isalpha():
            return []
        if (kept := self._corrections.get(word)) is not None:
            return kept
        if len(self._corrections) >= _MAX_KEPT:
            self._corrections.clear()
        found = self._corrections[word] = self._corrected(word)
        return found

    def _corrected(self, word: str) -> list[str]:
        steps.take(_MAX_CHARACTERS)
        near = {other for other in _one_mistake(word) if other in self._counts} or set(self._parted(word))
        if not near and len(word) >= _MIN_TWO_MISTAKES:
            near = set(self._two_mistakes(word))
        return sorted(near, key=lambda other: (other[0] != word[0], -self._counts.get(other, 0), other))[
            :MAX_CORRECTIONS
        ]

    @cached_property
    def _ordered(self) -> list[str]:
        steps.take(len(self._counts) >> 6)
        return sorted(self._counts)

    def _parted(self, word: str) -> Iterator[str]:
        """Yield two known words that were written as one."""
        for at in range(_MIN_CHARACTERS, len(word) - _MIN_CHARACTERS + 1):
            if word[:at] in self._counts and word[at:] in self._counts:
                yield f"{word[:at]} {word[at:]}"

    def _two_mistakes(self, word: str) -> Iterator[str]:
        """Yield what begins with the same letter, of which people are sure, and is two mistakes away."""
        ordered, left = self._ordered, _MAX_COMPARED
        letters = _letters(word)
        for at in range(bisect_left(ordered, word[0]), len(ordered)):
            other = ordered[at]
            if other[0] != word[0] or not left:
                return
            steps.take()
            # A mistake takes one letter and brings another: what differs in more letters is not worth a comparison.
            if -2 <= len(other) - len(word) <= 2 and (letters ^ _letters(other)).bit_count() <= _MAX_LETTERS_APART:
                left -= 1
                steps.take(_STEPS_OF_A_COMPARISON)
                if _is_near(word, other):
                    yield other


@lru_cache(1 << 14)
def _letters(word: str) -> int:
    letters = 0
    for letter in word:
        letters |= 1 << (ord(letter) & 63)
    return letters


def _one_mistake(word: str) -> Iterator[str]:
    parts = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    yield from (left + right[1] + right[0] + right[2:] for left, right in parts if len(right) > 1)
    if len(word) > _MIN_CHARACTERS:
        yield from (left + right[1:] for left, right in parts if right)
        yield from (left + letter + right[1:] for left, right in parts if right for letter in _LETTERS)
        yield from (left + letter + right for left, right in parts for letter in _LETTERS)


def _is_near(word: str, other: str) -> bool:
    """Whether at most two letters were inserted, left out, replaced, or exchanged with their neighbours."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, letter in enumerate(word, 1):
        before, previous, row = row, before, [at]
        for to, wanted in enumerate(other, 1):
            cost = min(before[to] + 1, row[to - 1] + 1, before[to - 1] + (letter != wanted))
            if at > 1 and to > 1 and letter == other[to - 2] and word[at - 2] == wanted:
                cost = min(cost, previous[to - 2] + 1)
            row.append(cost)
        if min(row) > 2:
            return False
    return row[-1] <= 2
