"""Invisible characters in a text: one list, for terminals, questions and declarations."""

from __future__ import annotations

import re

BLANK_CHARACTERS = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U0001d159\U000e0100-\U000e01ef"
)
"""For a pattern, between brackets: printable for Unicode, and blank, a filler or a selector of shapes for people."""

FORMAT_CHARACTERS = (
    "\xad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f"
)
"""Likewise: joiners, directions and tags, in which a text can be hidden from people, and not from models."""

_BLANK_CHARACTER = re.compile(f"[{BLANK_CHARACTERS}]")


def has_only_visible_characters(text: str) -> bool:
    """Tell whether each character of a text is seen as itself: no control, direction, filler, or unusual space."""
    return text.isprintable() and (text.isascii() or _BLANK_CHARACTER.search(text) is None)
