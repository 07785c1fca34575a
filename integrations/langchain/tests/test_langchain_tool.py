"""The plain tool: what it shows, how nested calls are made, what comes back."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from typing import Annotated, Any

import pytest
from codemode_langchain import create_code_call_tools, create_code_mode_tool, create_exec_wait_tools
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, ToolException, tool
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, ToolRuntime
from pydantic import BaseModel
from scripted_agent import calls
from suite import each_row

from codemode import CodeModeToolError, run_code_mode
from codemode import create_code_mode_tool as create_core_tool
from codemode.errors import CodeModeToolApprovalRequiredError


class Order(BaseModel):
    id: str
    cents: int = 5


@tool
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@tool
async def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


@tool
def order(id: str) -> Order:  # noqa: A002 - what a model would call it
    """Find an order."""
    return Order(id=id)


def run(code_mode: BaseTool, js: str, *, is_async: bool) -> Any:
    return asyncio.run(code_mode.ainvoke({"js": js})) if is_async else code_mode.invoke({"js": js})


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


def test_values_cross_as_what_they_are(is_async: bool):
    code_mode = create_code_mode_tool([add, order])
    assert run(code_mode, "return [await tools.add({ a: 1 }), await tools.order({ id: 'x' })]", is_async=is_async) == [
        3,
        {"id": "x", "cents": 5},
    ]


def test_async_tools():
    code_mode = create_code_mode_tool([shout])
    assert run(code_mode, "return await tools.shout({ text: 'hi' })", is_async=True) == "HI"


def test_the_description_declares_the_tools():
    description = create_code_mode_tool([add, order]).description
    assert "Promise<number>" in description
    assert "cents" in description
    assert create_code_mode_tool([add]).name == "codeMode"


def test_a_tool_call_gives_a_message(is_async: bool):
    code_mode = create_code_mode_tool([add])
    call = {
        "name": "codeMode",
        "args": {"js": "return { sum: await tools.add({ a: 1 }) }"},
        "id": "c",
        "type": "tool_call",
    }
    message = asyncio.run(code_mode.ainvoke(call)) if is_async else code_mode.invoke(call)
    assert (message.content, message.tool_call_id, message.status) == ('{"sum": 3}', "c", "success")


def test_a_failed_program_is_an_error_message_to_a_model_and_an_error_to_a_caller(is_async: bool):
    code_mode = create_code_mode_tool([add])
    js = "const a = 'many'; return await tools.add({ a });"
    message = code_mode.invoke({"name": "codeMode", "args": {"js": js}, "id": "c", "type": "tool_call"})
    assert message.status == "error"
    assert "add" in message.content
    with pytest.raises(CodeModeToolError):
        run(code_mode, js, is_async=is_async)


def test_toolkits():
    class Toolkit:
        def get_tools(self) -> list[BaseTool]:
            return [add]

    assert run(create_code_mode_tool(Toolkit()), "return await tools.add({ a: 1 })", is_async=False) == 3


def test_plain_functions_are_tools_too():
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    assert run(create_code_mode_tool([double]), "return await tools.double({ number: 4 })", is_async=False) == 8


def test_dict_schemas_are_validated():
    seen: list[Any] = []
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}}, "required": ["n"]}
    loose = StructuredTool(
        name="loose", description="d", args_schema=schema, func=lambda n=None: seen.append(n) or "took it"
    )
    code_mode = create_code_mode_tool([loose])
    with pytest.raises(CodeModeToolError, match="loose"):
        code_mode.invoke({"js": "const n = 'no'; return await tools.loose({ n })"})
    assert seen == []
    assert code_mode.invoke({"js": "return await tools.loose({ n: 5 })"}) == "took it"
    assert seen == [5]


def test_content_goes_to_the_program_and_artifacts_to_the_caller(is_async: bool):
    @tool(response_format="content_and_artifact")
    def draw(what: str) -> tuple[str, bytes]:
        """Draw."""
        return f"a {what}", b"pixels"

    call = {
        "name": "codeMode",
        "args": {"js": "return await tools.draw({ what: 'cat' })"},
        "id": "c",
        "type": "tool_call",
    }
    code_mode = create_code_mode_tool([draw])
    message = asyncio.run(code_mode.ainvoke(call)) if is_async else code_mode.invoke(call)
    assert message.content == "a cat"
    made = {"tool": "draw", "tool_call_id": "c:tool-1", "args": {"what": "cat"}, "status": "success"}
    assert message.artifact == {"calls": [{**made, "artifact": b"pixels"}]}


def test_what_a_tool_says_of_its_failure_reaches_the_program():
    def fail(a: int) -> int:
        raise ToolException("no more paper")

    broken = StructuredTool.from_function(fail, name="broken", description="d", handle_tool_error=True)
    js = "try { return await tools.broken({ a: 1 }) } catch (error) { return error.message }"
    assert "no more paper" in run(create_code_mode_tool([broken]), js, is_async=False)


def test_what_it_raises_by_accident_does_not():
    @tool
    def broken() -> int:
        """Fail."""
        raise RuntimeError("secret path")

    js = "try { return await tools.broken({}) } catch (error) { return error.message }"
    assert "secret" not in run(create_code_mode_tool([broken]), js, is_async=False)


def test_injected_call_ids_are_given_and_not_shown():
    @tool
    def who(tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Who."""
        return tool_call_id

    code_mode = create_code_mode_tool([who])
    assert "tool_call_id" not in code_mode.description
    assert run(code_mode, "return await tools.who({})", is_async=False).endswith(":tool-1")


