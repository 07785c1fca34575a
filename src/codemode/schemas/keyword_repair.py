"""Repairs JSON Schemas: dangling references, malformed keywords, OpenAPI 3.0 keywords."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from ..data.narrowing import is_array, is_mapping, is_object, list_or_empty, mapping_or_empty
from ..data.references import LocalReferenceResolver
from ..host import steps
from .compiled import clip_message
from .json_schema.checking import format_rule
from .json_schema.dialects import get_declared_draft
from .json_schema.walk import RESTRICTIVE_KEYWORDS, SCHEMA_MAPS, copy_relaxed_schema, iterate_subschemas

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAX_CHECKED_REFERENCES = 2_000
_IN_PLACE_APPLICATORS = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_MAX_IN_PLACE_DEPTH = 512


def may_hold_references(text: str) -> bool:
    """Tell whether the text of a schema may hold references."""
    return any(f'"{keyword}"' in text for keyword in REFERENCES)


def find_unusable_references(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the references that dangle or never end, resolved by the rules of the schema's draft."""
    return _find_dangling_references(schema) | _find_endless_references(schema)


def remove_references(schema: Mapping[str, Any], unusable: frozenset[str]) -> dict[str, Any]:
    """Copy a schema without these references. The copy accepts at least what the schema accepted."""

    def strip_references(rules: dict[str, Any]) -> None:
        for keyword in REFERENCES:
            if isinstance(rules.get(keyword), str) and rules[keyword] in unusable:
                del rules[keyword]

    def has_reference(rules: Mapping[str, Any]) -> bool:
        return any(keyword in rules for keyword in REFERENCES)

    return copy_relaxed_schema(schema, strip_references, has_reference)


def _find_dangling_references(schema: Mapping[str, Any]) -> frozenset[str]:
    from jsonschema_specifications import REGISTRY  # pyright: ignore[reportMissingTypeStubs]
    from referencing.exceptions import Unresolvable

    from .json_schema.dialects import select_dialect

    create_resource = select_dialect(schema, None).specification.create_resource
    resource = create_resource(schema)
    registry: Any = REGISTRY
    pending: list[tuple[Any, Any]] = [(resource, registry.resolver_with_root(resource))]
    dangling: set[str] = set()
    seen: dict[tuple[str, int], Any] = {}  # holds each resolver, so that its id stays unique
    walked: set[int] = set()
    while pending and len(seen) < _MAX_CHECKED_REFERENCES:
        resource, resolver = pending.pop()
        steps.count_steps()
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
                dangling.add(reference)
                continue
            # The target may be outside schema keywords, for example in the components of an OpenAPI document.
            if is_mapping(target.contents) and reference.startswith("#"):
                pending.append((create_resource(target.contents), target.resolver))
            elif not is_mapping(target.contents) and not isinstance(target.contents, bool):
                dangling.add(reference)
        pending += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
    return frozenset(dangling)


