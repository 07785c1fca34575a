"""The drafts of JSON Schema, unions and unevaluated members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ...cached_property import cached_property
from ...data.narrowing import is_array, is_mapping, is_object, list_or_empty, mapping_or_empty
from ..compiled import json_type
from . import keywords
from .checking import Checking, Draft, Failure, Keyword, Path, Rules

if TYPE_CHECKING:
    from referencing import Specification


MAX_CHOICES = 64
_MAX_FOLLOWED = 8
_MAX_TAGS = 64
_CHOICES = ("const", "enum")


def any_of(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    """Check ``anyOf`` and ``oneOf``. A value may match several branches of both, like the declared union type."""
    branch = _branch_of_discriminator(check, node, rule, value, path)
    if isinstance(branch, Failure):
        yield branch
    elif branch is not None:
        yield from check.inside(node, branch, value, path)
    elif not any(check.fits(node, schema, value) for schema in rule):
        yield from _nearest_failures(check, node, rule, value, path)


def _branch_of_discriminator(check: Checking, node: Rules, branches: list[Any], value: Any, path: Path) -> Any:
    """Return the branch that OpenAPI's ``discriminator`` names, a failure for an unknown tag, or None."""
    discriminator = mapping_or_empty(node.schema.get("discriminator"))
    name = discriminator.get("propertyName")
    if not isinstance(name, str) or not is_object(value) or not isinstance(tag := value.get(name), str):
        return None
    mapping = mapping_or_empty(discriminator.get("mapping"))
    check.take(1 + ((len(branches) + len(mapping)) >> 3))
    references = [branch.get("$ref") if is_mapping(branch) else None for branch in branches]
    by_name = {_last_part(target): at for at, target in enumerate(references) if isinstance(target, str)}
    named = by_name | {
        key: by_name[last]
        for key, target in mapping.items()
        if isinstance(key, str) and isinstance(target, str) and (last := _last_part(target)) in by_name
    }
    if tag in named:
        return branches[named[tag]]
    if len(set(named.values())) < len(branches):
        return None
    known = [key for key in mapping if key in named] or list(named)
    return Failure.of_rule("enum", known, tag, (path, name))


def _last_part(reference: str) -> str:
    return reference.rpartition("/")[2]


class _Branch(NamedTuple):
    """The failures of a value in one branch. The branch with the smallest ``distance`` was likely meant.

    ``wrong_tags`` maps properties whose value is not among the branch's ``const`` or ``enum`` to those.
    """

    failures: list[Failure]
    distance: tuple[int, ...]
    wrong_tags: Mapping[str, list[Any]]


_OTHER_TYPE = (1,)


