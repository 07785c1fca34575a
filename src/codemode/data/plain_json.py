"""Write values as JSON, large ones in pieces, and explain those that are not plain JSON."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections import UserList, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MappingView
from itertools import chain
from typing import Any, cast

from ..host import steps
from .json_shape import SCALARS, members

# What comes out is to the byte what the encoder would have written at once.

MAX_INT_DIGITS = 1000
"""The most digits of an integer, both ways: writing and reading one takes time quadratic in them."""

# Some two milliseconds, where every value is a long number. A long text or integer stands for several values.
PIECE_VALUES = 1 << 12
_CHARACTERS_OF_A_VALUE = 128
_BITS_OF_A_VALUE = 128
_LONG_INTEGER = 1 << _BITS_OF_A_VALUE
_TOO_LONG = 10**MAX_INT_DIGITS
_STEPS_FOR_A_PIECE = 500
_LOOKED_AT = 1 << 18
_LOOKS_AT_ONCE = 1 << 10
_CONTAINERS = dict, list, tuple  # written out, a union would be made anew for each value
_SHORT_SCALARS = frozenset({float, bool, type(None)})


def encode_in_pieces(encoder: json.JSONEncoder, value: Any) -> str:
    """Write a value with a compact ``encoder``. Raises what the encoder raises, and `ValueError` for long integers."""
    if _is_one_piece(value):
        return encoder.encode(value)
    return "".join(_Pieces(encoder, _sizes(value)).of(value))


def is_long_integer(value: int) -> bool:
    """Return True for an integer of more digits than cross."""
    return not -_TOO_LONG < value < _TOO_LONG


def holds_itself(value: Any) -> bool:
    """Tell whether a container holds itself, at any depth, as far as a look at a quarter of a million values tells."""
    open_ones = {id(value): iter(members(value))}
    for number in range(_LOOKED_AT):
        if not number % _LOOKS_AT_ONCE:
            steps.take()
        inside = open_ones[next(reversed(open_ones))]
        item = next(inside, inside)
        if item is inside:
            open_ones.popitem()
            if not open_ones:
                break
        elif type(item) not in SCALARS:
            steps.take()
            if id(item) in open_ones:
                return True
            open_ones[id(item)] = iter(members(item))
    return False


def _is_one_piece(value: Any) -> bool:
    size, pending = _size(value), [] if type(value) in SCALARS else [value]
    while pending and size <= PIECE_VALUES:
        more, inside = _look(pending.pop())
        steps.take(1 + (more >> 5))
        size += more
        pending += inside
    return size <= PIECE_VALUES


def _sizes(value: Any) -> dict[int, int]:
    """Return how many values each container holds, by identity. Raises `ValueError` when one holds itself.

    A container that stands in several places counts in each.
    """
    sizes: dict[int, int] = {}
    open_ones: dict[int, tuple[int, list[Any]]] = {}
    pending: list[Any] = [] if type(value) in SCALARS else [value]
    while pending:
        item = pending[-1]
        if id(item) in sizes:
            pending.pop()
        elif (looked_at := open_ones.pop(id(item), None)) is not None:
            sizes[id(item)] = looked_at[0] + sum([sizes[id(one)] for one in looked_at[1]])
            pending.pop()
        else:
            size, inside = _look(item)
            steps.take(1 + (size >> 5))
            open_ones[id(item)] = size, inside
            if any(id(one) in open_ones for one in inside):
                raise ValueError("Circular reference detected")  # the encoder's own words
            pending += inside
    return sizes


def _look(item: Any) -> tuple[int, list[Any]]:
    """Return how many values a container holds itself, and the containers in it. Whatever is no JSON holds nothing."""
    if not isinstance(item, _CONTAINERS):
        return 0, []
    size, inside = len(cast("Collection[Any]", item)), cast("Collection[object]", item)
    if isinstance(item, dict):
        inside = cast("dict[Any, object]", item).values()
        for key in cast("dict[Any, Any]", item):
            if type(key) is not str or len(key) >= _CHARACTERS_OF_A_VALUE:
                size += _size(key)
    held: list[Any] = []
    for one in inside:
        if isinstance(one, str):
            if len(one) >= _CHARACTERS_OF_A_VALUE:
                size += len(one) // _CHARACTERS_OF_A_VALUE
        elif isinstance(one, int):
            if not -_LONG_INTEGER < one < _LONG_INTEGER:
                size += _size(one)
        elif type(one) not in SCALARS and isinstance(one, _CONTAINERS):
            held.append(one)
    return size, held


def _size(value: Any) -> int:
    """Return for how many values one stands by its own length. Raises `ValueError` for an integer that is too long."""
    if isinstance(value, str):
        return 1 + len(value) // _CHARACTERS_OF_A_VALUE
    if not isinstance(value, int) or -_LONG_INTEGER < value < _LONG_INTEGER:
        return 1
    if is_long_integer(value):
        raise ValueError(f"an integer of more than {MAX_INT_DIGITS} digits")
    return 1 + value.bit_length() // _BITS_OF_A_VALUE


class _Pieces:
    def __init__(self, encoder: json.JSONEncoder, sizes: dict[int, int]) -> None:
        self._encoder = encoder
        self._sizes = sizes

    def of(self, value: Any) -> list[str]:
        written: list[str] = []
        self._write(value, written)
        return written

    def _inside(self, item: Any) -> int:
        """Return for how many values one stands beside itself."""
        inside = self._sizes.get(id(item))
        return _size(item) - 1 if inside is None else inside

    def _write(self, value: Any, written: list[str]) -> None:
        if self._inside(value) <= PIECE_VALUES or isinstance(value, int):
            written.append(self._encoder.encode(value))
        elif isinstance(value, dict):
            self._write_dict(cast("dict[Any, Any]", value), written)
        elif isinstance(value, str):
            self._write_text(value, written)
        else:
            self._write_list(value, written)

    def _write_text(self, text: str, written: list[str]) -> None:
        written.append('"')
        length = PIECE_VALUES * _CHARACTERS_OF_A_VALUE
        for start in range(0, len(text), length):
            steps.take(_STEPS_FOR_A_PIECE)
            written.append(self._encoder.encode(text[start : start + length])[1:-1])
        written.append('"')

    def _write_list(self, items: Iterable[Any], written: list[str]) -> None:
        run: list[Any] = []
        size, before = 0, "["
        for item in items:
            inside = 0 if type(item) in _SHORT_SCALARS else self._inside(item)
            if run and size + inside > PIECE_VALUES:
                steps.take(_STEPS_FOR_A_PIECE)
                written += before, self._encoder.encode(run)[1:-1]
                run, size, before = [], 0, ","
            if inside > PIECE_VALUES:
                written.append(before)
                self._write(item, written)
                before = ","
            else:
                run.append(item)
                size += inside + 1
        written += [before, self._encoder.encode(run)[1:-1], "]"] if run else ["]"]

    def _write_dict(self, members: dict[Any, Any], written: list[str]) -> None:
        run: dict[Any, Any] = {}
        size, before = 0, "{"
        for key in sorted(members) if self._encoder.sort_keys else members:
            item = members[key]
            inside, long_key = self._inside(item), _size(key) - 1
            if run and size + inside + long_key > PIECE_VALUES:
                steps.take(_STEPS_FOR_A_PIECE)
                written += before, self._encoder.encode(run)[1:-1]
                run, size, before = {}, 0, ","
            if inside + long_key > PIECE_VALUES:
                written.append(before)
                self._write_member(key, item, written)
                before = ","
            else:
                run[key] = item
                size += inside + long_key + 1
        written += [before, self._encoder.encode(run)[1:-1], "}"] if run else ["}"]

    def _write_member(self, key: Any, item: Any, written: list[str]) -> None:
        if isinstance(key, str):
            self._write(key, written)
            written.append(":")
        else:
            written.append(self._encoder.encode({key: None})[1:-5])
        self._write(item, written)


# Plain is what `json.loads` gives, and tuples. Everything else, and what nests very deeply, is for `json_pieces`, which
# looks at each value by itself. What comes out is to the byte what the encoder writes at once.

RUN_VALUES = 1 << 12
"""So much is looked at and written in one call into C. Some two milliseconds, where every value is a long number."""

MAX_DEPTH = 512
"""How deeply arrays and objects may nest, both ways."""

_LONG_PLAIN_INTEGER = 1 << 128
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
            if max(numbers) >= _LONG_PLAIN_INTEGER or min(numbers) <= -_LONG_PLAIN_INTEGER:
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


_MAX_READ_DEPTH = 100
_MAX_NOTED = 100  # the places of which may be long
_UNREADABLE: Any = object()
_COLLECTIONS = (list, tuple, set, frozenset, deque, range, UserList, MappingView)
_LOOSE = json.JSONEncoder(separators=(",", ":"))


def encode_loosely(value: Any) -> str:
    """Write what pydantic can turn into JSON. It raises whatever a serialiser does."""
    try:
        return encode_in_pieces(_LOOSE, value)
    except TypeError:
        from pydantic_core import to_jsonable_python

        return encode_in_pieces(_LOOSE, to_jsonable_python(value, fallback=_path_text))


def _path_text(value: Any) -> str:
    """Return the text of a path-like object. Raises `TypeError`; pydantic itself only writes `pathlib` paths."""
    return os.fsdecode(cast("str | bytes", os.fspath(value)))


def why_not_json(value: Any, error: Exception) -> str:
    """Return the first place of a value that cannot be written, and why; else how writing it failed."""
    for path, reason in _problems(value):
        return f"{reason} at {path}" if path else reason
    # The text of an error that cannot be placed is the tool author's and may say anything; this goes to the guest.
    return f"writing it raised {type(error).__name__}"


def _problems(value: Any) -> Iterator[tuple[str, str]]:
    pending: list[tuple[str, Any, tuple[int, ...]]] = [("", value, ())]
    while pending:
        path, item, ancestors = pending.pop()
        steps.take()
        children = _children(item)
        if children is None:
            if isinstance(item, int) and is_long_integer(item):
                yield path, f"more than {MAX_INT_DIGITS} digits in a value of type builtins.int"
            elif not _is_encodable(item):
                yield path, f"a value of type {type(item).__module__}.{type(item).__qualname__}"
        elif id(item) in ancestors:
            yield path, "a circular reference"
        elif len(ancestors) >= MAX_DEPTH:
            yield "", f"nesting deeper than {MAX_DEPTH} levels"
        else:
            inside = (*ancestors, id(item))
            pending.extend((path + step, child, inside) for step, child in reversed(children))


def readable_part(value: Any, max_values: int) -> tuple[Any, list[tuple[str, str]]]:
    """Return the part of a value that JSON can express, and (path, reason) of each part that it cannot.

    As in `JSON.stringify`, such a part is dropped from an object and null in a list. Bytes that are not UTF-8 become
    base64. Raises `ValueError` if nothing can be written, or if there are more than ``max_values`` values.
    """
    reader = _PartReader(max_values)
    readable = reader.read(value, "", ())
    if readable is _UNREADABLE or not reader.parts:
        raise ValueError("nothing of it can be written as JSON")
    return readable, [(path.removeprefix("."), reason) for path, reason in reader.problems]


class _PartReader:
    """Reads a value; ``parts`` counts what was readable, ``problems`` lists what was not."""

    def __init__(self, max_values: int) -> None:
        self.problems: list[tuple[str, str]] = []
        self.parts, self._left = 0, max_values

    def read(self, value: Any, path: str, ancestors: tuple[int, ...]) -> Any:
        steps.take()
        self._left -= 1
        if self._left < 0:
            raise ValueError("it holds too many values")
        if id(value) in ancestors:
            return self._unreadable(path, "a circular reference")
        if len(ancestors) >= _MAX_READ_DEPTH:
            return self._unreadable(path, "nesting that is too deep")
        inside = (*ancestors, id(value))
        if isinstance(value, dict | list | tuple) and not value:
            self.parts += 1
        if (members := _members(value)) is not None:
            read = {
                self._read_key(key, path): self.read(member, path + _step(key), inside)
                for key, member in members.items()
            }
            return {key: member for key, member in read.items() if key is not _UNREADABLE and member is not _UNREADABLE}
        if isinstance(value, _COLLECTIONS):
            items = [self.read(item, f"{path}[{at}]", inside) for at, item in enumerate(cast("Iterable[Any]", value))]
            return [None if item is _UNREADABLE else item for item in items]
        return self._read_leaf(value, path)

    def _read_key(self, key: Any, path: str) -> Any:
        if key is None or isinstance(key, str | int | float):
            return key
        from ..host.cancellation import FAILURES

        try:
            return next(iter(json.loads(encode_loosely({key: None}))))
        except FAILURES:
            return self._unreadable(path, f"a key of type {type(key).__module__}.{type(key).__qualname__}")

    def _read_leaf(self, value: Any, path: str) -> Any:
        from ..host.cancellation import FAILURES

        if isinstance(value, int) and is_long_integer(value):
            return self._unreadable(path, f"more than {MAX_INT_DIGITS} digits")
        try:
            text = encode_loosely(value)
        except FAILURES:  # serialisers are the tool author's code
            if isinstance(value, bytes | bytearray | memoryview):
                self.parts += 1
                self._note(path, "bytes that are no text, written as base64")
                return base64.b64encode(cast("bytes", value)).decode()
            return self._unreadable(path, f"a value of type {type(value).__module__}.{type(value).__qualname__}")
        self.parts += 1
        return json.loads(text, parse_constant=lambda _: None)

    def _unreadable(self, path: str, reason: str) -> Any:
        self._note(path, f"{reason}, left out")
        return _UNREADABLE

    def _note(self, path: str, message: str) -> None:
        if len(self.problems) < _MAX_NOTED:
            self.problems.append((path, message))


def _members(value: Any) -> Mapping[Any, Any] | None:
    """Return the members of a mapping, and of a model or dataclass that pydantic cannot write as a whole."""
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value)
    kind = cast("type[Any]", type(value))
    fields: Mapping[str, Any] | None = getattr(kind, "__pydantic_fields__", None)
    if (fields is None and not dataclasses.is_dataclass(kind)) or _is_encodable(value) or _writes_itself(kind):
        return None
    if fields is None:
        names = [field.name for field in dataclasses.fields(kind)]
    else:
        names = [name for name, field in fields.items() if not getattr(field, "exclude", None)]
    return {name: getattr(value, name, None) for name in names}


def _writes_itself(kind: type[Any]) -> bool:
    """Return True if a model has its own serialisers, which may hide values."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    return bool(getattr(decorators, "model_serializers", None) or getattr(decorators, "field_serializers", None))


def _step(key: Any) -> str:
    if not isinstance(key, str | int | float | None):
        return f"[{type(key).__name__}]"  # its own repr may fail
    return f".{key}" if str(key).isidentifier() else f"[{key!r}]"


def _children(item: Any) -> list[tuple[str, Any]] | None:
    if isinstance(item, Mapping):
        mapping = cast("Mapping[Any, Any]", item)
        return [(_step(key), mapping[key]) for key in mapping]
    if isinstance(item, list | tuple | set | frozenset):
        return [(f"[{index}]", child) for index, child in enumerate(cast("list[Any]", item))]
    return None


def _is_encodable(item: Any) -> bool:
    from ..host.cancellation import FAILURES

    try:
        encode_loosely(item)
    except FAILURES:  # serialisers are the tool author's code
        return False
    return True
