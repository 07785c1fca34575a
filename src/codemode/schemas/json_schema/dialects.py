"""The drafts of JSON Schema, unions and unevaluated members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ...cached_property import cached_property
from ...data.narrowing import is_array, is_mapping, is_object, list_or_empty, mapping_or_empty
from ..compiled import get_json_type_name
from . import keywords
from .checking import CheckProtocol, DialectProtocol, KeywordFunction, Path, SchemaNode, ValidationFailure

if TYPE_CHECKING:
    from referencing import Specification


MAX_CHOICES = 64
_MAX_FOLLOWED_SCHEMAS = 8
_MAX_TAGS = 64
_CHOICE_KEYWORDS = ("const", "enum")


def check_any_of_or_one_of(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    """Check ``anyOf`` and ``oneOf``. A value may match several branches of both, like the declared union type."""
    branch = _select_discriminated_branch_or_failure(check, node, rule, value, path)
    if isinstance(branch, ValidationFailure):
        yield branch
    elif branch is not None:
        yield from check.iterate_subschema_failures(node, branch, value, path)
    elif not any(check.fits_subschema(node, schema, value) for schema in rule):
        yield from _iterate_nearest_failures(check, node, rule, value, path)


def _select_discriminated_branch_or_failure(
    check: CheckProtocol, node: SchemaNode, branches: list[Any], value: Any, path: Path
) -> Any:
    """Return the branch that OpenAPI's ``discriminator`` names, a failure for an unknown tag, or None."""
    discriminator = mapping_or_empty(node.schema.get("discriminator"))
    name = discriminator.get("propertyName")
    if not isinstance(name, str) or not is_object(value) or not isinstance(tag := value.get(name), str):
        return None
    mapping = mapping_or_empty(discriminator.get("mapping"))
    check.spend_steps(1 + ((len(branches) + len(mapping)) >> 3))
    references = [branch.get("$ref") if is_mapping(branch) else None for branch in branches]
    by_name = {_get_last_segment(target): at for at, target in enumerate(references) if isinstance(target, str)}
    branch_by_tag = by_name | {
        key: by_name[last_segment]
        for key, target in mapping.items()
        if isinstance(key, str) and isinstance(target, str) and (last_segment := _get_last_segment(target)) in by_name
    }
    if tag in branch_by_tag:
        return branches[branch_by_tag[tag]]
    if len(set(branch_by_tag.values())) < len(branches):
        return None
    mapped_tags = [key for key in mapping if key in branch_by_tag] or list(branch_by_tag)
    return ValidationFailure.for_rule("enum", mapped_tags, tag, (path, name))


def _get_last_segment(reference: str) -> str:
    return reference.rpartition("/")[2]


class _BranchFailures(NamedTuple):
    """The failures of a value in one branch. The branch with the smallest ``distance`` was likely meant.

    ``wrong_tags`` maps properties whose value is not among the branch's ``const`` or ``enum`` to those.
    """

    failures: list[ValidationFailure]
    distance: tuple[int, ...]
    wrong_tags: Mapping[str, list[Any]]


_OTHER_TYPE_DISTANCE = (1,)


