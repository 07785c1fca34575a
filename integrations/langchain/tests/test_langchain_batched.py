"""All calls of a program that wait are one interrupt, in the shapes of public front ends: a request, then decisions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, create_code_mode_tool
from codemode_langchain.stored_pauses import collect_requests, make_resume_values
from langchain_core.tools import tool
from langgraph.types import Command, Interrupt, interrupt
from pydantic import TypeAdapter, ValidationError
from scripted_agent import APPROVE, Session, agent, asking, content, executes
from suite import each_row, full_only

from codemode.stores import StoredRequest

ALL = """
const given = [tools.pay({ to: 'a', cents: 1n << 60n }), tools.pay({ to: 'b' }), tools.drop({ id: 'c' })];
return (await Promise.allSettled(given)).map((one) => one.value ?? one.reason.message);
"""


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


class Till:
    def __init__(self) -> None:
        self.done: list[Any] = []
        done = self.done

        @tool
        def pay(to: str, cents: int = 5) -> str:
            """Pay."""
            done.append((to, cents))
            return f"paid {to}"

        @tool
        def drop(id: str) -> str:  # noqa: A002 - what a model would call it
            """Drop."""
            done.append(id)
            return f"dropped {id}"

        @tool
        def ask(what: str) -> str:
            """Ask a person."""
            return str(interrupt(what))

        self.tools = [pay, drop, ask]

    def agent(self, js: str, *more: Any, **rules: Any) -> Any:
        approve = {"pay": True, "drop": {"allowed_decisions": ["approve", "reject"]}, **rules}
        return agent([js], self.tools, CodeModeMiddleware(approve=approve, interrupt_mode="batched"), *more)


def is_shown_by_front_ends(value: Any) -> list[str]:
    """What agent-chat-ui and the agent inbox read of a request: each action has a review that is found by its name."""
    assert set(value) <= {"action_requests", "review_configs", "bigIntegers"}
    assert len(value["action_requests"]) == len(value["review_configs"])
    for action in value["action_requests"]:
        assert (type(action["name"]), type(action["args"]), type(action["description"])) == (str, dict, str)
        found = next(one for one in value["review_configs"] if one["action_name"] == action["name"])
        assert set(found["allowed_decisions"]) <= {"approve", "edit", "reject", "respond"}
    return [action["name"] for action in value["action_requests"]]


def test_one_interrupt_is_answered_with_decisions_in_order(is_async: bool):
    till = Till()
    session = Session(till.agent(ALL), is_async)
    (waiting,) = session.start()["__interrupt__"]
    assert is_shown_by_front_ends(waiting.value) == ["pay", "pay", "drop"]
    assert waiting.value["action_requests"][0]["args"] == {"to": "a", "cents": str(1 << 60)}
    assert waiting.value["bigIntegers"] == ["/action_requests/0/args/cents"]
    edited = {"type": "edit", "edited_action": {"name": "pay", "args": {"to": "b", "cents": 3}}}
    decisions = [APPROVE, edited, {"type": "reject", "message": "too late"}]
    output = session.send(Command(resume={"decisions": decisions}))
    assert sorted(till.done) == [("a", 1 << 60), ("b", 3)]
    assert content(output) == '["paid a", "paid b", "approval of tool \'drop\' was denied: too late"]'


@each_row(
    "answer",
    [
        {"decisions": [APPROVE, APPROVE]},
        {"decisions": [APPROVE] * 4},
        {"decisions": [APPROVE, APPROVE, {"type": "respond", "message": "no"}]},
        {"decisions": [APPROVE, {"type": "edit", "edited_action": {"name": "drop", "args": {}}}, APPROVE]},
        {"decisions": APPROVE},
        APPROVE,
        "yes",
    ],
)
def test_a_wrong_answer_is_refused_as_a_whole_and_can_be_given_again(answer: Any):
    till = Till()
    session = Session(till.agent(ALL))
    session.start()
    with pytest.raises(ValidationError):
        session.send(Command(resume=answer))
    assert till.done == []
    output = session.send(Command(resume={"decisions": [APPROVE] * 3}))
    assert content(output) == '["paid a", "paid b", "dropped c"]'


@each_row("mode, said", [("batched", r'\{"decisions": \[\.\.\.\]\}'), ("per_call", '"type": "approve"')])
@each_row("answer", [True, "yes", [APPROVE], 1])
def test_an_answer_that_is_no_decision_is_told_what_one_is(mode: Any, said: str, answer: Any):
    till = Till()
    own = CodeModeMiddleware(approve={"pay": True}, interrupt_mode=mode)
    session = Session(agent(["return await tools.pay({ to: 'a' })"], till.tools, own))
    session.start()
    with pytest.raises(ValidationError, match=said):
        session.send(Command(resume=answer))
    assert till.done == []


def test_what_waits_later_is_another_interrupt(is_async: bool):
    till = Till()
    js = "return [await tools.pay({ to: 'a' }), ...await Promise.all(['b', 'c'].map((to) => tools.pay({ to })))]"
    session, asked = Session(till.agent(js), is_async), []
    output = session.start()
    while waiting := output.get("__interrupt__"):
        (one,) = waiting
        asked.append([action["args"]["to"] for action in one.value["action_requests"]])
        output = session.answer({one.id: {"decisions": [APPROVE] * len(asked[-1])}})
    assert asked == [["a"], ["b", "c"]]
    assert sorted(till.done) == [("a", 5), ("b", 5), ("c", 5)]
    assert content(output) == '["paid a", "paid b", "paid c"]'


def test_a_question_of_another_shape_stays_by_itself_and_either_is_answered_first(is_async: bool):
    js = """
    const both = tools.ask({ what: 'now?' }).then((said) => tools.pay({ to: said }));
    return [await both, await tools.pay({ to: 'a' })];
    """.replace("await both, await tools.pay({ to: 'a' })", "...await Promise.all([both, tools.pay({ to: 'a' })])")
    for first in ("question", "batch"):
        till = Till()
        session = Session(till.agent(js), is_async, {"configurable": {"thread_id": first}})
        output = session.start()
        question, batch = sorted(output["__interrupt__"], key=lambda one: isinstance(one.value, dict))
        answers = {question.id: "b", batch.id: {"decisions": [APPROVE]}}
        chosen = question.id if first == "question" else batch.id
        output = session.answer({chosen: answers.pop(chosen)})
        for _ in range(3):
            waiting = {one.id: answers.get(one.id, {"decisions": [APPROVE]}) for one in output.get("__interrupt__", ())}
            output = session.answer(waiting) if waiting else output
        assert content(output) == '["paid b", "paid a"]'
        assert sorted(till.done) == [("a", 5), ("b", 5)]


@pytest.mark.parametrize(
    ("odd", "is_in_batch"),
    [
        ({"action_requests": [{}, {}], "review_configs": [{}]}, False),
        ({"action_requests": [1], "review_configs": [2]}, False),
        ({"action_requests": [{}], "review_configs": [{}], "bigIntegers": ["/nowhere"]}, True),
        ({"action_requests": [{}], "review_configs": [{}], "type": "tool_approval"}, True),
    ],
)
def test_what_a_tool_asks_in_nearly_that_shape_mixes_up_no_answers(odd: dict[str, Any], is_in_batch: bool):
    @tool
    def mimic() -> str:
        """Ask a person."""
        return str(interrupt(odd))

    till = Till()
    till.tools.append(mimic)
    js = "return await Promise.all([tools.mimic({}), tools.pay({ to: 'a' })])"
    session = Session(till.agent(js))
    waiting = session.start()["__interrupt__"]
    assert len(waiting) == (1 if is_in_batch else 2)
    reply = {"type": "respond", "message": "hm"}
    whole = {one.id: {"decisions": [reply, APPROVE]} for one in waiting}
    alone = {one.id: "so" if one.value == odd else {"decisions": [APPROVE]} for one in waiting}
    output = session.answer(whole if is_in_batch else alone)
    said = str({"decisions": [reply]}) if is_in_batch else "so"
    assert json.loads(content(output)) == [said, "paid a"]
    assert till.done == [("a", 5)]


def test_scripts_of_code_call_are_asked_about_together():
    till = Till()
    script = "return await Promise.all(['a', 'b'].map((to) => callTool('pay', { to })));"
    middleware = CodeCallMiddleware(approve={"pay": True}, interrupt_mode="batched")
    session = Session(agent((), till.tools, middleware, model=asking(executes(script))))
    (waiting,) = session.start()["__interrupt__"]
    assert is_shown_by_front_ends(waiting.value) == ["pay", "pay"]
    session.answer({waiting.id: {"decisions": [APPROVE, APPROVE]}})
    assert sorted(till.done) == [("a", 5), ("b", 5)]


def test_for_a_store_each_call_is_a_request_of_its_own():
    (waiting,) = Session(Till().agent(ALL, drop=True)).start()["__interrupt__"]
    asked = collect_requests([waiting])
    assert [(one.tool_name, one.input) for one in asked.requests] == [
        ("pay", {"to": "a", "cents": 1 << 60}),
        ("pay", {"to": "b", "cents": 5}),
        ("drop", {"id": "c"}),
    ]
    forms = {name: set(form.input_json_schema["properties"]) for name, form in asked.tool_forms.items()}
    assert forms == {"pay": {"to", "cents"}, "drop": {"id"}}
    stored = [
        StoredRequest(
            interrupt_id=one.interrupt_id,
            kind=str(one.payload["kind"]),
            tool_name=one.tool_name,
            input=one.input,
            payload=one.payload,
        )
        for one in asked.requests
    ]
    answers = {one.interrupt_id: {"approved": True} for one in asked.requests}
    assert make_resume_values(stored, asked.parts, answers) == {waiting.id: {"decisions": [APPROVE] * 3}}
    assert make_resume_values(stored, asked.parts, dict([*answers.items()][:2])) == {}


@pytest.mark.parametrize(
    ("reviews", "allowed"),
    [
        ([("pay", ["approve"]), ("pay", ["reject"])], [("approve",), ("reject",)]),
        ([("pay", ["approve", "reject"]), ("pay", ["reject"]), ("drop", ["edit"])], [("reject",), ("reject",)]),
        ([("pay", ["approve", "edit"])], [("approve", "edit"), ("approve", "edit")]),
        ([("pay", ["approve"]), ("drop", ["approve"])], [("approve",), ("approve",)]),
    ],
)
def test_each_call_of_a_name_has_the_review_of_its_place(reviews: Any, allowed: Any):
    """Where reviews do not stand as the calls do, a call is allowed what all of its name allow."""
    actions = [{"name": "pay", "args": {"to": to}} for to in "ab"]
    configs = [{"action_name": name, "allowed_decisions": may} for name, may in reviews]
    asked = collect_requests([Interrupt({"action_requests": actions, "review_configs": configs}, id="one")])
    assert [asked.parts[one.interrupt_id].allowed_decisions for one in asked.requests] == allowed


@each_row(
    "sent, meant",
    [
        ({"type": "approve", "args": {"action": "pay", "args": {"to": "b"}}}, [("a", 5)]),
        ({"type": "approve", "args": None}, [("a", 5)]),
        ({"type": "edit", "args": {"action": "pay", "args": {"to": "b"}}}, [("b", 5)]),
        ({"type": "reject", "args": "too much"}, "denied: too much"),
    ],
)
@each_row("mode", ["per_call", "batched"])
def test_what_the_agent_inbox_sends_is_taken(sent: Any, meant: Any, mode: Any):
    till = Till()
    js = "try { return await tools.pay({ to: 'a' }); } catch (error) { return error.message; }"
    graph = agent([js], till.tools, CodeModeMiddleware(approve={"pay": True}, interrupt_mode=mode))
    session = Session(graph)
    session.start()
    output = session.send(Command(resume={"decisions": [sent]}))
    assert meant in content(output) if isinstance(meant, str) else till.done == meant


def test_an_edit_of_the_agent_inbox_is_checked_as_every_other():
    for edited in ({"action": "drop", "args": {"to": "b"}}, {"action": "pay", "args": {"to": 3}}, {"action": "pay"}):
        till = Till()
        session = Session(till.agent("return await tools.pay({ to: 'a' })"))
        session.start()
        with pytest.raises(ValidationError):
            session.send(Command(resume={"decisions": [{"type": "edit", "args": edited}]}))
        assert till.done == []


def test_the_schema_of_an_answer_can_be_shown():
    (waiting,) = Session(Till().agent(ALL)).start()["__interrupt__"]
    schema = waiting.response_schema
    plain = schema if isinstance(schema, dict) else TypeAdapter(schema).json_schema()
    decisions = plain["properties"]["decisions"]
    assert (decisions["minItems"], decisions["maxItems"], len(decisions["prefixItems"])) == (3, 3, 3)


def test_another_mode_is_refused():
    for make in (CodeModeMiddleware, lambda **given: create_code_mode_tool([], **given)):
        with pytest.raises(ValueError, match="interrupt_mode must be one of per_call, batched"):
            make(interrupt_mode="all")  # type: ignore[arg-type]
