"""Iterators that LangChain's tools return: programs get their items as a list."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware, create_code_mode_tool
from langchain_core.tools import tool
from scripted_agent import Session, agent, asking, asks, content, executes, results
from suite import each_row

from codemode.errors import CodeModeSerializationError

JS = "return await tools.rows({ n: 3 });"


def yielding(n: int) -> Any:
    """Return rows."""
    yield from range(n)


def mapping(n: int) -> Any:
    """Return rows."""
    return map(int, range(n))


def zipping(n: int) -> Any:
    """Return rows."""
    return zip(range(n), "abc", strict=False)


def annotated(n: int) -> Iterator[int]:
    """Return rows."""
    return iter(range(n))


async def awaited(n: int) -> Any:
    """Return rows."""
    return (number for number in range(n))


def endless(n: int) -> Any:
    """Return rows."""
    yield from itertools.count(n)


@each_row(
    "function, rows",
    [
        (yielding, [0, 1, 2]),
        (mapping, [0, 1, 2]),
        (zipping, [[0, "a"], [1, "b"], [2, "c"]]),
        (annotated, [0, 1, 2]),
        (awaited, [0, 1, 2]),
    ],
)
def test_a_program_gets_the_items_of_an_iterator(function: Callable[..., Any], rows: list[Any]) -> None:
    session = Session(agent([JS], [tool("rows")(function)], CodeModeMiddleware()), is_async=True)
    assert json.loads(content(session.start())) == rows


def test_a_program_gets_the_lines_of_an_open_file(tmp_path: Any) -> None:
    path = tmp_path / "rows.txt"
    path.write_text("first\nsecond\n")

    with path.open() as file:

        @tool
        def rows(n: int) -> Any:
            """Return rows."""
            return file

        assert create_code_mode_tool([rows]).invoke({"js": JS}) == ["first\n", "second\n"]


def test_codecall_gives_the_items_of_an_iterator() -> None:
    script = "return await callTool('rows', { n: 3 });"
    graph = agent((), [tool("rows")(yielding)], CodeCallMiddleware(), model=asking(executes(script)))
    (message,) = results(Session(graph).start())
    assert json.loads(message.content)["result"] == [0, 1, 2]


def test_exec_gives_the_items_of_an_iterator() -> None:
    model = asking(asks(("exec", {"code": JS})))
    graph = agent((), [tool("rows")(yielding)], ExecWaitMiddleware(), model=model)
    (message,) = results(Session(graph, is_async=True).start())
    assert json.loads(message.content)["value"] == [0, 1, 2]


def test_an_endless_iterator_is_an_error() -> None:
    with pytest.raises(CodeModeSerializationError, match="the output of tool 'rows'"):
        create_code_mode_tool([tool("rows")(endless)]).invoke({"js": JS})
