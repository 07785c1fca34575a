"""Score tools for the words of a query, and warn about weak matches."""

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
from .postings import KnownWords, Postings
from .query import ParsedQuery
from .tokenizer import get_stem, is_in_unspaced_script, split_into_pairs_if_unspaced, split_script_runs, split_terms
from .vocabulary import ABBREVIATIONS, GENERIC_VERBS, STOP_WORDS, get_synonyms

EXACT_WEIGHT = 1.0
SPELLING_WEIGHT = 0.7
PREFIX_WEIGHT = 0.4
FORM_WEIGHT = 0.6
SYNONYM_WEIGHT = 0.35
ONLY_SYNONYM_WEIGHT = 0.6  # a synonym of a word that no tool has is all there is
_MIN_PREFIX_CHARACTERS = 3  # shorter prefixes match nearly everything


class WordReading(NamedTuple):
    """Alternative stems (each several, all required), and the weight of a match."""

    any_of: list[tuple[str, ...]]
    weight: float


def iterate_readings(word: str, compounds: Sequence[str], known: KnownWords) -> Iterator[WordReading]:
    """Yield the possible readings of a query word among known words, exact first and synonyms last.

    ``compounds`` are known words that it forms with a neighbor: "screen shot".
    """
    yield WordReading([_extract_stems(word)], EXACT_WEIGHT)
    expansion = ABBREVIATIONS.get(word)
    alternatives = [*compounds, expansion] if expansion else compounds
    if alternatives:
        yield WordReading([_extract_stems(other) for other in alternatives], SPELLING_WEIGHT)
    if len(word) >= _MIN_PREFIX_CHARACTERS and not is_in_unspaced_script(word):
        word_stem = get_stem(word)
        longer_stems = dict.fromkeys(get_stem(other) for other in known.find_longer_terms_by_prefix(word))
        if other_stems := [(stem,) for stem in longer_stems if stem != word_stem]:
            yield WordReading(other_stems, PREFIX_WEIGHT)
    synonyms_found = dict.fromkeys(
        other for part in (word, *(expansion or "").split()) for other in find_synonyms(part)
    )
    if synonyms_found:
        yield WordReading([_extract_stems(other) for other in synonyms_found], SYNONYM_WEIGHT)


def find_synonyms(word: str) -> tuple[str, ...]:
    """Return the synonyms of a word in any of its forms."""
    known = get_synonyms()
    return known.get(word) or known.get(word.removesuffix("s")) or _get_synonyms_by_stem().get(get_stem(word), ())


@cache
def _get_synonyms_by_stem() -> dict[str, tuple[str, ...]]:
    return {get_stem(word): others for word, others in reversed(get_synonyms().items())}


def find_corrected_readings(word: str, known: KnownWords) -> list[WordReading]:
    """Return readings of a word that no tool has, by correction; none for a word with a meaning."""
    if find_synonyms(word) or word in ABBREVIATIONS:
        return []
    return [
        WordReading([_extract_stems(other)], SPELLING_WEIGHT / (index + 1))
        for index, other in enumerate(known.suggest_corrections(word))
    ]


@lru_cache(1 << 12)
def _extract_stems(text: str) -> tuple[str, ...]:
    parts = (
        pair for word in text.split() for run in split_script_runs(word) for pair in split_into_pairs_if_unspaced(run)
    )
    return tuple(dict.fromkeys(map(get_stem, parts)))


# A tool's score is the sum over the words, weighted by rarity, times the share of the words that the tool has: tools
# with more of them come first, unless the words are generic. The score of one word is BM25's, at most 1.

_ALMOST_ONE = 0.999  # 1 is for an exact name
_MIN_CERTAINTY = 0.3  # certainty of a word that matches only a synonym
_MIN_SCORE_DIFFERENCE = 1e-6  # scores that differ less are equal
_MAX_CACHED_COUNTS = 200_000  # numbers, some megabytes: queries repeat words
_MAX_COMMON_WORDS = 60
_MIN_TOOLS_TO_PRUNE = 8  # pruning pays from this number of tools on


class _MatchTier(NamedTuple):
    """The weights by slot of the tools that one reading finds."""

    weight: float
    counts: dict[int, float]
    is_synonym: bool = False


class _QueryWord(NamedTuple):
    """The tiers of a query word, the most certain first, and its rarity."""

    tiers: list[_MatchTier]
    rarity: float


