"""The keywords of jsonschema, made to end in bounded time on hostile values. Knows nothing of tools.

Three of them need it: ``pattern`` and its like (Python's engine backtracks), ``uniqueItems`` (quadratic), and recursive
alternatives (exponential in the depth of the value).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, cast

from .values import canonical_json

MAX_BACKTRACKING_CHARACTERS = 1000
_FREE_STEPS = 100_000
_STEPS_PER_NODE = 20

Keyword = Callable[[Any, Any, Any, Any], Iterator[Any]]


class TooMuchWork(Exception):  # noqa: N818 - never leaves this package
    """Checking a value would take out of proportion long."""


class _Steps(threading.local):
    taken = 0
    allowed = _FREE_STEPS
    value: Any = None

    def start(self, value: Any) -> None:
        self.taken, self.allowed, self.value = 0, _FREE_STEPS, value

    def take(self) -> None:
        self.taken += 1
        if self.taken > self.allowed:
            if self.allowed != _FREE_STEPS:
                raise TooMuchWork
            self.allowed = _FREE_STEPS + 1 + _STEPS_PER_NODE * _count_nodes(self.value)


_STEPS = _Steps()


def start_check(value: Any) -> None:
    """Grant the check of ``value`` that follows in this thread a number of steps that its size justifies."""
    _STEPS.start(value)


@cache
def bounded(validator_class: Any) -> Any:
    """Give the validator class of a draft with every keyword bounded."""
    from jsonschema import validators

    replaced = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    keywords = cast("Mapping[str, Keyword]", validator_class.VALIDATORS)
    return cast("Any", validators).extend(
        validator_class, {name: _counted(replaced.get(name, check)) for name, check in keywords.items()}
    )


def check_patterns(schema: Any) -> None:
    """Compile every pattern of a schema. Raises `ValueError` for one that is no regular expression."""
    pending = [schema]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(cast("list[Any]", item))
        elif isinstance(item, dict):
            rules = cast("dict[str, Any]", item)
            if isinstance(rules.get("pattern"), str):
                _compile(rules["pattern"])
            if isinstance(rules.get("patternProperties"), dict):
                for pattern in rules["patternProperties"]:
                    _compile(pattern)
            pending.extend(value for key, value in rules.items() if key not in ("const", "enum", "default", "examples"))


def _counted(check: Keyword) -> Keyword:
    def counted(validator: Any, rule: Any, instance: Any, schema: Any) -> Any:
        _STEPS.take()
        return check(validator, rule, instance, schema)

    return counted


def _count_nodes(value: Any) -> int:
    count, pending = 0, [value]
    while pending:
        item = pending.pop()
        count += 1
        if isinstance(item, dict):
            pending.extend(cast("dict[str, Any]", item).values())
        elif isinstance(item, list):
            pending.extend(cast("list[Any]", item))
    return count


@cache
def _compile(pattern: str) -> Callable[[str], bool]:
    # The Rust engine behind pydantic runs in linear time, and knows \p{L} and (?<name>) as JavaScript does.
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
    except SchemaError:
        pass
    try:
        backtracking = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression: {error}") from None

    def search(text: str) -> bool:
        # Look-around needs backtracking; on a short text even a careless pattern mostly ends.
        if len(text) > MAX_BACKTRACKING_CHARACTERS:
            raise TooMuchWork
        return backtracking.search(text) is not None

    return search


def _pattern(validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if validator.is_type(instance, "string") and not _compile(pattern)(instance):
        yield ValidationError("does not match the pattern")


def _pattern_properties(validator: Any, rules: Mapping[str, Any], instance: Any, _schema: Any) -> Iterator[Any]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, subschema in rules.items():
        for name, value in instance.items():
            if _compile(pattern)(name):
                yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if not validator.is_type(instance, "object"):
        return
    named = schema.get("properties", {})
    patterns = [_compile(pattern) for pattern in schema.get("patternProperties", {})]
    extras = [name for name in instance if name not in named and not any(fits(name) for fits in patterns)]
    if rule is False and extras:
        yield ValidationError(f"does not take {', '.join(map(repr, extras))}")
    elif isinstance(rule, dict):
        for name in extras:
            yield from validator.descend(instance[name], rule, path=name)


def _unique_items(validator: Any, rule: Any, instance: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if (
        rule
        and validator.is_type(instance, "array")
        and len(set(map(canonical_json, instance))) < len(cast("list[Any]", instance))
    ):
        yield ValidationError("has the same item twice")
