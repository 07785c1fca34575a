"""Many requests that are decided together: how forms name them, and what was shown of each. Knows no pages."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from .errors import Problem

MOST_AT_ONCE = 200
ABOUT_CHOICE = "many: choice"
"""What the token of the form is about in which some are chosen: it decides nothing."""
_MOST_CHARACTERS = 4096
_NO_CHOICE = "A field of the form names no request."


@dataclass(frozen=True, slots=True)
class Chosen:
    """A request that somebody has chosen, and as what it was shown, "" before it was."""

    record_id: str
    interrupt_id: str
    version: str = ""
    shown: str = ""

    def text(self) -> str:
        """Return the value of a field that names it."""
        return "/".join(quote(one, safe="") for one in (self.record_id, self.interrupt_id, self.version, self.shown))


def chosen_text(record_id: str, interrupt_id: str) -> str:
    """Return the value of a checkbox that chooses a request."""
    return f"{quote(record_id, safe='')}/{quote(interrupt_id, safe='')}"


def chosen_of(texts: Sequence[str], *, parts: int) -> list[Chosen]:
    """Read fields that name requests, each request once. Raises `Problem` 400, and 422 for none and for too many."""
    chosen: dict[tuple[str, str], Chosen] = {}
    for text in texts:
        found = text.split("/")
        if len(found) != parts or len(text) > _MOST_CHARACTERS:
            raise Problem(400, "This is no form", _NO_CHOICE)
        try:
            one = Chosen(*(unquote(part, errors="strict") for part in found))
        except UnicodeDecodeError:
            raise Problem(400, "This is no form", _NO_CHOICE) from None
        chosen.setdefault((one.record_id, one.interrupt_id), one)
    if not chosen:
        raise Problem(422, "Nothing is selected", "Go back, and select what is to be decided.")
    if len(chosen) > MOST_AT_ONCE:
        raise Problem(422, "This is too much at once", f"At most {MOST_AT_ONCE} are decided together; nothing was.")
    return list(chosen.values())


def about(decision: str, chosen: Iterable[Chosen]) -> str:
    """Return what the token of the form is about in which these are decided, as they were shown."""
    digest = hashlib.sha256("\n".join(one.text() for one in chosen).encode("utf-8", "surrogatepass")).hexdigest()
    return f"many: {decision} {digest}"
