"""Patterns of pydantic types: run in linear time, and weighed before, where a text is long. Knows core schemas."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .match_cost import Take, find
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
