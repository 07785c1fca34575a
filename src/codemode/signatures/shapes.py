"""Shapes that TypeScript can express, and a schema document as named shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from ..data.references import Pointer


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
