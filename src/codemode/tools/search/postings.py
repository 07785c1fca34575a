"""Which tools have which stems. Made from those of earlier tools it does again only what changed. Knows no queries."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import cast

from ...host import steps
from ...signatures.described_tool import DescribedTool
from .columns import Columns, columns_of, entry_of
from .known_words import KnownWords
from .named_tools import NamedTools

# BM25's. It is usually saturated by less, but here a word in a name counts for eight.
_SATURATION = 2.0
_LENGTH = 0.5  # how much a long text counts against a tool
_TOOLS_OF_A_STEP = 32  # that are gone through, or copied, in one call
_COUNTS_OF_A_STEP = 64
_STEPS_OF_AN_ENTRY = 20
_STEMS_OF_A_STEP = 4
_MAX_NAME_CHARACTERS = 100

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
        _go_through(base.kept if base else ())
        self.kept: list[_Kept | None] = list(base.kept) if base else []
        self.tools: list[DescribedTool | None] = list(base.tools) if base else []  # by slot, as is what is kept
        self.counted: dict[str, dict[int, float]] = dict(base.counted) if base else {}
        self._shared = set(self.counted)  # the stems whose counts are those of the earlier postings too
        self.by_plain: dict[str, tuple[int, ...]] = dict(base.by_plain) if base else {}
        self.known: KnownWords = base.known.copy() if base else KnownWords()
        self.slots = array("l", self._placed(tools))
        self._shared.clear()
        _go_through(self.kept)
        # Arrays: through a list the garbage collector goes number by number.
        self.positions = array("l", [-1]) * len(self.kept)
        for position, slot in enumerate(self.slots):
            self.positions[slot] = position
        _go_through(self.kept)
        lengths = [kept[-1] if kept else 0 for kept in self.kept]
        _go_through(self.kept)
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
                steps.take()
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
        _go_through(self.kept)
        same = {id(tool): slot for slot, tool in enumerate(self.tools) if tool is not None}
        _go_through(self.kept)
        slots = [same.pop(id(tool), -1) for tool in tools.tools]
        _go_through(self.kept)
        slots = [
            slot if slot >= 0 and self._at(slot)[0] == name else -1
            for slot, name in zip(slots, tools.names, strict=True)
        ]
        _go_through(self.kept)
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
        steps.take(_STEPS_OF_AN_ENTRY + len(entry.counts) // _STEMS_OF_A_STEP)
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
        steps.take(len(stems))
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
            steps.take(1 + len(counted or ()) // _COUNTS_OF_A_STEP)
            self.counted[stem] = counted = dict(counted or {})
        return counted


def _go_through(kept: Sequence[_Kept | None]) -> None:
    """Account for going once through all of it."""
    steps.take(len(kept) // _TOOLS_OF_A_STEP)
