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
from .json_schema.walk import relaxed_copy, subschemas

MOST_COMPILED_BYTES = 24 << 20
"""The engine refuses to compile what would take more."""

_MAX_READ_CHARACTERS = 8192
_MOST_OF_CAPTURES = 1 << 20
_FACTOR_OF_CAPTURES = 8
_LITERAL_BYTES, _CLASS_BYTES, _UNICODE_CLASS_BYTES = 512, 8 << 10, 80 << 10
_PART = re.compile(r"\\[pPxuU]\{[^}]*\}|\\[pP]?.|\{[0-9]{1,9}(?:,[0-9]{0,9})?\}|\[\^?\]?|\(\?[:<P]?|.", re.DOTALL)
_IGNORES_SPACE = re.compile(r"\(\?[A-Za-z-]*x")  # in which a comment may hold any bracket


def compiled_bytes(pattern: str) -> int:
    r"""Return about how many bytes a pattern takes that is written for this engine: what is repeated counts each time.

    A set such as ``\w`` is some 700 ranges of characters, in UTF-8.
    """
    if len(pattern) > _MAX_READ_CHARACTERS or _IGNORES_SPACE.search(pattern):
        return MOST_COMPILED_BYTES
    total, last, outer, depth = 0, 0, list[int](), 0
    for part in _PART.findall(pattern):
        if depth:  # a class is one part, whatever is in it
            last += _bytes_of(part)
            depth += (part[0] == "[") - (part == "]")
            total += 0 if depth else last
        elif part[0] == "{" and len(part) > 1:
            times = _times(part)
            total, last = total + last * (times - 1), last * times
        elif part[0] == "[":
            last, depth = _bytes_of(part), 1
        elif part[0] == "(":
            outer.append(total)
            total = 0
        elif part == ")" and outer:
            last, total = total, outer.pop() + total
        else:
            last = _bytes_of(part)
            total += last
    return _with_captures(pattern, len(pattern) * 4 + sum(outer) + total + last * bool(depth))


def _with_captures(pattern: str, size: int) -> int:
    """Add what the engine makes beside it to find where groups are."""
    more = min(size * _FACTOR_OF_CAPTURES, _MOST_OF_CAPTURES) if "(" in pattern.replace("(?:", "") else 0
    return min(size + more, MOST_COMPILED_BYTES)


def _times(repetition: str) -> int:
    least, comma, most = repetition[1:-1].partition(",")
    return max(int(most or least) + (1 if comma and not most else 0), 1)


def _bytes_of(part: str) -> int:
    if part[0] != "\\":
        return _LITERAL_BYTES
    if part[1:2] in tuple("wWpP"):
        return _UNICODE_CLASS_BYTES
    return _CLASS_BYTES if part[1:2] in tuple("dDsSbB") else _LITERAL_BYTES


# What that engine cannot compile (look-around, back-references) is never run: Python's own engine may backtrack for
# ever, with the interpreter to itself. Knows nothing of tools.

MAX_FOREIGN_SIZE = 2000
_MAX_ESTIMATED_CHARACTERS = 8192
_MAX_KNOWN_CHARACTERS = 1000
_BYTES_OF_A_STEP = 1024
_ADVICE = "write it without look-around, back-references and huge repetitions, or let the tool check the value itself"
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_REPETITION = re.compile(r"\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}")
_is_foreign: ContextVar[bool] = ContextVar("codemode_foreign_patterns", default=False)

Match = Callable[[str], bool]


@record
class Linear:
    """A pattern as the linear engine writes it, what finds it in a text, and at how many places a match may be."""

    text: str
    match: Match
    places: int


_kept: SizedCache[tuple[str, bool], Linear] = SizedCache(64 << 20, most_entries=256)
"""Compiled patterns. A stranger's may take megabytes each, and two more once it has met texts that are meant for it."""


class PatternRefused(ValueError):  # noqa: N818 - a refusal, seen by users as the ValueError that it is
    """A pattern that the linear engine cannot compile."""


@contextmanager
def foreign_patterns(*, are_foreign: bool = True) -> Generator[None, None, None]:
    """Let tools that are made meanwhile lose patterns that cannot be run, with a warning: nobody here wrote them."""
    token = _is_foreign.set(are_foreign)
    try:
        yield
    finally:
        _is_foreign.reset(token)


def are_foreign() -> bool:
    """Tell whether tools that are made now come from somewhere else."""
    return _is_foreign.get()


def compile_linear(pattern: str, *, is_rusts: bool = False) -> Match:
    """Return what finds the pattern anywhere in a text; ``is_rusts`` is one as the engine itself reads it.

    Raises `PatternRefused`.
    """
    return linear(pattern, is_rusts=is_rusts).match


def linear_text(pattern: str) -> str:
    """Return the pattern as the linear engine writes it. Raises `PatternRefused`."""
    return linear(pattern).text


