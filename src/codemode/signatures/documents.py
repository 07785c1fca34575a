"""One schema document as named shapes that may refer to each other. Knows neither JSON Schema nor TypeScript text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..data.references import Pointer
from .shapes import Doc, Reference, Shape


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
