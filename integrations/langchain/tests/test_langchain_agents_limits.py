"""Limits of LangChain's `ToolCallLimitMiddleware` hold over the calls of programs, and no call counts twice."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware
from langchain.agents.middleware import ToolCallLimitMiddleware
from langchain.agents.middleware.tool_call_limit import ToolCallLimitExceededError
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.types import interrupt
from scripted_agent import APPROVE, CONFIG, Session, SqliteSession, agent, asking, asks, calls, executes, results
from suite import full_only

done: list[str] = []
EACH = """
const ended = [];
for (const name of %s) {
  try { ended.push(await tools.note({ name })); } catch (error) { ended.push(error.message); }
}
return ended;
"""
INVOKE = ("codecall_invoke", {"tool": "note", "input": {"name": "a"}})
TOO_MUCH = "Tool call limit exceeded. Do not make additional tool calls."
TOO_MANY_NOTES = "Tool call limit exceeded. Do not call 'note' again."


@tool
def note(name: str) -> str:
    """Note a name."""
    done.append(name)
    return name


@tool
def confirm(name: str) -> str:
    """Note what a person says about a name."""
    said = interrupt(f"{name}?")
    done.append(f"{name} {said}")
    return said


@tool
def other(name: str) -> str:
    """Do something else."""
    done.append(f"other {name}")
    return name


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "blocking"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


def limit(**settings: Any) -> Any:
    return ToolCallLimitMiddleware(**settings)


def started(messages: list[AIMessage], limits: list[Any], *, is_async: bool = False, own: Any = None) -> Any:
    graph = agent((), [note, confirm, other], own or CodeModeMiddleware(), *limits, model=asking(*messages))
    return Session(graph, is_async)


def each(*names: str) -> str:
    return EACH % list(names)


@pytest.mark.parametrize("is_first", [False, True], ids=["after", "before"])
def test_a_limit_of_one_tool_counts_nested_calls(is_async: bool, is_first: bool):
    middleware = [CodeModeMiddleware(), limit(tool_name="note", run_limit=2)][:: -1 if is_first else 1]
    program = each("a", "b", "c") + "return [ended, await tools.other({ name: 'o' })];"
    program = program.replace("return ended;", "")
    graph = agent((), [note, other], *middleware, model=asking(calls(program)))
    (message,) = results(Session(graph, is_async).start())
    assert message.content == f'[["a", "b", "{TOO_MANY_NOTES}"], "o"]'
    assert done == ["a", "b", "other o"]


def test_a_limit_of_all_tools_counts_the_program_too(is_async: bool):
    (message,) = results(started([calls(each("a", "b", "c"))], [limit(run_limit=3)], is_async=is_async).start())
    assert message.content == f'["a", "b", "{TOO_MUCH}"]'
    assert done == ["a", "b"]


def test_calls_side_by_side_share_a_limit(is_async: bool):
    program = "return (await Promise.allSettled(['a','b','c'].map((name) => tools.note({name})))).map((x) => x.status);"
    limits = [limit(tool_name="note", thread_limit=4)]
    first, second = results(started([calls(program, program)], limits, is_async=is_async).start())
    assert len(done) == 4
    assert (first.content + second.content).count("fulfilled") == 4


def test_programs_and_the_model_share_a_limit():
    """What programs have called counts for the model's own calls too, and for later programs and runs."""
    messages = [calls(each("a", "b")), asks(("note", {"name": "direct"})), calls(each("c"))]
    both = CodeModeMiddleware(tools="all", keep=["note"])
    run = started(messages, [limit(tool_name="note", thread_limit=3)], own=both)
    output = run.start()
    assert done == ["a", "b", "direct"]
    assert [one.content for one in output["messages"] if one.type == "tool"][-1] == f'["{TOO_MANY_NOTES}"]'
    assert run.graph.get_state(CONFIG).values["thread_tool_call_count"] == {"note": 3}


def test_a_direct_call_beyond_what_programs_have_left_is_blocked():
    messages = [calls(each("a", "b")), asks(("note", {"name": "direct"}))]
    both = CodeModeMiddleware(tools="all", keep=["note"])
    output = started(messages, [limit(tool_name="note", run_limit=2)], own=both).start()
    assert done == ["a", "b"]
    assert output["messages"][-2].content == TOO_MANY_NOTES


def test_a_run_has_a_count_of_its_own_and_a_thread_one():
    own, limits = CodeModeMiddleware(), [limit(tool_name="note", run_limit=2, thread_limit=3)]
    scripted = asking(calls(each("a", "b")), AIMessage("first"), calls(each("c", "d")))
    run = Session(agent((), [note], own, *limits, model=scripted))
    run.start()
    output = run.start()
    assert done == ["a", "b", "c"]
    assert output["messages"][-2].content == f'["c", "{TOO_MANY_NOTES}"]'


# --- how a run ends ---


def test_an_error_cannot_be_caught_by_a_program(is_async: bool):
    program = each("a", "b", "c").replace("return ended;", "await tools.other({ name: 'after' }); return 1;")
    run = started([calls(program)], [limit(tool_name="note", run_limit=2, exit_behavior="error")], is_async=is_async)
    with pytest.raises(ToolCallLimitExceededError, match=r"'note' tool call limit reached: run limit exceeded \(3/2"):
        run.start()
    assert done == ["a", "b"]
    with pytest.raises(ToolCallLimitExceededError):
        run.send(None)  # from the checkpoint: nothing runs again
    assert done == ["a", "b"]


