"""A query as it is searched for: its words, the forms of its values, the whole in one word. Pure, and bounded."""

from __future__ import annotations

from typing import NamedTuple

from .forms import taken_apart
from .idioms import plainly
from .words import MAX_QUERY_CHARACTERS, asked_words, words_of

_OF_ADDRESSES = frozenset({"http", "https", "www", "com", "org", "net", "html", "example"})


class Query(NamedTuple):
    """What is looked for: words, marks of the forms of values, the words in those values, the whole in one word."""

    words: list[str]
    forms: list[str]
    in_values: list[str]
    plain: str


def read_query(query: str) -> Query:
    """Return what is looked for when somebody asks this."""
    query = query[:MAX_QUERY_CHARACTERS]
    rest, forms, values = taken_apart(query)
    rest = plainly(rest)
    in_values = [word for word in asked_words(values) if len(word) > 2 and word not in _OF_ADDRESSES] if forms else []
    return Query(asked_words(rest), forms, in_values, "".join(words_of(query)))
