"""Keywords of JSON Schema, in every draft, as functions of a rule and a value. Each takes steps as its work grows.

A keyword is ``(check, node, rule, value, path)`` and yields what the value breaks; ``node`` are the rules it stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any

from ...data.json_values import canonical_json
from ...data.narrowing import is_array, is_object
from ..match_cost import find
from ..patterns import PatternRefused
from .checking import Checking, Failure, Keyword, Path, Rules

# A thousand digits before the point, as many as an integer may have, and the 324 behind it that a double may.
_EXACT = Context(prec=1_400, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])  # of infinity nothing is a multiple


def _asks(breaks: Callable[[Any, Any], bool]) -> Keyword:
    """Make a keyword of what says whether a value breaks a rule, at once."""

    def apply(_check: Checking, _node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
        if breaks(value, rule):
            yield Failure(value, path)

    return apply


# --- any value ---


def type_(_check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if not node.dialect.is_of(value, rule):
        yield Failure(value, path)


def enum(check: Checking, _node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    check.take(len(rule) >> 3)
    if not any(equal(check, choice, value) for choice in rule):
        yield Failure(value, path)


def const(check: Checking, _node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if not equal(check, rule, value):
        yield Failure(value, path)


def equal(check: Checking, one: Any, two: Any) -> bool:
    """Compare as JSON Schema does: 1 is 1.0, and True is not 1."""
    if is_array(one) and is_array(two):
        check.take(1 + (len(one) >> 3))
        return len(one) == len(two) and all(equal(check, left, right) for left, right in zip(one, two, strict=True))
    if is_object(one) and is_object(two):
        check.take(1 + (len(one) >> 3))
        return len(one) == len(two) and all(name in two and equal(check, item, two[name]) for name, item in one.items())
    return isinstance(one, bool) == isinstance(two, bool) and bool(one == two)


# --- sizes ---


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


minimum = _asks(lambda value, rule: _is_number(value) and value < rule)
maximum = _asks(lambda value, rule: _is_number(value) and value > rule)
exclusive_minimum = _asks(lambda value, rule: _is_number(value) and value <= rule)
exclusive_maximum = _asks(lambda value, rule: _is_number(value) and value >= rule)
multiple_of = _asks(lambda value, rule: _is_number(value) and not _is_multiple(value, rule))
min_length = _asks(lambda value, rule: isinstance(value, str) and len(value) < rule)
max_length = _asks(lambda value, rule: isinstance(value, str) and len(value) > rule)
min_items = _asks(lambda value, rule: is_array(value) and len(value) < rule)
max_items = _asks(lambda value, rule: is_array(value) and len(value) > rule)
min_properties = _asks(lambda value, rule: is_object(value) and len(value) < rule)
max_properties = _asks(lambda value, rule: is_object(value) and len(value) > rule)


def old_minimum(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    apply = exclusive_minimum if node.schema.get("exclusiveMinimum") is True else minimum
    return apply(check, node, rule, value, path)


def old_maximum(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    apply = exclusive_maximum if node.schema.get("exclusiveMaximum") is True else maximum
    return apply(check, node, rule, value, path)


def _is_multiple(value: Any, factor: Any) -> bool:
    if isinstance(value, int) and isinstance(factor, int):
        return value % factor == 0
    # As decimal fractions, which is how both are written: 4.01 is a multiple of 0.01, though no double is.
    return bool(_EXACT.remainder(_decimal(value), _decimal(factor)) == 0)


def _decimal(number: float) -> Decimal:
    return Decimal(number) if isinstance(number, int) else Decimal(float.__repr__(number))


# --- strings ---


def pattern(check: Checking, _node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if isinstance(value, str) and not matches(check, rule, value):
        yield Failure(value, path)


def matches(check: Checking, rule: str, text: str) -> bool:
    """Tell whether a text holds what a pattern describes. Raises `TooMuchWork` where that may take too long."""
    try:
        return find(rule, text, check.take)
    except PatternRefused:
        # Only a reference into what is no schema for anybody leads to one: all others were looked at before.
        return False


# --- arrays ---


def items(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if is_array(value):
        first = len(node.schema.get("prefixItems", ()))
        yield from _each(check, node, rule, value, path, first)


def prefix_items(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if is_array(value):
        for index, (schema, item) in enumerate(zip(rule, value, strict=False)):
            yield from check.inside(node, schema, item, (path, index))


def old_items(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if is_array(rule):
        yield from prefix_items(check, node, rule, value, path)
    elif is_array(value):
        yield from _each(check, node, rule, value, path, 0)


def additional_items(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if is_array(value) and is_array(node.schema.get("items")):
        yield from _each(check, node, rule, value, path, len(node.schema["items"]))


def _each(check: Checking, node: Rules, rule: Any, value: list[Any], path: Path, first: int) -> Iterator[Failure]:
    inner = check.rules_of(rule, node)
    if inner.rules == ():
        return
    for index in range(first, len(value)):
        yield from check.failures(inner, value[index], (path, index))


def unique_items(check: Checking, _node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if not rule or not is_array(value):
        return
    seen: set[Any] = set()
    for item in value:
        key: Any = (isinstance(item, bool), item)
        if isinstance(item, dict | list):
            key = canonical_json(item)
            check.take(len(key) >> 6)
        elif isinstance(item, str):
            key = (None, item)  # apart from what containers are written as
        check.take()
        if key in seen:
            yield Failure(value, path)
            return
        seen.add(key)


def contains(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if not is_array(value):
        return
    least, most = node.schema.get("minContains", 1), node.schema.get("maxContains")
    found = 0
    for item in value:
        found += check.fits(node, rule, item)
        if found >= least and most is None:
            return
        if most is not None and found > most:
            yield Failure(value, path)
            return
    if found < least:
        yield Failure(value, path)


def old_contains(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if is_array(value) and not any(check.fits(node, rule, item) for item in value):
        yield Failure(value, path)


# --- objects ---


def properties(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if is_object(value):
        check.take(len(rule) >> 3)
        for name, schema in rule.items():
            if name in value:
                yield from check.inside(node, schema, value[name], (path, name))


def pattern_properties(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if is_object(value):
        for wanted, schema in rule.items():
            for name, item in value.items():
                if matches(check, wanted, name):
                    yield from check.inside(node, schema, item, (path, name))


def additional_properties(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if not is_object(value) or rule is True:
        return
    check.take(len(value) >> 3)
    named, patterns = node.schema.get("properties", {}), node.schema.get("patternProperties", {})
    extras = (
        name for name in value if name not in named and not any(matches(check, wanted, name) for wanted in patterns)
    )
    if rule is False:
        refused = list(extras)
        if refused:
            yield Failure(value, path, names=refused)
        return
    for name in extras:
        yield from check.inside(node, rule, value[name], (path, name))


def property_names(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if is_object(value):
        for name in value:
            yield from check.inside(node, rule, name, path)


def required(check: Checking, _node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if is_object(value):
        check.take(len(rule) >> 3)
        if any(name not in value for name in rule):
            yield Failure(value, path)


def dependencies(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    """The keyword that later drafts split into two, and both of those."""
    if not is_object(value):
        return
    for name, wanted in rule.items():
        if name not in value:
            continue
        if isinstance(wanted, dict | bool):
            yield from check.inside(node, wanted, value, path)
        elif any(other not in value for other in ([wanted] if isinstance(wanted, str) else wanted)):
            yield Failure(value, path)


# --- other schemas ---


def all_of(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    for schema in rule:
        yield from check.inside(node, schema, value, path)


def not_(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    if check.fits(node, rule, value):
        yield Failure(value, path)


def if_(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    branch = "then" if check.fits(node, rule, value) else "else"
    if branch in node.schema:
        yield from check.inside(node, node.schema[branch], value, path)


def ref(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    return check.referred(check.resolve(node, rule), value, path)


def recursive_ref(check: Checking, node: Rules, rule: Any, value: Any, path: Path) -> Iterator[Failure]:
    return check.referred(check.resolve(node, rule, recursive=True), value, path)
