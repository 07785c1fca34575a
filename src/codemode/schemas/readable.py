"""Schemas of servers' tools as they can be used: no schema, whatever is wrong with it, costs a tool or a server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ..data.narrowing import is_array, is_mapping
from ..data.references import LocalReferences
from ..host import steps
from .compiled import clip, refuse_too_large
from .json_schema.walk import DATA_KEYWORDS, RESTRICTIVE, SCHEMA_MAPS, subschemas
from .patterns import refused_patterns, without_patterns

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DRAFT_3 = "http://json-schema.org/draft-03/schema#"
_TYPES_OF_DRAFT_3 = frozenset({"any", "array", "boolean", "integer", "null", "number", "object", "string"})
# In these a name for a place is written otherwise than in the newest.
_OLDER = ("http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema#")
_MAX_CHECKED_REFERENCES = 2_000
_ABOUT_THE_SAME = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_MOST_IN_PLACE = 512
_ANYTHING: Mapping[str, Any] = {}
_SAY_NOTHING = frozenset({"$schema", "$id", "id", "$comment", "title", "description", "$defs", "definitions"})
_NO_SCHEMAS: frozenset[type] = frozenset({list, tuple, set, frozenset, bytes, int, float})
_OTHER_DRAFT = "does not fit the draft that it names, and is read as the draft that it fits"


def readable_schema(schema: Any) -> tuple[Any, str | None]:
    """Return a schema that compiles and can be used, and a warning where it is not what was given. Never raises.

    A JSON Schema of an older draft that does not say so is read as the draft it fits. Patterns that cannot be run in
    linear time and references that lead nowhere are left out; where nothing can be made of a schema it is ``{}``, which
    takes anything. A type, or None, is returned as it is. Metered work, in proportion to the schema.
    """
    if not is_mapping(schema):
        is_broken = type(schema) in _NO_SCHEMAS
        return (dict(_ANYTHING), _takes_anything("not an object")) if is_broken else (schema, None)
    try:
        return _readable(schema)
    except Exception as error:  # noqa: BLE001 - whoever wrote the schema is a stranger
        return dict(_ANYTHING), _takes_anything(_reason(error))


def says_nothing(schema: Any) -> bool:
    """Tell whether a schema is absent or empty, so that a value may be absent too."""
    return schema is None or schema is True or (is_mapping(schema) and _SAY_NOTHING.issuperset(schema))


def _readable(schema: Mapping[str, Any]) -> tuple[Any, str | None]:
    refuse_too_large(schema)
    try:
        refused = refused_patterns(schema)
    except RecursionError:
        refused = {}
    if refused:
        found, warning = _of_some_draft(without_patterns(schema, refused))
        return found, warning or f"is used without a pattern: {clip(next(iter(refused.values())))}"
    return _of_some_draft(schema)


def _of_some_draft(schema: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Return the schema as the first draft has it that it fits: its own, or what it may be in place of that."""
    problem: Exception | None = None
    for candidate in _candidates(schema):
        try:
            found = _compiled(candidate)
        except Exception as error:  # noqa: BLE001 - as above
            problem = problem or error
            continue
        if dangling := _dangling(found) | _endless(found):
            return _without_dangling(candidate, schema, dangling)
        if candidate is schema:
            return (schema if found.get("$schema") == schema.get("$schema") else found), None
        return found, _OTHER_DRAFT if "$schema" in schema else None
    raise problem or ValueError("no draft takes it")


