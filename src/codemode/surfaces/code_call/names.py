"""Names of tools as a reader sees them: which look like a meta-tool, which cannot be told apart. Knows no catalog."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from .look_alikes import LOOK_ALIKES

META_TOOLS = ("search", "describe", "execute", "invoke")
_SEPARATORS = {"dotted": ".", "colon": ":", "underscore": "_"}
_META = re.compile(r"codecall[.:_\-/]")
_MAX_CHARACTERS = 4096  # of what a program asks for by name; a tool's own is far shorter
_MORE_THAN_META = 10

# What nobody sees: marks, controls, formats and spaces of all kinds.
_INVISIBLE = frozenset({"Mn", "Mc", "Me", "Cf", "Cc", "Zs", "Zl", "Zp"})
_BLANK = re.compile("[\u115f\u1160\u2065\u2800\u3164\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]")
_NAMED = re.compile(
    r"LATIN (?:SMALL|CAPITAL) (?:LETTER|LIGATURE) ([A-Z])(?: WITH .*)?|LATIN LETTER SMALL CAPITAL ([A-Z])"
    r"|(?:NEGATIVE (?:CIRCLED|SQUARED) LATIN CAPITAL|REGIONAL INDICATOR SYMBOL) LETTER ([A-Z])"
)
_DASHES = {"Pd": "-", "Pc": "_"}
_DIGITS = str.maketrans("01|", "oll")
_SMALL_PALOCHKA = "\u04cf"  # TR39 has it as an i; most fonts draw an l


def meta_name(tool: str, style: str) -> str:
    """Return what a meta-tool is called: ``codecall.search`` and so on, by the style of the options."""
    return f"codecall{_SEPARATORS[style]}{tool}"


def meta_tool_of(name: str) -> str | None:
    """Return which meta-tool a name stands for, in any of the styles; None for another name."""
    return next((one for one in META_TOOLS for style in _SEPARATORS if name == meta_name(one, style)), None)


def looks_like_meta_tool(name: str) -> bool:
    """Tell whether a reader may take a name for that of a meta-tool.

    In NFKD, without invisible characters, marks and spaces, look-alikes (Unicode's TR39) as the letters a to z, letter
    case aside, it begins with ``codecall`` and one of ``. : _ - /``.
    """
    first = name[:1]
    if name.isascii() and first.isalnum() and first not in "cC":
        return False  # most names
    seen = "".join(_beginning(name[:_MAX_CHARACTERS].replace(_SMALL_PALOCHKA, "l")))
    return _META.match(seen.translate(_DIGITS)) is not None


def skeleton(name: str) -> str:
    """Return a name as a reader sees it: two of the same skeleton cannot be told apart."""
    short = name[:_MAX_CHARACTERS]
    return short.translate(_PLAIN) if short.isascii() else "".join(_seen(short))


_kept_skeleton = lru_cache(maxsize=64)(skeleton)


def refuse_confusable(names: Iterable[str]) -> None:
    """Raise `ValueError` for a name that looks like a meta-tool, and for two that only look-alikes tell apart.

    Names that differ in the case of their letters alone are two names.
    """
    known: dict[str, str] = {}
    for name in names:
        if looks_like_meta_tool(name):
            raise ValueError(f"tool name {name!r} looks like a meta-tool of CodeCall; give the tool another name")
        other = known.setdefault(skeleton(name), name)
        if other.casefold() != name.casefold():
            raise ValueError(f"tool names {other!r} and {name!r} look the same; give one of them another name")


def begins_with(name: str, prefixes: Iterable[str]) -> bool:
    """Tell whether a name begins, as a reader sees it, with one of these."""
    seen = skeleton(name)
    return any(seen.startswith(_kept_skeleton(prefix)) for prefix in prefixes)


def _beginning(name: str) -> Iterator[str]:
    length = 0
    for part in _seen(name):
        yield part
        length += len(part)
        if length >= _MORE_THAN_META:
            return


def _seen(name: str) -> Iterator[str]:
    return map(_look, name)


@lru_cache(maxsize=4096)
def _look(character: str) -> str:
    alike = LOOK_ALIKES.get(character)
    if alike is not None:
        return alike
    plain = unicodedata.normalize("NFKD", character)
    return "".join(map(_look, plain)) if plain != character else _look_of_one(character)


def _look_of_one(character: str) -> str:
    category = unicodedata.category(character)
    if category in _INVISIBLE or _BLANK.match(character):
        return ""
    if character == "I":
        return "l"
    if character.isascii():
        return character.lower()
    named = _NAMED.fullmatch(unicodedata.name(character, ""))
    if named:
        return next(filter(None, named.groups())).lower()
    folded = character.casefold()
    if folded != character:
        return "".join(map(_look, folded))
    return _DASHES.get(category, character)


_PLAIN = {code: _look(chr(code)) for code in range(128)}
