"""Tools that do not say what they return: told of once, all in one line, with the way out."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from codemode import Tool, create_code_call_tools, create_code_mode_tool, create_exec_wait_tools
from codemode.tools import prepared


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(prepared, "_logged_names", set[str]())
    caplog.set_level(logging.INFO, "codemode.tools")
    return lambda: [one.getMessage() for one in caplog.records if "declare no output" in one.getMessage()]


def tool(name: str, **settings: Any) -> Tool:
    return Tool(name, execute=len, **settings)


def test_all_are_told_of_in_one_line_and_once(lines: Any) -> None:
    def annotated() -> int:
        return 1

    def nothing() -> None:
        return None

    given = [tool("b"), tool("a"), tool("c", output_schema={"type": "string"}), annotated, nothing]
    create_code_mode_tool(given)
    (line,) = lines()
    assert "so programs do not know its shape: 'b', 'a'. Add a return annotation" in line
    create_code_mode_tool(given)
    create_code_call_tools(given)
    assert lines() == [line]
    create_code_mode_tool([tool("a"), tool("d")])
    assert "shape: 'd'." in lines()[1]


@pytest.mark.parametrize("make", [create_code_mode_tool, create_code_call_tools, create_exec_wait_tools])
def test_every_surface_tells(lines: Any, make: Any) -> None:
    make([tool("one"), tool("two")])
    (line,) = lines()
    assert "one'" in line
    assert "two'" in line


def test_of_many_only_some_are_named(lines: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    create_code_mode_tool([tool(f"tool_{number}") for number in range(50)])
    assert "'tool_19' and 30 more." in lines()[0]
    assert "tool_20" not in lines()[0]
    monkeypatch.setattr(prepared, "_MAX_LOGGED_NAMES", 50)
    create_code_mode_tool([tool("another")])
    assert len(lines()) == 1
