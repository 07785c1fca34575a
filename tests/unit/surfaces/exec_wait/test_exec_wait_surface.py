"""What a plugin is told: whether the pair takes the place of its tools, and what a model then sees."""

from __future__ import annotations

from typing import Any

import pytest
from suite import each_row

from codemode import Tool
from codemode.surfaces.exec_wait.options import InvalidConfigError
from codemode.surfaces.exec_wait.sources import ToolSource
from codemode.surfaces.exec_wait.surface import plan_surface

ON = {"tools": {"codeMode": {"enabled": True}}}


def tools(*names: str) -> list[Tool]:
    return [Tool(name, execute=lambda value, _: value) for name in names]


@each_row("config", [None, False, {}, {"timeoutMs": 500}, {"tools": {}}, {"enabled": False}])
def test_without_enabled_true_nothing_changes(config: Any):
    surface = plan_surface(tools("b", "a"), config)
    assert (surface.active, surface.visible, surface.pair) == (False, ("a", "b"), None)


@pytest.mark.parametrize("config", [True, {"enabled": True}, ON])
def test_enabled_it_is_exactly_the_pair(config: Any):
    surface = plan_surface(tools("a", "exec"), config)
    assert (surface.active, surface.visible) == (True, ("exec", "wait"))
    assert surface.pair is not None
    assert surface.pair.catalog.names() == ("host:core:a", "host:core:exec")


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
