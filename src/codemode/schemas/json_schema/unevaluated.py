"""Members of a value that no other rule has looked at, for ``unevaluatedProperties`` and ``unevaluatedItems``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...data.narrowing import is_array, is_object
from .checking import Checking, Rules
from .failures import Failure, Path

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