def test_tools_that_need_a_graph_are_refused():
    @tool
    def stateful(state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Look."""
        return str(state)

    @tool
    def running(runtime: ToolRuntime) -> str:
        """Look."""
        return str(runtime)

    for one in (stateful, running):
        with pytest.raises(ValueError, match="CodeModeMiddleware"):
            create_code_mode_tool([one])


class Seen(BaseCallbackHandler):
    def __init__(self) -> None:
        self.runs: dict[Any, tuple[str, Any, list[str]]] = {}

    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: Any, parent_run_id: Any = None, **rest: Any):
        self.runs[run_id] = (serialized["name"], parent_run_id, rest.get("tags") or [])


def test_nested_calls_are_children_in_the_trace(is_async: bool):
    seen = Seen()
    code_mode = create_code_mode_tool([add])
    config: Any = {"callbacks": [seen], "tags": ["mine"]}
    js = "return await Promise.all([tools.add({ a: 1 }), tools.add({ a: 2 })])"
    if is_async:
        asyncio.run(code_mode.ainvoke({"js": js}, config))
    else:
        code_mode.invoke({"js": js}, config)
    (outer,) = [run_id for run_id, (name, _, _) in seen.runs.items() if name == "codeMode"]
    nested = [one for one in seen.runs.values() if one[0] == "add"]
    assert [parent for _, parent, _ in nested] == [outer, outer]
    assert all("mine" in tags for _, _, tags in nested)


def test_in_a_tool_node_side_by_side(is_async: bool):
    barrier = threading.Barrier(2, timeout=60)

    @tool
    def meet(name: str) -> str:
        """Wait for the other."""
        barrier.wait()
        return name

    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([create_code_mode_tool([meet])]))
    graph.set_entry_point("tools")
    compiled: Any = graph.compile()
    given = {"messages": [calls("return await tools.meet({ name: 'a' })", "return await tools.meet({ name: 'b' })")]}
    output = asyncio.run(compiled.ainvoke(given)) if is_async else compiled.invoke(given)
    messages = [one for one in output["messages"] if isinstance(one, ToolMessage)]
    assert [(one.tool_call_id, one.content) for one in messages] == [("call_0", "a"), ("call_1", "b")]
    assert isinstance(given["messages"][0], AIMessage)


def test_approval_outside_a_graph_is_an_error():
    code_mode = create_code_mode_tool([add], approve={"add": True})
    with pytest.raises(CodeModeToolApprovalRequiredError, match="LangGraph"):
        code_mode.invoke({"js": "return await tools.add({ a: 1 })"})


def test_a_callback_may_decide_at_once():
    asked: list[Any] = []
    options = {"approval": {"on_approval_required": lambda request: asked.append(request.input) or "approved"}}
    code_mode = create_code_mode_tool([add], options, approve={"add": lambda args: args["a"] > 1})
    assert code_mode.invoke({"js": "return await tools.add({ a: 1 }) + await tools.add({ a: 2 })"}) == 7
    assert asked == [{"a": 2, "b": 2}]


def test_the_reason_of_a_callbacks_denial_reaches_the_program_unless_the_options_say_otherwise():
    def answer(_request: Any) -> Any:
        return {"approved": False, "reason": "too much"}

    js = "return tools.add({ a: 1 }).catch((error) => error.message)"
    for shown, more in ((True, {}), (False, {"show_denial_reason": False})):
        options = {"approval": {"on_approval_required": answer, **more}}
        told = create_code_mode_tool([add], options, approve={"add": True}).invoke({"js": js})
        assert ("too much" in told) is shown


@pytest.mark.parametrize(
    "approve",
    [{"ad": True}, {"add": "yes"}, {"add": {"allowed_decisions": []}}, {"add": {"allowed": ["approve"]}}],
)
def test_wrong_rules_are_refused(approve: Any):
    with pytest.raises(ValueError, match="approve"):
        create_code_mode_tool([add], approve=approve)


def test_rules_for_functions_themselves_are_told_to_name_them():
    def refund() -> None:
        """Give back."""

    with pytest.raises(ValueError, match=r"approve names tools by text, got .*: write \{'refund': \.\.\.\}"):
        create_code_mode_tool([refund], approve={refund: True})  # type: ignore[dict-item]


def test_wrong_options_are_refused():
    with pytest.raises(ValueError, match=r"execution_policy\.timeout_ms"):
        create_code_mode_tool([add], {"execution_policy": {"timeout_ms": 0}})


def undescribed(a: int) -> int:
    return a


@each_row(
    "given, said",
    [
        (add, "tools must be a list of tools, or a toolkit, got StructuredTool"),
        (undescribed, "got function"),
        ("add", "got str"),
        ({"add": add}, "got dict"),
        (["add"], "tools must be LangChain tools and functions, got str"),
        ([undescribed], "'undescribed' cannot be a tool: Function must have a docstring"),
    ],
)
@each_row("make", [create_code_mode_tool, create_code_call_tools, create_exec_wait_tools])
def test_what_is_no_list_of_tools_is_told_at_once(make: Any, given: Any, said: str):
    with pytest.raises(ValueError, match=said):
        make(given)


def test_a_coroutine_that_nobody_awaits_is_a_failure(is_async: bool, caplog: pytest.LogCaptureFixture):
    async def later() -> int:
        return 1

    @tool
    def forgetful() -> int:
        """Forget to wait."""
        return later()  # type: ignore[return-value]

    js = "try { return await tools.forgetful({}) } catch (error) { return error.message }"
    assert run(create_code_mode_tool([forgetful]), js, is_async=is_async) == "the tool failed"
    assert "tool 'forgetful' returned a coroutine: await it inside, in an async function" in caplog.text


def test_an_async_tool_in_a_blocking_call_says_how_to_call():
    with pytest.raises(CodeModeToolError, match=r"tool 'shout' is an async function, .* use ainvoke or astream"):
        run(create_code_mode_tool([shout]), "return await tools.shout({ text: 'a' })", is_async=False)


def test_the_core_takes_langchain_tools_as_they_are():
    assert asyncio.run(run_code_mode("return await tools.add({ a: 1 })", [add])) == 3
    assert "add(input" in create_core_tool([add]).description


def test_models_can_bind_it():
    from langchain_core.utils.function_calling import convert_to_openai_tool

    function = convert_to_openai_tool(create_code_mode_tool([add]))["function"]
    assert function["name"] == "codeMode"
    assert list(function["parameters"]["properties"]) == ["js"]
    assert json.dumps(function)


@pytest.mark.filterwarnings("ignore:`langchain-community`:DeprecationWarning")
def test_a_toolkit_of_a_real_package(tmp_path: Any):
    from langchain_community.agent_toolkits import FileManagementToolkit

    code_mode = create_code_mode_tool(FileManagementToolkit(root_dir=str(tmp_path)))
    js = """
    await Promise.all(["a", "b"].map((name) => tools.write_file({ file_path: name + ".txt", text: name.repeat(3) })));
    const names = (await tools.list_directory({})).split("\\n").sort();
    return Promise.all(names.map((file_path) => tools.read_file({ file_path })));
    """
    assert code_mode.invoke({"js": js}) == ["aaa", "bbb"]


def test_the_tool_needs_langchain_core_alone():
    code = """
import sys
for name in ("langchain", "langgraph"):
    sys.modules[name] = None
from codemode_langchain import create_code_mode_tool
from langchain_core.tools import tool

@tool
def add(a: int) -> int:
    "Add."
    return a + 1

assert create_code_mode_tool([add]).invoke({"js": "return await tools.add({ a: 1 })"}) == 2
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)