def _iterate_nearest_failures(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    branches = [
        _analyze_branch_failures(check, node, *explained, value)
        for explained in check.collect_alternative_failures_if_cheap(node, rule, value, path)
        if explained[1]
    ]
    min_distance = min((branch.distance for branch in branches), default=None)
    likely = [
        branch
        for branch in branches
        if (branch.distance == _OTHER_TYPE_DISTANCE) == (min_distance == _OTHER_TYPE_DISTANCE)
    ]
    if (unmatched_tag := _find_unmatched_tag(likely)) is not None:
        choices = [choice for branch in likely for choice in branch.wrong_tags[unmatched_tag]]
        yield ValidationFailure.for_rule(
            "enum", _deduplicate_and_limit_values(choices), value[unmatched_tag], (path, unmatched_tag)
        )
        return
    nearest = [branch.failures for branch in likely if branch.distance == min_distance]
    if any(failures[0].rule_name in _CHOICE_KEYWORDS and failures[0].value is value for failures in nearest):
        nearest = [branch.failures for branch in branches]  # list the choices of all branches
    if len(nearest) == 1:
        yield from nearest[0]
    else:
        yield _combine_failures(nearest, value, path)


def _find_unmatched_tag(branches: list[_BranchFailures]) -> str | None:
    """Return a property that is a tag in all branches and whose value fits none of them."""
    if len(branches) < 2:
        return None
    return next((key for key in branches[0].wrong_tags if all(key in branch.wrong_tags for branch in branches)), None)


def _analyze_branch_failures(
    check: CheckProtocol, node: SchemaNode, schema: Any, failures: list[ValidationFailure], value: Any
) -> _BranchFailures:
    top_level = [failure for failure in failures if failure.value is value]
    if any(_is_type_failure(failure) for failure in top_level):
        return _BranchFailures(failures, _OTHER_TYPE_DISTANCE, {})
    tags, matched_properties = _collect_tags_and_properties(check, check.get_or_create_node(schema, node), value)
    present = {key: choices for key, choices in tags.items() if key in value}
    wrong_tags = {key: choices for key, choices in present.items() if not _is_equal_to_any(value[key], choices)}
    # A constant identifies a branch better than a list of values, and tags better than the number of failures.
    constants = [len(choices) == 1 for choices in wrong_tags.values()]
    fitting = [len(choices) == 1 for key, choices in present.items() if key not in wrong_tags]
    by_tags = (sum(constants), len(constants), -sum(fitting), -len(fitting))
    is_no_choice = any(failure.rule_name in _CHOICE_KEYWORDS for failure in top_level)
    common_properties = (
        -sum(key in matched_properties for key in islice(value, MAX_CHOICES)) if matched_properties else 0
    )
    depth = -max(len(failure.path) for failure in failures)
    return _BranchFailures(
        failures, (0, *by_tags, is_no_choice, common_properties, len(top_level), len(failures), depth), wrong_tags
    )


def _is_type_failure(failure: ValidationFailure) -> bool:
    if failure.rule_name in _CHOICE_KEYWORDS:
        kind = get_json_type_name(failure.value)
        return all(get_json_type_name(choice) != kind for choice in _get_failure_choices(failure))
    return failure.rule_name in ("type", None)


def _get_failure_choices(failure: ValidationFailure) -> list[Any]:
    return list_or_empty(failure.rule)[:MAX_CHOICES] if failure.rule_name == "enum" else [failure.rule]


def _collect_tags_and_properties(
    check: CheckProtocol, rules: SchemaNode, value: Any
) -> tuple[dict[str, list[Any]], dict[Any, Any]]:
    """Return the properties of an object schema that have ``const`` or ``enum``, and all its properties."""
    tags: dict[str, list[Any]] = {}
    properties: dict[Any, Any] = {}
    pending = [rules] if is_object(value) else []
    for _ in range(_MAX_FOLLOWED_SCHEMAS):
        if not pending:
            break
        node = pending.pop()
        schema = mapping_or_empty(node.schema)
        schema_properties = mapping_or_empty(schema.get("properties"))
        check.spend_steps(1 + (len(schema_properties) >> 3))
        properties |= schema_properties
        for name, inner in islice(schema_properties.items(), _MAX_TAGS):
            property_schema = mapping_or_empty(inner)
            if "const" in property_schema:
                tags[name] = [property_schema["const"]]
            elif is_array(property_schema.get("enum")):
                tags[name] = property_schema["enum"][:MAX_CHOICES]
        if isinstance(schema.get("$ref"), str):
            pending.append(check.resolve_reference(node, schema["$ref"]))
        pending += [
            check.get_or_create_node(inner, node)
            for inner in list_or_empty(schema.get("allOf"))[:_MAX_FOLLOWED_SCHEMAS]
        ]
    return tags, properties


def _is_equal_to_any(value: Any, choices: list[Any]) -> bool:
    return any(isinstance(value, bool) == isinstance(choice, bool) and value == choice for choice in choices)


def _combine_failures(branches: list[list[ValidationFailure]], value: Any, path: Path) -> ValidationFailure:
    """Return one failure for equally near branches that lists what they expect at the same place."""
    first_failures = [failures[0] for failures in branches]
    sample = first_failures[0] if first_failures else None
    if sample is None or any(failure.value is not sample.value for failure in first_failures):
        return ValidationFailure(value, path)
    kinds = {failure.rule_name for failure in first_failures}
    if kinds == {"required"}:
        names = [
            name
            for name in sample.rule
            if name not in sample.value and all(name in failure.rule for failure in first_failures)
        ]
        return (
            ValidationFailure.for_rule("required", names, sample.value, sample.location)
            if names
            else ValidationFailure(value, path)
        )
    types = _deduplicate_and_limit_values(
        [name for failure in first_failures if failure.rule_name == "type" for name in _list_type_names(failure.rule)]
    )
    choices = _deduplicate_and_limit_values(
        [
            choice
            for failure in first_failures
            if failure.rule_name in _CHOICE_KEYWORDS
            for choice in _get_failure_choices(failure)
        ]
    )
    if not (types or choices) or not kinds.issubset(("type", None, *_CHOICE_KEYWORDS)):
        return ValidationFailure(value, path)
    if choices and types == ["null"]:
        types, choices = [], [*choices, None]
    if not types:
        return ValidationFailure.for_rule("enum", choices, sample.value, sample.location)
    return ValidationFailure.for_rule("type", [*types, choices] if choices else types, sample.value, sample.location)


def _list_type_names(rule: Any) -> Iterable[Any]:
    return [rule] if isinstance(rule, str) else list_or_empty(rule)


def _deduplicate_and_limit_values(items: list[Any]) -> list[Any]:
    unique: list[Any] = []
    for item in items:
        if not _is_equal_to_any(item, unique):
            unique.append(item)
    return unique[:MAX_CHOICES]


_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def check_unevaluated_properties(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if not is_object(value) or rule is True:
        return
    evaluated: set[str] = set()
    _mark_evaluated_properties(check, node, value, evaluated, is_own=True)
    unevaluated = [name for name in value if name not in evaluated]
    if rule is False:
        if unevaluated:
            yield ValidationFailure(value, path, names=unevaluated)
        return
    for name in unevaluated:
        yield from check.iterate_subschema_failures(node, rule, value[name], (path, name))


def check_unevaluated_items(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if not is_array(value) or rule is True:
        return
    evaluated: set[int] = set()
    _mark_evaluated_items(check, node, value, evaluated, is_own=True)
    for index, item in enumerate(value):
        if index not in evaluated:
            yield from check.iterate_subschema_failures(node, rule, item, (path, index))


def _mark_evaluated_properties(
    check: CheckProtocol, node: SchemaNode, value: dict[str, Any], evaluated: set[str], *, is_own: bool = False
) -> None:
    rules = node.schema
    if not is_object(rules):
        return
    check.spend_steps(1 + len(value))
    if "additionalProperties" in rules or ("unevaluatedProperties" in rules and not is_own):
        # A value that it rejects would be a failure of its own.
        evaluated.update(value)
        return
    evaluated.update(value.keys() & rules.get("properties", {}).keys())
    for pattern in rules.get("patternProperties", {}):
        evaluated.update(name for name in value if check.matches_pattern(pattern, name))
    for name, inner in rules.get("dependentSchemas", {}).items():
        if name in value:
            _mark_evaluated_properties(check, check.get_or_create_node(inner, node), value, evaluated)
    for inner in _iterate_applied_nodes(check, node, value):
        _mark_evaluated_properties(check, inner, value, evaluated)


def _mark_evaluated_items(
    check: CheckProtocol, node: SchemaNode, value: list[Any], evaluated: set[int], *, is_own: bool = False
) -> None:
    rules = node.schema
    if not is_object(rules):
        return
    check.spend_steps(1 + len(value))
    items = rules.get("items")
    prefix_schemas = items if is_array(items) else rules.get("prefixItems", ())
    takes_rest = "items" in rules and (not is_array(items) or "additionalItems" in rules)
    if takes_rest or ("unevaluatedItems" in rules and not is_own):
        evaluated.update(range(len(value)))
        return
    evaluated.update(range(min(len(prefix_schemas), len(value))))
    if "contains" in rules and node.dialect.contains_evaluates:
        evaluated.update(
            index for index, item in enumerate(value) if check.fits_subschema(node, rules["contains"], item)
        )
    for inner in _iterate_applied_nodes(check, node, value):
        _mark_evaluated_items(check, inner, value, evaluated)


def _iterate_applied_nodes(check: CheckProtocol, node: SchemaNode, value: Any) -> Iterator[SchemaNode]:
    """Yield the rules of the sibling schemas that the value itself fits."""
    schema: dict[str, Any] = node.schema
    for keyword in _REFERENCES:
        if keyword in schema and node.dialect.has_keyword(keyword):
            yield check.resolve_reference(node, schema[keyword], recursive=keyword == "$recursiveRef")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(keyword, ()):
            if check.fits_subschema(node, inner, value):
                yield check.get_or_create_node(inner, node)
    if "if" in schema:
        fits = check.fits_subschema(node, schema["if"], value)
        if fits:
            yield check.get_or_create_node(schema["if"], node)
        branch = "then" if fits else "else"
        if branch in schema:
            yield check.get_or_create_node(schema[branch], node)


DEFAULT_DRAFT = "2020-12"
_DRAFT_BY_URI = {
    "http://json-schema.org/draft-04/schema": "4",
    "http://json-schema.org/draft-06/schema": "6",
    "http://json-schema.org/draft-07/schema": "7",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    "https://json-schema.org/draft/2020-12/schema": "2020-12",
}

_DRAFT_BY_NAME = {uri.partition("://")[2]: draft for uri, draft in _DRAFT_BY_URI.items()}

_KEYWORDS_OF_ALL_DRAFTS: dict[str, KeywordFunction] = {
    "$ref": keywords.check_ref,
    "additionalProperties": keywords.check_additional_properties,
    "enum": keywords.check_enum,
    "maxItems": keywords.check_max_items,
    "maxLength": keywords.check_max_length,
    "minItems": keywords.check_min_items,
    "minLength": keywords.check_min_length,
    "pattern": keywords.check_pattern,
    "patternProperties": keywords.check_pattern_properties,
    "uniqueItems": keywords.check_unique_items,
}
_KEYWORDS_BEFORE_2020 = {"items": keywords.check_items_before_2020, "additionalItems": keywords.check_additional_items}
_KEYWORDS_BEFORE_6 = {"minimum": keywords.check_draft_4_minimum, "maximum": keywords.check_draft_4_maximum}
_KEYWORDS_SINCE_4 = {
    "allOf": keywords.check_all_of,
    "anyOf": check_any_of_or_one_of,
    "maxProperties": keywords.check_max_properties,
    "minProperties": keywords.check_min_properties,
    "multipleOf": keywords.check_multiple_of,
    "not": keywords.check_not,
    "oneOf": check_any_of_or_one_of,
    "properties": keywords.check_properties,
    "required": keywords.check_required,
    "type": keywords.check_type,
}
_KEYWORDS_SINCE_6 = {
    "const": keywords.check_const,
    "exclusiveMaximum": keywords.check_exclusive_maximum,
    "exclusiveMinimum": keywords.check_exclusive_minimum,
    "maximum": keywords.check_maximum,
    "minimum": keywords.check_minimum,
    "propertyNames": keywords.check_property_names,
}
_KEYWORDS_SINCE_2019 = {
    "contains": keywords.check_contains,
    "dependentRequired": keywords.check_dependencies,
    "dependentSchemas": keywords.check_dependencies,
    "unevaluatedItems": check_unevaluated_items,
    "unevaluatedProperties": check_unevaluated_properties,
}
_DRAFT_4 = {
    **_KEYWORDS_OF_ALL_DRAFTS,
    **_KEYWORDS_BEFORE_2020,
    **_KEYWORDS_SINCE_4,
    **_KEYWORDS_BEFORE_6,
    "dependencies": keywords.check_dependencies,
}
_DRAFT_6 = {**_DRAFT_4, **_KEYWORDS_SINCE_6, "contains": keywords.check_draft_6_contains}
_DRAFT_7 = {**_DRAFT_6, "if": keywords.check_if}
_DRAFT_2019 = {
    **_KEYWORDS_OF_ALL_DRAFTS,
    **_KEYWORDS_BEFORE_2020,
    **_KEYWORDS_SINCE_4,
    **_KEYWORDS_SINCE_6,
    **_KEYWORDS_SINCE_2019,
    "if": keywords.check_if,
}
_KEYWORDS_BY_DRAFT: dict[str, dict[str, KeywordFunction]] = {
    "4": _DRAFT_4,
    "6": _DRAFT_6,
    "7": _DRAFT_7,
    "2019-09": {**_DRAFT_2019, "$recursiveRef": keywords.check_recursive_ref},
    "2020-12": {
        **{name: apply for name, apply in _DRAFT_2019.items() if name != "additionalItems"},
        "$dynamicRef": keywords.check_ref,
        "items": keywords.check_items,
        "prefixItems": keywords.check_prefix_items,
    },
}


class Dialect:
    """One draft."""

    def __init__(self, draft: str) -> None:
        self._uri = next(uri for uri, name in _DRAFT_BY_URI.items() if name == draft)
        self._keywords = _KEYWORDS_BY_DRAFT[draft]
        self._accepts_whole_floats = draft != "4"
        # In these drafts a reference replaces its sibling keywords.
        self._ref_replaces_siblings = draft in ("4", "6", "7")
        self.contains_evaluates = draft == "2020-12"

    @cached_property
    def specification(self) -> Specification[Any]:
        """Return a function that finds the identifiers and subresources of its schemas."""
        from referencing.jsonschema import specification_with

        return specification_with(self._uri)

    def has_keyword(self, keyword: str) -> bool:
        """Tell whether the draft has a keyword."""
        return keyword in self._keywords

    def list_rules(self, schema: Any) -> tuple[tuple[str, Any, KeywordFunction], ...] | None:
        """Return the keywords of a schema that ask something of a value; None when it takes none."""
        if not isinstance(schema, Mapping):
            return None if schema is False else ()
        rules = cast("Mapping[str, Any]", schema)
        if self._ref_replaces_siblings and "$ref" in rules:
            return (("$ref", rules["$ref"], self._keywords["$ref"]),)
        return tuple((name, rule, self._keywords[name]) for name, rule in rules.items() if name in self._keywords)

    def is_of_type(self, value: Any, types: Any) -> bool:
        """Tell whether a value is of one of these types."""
        if isinstance(types, str):
            return self._is_of_single_type(value, types)
        return any(isinstance(name, str) and self._is_of_single_type(value, name) for name in types)

    def _is_of_single_type(self, value: Any, name: str) -> bool:
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
                is_whole_float = self._accepts_whole_floats and isinstance(value, float) and value.is_integer()
                return is_whole_float or (isinstance(value, int) and not isinstance(value, bool))
            case _:
                return False


@cache
def _get_dialect(draft: str) -> Dialect:
    return Dialect(draft)


def get_declared_draft(schema: Any) -> str | None:
    """Return the draft that a schema names, in either scheme and with or without a fragment; None for no known one."""
    uri = cast("Any", schema).get("$schema") if isinstance(schema, Mapping) else None
    return _DRAFT_BY_NAME.get(uri.rstrip("#").partition("://")[2]) if isinstance(uri, str) else None


def select_dialect(schema: Any, inherited: DialectProtocol | None) -> DialectProtocol:
    """Return the dialect that a schema names, else the inherited one, else 2020-12."""
    draft = get_declared_draft(schema)
    return (inherited or _get_dialect(DEFAULT_DRAFT)) if draft is None else _get_dialect(draft)
