"""Validators of pydantic that take steps and match patterns in linear time. Knows core schemas, no tools.

A validator is one call into C for the whole value. Where it goes through many items, or round a recursive type (where
alternatives take time exponential in the depth), a function in Python is put in its way: it counts, it lets other
threads have the interpreter, and it can stop.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, cast

from ..data.json_shape import holds_more_values_than
from ..data.narrowing import is_array, is_object, is_sequence, list_or_empty, mapping_or_empty
from ..host import steps
from ..host.steps import TooMuchWork
from .patterns import PatternRefused, linear_text

FEW_VALUES = 256
MANY_VALUES = 1 << 13
_FREE_STEPS = 20_000
_STEPS_PER_VALUE = 20
_MOST_VALUES = 1_000_000
_STEPS_IN_JSON = 30_000
_STEPS_FOR_WORDING = 2000

_SCHEMA_KEYS = frozenset(
    {"schema", "items_schema", "keys_schema", "values_schema", "extras_schema", "extras_keys_schema"}
    | {"lax_schema", "strict_schema", "json_schema", "python_schema"}
    | {"arguments_schema", "var_args_schema", "var_kwargs_schema"}
)
_LIST_KEYS = frozenset({"items_schema", "arguments_schema", "steps", "choices", "definitions", "fields"})
_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}

Refuse = Callable[[PatternRefused], None]


class _Budget(threading.local):
    left = 0
    value: Any = None
    is_extended = False
    stops_early = False

    def start(self, value: Any) -> None:
        """Begin with what every value is granted."""
        self.left, self.value, self.is_extended, self.stops_early = _FREE_STEPS, value, False, False

    @property
    def used(self) -> int:
        """How many steps have been taken; many, once they are more than every value is granted."""
        return _MOST_VALUES if self.is_extended else _FREE_STEPS - self.left


_budget = _Budget()


def _tick(value: Any) -> Any:
    _budget.left -= 1
    if _budget.left < 0:
        _extend()
    steps.take()
    return value


def _extend() -> None:
    if _budget.is_extended:
        raise TooMuchWork
    _budget.is_extended = True
    most = 1024
    while most < _MOST_VALUES and holds_more_values_than(_budget.value, most):
        most *= 2
    _budget.left = _STEPS_PER_VALUE * most


def raise_refusal(error: PatternRefused) -> None:
    """Refuse a type that has such a pattern."""
    raise error


class GuardedValidator:
    """What validates plain Python for a pydantic adapter.

    ``refuse`` hears of a pattern that cannot be run: it raises, or the pattern is left out. ``original`` matches
    patterns in linear time too, but takes no steps.
    """

    def __init__(self, adapter: Any, refuse: Refuse) -> None:
        self.original = adapter.validator
        self._core_schema = adapter.core_schema
        self._refuse = refuse
        self._rewrites_patterns = False
        # A setting that stands in no core schema would be lost.
        settings: Mapping[str, Any] = getattr(adapter, "_config", None) or {}
        self._can_be_rewritten = not settings
        seen = _Seen(self._core_schema, settings.get("regex_engine"))
        self._is_recursive = seen.is_recursive
        self._has_items = seen.has_items
        # What it takes to validate is then as long as the schema, whatever the value.
        self._is_plain = not (self._is_recursive or self._has_items)
        self._differs_in_json = seen.differs_in_json
        if seen.needs_linear_patterns and not self._can_be_rewritten:
            raise PatternRefused("a TypeAdapter with a config runs a pattern with Python's engine: write it as text")
        if seen.needs_linear_patterns:
            self._rewrites_patterns = True
            self.original = _validator(self._rewritten(ticks=False, stops_early=False))

    def validate(self, value: Any) -> Any:
        """Return the instance that a value stands for. Raises `ValidationError` and `TooMuchWork`."""
        if self._is_plain:
            return self.original.validate_python(value)
        _budget.start(value)
        try:
            if not self._is_recursive and not (self._has_items and holds_more_values_than(value, FEW_VALUES)):
                return self.original.validate_python(value)
            _budget.stops_early = holds_more_values_than(value, MANY_VALUES)
            if not _budget.stops_early:
                return self._ticking.validate_python(value)
            return steps.without_collector(partial(self._stopping.validate_python, value))
        finally:
            _budget.value = None

    @property
    def in_json(self) -> Any:
        """Return what may validate this thread's last value once more, as JSON, without steps; None: nothing may."""
        if self._is_plain:
            return self.original
        if _budget.stops_early:
            return self._stopping_in_json if self._differs_in_json and not self._is_recursive else None
        most = _STEPS_IN_JSON if self._differs_in_json and not self._is_recursive else _STEPS_FOR_WORDING
        return self.original if _budget.used < most else None

    @cached_property
    def _ticking(self) -> Any:
        return self._guarded(stops_early=False)

    @cached_property
    def _stopping(self) -> Any:
        # Half a million problems would be made, one object each, before anybody could stop it.
        return self._guarded(stops_early=True)

    @cached_property
    def _stopping_in_json(self) -> Any:
        return self._guarded(stops_early=True, ticks=False)

    def _guarded(self, *, stops_early: bool, ticks: bool = True) -> Any:
        if not self._can_be_rewritten:
            return self.original
        try:
            return _validator(self._rewritten(ticks=ticks, stops_early=stops_early))
        except PatternRefused:
            return self.original

    def _rewritten(self, *, ticks: bool, stops_early: bool) -> Any:
        refuse = self._refuse if self._rewrites_patterns else None
        return _Rewriting(refuse, ticks=ticks, stops_early=stops_early).of(self._core_schema)