class TextIndex:
    """Scores for queries over the stems of tools."""

    def __init__(self, postings: Postings) -> None:
        self.postings = postings
        self._terms: dict[tuple[str, ...], _QueryWord] = {}
        self._cache_room = _MAX_CACHED_COUNTS

    def compute_scores(self, query: ParsedQuery, limit: int, among: Collection[int] | None) -> dict[int, float]:
        """Return scores above 0 up to 1 by slot: at least the ``limit`` best of those ``among``."""
        # Words of values that no tool has are data, not search terms.
        value_terms = [word for word in query.value_terms if word in self.postings.known_words]
        query_terms = [
            *self._look_up_terms(query.terms + value_terms),
            *map(self._get_or_create_value_kind_term, query.forms),
        ]
        scores = self._compute_best_scores(query_terms, limit, among)
        named_slots = (
            slot for slot in self.postings.find_slots_by_plain_name(query.plain) if among is None or slot in among
        )
        return scores | dict.fromkeys(named_slots, 1.0)

    def compute_coverage(self, terms: list[str], slot: int) -> float:
        """Return the share of these words that a tool has, weighted by rarity, a synonym as a half."""
        query_terms = self._look_up_terms(terms)
        shares = (
            query_word.rarity
            * max((_get_coverage_weight(tier) for tier in query_word.tiers if slot in tier.counts), default=0.0)
            for query_word in query_terms
        )
        return sum(shares) / (sum(query_word.rarity for query_word in query_terms) or 1.0)

    def find_missing_terms(self, terms: list[str]) -> list[str]:
        """Return the words that no tool has in any form."""
        pairs = zip(terms, self._look_up_terms(terms), strict=True)
        return [word for word, query_word in pairs if all(tier.is_synonym for tier in query_word.tiers)]

    def list_most_common_name_terms(self) -> list[str]:
        """Return the words of most tool names, the most common first."""
        return self._most_common_name_terms

    @cached_property
    def _most_common_name_terms(self) -> list[str]:
        counts = Counter(
            word for name in self.postings.iterate_names() for word in set(split_terms(name)) if word.isalpha()
        )
        return [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MAX_COMMON_WORDS]]

    def _look_up_terms(self, terms: list[str]) -> list[_QueryWord]:
        known_words = self.postings.known_words
        # Two adjacent words may be one for the author of a tool: "screen shot".
        compounds = [
            compound if (compound := previous + word) in known_words else None for previous, word in pairwise(terms)
        ]
        neighbors = zip(terms, [None, *compounds], [*compounds, None], strict=False)  # one None without words
        return [
            self._get_or_create_word(word, [compound for compound in adjacent if compound])
            for word, *adjacent in neighbors
        ]

    def _compute_best_scores(
        self, query_terms: list[_QueryWord], limit: int, among: Collection[int] | None
    ) -> dict[int, float]:
        """Score the tools of the rarest words first, until no other tool can be among the best."""
        scores: dict[int, float] = {}
        possible = sum(word.rarity for word in query_terms)
        remaining_weights = [[tier.weight for tier in word.tiers] for word in query_terms]
        order = sorted(
            (
                (word.rarity * tier.weight, -index, tier)
                for index, word in enumerate(query_terms)
                for tier in word.tiers
            ),
            key=lambda item: item[:2],
            reverse=True,
        )
        for _, index, tier in order:
            if len(scores) >= limit and len(tier.counts) > _MIN_TOOLS_TO_PRUNE:
                best_weights = [max(weights, default=0.0) for weights in remaining_weights]
                gain = sum(word.rarity * weight for word, weight in zip(query_terms, best_weights, strict=True))
                certainty = sum(max(weight, _MIN_CERTAINTY) for weight in best_weights if weight) / len(query_terms)
                if sorted(scores.values())[-limit] > gain / possible * certainty + _MIN_SCORE_DIFFERENCE:
                    break
            remaining_weights[-index].remove(tier.weight)
            new_slots = [slot for slot in tier.counts if slot not in scores and (among is None or slot in among)]
            scores.update(
                zip(new_slots, self._iterate_scores(new_slots, query_terms, possible * len(query_terms)), strict=True)
            )
        return scores

    def _iterate_scores(self, slots: list[int], query_terms: list[_QueryWord], max_score: float) -> Iterator[float]:
        norms = [self.postings.norms[slot] for slot in slots]
        gains = [0.0] * len(slots)
        certainties = gains.copy()
        for tiers, rarity in query_terms:
            best = [0.0] * len(slots)
            for weight, counts, _ in tiers:
                certainty = max(weight, _MIN_CERTAINTY)
                for index, count in enumerate(map(counts.get, slots)):
                    if count is not None:
                        word_gain = weight * count / (count + norms[index])
                        if word_gain > best[index]:
                            if not best[index]:
                                certainties[index] += certainty
                            best[index] = word_gain
            gains = [gain + rarity * word_gain for gain, word_gain in zip(gains, best, strict=True)]
        return (
            min(gain * certainty / max_score, _ALMOST_ONE) for gain, certainty in zip(gains, certainties, strict=True)
        )

    def _get_or_create_word(self, word: str, compounds: list[str]) -> _QueryWord:
        key = (word, *compounds)
        query_word = self._terms.get(key)
        if query_word is None:
            tiers = self._create_tiers(iterate_readings(word, compounds, self.postings.known_words))
            if not any(tier.counts for tier in tiers if not tier.is_synonym):
                synonym_tiers = [
                    tier._replace(weight=SYNONYM_WEIGHT if word in GENERIC_VERBS else ONLY_SYNONYM_WEIGHT)
                    for tier in tiers
                ]
                tiers = self._create_tiers(find_corrected_readings(word, self.postings.known_words)) + synonym_tiers
            query_word = self._create_and_cache_word(key, tiers)
        return query_word

    def _get_or_create_value_kind_term(self, mark: str) -> _QueryWord:
        return self._terms.get((mark,)) or self._create_and_cache_word(
            (mark,), self._create_tiers([WordReading([(mark,)], FORM_WEIGHT)])
        )

    def _create_and_cache_word(self, key: tuple[str, ...], tiers: list[_MatchTier]) -> _QueryWord:
        tiers = [tier for tier in tiers if tier.counts]
        tiers.sort(key=_weight_of, reverse=True)
        word = _QueryWord(tiers, self._compute_rarity(max([len(tier.counts) for tier in tiers], default=1)))
        # Counts of single stems exist anyway.
        self._cache_room -= 1 + sum([len(tier.counts) for tier in tiers if tier.weight < EXACT_WEIGHT])
        if self._cache_room < 0:
            self._terms = {}
            self._cache_room = _MAX_CACHED_COUNTS
        self._terms[key] = word
        return word

    def _create_tiers(self, readings: Iterable[WordReading]) -> list[_MatchTier]:
        return [
            _MatchTier(reading.weight, self._union_weights_first_wins(reading.any_of), reading.weight == SYNONYM_WEIGHT)
            for reading in readings
        ]

    def _union_weights_first_wins(self, any_of: list[tuple[str, ...]]) -> dict[int, float]:
        counts_by_stem = self.postings.counts_by_stem
        found = [counts_by_stem.get(stems[0]) if len(stems) == 1 else self._intersect_counts(stems) for stems in any_of]
        found = [counts for counts in found if counts]
        if len(found) <= 1:
            return found[0] if found else {}
        merged: dict[int, float] = {}
        for counts in reversed(found):  # the first counts for a tool with several
            merged |= counts
        return merged

    def _intersect_counts(self, stems: tuple[str, ...]) -> dict[int, float]:
        first, *others = sorted((self.postings.get_weights_by_slot(stem) for stem in stems), key=len)
        for other in others:
            first = {slot: min(counted, other[slot]) for slot, counted in first.items() if slot in other}
        return first

    def _compute_rarity(self, tools: int) -> float:
        """Return the rarity of a word by its number of tools; above 0 even for all tools."""
        return math.log(1 + (len(self.postings) - tools + 0.5) / (tools + 0.5))


