"""The one stylesheet: its colours can be told apart, by day and by night, and it loads nothing."""

from __future__ import annotations

import re
from pathlib import Path

import codemode_console
import pytest

SHEET = (Path(codemode_console.__file__).parent / "static" / "console.css").read_text(encoding="utf-8")
SIGNALS = ("mark", "bad-ground", "note-ground", "added", "removed")
TEXT_ON = [
    *((text, ground) for text in ("text", "faint", "link") for ground in ("ground", "raised")),
    *((text, ground) for text in ("text", "link") for ground in SIGNALS),
    *((f"tok-{kind}", "raised") for kind in "csmk"),
    ("bad", "ground"), ("good", "ground"), ("on-accent", "accent"),
]  # fmt: skip
EDGES_ON = [("edge", "ground"), ("focus", "ground"), ("edge", "raised")]


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))


def brightness(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((brightness(one), brightness(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("night", [False, True])
def test_texts_and_edges_can_be_told_from_their_ground(night: bool) -> None:
    day, dark = re.findall(r":root \{(.*?)\}", SHEET, re.DOTALL)
    found = colours(dark if night else day)
    assert colours(dark).keys() == colours(day).keys()
    for pairs, least in ((TEXT_ON, 4.5), (EDGES_ON, 3)):
        faint = {pair: contrast(*(found[one] for one in pair)) for pair in pairs}
        assert {pair: ratio for pair, ratio in faint.items() if ratio < least} == {}


def test_it_loads_nothing_and_shows_where_the_focus_is() -> None:
    assert not re.search(r"url\(|@import|expression|https?:", SHEET)
    assert ":focus-visible { outline:" in SHEET
    assert not re.search(r"outline: (none|0)(?!; \})", SHEET)


def test_colours_are_named_once() -> None:
    rules = re.sub(r":root \{.*?\}", "", SHEET, flags=re.DOTALL)
    assert not re.search(r"#[0-9a-f]{3,8}\b(?! \{)", rules)
    assert set(re.findall(r"var\(--([a-z-]+)\)", rules)) <= colours(SHEET).keys()


def test_what_pages_are_made_of_has_a_look() -> None:
    named = ("button", "textarea", "fieldset", "mark", "pre", "table", ".card", ".status", ".record", ".problem")
    for name in named:
        assert re.search(rf"(?m)^(?:[^{{}}\n]*[ ,])?{re.escape(name)}[ ,:.\[][^}}]*", SHEET), name
    assert SHEET.count("{") == SHEET.count("}")
