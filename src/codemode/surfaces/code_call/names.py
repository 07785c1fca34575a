"""Compare tool names as a reader sees them: with meta-tools and with each other."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

# Without characters that NFKD decomposes or whose Unicode name contains the letter. Some look like several letters,
# such as ``ll``.

_CONFUSABLES_BY_TEXT: Mapping[str, str] = {
    "-": "\u02d7\u06d4\u2015\u2043\u2212\u2238\u2500\u2501\u2796\u2a29\u2a2a\u2cba\u30fc\u31d0\u4e00\ufb29",
    "-.": "\ua4fe",
    ".": "\u0660\u06f0\u0701\u0702\ua4f8\ua60e\U00010a50\U0001d16d",
    "..": "\ua4fa",
    "/": "\u1735\u2041\u2044\u2215\u2571\u27cb\u29f6\u29f8\u2cc6\u3033\u30ce\u31d3\u4e3f\U0001d23a",
    "//": "\u2afd",
    "///": "\u2afb",
    ":": "\u02d0\u02f8\u0589\u05c3\u0703\u0704\u0903\u0a83\u16ec\u1803\u1809\u205a\u2236\ua4fd\ua789",
    "_": "\u07fa",
    "a": "\u0251\u0391\u03b1\u0410\u0430\u13aa\u15c5\u1e9a\u2376\u237a\ua4ee\U000102a0\U00016f40",
    "aa": "\ua732\ua733",
    "ae": "\u00c6\u00e6\u04d4\u04d5",
    "ao": "\ua734\ua735",
    "b": (
        "\u0184\u0392\u0411\u0412\u042c\u0462\u0463\u048c\u048d\u13cf\u13f4\u1472\u1473\u15af\u15f7\ua4d0"
        "\ua7b4\U00010282\U000102a1\U00010301"
    ),
    "c": (
        "\u00a2\u03f2\u03f9\u0421\u0441\u04aa\u04ab\u13df\u20a1\u2ca4\u2ca5\ua4da\uabaf\U000102a2\U00010302"
        "\U00010415\U0001043d\U0001051c\U000118e9\U000118f2\U0001f16e\U0001f74c"
    ),
    "cc": "\U0001f16d",
    "d": "\u00d0\u0189\u0501\u13a0\u13e7\u146f\u15de\u15ea\u20ab\ua4d2\ua4d3",
    "e": "\u0395\u0415\u0435\u04bd\u04bf\u13ac\u212e\u22ff\u2d39\ua4f0\uab32\U00010286\U000118a6\U000118ae",
    "f": "\u03dc\u0584\u15b4\u1e9d\ua4dd\uab35\U00010287\U000102a5\U00010525\U000118a2\U000118c2\U0001d213",
    "g": "\u018d\u0261\u050c\u0581\u13c0\u13f3\ua4d6",
    "h": "\u0397\u041d\u045b\u04a2\u04bb\u04c7\u04c9\u0570\u13bb\u13c2\u13f2\u157c\u2c8e\ua4e7\ua695\U000102cf",
    "i": "\u0131\u0269\u03b9\u0456\u04cf\u13a5\u1d7b\u1d7c\u2373\u2378\ua647\uab75\U000118c3",
    "j": "\u037f\u03f3\u0408\u0458\u13ab\u148d\ua4d9",
    "k": "\u039a\u041a\u049a\u049e\u13e6\u16d5\u20ad\u2c94\ua4d7\U00010518",
    "l": (
        "\u0196\u0197\u01c0\u0399\u0406\u04c0\u05c0\u05d5\u05df\u0627\u0661\u0673\u06f1\u07ca\u13de\u14aa"
        "\u16c1\u2223\u23fd\u2502\u2503\u2c92\u2cd0\u2d4f\ua4e1\ua4f2\U0001028a\U00010309\U00010320\U0001041b"
        "\U00010526\U000118a3\U000118b2\U00016f16\U00016f28\U0001d22a\U0001e8c7"
    ),
    "ll": "\u01c1\u05f0\u2016\u2225\U00010199",
    "lo": "\u042e",
    "m": "\u039c\u03fa\u041c\u04cd\u13b7\u15f0\u16d6\u20a5\u2c98\ua4df\U000102b0\U00010311\U00011700\U000118e3",
    "n": "\u039d\u03b7\u0578\u057c\u2c9a\ua4e0\U0001018e\U00010513",
    "o": (
        "\u0275\u0398\u039f\u03b8\u03bf\u03c3\u041e\u043e\u0472\u0473\u04e8\u04e9\u0555\u0585\u05e1\u0647"
        "\u0665\u06be\u06c1\u06d5\u06f5\u06ff\u07c0\u0966\u09e6\u0a66\u0ae6\u0b20\u0b66\u0be6\u0c02\u0c66"
        "\u0c82\u0ce6\u0d02\u0d20\u0d66\u0d82\u0e50\u0ed0\u1010\u101d\u1040\u10ff\u12d0\u13be\u13eb\u1d11"
        "\u2296\u229d\u236c\u2c9e\u2c9f\u2d31\u2d41\u2d54\u3007\ua4f3\uab3d\uab3e\uab74\uab8e\uabbb\U00010292"
        "\U000102ab\U00010404\U0001042c\U000104c2\U000104ea\U00010516\U000114d0\U000118b5\U000118c8\U000118d7"
        "\U000118e0\U0001d21a\U0001f714"
    ),
    "oe": "\u0152\u0153",
    "oo": "\u221e\ua698\ua699\ua74e\ua74f",
    "p": "\u03a1\u03c1\u0420\u0440\u13e2\u146d\u2374\u2ca2\u2ca3\ua4d1\U00010295",
    "q": "\u051b\u0563\u0566\u2d55",
    "r": ("\u01a6\u0433\u0493\u13a1\u13d2\u1587\u1d26\u2c85\ua4e3\uab47\uab48\uab81\U000104b4\U00016f35\U0001d216"),
    "s": "\u01bd\u0405\u0455\u054f\u13d5\u13da\ua4e2\uabaa\U00010296\U00010420\U00010448\U000118c1\U00016f3a",
    "t": (
        "\u03a4\u0422\u04ac\u13a2\u20ae\u22a4\u2361\u27d9\u2ca6\ua4d4\U00010297\U000102b1\U00010315\U000118bc"
        "\U00016f0a\U0001f768"
    ),
    "u": (
        "\u0244\u028b\u03c5\u054d\u057d\u1200\u13cc\u144c\u1d7e\u222a\u22c3\ua4f4\ua79f\uab9c\U000104ce"
        "\U000104f6\U000118b8\U000118d8\U00016f42"
    ),
    "v": (
        "\u03bd\u0474\u0475\u05d8\u0667\u06f7\u13d9\u142f\u2228\u22c1\u2d38\ua4e6\ua6df\uaba9\U00010197"
        "\U0001051d\U00011706\U000118a0\U000118c0\U00016f08\U0001d20d\U0001f708"
    ),
    "w": (
        "\u026f\u0461\u047d\u051c\u051d\u0561\u13b3\u13d4\u20a9\ua4ea\ua761\uab83\U000114c5\U0001170a"
        "\U0001170e\U0001170f\U000118e6\U000118ef"
    ),
    "x": (
        "\u00d7\u03a7\u0425\u0445\u04b2\u1541\u157d\u166d\u166e\u16b7\u2573\u292b\u292c\u2a2f\u2a30\u2cac"
        "\u2d5d\ua4eb\ua7b3\U00010196\U00010290\U000102b4\U00010317\U00010322\U00010527\U000118ec"
    ),
    "y": (
        "\u00a5\u0263\u03a5\u03b3\u0423\u0443\u04ae\u04af\u04b0\u04b1\u10e7\u13a9\u13bd\u1d8c\u2ca8\ua4ec"
        "\U000102b2\U000118a4\U000118dc\U00016f43"
    ),
    "z": "\u0396\u13c3\ua4dc\uab93\U000102f5\U000118a9\U000118c4\U000118e5",
}

LOOK_ALIKES: Mapping[str, str] = {
    character: plain for plain, some in _CONFUSABLES_BY_TEXT.items() for character in some
}
"""Maps a character to the lower-case text that it looks like."""


META_TOOLS = ("search", "describe", "execute", "invoke")
_SEPARATORS = {"dotted": ".", "colon": ":", "underscore": "_"}
_META_PREFIX = re.compile(r"codecall[.:_\-/]")
_MAX_CHARACTERS = 4096  # of a name that a program asks for; names of tools are far shorter
_META_PREFIX_CHARACTERS = 10

# Invisible: marks, controls, formats and spaces.
_INVISIBLE = frozenset({"Mn", "Mc", "Me", "Cf", "Cc", "Zs", "Zl", "Zp"})
_BLANK = re.compile("[\u115f\u1160\u2065\u2800\u3164\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]")
_LATIN_LETTER_NAME = re.compile(
    r"LATIN (?:SMALL|CAPITAL) (?:LETTER|LIGATURE) ([A-Z])(?: WITH .*)?|LATIN LETTER SMALL CAPITAL ([A-Z])"
    r"|(?:NEGATIVE (?:CIRCLED|SQUARED) LATIN CAPITAL|REGIONAL INDICATOR SYMBOL) LETTER ([A-Z])"
)
_PUNCTUATION_BY_CATEGORY = {"Pd": "-", "Pc": "_"}
_DIGITS = str.maketrans("01|", "oll")
_SMALL_PALOCHKA = "\u04cf"  # TR39 has it as an i; most fonts draw an l


def format_meta_tool_name(tool: str, style: str) -> str:
    """Return the name of a meta-tool in the style of the options, such as ``codecall.search``."""
    return f"codecall{_SEPARATORS[style]}{tool}"


def parse_meta_tool_name(name: str) -> str | None:
    """Return the meta-tool of a name in any style, or None."""
    return next(
        (
            meta_tool
            for meta_tool in META_TOOLS
            for style in _SEPARATORS
            if name == format_meta_tool_name(meta_tool, style)
        ),
        None,
    )


def looks_like_meta_tool(name: str) -> bool:
    """Return True if a reader could take a name for a meta-tool.

    That is: after NFKD, without invisible characters, marks and spaces, with look-alikes (Unicode TR39) as the letters
    a to z, and ignoring case, it starts with ``codecall`` and one of ``. : _ - /``.
    """
    first = name[:1]
    if name.isascii() and first.isalnum() and first not in "cC":
        return False  # most names
    folded = "".join(_iter_folded_prefix(name[:_MAX_CHARACTERS].replace(_SMALL_PALOCHKA, "l")))
    return _META_PREFIX.match(folded.translate(_DIGITS)) is not None


def compute_skeleton(name: str) -> str:
    """Return the form of a name that a reader sees; names with equal skeletons look the same."""
    short = name[:_MAX_CHARACTERS]
    return short.translate(_ASCII_FOLDING) if short.isascii() else "".join(_iter_folded_characters(short))


_compute_cached_skeleton = lru_cache(maxsize=64)(compute_skeleton)


def reject_confusable_names(names: Iterable[str]) -> None:
    """Raise `ValueError` for a name that looks like a meta-tool and for two names that look the same.

    Names that differ only in case are distinct.
    """
    known: dict[str, str] = {}
    for name in names:
        if looks_like_meta_tool(name):
            raise ValueError(f"tool name {name!r} looks like a meta-tool of CodeCall; give the tool another name")
        other = known.setdefault(compute_skeleton(name), name)
        if other.casefold() != name.casefold():
            raise ValueError(f"tool names {other!r} and {name!r} look the same; give one of them another name")


def has_confusable_prefix(name: str, prefixes: Iterable[str]) -> bool:
    """Return True if a name looks as if it starts with one of the prefixes."""
    folded = compute_skeleton(name)
    return any(folded.startswith(_compute_cached_skeleton(prefix)) for prefix in prefixes)


def _iter_folded_prefix(name: str) -> Iterator[str]:
    length = 0
    for part in _iter_folded_characters(name):
        yield part
        length += len(part)
        if length >= _META_PREFIX_CHARACTERS:
            return


def _iter_folded_characters(name: str) -> Iterator[str]:
    return map(_fold_character, name)


@lru_cache(maxsize=4096)
def _fold_character(character: str) -> str:
    alike = LOOK_ALIKES.get(character)
    if alike is not None:
        return alike
    plain = unicodedata.normalize("NFKD", character)
    return "".join(map(_fold_character, plain)) if plain != character else _fold_undecomposable_character(character)


def _fold_undecomposable_character(character: str) -> str:
    category = unicodedata.category(character)
    if category in _INVISIBLE or _BLANK.match(character):
        return ""
    if character == "I":
        return "l"
    if character.isascii():
        return character.lower()
    named = _LATIN_LETTER_NAME.fullmatch(unicodedata.name(character, ""))
    if named:
        return next(filter(None, named.groups())).lower()
    folded = character.casefold()
    if folded != character:
        return "".join(map(_fold_character, folded))
    return _PUNCTUATION_BY_CATEGORY.get(category, character)


_ASCII_FOLDING = {code: _fold_character(chr(code)) for code in range(128)}
