"""What a plugin is told: whether the pair takes the place of its tools, and what a model then sees."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from suite import each_row

from codemode import Tool
from codemode.surfaces.exec_wait.exec_wait_tools import plan_surface
from codemode.surfaces.exec_wait.options import InvalidConfigError
from codemode.surfaces.exec_wait.sources import ToolSource

ON = {"tools": {"codeMode": {"enabled": True}}}


def tools(*names: str) -> list[Tool]:
    return [Tool(name, execute=lambda value, _: value) for name in names]


@each_row("config", [None, False, {}, {"timeoutMs": 500}, {"tools": {}}, {"enabled": False}])
def test_without_enabled_true_nothing_changes(config: Any):
    surface = plan_surface(tools("b", "a"), config)
    assert (surface.active, surface.visible, surface.pair) == (False, ("b", "a"), None)


@pytest.mark.parametrize("config", [True, {"enabled": True}, ON])
def test_enabled_it_is_exactly_the_pair(config: Any):
    surface = plan_surface(tools("a", "exec"), config)
    assert (surface.active, surface.visible) == (True, ("exec", "wait"))
    assert surface.pair is not None
    assert surface.pair.catalog.names() == ("host:core:a", "host:core:exec")


class Session:
    """A session of the SDK, as far as it is asked here."""

    def __init__(self, *names: str, fails: bool = False) -> None:
        self._names, self._fails = names, fails

    async def list_tools(self, cursor: str | None = None) -> Any:
        if self._fails:
            raise OSError("it is gone")
        half = len(self._names) // 2
        names = self._names[:half] if cursor is None else self._names[half:]
        page = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        return page | ({"nextCursor": "2"} if cursor is None else {})

    async def call_tool(self, name: str, arguments: Any) -> Any:
        raise AssertionError(name)


def test_an_inactive_surface_shows_what_came_in_in_that_order():
    given = [
        ToolSource(tools("z", "m")),
        ToolSource(Session("write", "read", "list"), source="mcp", owner="files"),
        ToolSource(tools("tool_search", "a"), source="plugin", owner="p"),
        ToolSource(Session(fails=True), source="mcp", owner="gone"),
    ]
    surface = plan_surface(given, False, direct=["ask", "z"])
    expected = ("z", "m", "write", "read", "list", "tool_search", "a", "mcp:gone", "ask")
    assert (surface.active, surface.visible) == (False, expected)


def test_a_server_is_named_where_a_running_loop_keeps_it_from_being_listed():
    async def main() -> Any:
        return plan_surface([ToolSource(Session("read"), source="mcp", owner="files")], False)

    assert asyncio.run(main()).visible == ("mcp:files",)


def test_the_message_about_an_owner_states_its_rule():
    for owner in ("-x", "/x", ".x", "", "a b", "x" * 65, "\u00e9"):
        with pytest.raises(InvalidConfigError, match=r"1 to 64 ASCII letters.*not starting with"):
            ToolSource(tools("a"), owner=owner)
    for owner in ("_x", "@acme/x", "1.x-y", "x" * 64):
        assert ToolSource(tools("a"), owner=owner).owner == owner


def test_an_agents_false_leaves_all_as_it_is():
    assert plan_surface(tools("a"), ON, agent=False).active is False
    assert plan_surface(tools("a"), ON, agent={"timeoutMs": 500}).options.timeout_ms == 500


def test_without_tools_it_is_not_active():
    assert plan_surface([], ON).active is False
    assert plan_surface(ToolSource([]), ON).visible == ()


def test_direct_tools_stay_visible_and_are_not_in_the_catalog():
    given = [ToolSource(tools("a", "b")), ToolSource(tools("c"), source="plugin", owner="p")]
    surface = plan_surface(given, ON, direct=["b"])
    assert surface.visible == ("exec", "wait", "b")
    assert surface.pair is not None
    assert surface.pair.catalog.names() == ("host:core:a", "plugin:p:c")


@pytest.mark.parametrize("name", ["exec", "wait"])
def test_a_direct_tool_of_the_pairs_name_is_refused(name: str):
    with pytest.raises(InvalidConfigError, match=name):
        plan_surface(tools("a"), ON, direct=tools(name))


def test_a_wrong_configuration_is_refused():
    with pytest.raises(InvalidConfigError, match=r"tools\.codeMode\.timeout"):
        plan_surface(tools("a"), {"tools": {"codeMode": {"enabled": True, "timeout": 5}}})
