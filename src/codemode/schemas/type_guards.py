"""Validators and patterns of pydantic types that take steps and match in linear time."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from ..cached_property import cached_property
from ..data.json_shape import estimate_json_length, has_more_values_than
from ..data.narrowing import is_array, is_object, is_sequence, list_or_empty, mapping_or_empty
from ..host import steps
from ..host.steps import WorkLimitError
from .match_cost import MAX_UNITS_PER_MATCH, UNITS_PER_STEP, CountSteps, search_within_budget
from .patterns import PatternRefusedError, estimate_automaton_size, to_linear_syntax

_LETTER_BY_FLAG = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}

RefusePattern = Callable[[PatternRefusedError], None]


def raise_pattern_refused(error: PatternRefusedError) -> None:
    """Raise the error: a type with such a pattern is refused."""
    raise error


def estimate_schema_automaton_size(string_schema: dict[str, Any]) -> int:
    """Return at how many places a match of the pattern of a string may be."""
    return estimate_automaton_size(_to_pattern_text(string_schema["pattern"]))


def to_linear_pattern_schema(string_schema: dict[str, Any], refuse: RefusePattern) -> dict[str, Any]:
    """Return the schema of a string with its pattern as the linear engine takes it, or without."""
    try:
        pattern = to_linear_syntax(_to_pattern_text(string_schema["pattern"]))
    except PatternRefusedError as error:
        refuse(error)
        return {key: value for key, value in string_schema.items() if key != "pattern"}
    return {**string_schema, "pattern": pattern, "regex_engine": "rust-regex"}


def to_metered_pattern_schema(string_schema: dict[str, Any], count_steps: CountSteps) -> Any:
    """Return the schema of a string whose pattern is matched by a function, which accounts for it by ``count_steps``.

    It sees the string as pydantic matches it: not too long, stripped, and in lower case only afterwards.
    """
    from pydantic_core import PydanticKnownError, core_schema

    pattern: str = string_schema["pattern"]

    def check_match(text: str) -> str:
        if not search_within_budget(pattern, text, count_steps, is_rust_syntax=True):
            raise PydanticKnownError("string_pattern_mismatch", {"pattern": pattern})
        return text

    without_pattern: Any = {
        key: value for key, value in string_schema.items() if key not in ("pattern", "regex_engine", "ref")
    }
    case_preserving: Any = {**without_pattern, "to_lower": False, "to_upper": False}
    fitting = core_schema.no_info_after_validator_function(check_match, case_preserving)
    return core_schema.chain_schema([fitting, without_pattern], ref=string_schema.get("ref"))


def _to_pattern_text(pattern: str | re.Pattern[str]) -> str:
    if isinstance(pattern, str):
        return pattern
    flags = "".join(letter for flag, letter in _LETTER_BY_FLAG.items() if pattern.flags & flag)
    return f"(?{flags}){pattern.pattern}" if flags else pattern.pattern


# A validator is one call into C for the whole value. Where it goes through many items, or round a recursive type (where
# alternatives take time exponential in the depth), a Python function is inserted: it counts, it lets other threads run,
# and it can stop.

MAX_UNMETERED_VALUES = 256
MIN_FAIL_FAST_VALUES = 1 << 13
_FREE_STEPS = 20_000
_STEPS_PER_VALUE = 20
_MAX_VALUES = 1_000_000
_MAX_STEPS_BEFORE_JSON = 30_000
_MAX_STEPS_BEFORE_WORDING = 2000
_MAX_UNMETERED_UNITS = 50_000

_SCHEMA_KEYS = frozenset(
    {"schema", "items_schema", "keys_schema", "values_schema", "extras_schema", "extras_keys_schema"}
    | {"lax_schema", "strict_schema", "json_schema", "python_schema"}
    | {"arguments_schema", "var_args_schema", "var_kwargs_schema"}
)
_LIST_KEYS = frozenset({"items_schema", "arguments_schema", "steps", "choices", "definitions", "fields"})
_STRING_CHOICE_LABEL = "constrained-str"
"""What pydantic calls a string with a pattern, where it is an alternative."""


class _StepBudget(threading.local):
    steps_left = 0
    value: Any = None
    is_extended = False
    fails_fast = False
    has_long_text = False

    def reset_for_value(self, value: Any, *, has_long_text: bool = False) -> None:
        """Grant the steps of one value. ``has_long_text``: it has more text than unmetered patterns may search."""
        self.steps_left, self.value, self.is_extended, self.fails_fast = _FREE_STEPS, value, False, False
        self.has_long_text = has_long_text

    @property
    def used_steps(self) -> int:
        """How many steps have been taken; many, once they are more than every value is granted."""
        return _MAX_VALUES if self.is_extended else _FREE_STEPS - self.steps_left


_budget = _StepBudget()


def _count_step(value: Any) -> Any:
    _budget.steps_left -= 1
    if _budget.steps_left < 0:
        _extend_budget_once_or_raise()
    steps.count_steps()
    return value


def _count_pattern_steps(step_count: int) -> None:
    """Account for a match of a pattern."""
    _budget.steps_left -= step_count
    if _budget.steps_left < 0:
        _extend_budget_once_or_raise()
    steps.count_steps(step_count)


def _extend_budget_once_or_raise() -> None:
    if _budget.is_extended:
        raise WorkLimitError
    _budget.is_extended = True
    value_count = 1024
    while value_count < _MAX_VALUES and has_more_values_than(_budget.value, value_count):
        value_count *= 2
    _budget.steps_left = _STEPS_PER_VALUE * value_count


class StepLimitedValidator:
    """A validator of plain Python for a pydantic adapter.

    ``refuse`` is called with a pattern that cannot run: it raises, or the pattern is left out. ``original`` matches
    patterns in linear time too, but takes no steps.
    """

    def __init__(self, adapter: Any, refuse: RefusePattern) -> None:
        self.original = adapter.validator
        self._core_schema = adapter.core_schema
        self._refuse = refuse
        self._rewrites_patterns = False
        settings: Mapping[str, Any] = getattr(adapter, "_config", None) or {}
        self._config = _to_core_config_or_none(settings)
        traits = _CoreSchemaTraits(self._core_schema, settings.get("regex_engine"))
        self._is_recursive = traits.is_recursive
        self._pattern_size = traits.pattern_size
        self._has_items = traits.has_items
        # The validation work is then proportional to the schema, for any value.
        self._has_bounded_cost = not (self._is_recursive or self._has_items)
        self._differs_in_json = traits.differs_in_json
        if traits.needs_linear_patterns and settings:
            raise PatternRefusedError(
                "a TypeAdapter with a config runs a pattern with Python's engine: write it as text"
            )
        if traits.needs_linear_patterns:
            self._rewrites_patterns = True
            self.original = _create_validator_without_prebuilt(
                self._rewrite_schema(counts_items=False, fails_fast=False, meters_patterns=False), None
            )

    def validate(self, value: Any) -> Any:
        """Return the instance that a value stands for. Raises `ValidationError` and `WorkLimitError`."""
        has_long_text = bool(self._pattern_size) and self._can_pattern_cost_exceed(value, _MAX_UNMETERED_UNITS)
        if self._has_bounded_cost and not self._pattern_size:
            return self.original.validate_python(value)
        _budget.reset_for_value(value, has_long_text=has_long_text)
        try:
            if not (
                has_long_text
                or self._is_recursive
                or (self._has_items and has_more_values_than(value, MAX_UNMETERED_VALUES))
            ):
                return self.original.validate_python(value)
            if has_long_text and self._metered_validator is self.original:
                self._charge_or_refuse_long_text(value)
            _budget.fails_fast = has_more_values_than(value, MIN_FAIL_FAST_VALUES)
            if not _budget.fails_fast:
                return self._metered_validator.validate_python(value)
            return steps.run_without_gc(partial(self._fail_fast_validator.validate_python, value))
        finally:
            _budget.value = None

    def _can_pattern_cost_exceed(self, value: Any, units: int) -> bool:
        """Tell whether all patterns on all of the text of a value may take so much."""
        min_characters = max(units // self._pattern_size, 1)
        return estimate_json_length(value, min_characters) >= min_characters

    def _charge_or_refuse_long_text(self, value: Any) -> None:
        """Raise `WorkLimitError` for text whose matching cannot be metered and may take too long."""
        if self._can_pattern_cost_exceed(value, MAX_UNITS_PER_MATCH):
            raise WorkLimitError
        steps.count_steps(MAX_UNITS_PER_MATCH // UNITS_PER_STEP)

    @property
    def json_retry_validator(self) -> Any:
        """The validator that may check this thread's last value again, as JSON and without steps, or None.

        Only patterns take some even then, where there is much text.
        """
        if self._has_bounded_cost:
            return self._pattern_metered_validator if self._pattern_size and _budget.has_long_text else self.original
        if _budget.fails_fast:
            return self._fail_fast_json_validator if self._differs_in_json and not self._is_recursive else None
        max_steps = (
            _MAX_STEPS_BEFORE_JSON if self._differs_in_json and not self._is_recursive else _MAX_STEPS_BEFORE_WORDING
        )
        if _budget.used_steps >= max_steps:
            return None
        return self._pattern_metered_validator if _budget.has_long_text else self.original

    @cached_property
    def _metered_validator(self) -> Any:
        return self._create_metered_validator_or_original(fails_fast=False)

    @cached_property
    def _pattern_metered_validator(self) -> Any:
        return self._create_metered_validator_or_original(fails_fast=False, counts_items=False)

    @cached_property
    def _fail_fast_validator(self) -> Any:
        # Half a million problems would be made, one object each, before the validation could be stopped.
        return self._create_metered_validator_or_original(fails_fast=True)

    @cached_property
    def _fail_fast_json_validator(self) -> Any:
        return self._create_metered_validator_or_original(fails_fast=True, counts_items=False)

    def _create_metered_validator_or_original(self, *, fails_fast: bool, counts_items: bool = True) -> Any:
        if self._config is None:
            return self.original
        try:
            return _create_validator_without_prebuilt(
                self._rewrite_schema(counts_items=counts_items, fails_fast=fails_fast), self._config or None
            )
        except PatternRefusedError:
            return self.original

    def _rewrite_schema(self, *, counts_items: bool, fails_fast: bool, meters_patterns: bool = True) -> Any:
        refuse = self._refuse if self._rewrites_patterns else None
        return _CoreSchemaRewriter(
            refuse, counts_items=counts_items, fails_fast=fails_fast, meters_patterns=meters_patterns
        ).rewrite(self._core_schema)


def _to_core_config_or_none(settings: Mapping[str, Any]) -> Any:
    """Return settings that stand in no core schema, as it takes them; None for some that would be lost."""
    if not settings:
        return {}
    from pydantic_core.core_schema import CoreConfig

    return settings if settings.keys() <= CoreConfig.__annotations__.keys() else None


def _create_validator_without_prebuilt(core_schema: Any, config: Any) -> Any:
    """Return a validator of exactly this schema. Raises `PatternRefusedError` where pydantic cannot make one."""
    from pydantic_core import SchemaValidator

    try:
        return SchemaValidator(core_schema, config, _use_prebuilt=False)
    except TypeError:
        validator = SchemaValidator(core_schema, config)  # of a pydantic that cannot be told so
    if "Prebuilt" in repr(validator):  # a model's own, which knows nothing of what was changed
        raise PatternRefusedError("this version of pydantic runs a pattern with Python's engine: write it as text")
    return validator


class _CoreSchemaTraits:
    """Findings in a core schema."""

    def __init__(self, core_schema: Any, engine: str | None) -> None:
        self.has_items = self.differs_in_json = False
        self.needs_linear_patterns = False
        self.pattern_size = 0
        self._uses_python_engine = engine == "python-re"
        self._has_patterns = False
        self._references_by_schema: dict[str, set[str]] = {}
        self._walk_schema(core_schema, "")
        self.needs_linear_patterns |= self._uses_python_engine and self._has_patterns
        self.is_recursive = any(self._refers_to_itself(name) for name in self._references_by_schema)

    def _walk_schema(self, schema: Any, owner: str) -> None:
        pending: list[tuple[Any, str]] = [(schema, owner)]
        while pending:
            item, owner = pending.pop()
            if is_sequence(item):
                pending += [(inner, owner) for inner in item]
            if not is_object(item):
                continue
            owner = item.get("ref", owner)
            self._record_traits(item, owner)
            pending += [(child, owner) for child in _list_child_schemas(item)]

    def _record_traits(self, schema: dict[str, Any], owner: str) -> None:
        kind = schema.get("type")
        self.has_items |= kind in ("list", "tuple", "set", "frozenset", "dict")
        self.differs_in_json |= schema.get("strict") is True or kind in ("json-or-python", "is-instance")
        for settings in (schema, mapping_or_empty(schema.get("config"))):
            self._uses_python_engine |= settings.get("regex_engine") == "python-re"
            self.differs_in_json |= settings.get("strict") is True
        if _has_pattern(schema):
            self._has_patterns = True
            self.pattern_size += estimate_schema_automaton_size(schema)
            self.needs_linear_patterns |= not isinstance(schema["pattern"], str)
        if kind == "definition-ref":
            self._references_by_schema.setdefault(owner, set()).add(str(schema.get("schema_ref")))

    def _refers_to_itself(self, name: str) -> bool:
        seen, pending = set[str](), [*self._references_by_schema[name]]
        while pending:
            target = pending.pop()
            if target == name:
                return True
            if target not in seen:
                seen.add(target)
                pending += self._references_by_schema.get(target, ())
        return False


def _list_child_schemas(schema: Mapping[str, Any]) -> list[Any]:
    children: list[Any] = [
        schema[key] for key in _SCHEMA_KEYS if key in schema and isinstance(schema[key], dict | list)
    ]
    for key in _LIST_KEYS - _SCHEMA_KEYS:
        value: Any = schema.get(key)
        children.extend(value.values() if is_object(value) else list_or_empty(value))
    return children


class _CoreSchemaRewriter:
    """Copies a core schema, with what guards it put in. ``refuse`` None leaves patterns as they are: linear."""

    def __init__(
        self, refuse: RefusePattern | None, *, counts_items: bool, fails_fast: bool, meters_patterns: bool
    ) -> None:
        self._refuse = refuse
        self._counts_items = counts_items
        self._fails_fast = fails_fast
        self._meters_patterns = meters_patterns

    def rewrite(self, schema: Any) -> Any:
        """Copy a core schema, or what stands in its place in another one."""
        if is_array(schema):
            return [self.rewrite(item) for item in schema]
        if isinstance(schema, tuple):  # an alternative and its label
            labelled = cast("tuple[Any, ...]", schema)
            return (self.rewrite(labelled[0]), *labelled[1:])
        if not is_object(schema):
            return schema
        copied = dict(schema)
        for key in copied.keys() & (_SCHEMA_KEYS | _LIST_KEYS):
            copied[key] = self._rewrite_value(copied.get("type"), key, copied[key])
        if _has_pattern(copied):
            return self._rewrite_pattern(copied)
        if self._fails_fast and copied.get("type") in ("list", "tuple", "set", "frozenset"):
            copied["fail_fast"] = True
        return copied

    def _rewrite_pattern(self, string_schema: dict[str, Any]) -> Any:
        linear_schema = string_schema if self._refuse is None else to_linear_pattern_schema(string_schema, self._refuse)
        return (
            to_metered_pattern_schema(linear_schema, _count_pattern_steps)
            if self._meters_patterns and "pattern" in linear_schema
            else linear_schema
        )

    def _rewrite_value(self, kind: Any, key: str, value: Any) -> Any:
        if is_object(value) and key in ("fields", "choices"):
            return {name: self.rewrite(item) for name, item in value.items()}
        if key == "choices" and is_array(value) and self._meters_patterns:
            value = [(item, _STRING_CHOICE_LABEL) if is_object(item) and _has_pattern(item) else item for item in value]
        rewritten = self.rewrite(value)
        if not self._counts_items or not (
            key in ("items_schema", "definitions") or (kind, key) == ("dict", "values_schema")
        ):
            return rewritten
        return (
            [_wrap_with_step_counter(item) for item in rewritten]
            if is_array(rewritten)
            else _wrap_with_step_counter(rewritten)
        )


def _has_pattern(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "str" and schema.get("pattern") is not None


def _wrap_with_step_counter(schema: dict[str, Any]) -> dict[str, Any]:
    from pydantic_core import core_schema

    copied = dict(schema)
    reference = copied.pop("ref", None)
    counting_schema: Any = core_schema.no_info_before_validator_function(
        _count_step, cast("Any", copied), ref=reference
    )
    return counting_schema
