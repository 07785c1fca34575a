"""Finds many texts in one at once. Pure, but for the steps that it counts."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

from codemode.host import steps

# So many characters of each text decide whether a place is looked at closely.
_PREFIX = 4
# What the engine of expressions reads in one go: it lets no other thread run meanwhile.
_PIECE = 1 << 14


class Search:
    """Finds, at each place of a text, the longest of ``texts`` that begins there.

    A place costs the logarithm of the number of texts and never more: they are sorted, and the last that is not
    behind what stands at the place begins with every text that is there.
    """

    def __init__(self, texts: Mapping[str, bool]) -> None:
        self._texts = sorted(texts)
        self._are_short = dict(texts)
        self._within = _nested(self._texts)
        self._begins = re.compile(_one_of({text[:_PREFIX] for text in self._texts})) if texts else None
        self._longest = max(map(len, texts), default=0)
        self.shortest = min(map(len, texts), default=0)
        self.has_digits = any(text.isdigit() for text in texts)

    def found(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Yield where something begins and ends, and its flag. Of those that begin at one place, the longest."""
        for start in self._places(text):
            steps.take()
            one = self._at(text, start)
            if one is not None:
                yield start, start + len(one), self._are_short[one]

    def _places(self, text: str) -> Iterator[int]:
        begins = self._begins
        if begins is None:
            return
        for piece in range(0, len(text), _PIECE):
            steps.take(1 + (_PIECE >> 7))
            place, end = piece, min(len(text), piece + _PIECE + _PREFIX - 1)
            while (match := begins.search(text, place, end)) is not None and match.start() < piece + _PIECE:
                yield match.start()
                place = match.start() + 1

    def _at(self, text: str, start: int) -> str | None:
        here = text[start : start + self._longest]
        index = bisect_right(self._texts, here) - 1
        if index < 0:
            return None
        common = _common(self._texts[index], here)
        while index >= 0 and len(self._texts[index]) > common:
            index = self._within[index]
        return self._texts[index] if index >= 0 else None


def _nested(texts: list[str]) -> list[int]:
    """Return for each of the sorted texts the index of the longest other that it begins with, or -1."""
    found: list[int] = []
    open_ones: list[int] = []
    for index, text in enumerate(texts):
        while open_ones and not text.startswith(texts[open_ones[-1]]):
            open_ones.pop()
        found.append(open_ones[-1] if open_ones else -1)
        open_ones.append(index)
    return found


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common from their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(one[:middle]):
            low = middle
        else:
            high = middle - 1
    return low


def _one_of(prefixes: Iterable[str]) -> str:
    """Return an expression for any of these texts that asks for each character once: a tree of them."""
    tree: dict[str, set[str]] = {}
    for one in prefixes:
        tree.setdefault(one[:1], set()).add(one[1:])
    branches = [re.escape(first) + (_one_of(rest) if "" not in rest else "") for first, rest in sorted(tree.items())]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"
