"""The words that were indexed, and which of them a misspelt one may have meant. Pure, and bounded for any query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...host import steps

MAX_CORRECTIONS = 2
_MAX_CHARACTERS = 24
_MIN_CHARACTERS = 3  # of which only neighbours may be exchanged
_MIN_TWO_MISTAKES = 6
_MAX_COMPARED = 4000
_STEPS_OF_A_COMPARISON = 2
_BEGINNING = 3
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class KnownWords:
    """Words, and in how many tools each of them is."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._by_beginning: dict[str, list[str]] = {}

    def __contains__(self, word: object) -> bool:
        return word in self._counts

    def add(self, words: Iterable[str]) -> None:
        """Take in the words of one more tool, each given once."""
        counts = self._counts
        for word in words:
            count = counts.get(word, 0)
            if not count:
                self._by_beginning.setdefault(word[:_BEGINNING], []).append(word)
            counts[word] = count + 1

    def has_beginning(self, beginning: str) -> bool:
        """Whether any word begins like this; less than three letters are none."""
        for word in self._by_beginning.get(beginning[:_BEGINNING], ()):
            steps.take()
            if word.startswith(beginning):
                return True
        return False

    def corrections(self, word: str) -> list[str]:
        """Return at most two known words, or pairs of them, that ``word`` may have meant, best first."""
        if not _MIN_CHARACTERS <= len(word) <= _MAX_CHARACTERS or not word.isalpha():
            return []
        steps.take(_MAX_CHARACTERS)
        near = {other for other in _one_mistake(word) if other in self._counts} or set(self._parted(word))
        if not near and len(word) >= _MIN_TWO_MISTAKES:
            near = set(self._two_mistakes(word))
        return sorted(near, key=lambda other: (other[0] != word[0], -self._counts.get(other, 0), other))[
            :MAX_CORRECTIONS
        ]

    def _parted(self, word: str) -> Iterator[str]:
        """Yield two known words that were written as one."""
        for at in range(_MIN_CHARACTERS, len(word) - _MIN_CHARACTERS + 1):
            if word[:at] in self._counts and word[at:] in self._counts:
                yield f"{word[:at]} {word[at:]}"

    def _two_mistakes(self, word: str) -> Iterator[str]:
        """Yield what begins with the same letter, of which people are sure, and is two mistakes away."""
        left = _MAX_COMPARED
        for beginning, group in self._by_beginning.items():
            steps.take()
            if beginning[0] != word[0]:
                continue
            for other in group:
                steps.take(_STEPS_OF_A_COMPARISON)
                if -2 <= len(other) - len(word) <= 2:
                    left -= 1
                    if _is_near(word, other):
                        yield other
                if not left:
                    return


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
