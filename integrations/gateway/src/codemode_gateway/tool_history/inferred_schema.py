"""Infer a schema from sample values without keeping any value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from codemode.data.narrowing import is_array, is_object

# A property name is stored only if it looks like a name and occurred in two objects at one place. Other objects are
# records, whose keys are treated as values. Joining shapes only widens them.

MAX_DEPTH = 8
MAX_NAMES = 40
MAX_NODES = 400
MAX_INSPECTED_PARTS = 600
_MAX_SEEN_ONCE = 8

# Dots, spaces and long digits occur in addresses, texts and ids, which are values.
_PROPERTY_NAME = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$-]{0,39}\Z")
_VALUE_LIKE = re.compile(r"[0-9]{3}|^[0-9A-Fa-f-]{8,}\Z")
_SCALARS = ("boolean", "null", "number", "string")


@dataclass
class ValueShape:
    """The observed types at one place. ``record`` is the shape of values under keys that are not property names.

    ``objects`` counts objects up to two. ``is_any`` means any value.
    """

    scalars: set[str] = field(default_factory=set[str])
    names: dict[str, PropertyShape] = field(default_factory=dict[str, "PropertyShape"])
    record: ValueShape | None = None
    is_record: bool = False
    objects: int = 0
    items: ValueShape | None = None
    is_any: bool = False


@dataclass
class PropertyShape:
    """A property: its shape, in how many objects it was seen (up to two), and whether it is optional."""

    shape: ValueShape
    seen: int = 1
    is_missing: bool = False


def infer_shape(value: Any) -> ValueShape:
    """Return the shape of a value's first parts."""
    return _ShapeInference().infer(value, 0)


def join_shapes(left: ValueShape, right: ValueShape) -> ValueShape:
    """Return the shape that covers both shapes."""
    if left.is_any or right.is_any:
        return ValueShape(is_any=True)
    return ValueShape(
        scalars=left.scalars | right.scalars,
        items=_join_optional(left.items, right.items),
        **_join_object_fields(left, right),
    )


def limit_shape_size(shape: ValueShape) -> ValueShape:
    """Return the shape within the node limit; the deepest parts become any value."""
    depth = MAX_DEPTH
    while depth and _count_nodes(shape) > MAX_NODES:
        depth -= 1
        shape = _truncate_shape(shape, depth)
    return shape


def drop_rare_names(shape: ValueShape, *, drops_unnamed_objects: bool = False) -> ValueShape:
    """Return the shape without property names that were seen once: they may be values.

    ``drops_unnamed_objects`` leaves out objects without known names, which would be read back as records.
    """
    names = {
        name: PropertyShape(
            drop_rare_names(member.shape, drops_unnamed_objects=drops_unnamed_objects), 2, member.is_missing
        )
        for name, member in shape.names.items()
    }
    seen_once = [names.pop(name).shape for name, member in shape.names.items() if member.seen < 2]
    record = (
        None if shape.record is None else drop_rare_names(shape.record, drops_unnamed_objects=drops_unnamed_objects)
    )
    is_dropped = drops_unnamed_objects and not names and not shape.is_record
    return ValueShape(
        scalars=set(shape.scalars),
        names=names,
        record=None if is_dropped else _join_all([*([] if record is None else [record]), *seen_once]),
        is_record=shape.is_record,
        objects=0 if is_dropped else shape.objects,
        items=None
        if shape.items is None
        else drop_rare_names(shape.items, drops_unnamed_objects=drops_unnamed_objects),
        is_any=shape.is_any,
    )


def shape_to_schema_without_rare_names(shape: ValueShape) -> dict[str, Any]:
    """Return a JSON Schema of the shape, without names that were seen once."""
    return _shape_to_schema(drop_rare_names(shape))


def shape_to_json(shape: ValueShape) -> Any:
    """Return a shape as JSON for the file."""
    if shape.is_any:
        return True
    value: dict[str, Any] = {}
    if shape.scalars:
        value["types"] = sorted(shape.scalars)
    if shape.objects:
        value["objects"] = shape.objects
        value["names"] = {
            name: [shape_to_json(member.shape), member.is_missing] for name, member in sorted(shape.names.items())
        }
    if shape.record is not None:
        value["record"] = shape_to_json(shape.record)
    if shape.is_record:
        value["isRecord"] = True
    if shape.items is not None:
        value["items"] = shape_to_json(shape.items)
    return value


def shape_from_json(value: Any, depth: int = 0) -> ValueShape:
    """Parse a stored shape. Raises `ValueError`."""
    if value is True:
        return ValueShape(is_any=True)
    if not is_object(value) or depth > MAX_DEPTH + 1:
        raise ValueError("no shape")
    types, names, objects = value.get("types", []), value.get("names", {}), value.get("objects", 0)
    if not is_array(types) or not set(map(str, types)) <= set(_SCALARS) or not is_object(names):
        raise ValueError("no shape")
    if objects not in (0, 1, 2) or len(names) > MAX_NAMES or not all(map(looks_like_property_name, names)):
        raise ValueError("no shape")
    return ValueShape(
        scalars=set(map(str, types)),
        names={name: _parse_property_shape(member, depth) for name, member in names.items()},
        record=shape_from_json(value["record"], depth + 1) if "record" in value else None,
        is_record=value.get("isRecord") is True,
        objects=int(objects),
        items=shape_from_json(value["items"], depth + 1) if "items" in value else None,
    )


def looks_like_property_name(key: str) -> bool:
    """Return whether a key looks like a property name rather than a value."""
    return _PROPERTY_NAME.match(key) is not None and not _VALUE_LIKE.search(key)


