"""What a notice tells of a record: what may be told, cut to a bound. Pure."""

from __future__ import annotations

from urllib.parse import quote

from codemode import Record, StoredRequest

MOST_REQUESTS = 50
_MAX_NAME_CHARACTERS = 1_000


def link_of(base_url: str, record_id: str) -> str:
    """Return where a record's page is. Whoever follows it has to sign in."""
    return f"{base_url.rstrip('/')}/records/{quote(record_id, safe='')}"


def waiting_of(record: Record) -> list[StoredRequest]:
    """Return the requests that wait."""
    return [one for one in record.requests if one.state == "waiting"]


def short(text: str, most: int = _MAX_NAME_CHARACTERS) -> str:
    """Return a text, or its beginning and an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
