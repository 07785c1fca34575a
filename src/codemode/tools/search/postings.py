"""Which tools have which stems. Made from those of earlier tools it does again only what changed. Knows no queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from ...host import steps
from ...signatures.described_tool import DescribedTool
from .columns import Columns, columns_of, entry_of
from .known_words import KnownWords

# BM25's, as SQLite's FTS5 has them.
_SATURATION = 1.2
_LENGTH = 0.75  # how much a long text counts against a tool
_TOOLS_OF_A_STEP = 32
_MAX_NAME_CHARACTERS = 100

Tools = list[tuple[str, DescribedTool]]


class _Kept(NamedTuple):
    """What is kept of an indexed tool, so that it is known again and can be taken out."""

    name: str
    tool: DescribedTool
    fingerprint: bytes
    plain: str
    stems: tuple[str, ...]
    words: tuple[str, ...]
    length: int


class Postings:
    """The stems of an ordered set of tools; unchanging once made. A tool has a slot, wherever it stands in the order.

    ``positions`` are those of slots, ``slots`` those at positions. ``norms`` say by slot how much a stem must count in
    a tool to give half of what it can.
    """

    def __init__(self, tools: Tools, base: Postings | None = None) -> None:
        self.kept: list[_Kept | None] = list(base.kept) if base else []
        self.counted: dict[str, dict[int, float]] = dict(base.counted) if base else {}
        self._shared = set(self.counted)  # the stems whose counts are those of the earlier postings too
        self.by_plain: dict[str, tuple[int, ...]] = dict(base.by_plain) if base else {}
        self.known: KnownWords = base.known.copy() if base else KnownWords()
        self.slots = self._placed(tools)
        self._shared.clear()
        self.positions = [-1] * len(self.kept)
        for position, slot in enumerate(self.slots):
            self.positions[slot] = position
        lengths = [kept.length if kept else 0 for kept in self.kept]
        average = sum(lengths) / max(len(self.slots), 1) or 1.0
        self.norms = [_SATURATION * (1 - _LENGTH + _LENGTH * length / average) for length in lengths]

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
                yield kept.name[:_MAX_NAME_CHARACTERS]

    def named(self, plain: str) -> tuple[int, ...]:
        """Return the slots of the tools whose name, written in one word, is this."""
        return self.by_plain.get(plain, ())

    def _placed(self, tools: Tools) -> list[int]:
        """Give each tool a slot: the one that it had, where nothing has changed that is indexed."""
        slots, missing = self._known_again(tools)
        free = [slot for slot, kept in enumerate(self.kept) if kept is None]
        for position, columns, fingerprint in missing:
            if not free:
                free.append(len(self.kept))
                self.kept.append(None)
            slots[position] = slot = free.pop()
            self._put(slot, *tools[position], columns, fingerprint)
        return slots

    def _known_again(self, tools: Tools) -> tuple[list[int], list[tuple[int, Columns, bytes]]]:
        """Find tools again, by what they are and by what they say, and take out what is left."""
        steps.take((len(tools) + len(self.kept)) // _TOOLS_OF_A_STEP)
        same = {id(kept.tool): slot for slot, kept in enumerate(self.kept) if kept}
        slots = [same.pop(id(tool), -1) for _, tool in tools]
        slots = [
            slot if slot >= 0 and self._at(slot).name == name else -1
            for slot, (name, _) in zip(slots, tools, strict=True)
        ]
        again = set(slots)
        alike: dict[bytes, list[int]] = {}
        for slot, kept in enumerate(self.kept):
            if kept and slot not in again:
                alike.setdefault(kept.fingerprint, []).append(slot)
        missing: list[tuple[int, Columns, bytes]] = []
        for position, slot in enumerate(slots):
            if slot < 0:
                name, tool = tools[position]
                columns = columns_of(name, tool)
                fingerprint = columns.fingerprint()
                if of_this := alike.get(fingerprint):
                    slots[position] = again = of_this.pop()
                    self.kept[again] = self._at(again)._replace(tool=tool)
                else:
                    missing.append((position, columns, fingerprint))
        for gone in alike.values():
            for slot in gone:
                self._take_out(slot)
        return slots, missing

    def _at(self, slot: int) -> _Kept:
        return cast("_Kept", self.kept[slot])

    def _put(self, slot: int, name: str, tool: DescribedTool, columns: Columns, fingerprint: bytes) -> None:
        entry = entry_of(columns)
        stems = tuple(entry.counts)
        self.kept[slot] = _Kept(name, tool, fingerprint, entry.plain, stems, entry.words, entry.length)
        self.known.add(entry.words)
        self.by_plain[entry.plain] = (*self.by_plain.get(entry.plain, ()), slot)
        counted, shared = self.counted, self._shared
        for stem, count in entry.counts.items():
            of_stem = counted.get(stem)
            if of_stem is None or stem in shared:
                of_stem = self._own(stem)
            of_stem[slot] = count

    def _take_out(self, slot: int) -> None:
        kept = self._at(slot)
        steps.take(len(kept.stems))
        self.kept[slot] = None
        self.known.remove(kept.words)
        self.by_plain[kept.plain] = tuple(other for other in self.by_plain[kept.plain] if other != slot)
        for stem in kept.stems:
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
