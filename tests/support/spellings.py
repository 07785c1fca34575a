"""Spellings of a meta-tool's name that a reader takes for it: hidden, mirrored, widened, marked and look-alike."""

from __future__ import annotations

import random

_HIDDEN = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u180e\u200e\u200f\u202a\u202e\u2066\u2069\ufe0f\u3164\u115f "
_MARKS = "\u0300\u0301\u0308\u0323\u0335\u0336\u20dd\u0489"
_ALIKE = {
    "c": "\u0441\u03f2\u217d\u0421\u216d\u1d04\u2ca5\U0001d41c\uff43\u24d2\u00e7\u00a2\U0001f172",
    "o": "\u043e\u03bf\u041e\u039f\u00f6\uff4f\u24de\U0001d5c8\u0585\u00f8\u2c9f0",
    "d": "\u0501\u217e\uff44\u24d3\U0001d555\u0111\u13e7",
    "e": "\u0435\u0415\u0395\uff45\u24d4\u212f\u00e9\u04bd\U0001d4ee",
    "a": "\u0430\u03b1\u0391\u0410\uff41\u24d0\u00e4\u0251\U0001d4b6",
    "l": "\u0399\u0406\u04c0\uff4c\u24db\u217c1I|\u01c0\u2113\u0142\U0001d4c1\u05c0",
}
_SEPARATORS = {
    ".": "\uff0e\u2024\ua4f8\u0660\u06f0",
    ":": "\uff1a\ua789\u2236\u05c3\u0589\u02d0",
    "_": "\uff3f\u07fa\u203f\ufe4f",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2212\uff0d\u2043\u30fc",
    "/": "\uff0f\u2044\u2215\u29f8\u4e3f",
}


def meta_spellings(count: int = 300, seed: int = 15) -> list[str]:
    """Return so many spellings of meta-tools' names, each another one; the first are the plain ones."""
    chance = random.Random(seed)
    spelled = dict.fromkeys(f"codecall{mark}{kind}" for mark in _SEPARATORS for kind in ("search", "execute"))
    while len(spelled) < count:
        spelled[_spelled(chance)] = None
    return list(spelled)


def _spelled(chance: random.Random) -> str:
    mark = chance.choice(list(_SEPARATORS))
    name = "".join(_letter(chance, letter) for letter in "codecall")
    mark = chance.choice(_SEPARATORS[mark]) if chance.random() < 0.4 else mark
    kind = chance.choice(("search", "describe", "execute", "invoke", "anything", ""))
    hidden = chance.choice(_HIDDEN) if chance.random() < 0.3 else ""
    return f"{hidden}{name}{mark}{kind}"


def _letter(chance: random.Random, letter: str) -> str:
    kind = chance.choice(("plain", "plain", "plain", "upper", "alike", "hidden", "marked"))
    if kind == "upper":
        return letter.upper()
    if kind == "alike":
        return chance.choice(_ALIKE[letter])
    return letter + (chance.choice(_HIDDEN) if kind == "hidden" else chance.choice(_MARKS) if kind == "marked" else "")
