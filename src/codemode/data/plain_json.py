"""Writes plain values as JSON, large ones in runs: C looks through thousands of values at once, then writes them.

Plain is what `json.loads` gives, and tuples. Everything else, and what nests very deeply, is for `json_pieces`, which
looks at each value by itself. What comes out is to the byte what the encoder writes at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from ..host import steps

RUN_VALUES = 1 << 12
"""So much is looked at and written in one call into C. Some two milliseconds, where every value is a long number."""

MAX_DEPTH = 512
"""How deeply arrays and objects may nest, both ways."""

_CHARACTERS_OF_A_VALUE = 128
_LONG_INTEGER = 1 << 128
_CONTAINERS_TO_OPEN = 8  # what lies below is looked at once more for each
_MOST_KEYS = 1 << 18
MOST_VALUES = 1 << 22
"""What is larger is not cut unless it is said to be."""
_STEPS_FOR_A_RUN = 500
_PLAIN = frozenset({dict, list, tuple, str, int, float, bool, type(None)})
_HOLDERS = (dict, list, tuple)
_TEXTS = frozenset({str})
_values_of: Callable[[dict[Any, Any]], Iterable[Any]] = vars(dict)["values"]


class _NotPlain(Exception):  # noqa: N818 - never leaves this file
    pass


def plain_encoder(*, allow_nan: bool = False, sort_keys: bool = False) -> Callable[[Any], str]:
    """Return what writes a value compactly, in ASCII. It never looks whether a value holds itself."""
    slow = json.JSONEncoder(check_circular=False, separators=(",", ":"), allow_nan=allow_nan, sort_keys=sort_keys)
    make: Callable[..., Any] | None = vars(json.encoder)["c_make_encoder"]
    if make is None:
        return slow.encode
    # What `encode` makes anew for each value.
    write = make(None, slow.default, json.encoder.encode_basestring_ascii, None, ":", ",", sort_keys, False, allow_nan)
    return lambda value: "".join(write(value, 0))


class Runs:
    """A plain value cut into what is written at once. ``values`` is how many containers and scalars it is of."""

    __slots__ = ("_max_values", "_parts", "_sort_keys", "values")

    def __init__(self, *, sort_keys: bool, max_values: int) -> None:
        self.values = 1
        self._max_values = max_values
        self._sort_keys = sort_keys
        self._parts: list[tuple[Any, int]] = []  # what is written, and how much of both its ends is left out

    def text(self, encode: Callable[[Any], str]) -> str:
        """Write it."""
        written: list[str] = []
        is_begun = False
        for part, cut in self._parts:
            if type(part) is str:
                written.append(part)
                continue
            if is_begun:
                steps.take(_STEPS_FOR_A_RUN)
            is_begun = True
            text = encode(part)
            written.append(text[cut:-cut] if cut else text)
        return "".join(written)

    def add(self, value: Any, opened: int = 0) -> None:
        """Cut one value, which stands in so many containers that were cut. Raises `_NotPlain`."""
        if opened > _CONTAINERS_TO_OPEN:
            raise _NotPlain
        if type(value) is str:
            self._add_text(value)
        elif not self._add_run(value, opened, 0):
            self._add_members(value, self._keys(value) if type(value) is dict else value, opened)

    def _keys(self, members: Any) -> list[Any]:
        if len(members) > _MOST_KEYS or not _TEXTS.issuperset(map(type, members)):
            raise _NotPlain
        return ordered_keys(members) if self._sort_keys else list(members)

    def _add_members(self, holder: Any, members: list[Any], opened: int) -> None:
        """Cut what a container holds: ``members`` are the keys of a dict, and else the items."""
        is_dict = type(holder) is dict
        start, length, before = 0, min(RUN_VALUES, len(members) // 2 or 1), "{" if is_dict else "["
        while start < len(members):
            taken = members[start : start + length]
            run = {key: holder[key] for key in taken} if is_dict else taken
            self._parts.append((before, 0))
            if size := self._add_run(run, opened, 1):
                start += len(taken)
                length = 2 * len(taken) if size <= RUN_VALUES // 2 else len(taken)
            elif len(taken) > 1:
                self._parts.pop()
                length = len(taken) // 2
                continue
            else:
                self._add_member(holder, taken[0], opened)
                start, length = start + 1, 1
            before = ","
        self._parts.append(("}" if is_dict else "]", 0))

    def _add_member(self, holder: Any, member: Any, opened: int) -> None:
        self.values += 1
        if type(holder) is not dict:
            self.add(member, opened + 1)
            return
        self._add_text(member)
        self._parts.append((":", 0))
        self.add(holder[member], opened + 1)

    def _add_text(self, text: str) -> None:
        length = RUN_VALUES * _CHARACTERS_OF_A_VALUE
        self._parts.append(('"', 0))
        self._parts += (([text[start : start + length]], 2) for start in range(0, len(text), length))
        self._parts.append(('"', 0))

    def _add_run(self, run: Any, opened: int, cut: int) -> int:
        """Add what can be written at once, and return for how many values it stands; 0 if it cannot be."""
        values, size = _measured(run, MAX_DEPTH - opened)
        steps.take(2 + (values >> 5))
        if size > RUN_VALUES:
            return 0
        self.values += values
        if self.values > self._max_values:
            raise _NotPlain
        self._parts.append((run, cut))
        return size + 1


def runs_of(value: Any, *, sort_keys: bool = False, max_values: int = MOST_VALUES) -> Runs | None:
    """Cut a value; None for one that is not plain, or of more values."""
    runs = Runs(sort_keys=sort_keys, max_values=max_values)
    try:
        runs.add(value)
    except _NotPlain:
        return None
    return runs if runs.values <= max_values else None


def ordered_keys(members: dict[Any, Any]) -> list[Any]:
    """Return the keys of a dict in their order. Sorting a hundred thousand at once would keep the interpreter."""
    keys = list(members)
    if len(keys) <= RUN_VALUES:
        return sorted(keys)
    from heapq import merge

    steps.take(len(keys) >> 3)
    return list(merge(*(sorted(keys[start : start + RUN_VALUES]) for start in range(0, len(keys), RUN_VALUES))))


def _measured(container: Any, max_depth: int) -> tuple[int, int]:
    """Return how many values a value holds, and for how many they stand by their lengths. Stops when it is large.

    Level by level: a container that holds itself is large, or nests too deeply. Raises `_NotPlain`.
    """
    values = weight = 0
    level: list[Any] = [container]
    while level and values + weight <= RUN_VALUES:
        kinds = {*map(type, level)}
        if not kinds <= _PLAIN:
            raise _NotPlain
        if str in kinds:
            weight += sum(map(len, _of(str, level, kinds))) // _CHARACTERS_OF_A_VALUE
        if int in kinds:
            numbers = _of(int, level, kinds)
            if max(numbers) >= _LONG_INTEGER or min(numbers) <= -_LONG_INTEGER:
                raise _NotPlain
        holders = {kind: _of(kind, level, kinds) for kind in _HOLDERS if kind in kinds}
        if holders and max_depth <= 0:
            raise _NotPlain
        max_depth -= 1
        inside = sum(sum(map(len, ones)) for ones in holders.values())
        values += inside
        if values + weight > RUN_VALUES:
            break
        if dict in kinds:
            weight += inside * _longest_key(holders[dict]) // _CHARACTERS_OF_A_VALUE
            holders[dict] = map(_values_of, holders[dict])
        level = [*chain.from_iterable(chain.from_iterable(holders.values()))]
    return values, values + weight


def _of(kind: type, level: list[Any], kinds: set[type]) -> Any:
    return level if len(kinds) == 1 else [item for item in level if type(item) is kind]


def _longest_key(dicts: list[dict[Any, Any]]) -> int:
    keys = set[Any]().union(*dicts)
    if not _TEXTS.issuperset(map(type, keys)):
        raise _NotPlain
    return max(map(len, keys), default=0)
