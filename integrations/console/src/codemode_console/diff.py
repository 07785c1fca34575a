"""The difference between a shown and an edited value, as lines for a person. Knows nothing of pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from markupsafe import Markup, escape

from .forms.model import below
from .visible import Cut, cut, visible, visible_json_pieces

MOST_LINES = 200
MOST_VALUE_CHARACTERS = 200
MOST_UNFOLDED_CHARACTERS = 8_192

Change = Literal["added", "removed", "more"]
_ABSENT: Any = object()
_SIDES: tuple[tuple[Change, str], ...] = (("removed", "from"), ("added", "to"))


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line: ``removed`` is what was shown, ``added`` what takes its place; the change "more" ends a cut diff.

    ``more`` is more of a value of which ``text`` is the beginning.
    """

    change: Change
    pointer: Markup
    text: Markup
    more: Cut | None = None

    @property
    def characters(self) -> int:
        """How many characters of a page its value takes."""
        return len(self.text) + (0 if self.more is None else len(self.more.text))

    @property
    def sign(self) -> str:
        """What stands before the line."""
        return {"added": "+", "removed": "-", "more": "\N{HORIZONTAL ELLIPSIS}"}[self.change]


def diff(before: Any, after: Any) -> list[DiffLine]:
    """Return what differs between two JSON values, at most `MOST_LINES`; each value of a line is cut.

    1 and 1.0 differ, and so do 1 and true: what a tool gets is said exactly.
    """
    lines: list[DiffLine] = []
    for pointer, was, now in _places(before, after):
        if len(lines) >= MOST_LINES:
            return [*lines, DiffLine("more", Markup(), Markup())]
        if was is not _ABSENT:
            lines.append(_line("removed", pointer, was))
        if now is not _ABSENT:
            lines.append(_line("added", pointer, now))
    return lines


def told_diff(entries: Iterable[Mapping[str, Any]]) -> list[DiffLine]:
    """Return a difference as a line of the audit tells it: path, from and to, or the beginnings of long ones."""
    lines: list[DiffLine] = []
    for one in entries:
        if one.get("more"):
            lines.append(DiffLine("more", Markup(), Markup()))
        for change, name in _SIDES:
            if name in one:
                lines.append(_line(change, str(one.get("path", "")), one[name]))
            elif f"{name}_start" in one:
                begun = f"{one[f'{name}_start']} \N{HORIZONTAL ELLIPSIS}"
                pointer = visible(str(one.get("path", ""))[:MOST_VALUE_CHARACTERS], one_line=True)
                lines.append(DiffLine(change, pointer, visible(begun[: 2 * MOST_VALUE_CHARACTERS], one_line=True)))
        if len(lines) >= MOST_LINES:
            break
    return lines


def _line(change: Change, pointer: str, value: Any) -> DiffLine:
    # Of a long text the beginning alone is written.
    begun = value[: MOST_VALUE_CHARACTERS + 1] if isinstance(value, str) else value
    pieces: list[str] = []
    for piece in visible_json_pieces(begun, indent=None):
        pieces.append(piece)
        if sum(map(len, pieces)) > MOST_VALUE_CHARACTERS:
            break
    text, more = "".join(pieces), None
    if len(text) > MOST_VALUE_CHARACTERS:
        text, more = f"{text[:MOST_VALUE_CHARACTERS]} \N{HORIZONTAL ELLIPSIS}", cut(value, MOST_UNFOLDED_CHARACTERS)
    return DiffLine(change, visible(pointer[:MOST_VALUE_CHARACTERS], one_line=True), escape(text), more)


def _places(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    # A stack of its own: the values nest as deeply as JSON may.
    left: list[tuple[str, Any, Any]] = [("", before, after)]
    while left:
        pointer, was, now = left.pop()
        pairs = _pairs(was, now)
        if pairs is not None:
            left += [(below(pointer, name), *pair) for name, pair in reversed(pairs)]
        elif type(was) is not type(now) or was != now:
            yield pointer, was, now


def _pairs(was: Any, now: Any) -> list[tuple[str | int, tuple[Any, Any]]] | None:
    if isinstance(was, dict) and isinstance(now, dict):
        one, other = cast("dict[str, Any]", was), cast("dict[str, Any]", now)
        names = dict.fromkeys((*one, *other))
        return [(name, (one.get(name, _ABSENT), other.get(name, _ABSENT))) for name in names]
    if isinstance(was, list) and isinstance(now, list):
        rows, others = cast("list[Any]", was), cast("list[Any]", now)
        both = max(len(rows), len(others))
        return [(at, (_item(rows, at), _item(others, at))) for at in range(both)]
    return None


def _item(items: list[Any], at: int) -> Any:
    return items[at] if at < len(items) else _ABSENT
