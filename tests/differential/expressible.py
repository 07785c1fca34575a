"""The part of a JSON Schema that TypeScript can say: what `tsc` is expected to enforce."""

from __future__ import annotations

from typing import Any

_DROPPED = frozenset(
    {"format", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"}
    | {"pattern", "contentEncoding", "contentMediaType", "uniqueItems", "contains", "minProperties", "maxProperties"}
    | {"propertyNames", "dependentRequired", "unevaluatedProperties", "not", "if", "then", "else", "default"}
)
_TYPE_OF_KEYWORD = {
    "properties": "object",
    "required": "object",
    "items": "array",
    "pattern": "string",
    "minimum": "number",
}
_OF_SCHEMAS = ("$defs", "definitions", "properties")
_OF_LISTS = ("anyOf", "allOf", "prefixItems")


def expressible(schema: Any, *, inherits_type: bool = False) -> Any:
    """``schema`` without the constraints that no TypeScript type has."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in _DROPPED}
    nullable = kept.pop("nullable", False)
    _say_the_type(kept, schema, inherits_type=inherits_type)
    if "oneOf" in kept:
        kept["anyOf"] = kept.pop("oneOf")
    _rewrite_inner(kept)
    _widen_object(kept)
    if "prefixItems" not in kept and not isinstance(kept.get("items"), list):
        kept.pop("minItems", None)
        kept.pop("maxItems", None)
    return {"anyOf": [kept, {"type": "null"}]} if nullable else kept


def _say_the_type(kept: dict[str, Any], schema: dict[str, Any], *, inherits_type: bool) -> None:
    if kept.get("type") == "integer":
        kept["type"] = "number"
    if "type" not in kept and not inherits_type and "$ref" not in kept and "$dynamicRef" not in kept:
        inferred = [name for keyword, name in _TYPE_OF_KEYWORD.items() if keyword in schema]
        if inferred:
            kept["type"] = inferred[0]


def _rewrite_inner(kept: dict[str, Any]) -> None:
    for key in _OF_SCHEMAS:
        if key in kept:
            kept[key] = {name: expressible(inner) for name, inner in kept[key].items()}
    for key in _OF_LISTS:
        if key in kept:
            kept[key] = [expressible(inner, inherits_type="type" in kept) for inner in kept[key]]
    for key in ("items", "additionalItems", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = expressible(kept[key])
    if isinstance(kept.get("items"), list):
        kept["items"] = [expressible(inner) for inner in kept["items"]]


def _widen_object(kept: dict[str, Any]) -> None:
    # An index signature covers every key and must admit every listed property.
    patterns = list(kept.pop("patternProperties", {}).values())
    additional = kept.get("additionalProperties")
    known = list(kept.get("properties", {}).values())
    if patterns or isinstance(additional, dict):
        others = [additional] if isinstance(additional, dict) else []
        kept["additionalProperties"] = {"anyOf": [*map(expressible, patterns), *others, *known]}
    elif additional is False and known:
        del kept["additionalProperties"]
