"""Integers beyond the precision of browsers and checkpoints are shown, edited and kept exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware
from langchain_core.tools import tool
from scripted_agent import APPROVE, Session, SqliteSession, agent, content, model, results
from suite import full_only

LONG = 2**70 + 3
SHORTER = 2**60 + 1
ROUNDED = 1152921504606847000  # what a browser makes of that
JS = "const got = await tools.take({ id: NUMBERn, more: [1, NUMBERn] }); return { got, next: NUMBERn + 1n };"


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


class Desk:
    """A tool that takes integers, and an agent over it whose checkpoint is in memory or in a file."""

    def __init__(self, number: int, is_async: bool, path: str = "", approve: Any = True) -> None:
        self.got: list[Any] = []

        @tool
        def take(id: int, more: list[int]) -> int:  # noqa: A002 - what such arguments are called
            """Take."""
            self.got.append({"id": id, "more": more})
            return id

        self.said = 0
        self.js = JS.replace("NUMBER", str(number))

        def build(saver: Any = None) -> Any:
            said = model(self.js, said=min(self.said, 1))
            self.said += 1
            given = {} if saver is None else {"checkpointer": saver}
            return agent([], [take], CodeModeMiddleware(approve={"take": approve}), model=said, **given)

        self.session = SqliteSession(build, is_async, path=path) if path else Session(build(), is_async)


@pytest.fixture(params=["file", *full_only("memory")])
def path(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    return str(tmp_path / "checkpoints.db") if request.param == "file" else ""


@pytest.mark.parametrize("number", [LONG, -LONG, SHORTER])
def test_a_long_integer_is_approved_as_shown(number: int, is_async: bool, path: str):
    desk = Desk(number, is_async, path)
    (one,) = json.loads(json.dumps([one.value for one in desk.session.start()["__interrupt__"]]))
    assert one["args"] == one["action_requests"][0]["args"] == {"id": str(number), "more": [1, str(number)]}
    assert sorted(one["bigIntegers"]) == [
        "/action_requests/0/args/id",
        "/action_requests/0/args/more/1",
        "/args/id",
        "/args/more/1",
    ]
    output = desk.session.send(resumed())
    assert desk.got == [{"id": number, "more": [1, number]}]
    assert json.loads(content(output)) == {"got": number, "next": number + 1}


def resumed(decision: Any = APPROVE) -> Any:
    from langgraph.types import Command

    return Command(resume=decision)


def edited(**args: Any) -> Any:
    return resumed({"type": "edit", "edited_action": {"name": "take", "args": args}})


def test_a_long_integer_is_edited_as_text(is_async: bool, path: str):
    desk = Desk(LONG, is_async, path)
    desk.session.start()
    output = desk.session.send(edited(id=str(LONG + 5), more=[2, str(LONG)]))
    assert results(output)[0].status == "success"
    assert desk.got == [{"id": LONG + 5, "more": [2, LONG]}]


def test_what_a_browser_has_rounded_is_refused(is_async: bool):
    desk = Desk(SHORTER, is_async)
    desk.session.start()
    with pytest.raises(ValueError, match="as in a browser"):
        desk.session.send(edited(id=ROUNDED, more=[]))
    assert desk.got == []
    desk.session.send(edited(id=7, more=[]))
    assert desk.got == [{"id": 7, "more": []}]


def test_a_long_integer_is_returned_without_approval(is_async: bool, path: str):
    desk = Desk(LONG, is_async, path, approve=False)
    assert json.loads(content(desk.session.start())) == {"got": LONG, "next": LONG + 1}


def test_other_questions_are_shown_as_they_were(is_async: bool):
    desk = Desk(5, is_async)
    (one,) = desk.session.start()["__interrupt__"]
    assert one.value["args"] == {"id": 5, "more": [1, 5]}
    assert "bigIntegers" not in one.value
