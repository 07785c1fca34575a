"""Walks a JSON Schema's subschemas, and copies a schema without its unusable parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from ...data.json_shape import SCALARS
from ...data.narrowing import is_array, is_mapping, is_sequence, list_or_empty

SchemaPath: TypeAlias = "tuple[SchemaPath, str | int] | None"
"""The way to a part of a schema, its last step last."""

DATA_KEYWORDS = frozenset({"const", "enum", "default", "examples"})
"""Their values are no schemas, whatever they look like."""

SCHEMA_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Their values hold schemas under names of the author's."""

RESTRICTIVE_KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "not": (),
    "if": ("then", "else"),
    "contains": ("minContains", "maxContains"),
}
"""Rules that a value may break because a schema in them takes it, and what has no meaning without them."""


def iterate_subschemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and every schema in it, also in unknown keywords: a reference may lead there."""
    return (item for _, item in iterate_subschemas_with_paths(schema))


def iterate_subschemas_with_paths(schema: Any) -> Iterator[tuple[SchemaPath, Mapping[str, Any]]]:
    """Yield a schema and every schema in it, each with its path."""
    seen: set[int] = set()
    pending: list[tuple[SchemaPath, Any]] = [(None, schema)]
    while pending:
        path, item = pending.pop()
        if id(item) in seen or not (is_sequence(item) or is_mapping(item)):
            continue
        seen.add(id(item))
        if not is_mapping(item):
            pending.extend(((path, at), inner) for at, inner in enumerate(item))
            continue
        yield path, item
        for keyword, rule in item.items():
            if type(rule) in SCALARS:
                continue
            inside = (path, keyword)
            if keyword in SCHEMA_MAPS and is_mapping(rule):
                pending.extend(((inside, name), inner) for name, inner in rule.items())
            elif keyword not in DATA_KEYWORDS:
                pending.append((inside, rule))


def copy_relaxed_schema(schema: Any, strip: Callable[[dict[str, Any]], None], loses_rule: Callable[[Any], bool]) -> Any:
    """Copy a schema, each schema in it after ``strip``. The copy accepts all values that the schema accepts.

    A rule that would accept less because of a removed part (``loses_rule``) is left out: `not`, the condition of an
    `if`, the ban on further properties. Of such a `oneOf`, more than one alternative may accept a value.
    """
    if is_array(schema):
        return [copy_relaxed_schema(item, strip, loses_rule) for item in schema]
    if not is_mapping(schema):
        return schema
    rules = dict(schema)
    strip(rules)
    for keyword in ("unevaluatedProperties", "unevaluatedItems"):
        rules.pop(keyword, None)
    for keyword, dependents in RESTRICTIVE_KEYWORDS.items():
        if keyword in rules and any(loses_rule(inside) for inside in iterate_subschemas(rules[keyword])):
            for name in (keyword, *dependents):
                rules.pop(name, None)
    if "oneOf" in rules and any(loses_rule(inside) for inside in iterate_subschemas(rules["oneOf"])):
        alternatives = {"anyOf": rules.pop("oneOf")}
        rules |= alternatives if "anyOf" not in rules else {"allOf": [*list_or_empty(rules.get("allOf")), alternatives]}
    return {keyword: _copy_relaxed_rule(keyword, rule, strip, loses_rule) for keyword, rule in rules.items()}


def _copy_relaxed_rule(
    keyword: str, rule: Any, strip: Callable[[dict[str, Any]], None], loses_rule: Callable[[Any], bool]
) -> Any:
    if keyword in DATA_KEYWORDS:
        return rule
    if keyword in SCHEMA_MAPS and is_mapping(rule):
        return {name: copy_relaxed_schema(inner, strip, loses_rule) for name, inner in rule.items()}
    return copy_relaxed_schema(rule, strip, loses_rule)
