"""Identifiers for the names that a server of MCP gives its tools."""

from __future__ import annotations

from suite import each_row

from codemode.surfaces.exec_wait.mcp_server import assign_tool_names
from codemode.surfaces.exec_wait.sources import INHERITED_NAMES


@each_row("name", sorted(INHERITED_NAMES))
def test_a_name_that_the_language_reads_is_given_another_number(name):
    shown = assign_tool_names([name])[name]
    assert not INHERITED_NAMES & {*shown}
    assert shown[0].isidentifier()


def test_names_do_not_depend_on_the_order_in_which_a_server_lists():
    names = ["foo-bar", "foo_bar", "fooBar", "foo.bar", "foo bar"]
    assert assign_tool_names(names) == assign_tool_names(names[::-1])
    assert assign_tool_names(names)["fooBar"] == ("fooBar",)
    shown = [one for names_of_one in assign_tool_names(names).values() for one in names_of_one]
    assert len(shown) == len({*shown})
