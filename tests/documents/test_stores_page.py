"""The page of stores names every state, kind and limit that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from codemode.stores.audit import STORE_KINDS
from codemode.stores.interrupt_store import InterruptStore
from codemode.stores.record_decisions import MAX_DECISIONS
from codemode.stores.records import ENDED_STATES, RECORD_STATES, RECORD_TRANSITIONS
from codemode.stores.tables import UPGRADES

PAGE = (Path(__file__).parents[2] / "docs" / "stores.md").read_text(encoding="utf-8")
_NOT_A_LINE = {"unreadable"}  # what a line that was changed reads as
_INTERNAL = {"can_rule_out_open_records", "watch"}


def named_in(heading: str) -> set[str]:
    """Return the words in code of the section below a heading."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return {word for span in re.findall(r"`([^`\n]+)`", section) for word in re.findall(r"\w+", span)}


def test_page_names_every_method_of_a_store():
    public = {name for name in vars(InterruptStore) if not name.startswith("_")} - _INTERNAL
    assert public - named_in("Methods") - named_in("Classes") == set()


def test_page_names_every_kind_of_audit_line():
    assert STORE_KINDS - _NOT_A_LINE - named_in("Audit lines") == set()


def test_page_lists_where_each_state_of_a_record_leads():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]* \| ([^|]*)\|$", PAGE, re.MULTILINE)
    listed = {
        state: set(re.findall(r"`(\w+)`", after)) & set(RECORD_STATES)
        for states, after in rows
        for state in re.findall(r"\w+", states)
        if state in RECORD_STATES
    }
    expected = {
        state: {after for (before, _), after in RECORD_TRANSITIONS.items() if before == state and after != state}
        for state in RECORD_STATES
    }
    assert {state: listed.get(state) for state in RECORD_STATES if state not in ENDED_STATES} == {
        state: after for state, after in expected.items() if state not in ENDED_STATES
    }


def test_page_gives_the_version_of_the_tables_and_the_limit_of_decisions():
    assert f"The tables have version {len(UPGRADES)}." in PAGE
    assert f"| decisions in one `decide` | {MAX_DECISIONS:,} |" in PAGE
