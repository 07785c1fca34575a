"""Reads JSON Schema (draft 7 to 2020-12) into shapes. Total, bounded in depth and size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..data.content import CONTENT_KEYWORD
from ..data.narrowing import list_or_empty, mapping_or_empty, string_or_empty
from ..data.references import LocalReferenceResolver
from .literals import ELISION, MAX_EXACT_INTEGER, to_comment_line, to_number_literal, to_string_literal
from .shapes import (
    CONTENT,
    INEXPRESSIBLE_KEYWORDS,
    NEVER,
    NULL,
    UNKNOWN,
    Array,
    BuiltinType,
    Literal,
    Object,
    Pointer,
    Property,
    Reference,
    Shape,
    ShapeDefinition,
    ShapeDocument,
    Tuple,
    create_intersection,
    create_jsdoc,
    create_union,
    create_unknown_type,
    get_additional_properties_schema,
)

MAX_NODES = 5000
MAX_DEPTH = 24
MAX_DEFINITIONS = 500
MAX_ENUM_VALUES = 200
MAX_TUPLE_ITEMS = 100
MAX_LISTED_KEYS = 30
MAX_COMMENT_CHARACTERS = 120

Schema = Mapping[Any, Any]

_NUMBER = BuiltinType("number")
# As pydantic writes dates and bytes.
_RICH_FORMATS: dict[Any, BuiltinType] = {
    "date-time": BuiltinType("Date"),
    "date": BuiltinType("Date"),
    "binary": BuiltinType("Uint8Array"),
}
_TOO_LARGE = create_unknown_type("schema too large to show")
_TOO_DEEP = create_unknown_type("nested too deeply to show")
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list, tuple),
    "object": (Mapping,),
}
_OBJECT_KEYWORDS = (
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
)
_ARRAY_KEYWORDS = ("items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems")
_TYPE_BY_KEYWORD = {
    **dict.fromkeys(_OBJECT_KEYWORDS, "object"),
    **dict.fromkeys(_ARRAY_KEYWORDS, "array"),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "contentEncoding"), "string"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
}
_CONSTRAINING_KEYWORDS = frozenset({"const", "enum", *_TYPE_BY_KEYWORD})
_BRANCHING_KEYWORDS = ("anyOf", "oneOf", "allOf")
_LEGACY_DRAFTS = ("draft-03", "draft-04", "draft-05", "draft-06", "draft-07")


def read_schema_as_shapes(schema: Any, *, has_rich_values: bool = False) -> ShapeDocument:
    """The shapes of any one schema. Never raises, and visits at most ``MAX_NODES`` subschemas.

    ``has_rich_values``: it is of a Python type whose dates, bytes and sets cross as such.
    """
    return _SchemaReader(schema, has_rich_values=has_rich_values).read_shape_document()


@dataclass(frozen=True, slots=True)
class _ReadContext:
    depth: int = 0
    is_guarded: bool = False
    types: tuple[str, ...] = ()
    """What the schema around says about the type, for a branch that says nothing."""

    def create_container_context(self) -> _ReadContext:
        return _ReadContext(self.depth + 1, is_guarded=True)

    def create_branch_context(self, types: tuple[str, ...]) -> _ReadContext:
        return _ReadContext(self.depth + 1, self.is_guarded, types)


class _SchemaReader:
    def __init__(self, root: Any, *, has_rich_values: bool) -> None:
        self._has_rich_values = has_rich_values
        self._local = LocalReferenceResolver(root)
        self._nodes_left = MAX_NODES
        self._references: list[Reference] = []
        self._pending: list[Pointer] = [()]
        self._seen_pointers: set[Pointer] = {()}
        dialect = string_or_empty(mapping_or_empty(root).get("$schema"))
        self._ignores_ref_siblings = any(draft in dialect for draft in _LEGACY_DRAFTS)

    def read_shape_document(self) -> ShapeDocument:
        definitions: dict[Pointer, ShapeDefinition] = {}
        while self._pending:
            pointer = self._pending.pop()
            definitions[pointer] = self._read_definition(self._local.look_up_pointer(pointer))
        return ShapeDocument(definitions)

    def _read_definition(self, schema: Any) -> ShapeDefinition:
        self._references = []
        shape = self._read_shape(schema, _ReadContext())
        title = cast("Schema", schema).get("title") if isinstance(schema, Mapping) else None
        return ShapeDefinition(
            shape, create_jsdoc(schema), title if isinstance(title, str) else "", tuple(self._references)
        )

    def _read_shape(self, schema: Any, context: _ReadContext) -> Shape:
        if schema is True:
            return UNKNOWN
        if schema is False:
            return NEVER
        if not isinstance(schema, Mapping):
            return create_unknown_type("not a JSON Schema")
        self._nodes_left -= 1
        if self._nodes_left < 0:
            return _TOO_LARGE
        if context.depth > MAX_DEPTH:
            return _TOO_DEEP
        known = mapping_or_empty(schema)
        shape = self._read_with_reference(known, context)
        return create_union([shape, NULL]) if known.get("nullable") is True else shape

    def _read_with_reference(self, schema: Schema, context: _ReadContext) -> Shape:
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = schema.get(keyword)
            if isinstance(reference, str):
                target = self._read_reference(reference, context)
                # Up to draft 7 every sibling keyword of a reference is ignored.
                return (
                    target
                    if self._ignores_ref_siblings
                    else create_intersection([target, self._read_keywords(schema, context)])
                )
        return self._read_keywords(schema, context)

    def _read_reference(self, reference: str, context: _ReadContext) -> Shape:
        pointer = self._local.resolve_to_pointer(reference)
        if pointer is None:
            return create_unknown_type(to_comment_line(f"unresolved $ref {reference}", MAX_COMMENT_CHARACTERS))
        if pointer not in self._seen_pointers:
            if len(self._seen_pointers) >= MAX_DEFINITIONS:
                return _TOO_LARGE
            self._seen_pointers.add(pointer)
            self._pending.append(pointer)
        reference_shape = Reference(pointer, context.is_guarded)
        self._references.append(reference_shape)
        return reference_shape

    def _read_keywords(self, schema: Schema, context: _ReadContext) -> Shape:
        if schema.get(CONTENT_KEYWORD) == "content":
            return CONTENT
        types = _list_declared_types(schema) or context.types
        parts = list(self._read_branches(schema, types, context))
        if not parts or _has_constraints(schema):
            parts.insert(0, self._read_local_keywords(schema, types, context))
        shape = create_intersection(parts)
        if shape == UNKNOWN and any(keyword in schema for keyword in INEXPRESSIBLE_KEYWORDS):
            inexpressible = ", ".join(keyword for keyword in INEXPRESSIBLE_KEYWORDS if keyword in schema)
            return create_unknown_type(f"TypeScript cannot express: {inexpressible}")
        return shape

    def _read_branches(self, schema: Schema, types: tuple[str, ...], context: _ReadContext) -> Iterator[Shape]:
        for keyword in _BRANCHING_KEYWORDS:
            branches = list_or_empty(schema.get(keyword))
            if branches:
                inner = context.create_branch_context(types)
                shapes = [self._read_shape(branch, inner) for branch in branches]
                yield create_intersection(shapes) if keyword == "allOf" else create_union(shapes)

    def _read_local_keywords(self, schema: Schema, types: tuple[str, ...], context: _ReadContext) -> Shape:
        if "const" in schema:
            return self._create_literal_shape(schema["const"], context)
        values = schema.get("enum")
        if isinstance(values, list):
            return self._read_enum(cast("list[Any]", values), types, context)
        if not types:
            types = tuple(dict.fromkeys(t for keyword, t in _TYPE_BY_KEYWORD.items() if keyword in schema))
        return create_union([self._read_type(name, schema, context) for name in types]) if types else UNKNOWN

    def _read_enum(self, values: list[Any], types: tuple[str, ...], context: _ReadContext) -> Shape:
        allowed = [value for value in values if not types or any(_is_of_type(value, name) for name in types)]
        if len(allowed) > MAX_ENUM_VALUES:
            sample_text = ", ".join(_to_literal_text(value) or ELISION for value in allowed[:10])
            name = types[0] if len(types) == 1 and types[0] in ("string", "number", "boolean") else "unknown"
            comment = f"one of {len(allowed)} values: {to_comment_line(sample_text, MAX_COMMENT_CHARACTERS)}"
            return BuiltinType("number" if types == ("integer",) else name, comment)
        return create_union([self._create_literal_shape(value, context) for value in allowed])

    def _create_literal_shape(self, value: Any, context: _ReadContext) -> Shape:
        self._nodes_left -= 1
        text = _to_literal_text(value)
        if text is not None:
            return NULL if text == "null" else Literal(text)
        if context.depth > MAX_DEPTH:
            return _TOO_DEEP
        if isinstance(value, int | float):
            return BuiltinType("number")
        inner = context.create_container_context()
        if isinstance(value, list | tuple | Mapping) and len(cast("list[Any]", value)) > self._nodes_left:
            return _TOO_LARGE
        if isinstance(value, list | tuple):
            items = tuple(self._create_literal_shape(item, inner) for item in cast("list[Any]", value))
            return Tuple(items, len(items), None)
        if isinstance(value, Mapping):
            entries = mapping_or_empty(value).items()
            properties = tuple(
                Property(str(key), self._create_literal_shape(item, inner), True) for key, item in entries
            )
            return Object(properties) if properties else Object((), NEVER)
        return create_unknown_type("not a JSON value")

    def _read_type(self, name: str, schema: Schema, context: _ReadContext) -> Shape:
        if name == "object":
            return self._read_object(schema, context)
        if name == "array":
            return self._read_array(schema, context)
        if name == "integer":
            return create_union([_NUMBER, BuiltinType("bigint")]) if _may_need_bigint(schema) else _NUMBER
        if name == "string" and self._has_rich_values and (rich := _RICH_FORMATS.get(schema.get("format"))):
            return rich
        if name in ("string", "number", "boolean", "null"):
            return BuiltinType(name)
        return create_unknown_type(to_comment_line(f"no JSON Schema type: {name}", MAX_COMMENT_CHARACTERS))

    def _read_object(self, schema: Schema, context: _ReadContext) -> Shape:
        inner = context.create_container_context()
        properties, is_cut = self._read_properties(schema, inner)
        if is_cut:
            return Object(properties, UNKNOWN, "more properties than can be shown")
        index, comment = self._read_index_signature(schema, inner)
        keys = [] if mapping_or_empty(schema.get("properties")) else self._list_allowed_keys_if_few(schema)
        if keys:
            required = _select_unique_strings(schema.get("required"))
            return Object(tuple(Property(key, index or UNKNOWN, key in required) for key in keys))
        if index is None and not properties:
            index = NEVER if self._is_closed(schema) else UNKNOWN
        return Object(properties, index, comment)

    def _read_properties(self, schema: Schema, inner: _ReadContext) -> tuple[tuple[Property, ...], bool]:
        property_schemas = mapping_or_empty(schema.get("properties"))
        required = _select_unique_strings(schema.get("required"))
        properties: list[Property] = []
        for name, property_schema in property_schemas.items():
            if self._nodes_left <= 0:
                return tuple(properties), True
            if isinstance(name, str):
                shape = self._read_shape(property_schema, inner)
                # In draft 3 a property says so itself; in the others that is no schema.
                is_required = name in required or mapping_or_empty(property_schema).get("required") is True
                properties.append(Property(name, shape, is_required, create_jsdoc(property_schema)))
        additional = schema.get("additionalProperties")
        for name in required:
            if name not in property_schemas:
                if self._nodes_left <= 0:
                    return tuple(properties), True
                shape = self._read_shape(additional, inner) if isinstance(additional, Mapping) else UNKNOWN
                self._nodes_left -= 1
                properties.append(Property(name, shape, True))
        return tuple(properties), False

    def _read_index_signature(self, schema: Schema, inner: _ReadContext) -> tuple[Shape | None, str]:
        shapes: list[Shape] = []
        patterns = mapping_or_empty(schema.get("patternProperties"))
        comment = ""
        if patterns:
            shapes = [self._read_shape(item, inner) for item in patterns.values()]
            comment = "keys match " + ", ".join(map(str, list(patterns)[:8]))
        additional = get_additional_properties_schema(schema)
        if additional is not None and additional is not False:
            shapes.append(self._read_shape(additional, inner))
        if not shapes:
            return None, ""
        return create_union(shapes), to_comment_line(comment, MAX_COMMENT_CHARACTERS)

    def _list_allowed_keys_if_few(self, schema: Schema) -> list[str]:
        """The only keys that ``propertyNames`` admits, when it lists them."""
        names = mapping_or_empty(schema.get("propertyNames"))
        pointer = self._local.resolve_to_pointer(string_or_empty(names.get("$ref"))) if "$ref" in names else None
        if pointer is not None:
            names = mapping_or_empty(self._local.look_up_pointer(pointer))
        key_values = [names["const"]] if "const" in names else list_or_empty(names.get("enum"))
        keys = list(_select_unique_strings(key_values))
        return keys if len(keys) <= MAX_LISTED_KEYS else []

    @staticmethod
    def _is_closed(schema: Schema) -> bool:
        return get_additional_properties_schema(schema) is False

    def _read_array(self, schema: Schema, context: _ReadContext) -> Shape:
        inner = context.create_container_context()
        prefix, rest = list_or_empty(schema.get("prefixItems")), schema.get("items")
        if isinstance(rest, list):
            prefix, rest = list_or_empty(rest), schema.get("additionalItems")
        if not prefix:
            is_set = self._has_rich_values and schema.get("uniqueItems") is True
            return Array(UNKNOWN if rest is None else self._read_shape(rest, inner), is_set)
        return self._read_tuple(schema, prefix, rest, inner)

    def _read_tuple(self, schema: Schema, prefix: list[Any], rest: Any, inner: _ReadContext) -> Shape:
        if len(prefix) > MAX_TUPLE_ITEMS:
            prefix, rest = prefix[:MAX_TUPLE_ITEMS], True
        max_items = _integer_or_default(schema.get("maxItems"), len(prefix) + 1)
        items = tuple(self._read_shape(item, inner) for item in prefix[: max(max_items, 0)])
        tail = None
        if max_items > len(prefix) and rest is not False:
            tail = UNKNOWN if rest is None else self._read_shape(rest, inner)
        return Tuple(items, min(_integer_or_default(schema.get("minItems"), 0), len(items)), tail)


def _list_declared_types(schema: Schema) -> tuple[str, ...]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return (declared,)
    return tuple(dict.fromkeys(_select_unique_strings(declared)))


def _select_unique_strings(value: Any) -> dict[str, None]:
    items = cast("list[Any]", value) if isinstance(value, list | tuple) else []
    return dict.fromkeys(item for item in items if isinstance(item, str))


def _integer_or_default(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _may_need_bigint(schema: Schema) -> bool:
    """Return whether a schema says of its integers that some are BigInt in a program. Without limits most never are."""
    limits = [schema.get(name) for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
    return any(isinstance(limit, int | float) and abs(limit) > MAX_EXACT_INTEGER for limit in limits)


def _has_constraints(schema: Schema) -> bool:
    return not _CONSTRAINING_KEYWORDS.isdisjoint(schema)


def _is_of_type(value: Any, type_name: str) -> bool:
    if isinstance(value, bool):
        return type_name == "boolean"
    return isinstance(value, _PYTHON_TYPES.get(type_name, ()))


def _to_literal_text(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return to_string_literal(value)
    return to_number_literal(value) if isinstance(value, int | float) else None
