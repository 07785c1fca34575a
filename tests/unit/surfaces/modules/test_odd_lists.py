"""Servers of a host whose lists change and hold what is no tool: programs have the others, and are told why."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from waiting import within

from codemode import Tool, create_modules_tool
from codemode.surfaces.modules.discovery import build_search_index, call_discovery_function, tool_not_found_error


class Live:
    """A server of a host that lists what a test gives it."""

    def __init__(self, listed: Any, left_out: Any = ()) -> None:
        self.server_id, self.revision = "live", 1
        self.left_out = left_out
        self._listed = listed

    async def tools(self) -> Any:
        return self._listed


def one(name: str) -> Tool:
    return Tool(name, execute=lambda _: name)


def described(server: Live) -> tuple[Any, str]:
    """Return what discovery says of the server once it was listed, and the description of the whole tool."""
    run = create_modules_tool([server])
    within(run.prepare())
    (listed,) = run.catalog.servers
    said = call_discovery_function(
        [listed], build_search_index([listed]), "describeServer", ["live", {"detail": "description"}]
    )
    return (listed, said.get("leftOut", [])), run.description


def test_what_is_no_tool_costs_the_others_nothing(caplog: pytest.LogCaptureFixture):
    given = [None, one("a"), 7, one("a"), one("b"), object(), one("\ud800")]
    with caplog.at_level(logging.WARNING):
        (listed, left_out), description = described(Live(given))
    assert [tool.tool_name for tool in listed.tools] == ["a", "b"]
    told = "; ".join(left_out)
    for words in ("entry 1: null", "entry 3: a number", '"a": listed more than once', "no program could call it"):
        assert words in told, told
        assert words in caplog.text
    assert "- live: 2 tools. left out of its list: entry 1: null" in description


def test_names_of_a_mapping_are_checked_one_by_one():
    (listed, left_out), _ = described(Live({"": one("x"), "a": one("x"), "b": None}))
    assert [tool.tool_name for tool in listed.tools] == ["a"]
    assert left_out == ["entry 1: its name is empty", '"b": null, not a tool']


def test_what_a_server_has_left_out_itself_is_told_in_bounds():
    (listed, left_out), _ = described(Live([one("a")], ['"x": too large', 7, "y" * 5_000, *map(str, range(50))]))
    assert left_out[0] == '"x": too large'
    assert len(left_out) <= 16
    assert max(map(len, left_out)) <= 1_000
    error = tool_not_found_error([listed], listed, "x")
    assert error.message.startswith('Server "live" has no tool "x" (left out of its list: "x": too large).')


def test_a_server_that_lists_no_collection_fails_alone():
    async def main() -> Any:
        run = create_modules_tool([Live(7), Live([one("a")])])
        await run.prepare()
        return run

    run = asyncio.run(main())
    assert [tool.tool_name for server in run.catalog.servers for tool in server.tools] == ["a"]
    assert list(run.listing_failures) == ["live"]
