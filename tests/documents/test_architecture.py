"""The picture of the floors shows what their table says, and the journeys pass files of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGE = (TREE / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = TREE / "src" / "codemode"
PLACES = [PACKAGE, *(TREE / "integrations").glob("*/src")]

_ROW = re.compile(r"^\| (\d) \| ((?:`[^`]+`(?:, )?)+)", re.MULTILINE)
_NAME = re.compile(r"[\w.]+(?:/|\.py)")
_JOURNEY = re.compile(r"^### (.+?)\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^(\d+)\. (.+)$", re.MULTILINE)
JOURNEYS = dict(_JOURNEY.findall(PAGE.split("## Five journeys", 1)[1]))


def table() -> dict[str, int]:
    return {name: int(floor) for floor, names in _ROW.findall(PAGE) for name in re.findall(r"`([^`]+)`", names)}


def picture() -> dict[str, int]:
    text = PAGE.split("## The floors", 1)[1].split("```text\n", 1)[1].split("```", 1)[0]
    floors: dict[str, int] = {}
    floor = 0
    for line in text.splitlines():
        floor = int(line[0]) if line[0].isdigit() else floor
        floors |= dict.fromkeys(_NAME.findall(line), floor)
    return floors


def test_the_picture_shows_the_floors_of_the_table():
    assert picture() == table()


def test_there_are_five_journeys():
    assert len(JOURNEYS) == 5


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_journey_passes_files_of_the_package_in_numbered_steps(name: str):
    steps = _STEP.findall(JOURNEYS[name])
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    files = [file for _, step in steps for file in re.findall(r"`([\w/]+\.(?:py|js))`", step)]
    assert len(files) >= 8
    assert [file for file in files if not any((place / file).is_file() for place in PLACES)] == []


def test_every_field_of_the_profile_has_a_reader():
    text = (PACKAGE / "profile.py").read_text(encoding="utf-8").split("class Profile", 1)[1]
    fields = re.findall(r"^    (\w+):", text, re.MULTILINE)
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path.name != "profile.py"]
    assert fields
    assert [field for field in fields if not any(re.search(rf"profile\.{field}\b", one) for one in sources)] == []
