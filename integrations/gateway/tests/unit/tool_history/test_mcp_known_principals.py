"""Files that all users of a gateway share: what is of those who are gone goes, and of nobody else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from codemode_gateway import state_files
from codemode_gateway.config.model import ServerConfig
from codemode_gateway.tool_history import output_schema_inference, tool_pins
from codemode_gateway.tool_history.output_schema_inference import InferredOutputSchemas
from codemode_gateway.tool_history.tool_pins import ToolPins
from waiting import within

SERVER = ServerConfig("s", "stdio", pin="block")
TOOL = types.Tool(name="a", input_schema={"type": "object"})
FILES = {"pins": (tool_pins.FILE_NAME, "tools"), "shapes": (output_schema_inference.FILE_NAME, "shapes")}


async def uses_pins(folder: Path, principal: str) -> None:
    assert await ToolPins(folder, principal).filter_tools(SERVER, [TOOL]) == [TOOL]


async def uses_shapes(folder: Path, principal: str) -> None:
    shapes = InferredOutputSchemas(folder, principal)
    await shapes.load()
    if shapes.observe_tool_and_get_schema(SERVER, TOOL) is None:
        shapes.on_result(SERVER, "a", {"n": 1})
    await shapes.aclose()


def kept(folder: Path, what: str) -> set[str]:
    file, table = FILES[what]
    with closing(sqlite3.connect(folder / file)) as connection:
        return {row[0] for row in connection.execute(f"SELECT DISTINCT principal FROM {table}")}


@pytest.fixture(params=FILES)
def what(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def use(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(principal: str, day: int) -> None:
        monkeypatch.setattr(state_files, "get_current_epoch_day", lambda: day)
        within({"pins": uses_pins, "shapes": uses_shapes}[what](tmp_path, principal))

    return use


def test_what_is_of_users_who_are_gone_for_90_days_is_removed(tmp_path: Path, what: str, use: Any) -> None:
    use("gone", 1000)
    use("seldom", 1000)
    for day in (1060, 1090):
        use("ana", day)
        assert kept(tmp_path, what) == {"ana", "gone", "seldom"}
        use("seldom", day)
    use("bob", 1091)
    assert kept(tmp_path, what) == {"ana", "bob", "seldom"}


def test_who_came_before_it_was_kept_when_counts_as_there(tmp_path: Path, what: str, use: Any) -> None:
    use("old", 1000)
    with closing(sqlite3.connect(tmp_path / FILES[what][0])) as connection:
        connection.execute("DROP TABLE principals")
    for day, found in ((2000, {"old", "ana"}), (2091, {"ana"})):
        use("ana", day)
        assert kept(tmp_path, what) == found


def test_whoever_is_there_while_a_gateway_runs_for_long_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        running = ToolPins(tmp_path, "ana")
        for day in range(1000, 1200, 45):
            monkeypatch.setattr(state_files, "get_current_epoch_day", lambda day=day: day)
            assert await running.filter_tools(SERVER, [TOOL]) == [TOOL]
            await uses_pins(tmp_path, f"user {day}")
        assert "ana" in kept(tmp_path, "pins")

    within(scenario())