def _validator(core_schema: Any) -> Any:
    """Return a validator of exactly this schema. Raises `PatternRefused` where pydantic cannot make one."""
    from pydantic_core import SchemaValidator

    try:
        return SchemaValidator(core_schema, None, _use_prebuilt=False)
    except TypeError:
        made = SchemaValidator(core_schema)  # of a pydantic that cannot be told so
    if "Prebuilt" in repr(made):  # a model's own, which knows nothing of what was changed
        raise PatternRefused("this version of pydantic runs a pattern with Python's engine: write it as text")
    return made


class _Seen:
    """What there is in a core schema."""

    def __init__(self, core_schema: Any, engine: str | None) -> None:
        self.has_items = self.differs_in_json = False
        self.needs_linear_patterns = False
        self._uses_python = engine == "python-re"
        self._has_patterns = False
        self._led_to: dict[str, set[str]] = {}
        self._look(core_schema, "")
        self.needs_linear_patterns |= self._uses_python and self._has_patterns
        self.is_recursive = any(self._leads_back(name) for name in self._led_to)

    def _look(self, schema: Any, inside: str) -> None:
        pending: list[tuple[Any, str]] = [(schema, inside)]
        while pending:
            item, inside = pending.pop()
            if is_sequence(item):
                pending += [(one, inside) for one in item]
            if not is_object(item):
                continue
            inside = item.get("ref", inside)
            self._note(item, inside)
            pending += [(child, inside) for child in _children(item)]

    def _note(self, said: dict[str, Any], inside: str) -> None:
        kind = said.get("type")
        self.has_items |= kind in ("list", "tuple", "set", "frozenset", "dict")
        self.differs_in_json |= said.get("strict") is True or kind in ("json-or-python", "is-instance")
        for place in (said, mapping_or_empty(said.get("config"))):
            self._uses_python |= place.get("regex_engine") == "python-re"
            self.differs_in_json |= place.get("strict") is True
        if kind == "str" and said.get("pattern") is not None:
            self._has_patterns = True
            self.needs_linear_patterns |= not isinstance(said["pattern"], str)
        if kind == "definition-ref":
            self._led_to.setdefault(inside, set()).add(str(said.get("schema_ref")))

    def _leads_back(self, name: str) -> bool:
        seen, pending = set[str](), [*self._led_to[name]]
        while pending:
            target = pending.pop()
            if target == name:
                return True
            if target not in seen:
                seen.add(target)
                pending += self._led_to.get(target, ())
        return False


def _children(said: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = [said[key] for key in _SCHEMA_KEYS if key in said and isinstance(said[key], dict | list)]
    for key in _LIST_KEYS - _SCHEMA_KEYS:
        value: Any = said.get(key)
        found.extend(value.values() if is_object(value) else list_or_empty(value))
    return found


class _Rewriting:
    """Copies a core schema, with what guards it put in. ``refuse`` None leaves patterns alone: they are linear."""

    def __init__(self, refuse: Refuse | None, *, ticks: bool, stops_early: bool) -> None:
        self._refuse = refuse
        self._ticks = ticks
        self._stops_early = stops_early

    def of(self, schema: Any) -> Any:
        """Copy a core schema, or what stands in its place in another one."""
        if is_array(schema):
            return [self.of(one) for one in schema]
        if isinstance(schema, tuple):  # an alternative and its label
            labelled = cast("tuple[Any, ...]", schema)
            return (self.of(labelled[0]), *labelled[1:])
        if not is_object(schema):
            return schema
        said = dict(schema)
        for key in said.keys() & (_SCHEMA_KEYS | _LIST_KEYS):
            said[key] = self._inner(said.get("type"), key, said[key])
        if said.get("type") == "str" and said.get("pattern") is not None and self._refuse is not None:
            return _with_linear_pattern(said, self._refuse)
        if self._stops_early and said.get("type") in ("list", "tuple", "set", "frozenset"):
            said["fail_fast"] = True
        return said

    def _inner(self, kind: Any, key: str, value: Any) -> Any:
        if is_object(value) and key in ("fields", "choices"):
            return {name: self.of(one) for name, one in value.items()}
        made = self.of(value)
        if not self._ticks or not (key in ("items_schema", "definitions") or (kind, key) == ("dict", "values_schema")):
            return made
        return [_ticking(one) for one in made] if is_array(made) else _ticking(made)


def _with_linear_pattern(said: dict[str, Any], refuse: Refuse) -> dict[str, Any]:
    try:
        pattern = linear_text(_text_of(said["pattern"]))
    except PatternRefused as error:
        refuse(error)
        return {key: value for key, value in said.items() if key != "pattern"}
    return {**said, "pattern": pattern, "regex_engine": "rust-regex"}


def _text_of(pattern: str | re.Pattern[str]) -> str:
    if isinstance(pattern, str):
        return pattern
    flags = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    return f"(?{flags}){pattern.pattern}" if flags else pattern.pattern


def _ticking(schema: dict[str, Any]) -> dict[str, Any]:
    from pydantic_core import core_schema

    said = dict(schema)
    reference = said.pop("ref", None)
    made: Any = core_schema.no_info_before_validator_function(_tick, cast("Any", said), ref=reference)
    return made
