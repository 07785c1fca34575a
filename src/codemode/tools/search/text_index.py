"""How well tools fit the words of a query, and doubts about the result."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from ...cached_property import cached_property
from .meanings import GENERAL, SPELLINGS, STOP_WORDS, synonyms
from .postings import KnownWords, Postings
from .query import Query
from .words import is_unspaced, pairs_of, runs_of, stem_of, words_of

GIVEN = 1.0
SPELLING = 0.7
BEGINNING = 0.4
FORM = 0.6
SYNONYM = 0.35
MEANT = 0.6  # a synonym of what no tool has: nothing else says what was asked for
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
    meant = dict.fromkeys(other for one in (word, *(spelt or "").split()) for other in synonyms_of(one))
    if meant:
        yield Reading([_stems(other) for other in meant], SYNONYM)


def synonyms_of(word: str) -> tuple[str, ...]:
    """Return the words that mean about the same, whatever form of it this is."""
    known = synonyms()
    return known.get(word) or known.get(word.removesuffix("s")) or _synonyms_by_stem().get(stem_of(word), ())


@cache
def _synonyms_by_stem() -> dict[str, tuple[str, ...]]:
    return {stem_of(word): others for word, others in reversed(synonyms().items())}


def corrected(word: str, known: KnownWords) -> list[Reading]:
    """Return how a word can be read that no tool has; none when it means something as it stands."""
    if synonyms_of(word) or word in SPELLINGS:
        return []
    return [Reading([_stems(other)], SPELLING / (at + 1)) for at, other in enumerate(known.corrections(word))]


@lru_cache(1 << 12)
def _stems(words: str) -> tuple[str, ...]:
    parts = (pair for word in words.split() for run in runs_of(word) for pair in pairs_of(run))
    return tuple(dict.fromkeys(map(stem_of, parts)))


# A tool's score is the sum over the words, each counted by how rare it is among the tools, times the part of the words
# that the tool has: of two tools the one with more of them comes first, unless the words say next to nothing. What one
# word gives is BM25's: the more often and the more prominently a tool has it, the more, and never over 1.

_ALMOST_ONE = 0.999  # 1 is for a tool whose very name was asked for
_LEAST_SURE = 0.3  # that a word of which a tool has but a synonym is meant by it
_DIFFERENCE = 1e-6  # of scores: what differs less is equal
_KEPT = 200_000  # numbers, some megabytes: words are asked for again
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
        together: dict[int, float] = {}
        for counts in reversed(found):  # of a tool with several of them the first counts
            together |= counts
        return together

    def _all(self, stems: tuple[str, ...]) -> dict[int, float]:
        first, *others = sorted((self.postings.counts(stem) for stem in stems), key=len)
        for other in others:
            first = {slot: min(counted, other[slot]) for slot, counted in first.items() if slot in other}
        return first

    def _rarity(self, tools: int) -> float:
        """Tell words apart by how many tools have them; above 0 even when all do."""
        return math.log(1 + (len(self.postings) - tools + 0.5) / (tools + 0.5))


_weight_of = attrgetter("weight")


def _had(tier: _Tier) -> float:
    return 0.5 if tier.is_synonym else 1.0


NO_WORD = "The query has no word in it: say in words what is to be done."
FIRST_TOOLS = "These are the first tools only. Ask in the language in which tools are described."
_LEAST_SHARE = 0.4
_MAX_SHOWN = 4
_MAX_SUGGESTED = 8
_MAX_CHARACTERS = 40


def doubt_of(query: Query, index: TextIndex, best: int | None) -> str | None:
    """Return a warning where the best tool has too little of the query, or there is none; ``best`` is its slot."""
    words = [word for word in query.words if word not in GENERAL] or query.words
    if best is not None and (
        not words or index.share(words, best) >= _LEAST_SHARE or index.postings.named(query.plain)
    ):
        return None
    missing = index.missing(words)
    shown = " or ".join(f"{word[:_MAX_CHARACTERS]!r}" for word in (missing or words)[:_MAX_SHOWN])
    if best is None:
        begun = f"No tool has {shown}."
    elif missing:
        begun = f"No tool has {shown}: these fit other, common words of the query and may have nothing to do with it."
    else:
        begun = f"No tool has most of {shown}: these fit single words of the query and may have nothing to do with it."
    return f"{begun} Try other words{_suggestion(missing or words, index)}."


def is_foreign(query: Query) -> bool:
    """Tell whether a query is in a script that needs not be that of the tools."""
    return any(not word.isascii() and "LATIN" not in unicodedata.name(word[0], "") for word in query.words)


def _suggestion(words: list[str], index: TextIndex) -> str:
    """Return words that tools here do have: those that mean about the same, or else the commonest of their names."""
    meant = (other for word in words for other in (word, *synonyms_of(word)))
    near = [word for word in dict.fromkeys(meant) if word in index.postings.known and word not in words]
    if near:
        return f", such as {', '.join(near[:_MAX_SUGGESTED])}"
    common = [word for word in index.commonest() if word not in GENERAL and word not in STOP_WORDS]
    return f"; tools here are about {', '.join(common[:_MAX_SUGGESTED])}" if common else ""