def _nearest_failures(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    rows = [_branch(check, node, *found, value) for found in check.explain(node, rule, value, path) if found[1]]
    least = min((row.distance for row in rows), default=None)
    likely = [row for row in rows if (row.distance == _OTHER_TYPE) == (least == _OTHER_TYPE)]
    if (unknown := _unknown_tag(likely)) is not None:
        choices = [choice for row in likely for choice in row.wrong_tags[unknown]]
        yield Failure.of_rule("enum", _unique(choices), value[unknown], (path, unknown))
        return
    nearest = [row.failures for row in likely if row.distance == least]
    if any(failures[0].rule_name in _CHOICES and failures[0].value is value for failures in nearest):
        nearest = [row.failures for row in rows]  # list the choices of all branches
    if len(nearest) == 1:
        yield from nearest[0]
    else:
        yield _combined_failure(nearest, value, path)


def _unknown_tag(rows: list[_Branch]) -> str | None:
    """Return a property that is a tag in all branches and whose value fits none of them."""
    if len(rows) < 2:
        return None
    return next((key for key in rows[0].wrong_tags if all(key in row.wrong_tags for row in rows)), None)


def _branch(check: Checking, node: Rules, schema: Any, failures: list[Failure], value: Any) -> _Branch:
    top_level = [failure for failure in failures if failure.value is value]
    if any(_is_other_type(failure) for failure in top_level):
        return _Branch(failures, _OTHER_TYPE, {})
    tags, known = _tags_of(check, check.rules_of(schema, node), value)
    present = {key: choices for key, choices in tags.items() if key in value}
    wrong = {key: choices for key, choices in present.items() if not _is_among(value[key], choices)}
    # A constant identifies a branch better than a list of values, and tags better than the number of failures.
    constants = [len(choices) == 1 for choices in wrong.values()]
    fitting = [len(choices) == 1 for key, choices in present.items() if key not in wrong]
    by_tags = (sum(constants), len(constants), -sum(fitting), -len(fitting))
    is_no_choice = any(failure.rule_name in _CHOICES for failure in top_level)
    in_common = -sum(key in known for key in islice(value, MAX_CHOICES)) if known else 0
    depth = -max(len(failure.path) for failure in failures)
    return _Branch(failures, (0, *by_tags, is_no_choice, in_common, len(top_level), len(failures), depth), wrong)


def _is_other_type(failure: Failure) -> bool:
    if failure.rule_name in _CHOICES:
        kind = json_type(failure.value)
        return all(json_type(choice) != kind for choice in _choices_of(failure))
    return failure.rule_name in ("type", None)


def _choices_of(failure: Failure) -> list[Any]:
    return list_or_empty(failure.rule)[:MAX_CHOICES] if failure.rule_name == "enum" else [failure.rule]


def _tags_of(check: Checking, rules: Rules, value: Any) -> tuple[dict[str, list[Any]], dict[Any, Any]]:
    """Return the properties of an object schema that have ``const`` or ``enum``, and all its properties."""
    tags: dict[str, list[Any]] = {}
    properties: dict[Any, Any] = {}
    pending = [rules] if is_object(value) else []
    for _ in range(_MAX_FOLLOWED):
        if not pending:
            break
        node = pending.pop()
        schema = mapping_or_empty(node.schema)
        found = mapping_or_empty(schema.get("properties"))
        check.take(1 + (len(found) >> 3))
        properties |= found
        for name, inner in islice(found.items(), _MAX_TAGS):
            property_schema = mapping_or_empty(inner)
            if "const" in property_schema:
                tags[name] = [property_schema["const"]]
            elif is_array(property_schema.get("enum")):
                tags[name] = property_schema["enum"][:MAX_CHOICES]
        if isinstance(schema.get("$ref"), str):
            pending.append(check.resolve(node, schema["$ref"]))
        pending += [check.rules_of(inner, node) for inner in list_or_empty(schema.get("allOf"))[:_MAX_FOLLOWED]]
    return tags, properties


def _is_among(value: Any, choices: list[Any]) -> bool:
    return any(isinstance(value, bool) == isinstance(choice, bool) and value == choice for choice in choices)


def _combined_failure(branches: list[list[Failure]], value: Any, path: Path) -> Failure:
    """Return one failure for equally near branches that lists what they expect at the same place."""
    first = [failures[0] for failures in branches]
    place = first[0] if first else None
    if place is None or any(failure.value is not place.value for failure in first):
        return Failure(value, path)
    kinds = {failure.rule_name for failure in first}
    if kinds == {"required"}:
        names = [
            name for name in place.rule if name not in place.value and all(name in failure.rule for failure in first)
        ]
        return Failure.of_rule("required", names, place.value, place.place) if names else Failure(value, path)
    types = _unique([name for failure in first if failure.rule_name == "type" for name in _names(failure.rule)])
    choices = _unique([choice for failure in first if failure.rule_name in _CHOICES for choice in _choices_of(failure)])
    if not (types or choices) or not kinds.issubset(("type", None, *_CHOICES)):
        return Failure(value, path)
    if choices and types == ["null"]:
        types, choices = [], [*choices, None]
    if not types:
        return Failure.of_rule("enum", choices, place.value, place.place)
    return Failure.of_rule("type", [*types, choices] if choices else types, place.value, place.place)


def _names(rule: Any) -> Iterable[Any]:
    return [rule] if isinstance(rule, str) else list_or_empty(rule)


def _unique(items: list[Any]) -> list[Any]:
    unique: list[Any] = []
    for item in items:
        if not _is_among(item, unique):
            unique.append(item)
    return unique[:MAX_CHOICES]


_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def unevaluated_properties(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if not is_object(value) or rule is True:
        return
    seen: set[str] = set()
    _properties(check, node, value, seen, is_own=True)
    left = [name for name in value if name not in seen]
    if rule is False:
        if left:
            yield Failure(value, path, names=left)
        return
    for name in left:
        yield from check.inside(node, rule, value[name], (path, name))


def unevaluated_items(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if not is_array(value) or rule is True:
        return
    seen: set[int] = set()
    _items(check, node, value, seen, is_own=True)
    for index, item in enumerate(value):
        if index not in seen:
            yield from check.inside(node, rule, item, (path, index))


def _properties(check: Checking, node: Rules, value: dict[str, Any], seen: set[str], *, is_own: bool = False) -> None:
    rules = node.schema
    if not is_object(rules):
        return
    check.take(1 + len(value))
    if "additionalProperties" in rules or ("unevaluatedProperties" in rules and not is_own):
        # What it did not take would be a failure of its own.
        seen.update(value)
        return
    seen.update(value.keys() & rules.get("properties", {}).keys())
    for wanted in rules.get("patternProperties", {}):
        seen.update(name for name in value if check.matches(wanted, name))
    for name, inner in rules.get("dependentSchemas", {}).items():
        if name in value:
            _properties(check, check.rules_of(inner, node), value, seen)
    for inner in _applied(check, node, value):
        _properties(check, inner, value, seen)


def _items(check: Checking, node: Rules, value: list[Any], seen: set[int], *, is_own: bool = False) -> None:
    rules = node.schema
    if not is_object(rules):
        return
    check.take(1 + len(value))
    items = rules.get("items")
    first = items if is_array(items) else rules.get("prefixItems", ())
    takes_rest = "items" in rules and (not is_array(items) or "additionalItems" in rules)
    if takes_rest or ("unevaluatedItems" in rules and not is_own):
        seen.update(range(len(value)))
        return
    seen.update(range(min(len(first), len(value))))
    if "contains" in rules and node.dialect.contains_evaluates:
        seen.update(index for index, item in enumerate(value) if check.fits(node, rules["contains"], item))
    for inner in _applied(check, node, value):
        _items(check, inner, value, seen)


def _applied(check: Checking, node: Rules, value: Any) -> Iterator[Rules]:
    """Yield the rules of schemas beside these that the value itself fits."""
    schema: dict[str, Any] = node.schema
    for keyword in _REFERENCES:
        if keyword in schema and node.dialect.knows(keyword):
            yield check.resolve(node, schema[keyword], recursive=keyword == "$recursiveRef")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(keyword, ()):
            if check.fits(node, inner, value):
                yield check.rules_of(inner, node)
    if "if" in schema:
        fits = check.fits(node, schema["if"], value)
        if fits:
            yield check.rules_of(schema["if"], node)
        branch = "then" if fits else "else"
        if branch in schema:
            yield check.rules_of(schema[branch], node)


DEFAULT_DRAFT = "2020-12"
_URIS = {
    "http://json-schema.org/draft-04/schema": "4",
    "http://json-schema.org/draft-06/schema": "6",
    "http://json-schema.org/draft-07/schema": "7",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
}

_BY_NAME = {uri.partition("://")[2]: draft for uri, draft in _URIS.items()}

_EVERYWHERE: dict[str, Keyword] = {
    "$ref": keywords.ref,
    "additionalProperties": keywords.additional_properties,
    "enum": keywords.enum,
    "maxItems": keywords.max_items,
    "maxLength": keywords.max_length,
    "minItems": keywords.min_items,
    "minLength": keywords.min_length,
    "pattern": keywords.pattern,
    "patternProperties": keywords.pattern_properties,
    "uniqueItems": keywords.unique_items,
}
_BEFORE_2020 = {"items": keywords.old_items, "additionalItems": keywords.additional_items}
_BEFORE_6 = {"minimum": keywords.old_minimum, "maximum": keywords.old_maximum}
_SINCE_4 = {
    "allOf": keywords.all_of,
    "anyOf": any_of,
    "maxProperties": keywords.max_properties,
    "minProperties": keywords.min_properties,
    "multipleOf": keywords.multiple_of,
    "not": keywords.not_,
    "oneOf": any_of,
    "properties": keywords.properties,
    "required": keywords.required,
    "type": keywords.type_,
}
_SINCE_6 = {
    "const": keywords.const,
    "exclusiveMaximum": keywords.exclusive_maximum,
    "exclusiveMinimum": keywords.exclusive_minimum,
    "maximum": keywords.maximum,
    "minimum": keywords.minimum,
    "propertyNames": keywords.property_names,
}
_SINCE_2019 = {
    "contains": keywords.contains,
    "dependentRequired": keywords.dependencies,
    "dependentSchemas": keywords.dependencies,
    "unevaluatedItems": unevaluated_items,
    "unevaluatedProperties": unevaluated_properties,
}
_4 = {**_EVERYWHERE, **_BEFORE_2020, **_SINCE_4, **_BEFORE_6, "dependencies": keywords.dependencies}
_6 = {**_4, **_SINCE_6, "contains": keywords.old_contains}
_7 = {**_6, "if": keywords.if_}
_2019 = {**_EVERYWHERE, **_BEFORE_2020, **_SINCE_4, **_SINCE_6, **_SINCE_2019, "if": keywords.if_}
_TABLES: dict[str, dict[str, Keyword]] = {
    "4": _4,
    "6": _6,
    "7": _7,
    "2019-09": {**_2019, "$recursiveRef": keywords.recursive_ref},
    "2020-12": {
        **{name: apply for name, apply in _2019.items() if name != "additionalItems"},
        "$dynamicRef": keywords.ref,
        "items": keywords.items,
        "prefixItems": keywords.prefix_items,
    },
}


class Dialect:
    """One draft."""

    def __init__(self, draft: str) -> None:
        self._uri = next(uri for uri, name in _URIS.items() if name == draft)
        self._table = _TABLES[draft]
        self._has_whole_floats = draft != "4"
        # In these a reference replaces what stands beside it.
        self._ref_is_alone = draft in ("4", "6", "7")
        self.contains_evaluates = draft == "2020-12"

    @cached_property
    def specification(self) -> Specification[Any]:
        """What finds the identifiers and parts of its schemas."""
        from referencing.jsonschema import specification_with

        return specification_with(self._uri)

    def knows(self, keyword: str) -> bool:
        """Tell whether the draft has a keyword."""
        return keyword in self._table

    def rules_of(self, schema: Any) -> tuple[tuple[str, Any, Keyword], ...] | None:
        """Return the keywords of a schema that ask something of a value; None when it takes none."""
        if not isinstance(schema, Mapping):
            return None if schema is False else ()
        rules = cast("Mapping[str, Any]", schema)
        if self._ref_is_alone and "$ref" in rules:
            return (("$ref", rules["$ref"], self._table["$ref"]),)
        return tuple((name, rule, self._table[name]) for name, rule in rules.items() if name in self._table)

    def is_of(self, value: Any, types: Any) -> bool:
        """Tell whether a value is of one of these types."""
        if isinstance(types, str):
            return self._is(value, types)
        return any(isinstance(name, str) and self._is(value, name) for name in types)

    def _is(self, value: Any, name: str) -> bool:
        match name:
            case "object":
                return isinstance(value, dict)
            case "array":
                return isinstance(value, list)
            case "string":
                return isinstance(value, str)
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "number":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "integer":
                whole = self._has_whole_floats and isinstance(value, float) and value.is_integer()
                return whole or (isinstance(value, int) and not isinstance(value, bool))
            case _:
                return False


@cache
def _dialect(draft: str) -> Dialect:
    return Dialect(draft)


def named_draft(schema: Any) -> str | None:
    """Return the draft that a schema names, in either scheme and with or without a fragment; None for no known one."""
    uri = cast("Any", schema).get("$schema") if isinstance(schema, Mapping) else None
    return _BY_NAME.get(uri.rstrip("#").partition("://")[2]) if isinstance(uri, str) else None


def dialect_of(schema: Any, inherited: Draft | None) -> Draft:
    """Return the dialect that a schema names, else the inherited one, else 2020-12."""
    draft = named_draft(schema)
    return (inherited or _dialect(DEFAULT_DRAFT)) if draft is None else _dialect(draft)