def _parse_property_shape(value: Any, depth: int) -> PropertyShape:
    if not is_array(value) or len(value) != 2:
        raise ValueError("not part of a shape")
    return PropertyShape(shape_from_json(value[0], depth + 1), 2, value[1] is True)


class _ShapeInference:
    """One traversal of a value with a limit on its parts."""

    def __init__(self) -> None:
        self._remaining_parts = MAX_INSPECTED_PARTS

    def infer(self, value: Any, depth: int) -> ValueShape:
        self._remaining_parts -= 1
        if value is None:
            return ValueShape(scalars={"null"})
        if isinstance(value, bool):
            return ValueShape(scalars={"boolean"})
        if isinstance(value, int | float):
            return ValueShape(scalars={"number"})
        if isinstance(value, str):
            return ValueShape(scalars={"string"})
        if depth >= MAX_DEPTH or not (is_array(value) or is_object(value)):
            return ValueShape(is_any=True)
        if self._remaining_parts < 0:
            return ValueShape()  # not visited, so it widens no other shape
        if is_array(value):
            return ValueShape(
                items=_join_all(self.infer(element, depth + 1) for element in value if self._remaining_parts > 0)
                or ValueShape()
            )
        return self._infer_object(cast("Mapping[Any, Any]", value), depth)

    def _infer_object(self, value: Mapping[Any, Any], depth: int) -> ValueShape:
        if len(value) > MAX_NAMES or not all(isinstance(key, str) and looks_like_property_name(key) for key in value):
            parts = islice(value.values(), max(self._remaining_parts, 0))
            return ValueShape(
                record=_join_all(self.infer(element, depth + 1) for element in parts), is_record=True, objects=1
            )
        names = {key: PropertyShape(self.infer(element, depth + 1)) for key, element in value.items()}
        return ValueShape(names=names, objects=1)


def _join_optional(left: ValueShape | None, right: ValueShape | None) -> ValueShape | None:
    return _join_all([part for part in (left, right) if part is not None])


def _join_all(shapes: Iterable[ValueShape]) -> ValueShape | None:
    found: ValueShape | None = None
    for shape in shapes:
        found = shape if found is None else join_shapes(found, shape)
    return found


def _join_object_fields(left: ValueShape, right: ValueShape) -> dict[str, Any]:
    if not left.objects or not right.objects:
        seen = left if left.objects else right
        copied = ("names", "record", "is_record", "objects")
        return {name: getattr(seen, name) for name in copied}
    record = _join_optional(left.record, right.record)
    names = {name: _join_members(left.names.get(name), right.names.get(name)) for name in [*left.names, *right.names]}
    seen_once = sum(member.seen < 2 for member in names.values())
    seen_often = len(names) - seen_once
    # Optional members of one type usually belong to a record, whose keys are values.
    is_uniform = len(names) > 1 and len({_compute_type_signature(left.shape) for left in names.values()}) == 1
    is_missing = is_uniform and any(left.is_missing for left in names.values())
    varies = is_missing or seen_once > max(_MAX_SEEN_ONCE, seen_often) or (seen_once and not seen_often)
    if varies or left.is_record or right.is_record or len(names) > MAX_NAMES:
        parts = [member.shape for member in names.values()]
        record = _join_all([*([] if record is None else [record]), *parts])
        return {"names": {}, "record": record, "is_record": True, "objects": 2}
    return {"names": names, "record": record, "is_record": False, "objects": 2}


def _compute_type_signature(shape: ValueShape) -> tuple[Any, ...]:
    return (frozenset(shape.scalars - {"null"}), bool(shape.objects), shape.items is not None, shape.is_any)


def _join_members(left: PropertyShape | None, right: PropertyShape | None) -> PropertyShape:
    if left is None or right is None:
        present = left or right or PropertyShape(ValueShape())
        return PropertyShape(present.shape, present.seen, is_missing=True)
    is_missing = left.is_missing or right.is_missing
    return PropertyShape(join_shapes(left.shape, right.shape), min(2, left.seen + right.seen), is_missing)


def _list_subshapes(shape: ValueShape) -> list[ValueShape]:
    parts = [part for part in (shape.record, shape.items) if part is not None]
    return [*parts, *(part.shape for part in shape.names.values())]


def _count_nodes(shape: ValueShape) -> int:
    return 1 + sum(map(_count_nodes, _list_subshapes(shape)))


def _truncate_shape(shape: ValueShape, depth: int) -> ValueShape:
    if depth == 0 and _list_subshapes(shape):
        return ValueShape(is_any=True)
    return ValueShape(
        scalars=shape.scalars,
        names={
            name: PropertyShape(_truncate_shape(member.shape, depth - 1), member.seen, member.is_missing)
            for name, member in shape.names.items()
        },
        record=None if shape.record is None else _truncate_shape(shape.record, depth - 1),
        is_record=shape.is_record,
        objects=shape.objects,
        items=None if shape.items is None else _truncate_shape(shape.items, depth - 1),
        is_any=shape.is_any,
    )


def _shape_to_schema(shape: ValueShape) -> dict[str, Any]:
    if shape.is_any:
        return {}
    alternatives: list[dict[str, Any]] = [{"type": scalar} for scalar in sorted(shape.scalars)]
    if shape.objects:
        alternatives.append(_create_object_schema(shape))
    if shape.items is not None:
        alternatives.append({"type": "array", "items": _shape_to_schema(shape.items)})
    return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives} if alternatives else {}


def _create_object_schema(shape: ValueShape) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    if shape.names:
        schema["properties"] = {name: _shape_to_schema(member.shape) for name, member in shape.names.items()}
        schema["required"] = [name for name, member in shape.names.items() if not member.is_missing]
    if shape.record is not None:
        schema["additionalProperties"] = _shape_to_schema(shape.record)
    return schema
