"""The page of codemode.run names every code, class and limit, with the defaults that they have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import codemode
from codemode.execution.outcome_texts import CLASSES, MODULE_CALLS, MODULE_WORDING, RAISED_HINTS
from codemode.options.parts import MIB
from codemode.surfaces.modules.options import WIRE_NAMES
from codemode.types import RunOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "modules.md").read_text(encoding="utf-8")
SOURCE = "".join(
    path.read_text(encoding="utf-8")
    for path in (Path(str(codemode.__file__)).parent / "surfaces" / "modules").glob("*.py")
)
DIAGNOSTICS = set(re.findall(r'diagnostic\(\s*"(?:error|warning|info)",\s*"(\w+)"', SOURCE))
ROWS = {
    code
    for cell in re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", PAGE.partition("## Diagnostics")[2], re.MULTILINE)
    for code in re.findall(r"`(\w+)`", cell)
}
UNITS = {"": 1, "KiB": 1024, "MiB": MIB}


def test_every_diagnostic_has_a_row():
    of_errors = {wording.code for wording in MODULE_WORDING.values()}
    assert len(of_errors) >= 8
    assert DIAGNOSTICS | of_errors | {"IMPORT_FAILURE", "TOOL_NOT_FOUND"} == ROWS


def test_every_class_and_every_code_of_an_error_is_named():
    assert [name for name in CLASSES if f"`{name}`" not in PAGE] == []
    codes = {"AUTHENTICATION_REQUIRED", *RAISED_HINTS, *(code for _, code, _ in MODULE_CALLS.values())}
    assert [code for code in codes if f"`{code}`" not in PAGE] == []


@pytest.mark.parametrize("option", WIRE_NAMES)
def test_limits_are_as_the_page_says(option: str):
    [(default, ceiling)] = re.findall(rf"^\| `{option}` \| ([^|]+) \| ([^|]+) \|", PAGE, re.MULTILINE)
    options = RunOptions()
    assert (means(default), means(ceiling)) == (getattr(options.limits, option), getattr(options.ceilings, option))


def means(said: str) -> int:
    number, _, unit = said.partition(" ")
    return int(number.replace(",", "")) * UNITS[unit]


def test_the_other_options_are_as_the_page_says():
    options = RunOptions()
    for name in ("max_description_characters", "max_declarations_characters"):
        [said] = re.findall(rf"`{name}` (?:is )?([\d,]+)", PAGE)
        assert means(said) == getattr(options, name)
