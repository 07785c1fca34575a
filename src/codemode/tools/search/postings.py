"""Which tools have which stems, in which of their texts; indexed words and misspellings."""

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
from .query import forms_of_parameter
from .words import indexed_words, stem_of, words_of


class NamedTools:
    """An unchanging list of names and tools.

    Kept apart: a pair for each of thousands of tools is what the garbage collector goes through, with the loop held. A
    tuple of texts it lets go.
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


def named_tools(tools: Iterable[tuple[str, DescribedTool]]) -> NamedTools:
    """Return these tools as they are kept: themselves, where they are already."""
    return tools if isinstance(tools, NamedTools) else NamedTools(tools)


MAX_CORRECTIONS = 2
_MAX_CHARACTERS = 24
_MIN_CHARACTERS = 3  # of which only neighbours may be exchanged
_MIN_TWO_MISTAKES = 6
_MAX_COMPARED = 4000
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
        near = {other for other in _one_mistake(word) if other in self._counts} or set(self._parted(word))
        if not near and len(word) >= _MIN_TWO_MISTAKES:
            near = set(self._two_mistakes(word))
        return sorted(near, key=lambda other: (other[0] != word[0], -self._counts.get(other, 0), other))[
            :MAX_CORRECTIONS
        ]

    @cached_property
    def _ordered(self) -> list[str]:
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
            # A mistake takes one letter and brings another: what differs in more letters is not worth a comparison.
            if -2 <= len(other) - len(word) <= 2 and (letters ^ _letters(other)).bit_count() <= _MAX_LETTERS_APART:
                left -= 1
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


_MAX_TEXT_CHARACTERS = 10_000  # of a column
_MAX_VALUES = 1000
_MAX_VALUE_CHARACTERS = 500
_MAX_NAME_CHARACTERS = 100  # of a parameter whose form is looked at
_MAX_DEPTH = 7
_MAX_NUMBER = 1e15  # beyond which nobody looks for one
# Measured with benchmarks/search.py.
_NAME, _SENTENCE, _REST, _PARAMETERS, _EXAMPLES = 8.0, 3.0, 1.0, 0.5, 2.0


class Columns(NamedTuple):
    """The texts of one tool by where they stand. They alone decide how it is indexed."""

    name: str
    sentence: str
    summary: str  # the whole of which the sentence is the beginning
    labels: list[str]
    parameters: list[str]
    examples: list[str]
    forms: list[str]

    def fingerprint(self) -> bytes:
        """Return what tells these texts from all others."""
        return hashlib.blake2b(repr(tuple(self)).encode(), digest_size=16).digest()


class Entry(NamedTuple):
    """What is indexed of one tool: its name in one word, how much each stem counts, all its words, their number."""

    plain: str
    counts: dict[str, float]
    words: tuple[str, ...]
    length: int


def columns_of(name: str, tool: DescribedTool) -> Columns:
    """Return what is searched of a tool that is registered under ``name``."""
    from ...signatures.declarations import first_sentence, summarize_tool

    summary = summarize_tool(tool)[:_MAX_TEXT_CHARACTERS]
    outline = getattr(tool, "input_outline", None)
    schema = tool.input_json_schema if outline is None else outline
    properties = mapping_or_empty(mapping_or_empty(schema).get("properties"))
    parameters = [(string_or_empty(name), mapping_or_empty(one)) for name, one in _some(properties.items())]
    about = mapping_or_empty(mapping_or_empty(getattr(tool, "metadata", None)).get("codecall"))
    return Columns(
        name[:_MAX_TEXT_CHARACTERS],
        first_sentence(summary, _MAX_TEXT_CHARACTERS),
        summary,
        _values(about.get("appId"), about.get("tags")),
        _bounded(text for name, one in parameters for text in (name, string_or_empty(one.get("description")))),
        _values(tool.input_examples, about.get("examples")),
        sorted({form for name, one in parameters for form in forms_of_parameter(name[:_MAX_NAME_CHARACTERS], one)}),
    )


def entry_of(columns: Columns) -> Entry:
    """Return what is indexed of these texts."""
    said = indexed_words(columns.summary)
    first = len(said) if columns.sentence == columns.summary else len(indexed_words(columns.sentence))
    weighted = (
        (indexed_words(columns.name), _NAME),
        (said[:first], _SENTENCE),
        (said[first:] + indexed_words(" ".join(columns.labels)), _REST),
        (indexed_words(" ".join(columns.parameters)), _PARAMETERS),
        (indexed_words(" ".join(columns.examples)), _EXAMPLES),
    )
    weights = defaultdict[str, float](float)
    length = 0
    for words, weight in weighted:
        length += len(words)
        for word in words:
            weights[word] += weight
    counts = defaultdict[str, float](float, dict.fromkeys(columns.forms, _NAME))
    for word, weight in weights.items():
        counts[stem_of(word)] += weight
    return Entry("".join(words_of(columns.name)), counts, tuple(weights), length)


def _some(values: Iterable[Any]) -> Iterator[Any]:
    return (value for _, value in zip(range(_MAX_VALUES), values, strict=False))


def _values(*values: Any) -> list[str]:
    held = tuple(value for value in values if value)
    return _bounded(_texts(held)) if held else []


def _bounded(texts: Iterable[str]) -> list[str]:
    kept: list[str] = []
    left = _MAX_TEXT_CHARACTERS
    for text in texts:
        kept.append(text[: min(left, _MAX_VALUE_CHARACTERS)])
        left -= len(text) + 1
        if left <= 0:
            break
    return kept


def _texts(values: tuple[Any, ...]) -> Iterator[str]:
    """Yield the texts and numbers in values, the first ones of each: an example may be without end."""
    waiting: list[tuple[Any, int]] = [(values, 0)]
    for _ in range(_MAX_VALUES):
        if not waiting:
            return
        value, depth = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER:
            yield repr(value)
        elif depth < _MAX_DEPTH and isinstance(value, Mapping | list | tuple):
            held = cast("Iterable[Any]", mapping.values() if (mapping := mapping_or_empty(value)) else value)
            some = [one for _, one in zip(range(_MAX_VALUES - len(waiting)), held, strict=False)]
            waiting.extend((one, depth + 1) for one in reversed(some))


# BM25's. It is usually saturated by less, but here a word in a name counts for eight.
_SATURATION = 3.9
_LENGTH = 0.2  # how much a long text counts against a tool

# What is kept of an indexed tool, so that it is known again and can be taken out: its name, the fingerprint of its
# texts, its name in one word, its stems, its words, both with spaces between them, and their number. A plain tuple of
# texts and numbers is let go by the garbage collector, which holds the loop while it goes through any other container.
_Kept = tuple[str, bytes, str, str, str, int]


class Postings:
    """The stems of an ordered set of tools; unchanging once made. A tool has a slot, wherever it stands in the order.

    ``positions`` are those of slots, ``slots`` those at positions. ``norms`` say by slot how much a stem must count in
    a tool to give half of what it can.
    """

    def __init__(self, tools: NamedTools, base: Postings | None = None) -> None:
        self.kept: list[_Kept | None] = list(base.kept) if base else []
        self.tools: list[DescribedTool | None] = list(base.tools) if base else []  # by slot, as is what is kept
        self.counted: dict[str, dict[int, float]] = dict(base.counted) if base else {}
        self._shared = set(self.counted)  # the stems whose counts are those of the earlier postings too
        self.by_plain: dict[str, tuple[int, ...]] = dict(base.by_plain) if base else {}
        self.known: KnownWords = base.known.copy() if base else KnownWords()
        self.slots = array("l", self._placed(tools))
        self._shared.clear()
        # Arrays: through a list the garbage collector goes number by number.
        self.positions = array("l", [-1]) * len(self.kept)
        for position, slot in enumerate(self.slots):
            self.positions[slot] = position
        lengths = [kept[-1] if kept else 0 for kept in self.kept]
        average = sum(lengths) / max(len(self.slots), 1) or 1.0
        least, more = _SATURATION * (1 - _LENGTH), _SATURATION * _LENGTH / average
        self.norms = array("d", [least + more * length for length in lengths])

    def __len__(self) -> int:
        return len(self.slots)

    def counts(self, stem: str) -> dict[int, float]:
        """Return how much a stem counts in each tool that has it, by slot; not to be changed."""
        return self.counted.get(stem, {})

    def names(self) -> Iterator[str]:
        """Yield the names of all tools."""
        for kept in self.kept:
            if kept:
                yield kept[0][:_MAX_NAME_CHARACTERS]

    def named(self, plain: str) -> tuple[int, ...]:
        """Return the slots of the tools whose name, written in one word, is this."""
        return self.by_plain.get(plain, ())

    def _placed(self, tools: NamedTools) -> list[int]:
        """Give each tool a slot: the one that it had, where nothing has changed that is indexed."""
        slots, missing = self._known_again(tools)
        free = [slot for slot, kept in enumerate(self.kept) if kept is None]
        for position, columns, fingerprint in missing:
            if not free:
                free.append(len(self.kept))
                self.kept.append(None)
                self.tools.append(None)
            slots[position] = slot = free.pop()
            self.tools[slot] = tools.tools[position]
            self._put(slot, tools.names[position], columns, fingerprint)
        return slots

    def _known_again(self, tools: NamedTools) -> tuple[list[int], list[tuple[int, Columns, bytes]]]:
        """Find tools again, by what they are and by what they say, and take out what is left."""
        same = {id(tool): slot for slot, tool in enumerate(self.tools) if tool is not None}
        slots = [same.pop(id(tool), -1) for tool in tools.tools]
        slots = [
            slot if slot >= 0 and self._at(slot)[0] == name else -1
            for slot, name in zip(slots, tools.names, strict=True)
        ]
        again = set(slots)
        alike: dict[bytes, list[int]] = {}
        for slot, kept in enumerate(self.kept):
            if kept and slot not in again:
                alike.setdefault(kept[1], []).append(slot)
        missing: list[tuple[int, Columns, bytes]] = []
        for position, slot in enumerate(slots):
            if slot < 0:
                columns = columns_of(tools.names[position], tools.tools[position])
                fingerprint = columns.fingerprint()
                if of_this := alike.get(fingerprint):
                    slots[position] = earlier = of_this.pop()
                    self.tools[earlier] = tools.tools[position]
                else:
                    missing.append((position, columns, fingerprint))
        for gone in alike.values():
            for slot in gone:
                self._take_out(slot)
        return slots, missing

    def _at(self, slot: int) -> _Kept:
        return cast("_Kept", self.kept[slot])

    def _put(self, slot: int, name: str, columns: Columns, fingerprint: bytes) -> None:
        entry = entry_of(columns)
        self.kept[slot] = (name, fingerprint, entry.plain, " ".join(entry.counts), " ".join(entry.words), entry.length)
        self.known.add(entry.words)
        self.by_plain[entry.plain] = (*self.by_plain.get(entry.plain, ()), slot)
        counted, shared = self.counted, self._shared
        for stem, count in entry.counts.items():
            of_stem = counted.get(stem)
            if of_stem is None or stem in shared:
                of_stem = self._own(stem)
            of_stem[slot] = count

    def _take_out(self, slot: int) -> None:
        _, _, plain, together, words, _ = self._at(slot)
        stems = together.split()
        self.kept[slot] = self.tools[slot] = None
        self.known.remove(words.split())
        self.by_plain[plain] = tuple(other for other in self.by_plain[plain] if other != slot)
        if not self.by_plain[plain]:
            del self.by_plain[plain]
        for stem in stems:
            of_stem = self._own(stem)
            del of_stem[slot]
            if not of_stem:
                del self.counted[stem]

    def _own(self, stem: str) -> dict[int, float]:
        """Return the counts of a stem, to be changed: those that the earlier postings have too are copied first."""
        counted = self.counted.get(stem)
        if counted is None or stem in self._shared:
            self._shared.discard(stem)
            self.counted[stem] = counted = dict(counted or {})
        return counted
