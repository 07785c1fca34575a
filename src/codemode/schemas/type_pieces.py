"""Serialises and compares large pydantic instances in pieces, to release the interpreter.

One call into C holds the interpreter lock until it ends. The result is the same as in one call. Where the author's own
code could see a part in place of the whole, the whole is one piece. Depends on core schemas only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, cast

from ..data.json_shape import SCALARS, count_values
from ..host import steps

MAX_PIECE_VALUES = 1000
_MAX_DEPTH = 32
_WRAPPER_TYPES = frozenset({"default", "nullable", "function-before", "function-after"})


class PieceSerializer:
    """Serialises instances of the type of a pydantic adapter, as JSON, by alias."""

    def __init__(self, adapter: Any) -> None:
        self._adapter_serializer: Any = adapter.serializer
        core_schema: dict[str, Any] = adapter.core_schema
        has_definitions = core_schema["type"] == "definitions"
        self._definitions: list[Any] = core_schema["definitions"] if has_definitions else []
        self._schema: Any = core_schema["schema"] if has_definitions else core_schema
        self._definitions_by_reference = {definition["ref"]: definition for definition in self._definitions}
        # A setting of the adapter alone would be lost: it is not part of the core schema.
        self._can_split = not getattr(adapter, "_config", None)
        self._serializers: dict[tuple[int, int], Any] = {}

    def to_plain_json(self, instance: Any, *, round_trip: bool) -> Any:
        """Return plain JSON of an instance."""
        serializer_options = {"mode": "json", "by_alias": True, "round_trip": round_trip, "warnings": False}
        if not self._can_split or count_values(instance, MAX_PIECE_VALUES) < MAX_PIECE_VALUES:
            return self._adapter_serializer.to_python(instance, **serializer_options)
        return _SerializationInProgress(self, serializer_options).serialize_in_pieces(self._schema, None, instance, 0)

    def to_python_values(self, instance: Any, *, round_trip: bool) -> Any:
        """Return the instance's values, with dates, bytes and sets unconverted."""
        return self._adapter_serializer.to_python(
            instance, mode="python", by_alias=True, round_trip=round_trip, warnings=False
        )

    def serialize_whole(self, schema: Any, config: Any, instance: Any, serializer_options: Mapping[str, Any]) -> Any:
        """Serialise an instance of a part of the type in one call."""
        serializer = self._serializers.get((id(schema), id(config)))
        if serializer is None:
            from pydantic_core import SchemaSerializer

            schema_with_definitions: Any = {"type": "definitions", "schema": schema, "definitions": self._definitions}
            serializer = SchemaSerializer(schema_with_definitions if self._definitions else schema, config)
            self._serializers[id(schema), id(config)] = serializer
        steps.count_steps(MAX_PIECE_VALUES)
        return steps.run_without_gc(partial(serializer.to_python, instance, **serializer_options))

    def unwrap_schema(self, schema: Any) -> Any:
        """Follow references and wrappers; stop at a custom serializer."""
        for _ in range(_MAX_DEPTH):
            if "serialization" in schema:
                break
            if schema["type"] == "definition-ref":
                schema = self._definitions_by_reference[schema["schema_ref"]]
            elif schema["type"] in _WRAPPER_TYPES:
                schema = schema["schema"]
            else:
                break
        return schema

    def can_split(self, schema: Any, instance: Any) -> bool:
        """Tell whether an instance is made of independent parts."""
        inner = self.unwrap_schema(schema)
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
        # A field's serialiser may read the other fields.
        return not any(
            "serialization" in self.unwrap_schema(field["schema"]) or "serialization_exclude_if" in field
            for field in fields["fields"].values()
        )


