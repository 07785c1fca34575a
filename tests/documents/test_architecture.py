"""The flows of the architecture page pass files of the package, and each field of the profile has a reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGE = (TREE / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = TREE / "src" / "codemode"
PLACES = [PACKAGE, *(TREE / "integrations").glob("*/src")]

_FLOW = re.compile(r"^### (.+?)\n(.*?)(?=^##)", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"^(\d+)\. (.+)$", re.MULTILINE)
FLOWS = dict(_FLOW.findall(PAGE.split("## Flows", 1)[1]))


def test_the_page_shows_three_flows():
    assert len(FLOWS) == 3


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_passes_files_of_the_package_in_numbered_steps(name: str):
    steps = _STEP.findall(FLOWS[name])
    assert [int(number) for number, _ in steps] == list(range(1, len(steps) + 1))
    files = [file for _, step in steps for file in re.findall(r"`([\w/]+\.(?:py|js))`", step)]
    assert len(files) >= 8
    assert [file for file in files if not any((place / file).is_file() for place in PLACES)] == []


def test_every_field_of_the_profile_has_a_reader():
    text = (PACKAGE / "profile.py").read_text(encoding="utf-8").split("class SurfaceSettings", 1)[1]
    fields = re.findall(r"^    (\w+):", text, re.MULTILINE)
    sources = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py") if path.name != "profile.py"]
    assert fields
    assert [field for field in fields if not any(re.search(rf"profile\.{field}\b", one) for one in sources)] == []