def linear(pattern: str, *, is_rusts: bool = False) -> Linear:
    """Return a pattern as it is run; ``is_rusts`` is as in `compile_linear`. Raises `PatternRefused`."""
    known = _kept.get((pattern, is_rusts))
    if known is None:
        # What compiles as it is may mean something else there: sets in a class, and what is done with them.
        spellings = (pattern,) if is_rusts else tuple(dict.fromkeys((_in_rust(pattern), pattern)))
        size = max(map(compiled_bytes, spellings))
        steps.take(1 + size // _BYTES_OF_A_STEP)
        known = _compile(pattern, spellings)
        _kept.put((pattern, is_rusts), known, size)
    return known


def _compile(pattern: str, spellings: tuple[str, ...]) -> Linear:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    reason = ""
    for text in spellings:
        schema = core_schema.str_schema(pattern=text, regex_engine="rust-regex", strict=True)
        try:
            return Linear(text, SchemaValidator(schema).isinstance_python, automaton_size(pattern))
        except SchemaError as error:
            reason = reason or _reason(error)
    raise _refusal(pattern, reason)


def refusal_of(error: Exception) -> ValueError:
    """Word what pydantic's engine says of a type that it cannot build a validator for."""
    lines = str(error).splitlines()
    begins = [number for number, line in enumerate(lines) if line.strip().endswith("regex parse error:")]
    if not begins or begins[0] + 1 >= len(lines):
        return ValueError(f"not a type that pydantic can describe: {error}")
    return _refusal(lines[begins[0] + 1].removeprefix("    "), _reason(error))


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[-1].removeprefix("error: ").strip()


def _refusal(pattern: str, reason: str) -> PatternRefused:
    shown = pattern if len(pattern) <= 200 else pattern[:200] + "..."
    return PatternRefused(f"the pattern {shown!r} cannot be matched in linear time ({reason}): {_ADVICE}")


def automaton_size(pattern: str) -> int:
    """Estimate how many steps a pattern can take for a character: its length, with repetitions written out."""
    return _known_size(pattern) if len(pattern) <= _MAX_KNOWN_CHARACTERS else _size(pattern)


def _size(pattern: str) -> int:
    total, last, outer = 0, 1, list[int]()
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
            outer.append(total)
            total = 0
        elif character == ")" and outer:
            last, total = total, outer.pop() + total
        else:
            last, total = 1, total + 1
    return min(sum(outer) + total + len(pattern) - end, 1 << 40)


_known_size = lru_cache(maxsize=4096)(_size)


def _in_rust(pattern: str) -> str:
    """Write a pattern of JavaScript's or Python's dialect as Rust's: what means itself there is escaped here."""
    written: list[str] = []
    in_class, position = False, 0
    while position < len(pattern):
        part = pattern[position : position + 2] if pattern[position] == "\\" else pattern[position]
        repeats = part == "{" and _REPETITION.match(pattern, position) is not None
        position += len(part)
        if in_class:
            is_hyphen = part == "-" and _is_shorthand(written[-1], pattern[position : position + 2])
            written.append("\\" + part if is_hyphen or part in ("[", "&", "~") else part)
            in_class = part != "]"
        else:
            is_brace = part == "{" and not repeats and written[-1:] not in (["\\p"], ["\\P"], ["\\u"], ["\\x"])
            written.append("\\{" if is_brace else "\\z" if part == "\\Z" else part)
            in_class = part == "["
    return "".join(written)


def _is_shorthand(before: str, behind: str) -> bool:
    return any(token[:1] == "\\" and token[1:] in tuple("wWdDsS") for token in (before, behind))


# --- schemas ---


def patterns_of(schema: Any) -> Iterator[str]:
    """Yield the patterns of a JSON Schema, wherever they stand."""
    for rules in subschemas(schema):
        if isinstance(rules.get("pattern"), str):
            yield rules["pattern"]
        yield from (name for name in mapping_or_empty(rules.get("patternProperties")) if isinstance(name, str))


def refused_patterns(schema: Any) -> dict[str, str]:
    """Return the patterns of a foreign schema that cannot be run, each with the reason."""
    refused: dict[str, str] = {}
    for pattern in patterns_of(schema):
        if automaton_size(pattern) > MAX_FOREIGN_SIZE:
            refused[pattern] = f"the pattern {pattern[:200]!r} repeats too much"
            continue
        try:
            compile_linear(pattern)
        except PatternRefused as error:
            refused[pattern] = str(error)
    return refused


def require_linear(schema: Any) -> None:
    """Raise `PatternRefused` for the first pattern of a schema that cannot be run."""
    for pattern in patterns_of(schema):
        compile_linear(pattern)


def without_patterns(schema: Any, refused: Collection[str]) -> Any:
    """Copy a schema without these patterns. What it took before it takes still."""

    def is_refused(rules: Mapping[str, Any]) -> bool:
        return isinstance(rules.get("pattern"), str) and rules["pattern"] in refused

    def strip(rules: dict[str, Any]) -> None:
        if is_refused(rules):
            del rules["pattern"]
        named = rules.get("patternProperties")
        if is_mapping(named):
            rules["patternProperties"] = {name: rule for name, rule in named.items() if name not in refused}
            if len(rules["patternProperties"]) < len(named):
                rules.pop("additionalProperties", None)

    def loses(rules: Mapping[str, Any]) -> bool:
        if not _REFERENCES.isdisjoint(rules) or is_refused(rules):
            return True
        return any(name in refused for name in mapping_or_empty(rules.get("patternProperties")))

    return relaxed_copy(schema, strip, loses)
