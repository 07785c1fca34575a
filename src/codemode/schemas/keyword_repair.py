"""Drop malformed keywords of a JSON Schema, each alone, and read those of OpenAPI 3.0 in their own way.

Schemas are written by servers, by generators and by hand: ``"required": null``, ``"items": null``, ``"type": "any"``, a
number as description. What such a keyword would say is lost; the rest of the schema stays. Checks no value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Literal
from urllib.parse import urlsplit

from ..data.narrowing import is_array, is_object, list_or_empty, mapping_or_empty
from ..host import steps
from .compiled import clip
from .json_schema.dialects import named_draft
from .json_schema.failures import shown_rule
from .json_schema.walk import RESTRICTIVE

Side = Literal["input", "output"]
_Place = tuple[str, ...]

MAX_STEPS = 128
"""So many keywords, names and positions lead to a schema at most: what is deeper takes anything."""

MAX_REFERENCES = 2_000

UNWRITABLE = "\ue000 not JSON \ue000"
"""Stands for a value that is no JSON, in a schema that Python code has made."""

_MAX_NOTES = 8
_MAX_PLACE = 120
# Of what a value may break nothing is lost with them.
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "format", "deprecated", "readOnly", "writeOnly"}
    | {"contentEncoding", "contentMediaType", "contentSchema", "$schema", "discriminator"}
)
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_MALFORMED: Any = object()


def repair_keywords(schema: Mapping[str, Any], side: Side) -> tuple[dict[str, Any], list[str]]:
    """Return a copy of plain JSON in which each keyword has the shape that it must have, and notes of what is lost.

    ``side``: an input need not have properties that are ``readOnly``, an output none that are ``writeOnly``.
    Metered work.
    """
    repair = _Repair(side)
    root = repair.schema(schema, ())
    for reference in repair.references:
        repair.target(root, reference)
    return root, repair.notes


class _Repair:
    """One repair: ``notes`` say what is lost, ``references`` are those into the schema itself."""

    def __init__(self, side: Side) -> None:
        self.notes: list[str] = []
        self.references: list[str] = []
        self._losses = 0  # of what values might have broken
        self._has_exclusive_flags = False
        self._one_sided = "readOnly" if side == "input" else "writeOnly"
        self._repaired: set[int] = set()

    def schema(self, schema: Mapping[str, Any], place: _Place) -> dict[str, Any]:
        """Return the repaired copy of one schema."""
        steps.take(1 + len(schema))
        if len(place) > MAX_STEPS:
            self._lose("", schema, place)
            return {}
        before = self._has_exclusive_flags
        if "$schema" in schema:
            self._has_exclusive_flags = named_draft(schema) == "4"
        repaired = self._rules(schema, place)
        self._read_bounds(repaired, place)
        self._read_required(repaired, schema, place)
        self._has_exclusive_flags = before
        self._repaired.add(id(repaired))
        return repaired

    def target(self, root: dict[str, Any], reference: str) -> None:
        """Repair where a reference leads, if that is no schema by its place, as in ``components`` of OpenAPI."""
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in reference.split("/")[1:]]
        holder: Any = root
        for part in way:
            holder = mapping_or_empty(holder).get(part)
        found = mapping_or_empty(holder).get(last)
        if is_object(found) and id(found) not in self._repaired:
            holder[last] = self.schema(found, (*way, last)[:MAX_STEPS])

    def _rules(self, schema: Mapping[str, Any], place: _Place) -> dict[str, Any]:
        repaired: dict[str, Any] = {}
        lost: list[str] = []
        for keyword, rule in schema.items():
            before = self._losses
            kept = self._rule(keyword, rule, (*place, keyword))
            if kept is _MALFORMED:
                self._lose(keyword, rule, place, is_asserted=keyword not in _ANNOTATIONS)
            if kept is _MALFORMED or (keyword in RESTRICTIVE and self._losses > before):
                lost.append(keyword)  # a restrictive one would take less for what is lost in it
            else:
                repaired[keyword] = kept
        for keyword in lost:
            for dependent in RESTRICTIVE.get(keyword, ()):
                repaired.pop(dependent, None)
        return repaired

    def _rule(self, keyword: str, rule: Any, place: _Place) -> Any:
        if keyword in _SCHEMAS or (keyword == "items" and not is_array(rule)):
            return self._one(rule, place)
        if keyword in _SCHEMA_LISTS or keyword == "items":
            return (self._several(rule, place) if is_array(rule) else []) or _MALFORMED
        if keyword in _SCHEMA_MAPS:
            return {} if rule == [] else self._named(rule, place)  # PHP writes an empty object so
        if keyword == "type":
            return _type(rule)
        if (
            keyword == "$ref"
            and isinstance(rule, str)
            and rule.startswith("#/")
            and len(self.references) < MAX_REFERENCES
        ):
            self.references.append(rule)
        if keyword in ("required", *_BOUNDS):  # read once all is known that belongs to them
            return rule
        if keyword in _COUNTS and isinstance(rule, float) and rule >= 0 and rule.is_integer():
            return int(rule)
        check = _PLAIN.get(keyword, _is_json)
        return rule if check(rule) and _is_json(rule) else _MALFORMED

    def _one(self, rule: Any, place: _Place) -> Any:
        if is_object(rule):
            return self.schema(rule, place)
        return rule if isinstance(rule, bool) else _MALFORMED

    def _several(self, rules: list[Any], place: _Place) -> list[Any]:
        """Return the schemas of a list. In one of positions what is none takes anything, in others it is left out."""
        found: list[Any] = []
        for at, rule in enumerate(rules):
            kept = self._one(rule, (*place, str(at)))
            if kept is _MALFORMED:
                self._lose("", rule, (*place, str(at)))
            if kept is not _MALFORMED or place[-1] in ("items", "prefixItems"):
                found.append({} if kept is _MALFORMED else kept)
        return found

    def _named(self, rules: Any, place: _Place) -> Any:
        """Return schemas by their names, of which none is lost: what is no schema takes anything."""
        if not is_object(rules):
            return _MALFORMED
        has_names = place[-1] in ("dependencies", "dependentRequired")
        found: dict[str, Any] = {}
        for name, rule in rules.items():
            inside = (*place, name)
            if has_names and is_array(rule):
                found[name] = _names(rule)
                continue
            kept = self._one(rule, inside) if place[-1] != "dependentRequired" else _MALFORMED
            if kept is _MALFORMED:
                self._lose("", rule, inside)
            if kept is not _MALFORMED or not has_names:
                found[name] = {} if kept is _MALFORMED else kept
        return found

    def _read_bounds(self, schema: dict[str, Any], place: _Place) -> None:
        """Read the flags of OpenAPI 3.0 and draft 4, which say of a bound that it is none of the values itself."""
        for keyword, bound in _BOUNDS.items():
            rule = schema.get(keyword, False)
            if isinstance(rule, bool):
                if self._has_exclusive_flags or keyword not in schema:
                    continue
                del schema[keyword]
                if rule and bound in schema:
                    schema[keyword] = schema.pop(bound)
                elif rule:
                    self._lose(keyword, rule, place)
            elif self._has_exclusive_flags and _is_number(rule) and bound not in schema:
                schema |= {bound: rule, keyword: True}
            elif self._has_exclusive_flags or not _is_number(rule):
                del schema[keyword]
                self._lose(keyword, rule, place)

    def _read_required(self, schema: dict[str, Any], given: Mapping[str, Any], place: _Place) -> None:
        """Read which properties must be there, where it is said in one of the usual ways."""
        properties = mapping_or_empty(schema.get("properties"))
        said = schema.get("required")
        if isinstance(said, str) and said in properties:
            said = [said]
        elif "required" in given and not isinstance(said, bool) and not _are_names(said):
            self._lose("required", said, place)
        names = _names(list_or_empty(said))
        # As draft 3 has it, and many who write a schema by hand.
        raw = mapping_or_empty(given.get("properties"))
        flagged = [name for name in properties if mapping_or_empty(raw.get(name)).get("required") is True]
        names += [name for name in flagged if name not in names]
        names = [name for name in names if mapping_or_empty(properties.get(name)).get(self._one_sided) is not True]
        if names or is_array(said):
            schema["required"] = names
        else:
            schema.pop("required", None)

    def _lose(self, keyword: str, rule: Any, place: _Place, *, is_asserted: bool = True) -> None:
        self._losses += is_asserted
        if len(self.notes) < _MAX_NOTES:
            where = ".".join(place)[:_MAX_PLACE]
            said = f'"{keyword}": {_shown(rule)}' if keyword else _shown(rule)
            self.notes.append(f"{said} at {where}" if where else said)


def _type(rule: Any) -> Any:
    if isinstance(rule, str):
        return rule if rule in _TYPES else _MALFORMED
    # YAML has the name of this type only in quotes.
    names = ["null" if one is None else one for one in list_or_empty(rule)]
    are_types = bool(names) and all(isinstance(one, str) and one in _TYPES for one in names)
    return [*dict.fromkeys(names)] if are_types else _MALFORMED


def _names(rule: list[Any]) -> list[str]:
    return [*dict.fromkeys(one for one in rule if isinstance(one, str))]


def _are_names(rule: Any) -> bool:
    return is_array(rule) and len(_names(rule)) == len(rule)


def _is_number(rule: Any) -> bool:
    if isinstance(rule, float):
        return isfinite(rule)
    return isinstance(rule, int) and not isinstance(rule, bool)


def _is_count(rule: Any) -> bool:
    return isinstance(rule, int) and not isinstance(rule, bool) and rule >= 0


def _is_flag(rule: Any) -> bool:
    return isinstance(rule, bool)


def _is_text(rule: Any) -> bool:
    return isinstance(rule, str) and rule != UNWRITABLE


def _is_identifier(rule: Any) -> bool:
    try:
        urlsplit(rule if isinstance(rule, str) else "")
    except ValueError:
        return False
    return _is_text(rule)


def _is_json(rule: Any) -> bool:
    """Return False for what Python code may have put into a schema and JSON has not."""
    if isinstance(rule, str | bool):
        return rule != UNWRITABLE
    pending = [rule]
    while pending:
        one = pending.pop()
        if (isinstance(one, float) and not isfinite(one)) or (isinstance(one, str) and one == UNWRITABLE):
            return False
        pending += one.values() if is_object(one) else list_or_empty(one)
    return True


def _shown(rule: Any) -> str:
    return "a value that is no JSON" if not _is_json(rule) else clip(shown_rule(rule))


_SCHEMAS = frozenset(
    {"additionalProperties", "additionalItems", "contains", "contentSchema", "propertyNames", "not", "if", "then"}
    | {"else", "unevaluatedItems", "unevaluatedProperties"}
)
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAPS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies", "dependentRequired"}
)
_COUNTS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"}
)
_PLAIN: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("$id", "id"), _is_identifier),
    **dict.fromkeys(_COUNTS, _is_count),
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    "multipleOf": lambda rule: _is_number(rule) and rule > 0,
    "enum": lambda rule: is_array(rule) and rule != [],
    "examples": is_array,
    "discriminator": is_object,
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly", "deprecated", "nullable"), _is_flag),
    **dict.fromkeys(("$schema", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"), _is_text),
    **dict.fromkeys(("$comment", "title", "description", "format", "pattern"), _is_text),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _is_text),
}
