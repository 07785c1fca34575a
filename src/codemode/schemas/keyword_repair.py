"""Repair JSON Schemas: references that dangle, malformed keywords, keywords of OpenAPI 3.0."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite
from typing import Any, Literal
from urllib.parse import urlsplit

from ..data.narrowing import is_array, is_mapping, is_object, list_or_empty, mapping_or_empty
from ..data.references import LocalReferences
from ..host import steps
from .compiled import clip
from .json_schema.checking import shown_rule
from .json_schema.dialects import named_draft
from .json_schema.walk import RESTRICTIVE, SCHEMA_MAPS, relaxed_copy, subschemas

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


# Servers, generators and people write ``"required": null``, ``"items": null``, ``"type": "any"`` or a number as
# description. Only the malformed keyword is dropped; the rest of the schema stays.

Side = Literal["input", "output"]
_Place = tuple[str, ...]

MAX_STEPS = 128
"""The longest path of keywords, names and positions to a subschema. A deeper subschema accepts anything."""

MAX_REFERENCES = 2_000

UNWRITABLE = "\ue000 not JSON \ue000"
"""Replaces a value that JSON cannot express, in a schema made by Python code."""

_MAX_NOTES = 8
_MAX_PLACE = 120
# Dropping one of these does not weaken validation.
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "format", "deprecated", "readOnly", "writeOnly"}
    | {"contentEncoding", "contentMediaType", "contentSchema", "$schema", "discriminator"}
)
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_BOUNDS = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_MALFORMED: Any = object()


def repair_keywords(schema: Mapping[str, Any], side: Side) -> tuple[dict[str, Any], list[str]]:
    """Return a copy in which each keyword has a valid shape, and a note for each dropped keyword.

    ``side``: ``readOnly`` properties are not required in inputs, ``writeOnly`` properties not in outputs.
    """
    repair = _Repair(side)
    root = repair.schema(schema, ())
    for reference in repair.references:
        repair.target(root, reference)
    return root, repair.notes


class _Repair:
    """The state of one repair: ``notes`` name dropped keywords, ``references`` point into the schema itself."""

    def __init__(self, side: Side) -> None:
        self.notes: list[str] = []
        self.references: list[str] = []
        self._losses = 0  # dropped assertions; dropped annotations do not count
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
        """Repair the target of a reference outside schema keywords, for example in ``components`` of OpenAPI."""
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in reference.split("/")[1:]]
        holder: Any = root
        for part in parents:
            holder = mapping_or_empty(holder).get(part)
        found = mapping_or_empty(holder).get(last)
        if is_object(found) and id(found) not in self._repaired:
            holder[last] = self.schema(found, (*parents, last)[:MAX_STEPS])

    def _rules(self, schema: Mapping[str, Any], place: _Place) -> dict[str, Any]:
        repaired: dict[str, Any] = {}
        lost: list[str] = []
        for keyword, rule in schema.items():
            before = self._losses
            repaired_rule = self._rule(keyword, rule, (*place, keyword))
            if repaired_rule is _MALFORMED:
                self._lose(keyword, rule, place, is_asserted=keyword not in _ANNOTATIONS)
            if repaired_rule is _MALFORMED or (keyword in RESTRICTIVE and self._losses > before):
                lost.append(keyword)  # a negation or condition without a part of it would reject more values
            else:
                repaired[keyword] = repaired_rule
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
            return {} if rule == [] else self._map(rule, place)  # PHP writes an empty object as []
        if keyword == "type":
            return _type(rule)
        if (
            keyword == "$ref"
            and isinstance(rule, str)
            and rule.startswith("#/")
            and len(self.references) < MAX_REFERENCES
        ):
            self.references.append(rule)
        if keyword in ("required", *_BOUNDS):  # read last: they depend on other keywords
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
        """Repair a list of schemas. An invalid one accepts anything in a positional list and is dropped from others."""
        found: list[Any] = []
        for at, rule in enumerate(rules):
            repaired_rule = self._one(rule, (*place, str(at)))
            if repaired_rule is _MALFORMED:
                self._lose("", rule, (*place, str(at)))
            if repaired_rule is not _MALFORMED or place[-1] in ("items", "prefixItems"):
                found.append({} if repaired_rule is _MALFORMED else repaired_rule)
        return found

    def _map(self, rules: Any, place: _Place) -> Any:
        """Repair a map of schemas. Each name stays: a value that is not a schema becomes one that accepts anything."""
        if not is_object(rules):
            return _MALFORMED
        has_names = place[-1] in ("dependencies", "dependentRequired")
        found: dict[str, Any] = {}
        for name, rule in rules.items():
            inside = (*place, name)
            if has_names and is_array(rule):
                found[name] = _names(rule)
                continue
            repaired_rule = self._one(rule, inside) if place[-1] != "dependentRequired" else _MALFORMED
            if repaired_rule is _MALFORMED:
                self._lose("", rule, inside)
            if repaired_rule is not _MALFORMED or not has_names:
                found[name] = {} if repaired_rule is _MALFORMED else repaired_rule
        return found

    def _read_bounds(self, schema: dict[str, Any], place: _Place) -> None:
        """Translate the boolean ``exclusiveMinimum`` and ``exclusiveMaximum`` of OpenAPI 3.0 and draft 4."""
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

    def _read_required(self, schema: dict[str, Any], original: Mapping[str, Any], place: _Place) -> None:
        """Read the required properties: a list, one name, or a flag in each property."""
        properties = mapping_or_empty(schema.get("properties"))
        required = schema.get("required")
        if isinstance(required, str) and required in properties:
            required = [required]
        elif "required" in original and not isinstance(required, bool) and not _are_names(required):
            self._lose("required", required, place)
        names = _names(list_or_empty(required))
        # Draft 3 and many hand-written schemas flag each property.
        raw = mapping_or_empty(original.get("properties"))
        flagged = [name for name in properties if mapping_or_empty(raw.get(name)).get("required") is True]
        names += [name for name in flagged if name not in names]
        names = [name for name in names if mapping_or_empty(properties.get(name)).get(self._one_sided) is not True]
        if names or is_array(required):
            schema["required"] = names
        else:
            schema.pop("required", None)

    def _lose(self, keyword: str, rule: Any, place: _Place, *, is_asserted: bool = True) -> None:
        self._losses += is_asserted
        if len(self.notes) < _MAX_NOTES:
            where = ".".join(place)[:_MAX_PLACE]
            note = f'"{keyword}": {_rule_text(rule)}' if keyword else _rule_text(rule)
            self.notes.append(f"{note} at {where}" if where else note)


def _type(rule: Any) -> Any:
    if isinstance(rule, str):
        return rule if rule in _TYPES else _MALFORMED
    # YAML reads an unquoted null as None.
    names = ["null" if name is None else name for name in list_or_empty(rule)]
    are_types = bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)
    return [*dict.fromkeys(names)] if are_types else _MALFORMED


def _names(rule: list[Any]) -> list[str]:
    return [*dict.fromkeys(name for name in rule if isinstance(name, str))]


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
    """Return False for a value that only Python code can put into a schema."""
    if isinstance(rule, str | bool):
        return rule != UNWRITABLE
    pending = [rule]
    while pending:
        value = pending.pop()
        if (isinstance(value, float) and not isfinite(value)) or (isinstance(value, str) and value == UNWRITABLE):
            return False
        pending += value.values() if is_object(value) else list_or_empty(value)
    return True


def _rule_text(rule: Any) -> str:
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
