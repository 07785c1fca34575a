"""What of a JSON Schema a form can show: the kind of each part. A schema is data: nothing is fetched, all bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from codemode.plugins import resolve_reference

ShapeKind = Literal["object", "array", "string", "number", "boolean", "enum", "const", "choice", "json"]

_MOST_CHOICES = 200
_MOST_STEPS = 16
_ANNOTATIONS = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$schema", "$id", "id",
    "$comment", "$defs", "definitions", "$anchor", "discriminator", "contentMediaType", "contentEncoding",
})  # fmt: skip
_CHECKS = frozenset({
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "format", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
})  # fmt: skip
_STRUCTURE = frozenset({
    "type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "oneOf",
})  # fmt: skip
_KNOWN = _ANNOTATIONS | _CHECKS | _STRUCTURE
_SCALARS = (str, int, float, type(None))
_OF_TYPE: dict[str, ShapeKind] = {
    "string": "string", "number": "number", "integer": "number", "boolean": "boolean",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """What a part of a schema asks for. ``rules`` are its keywords with those that a local ``$ref`` brings."""

    kind: ShapeKind
    rules: Mapping[str, Any]
    is_nullable: bool = False
    options: tuple[Any, ...] = ()
    alternatives: tuple[Any, ...] = ()
    fits_by_type: bool = False


def shape_of(schema: Any, root: Any) -> Shape:
    """Return the shape of a part of a schema; ``json`` for whatever a form has no controls for."""
    is_nullable = False
    for _ in range(_MOST_STEPS):
        rules = _resolved(schema, root)
        if rules is None or not _KNOWN.issuperset(rules):
            break
        shape = _simple(rules)
        if shape is not None:
            return replace(shape, is_nullable=shape.is_nullable or is_nullable)
        alternatives, has_null = _alternatives(rules, root)
        is_nullable = is_nullable or has_null
        if len(alternatives) != 1:
            by_type = "anyOf" not in rules and "oneOf" not in rules
            kind: ShapeKind = "choice" if 1 < len(alternatives) <= _MOST_CHOICES else "json"
            return Shape(kind, rules, is_nullable, alternatives=alternatives, fits_by_type=by_type)
        # An optional value: what stands beside the alternatives is about the one that is left.
        inner = _resolved(alternatives[0], root)
        beside = {key: rule for key, rule in rules.items() if key not in ("anyOf", "oneOf", "type")}
        schema = None if inner is None else {**inner, **beside}
    return Shape("json", cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {})


def _resolved(schema: Any, root: Any) -> dict[str, Any] | None:
    """Return the keywords of a schema and of what it refers to, as one; None where that leads nowhere."""
    for _ in range(_MOST_STEPS):
        if not isinstance(schema, Mapping):
            return None
        rules = dict(cast("Mapping[str, Any]", schema))
        if "$ref" in rules:
            target = resolve_reference({"$ref": rules.pop("$ref")}, root)
        elif isinstance(rules.get("allOf"), list) and len(rules["allOf"]) == 1:
            target = rules.pop("allOf")[0]
        else:
            return rules
        if not isinstance(target, Mapping):
            return None
        schema = {**cast("Mapping[str, Any]", target), **rules}
    return None


def _simple(rules: Mapping[str, Any]) -> Shape | None:
    """Return the shape of what is one thing; None for alternatives."""
    if "const" in rules:
        return Shape("const", rules)
    if isinstance(rules.get("enum"), list):
        return _enum(rules)
    if "anyOf" in rules or "oneOf" in rules:
        # Properties beside alternatives are too much for one form.
        return Shape("json", rules) if {"properties", "items"} & rules.keys() or _has_both(rules) else None
    kind = rules.get("type")
    if isinstance(kind, list):
        return None
    if kind == "null":
        return Shape("const", {**rules, "const": None})
    if isinstance(kind, str) and kind in _OF_TYPE:
        return Shape(_OF_TYPE[kind], rules)
    if kind in (None, "object") and isinstance(rules.get("properties"), Mapping) and rules["properties"]:
        return Shape("object", rules)
    if kind in (None, "array") and isinstance(rules.get("items"), Mapping):
        return Shape("array", rules)
    return Shape("json", rules)


def _has_both(rules: Mapping[str, Any]) -> bool:
    return "anyOf" in rules and "oneOf" in rules


def _enum(rules: Mapping[str, Any]) -> Shape:
    options = cast("list[Any]", rules["enum"])
    given = tuple(one for one in options if one is not None)
    has_null = len(given) < len(options)
    if not given:
        return Shape("const", {**rules, "const": None}) if has_null else Shape("json", rules)
    if len(given) > _MOST_CHOICES or not all(isinstance(one, _SCALARS) for one in given):
        return Shape("json", rules)
    return Shape("enum", rules, has_null, options=given)


def _alternatives(rules: Mapping[str, Any], root: Any) -> tuple[tuple[Any, ...], bool]:
    types = rules.get("type")
    if "anyOf" in rules or "oneOf" in rules:
        given = rules.get("anyOf", rules.get("oneOf"))
        inside = cast("list[Any]", given) if isinstance(given, list) else []
    else:
        named = [one for one in cast("list[Any]", types) if isinstance(one, str)]
        if "number" in named:
            named = [one for one in named if one != "integer"]
        inside = [{**rules, "type": one} for one in named]
    others = tuple(one for one in inside if not _is_null(one, root))
    return others, len(others) < len(inside)


def _is_null(schema: Any, root: Any) -> bool:
    rules = _resolved(schema, root)
    if rules is None:
        return False
    return rules.get("type") == "null" or ("const" in rules and rules["const"] is None)


def is_of(value: Any, shape: Shape) -> bool:
    """Tell whether controls of this kind can hold a value; what else it has to fit is for the whole schema to say."""
    match shape.kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "enum":
            return isinstance(value, _SCALARS) and value is not None
        case _:
            return True
