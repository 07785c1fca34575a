"""The page of exec and wait names every option with its default and range, every code, and what results have."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from suite import each_row

import codemode
from codemode import ExecWaitOptions, types
from codemode.execution import outcome_texts
from codemode.surfaces.exec_wait.options import INVALID_CONFIG
from codemode.surfaces.exec_wait.program_run import COUNTER_NAMES, RunInfo
from codemode.surfaces.exec_wait.results import UNSUPPORTED_LANGUAGE

PAGE = (Path(__file__).parents[2] / "docs" / "exec-wait.md").read_text(encoding="utf-8")
UNITS = {"": 1, "KiB": 1024, "MiB": 1 << 20, "GiB": 1 << 30}
FAR = 10**12


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


ROWS = {
    re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name): (default.strip(), bounds.strip())
    for name, default, bounds in re.findall(r"^\| `(\w+)` \|([^|]*)\|([^|]*)\|", section("Options"), re.MULTILINE)
}
NUMBERS = [name for name, (_, bounds) in ROWS.items() if re.match(r"\d.* to ", bounds)]


def means(said: str) -> int:
    number, _, unit = said.partition(" ")
    return int(number.replace(",", "")) * UNITS[unit]


def bound(name: str, value: int) -> Any:
    return getattr(ExecWaitOptions(**{name: value}), name)


def test_every_option_has_a_row():
    assert ROWS.keys() == {option.name for option in fields(ExecWaitOptions)}


@each_row("name", NUMBERS)
def test_defaults_and_ranges_are_as_the_page_says(name: str):
    default, bounds = ROWS[name]
    if default[0].isdigit():
        assert means(default) == getattr(ExecWaitOptions(), name)
    least, most = bounds.split(" to ")
    assert means(least) == bound(name, -FAR)
    assert most == "`max_search_limit`" or means(most) == bound(name, FAR)


def test_words_are_as_the_page_says():
    assert len(NUMBERS) >= 11
    for name, (default, _) in ROWS.items():
        if default[0] == "`":
            assert default.strip('`"') == str(getattr(ExecWaitOptions(), name)), name


def test_every_code_has_a_row_and_no_other():
    rows = re.findall(r"^\| `(\w+)` \|", section("Errors"), re.MULTILINE)
    source = Path(outcome_texts.__file__).read_text(encoding="utf-8")
    codes = set(re.findall(r'^[A-Z_]+ = "([a-z_]+)"$', source, re.MULTILINE))
    assert len(rows) == len(set(rows))
    assert set(rows) == codes | {INVALID_CONFIG, UNSUPPORTED_LANGUAGE}


def test_what_is_counted_and_told_of_runs_is_named():
    assert [name for name in COUNTER_NAMES if f"`{name}`" not in section("Telemetry")] == []
    head = PAGE.split("\n## ", 1)[0]
    assert [option.name for option in fields(RunInfo) if f"`{option.name}`" not in head] == []


def test_every_public_name_of_the_pair_is_named():
    names = ("create_exec_wait_tools", "ExecWaitOptions", "ToolSource", "plan_surface", "Namespace", "RunInfo")
    names += ("NamespaceRegistry", "namespace_tool", "InvalidConfigError")
    public = {*codemode.__all__, *types.__all__}
    assert [name for name in names if name not in public or name not in PAGE] == []
