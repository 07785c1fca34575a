"""Regular expressions of schemas, on an engine whose time is linear in the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from ..data.narrowing import is_mapping, mapping_or_empty
from ..data.sized_cache import SizedCache
from ..host import steps
from ..records import record
from .json_schema.walk import copy_relaxed_schema, iterate_subschemas

MAX_COMPILED_BYTES = 24 << 20
"""The engine refuses to compile what would take more."""

_MAX_READ_CHARACTERS = 8192
_MAX_CAPTURE_BYTES = 1 << 20
_CAPTURE_SIZE_FACTOR = 8
_LITERAL_BYTES, _CLASS_BYTES, _UNICODE_CLASS_BYTES = 512, 8 << 10, 80 << 10
_LEXEME = re.compile(r"\\[pPxuU]\{[^}]*\}|\\[pP]?.|\{[0-9]{1,9}(?:,[0-9]{0,9})?\}|\[\^?\]?|\(\?[:<P]?|.", re.DOTALL)
_VERBOSE_FLAG = re.compile(r"\(\?[A-Za-z-]*x")  # in which a comment may hold any bracket


def estimate_compiled_bytes(pattern: str) -> int:
    r"""Return about how many bytes a pattern takes that is written for this engine: what is repeated counts each time.

    A set such as ``\w`` is some 700 ranges of characters, in UTF-8.
    """
    if len(pattern) > _MAX_READ_CHARACTERS or _VERBOSE_FLAG.search(pattern):
        return MAX_COMPILED_BYTES
    total, last, outer_totals, depth = 0, 0, list[int](), 0
    for lexeme in _LEXEME.findall(pattern):
        if depth:  # a class is one part, with any content
            last += _estimate_lexeme_bytes(lexeme)
            depth += (lexeme[0] == "[") - (lexeme == "]")
            total += 0 if depth else last
        elif lexeme[0] == "{" and len(lexeme) > 1:
            times = _count_repetitions(lexeme)
            total, last = total + last * (times - 1), last * times
        elif lexeme[0] == "[":
            last, depth = _estimate_lexeme_bytes(lexeme), 1
        elif lexeme[0] == "(":
            outer_totals.append(total)
            total = 0
        elif lexeme == ")" and outer_totals:
            last, total = total, outer_totals.pop() + total
        else:
            last = _estimate_lexeme_bytes(lexeme)
            total += last
    return _add_capture_bytes(pattern, len(pattern) * 4 + sum(outer_totals) + total + last * bool(depth))


def _add_capture_bytes(pattern: str, size: int) -> int:
    """Add the parts that the engine adds to find groups."""
    capture_bytes = min(size * _CAPTURE_SIZE_FACTOR, _MAX_CAPTURE_BYTES) if "(" in pattern.replace("(?:", "") else 0
    return min(size + capture_bytes, MAX_COMPILED_BYTES)


def _count_repetitions(repetition: str) -> int:
    minimum, comma, maximum = repetition[1:-1].partition(",")
    return max(int(maximum or minimum) + (1 if comma and not maximum else 0), 1)


def _estimate_lexeme_bytes(lexeme: str) -> int:
    if lexeme[0] != "\\":
        return _LITERAL_BYTES
    if lexeme[1:2] in tuple("wWpP"):
        return _UNICODE_CLASS_BYTES
    return _CLASS_BYTES if lexeme[1:2] in tuple("dDsSbB") else _LITERAL_BYTES


# A pattern that the engine cannot compile (look-around, back-references) is never run: Python's own engine may
# backtrack for ever, and holds the interpreter lock. Knows nothing of tools.

MAX_FOREIGN_AUTOMATON_SIZE = 2000
_MAX_ESTIMATED_CHARACTERS = 8192
_MAX_CACHED_CHARACTERS = 1000
_BYTES_PER_STEP = 1024
_ADVICE = "write it without look-around, back-references and huge repetitions, or let the tool check the value itself"
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_REPETITION = re.compile(r"\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}")
_is_foreign: ContextVar[bool] = ContextVar("codemode_foreign_patterns", default=False)

Match = Callable[[str], bool]


@record
class LinearPattern:
    """A pattern as the linear engine writes it, what finds it in a text, and at how many places a match may be."""

    text: str
    match: Match
    places: int


_compiled_patterns: SizedCache[tuple[str, bool], LinearPattern] = SizedCache(64 << 20, max_entries=256)
"""Compiled patterns. A stranger's may take megabytes each, and two more once it has met texts that are meant for it."""


