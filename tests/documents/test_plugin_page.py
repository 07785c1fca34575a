"""What integrations/PLUGIN.md shows stands in the smallest plugin, or in its test, as it is."""

from __future__ import annotations

import re
from pathlib import Path

TREE = Path(__file__).parents[2]
PAGE = (TREE / "integrations" / "PLUGIN.md").read_text(encoding="utf-8")
FOLDER = TREE / "examples" / "smallest_plugin"
PLUGIN = (FOLDER / "codemode_tinyloop.py").read_text(encoding="utf-8")
OTHERS = [FOLDER / "pyproject.toml", TREE / "tests" / "process" / "test_smallest_plugin.py"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_block_is_in_a_file() -> None:
    texts = [PLUGIN, *(one.read_text(encoding="utf-8") for one in OTHERS)]
    found = [*blocks("py"), *blocks("toml")]
    assert len(found) == PAGE.count("\n```") / 2 == 8
    assert [one for one in found if not any(one in text for text in texts)] == []


def test_the_page_shows_all_of_the_plugin_in_order() -> None:
    shown = [one for one in blocks("py") if one in PLUGIN]
    places = [PLUGIN.index(one) for one in shown]
    assert places == sorted(places)
    _, code = PLUGIN.split("NestedToolResultEvent\n", 1)
    assert "".join(code.split()) == "".join("".join(shown).split())
