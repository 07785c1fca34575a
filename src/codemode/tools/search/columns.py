"""What a search looks through of a tool, and how much each part weighs. Bounded, whatever its author wrote."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from ...data.narrowing import mapping_or_empty, string_or_empty
from ...host import steps
from ...signatures.described_tool import DescribedTool
from .forms import forms_of_parameter
from .stems import stem_of
from .words import indexed_words, words_of

_MAX_CHARACTERS = 10_000  # of a column
_MAX_VALUES = 1000
_MAX_VALUE_CHARACTERS = 500
_MAX_NAME_CHARACTERS = 100  # of a parameter whose form is looked at
_MAX_DEPTH = 7
_MAX_NUMBER = 1e15  # beyond which nobody looks for one
_STEPS_OF_A_TOOL = 20
_CHARACTERS_OF_A_STEP = 100
# Measured with benchmarks/search.py.
_NAME, _SENTENCE, _REST, _PARAMETERS, _EXAMPLES = 8.0, 3.0, 1.0, 0.5, 2.0


class Columns(NamedTuple):
    """The texts of one tool by where they stand. They alone decide how it is indexed."""

    name: str
    sentence: str
    summary: str  # the whole of which the sentence is the beginning
    labels: list[str]
    parameters: list[str]
    examples: list[str]
    forms: list[str]

    def fingerprint(self) -> bytes:
        """Return what tells these texts from all others."""
        return hashlib.blake2b(repr(tuple(self)).encode(), digest_size=16).digest()


class Entry(NamedTuple):
    """What is indexed of one tool: its name in one word, how much each stem counts, all its words, their number."""

    plain: str
    counts: dict[str, float]
    words: tuple[str, ...]
    length: int


def columns_of(name: str, tool: DescribedTool) -> Columns:
    """Return what is searched of a tool that is registered under ``name``."""
    from ...signatures.declarations import first_sentence, summary_of

    summary = summary_of(tool)[:_MAX_CHARACTERS]
    outline = getattr(tool, "input_outline", None)
    schema = tool.input_json_schema if outline is None else outline
    properties = mapping_or_empty(mapping_or_empty(schema).get("properties"))
    parameters = [(string_or_empty(name), mapping_or_empty(one)) for name, one in _some(properties.items())]
    about = mapping_or_empty(mapping_or_empty(getattr(tool, "metadata", None)).get("codecall"))
    columns = Columns(
        name[:_MAX_CHARACTERS],
        first_sentence(summary, _MAX_CHARACTERS),
        summary,
        _values(about.get("appId"), about.get("tags")),
        _bounded(text for name, one in parameters for text in (name, string_or_empty(one.get("description")))),
        _values(tool.input_examples, about.get("examples")),
        sorted({form for name, one in parameters for form in forms_of_parameter(name[:_MAX_NAME_CHARACTERS], one)}),
    )
    characters = sum(len(column) if isinstance(column, str) else sum(map(len, column)) for column in columns)
    steps.take(_STEPS_OF_A_TOOL + characters // _CHARACTERS_OF_A_STEP)
    return columns


def entry_of(columns: Columns) -> Entry:
    """Return what is indexed of these texts."""
    said = indexed_words(columns.summary)
    first = len(said) if columns.sentence == columns.summary else len(indexed_words(columns.sentence))
    weighted = (
        (indexed_words(columns.name), _NAME),
        (said[:first], _SENTENCE),
        (said[first:] + indexed_words(" ".join(columns.labels)), _REST),
        (indexed_words(" ".join(columns.parameters)), _PARAMETERS),
        (indexed_words(" ".join(columns.examples)), _EXAMPLES),
    )
    weights = defaultdict[str, float](float)
    length = 0
    for words, weight in weighted:
        length += len(words)
        for word in words:
            weights[word] += weight
    counts = defaultdict[str, float](float, dict.fromkeys(columns.forms, _NAME))
    for word, weight in weights.items():
        counts[stem_of(word)] += weight
    return Entry("".join(words_of(columns.name)), counts, tuple(weights), length)


def _some(values: Iterable[Any]) -> Iterator[Any]:
    return (value for _, value in zip(range(_MAX_VALUES), values, strict=False))


def _values(*values: Any) -> list[str]:
    held = tuple(value for value in values if value)
    return _bounded(_texts(held)) if held else []


def _bounded(texts: Iterable[str]) -> list[str]:
    kept: list[str] = []
    left = _MAX_CHARACTERS
    for text in texts:
        kept.append(text[: min(left, _MAX_VALUE_CHARACTERS)])
        left -= len(text) + 1
        if left <= 0:
            break
    return kept


def _texts(values: tuple[Any, ...]) -> Iterator[str]:
    """Yield the texts and numbers in values, the first ones of each: an example may be without end."""
    waiting: list[tuple[Any, int]] = [(values, 0)]
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
