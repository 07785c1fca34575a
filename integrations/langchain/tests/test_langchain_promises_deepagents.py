"""Code mode in a deep agent: sub-agents, files and approvals, from programs as from the model."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, ExecWaitMiddleware
from exec_wait_agent import answers, directed, runs
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from required import missing
from scripted_agent import ScriptedModel, Session, asking, calls, content, executes, model, results
from suite import full_only

from codemode.testing.plugin_under_test import CODE_CALL

APPROVE = {"type": "approve"}


@pytest.fixture(params=[True, *full_only(False)], ids=["async", "sync"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(autouse=True)
def installed():
    if find_spec("deepagents") is None:
        missing("deepagents", "deepagents is not installed")


def tool_call(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"{name}_0", "type": "tool_call"}])


def saying(*messages: Any) -> ScriptedModel:
    return ScriptedModel(messages=iter(messages), shown=[])


class Desk:
    """A deep agent, its tools, and what they did."""

    def __init__(self, js: str, *, sub: ScriptedModel, **settings: Any) -> None:
        from deepagents import create_deep_agent

        self.deleted: list[str] = []
        deleted = self.deleted

        @tool
        def delete(path: str) -> str:
            """Delete a path."""
            deleted.append(path)
            return f"deleted {path}"

        writer: Any = {
            "name": "writer",
            "description": "Writes.",
            "system_prompt": "Write.",
            "model": sub,
            "tools": [delete],
            **settings.pop("writer", {}),
        }
        settings.setdefault("middleware", [CodeModeMiddleware(approve={"delete": True})])
        self.graph = create_deep_agent(
            settings.pop("model", None) or model(js),
            [delete],
            subagents=[writer],
            checkpointer=InMemorySaver(),
            **settings,
        )


FILES = """
await tools.write_file({ file_path: '/a.txt', content: 'alpha' });
const said = await tools.task({ description: 'Write b.', subagent_type: 'writer' });
const gone = await tools.delete({ path: '/x' });
await tools.edit_file({ file_path: '/b.txt', old_string: 'beta', new_string: 'gamma' });
const read = await Promise.all(['/a.txt', '/b.txt'].map((file_path) => tools.read_file({ file_path })));
return [said, gone, ...read.map((text) => text.split('\\n').at(-1))];
"""


@pytest.mark.parametrize("writes_by", ["itself", "program"])
def test_programs_of_a_deep_agent_reach_sub_agents_files_and_approvals(writes_by: str, is_async: bool):
    write = tool_call("write_file", file_path="/b.txt", content="beta")
    program = calls("return await tools.write_file({ file_path: '/b.txt', content: 'beta' })")
    sub = saying(write if writes_by == "itself" else program, AIMessage("b is written"))
    writer = {} if writes_by == "itself" else {"middleware": [CodeModeMiddleware()]}
    desk = Desk(FILES, sub=sub, writer=writer)
    session = Session(desk.graph, is_async)
    output = session.start()
    (waiting,) = output["__interrupt__"]
    assert (waiting.value["name"], waiting.value["args"], desk.deleted) == ("delete", {"path": "/x"}, [])
    output = session.answer({waiting.id: APPROVE})
    assert json.loads(content(output)) == ["b is written", "deleted /x", "alpha", "gamma"]
    assert desk.deleted == ["/x"]
    assert {path: file["content"] for path, file in output["files"].items()} == {"/a.txt": "alpha", "/b.txt": "gamma"}


def test_code_call_runs_in_a_deep_agent(is_async: bool):
    sub = saying(tool_call("write_file", file_path="/b.txt", content="beta"), AIMessage("b is written"))
    desk = Desk(
        "",
        sub=sub,
        model=asking(executes(CODE_CALL.request(FILES)[1]["script"])),
        middleware=[CodeCallMiddleware(approve={"delete": True})],
    )
    session = Session(desk.graph, is_async)
    output = session.start()
    (waiting,) = output["__interrupt__"]
    assert (waiting.value["name"], waiting.value["args"], desk.deleted) == ("delete", {"path": "/x"}, [])
    output = session.answer({waiting.id: APPROVE})
    answer = json.loads(content(output))
    assert answer == {"status": "ok", "result": ["b is written", "deleted /x", "alpha", "gamma"]}
    assert {path: file["content"] for path, file in output["files"].items()} == {"/a.txt": "alpha", "/b.txt": "gamma"}


def test_sub_agents_side_by_side_leave_all_their_files(is_async: bool):
    js = """
    const said = [];
    for (const name of ['a', 'b', 'c'])
        said.push(tools.task({ description: name, subagent_type: 'writer' }));
    return (await Promise.allSettled(said)).map((one) => one.status);
    """
    desk = Desk(js, sub=_ByPrompt(messages=iter(()), shown=[]), middleware=[CodeModeMiddleware()])
    output = Session(desk.graph, is_async).start()
    assert json.loads(content(output)) == ["fulfilled"] * 3
    assert {path: file["content"] for path, file in output["files"].items()} == {f"/{name}": name for name in "abc"}


class _ByPrompt(ScriptedModel):
    """Writes a file named as it was asked, and then says so."""

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        from langchain_core.outputs import ChatGeneration, ChatResult

        asked = next(one.content for one in messages if one.type == "human")
        is_done = any(one.type == "tool" for one in messages)
        said = AIMessage("written") if is_done else tool_call("write_file", file_path=f"/{asked}", content=asked)
        return ChatResult(generations=[ChatGeneration(message=said)])


BOTH = """
const said = await tools.task({ description: 'Delete.', subagent_type: 'writer' });
return [said, await tools.delete({ path: '/x' })];
"""


def test_an_approval_inside_a_sub_agent_is_asked_for_outside(is_async: bool):
    sub = saying(tool_call("delete", path="/inner"), AIMessage("inner is gone"))
    desk = Desk(BOTH, sub=sub, writer={"interrupt_on": {"delete": True}})
    session = Session(desk.graph, is_async)
    output = session.start()
    (waiting,) = output["__interrupt__"]
    assert waiting.value["action_requests"][0]["args"] == {"path": "/inner"}
    output = session.answer({waiting.id: {"decisions": [APPROVE]}})
    assert desk.deleted == ["/inner"]
    (waiting,) = output["__interrupt__"]
    output = session.answer({waiting.id: APPROVE})
    assert json.loads(content(output)) == ["inner is gone", "deleted /x"]
    assert desk.deleted == ["/inner", "/x"]


@pytest.mark.parametrize("reviewed", [None, "interrupt_on", "middleware"])
def test_a_sub_agent_that_runs_a_gated_tool_unasked_is_warned_of(reviewed: Any, caplog: pytest.LogCaptureFixture):
    own = {"interrupt_on": {"interrupt_on": {"delete": True}}, "middleware": {"middleware": [CodeModeMiddleware()]}}
    Session(Desk("return 1", sub=saying(), writer=own.get(reviewed, {})).graph).start()
    warned = [one.getMessage() for one in caplog.records if one.name == "codemode.tools"]
    names = [name for name in ("writer", "general-purpose") if any(f"{name!r} runs delete" in one for one in warned)]
    assert names == (["general-purpose"] if reviewed else ["writer", "general-purpose"])


def test_large_results_go_to_files_with_what_else_the_program_left(is_async: bool):
    js = "await tools.write_file({ file_path: '/a.txt', content: 'alpha' }); return 'long '.repeat(50000)"
    whole = CodeModeMiddleware(options={"model_output": {"max_model_characters": None}})  # for whoever puts it away
    output = Session(Desk(js, sub=saying(), middleware=[whole]).graph, is_async).start()
    assert "/a.txt" in output["files"]
    (evicted,) = output["files"].keys() - {"/a.txt"}
    (message,) = results(output)
    assert evicted in message.content
    assert len(message.content) < 10_000


def test_permissions_of_the_deep_agent_hold_for_programs(is_async: bool):
    from deepagents.middleware.filesystem import FilesystemPermission

    js = """
    const wrote = await Promise.allSettled(
        ['/secret/a', '/open/a'].map((file_path) => tools.write_file({ file_path, content: 'x' })));
    return wrote.map((one) => one.status);
    """
    rules = [FilesystemPermission(operations=["write"], paths=["/secret/**"], mode="deny")]
    output = Session(Desk(js, sub=saying(), permissions=rules).graph, is_async).start()
    assert json.loads(content(output)) == ["rejected", "fulfilled"]
    assert list(output["files"]) == ["/open/a"]


def test_what_the_deep_agent_gates_waits_in_programs_too():
    from deepagents.middleware.filesystem import FilesystemPermission

    asked: list[Any] = []

    def when(request: Any) -> bool:
        asked.append(request.tool_call["name"])
        return True

    sometimes: Any = {"allowed_decisions": ["approve"], "when": when}
    js = "return await tools.delete({ path: '/x' })"
    output = Session(Desk(js, sub=saying(), interrupt_on={"delete": sometimes}).graph).start()
    (waiting,) = output["__interrupt__"]
    assert [one["name"] for one in waiting.value["action_requests"]] == ["delete"] == asked[:1]
    rules = [FilesystemPermission(operations=["write"], paths=["/secret/**"], mode="interrupt")]
    js = """
    await tools.write_file({ file_path: '/open/a', content: 'x' });
    return await tools.write_file({ file_path: '/secret/a', content: 'x' });
    """
    output = Session(Desk(js, sub=saying(), permissions=rules).graph).start()
    (waiting,) = output["__interrupt__"]
    assert [one["args"]["file_path"] for one in waiting.value["action_requests"]] == ["/secret/a"]


EVERYWHERE = """
await tools.write_file({ file_path: '/log', content: 'begun' });
let said = [];
try {
    said.push(await tools.task({ description: 'Delete.', subagent_type: 'writer' }));
    said.push(await tools.delete({ path: '/x' }));
} catch (error) { said.push('caught ' + error.message); } finally { said.push('last'); }
await tools.edit_file({ file_path: '/log', old_string: 'begun', new_string: 'ended' });
return said;
"""


@pytest.mark.parametrize("mode", ["per_call", *full_only("batched")])
def test_interrupt_on_holds_in_programs_and_in_sub_agents_and_nothing_runs_twice(mode: Any, is_async: bool):
    """What others ask of deep agents: a resume that runs no program anew, and a gate that no ``try`` swallows."""
    sub = saying(tool_call("delete", path="/inner"), AIMessage("inner is gone"))
    middleware = [CodeModeMiddleware(interrupt_mode=mode)]
    desk = Desk(EVERYWHERE, sub=sub, interrupt_on={"delete": True}, middleware=middleware)
    session, asked = Session(desk.graph, is_async), []
    output = session.start()
    while waiting := output.get("__interrupt__"):
        (one,) = waiting
        asked += [action["args"]["path"] for action in one.value["action_requests"]]
        assert desk.deleted == asked[:-1]
        output = session.send(Command(resume={"decisions": [APPROVE]}))
    assert json.loads(content(output)) == ["inner is gone", "deleted /x", "last"]
    assert asked == desk.deleted == ["/inner", "/x"]
    # It would be refused as it exists, had the beginning run again.
    assert output["files"]["/log"]["content"] == "ended"


def test_an_approval_inside_a_program_of_a_sub_agent_is_asked_for_outside(is_async: bool):
    sub = saying(calls("return await tools.delete({ path: '/inner' })"), AIMessage("inner is gone"))
    desk = Desk(BOTH, sub=sub, writer={"middleware": [CodeModeMiddleware(approve={"delete": True})]})
    session = Session(desk.graph, is_async)
    output, asked = session.start(), []
    while waiting := output.get("__interrupt__"):
        asked.append([one.value["args"]["path"] for one in waiting])
        output = session.answer({waiting[0].id: APPROVE})
    assert asked == [["/inner"], ["/x"]]
    assert json.loads(content(output)) == ["inner is gone", "deleted /x"]
    assert desk.deleted == ["/inner", "/x"]


def test_a_deep_agent_with_exec_and_wait(is_async: bool):
    from deepagents import create_deep_agent

    code = """await tools.write_file({file_path: "/a.txt", content: "tea"});
        return [await tools.read_file({file_path: "/a.txt"}), ALL_TOOLS.map((one) => one.name)]"""
    scripted = directed(runs(code))
    graph = create_deep_agent(scripted, [], middleware=[ExecWaitMiddleware()], checkpointer=InMemorySaver())
    output = Session(graph, is_async=is_async).start()
    assert [one.name for one in scripted.shown[0]] == ["exec", "wait"]
    read, names = answers(output)[0]["value"]
    assert "tea" in read
    assert {"ls", "task", "write_file"} <= set(names)
    assert list(output["files"]) == ["/a.txt"]
