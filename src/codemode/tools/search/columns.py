"""The columns of a tool that a search looks through. Bounded, whatever its author wrote; never runs a tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from ...data.narrowing import mapping_or_empty, string_or_empty
from ...signatures.described_tool import DescribedTool
from .words import indexed_words

_MAX_CHARACTERS = 10_000  # of a column
_MAX_VALUES = 1000
_MAX_VALUE_CHARACTERS = 500
_MAX_DEPTH = 6
_MAX_NUMBER = 1e15  # beyond which nobody looks for one


class Columns(NamedTuple):
    """The words of one tool by where they stand, each column as text with spaces between."""

    name: str
    sentence: str
    rest: str
    parameters: str
    examples: str


def columns_of(name: str, tool: DescribedTool) -> Columns:
    """Return what is searched of a tool that is registered under ``name``."""
    from ...signatures.declarations import first_sentence, summary_of

    summary = summary_of(tool)[:_MAX_CHARACTERS]
    words = indexed_words(summary)
    first = len(indexed_words(first_sentence(summary, _MAX_CHARACTERS)))
    return Columns(
        " ".join(indexed_words(name[:_MAX_CHARACTERS])),
        " ".join(words[:first]),
        " ".join(words[first:]),
        _words(_parameters(tool.input_json_schema)),
        _words(_values(tool.input_examples)),
    )


def _words(texts: Iterator[str]) -> str:
    words: list[str] = []
    left = _MAX_CHARACTERS
    for text in texts:
        words += indexed_words(text[: min(left, _MAX_VALUE_CHARACTERS)])
        left -= len(text) + 1
        if left <= 0:
            break
    return " ".join(words)


def _parameters(schema: Any) -> Iterator[str]:
    properties = mapping_or_empty(mapping_or_empty(schema).get("properties"))
    for _, (name, parameter) in zip(range(_MAX_VALUES), properties.items(), strict=False):
        yield string_or_empty(name)
        yield string_or_empty(mapping_or_empty(parameter).get("description"))


def _values(examples: tuple[Any, ...]) -> Iterator[str]:
    """Yield the texts and numbers in examples, the first ones of each: an example may be without end."""
    waiting: list[tuple[Any, int]] = [(examples, 0)]
    for _ in range(_MAX_VALUES):
        if not waiting:
            return
        value, depth = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER:
            yield repr(value)
        elif depth < _MAX_DEPTH and isinstance(value, Mapping | list | tuple):
            held = cast("Iterable[Any]", mapping.values() if (mapping := mapping_or_empty(value)) else value)
            some = [one for _, one in zip(range(_MAX_VALUES - len(waiting)), held, strict=False)]
            waiting.extend((one, depth + 1) for one in reversed(some))
