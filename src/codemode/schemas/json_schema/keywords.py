"""Keywords of JSON Schema, in every draft, as functions of a rule and a value.

A keyword is ``(check, node, rule, value, path)`` and yields the problems of the value; ``node`` is the schema that
contains the rule. Each takes steps as its work grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

from ...data.json_values import encode_canonical_json
from ...data.narrowing import is_array, is_object
from ..match_cost import search_within_budget
from ..patterns import PatternRefusedError
from .checking import CheckProtocol, KeywordFunction, Path, SchemaNode, ValidationFailure

# A thousand digits before the point, as many as an integer may have, and the 324 behind it that a double may.
_EXACT_DECIMALS = Context(prec=1_400, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])  # of infinity nothing is a multiple


def _create_keyword_function(is_broken: Callable[[Any, Any], bool]) -> KeywordFunction:
    """Return a keyword function for a predicate that tells whether a value breaks a rule."""

    def check_value(
        _check: CheckProtocol, _node: SchemaNode, rule: Any, value: Any, path: Path
    ) -> Iterator[ValidationFailure]:
        if is_broken(value, rule):
            yield ValidationFailure(value, path)

    return check_value


# --- any value ---


def check_type(
    _check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if not node.dialect.is_of_type(value, rule):
        yield ValidationFailure(value, path)


def check_enum(
    check: CheckProtocol, _node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    check.spend_steps(len(rule) >> 3)
    if not any(are_equal(check, choice, value) for choice in rule):
        yield ValidationFailure(value, path)


def check_const(
    check: CheckProtocol, _node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if not are_equal(check, rule, value):
        yield ValidationFailure(value, path)


def are_equal(check: CheckProtocol, first: Any, two: Any) -> bool:
    """Compare as JSON Schema does: 1 is 1.0, and True is not 1."""
    if is_array(first) and is_array(two):
        check.spend_steps(1 + (len(first) >> 3))
        return len(first) == len(two) and all(
            are_equal(check, left_item, right_item) for left_item, right_item in zip(first, two, strict=True)
        )
    if is_object(first) and is_object(two):
        check.spend_steps(1 + (len(first) >> 3))
        return len(first) == len(two) and all(
            name in two and are_equal(check, item, two[name]) for name, item in first.items()
        )
    return isinstance(first, bool) == isinstance(two, bool) and bool(first == two)


# --- sizes ---


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


check_minimum = _create_keyword_function(lambda value, rule: _is_number(value) and value < rule)
check_maximum = _create_keyword_function(lambda value, rule: _is_number(value) and value > rule)
check_exclusive_minimum = _create_keyword_function(lambda value, rule: _is_number(value) and value <= rule)
check_exclusive_maximum = _create_keyword_function(lambda value, rule: _is_number(value) and value >= rule)
check_multiple_of = _create_keyword_function(lambda value, rule: _is_number(value) and not _is_multiple(value, rule))
check_min_length = _create_keyword_function(lambda value, rule: isinstance(value, str) and len(value) < rule)
check_max_length = _create_keyword_function(lambda value, rule: isinstance(value, str) and len(value) > rule)
check_min_items = _create_keyword_function(lambda value, rule: is_array(value) and len(value) < rule)
check_max_items = _create_keyword_function(lambda value, rule: is_array(value) and len(value) > rule)
check_min_properties = _create_keyword_function(lambda value, rule: is_object(value) and len(value) < rule)
check_max_properties = _create_keyword_function(lambda value, rule: is_object(value) and len(value) > rule)


def check_draft_4_minimum(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    apply = check_exclusive_minimum if node.schema.get("exclusiveMinimum") is True else check_minimum
    return apply(check, node, rule, value, path)


def check_draft_4_maximum(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    apply = check_exclusive_maximum if node.schema.get("exclusiveMaximum") is True else check_maximum
    return apply(check, node, rule, value, path)


def _is_multiple(value: Any, factor: Any) -> bool:
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    # As decimal fractions, which is how both are written: 4.01 is a multiple of 0.01, though no double is.
    return bool(_EXACT_DECIMALS.remainder(_to_decimal(value), _to_decimal(factor)) == 0)


def _to_decimal(number: float) -> Decimal:
    return Decimal(number) if isinstance(number, int) else Decimal(float.__repr__(number))


# --- strings ---


def check_pattern(
    check: CheckProtocol, _node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if isinstance(value, str) and not matches_pattern(check, rule, value):
        yield ValidationFailure(value, path)


def matches_pattern(check: CheckProtocol, rule: str, text: str) -> bool:
    """Tell whether a text holds what a pattern describes. Raises `WorkLimitError` where that may take too long."""
    try:
        return search_within_budget(rule, text, check.spend_steps)
    except PatternRefusedError:
        # Only a reference into a part that is no schema leads here: all others were checked before.
        return False


# --- arrays ---


def check_items(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if is_array(value):
        first = len(node.schema.get("prefixItems", ()))
        yield from _check_items_from(check, node, rule, value, path, first)


def check_prefix_items(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if is_array(value):
        for index, (schema, item) in enumerate(zip(rule, value, strict=False)):
            yield from check.iterate_subschema_failures(node, schema, item, (path, index))


def check_items_before_2020(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if is_array(rule):
        yield from check_prefix_items(check, node, rule, value, path)
    elif is_array(value):
        yield from _check_items_from(check, node, rule, value, path, 0)


def check_additional_items(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if is_array(value) and is_array(node.schema.get("items")):
        yield from _check_items_from(check, node, rule, value, path, len(node.schema["items"]))


def _check_items_from(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: list[Any], path: Path, start: int
) -> Iterator[ValidationFailure]:
    inner = check.get_or_create_node(rule, node)
    if inner.rules == ():
        return
    for index in range(start, len(value)):
        yield from check.iterate_failures(inner, value[index], (path, index))


def check_unique_items(
    check: CheckProtocol, _node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if not rule or not is_array(value):
        return
    seen: set[Any] = set()
    for item in value:
        key: Any = (isinstance(item, bool), item)
        if isinstance(item, dict | list):
            key = encode_canonical_json(item)
            check.spend_steps(len(key) >> 6)
        elif isinstance(item, str):
            key = (None, item)  # a key that no container's text equals
        check.spend_steps()
        if key in seen:
            yield ValidationFailure(value, path)
            return
        seen.add(key)


def check_contains(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if not is_array(value):
        return
    min_count, max_count = node.schema.get("minContains", 1), node.schema.get("maxContains")
    count = 0
    for item in value:
        count += check.fits_subschema(node, rule, item)
        if count >= min_count and max_count is None:
            return
        if max_count is not None and count > max_count:
            yield ValidationFailure(value, path)
            return
    if count < min_count:
        yield ValidationFailure(value, path)


def check_draft_6_contains(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if is_array(value) and not any(check.fits_subschema(node, rule, item) for item in value):
        yield ValidationFailure(value, path)


# --- objects ---


def check_properties(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if is_object(value):
        check.spend_steps(len(rule) >> 3)
        for name, schema in rule.items():
            if name in value:
                yield from check.iterate_subschema_failures(node, schema, value[name], (path, name))


def check_pattern_properties(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if is_object(value):
        for pattern_text, schema in rule.items():
            for name, item in value.items():
                if matches_pattern(check, pattern_text, name):
                    yield from check.iterate_subschema_failures(node, schema, item, (path, name))


def check_additional_properties(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if not is_object(value) or rule is True:
        return
    check.spend_steps(len(value) >> 3)
    declared, patterns = node.schema.get("properties", {}), node.schema.get("patternProperties", {})
    extras = (
        name
        for name in value
        if name not in declared and not any(matches_pattern(check, pattern_text, name) for pattern_text in patterns)
    )
    if rule is False:
        refused = list(extras)
        if refused:
            yield ValidationFailure(value, path, names=refused)
        return
    for name in extras:
        yield from check.iterate_subschema_failures(node, rule, value[name], (path, name))


def check_property_names(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if is_object(value):
        for name in value:
            yield from check.iterate_subschema_failures(node, rule, name, path)


def check_required(
    check: CheckProtocol, _node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    if is_object(value):
        check.spend_steps(len(rule) >> 3)
        if any(name not in value for name in rule):
            yield ValidationFailure(value, path)


def check_dependencies(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    """The keyword that later drafts split into two, and both of those."""
    if not is_object(value):
        return
    for name, dependency in rule.items():
        if name not in value:
            continue
        if isinstance(dependency, dict | bool):
            yield from check.iterate_subschema_failures(node, dependency, value, path)
        elif any(other not in value for other in ([dependency] if isinstance(dependency, str) else dependency)):
            yield ValidationFailure(value, path)


# --- other schemas ---


def check_all_of(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    for schema in rule:
        yield from check.iterate_subschema_failures(node, schema, value, path)


def check_not(check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path) -> Iterator[ValidationFailure]:
    if check.fits_subschema(node, rule, value):
        yield ValidationFailure(value, path)


def check_if(check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path) -> Iterator[ValidationFailure]:
    branch = "then" if check.fits_subschema(node, rule, value) else "else"
    if branch in node.schema:
        yield from check.iterate_subschema_failures(node, node.schema[branch], value, path)


def check_ref(check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path) -> Iterator[ValidationFailure]:
    return check.iterate_reference_failures(check.resolve_reference(node, rule), value, path)


def check_recursive_ref(
    check: CheckProtocol, node: SchemaNode, rule: Any, value: Any, path: Path
) -> Iterator[ValidationFailure]:
    return check.iterate_reference_failures(check.resolve_reference(node, rule, recursive=True), value, path)
