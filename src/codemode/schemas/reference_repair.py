"""Find and remove references of a JSON Schema that dangle or refer to themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..data.narrowing import is_array, is_mapping, mapping_or_empty
from ..data.references import LocalReferences
from ..host import steps
from .json_schema.walk import SCHEMA_MAPS, relaxed_copy, subschemas

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAX_CHECKED_REFERENCES = 2_000
_IN_PLACE_APPLICATORS = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_MAX_IN_PLACE = 512


def has_references(text: str) -> bool:
    """Tell whether the text of a schema may hold references."""
    return any(f'"{keyword}"' in text for keyword in REFERENCES)


def unusable_references(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the references that dangle or never end, resolved by the rules of the schema's draft."""
    return _dangling(schema) | _endless(schema)


def without_references(schema: Mapping[str, Any], unusable: frozenset[str]) -> dict[str, Any]:
    """Copy a schema without these references. The copy accepts at least what the schema accepted."""

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
    seen: dict[tuple[str, int], Any] = {}  # holds each resolver, so that its id stays unique
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
            # The target may be outside schema keywords, for example in the components of an OpenAPI document.
            if is_mapping(target.contents) and reference.startswith("#"):
                pending.append((create_resource(target.contents), target.resolver))
            elif not is_mapping(target.contents) and not isinstance(target.contents, bool):
                found.add(reference)
        pending += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
    return frozenset(found)


def _endless(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the references that lead a schema back to itself for the same value: validation would never end."""
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
    path: dict[int, tuple[str | None, Iterator[tuple[str | None, Any]]]] = {id(start): (None, _in_place(start, local))}
    while path:
        steps.take()
        last = next(reversed(path))
        reference, inner = next(path[last][1], (None, None))
        if inner is None:
            ended.add(last)
            del path[last]
        elif id(inner) in path:
            ids = [*path]
            circle = [reference, *(path[schema_id][0] for schema_id in ids[ids.index(id(inner)) + 1 :])]
            found.update(name for name in circle if name is not None)
        elif id(inner) not in ended and len(path) < _MAX_IN_PLACE:
            path[id(inner)] = (reference, _in_place(inner, local))
    return found


def _in_place(rules: Mapping[str, Any], local: LocalReferences) -> Iterator[tuple[str | None, Any]]:
    """Yield the subschemas that apply to the same value, each with the reference that leads to it."""
    for keyword in REFERENCES:
        reference = rules.get(keyword)
        if isinstance(reference, str) and is_mapping(target := local.target(reference)):
            yield reference, target
    for keyword in _IN_PLACE_APPLICATORS:
        rule = rules.get(keyword)
        inside = rule if is_array(rule) else rule.values() if is_mapping(rule) and keyword in SCHEMA_MAPS else [rule]
        yield from ((None, schema) for schema in inside if is_mapping(schema))
