"""Resolve local ``$ref`` references in one JSON Schema document. Bounded; fetches nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, TypeAlias

from .narrowing import list_or_empty, mapping_or_empty, string_or_empty

Pointer: TypeAlias = tuple[str, ...]
"""A decoded JSON pointer into one schema document; ``()`` is the document itself."""

MAX_REFERENCE_CHARACTERS = 1000
MAX_ANCHOR_SEARCH = 20_000
MAX_ANCHOR_DEPTH = 32
MAX_REFERENCE_CHAIN = 16

_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z")
_MISSING: Any = object()


class LocalReferenceResolver:
    """Turns the references of one document into pointers, and pointers into schemas."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._identifier = string_or_empty(mapping_or_empty(root).get("$id")).rstrip("#")
        self._anchors: dict[str, Pointer] | None = None

    def resolve_to_pointer(self, reference: str) -> Pointer | None:
        """The place ``reference`` names, or ``None`` when it is remote, malformed or leads nowhere."""
        if len(reference) > MAX_REFERENCE_CHARACTERS:
            return None
        target, _, fragment = reference.partition("#")
        if target and target != self._identifier:
            return None
        if fragment and not fragment.startswith("/"):
            return self._find_anchor(fragment)
        pointer = tuple(_decode_pointer_part(part) for part in fragment.split("/")[1:])
        return None if self.look_up_pointer(pointer) is _MISSING else pointer

    def look_up_pointer(self, pointer: Pointer) -> Any:
        """The value at ``pointer``."""
        value = self._root
        for part in pointer:
            value = _get_child(value, part)
        return value

    def look_up_reference(self, reference: Any) -> Any:
        """The schema that ``reference`` names, or ``None``."""
        pointer = self.resolve_to_pointer(reference) if isinstance(reference, str) else None
        return None if pointer is None else self.look_up_pointer(pointer)

    def follow_reference_chain(self, schema: Any) -> Any:
        """The schema behind a chain of references, or ``None`` where it leads nowhere or in circles."""
        for _ in range(MAX_REFERENCE_CHAIN):
            rules = mapping_or_empty(schema)
            if "$ref" not in rules:
                return schema
            schema = self.look_up_reference(rules["$ref"])
        return None

    def _find_anchor(self, name: str) -> Pointer | None:
        if self._anchors is None:
            anchors = list(_iter_anchors(self._root))
            names = Counter(name for name, _ in anchors)
            # One that stands twice means another place in each part of the document.
            self._anchors = {name: pointer for name, pointer in anchors if names[name] == 1}
        return self._anchors.get(name)


def resolve_reference(schema: Any, root: Any) -> Any:
    """Return the schema behind a ``$ref`` into ``root``; None where it leads nowhere or in circles."""
    return LocalReferenceResolver(root).follow_reference_chain(schema)


def _decode_pointer_part(part: str) -> str:
    if "%" in part:
        from urllib.parse import unquote

        part = unquote(part)
    return part.replace("~1", "/").replace("~0", "~")


def _get_child(value: Any, part: str) -> Any:
    items = list_or_empty(value)
    if items and _INDEX.match(part):
        return items[int(part)] if int(part) < len(items) else _MISSING
    return mapping_or_empty(value).get(part, _MISSING)


def _iter_anchors(root: Any) -> Iterator[tuple[str, Pointer]]:
    pending: list[tuple[Pointer, Any]] = [((), root)]
    visited = 0
    while pending and visited < MAX_ANCHOR_SEARCH:
        pointer, value = pending.pop()
        visited += 1
        known = mapping_or_empty(value)
        for keyword in ("$anchor", "$dynamicAnchor", "$id"):
            name = string_or_empty(known.get(keyword))
            if name and (keyword != "$id" or name.startswith("#")):
                yield name.removeprefix("#"), pointer
        if len(pointer) < MAX_ANCHOR_DEPTH:
            pending.extend(((*pointer, key), item) for key, item in known.items() if isinstance(key, str))
            pending.extend(((*pointer, str(i)), item) for i, item in enumerate(list_or_empty(value)))
