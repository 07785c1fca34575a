"""Shapes that TypeScript can express, and constraints of schemas as compact JSDoc tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..data.narrowing import list_or_empty, mapping_or_empty, string_or_empty
from ..data.references import Pointer
from .literals import comment_line, literal


@dataclass(frozen=True, slots=True)
class Keyword:
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
class Doc:
    """What a JSDoc comment says."""

    description: str = ""
    tags: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.description or self.tags)


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    shape: Shape
    required: bool
    doc: Doc = field(default_factory=Doc)


@dataclass(frozen=True, slots=True)
class Object:
    """``index`` is the type of keys that are not listed; ``None`` when there are none worth telling."""

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


Shape: TypeAlias = Keyword | Literal | Array | Tuple | Object | Union | Intersection | Reference

UNKNOWN = Keyword("unknown")
NEVER = Keyword("never")
NULL = Keyword("null")
CONTENT = Keyword("Content")
"""The handle of an image, audio or a file: declared once beside the tools that have it."""


def unknown(comment: str) -> Keyword:
    """What TypeScript cannot say, and why."""
    return Keyword("unknown", comment)


def union(members: list[Shape]) -> Shape:
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
    return _one_or(Union, tuple(flat), NEVER)


def intersection(members: list[Shape]) -> Shape:
    """Flattened, without repetitions and without members that say nothing."""
    if len(members) == 1:
        return members[0]
    flat: dict[Shape, None] = {}
    for member in members:
        flat.update(dict.fromkeys(member.members if isinstance(member, Intersection) else (member,)))
    flat.pop(UNKNOWN, None)
    if NEVER in flat:
        return NEVER
    return _one_or(Intersection, tuple(flat), UNKNOWN)


def _one_or(many: type[Union | Intersection], members: tuple[Shape, ...], none: Shape) -> Shape:
    if not members:
        return none
    return members[0] if len(members) == 1 else many(members)


@dataclass(frozen=True, slots=True)
class Definition:
    """One place of a document: its shape, its comment, and the references in it."""

    shape: Shape
    doc: Doc
    title: str
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """Every definition that the root reaches, the root itself under ``()``."""

    definitions: dict[Pointer, Definition]


def endless_references(document: Document) -> frozenset[tuple[Pointer, Pointer]]:
    """The (owner, target) edges that would make a type alias refer to itself with no object or array between."""
    finished: set[Pointer] = set()
    endless: set[tuple[Pointer, Pointer]] = set()
    for start in document.definitions:
        _search(start, _direct_targets(document), finished, endless)
    return frozenset(endless)


def _direct_targets(document: Document) -> Callable[[Pointer], Iterator[Pointer]]:
    return lambda pointer: iter(
        [found.pointer for found in document.definitions[pointer].references if not found.guarded]
    )


def _search(
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

_LIMITS = (
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
_LENGTHS = ("minItems", "maxItems")
INEXPRESSIBLE = (
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
# What else of a schema speaks about the same object: properties that it takes count as evaluated.
_BESIDE = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"}
)
# Most schemas hold none of these, and asking for each of them was most of what a comment cost.
_LIMITING = frozenset({*_LIMITS, *INEXPRESSIBLE, "unevaluatedProperties"})
_BRANCHES = ("anyOf", "oneOf", "allOf")
_INNER = frozenset({*_BRANCHES, "items"})


def doc_of(schema: Any) -> Doc:
    """Description and constraints of one schema."""
    known = mapping_or_empty(schema)
    return Doc(string_or_empty(known.get("description")).strip(), _tags(known))


def _tags(schema: Mapping[Any, Any]) -> tuple[str, ...]:
    found = [*_limits(schema, depth=0), *_annotations(schema)]
    return tuple(dict.fromkeys(found))[:MAX_TAGS]


def _limits(schema: Mapping[Any, Any], depth: int) -> Iterator[str]:
    if schema.get("type") == "integer" or schema.get("type") == ["integer", "null"]:
        yield "@integer"
    if not _LIMITING.isdisjoint(schema):
        yield from _own_limits(schema)
    if depth < 2 and not _INNER.isdisjoint(schema):
        yield from _inner_limits(schema, depth + 1)


def _own_limits(schema: Mapping[Any, Any]) -> Iterator[str]:
    is_tuple = bool(list_or_empty(schema.get("prefixItems")) or list_or_empty(schema.get("items")))
    for keyword in _LIMITS:
        value = schema.get(keyword)
        if value is not None and value is not False and not (is_tuple and keyword in _LENGTHS):
            yield f"@{keyword}" if value is True else f"@{keyword} {_plain(value)}"
    for keyword in INEXPRESSIBLE:
        if keyword in schema and not (keyword == "propertyNames" and names_its_keys(schema)):
            yield f"@{keyword} {_compact(schema[keyword])}"
    if "unevaluatedProperties" in schema and other_properties(schema) is None:
        yield f"@unevaluatedProperties {_compact(schema['unevaluatedProperties'])}"


def other_properties(schema: Mapping[Any, Any]) -> Any:
    """What a schema certainly says of properties that it does not list: a schema, or None."""
    if "additionalProperties" in schema:
        return schema["additionalProperties"]
    return schema.get("unevaluatedProperties") if _BESIDE.isdisjoint(schema) else None


def names_its_keys(schema: Mapping[Any, Any]) -> bool:
    """Whether ``propertyNames`` may be a list of keys, which a type can show."""
    return any(keyword in mapping_or_empty(schema.get("propertyNames")) for keyword in ("enum", "const", "$ref"))


def _inner_limits(schema: Mapping[Any, Any], depth: int) -> Iterator[str]:
    for keyword in _BRANCHES:
        for branch in list_or_empty(schema.get(keyword))[:MAX_BRANCHES]:
            yield from _limits(mapping_or_empty(branch), depth)
    for tag in _limits(mapping_or_empty(schema.get("items")), depth):
        yield f"@items {tag.removeprefix('@items ').removeprefix('@')}"


def _annotations(schema: Mapping[Any, Any]) -> Iterator[str]:
    # Nearly every optional field of a Python model defaults to null, and the type says so already.
    if schema.get("default") is not None:
        yield f"@default {_compact(schema['default'])}"
    if schema.get("deprecated") is True:
        yield "@deprecated"
    examples = schema.get("examples", schema.get("example"))
    if isinstance(examples, list) and examples:
        yield f"@example {_compact(list_or_empty(examples)[0])}"
    elif examples is not None and not isinstance(examples, list):
        yield f"@example {_compact(examples)}"


def _plain(value: Any) -> str:
    return comment_line(value, MAX_TAG_CHARACTERS) if isinstance(value, str) else _compact(value)


def _compact(value: Any) -> str:
    return comment_line(literal(value), MAX_TAG_CHARACTERS)