_weight_of = attrgetter("weight")


def _get_coverage_weight(tier: _MatchTier) -> float:
    return 0.5 if tier.is_synonym else 1.0


NO_WORD = "The query has no word in it: say in words what is to be done."
FIRST_TOOLS = "These are the first tools only. Ask in the language in which tools are described."
_MIN_COVERED_SHARE = 0.4
_MAX_SHOWN = 4
_MAX_SUGGESTED = 8
_MAX_CHARACTERS = 40


def describe_weak_match(query: ParsedQuery, index: TextIndex, best: int | None) -> str | None:
    """Return a warning if the best tool covers too little of the query, or none was found; ``best`` is its slot."""
    content_terms = [word for word in query.terms if word not in GENERIC_VERBS] or query.terms
    if best is not None and (
        not content_terms
        or index.compute_coverage(content_terms, best) >= _MIN_COVERED_SHARE
        or index.postings.find_slots_by_plain_name(query.plain)
    ):
        return None
    missing = index.find_missing_terms(content_terms)
    quoted = " or ".join(f"{word[:_MAX_CHARACTERS]!r}" for word in (missing or content_terms)[:_MAX_SHOWN])
    if best is None:
        problem = f"No tool has {quoted}."
    elif missing:
        problem = (
            f"No tool has {quoted}: these fit other, common words of the query and may have nothing to do with it."
        )
    else:
        problem = (
            f"No tool has most of {quoted}: these fit single words of the query and may have nothing to do with it."
        )
    return f"{problem} Try other words{_format_term_suggestions(missing or content_terms, index)}."


def has_non_latin_word(query: ParsedQuery) -> bool:
    """Return whether a query is in a script other than the tools' probable one."""
    return any(not word.isascii() and "LATIN" not in unicodedata.name(word[0], "") for word in query.terms)


def _format_term_suggestions(missing_terms: list[str], index: TextIndex) -> str:
    """Return words of the tools: synonyms, or else the most common ones of their names."""
    related = (other for word in missing_terms for other in (word, *find_synonyms(word)))
    known = [
        word for word in dict.fromkeys(related) if word in index.postings.known_words and word not in missing_terms
    ]
    if known:
        return f", such as {', '.join(known[:_MAX_SUGGESTED])}"
    common_terms = [
        word for word in index.list_most_common_name_terms() if word not in GENERIC_VERBS and word not in STOP_WORDS
    ]
    return f"; tools here are about {', '.join(common_terms[:_MAX_SUGGESTED])}" if common_terms else ""
