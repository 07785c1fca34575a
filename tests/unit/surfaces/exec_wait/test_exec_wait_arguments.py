"""What a pair, its plan and its sources are not made of is refused when they are made, with what to do about it."""

from __future__ import annotations

from typing import Any

import pytest
from suite import each_row

from codemode.surfaces.exec_wait.exec_wait_tools import create_exec_wait_tools, plan_surface
from codemode.surfaces.exec_wait.namespaces import Namespace, NamespaceRegistry
from codemode.surfaces.exec_wait.options import InvalidConfigError
from codemode.surfaces.exec_wait.sources import ToolSource

NAMESPACE = Namespace("cal", "calendar", ("now",), lambda _: {})


class Session:
    async def list_tools(self) -> Any: ...

    async def call_tool(self, name: str, arguments: Any) -> Any: ...


def now() -> str:
    return "now"


@each_row("name", ["store", "namespaces", "tenant", "app"])
@each_row("value", [5, [NAMESPACE], b"x", object()])
def test_an_argument_of_another_type_is_named(name, value):
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(InvalidConfigError, match=name) as refused:
        create_exec_wait_tools([now], **arguments)
    assert refused.value.code == "invalid_config"


@pytest.mark.parametrize("make", [ToolSource, create_exec_wait_tools, lambda one: create_exec_wait_tools([now, one])])
def test_a_session_that_is_given_as_tools_is_told_how(make):
    with pytest.raises(InvalidConfigError, match=r"ToolSource\(session, source='mcp'\)"):
        make(Session())


@pytest.mark.parametrize("direct", ["ask_user", [5], [None]])
def test_direct_is_a_list_of_names_or_tools(direct):
    with pytest.raises(InvalidConfigError, match="direct"):
        plan_surface([now], True, direct=direct)


@pytest.mark.parametrize("plugin_id", [5, "", None])
def test_a_plugin_is_named_by_a_text(plugin_id):
    with pytest.raises(InvalidConfigError, match="plugin"):
        NamespaceRegistry().register(plugin_id, NAMESPACE)
