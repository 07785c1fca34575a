"""Identifiers for the names that a server of MCP gives its tools."""

from __future__ import annotations

from suite import each_row

from codemode.surfaces.exec_wait.mcp_server import tool_names
from codemode.surfaces.exec_wait.sources import INHERITED


@each_row("name", sorted(INHERITED))
def test_a_name_that_the_language_reads_is_given_another_number(name):
    shown = tool_names([name])[name]
    assert not INHERITED & {*shown}
    assert shown[0].isidentifier()


def test_names_do_not_depend_on_the_order_in_which_a_server_lists():
    names = ["foo-bar", "foo_bar", "fooBar", "foo.bar", "foo bar"]
    assert tool_names(names) == tool_names(names[::-1])
    assert tool_names(names)["fooBar"] == ("fooBar",)
    shown = [one for names_of_one in tool_names(names).values() for one in names_of_one]
    assert len(shown) == len({*shown})
