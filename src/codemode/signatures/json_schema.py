"""Reads JSON Schema (draft 7 to 2020-12) into shapes. Total: any input gives shapes, in bounded depth and size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..data.content import CONTENT_KEYWORD
from ..data.narrowing import list_or_empty, mapping_or_empty, string_or_empty
from ..data.references import LocalReferences
from .literals import ELISION, MAX_EXACT_INTEGER, comment_line, number_literal, string_literal
from .shapes import (
    CONTENT,
    INEXPRESSIBLE,
    NEVER,
    NULL,
    UNKNOWN,
    Array,
    Definition,
    Document,
    Keyword,
    Literal,
    Object,
    Pointer,
    Property,
    Reference,
    Shape,
    Tuple,
    doc_of,
    intersection,
    other_properties,
    union,
    unknown,
)

MAX_NODES = 5000
MAX_DEPTH = 24
MAX_DEFINITIONS = 500
MAX_ENUM_VALUES = 200
MAX_TUPLE_ITEMS = 100
MAX_LISTED_KEYS = 30
MAX_COMMENT_CHARACTERS = 120

Schema = Mapping[Any, Any]

_NUMBER = Keyword("number")
# As pydantic writes dates and bytes.
_RICH_FORMATS: dict[Any, Keyword] = {
    "date-time": Keyword("Date"),
    "date": Keyword("Date"),
    "binary": Keyword("Uint8Array"),
}
_TOO_LARGE = unknown("schema too large to show")
_TOO_DEEP = unknown("nested too deeply to show")
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
_MORE_THAN_TYPE = frozenset({"const", "enum", *_TYPE_BY_KEYWORD})
_BRANCHING = ("anyOf", "oneOf", "allOf")
_LEGACY_DRAFTS = ("draft-03", "draft-04", "draft-05", "draft-06", "draft-07")


def read_document(schema: Any, *, has_rich_values: bool = False) -> Document:
    """The shapes of one schema, whatever it is. Never raises, and visits at most ``MAX_NODES`` subschemas.

    ``has_rich_values``: it is of a Python type whose dates, bytes and sets cross as such.
    """
    return _Reader(schema, has_rich_values=has_rich_values).document()


@dataclass(frozen=True, slots=True)
class _Place:
    depth: int = 0
    guarded: bool = False
    types: tuple[str, ...] = ()
    """What the schema around says about the type, for a branch that says nothing."""

    def inside(self) -> _Place:
        return _Place(self.depth + 1, guarded=True)

    def branch(self, types: tuple[str, ...]) -> _Place:
        return _Place(self.depth + 1, self.guarded, types)


class _Reader:
    def __init__(self, root: Any, *, has_rich_values: bool) -> None:
        self._has_rich_values = has_rich_values
        self._local = LocalReferences(root)
        self._nodes_left = MAX_NODES
        self._references: list[Reference] = []
        self._pending: list[Pointer] = [()]
        self._seen: set[Pointer] = {()}
        dialect = string_or_empty(mapping_or_empty(root).get("$schema"))
        self._is_legacy = any(draft in dialect for draft in _LEGACY_DRAFTS)

    def document(self) -> Document:
        definitions: dict[Pointer, Definition] = {}
        while self._pending:
            pointer = self._pending.pop()
            definitions[pointer] = self._definition(self._local.lookup(pointer))
        return Document(definitions)

    def _definition(self, schema: Any) -> Definition:
        self._references = []
        shape = self._shape(schema, _Place())
        title = cast("Schema", schema).get("title") if isinstance(schema, Mapping) else None
        return Definition(shape, doc_of(schema), title if isinstance(title, str) else "", tuple(self._references))

    def _shape(self, schema: Any, place: _Place) -> Shape:
        if schema is True:
            return UNKNOWN
        if schema is False:
            return NEVER
        if not isinstance(schema, Mapping):
            return unknown("not a JSON Schema")
        self._nodes_left -= 1
        if self._nodes_left < 0:
            return _TOO_LARGE
        if place.depth > MAX_DEPTH:
            return _TOO_DEEP
        known = mapping_or_empty(schema)
        shape = self._whole(known, place)
        return union([shape, NULL]) if known.get("nullable") is True else shape

    def _whole(self, schema: Schema, place: _Place) -> Shape:
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = schema.get(keyword)
            if isinstance(reference, str):
                target = self._reference(reference, place)
                # Up to draft 7 everything beside a reference is ignored.
                return target if self._is_legacy else intersection([target, self._rest(schema, place)])
        return self._rest(schema, place)

    def _reference(self, reference: str, place: _Place) -> Shape:
        pointer = self._local.resolve(reference)
        if pointer is None:
            return unknown(comment_line(f"unresolved $ref {reference}", MAX_COMMENT_CHARACTERS))
        if pointer not in self._seen:
            if len(self._seen) >= MAX_DEFINITIONS:
                return _TOO_LARGE
            self._seen.add(pointer)
            self._pending.append(pointer)
        found = Reference(pointer, place.guarded)
        self._references.append(found)
        return found

    def _rest(self, schema: Schema, place: _Place) -> Shape:
        if schema.get(CONTENT_KEYWORD) == "content":
            return CONTENT
        types = _types(schema) or place.types
        parts = list(self._branches(schema, types, place))
        if not parts or _says_more_than_type(schema):
            parts.insert(0, self._own(schema, types, place))
        shape = intersection(parts)
        if shape == UNKNOWN and any(keyword in schema for keyword in INEXPRESSIBLE):
            inexpressible = ", ".join(keyword for keyword in INEXPRESSIBLE if keyword in schema)
            return unknown(f"TypeScript cannot express: {inexpressible}")
        return shape

    def _branches(self, schema: Schema, types: tuple[str, ...], place: _Place) -> Iterator[Shape]:
        for keyword in _BRANCHING:
            branches = list_or_empty(schema.get(keyword))
            if branches:
                inner = place.branch(types)
                shapes = [self._shape(branch, inner) for branch in branches]
                yield intersection(shapes) if keyword == "allOf" else union(shapes)

    def _own(self, schema: Schema, types: tuple[str, ...], place: _Place) -> Shape:
        if "const" in schema:
            return self._value(schema["const"], place)
        values = schema.get("enum")
        if isinstance(values, list):
            return self._enum(cast("list[Any]", values), types, place)
        if not types:
            types = tuple(dict.fromkeys(t for keyword, t in _TYPE_BY_KEYWORD.items() if keyword in schema))
        return union([self._typed(name, schema, place) for name in types]) if types else UNKNOWN

    def _enum(self, values: list[Any], types: tuple[str, ...], place: _Place) -> Shape:
        allowed = [value for value in values if not types or any(_is_a(value, name) for name in types)]
        if len(allowed) > MAX_ENUM_VALUES:
            some = ", ".join(_literal_text(value) or ELISION for value in allowed[:10])
            name = types[0] if len(types) == 1 and types[0] in ("string", "number", "boolean") else "unknown"
            comment = f"one of {len(allowed)} values: {comment_line(some, MAX_COMMENT_CHARACTERS)}"
            return Keyword("number" if types == ("integer",) else name, comment)
        return union([self._value(value, place) for value in allowed])

    def _value(self, value: Any, place: _Place) -> Shape:
        self._nodes_left -= 1
        text = _literal_text(value)
        if text is not None:
            return NULL if text == "null" else Literal(text)
        if place.depth > MAX_DEPTH:
            return _TOO_DEEP
        if isinstance(value, int | float):
            return Keyword("number")
        inner = place.inside()
        if isinstance(value, list | tuple | Mapping) and len(cast("list[Any]", value)) > self._nodes_left:
            return _TOO_LARGE
        if isinstance(value, list | tuple):
            items = tuple(self._value(item, inner) for item in cast("list[Any]", value))
            return Tuple(items, len(items), None)
        if isinstance(value, Mapping):
            entries = mapping_or_empty(value).items()
            properties = tuple(Property(str(key), self._value(item, inner), True) for key, item in entries)
            return Object(properties) if properties else Object((), NEVER)
        return unknown("not a JSON value")

    def _typed(self, name: str, schema: Schema, place: _Place) -> Shape:
        if name == "object":
            return self._object(schema, place)
        if name == "array":
            return self._array(schema, place)
        if name == "integer":
            return union([_NUMBER, Keyword("bigint")]) if _passes_exact_integers(schema) else _NUMBER
        if name == "string" and self._has_rich_values and (rich := _RICH_FORMATS.get(schema.get("format"))):
            return rich
        if name in ("string", "number", "boolean", "null"):
            return Keyword(name)
        return unknown(comment_line(f"no JSON Schema type: {name}", MAX_COMMENT_CHARACTERS))

    def _object(self, schema: Schema, place: _Place) -> Shape:
        inner = place.inside()
        properties, is_cut = self._properties(schema, inner)
        if is_cut:
            return Object(properties, UNKNOWN, "more properties than can be shown")
        index, comment = self._index(schema, inner)
        keys = [] if mapping_or_empty(schema.get("properties")) else self._listed_keys(schema)
        if keys:
            required = _strings(schema.get("required"))
            return Object(tuple(Property(key, index or UNKNOWN, key in required) for key in keys))
        if index is None and not properties:
            index = NEVER if self._is_closed(schema) else UNKNOWN
        return Object(properties, index, comment)

    def _properties(self, schema: Schema, inner: _Place) -> tuple[tuple[Property, ...], bool]:
        known = mapping_or_empty(schema.get("properties"))
        required = _strings(schema.get("required"))
        found: list[Property] = []
        for name, property_schema in known.items():
            if self._nodes_left <= 0:
                return tuple(found), True
            if isinstance(name, str):
                shape = self._shape(property_schema, inner)
                # In draft 3 a property says so itself; in the others that is no schema.
                is_required = name in required or mapping_or_empty(property_schema).get("required") is True
                found.append(Property(name, shape, is_required, doc_of(property_schema)))
        additional = schema.get("additionalProperties")
        for name in required:
            if name not in known:
                if self._nodes_left <= 0:
                    return tuple(found), True
                shape = self._shape(additional, inner) if isinstance(additional, Mapping) else UNKNOWN
                self._nodes_left -= 1
                found.append(Property(name, shape, True))
        return tuple(found), False

    def _index(self, schema: Schema, inner: _Place) -> tuple[Shape | None, str]:
        shapes: list[Shape] = []
        patterns = mapping_or_empty(schema.get("patternProperties"))
        comment = ""
        if patterns:
            shapes = [self._shape(item, inner) for item in patterns.values()]
            comment = "keys match " + ", ".join(map(str, list(patterns)[:8]))
        additional = other_properties(schema)
        if additional is not None and additional is not False:
            shapes.append(self._shape(additional, inner))
        if not shapes:
            return None, ""
        return union(shapes), comment_line(comment, MAX_COMMENT_CHARACTERS)

    def _listed_keys(self, schema: Schema) -> list[str]:
        """The only keys that ``propertyNames`` admits, when it lists them."""
        names = mapping_or_empty(schema.get("propertyNames"))
        pointer = self._local.resolve(string_or_empty(names.get("$ref"))) if "$ref" in names else None
        if pointer is not None:
            names = mapping_or_empty(self._local.lookup(pointer))
        listed = [names["const"]] if "const" in names else list_or_empty(names.get("enum"))
        keys = list(_strings(listed))
        return keys if len(keys) <= MAX_LISTED_KEYS else []

    @staticmethod
    def _is_closed(schema: Schema) -> bool:
        return other_properties(schema) is False

    def _array(self, schema: Schema, place: _Place) -> Shape:
        inner = place.inside()
        prefix, rest = list_or_empty(schema.get("prefixItems")), schema.get("items")
        if isinstance(rest, list):
            prefix, rest = list_or_empty(rest), schema.get("additionalItems")
        if not prefix:
            is_set = self._has_rich_values and schema.get("uniqueItems") is True
            return Array(UNKNOWN if rest is None else self._shape(rest, inner), is_set)
        return self._tuple(schema, prefix, rest, inner)

    def _tuple(self, schema: Schema, prefix: list[Any], rest: Any, inner: _Place) -> Shape:
        if len(prefix) > MAX_TUPLE_ITEMS:
            prefix, rest = prefix[:MAX_TUPLE_ITEMS], True
        most = _count(schema.get("maxItems"), len(prefix) + 1)
        items = tuple(self._shape(item, inner) for item in prefix[: max(most, 0)])
        tail = None
        if most > len(prefix) and rest is not False:
            tail = UNKNOWN if rest is None else self._shape(rest, inner)
        return Tuple(items, min(_count(schema.get("minItems"), 0), len(items)), tail)


def _types(schema: Schema) -> tuple[str, ...]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return (declared,)
    return tuple(dict.fromkeys(_strings(declared)))


def _strings(value: Any) -> dict[str, None]:
    items = cast("list[Any]", value) if isinstance(value, list | tuple) else []
    return dict.fromkeys(item for item in items if isinstance(item, str))


def _count(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _passes_exact_integers(schema: Schema) -> bool:
    """Whether a schema says of its integers that some are BigInt in a program. Without limits most never are."""
    limits = [schema.get(name) for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
    return any(isinstance(limit, int | float) and abs(limit) > MAX_EXACT_INTEGER for limit in limits)


def _says_more_than_type(schema: Schema) -> bool:
    return not _MORE_THAN_TYPE.isdisjoint(schema)


def _is_a(value: Any, type_name: str) -> bool:
    if isinstance(value, bool):
        return type_name == "boolean"
    return isinstance(value, _PYTHON_TYPES.get(type_name, ()))


def _literal_text(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return string_literal(value)
    return number_literal(value) if isinstance(value, int | float) else None
