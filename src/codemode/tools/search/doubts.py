"""Doubts about a list of tools: that it may not be what was meant, and what to ask instead."""

from __future__ import annotations

import unicodedata

from .meanings import GENERAL, STOP_WORDS
from .query import Query
from .readings import synonyms_of, translated
from .text_index import TextIndex

NO_WORD = "The query has no word in it: say in words what is to be done."
FIRST_TOOLS = "These are the first tools only. Ask in the language in which tools are described."
_LEAST_SHARE = 0.4
_MAX_SHOWN = 4
_MAX_SUGGESTED = 8
_MAX_CHARACTERS = 40


def doubt_of(query: Query, index: TextIndex, best: int | None) -> str | None:
    """Return a warning where the best tool has too little of the query, or there is none; ``best`` is its slot."""
    words = [word for word in query.words if word not in GENERAL] or query.words
    if best is not None and (
        not words or index.share(words, best) >= _LEAST_SHARE or index.postings.named(query.plain)
    ):
        return None
    missing = index.missing(words)
    shown = " or ".join(f"{word[:_MAX_CHARACTERS]!r}" for word in (missing or words)[:_MAX_SHOWN])
    if best is None:
        begun = f"No tool has {shown}."
    elif missing:
        begun = f"No tool has {shown}: these fit other, common words of the query and may have nothing to do with it."
    else:
        begun = f"No tool has most of {shown}: these fit single words of the query and may have nothing to do with it."
    return f"{begun} Try other words{_suggestion(missing or words, index)}."


def is_foreign(query: Query) -> bool:
    """Tell whether a query is in a script that needs not be that of the tools."""
    return any(not word.isascii() and "LATIN" not in unicodedata.name(word[0], "") for word in query.words)


def _suggestion(words: list[str], index: TextIndex) -> str:
    """Return words that tools here do have: those that mean about the same, or else the commonest of their names."""
    meant = (other for word in words for one in (word, *translated(word)) for other in (one, *synonyms_of(one)))
    near = [word for word in dict.fromkeys(meant) if word in index.postings.known and word not in words]
    if near:
        return f", such as {', '.join(near[:_MAX_SUGGESTED])}"
    common = [word for word in index.commonest() if word not in GENERAL and word not in STOP_WORDS]
    return f"; tools here are about {', '.join(common[:_MAX_SUGGESTED])}" if common else ""
