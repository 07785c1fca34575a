"""A query as it is searched for: its words, the forms of its values, the whole in one word. Pure, and bounded."""

from __future__ import annotations

from typing import NamedTuple

from .forms import taken_apart
from .words import MAX_QUERY_CHARACTERS, asked_words, words_of


class Query(NamedTuple):
    """What is looked for."""

    words: list[str]
    forms: list[str]
    plain: str


def read_query(query: str) -> Query:
    """Return what is looked for when somebody asks this."""
    query = query[:MAX_QUERY_CHARACTERS]
    rest, forms, values = taken_apart(query)
    return Query(asked_words(f"{rest} {values}" if forms else query), forms, "".join(words_of(query)))
