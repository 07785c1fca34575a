"""Serialises and compares large pydantic instances in pieces: one call into C keeps the interpreter to itself.

What comes out is what would have come out at once. Where code of the author's own could see a part in place of the
whole, the whole is one piece. Knows core schemas, no tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, cast

from ..data.json_shape import SCALARS, count_values
from ..host import steps

PIECE_VALUES = 1000
_MAX_DEPTH = 32
_WRAPPERS = frozenset({"default", "nullable", "function-before", "function-after"})


class PieceSerializer:
    """Serialises instances of the type of a pydantic adapter, as JSON, by alias."""

    def __init__(self, adapter: Any) -> None:
        self._adapters_own: Any = adapter.serializer
        core_schema: dict[str, Any] = adapter.core_schema
        has_definitions = core_schema["type"] == "definitions"
        self._definitions: list[Any] = core_schema["definitions"] if has_definitions else []
        self._schema: Any = core_schema["schema"] if has_definitions else core_schema
        self._named = {one["ref"]: one for one in self._definitions}
        # A setting that stands in no core schema would be lost.
        self._can_be_cut = not getattr(adapter, "_config", None)
        self._made: dict[tuple[int, int], Any] = {}

    def to_python(self, instance: Any, *, round_trip: bool) -> Any:
        """Return plain JSON of an instance."""
        how = {"mode": "json", "by_alias": True, "round_trip": round_trip, "warnings": False}
        if not self._can_be_cut or count_values(instance, PIECE_VALUES) < PIECE_VALUES:
            return self._adapters_own.to_python(instance, **how)
        return _Writing(self, how).write(self._schema, None, instance, 0)

    def to_rich(self, instance: Any, *, round_trip: bool) -> Any:
        """Return what an instance holds, its dates, bytes and sets as they are."""
        return self._adapters_own.to_python(
            instance, mode="python", by_alias=True, round_trip=round_trip, warnings=False
        )

    def whole(self, schema: Any, config: Any, instance: Any, how: Mapping[str, Any]) -> Any:
        """Serialise an instance of a part of the type in one call."""
        made = self._made.get((id(schema), id(config)))
        if made is None:
            from pydantic_core import SchemaSerializer

            parts: Any = {"type": "definitions", "schema": schema, "definitions": self._definitions}
            made = SchemaSerializer(parts if self._definitions else schema, config)
            self._made[id(schema), id(config)] = made
        steps.take(PIECE_VALUES)
        return steps.without_collector(partial(made.to_python, instance, **how))

    def open(self, schema: Any) -> Any:
        """Return the schema of what really stands there; one with a serializer of its own stays closed."""
        for _ in range(_MAX_DEPTH):
            if "serialization" in schema:
                break
            if schema["type"] == "definition-ref":
                schema = self._named[schema["schema_ref"]]
            elif schema["type"] in _WRAPPERS:
                schema = schema["schema"]
            else:
                break
        return schema

    def can_be_cut(self, schema: Any, instance: Any) -> bool:
        """Tell whether an instance is made of parts that know nothing of each other."""
        inner = self.open(schema)
        if "serialization" in inner:
            return False
        match inner["type"]:
            case "list":
                return type(instance) is list
            case "dict":
                return type(instance) is dict
            case "model":
                return type(instance) is inner["cls"] and self._has_plain_fields(inner)
            case _:
                return False

    def _has_plain_fields(self, model: Any) -> bool:
        fields = model["schema"]
        if fields["type"] != "model-fields" or fields.get("computed_fields") or model.get("root_model"):
            return False
        # What writes a field may look at the others.
        return not any(
            "serialization" in self.open(one["schema"]) or "serialization_exclude_if" in one
            for one in fields["fields"].values()
        )


class _Writing:
    def __init__(self, serializer: PieceSerializer, how: Mapping[str, Any]) -> None:
        self._serializer = serializer
        self._how = how

    def write(self, schema: Any, config: Any, instance: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH or not self._is_cut(schema, instance):
            return self._whole(schema, config, instance)
        inner = self._serializer.open(schema)
        if inner["type"] == "model":
            return self._model(schema, inner, inner.get("config", config), instance, depth)
        part = inner.get("items_schema" if inner["type"] == "list" else "values_schema", {"type": "any"})
        cut = self._list if inner["type"] == "list" else self._dict
        return cut(schema, part, config, instance, depth)

    def _whole(self, schema: Any, config: Any, instance: Any) -> Any:
        return self._serializer.whole(schema, config, instance, self._how)

    def _is_cut(self, schema: Any, instance: Any) -> bool:
        if type(instance) in SCALARS or count_values(instance, PIECE_VALUES) < PIECE_VALUES:
            return False
        return self._serializer.can_be_cut(schema, instance)

    def _list(self, schema: Any, part: Any, config: Any, items: list[Any], depth: int) -> list[Any]:
        written: list[Any] = []
        run: list[Any] = []
        size = 0
        for item in items:
            if self._is_cut(part, item):
                written += self._whole(schema, config, run)
                written.append(self.write(part, config, item, depth + 1))
                run, size = [], 0
                continue
            run.append(item)
            size += count_values(item, PIECE_VALUES)
            if size >= PIECE_VALUES:
                written += self._whole(schema, config, run)
                run, size = [], 0
        return written + self._whole(schema, config, run)

    def _dict(self, schema: Any, part: Any, config: Any, members: dict[Any, Any], depth: int) -> dict[Any, Any]:
        written: dict[Any, Any] = {}
        run: dict[Any, Any] = {}
        size = 0
        for key, item in members.items():
            is_cut = self._is_cut(part, item)
            run[key] = None if is_cut else item
            size += 1 if is_cut else count_values(item, PIECE_VALUES)
            if is_cut or size >= PIECE_VALUES:
                piece = self._whole(schema, config, run)
                if is_cut:
                    piece[next(reversed(piece))] = self.write(part, config, item, depth + 1)
                written |= piece
                run, size = {}, 0
        return written | self._whole(schema, config, run)

    def _model(self, schema: Any, model: Any, config: Any, instance: Any, depth: int) -> Any:
        fields = model["schema"]["fields"]
        held = cast("dict[str, Any]", instance.__dict__)
        cut = [name for name in fields if name in held and self._is_cut(fields[name]["schema"], held[name])]
        keys = [one.get("serialization_alias", name) for name, one in fields.items()]
        if not cut or len(set(keys)) < len(keys):
            return self._whole(schema, config, instance)
        rest = instance.model_copy()
        rest.__dict__.update(dict.fromkeys(cut))
        written = self._whole(schema, config, rest)
        for name in cut:
            key = fields[name].get("serialization_alias", name)
            if key in written:  # else it is never written
                written[key] = self.write(fields[name]["schema"], config, held[name], depth + 1)
        return written


def is_same(one: Any, other: Any) -> bool:
    """Compare as ``==`` does, a step for each part of lists, dicts and models."""
    # Iterators: very many tuples would bring the collector, which looks at all there is.
    pending: list[Iterator[tuple[Any, Any]]] = [iter([(one, other)])]
    while pending:
        pair = next(pending[-1], None)
        if pair is None:
            pending.pop()
            continue
        left, right = pair
        steps.take()
        if left is right:
            continue
        kind = cast("type[Any]", type(left))
        if kind is type(right) and kind in (list, tuple):
            if len(left) != len(right):
                return False
            pending.append(zip(left, right, strict=True))
        elif kind is type(right) and kind is dict:
            if left.keys() != right.keys():
                return False
            pending.append(_members_of(left, right))
        elif kind is type(right) and _is_plain_model(kind):
            pending.append(zip(_parts_of_model(left), _parts_of_model(right), strict=True))
        elif not left == right:  # noqa: SIM201 - whoever defines one need not define the other
            return False
    return True


def _members_of(left: dict[Any, Any], right: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    return ((item, right[key]) for key, item in left.items())


# As pydantic compares them.
_PARTS_OF_MODELS = ("__dict__", "__pydantic_private__", "__pydantic_extra__")


def _parts_of_model(model: Any) -> list[Any]:
    return [getattr(model, name, None) for name in _PARTS_OF_MODELS]


def _is_plain_model(kind: type[Any]) -> bool:
    if not hasattr(kind, "__pydantic_fields__") or not hasattr(kind, "model_copy"):
        return False
    from pydantic import BaseModel

    return kind.__eq__ is BaseModel.__eq__
