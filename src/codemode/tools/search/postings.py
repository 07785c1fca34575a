"""Index of word stems by tool, and corrections of misspelled words."""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from ...cached_property import cached_property
from ...data.narrowing import mapping_or_empty, string_or_empty
from ...signatures.described_tool import DescribedTool
from .query import list_parameter_value_kinds
from .tokenizer import get_stem, split_indexed_terms, split_terms


class NamedToolList:
    """An immutable list of names and tools.

    Two lists rather than pairs: the garbage collector scans every pair, while a tuple of strings is untracked.
    """

    def __init__(self, tools: Iterable[tuple[str, DescribedTool]]) -> None:
        names: list[str] = []
        self.tools: list[DescribedTool] = []
        for name, tool in tools:
            names.append(name)
            self.tools.append(tool)
        self.names = tuple(names)

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[tuple[str, DescribedTool]]:
        return zip(self.names, self.tools, strict=True)


def to_named_tool_list(tools: Iterable[tuple[str, DescribedTool]]) -> NamedToolList:
    """Return these tools as `NamedToolList`."""
    return tools if isinstance(tools, NamedToolList) else NamedToolList(tools)


MAX_CORRECTIONS = 2
_MAX_CHARACTERS = 24
_MIN_CHARACTERS = 3  # of which only neighbours may be exchanged
_MIN_TWO_MISTAKES = 6
_MAX_COMPARED = 4000
_MAX_PREFIX_MATCHES = 64
_MAX_LETTER_DIFFERENCES = 4
_MAX_CACHED_CORRECTIONS = 1000
_LAST_CHARACTER = "\U0010ffff"  # sorts after any character of a word
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class KnownWords:
    """Words with the number of tools that have them. Immutable after the first query."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts = dict(counts or {})
        self._corrections: dict[str, list[str]] = {}

    def __contains__(self, word: object) -> bool:
        return word in self._counts

    def copy(self) -> KnownWords:
        """Return a mutable copy."""
        return KnownWords(self._counts)

    def add(self, terms: Iterable[str]) -> None:
        """Add the distinct words of a tool."""
        for word in terms:
            self._counts[word] = self._counts.get(word, 0) + 1

    def remove(self, terms: Iterable[str]) -> None:
        """Remove the words of a tool."""
        for word in terms:
            if self._counts[word] == 1:
                del self._counts[word]
            else:
                self._counts[word] -= 1

    def find_longer_terms_by_prefix(self, prefix: str) -> list[str]:
        """Return the first longer words with this prefix, in alphabetical order."""
        ordered = self._sorted_terms
        start = bisect_right(ordered, prefix)
        end = bisect_left(ordered, prefix + _LAST_CHARACTER, start, min(start + _MAX_PREFIX_MATCHES, len(ordered)))
        return ordered[start:end]

    def suggest_corrections(self, word: str) -> list[str]:
        """Return at most two known words, or pairs of them, similar to ``word``, best first."""
        if not _MIN_CHARACTERS <= len(word) <= _MAX_CHARACTERS or not word.isalpha():
            return []
        if (cached := self._corrections.get(word)) is not None:
            return cached
        if len(self._corrections) >= _MAX_CACHED_CORRECTIONS:
            self._corrections.clear()
        found = self._corrections[word] = self._find_corrections(word)
        return found

    def _find_corrections(self, word: str) -> list[str]:
        candidates = {other for other in _iterate_single_edits(word) if other in self._counts} or set(
            self._iterate_compound_splits(word)
        )
        if not candidates and len(word) >= _MIN_TWO_MISTAKES:
            candidates = set(self._iterate_terms_two_edits_away(word))
        return sorted(candidates, key=lambda other: (other[0] != word[0], -self._counts.get(other, 0), other))[
            :MAX_CORRECTIONS
        ]

    @cached_property
    def _sorted_terms(self) -> list[str]:
        return sorted(self._counts)

    def _iterate_compound_splits(self, word: str) -> Iterator[str]:
        """Yield two known words that were written as one."""
        for index in range(_MIN_CHARACTERS, len(word) - _MIN_CHARACTERS + 1):
            if word[:index] in self._counts and word[index:] in self._counts:
                yield f"{word[:index]} {word[index:]}"

    def _iterate_terms_two_edits_away(self, word: str) -> Iterator[str]:
        """Yield words with the same first letter, which is rarely wrong, that are two edits away."""
        ordered, remaining = self._sorted_terms, _MAX_COMPARED
        letters = _compute_letter_bits(word)
        for index in range(bisect_left(ordered, word[0]), len(ordered)):
            other = ordered[index]
            if other[0] != word[0] or not remaining:
                return
            # An edit changes at most two letters: words with more different letters need no comparison.
            if (
                -2 <= len(other) - len(word) <= 2
                and (letters ^ _compute_letter_bits(other)).bit_count() <= _MAX_LETTER_DIFFERENCES
            ):
                remaining -= 1
                if _is_within_two_edits(word, other):
                    yield other


@lru_cache(1 << 14)
def _compute_letter_bits(word: str) -> int:
    letters = 0
    for letter in word:
        letters |= 1 << (ord(letter) & 63)
    return letters


def _iterate_single_edits(word: str) -> Iterator[str]:
    parts = [(word[:index], word[index:]) for index in range(len(word) + 1)]
    yield from (left + right[1] + right[0] + right[2:] for left, right in parts if len(right) > 1)
    if len(word) > _MIN_CHARACTERS:
        yield from (left + right[1:] for left, right in parts if right)
        yield from (left + letter + right[1:] for left, right in parts if right for letter in _LETTERS)
        yield from (left + letter + right for left, right in parts for letter in _LETTERS)


def _is_within_two_edits(word: str, other: str) -> bool:
    """Return whether at most two letters were inserted, removed, replaced or swapped with a neighbor."""
    last_row: list[int] = []
    row = list(range(len(other) + 1))
    for index, letter in enumerate(word, 1):
        last_row, row_before_last, row = row, last_row, [index]
        for column, wanted in enumerate(other, 1):
            cost = min(last_row[column] + 1, row[column - 1] + 1, last_row[column - 1] + (letter != wanted))
            if index > 1 and column > 1 and letter == other[column - 2] and word[index - 2] == wanted:
                cost = min(cost, row_before_last[column - 2] + 1)
            row.append(cost)
        if min(row) > 2:
            return False
    return row[-1] <= 2


_MAX_TEXT_CHARACTERS = 10_000  # of a column
_MAX_VALUES = 1000
_MAX_VALUE_CHARACTERS = 500
_MAX_NAME_CHARACTERS = 100  # of a parameter whose form is derived
_MAX_DEPTH = 7
_MAX_INDEXED_NUMBER = 1e15  # larger numbers are not searched for
# Measured with benchmarks/search.py.
_NAME_WEIGHT, _SENTENCE_WEIGHT, _REST_WEIGHT, _PARAMETERS_WEIGHT, _EXAMPLES_WEIGHT = 8.0, 3.0, 1.0, 0.5, 2.0


class SearchedTexts(NamedTuple):
    """The texts of a tool by their source. The index depends on nothing else."""

    name: str
    sentence: str
    summary: str  # starts with the sentence
    labels: list[str]
    parameters: list[str]
    examples: list[str]
    forms: list[str]

    def compute_fingerprint(self) -> bytes:
        """Return a digest of the texts."""
        return hashlib.blake2b(repr(tuple(self)).encode(), digest_size=16).digest()


class IndexEntry(NamedTuple):
    """An indexed tool: its name as one word, the weight of each stem, its words and their number."""

    plain: str
    counts: dict[str, float]
    terms: tuple[str, ...]
    length: int


def collect_searched_texts(name: str, tool: DescribedTool) -> SearchedTexts:
    """Return the searched texts of a tool registered as ``name``."""
    from ...signatures.declarations import extract_first_sentence, find_tool_description

    summary = find_tool_description(tool)[:_MAX_TEXT_CHARACTERS]
    outline = getattr(tool, "input_outline", None)
    schema = tool.input_json_schema if outline is None else outline
    properties = mapping_or_empty(mapping_or_empty(schema).get("properties"))
    parameters = [
        (string_or_empty(name), mapping_or_empty(parameter_schema))
        for name, parameter_schema in _limit_values(properties.items())
    ]
    codecall_metadata = mapping_or_empty(mapping_or_empty(getattr(tool, "metadata", None)).get("codecall"))
    return SearchedTexts(
        name[:_MAX_TEXT_CHARACTERS],
        extract_first_sentence(summary, _MAX_TEXT_CHARACTERS),
        summary,
        _collect_bounded_texts(codecall_metadata.get("appId"), codecall_metadata.get("tags")),
        _limit_texts(
            text
            for name, parameter_schema in parameters
            for text in (name, string_or_empty(parameter_schema.get("description")))
        ),
        _collect_bounded_texts(tool.input_examples, codecall_metadata.get("examples")),
        sorted(
            {
                form
                for name, parameter_schema in parameters
                for form in list_parameter_value_kinds(name[:_MAX_NAME_CHARACTERS], parameter_schema)
            }
        ),
    )


def create_index_entry(columns: SearchedTexts) -> IndexEntry:
    """Return the index entry of these texts."""
    summary_terms = split_indexed_terms(columns.summary)
    sentence_length = (
        len(summary_terms) if columns.sentence == columns.summary else len(split_indexed_terms(columns.sentence))
    )
    weighted = (
        (split_indexed_terms(columns.name), _NAME_WEIGHT),
        (summary_terms[:sentence_length], _SENTENCE_WEIGHT),
        (summary_terms[sentence_length:] + split_indexed_terms(" ".join(columns.labels)), _REST_WEIGHT),
        (split_indexed_terms(" ".join(columns.parameters)), _PARAMETERS_WEIGHT),
        (split_indexed_terms(" ".join(columns.examples)), _EXAMPLES_WEIGHT),
    )
    weights = defaultdict[str, float](float)
    length = 0
    for terms, weight in weighted:
        length += len(terms)
        for word in terms:
            weights[word] += weight
    counts = defaultdict[str, float](float, dict.fromkeys(columns.forms, _NAME_WEIGHT))
    for word, weight in weights.items():
        counts[get_stem(word)] += weight
    return IndexEntry("".join(split_terms(columns.name)), counts, tuple(weights), length)


def _limit_values(values: Iterable[Any]) -> Iterator[Any]:
    return (value for _, value in zip(range(_MAX_VALUES), values, strict=False))


def _collect_bounded_texts(*values: Any) -> list[str]:
    values_present = tuple(value for value in values if value)
    return _limit_texts(_iterate_texts_and_numbers(values_present)) if values_present else []


def _limit_texts(texts: Iterable[str]) -> list[str]:
    bounded: list[str] = []
    remaining = _MAX_TEXT_CHARACTERS
    for text in texts:
        bounded.append(text[: min(remaining, _MAX_VALUE_CHARACTERS)])
        remaining -= len(text) + 1
        if remaining <= 0:
            break
    return bounded


def _iterate_texts_and_numbers(values: tuple[Any, ...]) -> Iterator[str]:
    """Yield the first texts and numbers in values: an example may be endless."""
    stack: list[tuple[Any, int]] = [(values, 0)]
    for _ in range(_MAX_VALUES):
        if not stack:
            return
        value, depth = stack.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_INDEXED_NUMBER:
            yield repr(value)
        elif depth < _MAX_DEPTH and isinstance(value, Mapping | list | tuple):
            children = cast("Iterable[Any]", mapping.values() if (mapping := mapping_or_empty(value)) else value)
            taken = [child for _, child in zip(range(_MAX_VALUES - len(stack)), children, strict=False)]
            stack.extend((child, depth + 1) for child in reversed(taken))


# BM25's k1. Usually smaller, but here a word in a name counts eight times.
_SATURATION = 3.9
_LENGTH_WEIGHT = 0.2  # how much a long text counts against a tool

# The stored data of an indexed tool, to find it again and remove it: name, fingerprint, name as one word, stems, words
# (both joined by spaces) and their number. The garbage collector does not track a tuple of strings and numbers.
_StoredEntry = tuple[str, bytes, str, str, str, int]


class Postings:
    """The stems of an ordered set of tools; immutable. A tool keeps its slot when the order changes.

    ``positions`` are indexed by slot, ``slots`` by position. ``norms`` are by slot the stem weight that gives half of
    the maximum score.
    """

    def __init__(self, tools: NamedToolList, base: Postings | None = None) -> None:
        self.entries: list[_StoredEntry | None] = list(base.entries) if base else []
        self.tools: list[DescribedTool | None] = list(base.tools) if base else []  # by slot, as the entries
        self.counts_by_stem: dict[str, dict[int, float]] = dict(base.counts_by_stem) if base else {}
        self._shared = set(self.counts_by_stem)  # stems whose counts are shared with the earlier postings
        self.slots_by_plain_name: dict[str, tuple[int, ...]] = dict(base.slots_by_plain_name) if base else {}
        self.known_words: KnownWords = base.known_words.copy() if base else KnownWords()
        self.slots = array("l", self._update_entries_and_assign_slots(tools))
        self._shared.clear()
        # Arrays, which the garbage collector does not scan.
        self.positions = array("l", [-1]) * len(self.entries)
        for position, slot in enumerate(self.slots):
            self.positions[slot] = position
        lengths = [entry[-1] if entry else 0 for entry in self.entries]
        average = sum(lengths) / max(len(self.slots), 1) or 1.0
        least, more = _SATURATION * (1 - _LENGTH_WEIGHT), _SATURATION * _LENGTH_WEIGHT / average
        self.norms = array("d", [least + more * length for length in lengths])

    def __len__(self) -> int:
        return len(self.slots)

    def get_weights_by_slot(self, stem: str) -> dict[int, float]:
        """Return the weight of a stem by slot; read-only."""
        return self.counts_by_stem.get(stem, {})

    def iterate_names(self) -> Iterator[str]:
        """Yield the names of all tools."""
        for entry in self.entries:
            if entry:
                yield entry[0][:_MAX_NAME_CHARACTERS]

    def find_slots_by_plain_name(self, plain: str) -> tuple[int, ...]:
        """Return the slots of the tools with this name as one word."""
        return self.slots_by_plain_name.get(plain, ())

    def _update_entries_and_assign_slots(self, tools: NamedToolList) -> list[int]:
        """Return a slot for each tool, the earlier one if its texts are unchanged."""
        slots, missing = self._match_tools_and_remove_others(tools)
        free_slots = [slot for slot, entry in enumerate(self.entries) if entry is None]
        for position, columns, fingerprint in missing:
            if not free_slots:
                free_slots.append(len(self.entries))
                self.entries.append(None)
                self.tools.append(None)
            slots[position] = slot = free_slots.pop()
            self.tools[slot] = tools.tools[position]
            self._add_entry(slot, tools.names[position], columns, fingerprint)
        return slots

    def _match_tools_and_remove_others(
        self, tools: NamedToolList
    ) -> tuple[list[int], list[tuple[int, SearchedTexts, bytes]]]:
        """Match tools to slots by identity and by texts, and remove the others."""
        slots_by_tool_id = {id(tool): slot for slot, tool in enumerate(self.tools) if tool is not None}
        slots = [slots_by_tool_id.pop(id(tool), -1) for tool in tools.tools]
        slots = [
            slot if slot >= 0 and self._get_entry(slot)[0] == name else -1
            for slot, name in zip(slots, tools.names, strict=True)
        ]
        reused = set(slots)
        slots_by_fingerprint: dict[bytes, list[int]] = {}
        for slot, entry in enumerate(self.entries):
            if entry and slot not in reused:
                slots_by_fingerprint.setdefault(entry[1], []).append(slot)
        missing: list[tuple[int, SearchedTexts, bytes]] = []
        for position, slot in enumerate(slots):
            if slot < 0:
                columns = collect_searched_texts(tools.names[position], tools.tools[position])
                fingerprint = columns.compute_fingerprint()
                if same_texts := slots_by_fingerprint.get(fingerprint):
                    slots[position] = earlier = same_texts.pop()
                    self.tools[earlier] = tools.tools[position]
                else:
                    missing.append((position, columns, fingerprint))
        for slots_to_remove in slots_by_fingerprint.values():
            for slot in slots_to_remove:
                self._remove_entry(slot)
        return slots, missing

    def _get_entry(self, slot: int) -> _StoredEntry:
        return cast("_StoredEntry", self.entries[slot])

    def _add_entry(self, slot: int, name: str, columns: SearchedTexts, fingerprint: bytes) -> None:
        entry = create_index_entry(columns)
        self.entries[slot] = (
            name,
            fingerprint,
            entry.plain,
            " ".join(entry.counts),
            " ".join(entry.terms),
            entry.length,
        )
        self.known_words.add(entry.terms)
        self.slots_by_plain_name[entry.plain] = (*self.slots_by_plain_name.get(entry.plain, ()), slot)
        counts_by_stem, shared = self.counts_by_stem, self._shared
        for stem, count in entry.counts.items():
            stem_counts = counts_by_stem.get(stem)
            if stem_counts is None or stem in shared:
                stem_counts = self._get_writable_counts(stem)
            stem_counts[slot] = count

    def _remove_entry(self, slot: int) -> None:
        _, _, plain, joined_stems, terms, _ = self._get_entry(slot)
        stems = joined_stems.split()
        self.entries[slot] = self.tools[slot] = None
        self.known_words.remove(terms.split())
        self.slots_by_plain_name[plain] = tuple(other for other in self.slots_by_plain_name[plain] if other != slot)
        if not self.slots_by_plain_name[plain]:
            del self.slots_by_plain_name[plain]
        for stem in stems:
            stem_counts = self._get_writable_counts(stem)
            del stem_counts[slot]
            if not stem_counts:
                del self.counts_by_stem[stem]

    def _get_writable_counts(self, stem: str) -> dict[int, float]:
        """Return the counts of a stem for writing, copied first if they are shared."""
        counts = self.counts_by_stem.get(stem)
        if counts is None or stem in self._shared:
            self._shared.discard(stem)
            self.counts_by_stem[stem] = counts = dict(counts or {})
        return counts
