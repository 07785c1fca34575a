"""Find the references of a JSON Schema that lead nowhere, or back to themselves, and leave them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..data.narrowing import is_array, is_mapping, mapping_or_empty
from ..data.references import LocalReferences
from ..host import steps
from .json_schema.walk import SCHEMA_MAPS, relaxed_copy, subschemas

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAX_CHECKED_REFERENCES = 2_000
_ABOUT_THE_SAME = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_MOST_IN_PLACE = 512


def has_references(text: str) -> bool:
    """Tell whether the text of a schema may hold references."""
    return any(f'"{keyword}"' in text for keyword in REFERENCES)


def unusable_references(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the references that no check of a value could follow to an end, as the draft of the schema reads them."""
    return _dangling(schema) | _endless(schema)


def without_references(schema: Mapping[str, Any], unusable: frozenset[str]) -> dict[str, Any]:
    """Copy a schema without these references: what they would say is open. What it took before it takes still."""

    def strip(rules: dict[str, Any]) -> None:
        for keyword in REFERENCES:
            if isinstance(rules.get(keyword), str) and rules[keyword] in unusable:
                del rules[keyword]

    def loses(rules: Mapping[str, Any]) -> bool:
        return any(keyword in rules for keyword in REFERENCES)

    return relaxed_copy(schema, strip, loses)


def _dangling(schema: Mapping[str, Any]) -> frozenset[str]:
    from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]
    from referencing.exceptions import Unresolvable

    from .json_schema.dialects import dialect_of

    create_resource = dialect_of(schema, None).specification.create_resource
    resource = create_resource(schema)
    registry: Any = REGISTRY
    pending: list[tuple[Any, Any]] = [(resource, registry.resolver_with_root(resource))]
    found: set[str] = set()
    seen: dict[tuple[str, int], Any] = {}  # each resolver is kept, and so is its id
    walked: set[int] = set()
    while pending and len(seen) < _MAX_CHECKED_REFERENCES:
        resource, resolver = pending.pop()
        steps.take()
        rules = mapping_or_empty(resource.contents)
        if id(resource.contents) in walked:
            continue
        walked.add(id(resource.contents))
        for reference in map(rules.get, REFERENCES):
            if not isinstance(reference, str) or (reference, id(resolver)) in seen:
                continue
            seen[reference, id(resolver)] = resolver
            try:
                target = resolver.lookup(reference)
            except Unresolvable:
                found.add(reference)
                continue
            # It may lead into a part that is no schema by its place, as those of an OpenAPI document.
            if is_mapping(target.contents) and reference.startswith("#"):
                pending.append((create_resource(target.contents), target.resolver))
            elif not is_mapping(target.contents) and not isinstance(target.contents, bool):
                found.add(reference)
        pending += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
    return frozenset(found)


def _endless(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the references by which a schema comes back to itself about the very same value: no check of it ends."""
    found: set[str] = set()
    ended: set[int] = set()
    if not any(keyword in rules for rules in subschemas(schema) for keyword in REFERENCES):
        return frozenset()
    local = LocalReferences(schema)
    for start in subschemas(schema):
        if id(start) not in ended:
            found |= _circles(start, local, ended)
    return frozenset(found)


def _circles(start: Mapping[str, Any], local: LocalReferences, ended: set[int]) -> set[str]:
    found: set[str] = set()
    way: dict[int, tuple[str | None, Iterator[tuple[str | None, Any]]]] = {id(start): (None, _in_place(start, local))}
    while way:
        steps.take()
        last = next(reversed(way))
        reference, inner = next(way[last][1], (None, None))
        if inner is None:
            ended.add(last)
            del way[last]
        elif id(inner) in way:
            places = [*way]
            circle = [reference, *(way[one][0] for one in places[places.index(id(inner)) + 1 :])]
            found.update(one for one in circle if one is not None)
        elif id(inner) not in ended and len(way) < _MOST_IN_PLACE:
            way[id(inner)] = (reference, _in_place(inner, local))
    return found


def _in_place(rules: Mapping[str, Any], local: LocalReferences) -> Iterator[tuple[str | None, Any]]:
    """Yield the schemas that the same value has to fit too, each with the reference that leads there."""
    for keyword in REFERENCES:
        reference = rules.get(keyword)
        if isinstance(reference, str) and is_mapping(target := local.target(reference)):
            yield reference, target
    for keyword in _ABOUT_THE_SAME:
        rule = rules.get(keyword)
        inside = rule if is_array(rule) else rule.values() if is_mapping(rule) and keyword in SCHEMA_MAPS else [rule]
        yield from ((None, one) for one in inside if is_mapping(one))