def test_the_end_is_said_in_the_place_of_the_model(is_async: bool):
    program = each("a", "b", "c").replace("return ended;", "await tools.other({ name: 'after' }); return 1;")
    limits = [limit(tool_name="note", run_limit=2, exit_behavior="end")]
    run = started([calls(program), calls(each("x")), AIMessage("again")], limits, is_async=is_async)
    output = run.start()
    *_, answer, last = output["messages"]
    assert (answer.status, answer.content) == ("error", TOO_MANY_NOTES)
    assert last.content == "'note' tool call limit reached: run limit exceeded (3/2 calls)."
    assert done == ["a", "b"]
    assert run.start()["messages"][-1].content == "again"  # the next run has a model again
    assert done == ["a", "b", "x"]


def test_the_end_stops_what_other_branches_and_programs_would_begin():
    begun = threading.Event()

    @tool("other")
    def begins(name: str) -> str:
        """Do something else, and tell that it has."""
        said = other.invoke({"name": name})
        begun.set()
        return said

    @tool("note")
    def follows(name: str) -> str:
        """Note a name once that has: one whose thread begins late is stopped too."""
        assert begun.wait(60)
        return note.invoke({"name": name})

    branch = """
    const first = tools.note({ name: "a" }).then(() => tools.note({ name: "b" }));
    const third = () => tools.other({ name: "e" });
    const second = tools.other({ name: "c" }).then(() => tools.note({ name: "d" })).then(third);
    return await Promise.allSettled([first, second]);
    """
    limits = [limit(tool_name="note", run_limit=1, exit_behavior="end")]
    graph = agent((), [follows, begins], CodeModeMiddleware(), *limits, model=asking(calls(branch)))
    output = Session(graph, is_async=False).start()
    assert sorted(done) == ["a", "other c"]
    assert output["messages"][-1].content.startswith("'note' tool call limit reached")


# --- pauses ---


def test_no_call_counts_twice_through_pauses(is_async: bool, tmp_path: Any):
    """In a graph that is built anew for each answer: two calls before, one that asks itself, two gated, two after."""
    program = """
    const ended = [await tools.note({ name: "a" }), await tools.note({ name: "b" })];
    ended.push(await tools.confirm({ name: "c" }));
    ended.push(await tools.other({ name: "d" }));
    for (const name of ["e", "f"]) {
      try { ended.push(await tools.note({ name })); } catch (error) { ended.push(error.message); }
    }
    return ended;
    """
    steps = [0]

    def build(saver: Any) -> Any:
        own = CodeModeMiddleware(approve={"other": True})
        # codeMode itself is one call of the model.
        limits = [limit(thread_limit=6), limit(tool_name="note", thread_limit=3)]
        said = [calls(program), AIMessage("done")][0 if not steps[0] else 1 :]
        return agent((), [note, confirm, other], own, *limits, model=asking(*said), checkpointer=saver)

    run = SqliteSession(build, is_async, path=str(tmp_path / "thread.db"))
    output = run.start()
    steps[0] = 1
    (asked,) = output["__interrupt__"]
    (gated,) = run.answer({asked.id: "yes"})["__interrupt__"]
    (message,) = results(run.answer({gated.id: APPROVE}))
    assert message.content == f'["a", "b", "yes", "d", "e", "{TOO_MUCH}"]'
    assert done == ["a", "b", "c yes", "other d", "e"]


def test_programs_of_a_step_that_has_paused_share_a_limit():
    """One has ended before the other goes on: what it called counts, though nothing of it runs again."""
    waits = "await tools.confirm({ name: 'c' });" + each("d", "e")
    limits = [limit(tool_name="note", thread_limit=3)]
    run = started([calls(each("a", "b"), waits)], limits)
    (asked,) = run.start()["__interrupt__"]
    assert done == ["a", "b"]
    first, second = results(run.answer({asked.id: "yes"}))
    assert first.content == '["a", "b"]'
    assert second.content == f'["d", "{TOO_MANY_NOTES}"]'


def test_a_call_that_a_person_answers_does_not_count():
    own = CodeModeMiddleware(approve={"note": lambda args: args["name"] == "b"})
    run = started([calls(each("a", "b", "c"))], [limit(tool_name="note", run_limit=2)], own=own)
    (asked,) = run.start()["__interrupt__"]
    (message,) = results(run.answer({asked.id: {"type": "respond", "message": "said"}}))
    assert message.content == '["a", "said", "c"]'
    assert done == ["a", "c"]


# --- other surfaces ---


def test_scripts_of_code_call_are_limited_too(is_async: bool):
    script = "await callTool('note', {name: 'a'}); return await callTool('note', {name: 'b'});"
    limits = [limit(tool_name="note", run_limit=1)]
    (message,) = results(started([executes(script)], limits, own=CodeCallMiddleware(), is_async=is_async).start())
    assert TOO_MANY_NOTES in message.content
    assert done == ["a"]


@pytest.mark.parametrize("exit_behavior", ["error", "end"])
def test_a_limit_ends_scripts_and_direct_calls_of_code_call(exit_behavior: Any):
    script = "try { await callTool('note', {name: 'a'}); await callTool('note', {name: 'b'}); } catch { return 1; }"
    messages = [executes(script)] if exit_behavior == "error" else [asks(*[INVOKE] * 2)]
    own = CodeCallMiddleware(options={"direct_calls": {"enabled": True}})
    run = started(messages, [limit(tool_name="note", run_limit=1, exit_behavior=exit_behavior)], own=own)
    if exit_behavior == "error":
        with pytest.raises(ToolCallLimitExceededError):
            run.start()
    else:
        assert "call limit reached" in run.start()["messages"][-1].content
    assert done == ["a"]


def test_programs_that_run_on_after_their_answer_cannot_be_limited():
    limits = [limit(tool_name="note", run_limit=1)]
    run = started([asks(("exec", {"code": "return 1"}))], limits, own=ExecWaitMiddleware())
    with pytest.raises(ValueError, match=r"limits 'note'.*maxToolCalls"):
        run.start()
