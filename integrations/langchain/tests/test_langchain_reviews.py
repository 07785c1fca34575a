"""A `HumanInTheLoopMiddleware` next to `CodeModeMiddleware`: its own mode and rules, and unchanged resume code."""

from __future__ import annotations

from typing import Any

import pytest
from codemode_langchain import CodeModeMiddleware
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.types import Command
from pydantic import ValidationError
from scripted_agent import CONFIG, START, Session, agent, content, results

TWO = "return await Promise.all(['a', 'b'].map((order) => tools.refund({ order })));"


class Till:
    """Refunds, and an application that was written for `HumanInTheLoopMiddleware` and knows no program."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.requests: list[Any] = []

        @tool
        def refund(order: str, cents: int = 500) -> str:
            """Give money back."""
            self.done.append((order, cents))
            return f"refunded {order}"

        self.tools = [refund]

    def run(
        self, programs: list[str], review: Any, *, is_first: bool = True, is_async: bool = False, **settings: Any
    ) -> Any:
        own = CodeModeMiddleware(**settings)
        session = Session(agent(programs, self.tools, *([own, review] if is_first else [review, own])), is_async)
        result = session.start()
        while waiting := result.get("__interrupt__"):
            assert len(waiting) == 1, waiting
            request = waiting[0].value
            self.requests.append(request)
            decisions = [self.decide(action) for action in request["action_requests"]]
            result = session.send(Command(resume={"decisions": decisions}))
        return result

    def decide(self, action: Any) -> Any:
        args = {**action["args"], "cents": 1}
        return {
            "a": {"type": "approve"},
            "b": {"type": "edit", "edited_action": {"name": action["name"], "args": args}},
            "c": {"type": "reject", "message": "not c"},
        }[action["args"]["order"]]


@pytest.mark.parametrize("is_first", [True, False])
def test_calls_that_wait_together_are_one_request_in_the_shape_of_the_review(is_first: bool) -> None:
    till = Till()
    allowed: list[Any] = ["approve", "edit"]
    review = HumanInTheLoopMiddleware({"refund": {"allowed_decisions": allowed}}, description_prefix="Look at this")
    output = till.run([TWO], review, is_first=is_first)
    assert content(output) == '["refunded a", "refunded b"]'
    assert sorted(till.done) == [("a", 500), ("b", 1)]
    (request,) = till.requests
    assert request.keys() == {"action_requests", "review_configs"}
    assert request["review_configs"] == [{"action_name": "refund", "allowed_decisions": allowed}] * 2
    first = request["action_requests"][0]
    assert (first["name"], first["args"]) == ("refund", {"order": "a", "cents": 500})
    assert first["description"] == f"Look at this\n\nTool: refund\nArgs: {first['args']}"


@pytest.mark.parametrize("is_async", [False, True])
def test_programs_of_one_step_ask_one_after_the_other(is_async: bool) -> None:
    till = Till()
    twice = "await tools.refund({ order: 'a' }); return await tools.refund({ order: 'b' });"
    programs = [TWO, twice, "return await tools.refund({ order: 'c' });"]
    output = till.run(programs, HumanInTheLoopMiddleware({"refund": True}), is_async=is_async)
    assert sorted(till.done) == [("a", 500), ("a", 500), ("b", 1), ("b", 1)]
    assert [len(one["action_requests"]) for one in till.requests].count(1) == 3
    assert [one.status for one in results(output)].count("error") == 1


def test_a_review_asks_about_what_its_predicate_tells_with_its_own_words() -> None:
    seen: list[Any] = []

    def when(request: Any) -> bool:
        seen.append((request.tool_call["name"], request.runtime.tool_call_id, len(request.state["messages"])))
        return request.tool_call["args"]["order"] != "a"

    def words(call: Any, state: Any, runtime: Any) -> str:
        return f"{call['name']} {call['args']['order']} after {len(state['messages'])}, {type(runtime).__name__}"

    rule: Any = {"allowed_decisions": ["approve", "edit"], "when": when, "description": words}
    till = Till()
    assert content(till.run([TWO], HumanInTheLoopMiddleware({"refund": rule}))) == '["refunded a", "refunded b"]'
    assert [one["description"] for one in till.requests[0]["action_requests"]] == ["refund b after 2, ToolRuntime"]
    assert seen[0][0] == "refund"
    assert seen[0][2] == 2


def test_a_predicate_that_fails_lets_no_call_through() -> None:
    def when(_request: Any) -> bool:
        raise RuntimeError("no")

    till = Till()
    rule: Any = {"allowed_decisions": ["approve"], "when": when}
    (message,) = results(till.run([TWO], HumanInTheLoopMiddleware({"refund": rule})))
    assert (message.status, till.done) == ("error", [])


def test_decisions_that_the_review_does_not_allow_are_not_saved() -> None:
    till = Till()
    review = HumanInTheLoopMiddleware({"refund": {"allowed_decisions": ["approve"]}})
    graph = agent([TWO], till.tools, CodeModeMiddleware(), review)
    graph.invoke(START, CONFIG)
    for wrong in ([{"type": "reject"}] * 2, [{"type": "approve"}]):
        with pytest.raises(ValidationError):
            graph.invoke(Command(resume={"decisions": wrong}), CONFIG)
    graph.invoke(Command(resume={"decisions": [{"type": "approve"}] * 2}), CONFIG)
    assert sorted(till.done) == [("a", 500), ("b", 500)]


def test_a_review_of_each_call_asks_about_each_wherever_it_is_listed() -> None:
    for is_first in (True, False):
        till = Till()
        review = HumanInTheLoopMiddleware({"refund": True}, interrupt_mode="per_call")
        own = CodeModeMiddleware()
        graph = agent([TWO], till.tools, *([own, review] if is_first else [review, own]))
        waiting = graph.invoke(START, CONFIG)["__interrupt__"]
        assert [one.value["type"] for one in waiting] == ["tool_approval"] * 2, is_first
        graph.invoke(Command(resume={one.id: {"type": "approve"} for one in waiting}), CONFIG)
        assert sorted(till.done) == [("a", 500), ("b", 500)], is_first


def test_interrupt_mode_says_otherwise() -> None:
    till = Till()
    graph = agent(
        [TWO], till.tools, CodeModeMiddleware(interrupt_mode="per_call"), HumanInTheLoopMiddleware({"refund": True})
    )
    assert len(graph.invoke(START, CONFIG)["__interrupt__"]) == 2
