"""Read the tool lists and texts of MCP servers, with limits."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from ..data.json_values import encode_json
from ..data.narrowing import is_mapping
from ..schemas.compiled import get_json_type_name
from ..trace.visible_text import clip_text, clip_to_visible_line

# A server may be hostile: its texts must not affect the other servers of a run.

MAX_NAME_CHARACTERS = 256
MAX_DESCRIPTION_CHARACTERS = 16_000
MAX_CAPABILITIES = 64
MAX_ANNOTATIONS = 64
MAX_ANNOTATION_BYTES = 4_000
_MAX_ANNOTATION_VALUES = 200


def to_bounded_text(value: Any, max_characters: int = MAX_NAME_CHARACTERS) -> str | None:
    """Return a plain `str` of at most ``max_characters``; None for other values."""
    if not isinstance(value, str):
        return None
    return clip_text(str.__str__(value), max_characters) or None


def to_bounded_texts(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the first strings of a list."""
    texts = (to_bounded_text(text) for text in values)
    return tuple(islice((text for text in texts if text is not None), MAX_CAPABILITIES))


def to_bounded_annotations(annotations: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the annotations that are small JSON."""
    result: dict[str, Any] = {}
    for name, value in islice(annotations.items(), MAX_ANNOTATIONS):
        plain_name = to_bounded_text(name)
        if plain_name is None:
            continue
        try:
            text = encode_json(
                value, max_bytes=MAX_ANNOTATION_BYTES, max_values=_MAX_ANNOTATION_VALUES, what="an annotation"
            )
            result[plain_name] = json.loads(text)
        except Exception:  # noqa: BLE001, S112 - one that cannot be told costs the others nothing
            continue
    return result


# Notes about a list are few and short, and every list ends.

MAX_PAGES = 1_000
MAX_NOTE_CHARACTERS = 600
MAX_NOTES = 16
_MAX_LABELS_PER_REASON = 5
_MAX_NAME_CHARACTERS = 64
_MAX_REFUSAL_CHARACTERS = 200

DUPLICATE_REASON = "listed more than once; the first is used"
CONFLICTING_DUPLICATE_REASON = "listed more than once, with different definitions; the first is used"


class OmittedEntries:
    """Entries of a list that programs do not get, by reason, and other problems of the list."""

    def __init__(self) -> None:
        self._labels: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._list_notes: dict[str, None] = {}

    def add_entry(self, reason: str, label: str) -> None:
        """Note why an entry, named by `format_entry_label`, is left out."""
        if reason not in self._counts and len(self._counts) >= MAX_NOTES:
            return
        self._counts[reason] = self._counts.get(reason, 0) + 1
        labels = self._labels.setdefault(reason, [])
        if len(labels) < _MAX_LABELS_PER_REASON and label not in labels:
            labels.append(label)

    def add_list_note(self, text: str) -> None:
        """Note a problem of the whole list."""
        if len(self._list_notes) < MAX_NOTES:
            self._list_notes[clip_to_visible_line(text, MAX_NOTE_CHARACTERS)] = None

    def merge(self, other: OmittedEntries) -> None:
        """Add the notes of another part of the same list."""
        for reason, count in other._counts.items():
            for label in other._labels[reason]:
                self.add_entry(reason, label)
            if reason in self._counts:
                self._counts[reason] += count - len(other._labels[reason])
        for text in other._list_notes:
            self.add_list_note(text)

    @property
    def notes(self) -> tuple[str, ...]:
        """One line per reason: ``"a", "b" and 3 more: listed more than once; the first is used``."""
        return (*(self._format_reason(reason) for reason in self._counts), *self._list_notes)[:MAX_NOTES]

    def _format_reason(self, reason: str) -> str:
        labels = self._labels[reason]
        unlisted = self._counts[reason] - len(labels)
        text = f"{', '.join(labels)}{f' and {unlisted} more' if unlisted > 0 else ''}: {reason}"
        return clip_to_visible_line(text, MAX_NOTE_CHARACTERS)


def describe_json_type(value: Any) -> str:
    """Return the JSON type of a value with its article: "null", "an array"."""
    name = get_json_type_name(value)
    return name if value is None else f"{'an' if name[:1] in 'aeio' else 'a'} {name}"


def format_entry_label(entry: Any, position: int) -> str:
    """Return an entry's label in notes: its quoted name, or its position in the list, from 1."""
    name = entry.get("name") if is_mapping(entry) else getattr(entry, "name", None)
    if isinstance(name, str) and name.strip():
        return f'"{clip_to_visible_line(str.__str__(name), _MAX_NAME_CHARACTERS)}"'
    return f"entry {position:,}"


def log_omitted_entries(log: logging.Logger, server: str, notes: Sequence[str], items: str = "tools") -> None:
    """Log a warning about the problems of a server's list of ``items``."""
    if notes:
        log.warning("the list of %s of server %r cannot be used as a whole: %s", items, server, "; ".join(notes))


class PageCursorTracker:
    """Tracks the cursor of the next page. Limits the number of pages and stops at repeated cursors.

    ``cursor`` is None for the first page. An empty cursor is valid by the specification; a server that means the end
    answers with its first page or an error. ``is_repeat``: the page was requested with an empty or repeated cursor, so
    repeated entries are no further problem.
    """

    def __init__(self, left_out: OmittedEntries) -> None:
        self.cursor: Any = None
        self.is_repeat = False
        self._page = 1
        self._seen: set[Any] = set()
        self._left_out = left_out

    def advance_to(self, cursor: Any, *, has_new: bool) -> bool:
        """Take the cursor of a page; return whether there is another page to request.

        ``has_new``: the page has an entry that earlier pages did not have.
        """
        if cursor is None:
            return False
        if isinstance(cursor, bool) or not isinstance(cursor, str | int):
            self._record_end_of_list(f"has a nextCursor that is {describe_json_type(cursor)}, not a string")
            return False
        if not has_new and (cursor in self._seen or self.cursor == ""):
            if cursor != "" and self.cursor != "":
                self._record_end_of_list("gives the cursor of an earlier page and no new entry")
            return False
        if self._page >= MAX_PAGES:
            self._left_out.add_list_note(f"the list has more than {MAX_PAGES:,} pages; the rest is left out")
            return False
        self.is_repeat = cursor == "" or cursor in self._seen
        self._seen.add(cursor)
        self.cursor = cursor
        self._page += 1
        return True

    def record_page_refusal(self, reason: str) -> None:
        """Note that the server refused a page after the first; earlier pages are used."""
        if self.cursor != "":
            self._left_out.add_list_note(
                f"page {self._page:,} of the list was refused: {clip_to_visible_line(reason, _MAX_REFUSAL_CHARACTERS)};"
                " what it would have listed is left out"
            )

    def _record_end_of_list(self, why: str) -> None:
        self._left_out.add_list_note(f"page {self._page:,} of the list {why}; the list is taken to end there")
