"""The tables of saved programs, in each kind of store."""

from __future__ import annotations

import pytest
from waiting import within

from codemode.stores import UnknownRequestError, saved_programs

BODY = {"program": "return 1", "description": "", "input_schema": None}


def test_versions_are_kept_and_the_newest_is_current(make):
    rows = make().programs
    assert [
        within(rows.add_version_and_make_current("ann", "a", {**BODY, "program": text}, None)) for text in ("1", "2")
    ] == [1, 2]
    (program,) = within(rows.load_programs("ann"))
    assert (program.name, program.current.version, program.current.body["program"]) == ("a", 2, "2")
    assert [one.version for one in within(rows.list_versions("ann", "a"))] == [2, 1]
    within(rows.set_current_version("ann", "a", 1))
    assert rows.load_programs_sync("ann")[0].current.version == 1
    assert within(rows.add_version_and_make_current("ann", "a", BODY, None)) == 3
    assert within(rows.load_programs("bob")) == []
    assert [one.owner for one in within(rows.load_all_programs())] == ["ann"]


def test_a_version_that_was_compared_with_another_one_is_refused(make):
    rows = make().programs
    within(rows.add_version_and_make_current("ann", "a", BODY, None, 0))
    with pytest.raises(ValueError, match="version 1 now"):
        within(rows.add_version_and_make_current("ann", "a", BODY, None, 0))
    assert within(rows.add_version_and_make_current("ann", "a", BODY, None, 1)) == 2


def test_uses_put_a_program_first(make):
    rows = make().programs
    for name in ("a", "b"):
        within(rows.add_version_and_make_current("ann", name, BODY, None))
    within(rows.count_use("ann", "b"))
    assert [(one.name, one.uses) for one in within(rows.load_programs("ann"))] == [("b", 1), ("a", 0)]


def test_a_first_use_never_replaces_what_is_pinned(make):
    rows = make().programs
    within(rows.add_version_and_make_current("ann", "a", BODY, None))
    within(rows.pin_tool_digests("ann", [("a", 1, {"t": {"description": "1"}})]))
    within(rows.pin_tool_digests("ann", [("a", 1, {"t": {"description": "2"}})]))
    assert within(rows.load_programs("ann"))[0].current.tools == {"t": {"description": "1"}}
    within(rows.record_stale_reasons("ann", {"a": {"version": 1, "changes": ["x"], "tools": {}}}))
    assert within(rows.load_programs("ann"))[0].stale["changes"] == ["x"]
    within(rows.pin_tool_digests("ann", [("a", 1, {})], by="bea"))
    (program,) = within(rows.load_programs("ann"))
    assert (program.stale, program.current.tools, program.current.confirmed_by) == (None, {}, "bea")


def test_what_is_not_there_is_named(make):
    rows = make().programs
    for change in (
        rows.delete_program("ann", "a"),
        rows.set_disabled("ann", "a", is_disabled=True),
        rows.set_current_version("ann", "a", 1),
    ):
        with pytest.raises(UnknownRequestError, match="unknown saved program 'a'"):
            within(change)
    within(rows.add_version_and_make_current("ann", "a", BODY, None))
    with pytest.raises(UnknownRequestError):
        within(rows.set_current_version("ann", "a", 9))
    within(rows.set_disabled("ann", "a", is_disabled=True))
    assert within(rows.load_programs("ann"))[0].is_disabled
    within(rows.delete_program("ann", "a"))
    assert within(rows.load_programs("ann")) == []


def test_old_versions_and_too_many_programs(make, monkeypatch):
    monkeypatch.setattr(saved_programs, "MAX_VERSIONS", 2)
    monkeypatch.setattr(saved_programs, "MAX_PROGRAMS", 1)
    rows = make().programs
    for _ in range(4):
        within(rows.add_version_and_make_current("ann", "a", BODY, None))
    assert [one.version for one in within(rows.list_versions("ann", "a"))] == [4, 3]
    with pytest.raises(ValueError, match="delete some"):
        within(rows.add_version_and_make_current("ann", "b", BODY, None))