def _candidates(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    unnamed = {name: rule for name, rule in schema.items() if name != "$schema"}
    if "$schema" in schema:
        yield unnamed
    if _is_draft_3(unnamed):
        yield {**unnamed, "$schema": _DRAFT_3}


def _compiled(schema: Mapping[str, Any]) -> dict[str, Any]:
    from .json_schemas import DictSchema

    return cast("dict[str, Any]", DictSchema(schema).json_schema)


def _is_draft_3(schema: Mapping[str, Any]) -> bool:
    # Its meta-schema takes any name for a type.
    return all(_has_known_type(rules.get("type", "any")) for rules in subschemas(schema))


def _has_known_type(given: Any) -> bool:
    types = given if is_array(given) else [given]
    return all(is_mapping(one) or (isinstance(one, str) and one in _TYPES_OF_DRAFT_3) for one in types)


def _without_dangling(
    candidate: Mapping[str, Any], schema: Mapping[str, Any], dangling: frozenset[str]
) -> tuple[Any, str | None]:
    if "$schema" not in schema:
        for draft in _OLDER:
            older = {**candidate, "$schema": draft}
            try:
                found = _compiled(older)
            except Exception:  # noqa: BLE001, S112 - then it is not of that draft
                continue
            if not _dangling(found) | _endless(found):
                return found, None
    said = f"is used without a reference that leads nowhere: {clip(min(dangling))}"
    if _is_restricted(candidate, dangling):
        return dict(_ANYTHING), _takes_anything(f"it refers to {clip(min(dangling))}, which leads nowhere")
    return _compiled(_without_references(candidate, dangling)), said


def _dangling(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the references of a schema that lead nowhere, as its draft reads them."""
    text = json.dumps(schema)
    if not any(f'"{keyword}"' in text for keyword in _REFERENCES):
        return frozenset()
    from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]
    from referencing.exceptions import Unresolvable

    from .json_schema.dialects import dialect_of

    resource = dialect_of(schema, None).specification.create_resource(schema)
    registry: Any = REGISTRY
    pending: list[tuple[Any, Any]] = [(resource, registry.resolver_with_root(resource))]
    found: set[str] = set()
    seen: dict[tuple[str, int], Any] = {}  # each resolver is kept, and so is its id
    while pending and len(seen) < _MAX_CHECKED_REFERENCES:
        resource, resolver = pending.pop()
        steps.take()
        for keyword in _REFERENCES if is_mapping(resource.contents) else ():
            reference = resource.contents.get(keyword)
            if not isinstance(reference, str) or (reference, id(resolver)) in seen:
                continue
            seen[reference, id(resolver)] = resolver
            try:
                resolver.lookup(reference)
            except Unresolvable:
                found.add(reference)
        pending += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
    return frozenset(found)


def _endless(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the references by which a schema comes back to itself about the very same value: no check of it ends."""
    found: set[str] = set()
    ended: set[int] = set()
    if not any(keyword in rules for rules in subschemas(schema) for keyword in _REFERENCES):
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
    for keyword in _REFERENCES:
        reference = rules.get(keyword)
        if isinstance(reference, str) and is_mapping(target := local.target(reference)):
            yield reference, target
    for keyword in _ABOUT_THE_SAME:
        rule = rules.get(keyword)
        inside = rule if is_array(rule) else rule.values() if is_mapping(rule) and keyword in SCHEMA_MAPS else [rule]
        yield from ((None, one) for one in inside if is_mapping(one))


def _is_restricted(schema: Any, dangling: frozenset[str]) -> bool:
    """Tell whether a rule would take less for losing one of these references."""
    return any(
        any(_refers(inside, dangling) for inside in subschemas(rules[keyword]))
        for rules in subschemas(schema)
        for keyword in RESTRICTIVE
        if keyword in rules
    )


def _refers(rules: Mapping[str, Any], dangling: frozenset[str]) -> bool:
    return any(isinstance(rules.get(keyword), str) and rules[keyword] in dangling for keyword in _REFERENCES)


def _without_references(schema: Any, dangling: frozenset[str]) -> Any:
    if is_array(schema):
        return [_without_references(item, dangling) for item in schema]
    if not is_mapping(schema):
        return schema
    copied: dict[str, Any] = {}
    for keyword, rule in schema.items():
        if keyword in _REFERENCES and isinstance(rule, str) and rule in dangling:
            continue
        if keyword in DATA_KEYWORDS:
            copied[keyword] = rule
        elif keyword in SCHEMA_MAPS and is_mapping(rule):
            copied[keyword] = {name: _without_references(inner, dangling) for name, inner in rule.items()}
        else:
            copied[keyword] = _without_references(rule, dangling)
    return copied


def _takes_anything(reason: str) -> str:
    return f"is no JSON Schema that can be used ({reason}): the tool takes anything"


def _reason(error: Exception) -> str:
    return clip(str(error)) or type(error).__name__
