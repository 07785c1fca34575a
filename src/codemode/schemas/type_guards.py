"""Validators and patterns of pydantic types that take steps and match in linear time."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from ..cached_property import cached_property
from ..data.json_shape import holds_more_values_than, weigh
from ..data.narrowing import is_array, is_object, is_sequence, list_or_empty, mapping_or_empty
from ..host import steps
from ..host.steps import TooMuchWork
from .match_cost import MOST_UNITS, UNITS_OF_A_STEP, Take, find
from .patterns import PatternRefused, automaton_size, linear_text

_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}

Refuse = Callable[[PatternRefused], None]


def raise_refusal(error: PatternRefused) -> None:
    """Refuse a type that has such a pattern."""
    raise error


def places_in_pattern(said: dict[str, Any]) -> int:
    """Return at how many places a match of the pattern of a string may be."""
    return automaton_size(_text_of(said["pattern"]))


def with_linear_pattern(said: dict[str, Any], refuse: Refuse) -> dict[str, Any]:
    """Return the schema of a string with its pattern as the linear engine takes it, or without."""
    try:
        pattern = linear_text(_text_of(said["pattern"]))
    except PatternRefused as error:
        refuse(error)
        return {key: value for key, value in said.items() if key != "pattern"}
    return {**said, "pattern": pattern, "regex_engine": "rust-regex"}


def with_weighed_pattern(said: dict[str, Any], take: Take) -> Any:
    """Return the schema of a string whose pattern is matched by a function, which accounts for it by ``take``.

    It sees the string as pydantic matches it: not too long, stripped, and in lower case only afterwards.
    """
    from pydantic_core import PydanticKnownError, core_schema

    pattern: str = said["pattern"]

    def matched(text: str) -> str:
        if not find(pattern, text, take, is_rusts=True):
            raise PydanticKnownError("string_pattern_mismatch", {"pattern": pattern})
        return text

    plain: Any = {key: value for key, value in said.items() if key not in ("pattern", "regex_engine", "ref")}
    as_given: Any = {**plain, "to_lower": False, "to_upper": False}
    fitting = core_schema.no_info_after_validator_function(matched, as_given)
    return core_schema.chain_schema([fitting, plain], ref=said.get("ref"))


def _text_of(pattern: str | re.Pattern[str]) -> str:
    if isinstance(pattern, str):
        return pattern
    flags = "".join(letter for flag, letter in _FLAGS.items() if pattern.flags & flag)
    return f"(?{flags}){pattern.pattern}" if flags else pattern.pattern


# A validator is one call into C for the whole value. Where it goes through many items, or round a recursive type (where
# alternatives take time exponential in the depth), a function in Python is put in its way: it counts, it lets other
# threads have the interpreter, and it can stop.

FEW_VALUES = 256
MANY_VALUES = 1 << 13
_FREE_STEPS = 20_000
_STEPS_PER_VALUE = 20
_MOST_VALUES = 1_000_000
_STEPS_IN_JSON = 30_000
_STEPS_FOR_WORDING = 2000
_UNITS_AT_ONCE = 50_000

_SCHEMA_KEYS = frozenset(
    {"schema", "items_schema", "keys_schema", "values_schema", "extras_schema", "extras_keys_schema"}
    | {"lax_schema", "strict_schema", "json_schema", "python_schema"}
    | {"arguments_schema", "var_args_schema", "var_kwargs_schema"}
)
_LIST_KEYS = frozenset({"items_schema", "arguments_schema", "steps", "choices", "definitions", "fields"})
_CHOSEN_STRING = "constrained-str"
"""What pydantic calls a string with a pattern, where it is an alternative."""


class _Budget(threading.local):
    left = 0
    value: Any = None
    is_extended = False
    stops_early = False
    is_long = False

    def start(self, value: Any, *, is_long: bool = False) -> None:
        """Begin with what every value is granted. ``is_long``: it has more text than patterns may see unweighed."""
        self.left, self.value, self.is_extended, self.stops_early = _FREE_STEPS, value, False, False
        self.is_long = is_long

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


def _take(count: int) -> None:
    """Account for a match of a pattern."""
    _budget.left -= count
    if _budget.left < 0:
        _extend()
    steps.take(count)


def _extend() -> None:
    if _budget.is_extended:
        raise TooMuchWork
    _budget.is_extended = True
    most = 1024
    while most < _MOST_VALUES and holds_more_values_than(_budget.value, most):
        most *= 2
    _budget.left = _STEPS_PER_VALUE * most


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
        settings: Mapping[str, Any] = getattr(adapter, "_config", None) or {}
        self._config = _core_config(settings)
        seen = _Seen(self._core_schema, settings.get("regex_engine"))
        self._is_recursive = seen.is_recursive
        self._places = seen.places
        self._has_items = seen.has_items
        # What it takes to validate is then as long as the schema, whatever the value.
        self._is_plain = not (self._is_recursive or self._has_items)
        self._differs_in_json = seen.differs_in_json
        if seen.needs_linear_patterns and settings:
            raise PatternRefused("a TypeAdapter with a config runs a pattern with Python's engine: write it as text")
        if seen.needs_linear_patterns:
            self._rewrites_patterns = True
            self.original = _validator(self._rewritten(ticks=False, stops_early=False, weighs=False), None)

    def validate(self, value: Any) -> Any:
        """Return the instance that a value stands for. Raises `ValidationError` and `TooMuchWork`."""
        is_long = bool(self._places) and self._has_text_for(value, _UNITS_AT_ONCE)
        if self._is_plain and not self._places:
            return self.original.validate_python(value)
        _budget.start(value, is_long=is_long)
        try:
            if not (is_long or self._is_recursive or (self._has_items and holds_more_values_than(value, FEW_VALUES))):
                return self.original.validate_python(value)
            if is_long and self._ticking is self.original:
                self._refuse_too_long(value)
            _budget.stops_early = holds_more_values_than(value, MANY_VALUES)
            if not _budget.stops_early:
                return self._ticking.validate_python(value)
            return steps.without_collector(partial(self._stopping.validate_python, value))
        finally:
            _budget.value = None

    def _has_text_for(self, value: Any, units: int) -> bool:
        """Tell whether all patterns on all of the text of a value may take so much."""
        enough = max(units // self._places, 1)
        return weigh(value, enough) >= enough

    def _refuse_too_long(self, value: Any) -> None:
        """Raise `TooMuchWork` for text that nothing can be put in the way of, and that may take too long."""
        if self._has_text_for(value, MOST_UNITS):
            raise TooMuchWork
        steps.take(MOST_UNITS // UNITS_OF_A_STEP)

    @property
    def in_json(self) -> Any:
        """Return what may validate this thread's last value once more, as JSON, without steps; None: nothing may.

        Only patterns take some even then, where there is much text.
        """
        if self._is_plain:
            return self._weighing if self._places and _budget.is_long else self.original
        if _budget.stops_early:
            return self._stopping_in_json if self._differs_in_json and not self._is_recursive else None
        most = _STEPS_IN_JSON if self._differs_in_json and not self._is_recursive else _STEPS_FOR_WORDING
        if _budget.used >= most:
            return None
        return self._weighing if _budget.is_long else self.original

    @cached_property
    def _ticking(self) -> Any:
        return self._guarded(stops_early=False)

    @cached_property
    def _weighing(self) -> Any:
        return self._guarded(stops_early=False, ticks=False)

    @cached_property
    def _stopping(self) -> Any:
        # Half a million problems would be made, one object each, before anybody could stop it.
        return self._guarded(stops_early=True)

    @cached_property
    def _stopping_in_json(self) -> Any:
        return self._guarded(stops_early=True, ticks=False)

    def _guarded(self, *, stops_early: bool, ticks: bool = True) -> Any:
        if self._config is None:
            return self.original
        try:
            return _validator(self._rewritten(ticks=ticks, stops_early=stops_early), self._config or None)
        except PatternRefused:
            return self.original

    def _rewritten(self, *, ticks: bool, stops_early: bool, weighs: bool = True) -> Any:
        refuse = self._refuse if self._rewrites_patterns else None
        return _Rewriting(refuse, ticks=ticks, stops_early=stops_early, weighs=weighs).of(self._core_schema)


def _core_config(settings: Mapping[str, Any]) -> Any:
    """Return settings that stand in no core schema, as it takes them; None for some that would be lost."""
    if not settings:
        return {}
    from pydantic_core.core_schema import CoreConfig

    return settings if settings.keys() <= CoreConfig.__annotations__.keys() else None


def _validator(core_schema: Any, config: Any) -> Any:
    """Return a validator of exactly this schema. Raises `PatternRefused` where pydantic cannot make one."""
    from pydantic_core import SchemaValidator

    try:
        return SchemaValidator(core_schema, config, _use_prebuilt=False)
    except TypeError:
        made = SchemaValidator(core_schema, config)  # of a pydantic that cannot be told so
    if "Prebuilt" in repr(made):  # a model's own, which knows nothing of what was changed
        raise PatternRefused("this version of pydantic runs a pattern with Python's engine: write it as text")
    return made


class _Seen:
    """What there is in a core schema."""

    def __init__(self, core_schema: Any, engine: str | None) -> None:
        self.has_items = self.differs_in_json = False
        self.needs_linear_patterns = False
        self.places = 0
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
        if _has_pattern(said):
            self._has_patterns = True
            self.places += places_in_pattern(said)
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
    """Copies a core schema, with what guards it put in. ``refuse`` None leaves patterns as they are: linear."""

    def __init__(self, refuse: Refuse | None, *, ticks: bool, stops_early: bool, weighs: bool) -> None:
        self._refuse = refuse
        self._ticks = ticks
        self._stops_early = stops_early
        self._weighs = weighs

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
        if _has_pattern(said):
            return self._pattern(said)
        if self._stops_early and said.get("type") in ("list", "tuple", "set", "frozenset"):
            said["fail_fast"] = True
        return said

    def _pattern(self, said: dict[str, Any]) -> Any:
        linear = said if self._refuse is None else with_linear_pattern(said, self._refuse)
        return with_weighed_pattern(linear, _take) if self._weighs and "pattern" in linear else linear

    def _inner(self, kind: Any, key: str, value: Any) -> Any:
        if is_object(value) and key in ("fields", "choices"):
            return {name: self.of(one) for name, one in value.items()}
        if key == "choices" and is_array(value) and self._weighs:
            value = [(one, _CHOSEN_STRING) if is_object(one) and _has_pattern(one) else one for one in value]
        made = self.of(value)
        if not self._ticks or not (key in ("items_schema", "definitions") or (kind, key) == ("dict", "values_schema")):
            return made
        return [_ticking(one) for one in made] if is_array(made) else _ticking(made)


def _has_pattern(said: Mapping[str, Any]) -> bool:
    return said.get("type") == "str" and said.get("pattern") is not None


def _ticking(schema: dict[str, Any]) -> dict[str, Any]:
    from pydantic_core import core_schema

    said = dict(schema)
    reference = said.pop("ref", None)
    made: Any = core_schema.no_info_before_validator_function(_tick, cast("Any", said), ref=reference)
    return made
