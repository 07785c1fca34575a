"""Sessions of MCP whose lists are odd: programs of exec and wait have the other tools, and the model is told why."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from codemode import ToolSource, create_exec_wait_tools


class Odd:
    """A session that lists pages by cursor; a page that is an error is raised."""

    def __init__(self, pages: dict[Any, Any]) -> None:
        self._pages = pages

    async def list_tools(self, cursor: str | None = None) -> Any:
        page = self._pages[cursor]
        if isinstance(page, Exception):
            raise page
        return page

    async def call_tool(self, name: str, _arguments: dict[str, Any]) -> Any:
        return SimpleNamespace(content=[{"type": "text", "text": name}], isError=False)


class MCPError(Exception):
    """As the SDK words the answer of a server that refuses."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.error = SimpleNamespace(code=-32602, message=message)


def page(*names: Any, cursor: Any = None) -> Any:
    tools = [None if name is None else {"name": name, "inputSchema": {"type": "object"}} for name in names]
    return {"tools": tools, "nextCursor": cursor}


class ListToolsResult(BaseModel):
    tools: list[dict[str, Any]]


def unreadable() -> Exception:
    try:
        ListToolsResult.model_validate({"tools": [{"name": "a"}, None]})
    except ValueError as error:
        return error
    raise AssertionError


LISTS = {
    "overlap": ({None: page("a", "b", cursor="2"), "2": page("b", "c")}, ["a", "b", "c"], '"b": listed more than once'),
    "circle": ({None: page("a", cursor="x"), "x": page("b", cursor="x")}, ["a", "b"], "the cursor of an earlier page"),
    "empty": ({None: page("a", cursor=""), "": page("b")}, ["a", "b"], None),
    "end": ({None: page("a", cursor=""), "": page("a", cursor="")}, ["a"], None),
    "null": ({None: page(None, "a", "")}, ["a"], "entry 1: null"),
    "refused": ({None: page("a", cursor="2"), "2": MCPError("no such cursor")}, ["a"], "no such cursor"),
    "unreadable": ({None: unreadable()}, None, "tools.1 is None"),
}


@pytest.mark.parametrize("case", LISTS)
def test_a_program_has_the_other_tools_and_the_model_is_told(within: Any, pool: Any, case: str):
    pages, names, words = LISTS[case]
    pair = create_exec_wait_tools([ToolSource(Odd(pages), source="mcp", owner="hub")], pool=pool)

    async def main() -> Any:
        try:
            return await pair.exec.execute({"code": "return typeof MCP.hub === 'object' ? Object.keys(MCP.hub) : null"})
        finally:
            await pair.aclose()

    result = within(main())
    assert result["value"] == names, result
    warnings = "; ".join(result.get("telemetry", {}).get("warnings", []))
    assert bool(warnings) is bool(words), warnings
    assert words is None or words in warnings, warnings


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (unreadable(), "the session cannot read the answer of the server: tools.1 is None"),
        (RuntimeError("Tool a has an output schema but did not return structured content"), "has an output schema but"),
        (RuntimeError("hunter2 is wrong"), "the tool failed"),
    ],
)
def test_an_answer_that_the_session_refuses_is_named_to_the_program(within: Any, pool: Any, raised: Any, said: str):
    class Refusing(Odd):
        async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
            raise raised

    pair = create_exec_wait_tools([ToolSource(Refusing({None: page("a")}), source="mcp", owner="hub")], pool=pool)

    async def main() -> Any:
        try:
            return await pair.exec.execute({"code": "return await MCP.hub.a({}).catch((error) => error.message)"})
        finally:
            await pair.aclose()

    assert said in within(main())["value"]
