"""Parse a query into words and the forms of its values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from .tokenizer import MAX_QUERY_CHARACTERS, split_query_and_drop_stopwords, split_terms

_FORM_PREFIX = "="  # no word contains it, so words never match forms
_SCHEMA_FORMATS = {
    "uri": "url",
    "url": "url",
    "iri": "url",
    "uri-reference": "url",
    "email": "email",
    "idn-email": "email",
    "uuid": "id",
    "date": "date",
    "date-time": "date",
    "time": "time",
    "ipv4": "host",
    "ipv6": "host",
    "hostname": "host",
}
_PARAMETER_NAMES = {
    "url": "url urls uri uris link href website webpage domain site",
    "email": "email emails mail recipient recipients sender cc bcc",
    "place": "latitude longitude lat lng lon coordinate coordinates geo location",
    "host": "ip host hostname",
    "path": "path paths file files filename filepath directory folder",
    "id": "id ids uuid guid key sha hash commit identifier ref number",
    "date": "date dates day since until deadline due datetime timestamp",
    "time": "time hour clock",
}
_FORM_OF_NAME = {name: form for form, names in _PARAMETER_NAMES.items() for name in names.split()}
_VALUE_PATTERNS = (
    ("url", re.compile(r"\b(?:[a-z][a-z0-9+]{1,9}://|www\.)\S+", re.IGNORECASE)),
    ("email", re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")),
    ("place", re.compile(r"(?<![\d.])-?\d{1,3}\.\d+\s?°?\s?[NS]?\s?[,;]\s?-?\d{1,3}\.\d+\s?°?\s?[EW]?(?![\d.])")),
    ("host", re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")),
    ("url", re.compile(r"\b(?:[a-z0-9-]{1,63}\.)+(?:com|org|net|io|dev|ai|edu|gov)\b(?:/\S*)?", re.IGNORECASE)),
    ("path", re.compile(r"(?<![\w/])(?:~|\.{1,2})?/[\w.-]+(?:/[\w.-]*)*|\b[A-Za-z]:\\\S+")),
    ("path", re.compile(r"\b[\w-]+\.(?:txt|md|pdf|csv|json|ya?ml|xlsx?|docx?|pptx?|png|jpe?g|py|ts|html)\b")),
    ("id", re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|#\d+\b|\b[A-Z]{2,10}-\d+\b", re.IGNORECASE)),
    ("id", re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,64}\b|(?<![\d.,-])\d{5,}(?![\d.,-])")),
    ("date", re.compile(r"\b\d{4}-\d{2}-\d{2}\b|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b")),
    ("time", re.compile(r"\b\d{1,2}:\d{2}\b")),
)  # fmt: skip
_VALUE_CHARACTERS = re.compile(r"[\d./\\@-]")  # every value contains one of these


def list_parameter_value_kinds(name: str, schema: Mapping[Any, Any]) -> Iterable[str]:
    """Return the forms of values that a parameter takes, as stems."""
    form = schema.get("format")
    marks = _list_value_kinds_of_name(name)
    return (
        (*marks, _FORM_PREFIX + _SCHEMA_FORMATS[form]) if isinstance(form, str) and form in _SCHEMA_FORMATS else marks
    )


@lru_cache(1 << 12)
def _list_value_kinds_of_name(name: str) -> tuple[str, ...]:
    return tuple({_FORM_PREFIX + _FORM_OF_NAME[word] for word in split_terms(name) if word in _FORM_OF_NAME})


def split_off_values(query: str) -> tuple[str, list[str], str]:
    """Return a query without its values, the forms of the values, and the values."""
    marks: dict[str, None] = {}
    values: list[str] = []
    if not _VALUE_CHARACTERS.search(query):
        return query, [], ""
    for form, pattern in _VALUE_PATTERNS:
        for value in pattern.findall(query):
            marks[_FORM_PREFIX + form] = None
            values.append(value)
        query = pattern.sub(" ", query)
    return query, list(marks), " ".join(values)


_URL_WORDS = frozenset({"http", "https", "www", "com", "org", "net", "html", "example"})


class ParsedQuery(NamedTuple):
    """Words, forms of values, words in values, and the whole query as one word."""

    terms: list[str]
    forms: list[str]
    value_terms: list[str]
    plain: str


def parse_query(query: str) -> ParsedQuery:
    """Parse a query."""
    query = query[:MAX_QUERY_CHARACTERS]
    rest, forms, values = split_off_values(query)
    value_terms = (
        [word for word in split_query_and_drop_stopwords(values) if len(word) > 2 and word not in _URL_WORDS]
        if forms
        else []
    )
    return ParsedQuery(split_query_and_drop_stopwords(rest), forms, value_terms, "".join(split_terms(query)))
