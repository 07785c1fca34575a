"""The shape of values: which types stand where, joined from all that were seen. Pure, and holds no value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from codemode.data.narrowing import is_array, is_object

# A property's name is kept once it has been seen in two objects of one place, and only where it looks like a name:
# until then, and where names vary, the object is a record, whose keys are values like any other. Joining only ever
# widens.

MAX_DEPTH = 8
MAX_NAMES = 40
MAX_NODES = 400
MAX_LOOKED_AT = 600
_MOST_ONCE = 8

# No dots, no spaces, no long digits: those are addresses, texts and ids, which are values.
_NAME = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$-]{0,39}\Z")
_VALUE = re.compile(r"[0-9]{3}|^[0-9A-Fa-f-]{8,}\Z")
_SCALARS = ("boolean", "null", "number", "string")


@dataclass
class Shape:
    """What was seen at one place. ``names`` are properties, ``record`` what keys that are no names lead to.

    ``objects`` counts objects, to two. ``is_any`` says that it may be anything: too deep, or too much.
    """

    scalars: set[str] = field(default_factory=set[str])
    names: dict[str, Member] = field(default_factory=dict[str, "Member"])
    record: Shape | None = None
    is_record: bool = False
    objects: int = 0
    items: Shape | None = None
    is_any: bool = False


@dataclass
class Member:
    """One property: its shape, in how many objects it was, to two, and whether some object went without."""

    shape: Shape
    seen: int = 1
    is_missing: bool = False


def shape_of(value: Any) -> Shape:
    """Return the shape of one value, as far as the first parts of it tell."""
    return _Look().at(value, 0)


def join(one: Shape, other: Shape) -> Shape:
    """Return the shape of all that either is the shape of."""
    if one.is_any or other.is_any:
        return Shape(is_any=True)
    return Shape(
        scalars=one.scalars | other.scalars,
        items=_either(one.items, other.items),
        **_joined_objects(one, other),
    )


def bounded(shape: Shape) -> Shape:
    """Return the shape with no more parts than anybody reads: what is deepest is anything first."""
    depth = MAX_DEPTH
    while depth and _count(shape) > MAX_NODES:
        depth -= 1
        shape = _cut(shape, depth)
    return shape


def settled(shape: Shape, *, forgets: bool = False) -> Shape:
    """Return the shape without names that were seen in one object only: what may be told, or written down.

    What was below them is that of a record. ``forgets`` leaves out objects of which no name is known yet, as if they
    had not been seen: whoever reads it again would else take them for records.
    """
    names = {name: Member(settled(one.shape, forgets=forgets), 2, one.is_missing) for name, one in shape.names.items()}
    once = [names.pop(name).shape for name, one in shape.names.items() if one.seen < 2]
    record = None if shape.record is None else settled(shape.record, forgets=forgets)
    is_forgotten = forgets and not names and not shape.is_record
    return Shape(
        scalars=set(shape.scalars),
        names=names,
        record=None if is_forgotten else _all([*([] if record is None else [record]), *once]),
        is_record=shape.is_record,
        objects=0 if is_forgotten else shape.objects,
        items=None if shape.items is None else settled(shape.items, forgets=forgets),
        is_any=shape.is_any,
    )


def schema_of(shape: Shape) -> dict[str, Any]:
    """Return a JSON Schema of what was seen, without names that were seen in one object only."""
    return _schema(settled(shape))


def to_json(shape: Shape) -> Any:
    """Return a settled shape as JSON."""
    if shape.is_any:
        return True
    said: dict[str, Any] = {}
    if shape.scalars:
        said["types"] = sorted(shape.scalars)
    if shape.objects:
        said["objects"] = shape.objects
        said["names"] = {name: [to_json(one.shape), one.is_missing] for name, one in sorted(shape.names.items())}
    if shape.record is not None:
        said["record"] = to_json(shape.record)
    if shape.is_record:
        said["isRecord"] = True
    if shape.items is not None:
        said["items"] = to_json(shape.items)
    return said


def from_json(said: Any, depth: int = 0) -> Shape:
    """Return the shape that was written so. Raises `ValueError` for what none of ours is."""
    if said is True:
        return Shape(is_any=True)
    if not is_object(said) or depth > MAX_DEPTH + 1:
        raise ValueError("no shape")
    types, names, objects = said.get("types", []), said.get("names", {}), said.get("objects", 0)
    if not is_array(types) or not set(map(str, types)) <= set(_SCALARS) or not is_object(names):
        raise ValueError("no shape")
    if objects not in (0, 1, 2) or len(names) > MAX_NAMES or not all(map(is_name, names)):
        raise ValueError("no shape")
    return Shape(
        scalars=set(map(str, types)),
        names={name: _member(one, depth) for name, one in names.items()},
        record=from_json(said["record"], depth + 1) if "record" in said else None,
        is_record=said.get("isRecord") is True,
        objects=int(objects),
        items=from_json(said["items"], depth + 1) if "items" in said else None,
    )


def is_name(key: str) -> bool:
    """Tell whether a key looks like the name of a property, and not like a value."""
    return _NAME.match(key) is not None and not _VALUE.search(key)


def _member(said: Any, depth: int) -> Member:
    if not is_array(said) or len(said) != 2:
        raise ValueError("no member of a shape")
    return Member(from_json(said[0], depth + 1), 2, said[1] is True)


class _Look:
    """One look at one value, which ends after so many parts."""

    def __init__(self) -> None:
        self._left = MAX_LOOKED_AT

    def at(self, value: Any, depth: int) -> Shape:
        self._left -= 1
        if value is None:
            return Shape(scalars={"null"})
        if isinstance(value, bool):
            return Shape(scalars={"boolean"})
        if isinstance(value, int | float):
            return Shape(scalars={"number"})
        if isinstance(value, str):
            return Shape(scalars={"string"})
        if depth >= MAX_DEPTH or not (is_array(value) or is_object(value)):
            return Shape(is_any=True)
        if self._left < 0:
            return Shape()  # not looked into: it widens nothing that was seen elsewhere
        if is_array(value):
            return Shape(items=_all(self.at(one, depth + 1) for one in value if self._left > 0) or Shape())
        return self._object(cast("Mapping[Any, Any]", value), depth)

    def _object(self, value: Mapping[Any, Any], depth: int) -> Shape:
        if len(value) > MAX_NAMES or not all(isinstance(key, str) and is_name(key) for key in value):
            parts = islice(value.values(), max(self._left, 0))
            return Shape(record=_all(self.at(one, depth + 1) for one in parts), is_record=True, objects=1)
        names = {key: Member(self.at(one, depth + 1)) for key, one in value.items()}
        return Shape(names=names, objects=1)


def _either(one: Shape | None, other: Shape | None) -> Shape | None:
    return _all([part for part in (one, other) if part is not None])


def _all(shapes: Iterable[Shape]) -> Shape | None:
    found: Shape | None = None
    for shape in shapes:
        found = shape if found is None else join(found, shape)
    return found


def _joined_objects(one: Shape, other: Shape) -> dict[str, Any]:
    if not one.objects or not other.objects:
        had = one if one.objects else other
        kept = ("names", "record", "is_record", "objects")
        return {name: getattr(had, name) for name in kept}
    record = _either(one.record, other.record)
    names = {name: _joined(one.names.get(name), other.names.get(name)) for name in [*one.names, *other.names]}
    once = sum(member.seen < 2 for member in names.values())
    often = len(names) - once
    # Optional members that are all of one kind are those of a record more often than not, and a key of one is a value.
    is_uniform = len(names) > 1 and len({_kind(one.shape) for one in names.values()}) == 1
    is_missing = is_uniform and any(one.is_missing for one in names.values())
    varies = is_missing or once > max(_MOST_ONCE, often) or (once and not often)
    if varies or one.is_record or other.is_record or len(names) > MAX_NAMES:
        parts = [member.shape for member in names.values()]
        record = _all([*([] if record is None else [record]), *parts])
        return {"names": {}, "record": record, "is_record": True, "objects": 2}
    return {"names": names, "record": record, "is_record": False, "objects": 2}


def _kind(shape: Shape) -> tuple[Any, ...]:
    return (frozenset(shape.scalars - {"null"}), bool(shape.objects), shape.items is not None, shape.is_any)


def _joined(one: Member | None, other: Member | None) -> Member:
    if one is None or other is None:
        had = one or other or Member(Shape())
        return Member(had.shape, had.seen, is_missing=True)
    is_missing = one.is_missing or other.is_missing
    return Member(join(one.shape, other.shape), min(2, one.seen + other.seen), is_missing)


def _parts(shape: Shape) -> list[Shape]:
    inside = [one for one in (shape.record, shape.items) if one is not None]
    return [*inside, *(one.shape for one in shape.names.values())]


def _count(shape: Shape) -> int:
    return 1 + sum(map(_count, _parts(shape)))


def _cut(shape: Shape, depth: int) -> Shape:
    if depth == 0 and _parts(shape):
        return Shape(is_any=True)
    return Shape(
        scalars=shape.scalars,
        names={name: Member(_cut(one.shape, depth - 1), one.seen, one.is_missing) for name, one in shape.names.items()},
        record=None if shape.record is None else _cut(shape.record, depth - 1),
        is_record=shape.is_record,
        objects=shape.objects,
        items=None if shape.items is None else _cut(shape.items, depth - 1),
        is_any=shape.is_any,
    )


def _schema(shape: Shape) -> dict[str, Any]:
    if shape.is_any:
        return {}
    found: list[dict[str, Any]] = [{"type": one} for one in sorted(shape.scalars)]
    if shape.objects:
        found.append(_object_schema(shape))
    if shape.items is not None:
        found.append({"type": "array", "items": _schema(shape.items)})
    return found[0] if len(found) == 1 else {"anyOf": found} if found else {}


def _object_schema(shape: Shape) -> dict[str, Any]:
    said: dict[str, Any] = {"type": "object"}
    if shape.names:
        said["properties"] = {name: _schema(one.shape) for name, one in shape.names.items()}
        said["required"] = [name for name, one in shape.names.items() if not one.is_missing]
    if shape.record is not None:
        said["additionalProperties"] = _schema(shape.record)
    return said