class _SerializationInProgress:
    def __init__(self, serializer: PieceSerializer, serializer_options: Mapping[str, Any]) -> None:
        self._serializer = serializer
        self._serializer_options = serializer_options

    def serialize_in_pieces(self, schema: Any, config: Any, instance: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH or not self._should_split(schema, instance):
            return self._serialize_whole(schema, config, instance)
        inner = self._serializer.unwrap_schema(schema)
        if inner["type"] == "model":
            return self._serialize_model(schema, inner, inner.get("config", config), instance, depth)
        item_schema = inner.get("items_schema" if inner["type"] == "list" else "values_schema", {"type": "any"})
        write_items = self._serialize_list if inner["type"] == "list" else self._serialize_dict
        return write_items(schema, item_schema, config, instance, depth)

    def _serialize_whole(self, schema: Any, config: Any, instance: Any) -> Any:
        return self._serializer.serialize_whole(schema, config, instance, self._serializer_options)

    def _should_split(self, schema: Any, instance: Any) -> bool:
        if type(instance) in SCALARS or count_values(instance, MAX_PIECE_VALUES) < MAX_PIECE_VALUES:
            return False
        return self._serializer.can_split(schema, instance)

    def _serialize_list(self, schema: Any, item_schema: Any, config: Any, items: list[Any], depth: int) -> list[Any]:
        written: list[Any] = []
        small_items: list[Any] = []
        size = 0
        for item in items:
            if self._should_split(item_schema, item):
                written += self._serialize_whole(schema, config, small_items)
                written.append(self.serialize_in_pieces(item_schema, config, item, depth + 1))
                small_items, size = [], 0
                continue
            small_items.append(item)
            size += count_values(item, MAX_PIECE_VALUES)
            if size >= MAX_PIECE_VALUES:
                written += self._serialize_whole(schema, config, small_items)
                small_items, size = [], 0
        return written + self._serialize_whole(schema, config, small_items)

    def _serialize_dict(
        self, schema: Any, item_schema: Any, config: Any, members: dict[Any, Any], depth: int
    ) -> dict[Any, Any]:
        written: dict[Any, Any] = {}
        small_members: dict[Any, Any] = {}
        size = 0
        for key, item in members.items():
            is_split = self._should_split(item_schema, item)
            small_members[key] = None if is_split else item
            size += 1 if is_split else count_values(item, MAX_PIECE_VALUES)
            if is_split or size >= MAX_PIECE_VALUES:
                piece = self._serialize_whole(schema, config, small_members)
                if is_split:
                    piece[next(reversed(piece))] = self.serialize_in_pieces(item_schema, config, item, depth + 1)
                written |= piece
                small_members, size = {}, 0
        return written | self._serialize_whole(schema, config, small_members)

    def _serialize_model(self, schema: Any, model: Any, config: Any, instance: Any, depth: int) -> Any:
        fields = model["schema"]["fields"]
        values = cast("dict[str, Any]", instance.__dict__)
        split_names = [
            name for name in fields if name in values and self._should_split(fields[name]["schema"], values[name])
        ]
        keys = [field.get("serialization_alias", name) for name, field in fields.items()]
        if not split_names or len(set(keys)) < len(keys):
            return self._serialize_whole(schema, config, instance)
        copy_without_split = instance.model_copy()
        copy_without_split.__dict__.update(dict.fromkeys(split_names))
        written = self._serialize_whole(schema, config, copy_without_split)
        for name in split_names:
            key = fields[name].get("serialization_alias", name)
            if key in written:  # else it is never written
                written[key] = self.serialize_in_pieces(fields[name]["schema"], config, values[name], depth + 1)
        return written


def are_equal(first: Any, second: Any) -> bool:
    """Compare as ``==`` does, a step for each part of lists, dicts and models."""
    # Iterators: very many tuples would trigger a full garbage collection.
    pending: list[Iterator[tuple[Any, Any]]] = [iter([(first, second)])]
    while pending:
        pair = next(pending[-1], None)
        if pair is None:
            pending.pop()
            continue
        left, right = pair
        steps.count_steps()
        if left is right:
            continue
        value_type = cast("type[Any]", type(left))
        if value_type is type(right) and value_type in (list, tuple):
            if len(left) != len(right):
                return False
            pending.append(zip(left, right, strict=True))
        elif value_type is type(right) and value_type is dict:
            if left.keys() != right.keys():
                return False
            pending.append(_iterate_member_pairs(left, right))
        elif value_type is type(right) and _is_model_with_default_equality(value_type):
            pending.append(zip(_list_model_attributes(left), _list_model_attributes(right), strict=True))
        elif not left == right:  # noqa: SIM201 - a class may define only one of both
            return False
    return True


def _iterate_member_pairs(left: dict[Any, Any], right: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
    return ((item, right[key]) for key, item in left.items())


# As pydantic compares them.
_MODEL_ATTRIBUTES = ("__dict__", "__pydantic_private__", "__pydantic_extra__")


def _list_model_attributes(model: Any) -> list[Any]:
    return [getattr(model, name, None) for name in _MODEL_ATTRIBUTES]


def _is_model_with_default_equality(kind: type[Any]) -> bool:
    if not hasattr(kind, "__pydantic_fields__") or not hasattr(kind, "model_copy"):
        return False
    from pydantic import BaseModel

    return kind.__eq__ is BaseModel.__eq__
