"""How well each tool fits the words of a query. Unchanging but for what it has worked out already; knows no threads.

A tool's score is the sum over the words, each counted by how rare it is among the tools, times the part of the words
that the tool has: of two tools the one with more of them comes first, unless the words say next to nothing. What one
word gives is BM25's: the more often and the more prominently a tool has it, the more, and never over 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from ...cached_property import cached_property
from ...host import steps
from .meanings import GENERAL
from .postings import Postings
from .query import Query
from .readings import FORM, GIVEN, MEANT, SYNONYM, Reading, corrected, readings_of
from .words import words_of

_ALMOST_ONE = 0.999  # 1 is for a tool whose very name was asked for
_LEAST_SURE = 0.3  # that a word of which a tool has but a synonym is meant by it
_DIFFERENCE = 1e-6  # of scores: what differs less is equal
_KEPT = 200_000  # numbers, some megabytes: words are asked for again
_POSTINGS_OF_A_STEP = 32
_POSTINGS_OF_A_UNION = 128
_SCORES_OF_A_STEP = 8
_COMMON = 60
_WORTH_A_LOOK = 8  # so many tools, to find out whether they are


class _Tier(NamedTuple):
    """The tools that one reading of a word finds: by slot, how much it counts in each."""

    weight: float
    counts: dict[int, float]
    is_synonym: bool = False


class _Word(NamedTuple):
    """What a word of a query finds, the surest reading first, and how rare that is."""

    tiers: list[_Tier]
    rarity: float


class TextIndex:
    """Scores for queries over the stems of tools."""

    def __init__(self, postings: Postings) -> None:
        self.postings = postings
        self._words: dict[tuple[str, ...], _Word] = {}
        self._room = _KEPT

    def scores(self, query: Query, limit: int, among: Collection[int] | None) -> dict[int, float]:
        """Return how well tools fit, above 0 and up to 1, by slot: at least the ``limit`` best of those ``among``."""
        # What no tool has of a value is its own, and nothing that was asked for.
        in_values = [word for word in query.in_values if word in self.postings.known]
        asked = [*self._asked(query.words + in_values), *map(self._form, query.forms)]
        scores = self._best(asked, limit, among)
        named = (slot for slot in self.postings.named(query.plain) if among is None or slot in among)
        return scores | dict.fromkeys(named, 1.0)

    def share(self, words: list[str], slot: int) -> float:
        """Return the part of these words that a tool has, each counted by how rare it is, a synonym as a half."""
        asked = self._asked(words)
        had = (
            one.rarity * max((_had(tier) for tier in one.tiers if slot in tier.counts), default=0.0) for one in asked
        )
        return sum(had) / (sum(one.rarity for one in asked) or 1.0)

    def missing(self, words: list[str]) -> list[str]:
        """Return those of these words that no tool has in any spelling."""
        asked = zip(words, self._asked(words), strict=True)
        return [word for word, one in asked if all(tier.is_synonym for tier in one.tiers)]

    def commonest(self) -> list[str]:
        """Return the words that most names of tools have, the most common first."""
        return self._commonest

    @cached_property
    def _commonest(self) -> list[str]:
        counted = Counter(word for name in self.postings.names() for word in set(words_of(name)) if word.isalpha())
        return [word for word, _ in sorted(counted.items(), key=lambda one: (-one[1], one[0]))[:_COMMON]]

    def _asked(self, words: list[str]) -> list[_Word]:
        known = self.postings.known
        # Two words beside each other may be one to the author of a tool: "screen shot".
        joined = [one if (one := before + word) in known else None for before, word in pairwise(words)]
        both = zip(words, [None, *joined], [*joined, None], strict=False)  # of no words there is one None
        return [self._word(word, [one for one in beside if one]) for word, *beside in both]

    def _best(self, asked: list[_Word], limit: int, among: Collection[int] | None) -> dict[int, float]:
        """Look at what the rarest words find first, until nothing that is left can be among the best."""
        scores: dict[int, float] = {}
        possible = sum(word.rarity for word in asked)
        left = [[tier.weight for tier in word.tiers] for word in asked]
        order = sorted(
            ((word.rarity * tier.weight, -at, tier) for at, word in enumerate(asked) for tier in word.tiers),
            key=lambda one: one[:2],
            reverse=True,
        )
        for _, at, tier in order:
            if len(scores) >= limit and len(tier.counts) > _WORTH_A_LOOK:
                most = [max(weights, default=0.0) for weights in left]
                gain = sum(word.rarity * weight for word, weight in zip(asked, most, strict=True))
                sure = sum(max(weight, _LEAST_SURE) for weight in most if weight) / len(asked)
                if sorted(scores.values())[-limit] > gain / possible * sure + _DIFFERENCE:
                    break
            left[-at].remove(tier.weight)
            new = [slot for slot in tier.counts if slot not in scores and (among is None or slot in among)]
            steps.take(1 + len(new) // _SCORES_OF_A_STEP)
            scores.update(zip(new, self._scored(new, asked, possible * len(asked)), strict=True))
        return scores

    def _scored(self, slots: list[int], asked: list[_Word], most: float) -> Iterator[float]:
        norms = [self.postings.norms[slot] for slot in slots]
        gains = [0.0] * len(slots)
        sures = gains.copy()
        for tiers, rarity in asked:
            best = [0.0] * len(slots)
            for weight, counts, _ in tiers:
                sure = max(weight, _LEAST_SURE)
                for at, counted in enumerate(map(counts.get, slots)):
                    if counted is not None:
                        given = weight * counted / (counted + norms[at])
                        if given > best[at]:
                            if not best[at]:
                                sures[at] += sure
                            best[at] = given
            gains = [gain + rarity * given for gain, given in zip(gains, best, strict=True)]
        return (min(gain * sure / most, _ALMOST_ONE) for gain, sure in zip(gains, sures, strict=True))

    def _word(self, word: str, joined: list[str]) -> _Word:
        key = (word, *joined)
        kept = self._words.get(key)
        if kept is None:
            tiers = self._tiers(readings_of(word, joined, self.postings.known))
            if not any(tier.counts for tier in tiers if not tier.is_synonym):
                meant = [tier._replace(weight=SYNONYM if word in GENERAL else MEANT) for tier in tiers]
                tiers = self._tiers(corrected(word, self.postings.known)) + meant
            kept = self._keep(key, tiers)
        return kept

    def _form(self, mark: str) -> _Word:
        return self._words.get((mark,)) or self._keep((mark,), self._tiers([Reading([(mark,)], FORM)]))

    def _keep(self, key: tuple[str, ...], tiers: list[_Tier]) -> _Word:
        tiers = [tier for tier in tiers if tier.counts]
        tiers.sort(key=_weight_of, reverse=True)
        word = _Word(tiers, self._rarity(max([len(tier.counts) for tier in tiers], default=1)))
        # That of a stem is kept anyway.
        self._room -= 1 + sum([len(tier.counts) for tier in tiers if tier.weight < GIVEN])
        if self._room < 0:
            self._words = {}
            self._room = _KEPT
        self._words[key] = word
        return word

    def _tiers(self, readings: Iterable[Reading]) -> list[_Tier]:
        return [_Tier(one.weight, self._any(one.any_of), one.weight == SYNONYM) for one in readings]

    def _any(self, any_of: list[tuple[str, ...]]) -> dict[int, float]:
        counted = self.postings.counted
        found = [counted.get(stems[0]) if len(stems) == 1 else self._all(stems) for stems in any_of]
        found = [counts for counts in found if counts]
        if len(found) <= 1:
            return found[0] if found else {}
        steps.take(1 + sum(map(len, found)) // _POSTINGS_OF_A_UNION)
        together: dict[int, float] = {}
        for counts in reversed(found):  # of a tool with several of them the first counts
            together |= counts
        return together

    def _all(self, stems: tuple[str, ...]) -> dict[int, float]:
        first, *others = sorted((self.postings.counts(stem) for stem in stems), key=len)
        steps.take(1 + len(first) // _POSTINGS_OF_A_STEP)
        for other in others:
            first = {slot: min(counted, other[slot]) for slot, counted in first.items() if slot in other}
        return first

    def _rarity(self, tools: int) -> float:
        """Tell words apart by how many tools have them; above 0 even when all do."""
        return math.log(1 + (len(self.postings) - tools + 0.5) / (tools + 0.5))


_weight_of = attrgetter("weight")


def _had(tier: _Tier) -> float:
    return 0.5 if tier.is_synonym else 1.0
