"""The page of stores names every state, kind and limit that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from codemode.stores.audit import OWN_KINDS
from codemode.stores.interrupt_store import InterruptStore
from codemode.stores.record_decisions import MOST_DECIDED
from codemode.stores.records import ENDED, RECORD_STATES, RECORDS
from codemode.stores.tables import UPGRADES

PAGE = (Path(__file__).parents[2] / "docs" / "stores.md").read_text(encoding="utf-8")
_NOT_A_LINE = {"unreadable"}  # what a line that was changed reads as
_INTERNAL = {"has_surely_none_open", "watch"}


def named_in(heading: str) -> set[str]:
    """Return the words in code of the section below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {word for span in re.findall(r"`([^`\n]+)`", section) for word in re.findall(r"\w+", span)}


def test_page_names_every_method_of_a_store():
    public = {name for name in vars(InterruptStore) if not name.startswith("_")} - _INTERNAL
    assert public - named_in("Methods") - named_in("Classes") == set()


def test_page_names_every_kind_of_audit_line():
    assert OWN_KINDS - _NOT_A_LINE - named_in("Audit lines") == set()


def test_page_lists_where_each_state_of_a_record_leads():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]* \| ([^|]*)\|$", PAGE, re.MULTILINE)
    listed = {
        state: set(re.findall(r"`(\w+)`", after)) & set(RECORD_STATES)
        for states, after in rows
        for state in re.findall(r"\w+", states)
        if state in RECORD_STATES
    }
    expected = {
        state: {after for (before, _), after in RECORDS.items() if before == state and after != state}
        for state in RECORD_STATES
    }
    assert {state: listed.get(state) for state in RECORD_STATES if state not in ENDED} == {
        state: after for state, after in expected.items() if state not in ENDED
    }


def test_page_gives_the_version_of_the_tables_and_the_limit_of_decisions():
    assert f"The tables have version {len(UPGRADES)}." in PAGE
    assert f"| decisions in one `decide` | {MOST_DECIDED:,} |" in PAGE