def _find_endless_references(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the references that lead a schema back to itself for the same value: validation would never end."""
    endless: set[str] = set()
    finished: set[int] = set()
    local = LocalReferenceResolver(schema)
    for start in iterate_subschemas(schema):
        if any(keyword in start for keyword in REFERENCES) and id(start) not in finished:
            endless |= _find_endless_references_from(start, local, finished)
    return frozenset(endless)


def _find_endless_references_from(
    start: Mapping[str, Any], local: LocalReferenceResolver, finished: set[int]
) -> set[str]:
    endless: set[str] = set()
    path: dict[int, tuple[str | None, Iterator[tuple[str | None, Any]]]] = {
        id(start): (None, _iterate_in_place_subschemas(start, local))
    }
    while path:
        steps.count_steps()
        last = next(reversed(path))
        reference, inner = next(path[last][1], (None, None))
        if inner is None:
            finished.add(last)
            del path[last]
        elif id(inner) in path:
            ids = [*path]
            cycle = [reference, *(path[schema_id][0] for schema_id in ids[ids.index(id(inner)) + 1 :])]
            endless.update(name for name in cycle if name is not None)
        elif id(inner) not in finished and len(path) < _MAX_IN_PLACE_DEPTH:
            path[id(inner)] = (reference, _iterate_in_place_subschemas(inner, local))
    return endless


def _iterate_in_place_subschemas(
    rules: Mapping[str, Any], local: LocalReferenceResolver
) -> Iterator[tuple[str | None, Any]]:
    """Yield the subschemas that apply to the same value, each with the reference that leads to it."""
    for keyword in REFERENCES:
        reference = rules.get(keyword)
        if isinstance(reference, str) and is_mapping(target := local.look_up_reference(reference)):
            yield reference, target
    for keyword in _IN_PLACE_APPLICATORS:
        rule = rules.get(keyword)
        candidates = (
            rule if is_array(rule) else rule.values() if is_mapping(rule) and keyword in SCHEMA_MAPS else [rule]
        )
        yield from ((None, schema) for schema in candidates if is_mapping(schema))


# Servers, generators and people write ``"required": null``, ``"items": null``, ``"type": "any"`` or a number as
# description. Only the malformed keyword is dropped; the rest of the schema stays.

Side = Literal["input", "output"]
_SchemaPath = tuple[str, ...]

MAX_PATH_LENGTH = 128
"""The longest path of keywords, names and positions to a subschema. A deeper subschema accepts anything."""

MAX_REFERENCES = 2_000

NOT_JSON = "\ue000 not JSON \ue000"
"""Replaces a value that JSON cannot express, in a schema made by Python code."""

_SIDED_KEYWORD: dict[Side, str] = {"input": "readOnly", "output": "writeOnly"}
_MAX_QUICK_DEPTH = 16
_MAX_NOTES = 8
_MAX_PATH_CHARACTERS = 120
# Dropping one of these does not weaken validation.
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "format", "deprecated", "readOnly", "writeOnly"}
    | {"contentEncoding", "contentMediaType", "contentSchema", "$schema", "discriminator"}
)
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_BOUND_BY_EXCLUSIVE_BOUND = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_MALFORMED: Any = object()


def repair_keywords(schema: Mapping[str, Any], side: Side) -> tuple[dict[str, Any], list[str]]:
    """Return a copy in which each keyword has a valid shape, and a note for each dropped keyword.

    ``side``: ``readOnly`` properties are not required in inputs, ``writeOnly`` properties not in outputs. A schema that
    certainly needs no repair is returned itself.
    """
    if _certainly_needs_no_repair(schema, _SIDED_KEYWORD[side]):
        return cast("dict[str, Any]", schema), []
    repair = _KeywordRepairer(side)
    root = repair.repair_schema(schema, ())
    for reference in repair.references:
        repair.repair_reference_target(root, reference)
    return root, repair.notes


def _certainly_needs_no_repair(schema: Any, sided_keyword: str, depth: int = 0) -> bool:
    """Recognise what most tools have, in a fifth of the time of a repair. False says nothing."""
    if type(schema) is not dict or depth > _MAX_QUICK_DEPTH:
        return isinstance(schema, bool)
    for keyword, rule in cast("dict[str, Any]", schema).items():
        if type(rule) is str and (rule in _TYPES if keyword == "type" else keyword == "description" and _is_text(rule)):
            continue  # most rules
        inner: Iterable[Any]
        if keyword in ("properties", "$defs"):
            inner = rule.values() if is_object(rule) else [None]
        elif keyword in _SUBSCHEMA_LIST_KEYWORDS:
            inner = rule if is_array(rule) and rule else [None]
        elif keyword == "items" or keyword in _SUBSCHEMA_KEYWORDS:
            inner = [rule]
        elif keyword == sided_keyword or not _is_plain_rule(keyword, rule):
            return False
        else:
            continue
        for each in inner:
            if not _certainly_needs_no_repair(each, sided_keyword, depth + 1):
                return False
    return True


def _is_plain_rule(keyword: str, rule: Any) -> bool:
    """Return True for a rule without schemas in it that needs no repair and says nothing about other rules."""
    if keyword == "type":
        return type(rule) is str and rule in _TYPES
    if keyword == "required":
        return _is_list_of_names(rule)
    if keyword == "$schema":
        return _is_text(rule) and get_declared_draft({keyword: rule}) != "4"
    if keyword == "$ref":  # another one may lead out of the schemas, to what is to be repaired too
        return type(rule) is str and rule.startswith("#/$defs/") and rule.count("/") == 2
    if keyword in _BOUND_BY_EXCLUSIVE_BOUND:
        return _is_number(rule)
    if keyword in _CHECK_BY_KEYWORD:
        return keyword not in _NEVER_PLAIN and _CHECK_BY_KEYWORD[keyword](rule) and _is_json(rule)
    return (keyword in ("default", "const") or keyword.startswith("x-")) and _is_json(rule)


class _KeywordRepairer:
    """The state of one repair: ``notes`` name dropped keywords, ``references`` point into the schema itself."""

    def __init__(self, side: Side) -> None:
        self.notes: list[str] = []
        self.references: list[str] = []
        self._dropped_assertions = 0  # dropped assertions; dropped annotations do not count
        self._has_exclusive_flags = False
        self._sided_keyword = _SIDED_KEYWORD[side]
        self._repaired_ids: set[int] = set()

    def repair_schema(self, schema: Mapping[str, Any], place: _SchemaPath) -> dict[str, Any]:
        """Return the repaired copy of one schema."""
        steps.count_steps(1 + len(schema))
        if len(place) > MAX_PATH_LENGTH:
            self._record_dropped_keyword("", schema, place)
            return {}
        had_exclusive_flags = self._has_exclusive_flags
        if "$schema" in schema:
            self._has_exclusive_flags = get_declared_draft(schema) == "4"
        repaired = self._repair_rules(schema, place)
        self._repair_exclusive_bounds(repaired, place)
        self._repair_required(repaired, schema, place)
        self._has_exclusive_flags = had_exclusive_flags
        self._repaired_ids.add(id(repaired))
        return repaired

    def repair_reference_target(self, root: dict[str, Any], reference: str) -> None:
        """Repair the target of a reference outside schema keywords, for example in ``components`` of OpenAPI."""
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in reference.split("/")[1:]]
        parent: Any = root
        for part in parents:
            parent = mapping_or_empty(parent).get(part)
        found = mapping_or_empty(parent).get(last)
        if is_object(found) and id(found) not in self._repaired_ids:
            parent[last] = self.repair_schema(found, (*parents, last)[:MAX_PATH_LENGTH])

    def _repair_rules(self, schema: Mapping[str, Any], place: _SchemaPath) -> dict[str, Any]:
        repaired: dict[str, Any] = {}
        dropped: list[str] = []
        for keyword, rule in schema.items():
            dropped_before = self._dropped_assertions
            repaired_rule = self._repair_rule(keyword, rule, (*place, keyword))
            if repaired_rule is _MALFORMED:
                self._record_dropped_keyword(keyword, rule, place, is_asserted=keyword not in _ANNOTATIONS)
            if repaired_rule is _MALFORMED or (
                keyword in RESTRICTIVE_KEYWORDS and self._dropped_assertions > dropped_before
            ):
                dropped.append(keyword)  # a negation or condition without a part of it would reject more values
            else:
                repaired[keyword] = repaired_rule
        for keyword in dropped:
            for dependent in RESTRICTIVE_KEYWORDS.get(keyword, ()):
                repaired.pop(dependent, None)
        return repaired

    def _repair_rule(self, keyword: str, rule: Any, place: _SchemaPath) -> Any:
        if keyword in _SUBSCHEMA_KEYWORDS or (keyword == "items" and not is_array(rule)):
            return self._repair_subschema(rule, place)
        if keyword in _SUBSCHEMA_LIST_KEYWORDS or keyword == "items":
            return (self._repair_schema_list(rule, place) if is_array(rule) else []) or _MALFORMED
        if keyword in _SUBSCHEMA_MAP_KEYWORDS:
            return {} if rule == [] else self._repair_schema_map(rule, place)  # PHP writes an empty object as []
        if keyword == "type":
            return _repair_type(rule)
        if (
            keyword == "$ref"
            and isinstance(rule, str)
            and rule.startswith("#/")
            and len(self.references) < MAX_REFERENCES
        ):
            self.references.append(rule)
        if keyword in ("required", *_BOUND_BY_EXCLUSIVE_BOUND):  # read last: they depend on other keywords
            return rule
        if keyword in _COUNT_KEYWORDS and isinstance(rule, float) and rule >= 0 and rule.is_integer():
            return int(rule)
        check = _CHECK_BY_KEYWORD.get(keyword, _is_json)
        return rule if check(rule) and _is_json(rule) else _MALFORMED

    def _repair_subschema(self, rule: Any, place: _SchemaPath) -> Any:
        if is_object(rule):
            return self.repair_schema(rule, place)
        return rule if isinstance(rule, bool) else _MALFORMED

    def _repair_schema_list(self, rules: list[Any], place: _SchemaPath) -> list[Any]:
        """Repair a list of schemas. An invalid one accepts anything in a positional list and is dropped from others."""
        repaired: list[Any] = []
        for at, rule in enumerate(rules):
            repaired_rule = self._repair_subschema(rule, (*place, str(at)))
            if repaired_rule is _MALFORMED:
                self._record_dropped_keyword("", rule, (*place, str(at)))
            if repaired_rule is not _MALFORMED or place[-1] in ("items", "prefixItems"):
                repaired.append({} if repaired_rule is _MALFORMED else repaired_rule)
        return repaired

    def _repair_schema_map(self, rules: Any, place: _SchemaPath) -> Any:
        """Repair a map of schemas. Each name stays: a value that is not a schema becomes one that accepts anything."""
        if not is_object(rules):
            return _MALFORMED
        has_names = place[-1] in ("dependencies", "dependentRequired")
        repaired: dict[str, Any] = {}
        for name, rule in rules.items():
            inside = (*place, name)
            if has_names and is_array(rule):
                repaired[name] = _select_unique_names(rule)
                continue
            repaired_rule = self._repair_subschema(rule, inside) if place[-1] != "dependentRequired" else _MALFORMED
            if repaired_rule is _MALFORMED:
                self._record_dropped_keyword("", rule, inside)
            if repaired_rule is not _MALFORMED or not has_names:
                repaired[name] = {} if repaired_rule is _MALFORMED else repaired_rule
        return repaired

    def _repair_exclusive_bounds(self, schema: dict[str, Any], place: _SchemaPath) -> None:
        """Translate the boolean ``exclusiveMinimum`` and ``exclusiveMaximum`` of OpenAPI 3.0 and draft 4."""
        for keyword, bound in _BOUND_BY_EXCLUSIVE_BOUND.items():
            rule = schema.get(keyword, False)
            if isinstance(rule, bool):
                if self._has_exclusive_flags or keyword not in schema:
                    continue
                del schema[keyword]
                if rule and bound in schema:
                    schema[keyword] = schema.pop(bound)
                elif rule:
                    self._record_dropped_keyword(keyword, rule, place)
            elif self._has_exclusive_flags and _is_number(rule) and bound not in schema:
                schema |= {bound: rule, keyword: True}
            elif self._has_exclusive_flags or not _is_number(rule):
                del schema[keyword]
                self._record_dropped_keyword(keyword, rule, place)

    def _repair_required(self, schema: dict[str, Any], original: Mapping[str, Any], place: _SchemaPath) -> None:
        """Read the required properties: a list, one name, or a flag in each property."""
        properties = mapping_or_empty(schema.get("properties"))
        required = schema.get("required")
        if isinstance(required, str) and required in properties:
            required = [required]
        elif "required" in original and not isinstance(required, bool) and not _is_list_of_names(required):
            self._record_dropped_keyword("required", required, place)
        names = _select_unique_names(list_or_empty(required))
        # Draft 3 and many hand-written schemas flag each property.
        original_properties = mapping_or_empty(original.get("properties"))
        flagged_names = [
            name for name in properties if mapping_or_empty(original_properties.get(name)).get("required") is True
        ]
        names += [name for name in flagged_names if name not in names]
        names = [name for name in names if mapping_or_empty(properties.get(name)).get(self._sided_keyword) is not True]
        if names or is_array(required):
            schema["required"] = names
        else:
            schema.pop("required", None)

    def _record_dropped_keyword(self, keyword: str, rule: Any, place: _SchemaPath, *, is_asserted: bool = True) -> None:
        self._dropped_assertions += is_asserted
        if len(self.notes) < _MAX_NOTES:
            path_text = ".".join(place)[:_MAX_PATH_CHARACTERS]
            note = f'"{keyword}": {_describe_rule(rule)}' if keyword else _describe_rule(rule)
            self.notes.append(f"{note} at {path_text}" if path_text else note)


def _repair_type(rule: Any) -> Any:
    if isinstance(rule, str):
        return rule if rule in _TYPES else _MALFORMED
    # YAML reads an unquoted null as None.
    names = ["null" if name is None else name for name in list_or_empty(rule)]
    are_types = bool(names) and all(isinstance(name, str) and name in _TYPES for name in names)
    return [*dict.fromkeys(names)] if are_types else _MALFORMED


def _select_unique_names(rule: list[Any]) -> list[str]:
    return [*dict.fromkeys(name for name in rule if isinstance(name, str))]


def _is_list_of_names(rule: Any) -> bool:
    return is_array(rule) and len(_select_unique_names(rule)) == len(rule)


def _is_number(rule: Any) -> bool:
    if isinstance(rule, float):
        return isfinite(rule)
    return isinstance(rule, int) and not isinstance(rule, bool)


def _is_non_negative_integer(rule: Any) -> bool:
    return isinstance(rule, int) and not isinstance(rule, bool) and rule >= 0


def _is_boolean(rule: Any) -> bool:
    return isinstance(rule, bool)


def _is_text(rule: Any) -> bool:
    return isinstance(rule, str) and rule != NOT_JSON


def _is_valid_schema_id(rule: Any) -> bool:
    try:
        urlsplit(rule if isinstance(rule, str) else "")
    except ValueError:
        return False
    return _is_text(rule)


def _is_json(rule: Any) -> bool:
    """Return False for a value that only Python code can put into a schema."""
    if isinstance(rule, str | bool):
        return rule != NOT_JSON
    pending = [rule]
    while pending:
        value = pending.pop()
        if (isinstance(value, float) and not isfinite(value)) or (isinstance(value, str) and value == NOT_JSON):
            return False
        pending += value.values() if is_object(value) else list_or_empty(value)
    return True


def _describe_rule(rule: Any) -> str:
    return "a value that is no JSON" if not _is_json(rule) else clip_message(format_rule(rule))


_SUBSCHEMA_KEYWORDS = frozenset(
    {"additionalProperties", "additionalItems", "contains", "contentSchema", "propertyNames", "not", "if", "then"}
    | {"else", "unevaluatedItems", "unevaluatedProperties"}
)
_SUBSCHEMA_LIST_KEYWORDS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SUBSCHEMA_MAP_KEYWORDS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies", "dependentRequired"}
)
_COUNT_KEYWORDS = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"}
)
# They mean something for other keywords, or for the whole schema.
_NEVER_PLAIN = frozenset({"$dynamicRef", "$recursiveRef", "$id", "id", "nullable"})
_CHECK_BY_KEYWORD: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("$id", "id"), _is_valid_schema_id),
    **dict.fromkeys(_COUNT_KEYWORDS, _is_non_negative_integer),
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    "multipleOf": lambda rule: _is_number(rule) and rule > 0,
    "enum": lambda rule: is_array(rule) and rule != [],
    "examples": is_array,
    "discriminator": is_object,
    **dict.fromkeys(("uniqueItems", "readOnly", "writeOnly", "deprecated", "nullable"), _is_boolean),
    **dict.fromkeys(("$schema", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"), _is_text),
    **dict.fromkeys(("$comment", "title", "description", "format", "pattern"), _is_text),
    **dict.fromkeys(("contentEncoding", "contentMediaType"), _is_text),
}