class PatternRefusedError(ValueError):
    """A pattern that the linear engine cannot compile."""


@contextmanager
def drop_nonlinear_patterns(*, are_foreign: bool = True) -> Generator[None, None, None]:
    """Drop, with a warning, patterns that cannot run from tools made in this block: their schemas are foreign."""
    token = _is_foreign.set(are_foreign)
    try:
        yield
    finally:
        _is_foreign.reset(token)


def are_nonlinear_patterns_dropped() -> bool:
    """Tell whether tools that are made now come from somewhere else."""
    return _is_foreign.get()


def compile_linear_matcher(pattern: str, *, is_rust_syntax: bool = False) -> Match:
    """Return a function that tells whether a text contains a match of the pattern.

    ``is_rust_syntax``: the pattern has the syntax of the linear engine. Raises `PatternRefusedError`.
    """
    return get_or_compile_linear_pattern(pattern, is_rust_syntax=is_rust_syntax).match


def to_linear_syntax(pattern: str) -> str:
    """Return the pattern as the linear engine writes it. Raises `PatternRefusedError`."""
    return get_or_compile_linear_pattern(pattern).text


def get_or_compile_linear_pattern(pattern: str, *, is_rust_syntax: bool = False) -> LinearPattern:
    """Return a pattern as it is run. ``is_rust_syntax``: see `compile_linear_matcher`. Raises `PatternRefusedError`."""
    compiled = _compiled_patterns.get((pattern, is_rust_syntax))
    if compiled is None:
        # A pattern that compiles unchanged may have another meaning there: sets in a class, and their operators.
        spellings = (pattern,) if is_rust_syntax else tuple(dict.fromkeys((_to_rust_syntax(pattern), pattern)))
        size = max(map(estimate_compiled_bytes, spellings))
        steps.count_steps(1 + size // _BYTES_PER_STEP)
        compiled = _compile_first_valid_spelling(pattern, spellings)
        _compiled_patterns.put((pattern, is_rust_syntax), compiled, size)
    return compiled


def _compile_first_valid_spelling(pattern: str, spellings: tuple[str, ...]) -> LinearPattern:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    reason = ""
    for text in spellings:
        schema = core_schema.str_schema(pattern=text, regex_engine="rust-regex", strict=True)
        try:
            return LinearPattern(text, SchemaValidator(schema).isinstance_python, estimate_automaton_size(pattern))
        except SchemaError as error:
            reason = reason or _read_engine_reason(error)
    raise _create_pattern_refused_error(pattern, reason)


def to_validator_build_error(error: Exception) -> ValueError:
    """Word what pydantic's engine says of a type that it cannot build a validator for."""
    lines = str(error).splitlines()
    error_lines = [number for number, line in enumerate(lines) if line.strip().endswith("regex parse error:")]
    if not error_lines or error_lines[0] + 1 >= len(lines):
        return ValueError(f"not a type that pydantic can describe: {error}")
    return _create_pattern_refused_error(lines[error_lines[0] + 1].removeprefix("    "), _read_engine_reason(error))


def _read_engine_reason(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].removeprefix("error: ").strip()


def _create_pattern_refused_error(pattern: str, reason: str) -> PatternRefusedError:
    shortened = pattern if len(pattern) <= 200 else pattern[:200] + "..."
    return PatternRefusedError(f"the pattern {shortened!r} cannot be matched in linear time ({reason}): {_ADVICE}")


def estimate_automaton_size(pattern: str) -> int:
    """Estimate how many steps a pattern can take for a character: its length, with repetitions written out."""
    return (
        _cached_automaton_size(pattern) if len(pattern) <= _MAX_CACHED_CHARACTERS else _compute_automaton_size(pattern)
    )


def _compute_automaton_size(pattern: str) -> int:
    total, last, outer_totals = 0, 1, list[int]()
    position, end = 0, min(len(pattern), _MAX_ESTIMATED_CHARACTERS)
    while position < end:
        character = pattern[position]
        repetition = _REPETITION.match(pattern, position) if character == "{" else None
        if repetition is not None:
            times = max(int(repetition[2] or repetition[1]), 1)
            total, last = total + last * (times - 1), last * times
            position = repetition.end()
            continue
        position += 2 if character == "\\" else 1
        if character == "(":
            outer_totals.append(total)
            total = 0
        elif character == ")" and outer_totals:
            last, total = total, outer_totals.pop() + total
        else:
            last, total = 1, total + 1
    return min(sum(outer_totals) + total + len(pattern) - end, 1 << 40)


_cached_automaton_size = lru_cache(maxsize=4096)(_compute_automaton_size)


def _to_rust_syntax(pattern: str) -> str:
    """Write a pattern of JavaScript's or Python's dialect as Rust's: what means itself there is escaped here."""
    written: list[str] = []
    in_class, position = False, 0
    while position < len(pattern):
        lexeme = pattern[position : position + 2] if pattern[position] == "\\" else pattern[position]
        repeats = lexeme == "{" and _REPETITION.match(pattern, position) is not None
        position += len(lexeme)
        if in_class:
            is_hyphen = lexeme == "-" and _is_next_to_shorthand_class(written[-1], pattern[position : position + 2])
            written.append("\\" + lexeme if is_hyphen or lexeme in ("[", "&", "~") else lexeme)
            in_class = lexeme != "]"
        else:
            is_brace = lexeme == "{" and not repeats and written[-1:] not in (["\\p"], ["\\P"], ["\\u"], ["\\x"])
            written.append("\\{" if is_brace else "\\z" if lexeme == "\\Z" else lexeme)
            in_class = lexeme == "["
    return "".join(written)


def _is_next_to_shorthand_class(previous: str, following: str) -> bool:
    return any(lexeme[:1] == "\\" and lexeme[1:] in tuple("wWdDsS") for lexeme in (previous, following))


# --- schemas ---


def may_hold_patterns(text: str) -> bool:
    """Tell whether the text of a schema may hold patterns."""
    return '"pattern' in text


def iterate_patterns(schema: Any) -> Iterator[str]:
    """Yield all patterns of a JSON Schema."""
    for rules in iterate_subschemas(schema):
        if isinstance(rules.get("pattern"), str):
            yield rules["pattern"]
        yield from (name for name in mapping_or_empty(rules.get("patternProperties")) if isinstance(name, str))


def find_refused_patterns(schema: Any) -> dict[str, str]:
    """Return the patterns of a foreign schema that cannot be run, each with the reason."""
    refused: dict[str, str] = {}
    for pattern in iterate_patterns(schema):
        if estimate_automaton_size(pattern) > MAX_FOREIGN_AUTOMATON_SIZE:
            refused[pattern] = f"the pattern {pattern[:200]!r} repeats too much"
            continue
        try:
            compile_linear_matcher(pattern)
        except PatternRefusedError as error:
            refused[pattern] = str(error)
    return refused


def require_linear_patterns(schema: Any) -> None:
    """Raise `PatternRefusedError` for the first pattern of a schema that cannot be run."""
    for pattern in iterate_patterns(schema):
        compile_linear_matcher(pattern)


def remove_patterns(schema: Any, refused: Collection[str]) -> Any:
    """Copy a schema without these patterns. The copy accepts all values that the schema accepts."""

    def has_refused_pattern(rules: Mapping[str, Any]) -> bool:
        return isinstance(rules.get("pattern"), str) and rules["pattern"] in refused

    def strip_patterns(rules: dict[str, Any]) -> None:
        if has_refused_pattern(rules):
            del rules["pattern"]
        pattern_properties = rules.get("patternProperties")
        if is_mapping(pattern_properties):
            rules["patternProperties"] = {
                name: rule for name, rule in pattern_properties.items() if name not in refused
            }
            if len(rules["patternProperties"]) < len(pattern_properties):
                rules.pop("additionalProperties", None)

    def loses_rule(rules: Mapping[str, Any]) -> bool:
        if not _REFERENCES.isdisjoint(rules) or has_refused_pattern(rules):
            return True
        return any(name in refused for name in mapping_or_empty(rules.get("patternProperties")))

    return copy_relaxed_schema(schema, strip_patterns, loses_rule)
