"""Shapes that TypeScript can express, and schema constraints as compact JSDoc tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..data.narrowing import list_or_empty, mapping_or_empty, string_or_empty
from ..data.references import Pointer
from .literals import to_comment_line, to_literal


@dataclass(frozen=True, slots=True)
class BuiltinType:
    """A built-in type; ``comment`` tells what it leaves unsaid."""

    name: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Literal:
    """One value, already written as TypeScript."""

    text: str


@dataclass(frozen=True, slots=True)
class Array:
    item: Shape
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class Tuple:
    """The first ``required`` items must be there; ``rest`` is the type of what may follow them all."""

    items: tuple[Shape, ...]
    required: int
    rest: Shape | None


@dataclass(frozen=True, slots=True)
class JsDoc:
    """The text of a JSDoc comment."""

    description: str = ""
    tags: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.description or self.tags)


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    shape: Shape
    required: bool
    doc: JsDoc = field(default_factory=JsDoc)


@dataclass(frozen=True, slots=True)
class Object:
    """``index`` is the type of keys that are not listed; ``None`` without an index type."""

    properties: tuple[Property, ...]
    index: Shape | None = None
    index_comment: str = ""


@dataclass(frozen=True, slots=True)
class Union:
    members: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Intersection:
    members: tuple[Shape, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """A definition of the same document. ``guarded`` when an object or array stands between the two."""

    pointer: Pointer
    guarded: bool


Shape: TypeAlias = BuiltinType | Literal | Array | Tuple | Object | Union | Intersection | Reference

UNKNOWN = BuiltinType("unknown")
NEVER = BuiltinType("never")
NULL = BuiltinType("null")
CONTENT = BuiltinType("Content")
"""The handle of an image, audio or a file: declared once beside the tools that have it."""


def create_unknown_type(comment: str) -> BuiltinType:
    """What TypeScript cannot say, and why."""
    return BuiltinType("unknown", comment)


def create_union(members: list[Shape]) -> Shape:
    """Flattened, without repetitions; a bare ``unknown`` swallows the others."""
    if len(members) == 1:
        # Nothing to compare, which would hash all that is inside, once for every level around it.
        return members[0]
    flat: dict[Shape, None] = {}
    for member in members:
        flat.update(dict.fromkeys(member.members if isinstance(member, Union) else (member,)))
    if UNKNOWN in flat:
        return UNKNOWN
    flat.pop(NEVER, None)
    return _create_compound_shape(Union, tuple(flat), NEVER)


def create_intersection(members: list[Shape]) -> Shape:
    """Flattened, without repetitions and without members that say nothing."""
    if len(members) == 1:
        return members[0]
    flat: dict[Shape, None] = {}
    for member in members:
        flat.update(dict.fromkeys(member.members if isinstance(member, Intersection) else (member,)))
    flat.pop(UNKNOWN, None)
    if NEVER in flat:
        return NEVER
    return _create_compound_shape(Intersection, tuple(flat), UNKNOWN)


def _create_compound_shape(shape_class: type[Union | Intersection], members: tuple[Shape, ...], empty: Shape) -> Shape:
    if not members:
        return empty
    return members[0] if len(members) == 1 else shape_class(members)


@dataclass(frozen=True, slots=True)
class ShapeDefinition:
    """One place of a document: its shape, its comment, and the references in it."""

    shape: Shape
    doc: JsDoc
    title: str
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class ShapeDocument:
    """Every definition that the root reaches, the root itself under ``()``."""

    definitions: dict[Pointer, ShapeDefinition]


def find_circular_references(document: ShapeDocument) -> frozenset[tuple[Pointer, Pointer]]:
    """The (owner, target) edges that would make a type alias refer to itself with no object or array between."""
    finished: set[Pointer] = set()
    endless: set[tuple[Pointer, Pointer]] = set()
    for start in document.definitions:
        _collect_circular_references(start, _create_unguarded_target_finder(document), finished, endless)
    return frozenset(endless)


def _create_unguarded_target_finder(document: ShapeDocument) -> Callable[[Pointer], Iterator[Pointer]]:
    return lambda pointer: iter(
        [reference.pointer for reference in document.definitions[pointer].references if not reference.guarded]
    )


def _collect_circular_references(
    start: Pointer,
    targets: Callable[[Pointer], Iterator[Pointer]],
    finished: set[Pointer],
    endless: set[tuple[Pointer, Pointer]],
) -> None:
    if start in finished:
        return
    path = {start: targets(start)}
    while path:
        owner, remaining = next(reversed(path.items()))
        target = next(remaining, None)
        if target is None:
            del path[owner]
            finished.add(owner)
        elif target in path:
            endless.add((owner, target))
        elif target not in finished:
            path[target] = targets(target)


MAX_DESCRIPTION_CHARACTERS = 4000
MAX_TAG_CHARACTERS = 200
MAX_TAGS = 12
MAX_BRANCHES = 8

_LIMIT_KEYWORDS = (
    "format",
    "minimum",
    "exclusiveMinimum",
    "maximum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "contentEncoding",
    "contentMediaType",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
)
# A tuple type says these itself.
_LENGTH_KEYWORDS = ("minItems", "maxItems")
INEXPRESSIBLE_KEYWORDS = (
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedItems",
)
# Other rules of a schema about the same object: properties that they accept count as evaluated.
_EVALUATING_KEYWORDS = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"}
)
# Most schemas hold none of these, and asking for each of them was most of what a comment cost.
_LIMITING_KEYWORDS = frozenset({*_LIMIT_KEYWORDS, *INEXPRESSIBLE_KEYWORDS, "unevaluatedProperties"})
_BRANCH_KEYWORDS = ("anyOf", "oneOf", "allOf")
_INNER_KEYWORDS = frozenset({*_BRANCH_KEYWORDS, "items"})


def create_jsdoc(schema: Any) -> JsDoc:
    """Description and constraints of one schema."""
    known = mapping_or_empty(schema)
    return JsDoc(string_or_empty(known.get("description")).strip(), _create_tags(known))


def _create_tags(schema: Mapping[Any, Any]) -> tuple[str, ...]:
    tags = [*_iterate_limit_tags(schema, depth=0), *_iterate_annotation_tags(schema)]
    return tuple(dict.fromkeys(tags))[:MAX_TAGS]


def _iterate_limit_tags(schema: Mapping[Any, Any], depth: int) -> Iterator[str]:
    if schema.get("type") == "integer" or schema.get("type") == ["integer", "null"]:
        yield "@integer"
    if not _LIMITING_KEYWORDS.isdisjoint(schema):
        yield from _iterate_local_limit_tags(schema)
    if depth < 2 and not _INNER_KEYWORDS.isdisjoint(schema):
        yield from _iterate_inner_limit_tags(schema, depth + 1)


def _iterate_local_limit_tags(schema: Mapping[Any, Any]) -> Iterator[str]:
    is_tuple = bool(list_or_empty(schema.get("prefixItems")) or list_or_empty(schema.get("items")))
    for keyword in _LIMIT_KEYWORDS:
        value = schema.get(keyword)
        if value is not None and value is not False and not (is_tuple and keyword in _LENGTH_KEYWORDS):
            yield f"@{keyword}" if value is True else f"@{keyword} {_format_tag_value(value)}"
    for keyword in INEXPRESSIBLE_KEYWORDS:
        if keyword in schema and not (keyword == "propertyNames" and lists_property_names(schema)):
            yield f"@{keyword} {_format_compact_literal(schema[keyword])}"
    if "unevaluatedProperties" in schema and get_additional_properties_schema(schema) is None:
        yield f"@unevaluatedProperties {_format_compact_literal(schema['unevaluatedProperties'])}"


def get_additional_properties_schema(schema: Mapping[Any, Any]) -> Any:
    """Return the schema that certainly applies to unlisted properties, or None."""
    if "additionalProperties" in schema:
        return schema["additionalProperties"]
    return schema.get("unevaluatedProperties") if _EVALUATING_KEYWORDS.isdisjoint(schema) else None


def lists_property_names(schema: Mapping[Any, Any]) -> bool:
    """Return whether ``propertyNames`` may be a list of keys, which a type can show."""
    return any(keyword in mapping_or_empty(schema.get("propertyNames")) for keyword in ("enum", "const", "$ref"))


def _iterate_inner_limit_tags(schema: Mapping[Any, Any], depth: int) -> Iterator[str]:
    for keyword in _BRANCH_KEYWORDS:
        for branch in list_or_empty(schema.get(keyword))[:MAX_BRANCHES]:
            yield from _iterate_limit_tags(mapping_or_empty(branch), depth)
    for tag in _iterate_limit_tags(mapping_or_empty(schema.get("items")), depth):
        yield f"@items {tag.removeprefix('@items ').removeprefix('@')}"


def _iterate_annotation_tags(schema: Mapping[Any, Any]) -> Iterator[str]:
    # Nearly every optional field of a Python model defaults to null, and the type says so already.
    if schema.get("default") is not None:
        yield f"@default {_format_compact_literal(schema['default'])}"
    if schema.get("deprecated") is True:
        yield "@deprecated"
    examples = schema.get("examples", schema.get("example"))
    if isinstance(examples, list) and examples:
        yield f"@example {_format_compact_literal(list_or_empty(examples)[0])}"
    elif examples is not None and not isinstance(examples, list):
        yield f"@example {_format_compact_literal(examples)}"


def _format_tag_value(value: Any) -> str:
    return to_comment_line(value, MAX_TAG_CHARACTERS) if isinstance(value, str) else _format_compact_literal(value)


def _format_compact_literal(value: Any) -> str:
    return to_comment_line(to_literal(value), MAX_TAG_CHARACTERS)
