"""Encode JSON, with orjson where it is equivalent, and explain what cannot be encoded."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections import UserList, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MappingView
from itertools import chain
from math import isfinite
from typing import Any, cast

from .json_shape import SCALARS, UNLIMITED, get_child_values

MAX_INT_DIGITS = 1000
"""The most digits of an integer, both ways: writing and reading one takes time quadratic in them."""

MAX_DEPTH = 512
"""How deeply arrays and objects may nest, both ways."""

MAX_PLAIN_VALUES = 1 << 22
"""A value with more containers and scalars is not plain, unless the caller passes another limit."""

_MIN_LONG_INTEGER = 10**MAX_INT_DIGITS
_BATCH_VALUES = 1 << 12
_MAX_CYCLE_CHECKS = 1 << 18
_BATCH_MEMBERS = 1 << 10
_PLAIN_TYPES = frozenset({dict, list, tuple, str, int, float, bool, type(None)})
_PLAIN_SCALAR_TYPES = _PLAIN_TYPES - {dict, list, tuple}
_TEXT_TYPES = frozenset({str})
_END: Any = object()
_ALREADY_WRITTEN: Any = object()
_values_of: Callable[[dict[Any, Any]], Iterable[Any]] = vars(dict)["values"]


def exceeds_max_int_digits(value: int) -> bool:
    """Return True for an integer of more digits than cross."""
    return not -_MIN_LONG_INTEGER < value < _MIN_LONG_INTEGER


def has_cycle(value: Any) -> bool:
    """Tell whether a container holds itself, at any depth, as far as a look at a quarter of a million values tells."""
    open_containers = {id(value): iter(get_child_values(value))}
    for _ in range(_MAX_CYCLE_CHECKS):
        children = open_containers[next(reversed(open_containers))]
        item = next(children, children)
        if item is children:
            open_containers.popitem()
            if not open_containers:
                break
        elif type(item) not in SCALARS:
            if id(item) in open_containers:
                return True
            open_containers[id(item)] = iter(get_child_values(item))
    return False


# --- writing ---


def create_encoder(*, sort_keys: bool = False) -> Callable[[Any], str]:
    """Return a function that writes a value as compact ASCII JSON in one call. It does not detect cycles."""
    slow = json.JSONEncoder(check_circular=False, separators=(",", ":"), allow_nan=False, sort_keys=sort_keys)
    make: Callable[..., Any] | None = vars(json.encoder)["c_make_encoder"]
    if make is None:
        return slow.encode
    # `encode` would create this for each value.
    write = make(None, slow.default, json.encoder.encode_basestring_ascii, None, ":", ",", sort_keys, False, False)
    return lambda value: "".join(write(value, 0))


encode_small = create_encoder()
encode_small_sorted = create_encoder(sort_keys=True)


def encode_strict_json(value: Any, *, sort_keys: bool = False) -> str:
    """Write a value as `json.dumps` does, compactly and in ASCII, without keeping the interpreter for long.

    Raises `TypeError` for what is no JSON, and `ValueError` for NaN, infinities, integers of too many digits and what
    holds itself.
    """
    return (
        encode_with_orjson_or_in_steps(value, sort_keys=sort_keys)
        if can_encode_with_orjson(value)
        else encode_json_in_steps(value, sort_keys=sort_keys)
    )


_MAX_ROUNDS = 50_000


def can_encode_with_orjson(value: Any, max_values: int = MAX_PLAIN_VALUES) -> bool:
    """Return True for at most ``max_values`` values that `orjson` and `json` write alike.

    orjson takes enums and UUIDs, writes NaN as null, and its versions differ in very large and very small numbers.
    """
    count, rounds, pending = 1, 0, [value]
    while pending:
        if (rounds := rounds + 1) > _MAX_ROUNDS:
            return False  # it holds itself, or is very deep: the slow writer tells which
        # Everything is looked at in C, some thousand values at a time, and breadth does not matter.
        batch = pending[-_BATCH_VALUES:]
        del pending[-_BATCH_VALUES:]
        kinds = {*map(type, batch)}
        if not kinds <= _PLAIN_TYPES or (
            float in kinds and not _are_floats_encoded_alike(_select_values_of_type(float, batch, kinds))
        ):
            return False
        for kind in kinds - _PLAIN_SCALAR_TYPES:
            containers = _select_values_of_type(kind, batch, kinds)
            count += sum(map(len, containers))
            if count > max_values or (
                kind is dict and not _TEXT_TYPES.issuperset(map(type, chain.from_iterable(containers)))
            ):
                return False
            pending += chain.from_iterable(map(_values_of, containers) if kind is dict else containers)
    return True


def _select_values_of_type(kind: type, batch: list[Any], kinds: set[type]) -> list[Any]:
    return batch if len(kinds) == 1 else [item for item in batch if type(item) is kind]


def _are_floats_encoded_alike(numbers: list[float]) -> bool:
    """Return True if all are written without an exponent, in which versions of orjson differ, and none is NaN."""
    sizes = [*map(abs, filter(None, numbers))]
    return not sizes or (max(sizes) < 1e16 and min(sizes) >= 1e-4 and isfinite(sum(sizes)))


def encode_with_orjson_or_in_steps(value: Any, *, sort_keys: bool = False, max_depth: int = UNLIMITED) -> str:
    """Write a value that `can_encode_with_orjson`. Raises `ValueError` if it nests deeper than ``max_depth``."""
    import orjson  # late: it takes 6 ms, and a first program with small values needs none of it

    try:
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)
    except TypeError:  # nests deeper than 254, an integer of more than 64 bits, a lone surrogate
        return encode_json_in_steps(value, sort_keys=sort_keys, max_depth=max_depth)
    if data.isascii() and b"\x7f" not in data:
        return data.decode()
    return (encode_small_sorted if sort_keys else encode_small)(value)  # which escapes faster than what is written


def encode_json_in_steps(
    value: Any, *, sort_keys: bool = False, nan_as_null: bool = False, max_depth: int = UNLIMITED
) -> str:
    """Write any value that `json` can write, a little at a time."""
    return "".join(_ChunkEncoder(sort_keys, nan_as_null).iterate_pieces(value, max_depth))


class _ChunkEncoder:
    """Walks containers in Python; what holds scalars alone is written in one call into C."""

    def __init__(self, sort_keys: bool, nan_as_null: bool) -> None:
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, sort_keys=sort_keys).encode
        self._sort_keys = sort_keys
        self._nan_as_null = nan_as_null

    def iterate_pieces(self, value: Any, max_depth: int) -> Iterator[str]:
        """Yield the pieces of the text."""
        open_containers: dict[int, tuple[Iterator[tuple[str, Any]], str]] = {}
        members, bracket = iter([("", value)]), ""
        while True:
            separator, item = next(members, (bracket, _END))
            yield separator
            if item is _END:
                if not open_containers:
                    return
                _, (members, bracket) = open_containers.popitem()
            elif isinstance(item, dict | list | tuple):
                if id(cast("object", item)) in open_containers:
                    raise ValueError("Circular reference detected")  # the encoder's own words
                if len(open_containers) >= max_depth:
                    raise ValueError(f"nests deeper than {max_depth} levels")
                open_containers[id(cast("object", item))] = members, bracket
                is_dict = isinstance(item, dict)
                yield "{" if is_dict else "["
                members, bracket = self._iterate_texts_and_members(cast("Any", item)), "}" if is_dict else "]"
            elif item is not _ALREADY_WRITTEN:
                yield self._encode_scalar(item)

    def _iterate_texts_and_members(self, holder: Any) -> Iterator[tuple[str, Any]]:
        """Yield the text before each member, and the member, or `_ALREADY_WRITTEN` if the text includes it."""
        comma = ""
        if not isinstance(holder, dict):
            for start in range(0, len(holder), _BATCH_MEMBERS):
                piece = holder[start : start + _BATCH_MEMBERS]
                if (text := self._encode_scalar_members(piece, piece)) is not None:
                    yield comma + text, _ALREADY_WRITTEN
                    comma = ","
                    continue
                for item in piece:
                    yield comma, item
                    comma = ","
            return
        members = cast("dict[Any, Any]", holder)
        if len(members) <= _BATCH_MEMBERS and _TEXT_TYPES.issuperset(map(type, members)):
            text = self._encode_scalar_members(members, members.values())
            if text is not None:
                yield text, _ALREADY_WRITTEN
                return
        for key in sort_dict_keys(members) if self._sort_keys else members:
            yield f"{comma}{self._encode_key(key)}:", members[key]
            comma = ","

    def _encode_scalar_members(self, holder: Any, items: Collection[Any]) -> str | None:
        """Write the inside of what holds plain scalars alone; None if it holds anything else."""
        if not _PLAIN_SCALAR_TYPES.issuperset(map(type, items)) or any(
            exceeds_max_int_digits(item) for item in items if type(item) is int
        ):
            return None
        try:
            return self._encode(holder)[1:-1]
        except ValueError:  # NaN
            return None

    def _encode_key(self, key: Any) -> str:
        if isinstance(key, int):
            self._encode_scalar(key)
        return self._encode(key) if isinstance(key, str) else self._encode({key: None})[1:-6]

    def _encode_scalar(self, value: Any) -> str:
        if isinstance(value, int) and exceeds_max_int_digits(value):
            raise ValueError(f"an integer of more than {MAX_INT_DIGITS} digits")
        if self._nan_as_null and isinstance(value, float) and not isfinite(value):
            return "null"
        return self._encode(value)


def sort_dict_keys(members: dict[Any, Any]) -> list[Any]:
    """Return the keys of a dict in their order. Sorting a hundred thousand at once would keep the interpreter."""
    keys = list(members)
    if len(keys) <= _BATCH_VALUES:
        return sorted(keys)
    from heapq import merge

    sorted_batches = (sorted(keys[start : start + _BATCH_VALUES]) for start in range(0, len(keys), _BATCH_VALUES))
    return list(merge(*sorted_batches))


# --- what cannot be written ---

_MAX_READ_DEPTH = 100
_MAX_PROBLEMS = 100  # the places of which may be long
_LEFT_OUT: Any = object()
_COLLECTIONS = (list, tuple, set, frozenset, deque, range, UserList, MappingView)


def encode_with_pydantic_fallback(value: Any) -> str:
    """Encode with pydantic, NaN and infinities as null. Errors of serializers pass through."""
    try:
        return encode_json_in_steps(value, nan_as_null=True)
    except TypeError:
        from pydantic_core import to_jsonable_python

        return encode_json_in_steps(to_jsonable_python(value, fallback=_path_like_to_text), nan_as_null=True)


def _path_like_to_text(value: Any) -> str:
    """Return the text of a path-like object. Raises `TypeError`; pydantic itself only writes `pathlib` paths."""
    return os.fsdecode(cast("str | bytes", os.fspath(value)))


def describe_encoding_failure(value: Any, error: Exception) -> str:
    """Return the first place of a value that cannot be written, and why; else how writing it failed."""
    for path, reason in _find_unencodable_values(value):
        return f"{reason} at {path}" if path else reason
    # The text of an error that cannot be placed is the tool author's and may say anything; this goes to the guest.
    return f"writing it raised {type(error).__name__}"


def _find_unencodable_values(value: Any) -> Iterator[tuple[str, str]]:
    pending: list[tuple[str, Any, tuple[int, ...]]] = [("", value, ())]
    while pending:
        path, item, ancestors = pending.pop()
        children = _list_children(item)
        if children is None:
            if isinstance(item, int) and exceeds_max_int_digits(item):
                yield path, f"more than {MAX_INT_DIGITS} digits in a value of type builtins.int"
            elif not _is_encodable(item):
                yield path, f"a value of type {type(item).__module__}.{type(item).__qualname__}"
        elif id(item) in ancestors:
            yield path, "a circular reference"
        elif len(ancestors) >= MAX_DEPTH:
            yield "", f"nesting deeper than {MAX_DEPTH} levels"
        else:
            child_ancestors = (*ancestors, id(item))
            pending.extend((path + step, child, child_ancestors) for step, child in reversed(children))


def read_encodable_part(value: Any, max_values: int) -> tuple[Any, list[tuple[str, str]]]:
    """Return the part of a value that JSON can express, and (path, reason) of each part that it cannot.

    As in `JSON.stringify`, such a part is dropped from an object and null in a list. Bytes that are not UTF-8 become
    base64. Raises `ValueError` if nothing can be written, or if there are more than ``max_values`` values.
    """
    reader = _EncodablePartReader(max_values)
    result = reader.read(value, "", ())
    if result is _LEFT_OUT or not reader.parts:
        raise ValueError("nothing of it can be written as JSON")
    return result, [(path.removeprefix("."), reason) for path, reason in reader.problems]


class _EncodablePartReader:
    """Reads a value; ``parts`` counts what was readable, ``problems`` lists what was not."""

    def __init__(self, max_values: int) -> None:
        self.problems: list[tuple[str, str]] = []
        self.parts, self._remaining_values = 0, max_values

    def read(self, value: Any, path: str, ancestors: tuple[int, ...]) -> Any:
        self._remaining_values -= 1
        if self._remaining_values < 0:
            raise ValueError("it holds too many values")
        if id(value) in ancestors:
            return self._omit_value(path, "a circular reference")
        if len(ancestors) >= _MAX_READ_DEPTH:
            return self._omit_value(path, "nesting that is too deep")
        child_ancestors = (*ancestors, id(value))
        if isinstance(value, dict | list | tuple) and not value:
            self.parts += 1
        if (members := _get_separately_readable_members(value)) is not None:
            read_members = {
                self._read_key(key, path): self.read(member, path + _format_path_step(key), child_ancestors)
                for key, member in members.items()
            }
            return {
                key: member for key, member in read_members.items() if key is not _LEFT_OUT and member is not _LEFT_OUT
            }
        if isinstance(value, _COLLECTIONS):
            items = [
                self.read(item, f"{path}[{index}]", child_ancestors)
                for index, item in enumerate(cast("Iterable[Any]", value))
            ]
            return [None if item is _LEFT_OUT else item for item in items]
        return self._read_leaf(value, path)

    def _read_key(self, key: Any, path: str) -> Any:
        if key is None or isinstance(key, str | int | float):
            return key
        from ..host.cancellation import FAILURES

        try:
            return next(iter(json.loads(encode_with_pydantic_fallback({key: None}))))
        except FAILURES:
            return self._omit_value(path, f"a key of type {type(key).__module__}.{type(key).__qualname__}")

    def _read_leaf(self, value: Any, path: str) -> Any:
        from ..host.cancellation import FAILURES

        if isinstance(value, int) and exceeds_max_int_digits(value):
            return self._omit_value(path, f"more than {MAX_INT_DIGITS} digits")
        try:
            text = encode_with_pydantic_fallback(value)
        except FAILURES:  # serialisers are the tool author's code
            if isinstance(value, bytes | bytearray | memoryview):
                self.parts += 1
                self._add_problem(path, "bytes that are no text, written as base64")
                return base64.b64encode(bytes(cast("bytes", value))).decode()
            return self._omit_value(path, f"a value of type {type(value).__module__}.{type(value).__qualname__}")
        self.parts += 1
        return json.loads(text)

    def _omit_value(self, path: str, reason: str) -> Any:
        self._add_problem(path, f"{reason}, left out")
        return _LEFT_OUT

    def _add_problem(self, path: str, message: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append((path, message))


def _get_separately_readable_members(value: Any) -> Mapping[Any, Any] | None:
    """Return the members of a mapping, and of a model or dataclass that pydantic cannot write as a whole."""
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value)
    kind = cast("type[Any]", type(value))
    fields: Mapping[str, Any] | None = getattr(kind, "__pydantic_fields__", None)
    if (fields is None and not dataclasses.is_dataclass(kind)) or _is_encodable(value) or _has_custom_serializers(kind):
        return None
    if fields is None:
        names = [field.name for field in dataclasses.fields(kind)]
    else:
        names = [name for name, field in fields.items() if not getattr(field, "exclude", None)]
    return {name: getattr(value, name, None) for name in names}


def _has_custom_serializers(kind: type[Any]) -> bool:
    """Return True if a model has its own serialisers, which may hide values."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    return bool(getattr(decorators, "model_serializers", None) or getattr(decorators, "field_serializers", None))


def _format_path_step(key: Any) -> str:
    if not isinstance(key, str | int | float | None):
        return f"[{type(key).__name__}]"  # its own repr may fail
    return f".{key}" if str(key).isidentifier() else f"[{key!r}]"


def _list_children(item: Any) -> list[tuple[str, Any]] | None:
    if isinstance(item, Mapping):
        mapping = cast("Mapping[Any, Any]", item)
        return [(_format_path_step(key), mapping[key]) for key in mapping]
    if isinstance(item, list | tuple | set | frozenset):
        return [(f"[{index}]", child) for index, child in enumerate(cast("list[Any]", item))]
    return None


def _is_encodable(item: Any) -> bool:
    from ..host.cancellation import FAILURES

    try:
        encode_with_pydantic_fallback(item)
    except FAILURES:  # serialisers are the tool author's code
        return False
    return True
