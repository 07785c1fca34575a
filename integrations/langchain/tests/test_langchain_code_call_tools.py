"""CodeCall's tools outside an agent: what they are, what they answer, what they are made of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from codemode_langchain import CodeCallTool, create_code_call_tools
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from scripted_agent import Session, asks, results
from suite import full_only

from codemode import CodeCallOptions, CodeModeToolError
from codemode.errors import CodeModeToolApprovalRequiredError
from codemode.types import CodeCallResult

NAMES = ["codecall_search", "codecall_describe", "codecall_execute", "codecall_invoke"]
INVOKE = {"directCalls": {"enabled": True}}


@pytest.fixture(params=[False, *full_only(True)], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def done() -> list[Any]:
    return []


@pytest.fixture
def tools(done: list[Any]) -> list[BaseTool]:
    @tool
    def stock(product: str) -> int:
        """How many of a product there are."""
        done.append(product)
        return 7

    @tool
    def refund(order: str, cents: int = 500) -> str:
        """Give the money for an order back."""
        done.append((order, cents))
        return f"refunded {order}"

    return [stock, refund]


def named(tools: list[BaseTool]) -> dict[str, BaseTool]:
    return {one.name: one for one in tools}


def call(one: BaseTool, given: Mapping[str, Any], is_async: bool) -> Any:
    return asyncio.run(one.ainvoke(dict(given))) if is_async else one.invoke(dict(given))


def node(tools: list[BaseTool], *requests: tuple[str, Mapping[str, Any]], is_async: bool) -> tuple[Session, Any]:
    """A graph of one plain ToolNode, and what starts it."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools))
    graph.set_entry_point("tools")
    return Session(graph.compile(checkpointer=InMemorySaver()), is_async), {"messages": [asks(*requests)]}


# --- what they are ---


def test_three_tools_and_with_direct_calls_four(tools: list[BaseTool]):
    assert [one.name for one in create_code_call_tools(tools)] == NAMES[:3]
    assert [one.name for one in create_code_call_tools(tools, INVOKE)] == NAMES
    assert create_code_call_tools(tools, {"names": "dotted"})[0].name == "codecall.search"
    assert all(isinstance(one, CodeCallTool) for one in create_code_call_tools(tools))


def test_a_model_is_offered_their_schemas(tools: list[BaseTool]):
    for one in create_code_call_tools(tools, INVOKE):
        function = convert_to_openai_tool(one)["function"]
        assert function["name"] == one.name
        assert function["parameters"]["type"] == "object"
        assert set(function["parameters"]["required"]) <= set(function["parameters"]["properties"])
        assert "stock" not in str(function)


def test_a_toolkit(tools: list[BaseTool]):
    class Kit(BaseToolkit):
        def get_tools(self) -> list[BaseTool]:
            return tools

    search, *_ = create_code_call_tools(Kit())
    assert search.invoke({"query": "money back"})["tools"][0]["name"] == "refund"


# --- what they answer ---


def test_search_describe_execute_and_invoke(tools: list[BaseTool], done: list[Any], is_async: bool):
    made = named(create_code_call_tools(tools, INVOKE))
    found = call(made["codecall_search"], {"query": "how many of a product"}, is_async)
    assert found["tools"][0]["name"] == "stock"
    (described,) = call(made["codecall_describe"], {"tools": ["stock"]}, is_async)["tools"]
    assert described["inputSchema"]["required"] == ["product"]
    script = "return [await callTool('stock', { product: 'nut' }), getTool('refund').name]"
    assert call(made["codecall_execute"], {"script": script}, is_async) == {"status": "ok", "result": [7, "refund"]}
    given = {"tool": "stock", "input": {"product": "bolt"}}
    assert call(made["codecall_invoke"], given, is_async) == {"status": "ok", "result": 7}
    assert done == ["nut", "bolt"]


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("return (", "syntax_error"),
        ("for (;;) {}", "illegal_access"),
        ("return await callTool('stock', {})", "tool_error"),
        ("throw new Error('mine')", "runtime_error"),
        ("return callTool", "runtime_error"),
        ("const f = () => f(); return f()", "runtime_error"),
    ],
)
def test_a_status_is_an_answer(tools: list[BaseTool], is_async: bool, script: str, status: str):
    session, start = node(create_code_call_tools(tools), ("codecall_execute", {"script": script}), is_async=is_async)
    (message,) = results(session.send(start))
    assert message.status == "success"
    assert f'"status": "{status}"' in message.content


def test_the_host_has_what_is_not_for_the_model(tools: list[BaseTool], passing_time: Any, is_async: bool):
    @tool
    def late() -> None:
        """Take too long: the deadline rings before its loop hears the answer."""
        passing_time.skip(61)

    options = {
        "vm": {"timeoutMs": 60_000, "preset": "balanced"},
        "settings": {"executionPolicy": {"timeout_includes_tools": True}},
    }
    execute = named(create_code_call_tools([*tools, late], options))["codecall_execute"]
    script = "await callTool('stock', { product: 'nut' }); await callTool('late', {})"
    result = call(execute, {"script": script}, is_async)
    assert isinstance(result, CodeCallResult)
    assert result["status"] == "timeout"
    assert result.recovery is not None
    assert result.exception is not None


def test_wrong_input_of_a_meta_tool_is_told(tools: list[BaseTool], is_async: bool):
    made = create_code_call_tools(tools, INVOKE)
    wrong: list[dict[str, Any]] = [{"self": 1}, {"config": {}}, {"run_manager": None}, {"query": [], "callable": 1}]
    for one in made:
        for given in ({}, *wrong):
            with pytest.raises(CodeModeToolError) as caught:
                call(one, given, is_async)
            assert caught.value.details["problems"]
    session, start = node(made, *((one.name, {}) for one in made), is_async=is_async)
    messages = results(session.send(start))
    assert [one.status for one in messages] == ["error"] * 4
    assert all("is required" in one.content for one in messages)


def test_what_a_tool_says_of_its_failure(is_async: bool):
    def told() -> str:
        """Fail for the model."""
        raise ToolException("not today")

    def hidden() -> str:
        """Fail by accident."""
        raise ValueError("/srv/secret")

    made = named(create_code_call_tools([StructuredTool.from_function(one) for one in (told, hidden)], INVOKE))
    for name, words in (("told", "not today"), ("hidden", "failed")):
        answers = [
            call(made["codecall_execute"], {"script": f"return await callTool('{name}')"}, is_async),
            call(made["codecall_invoke"], {"tool": name}, is_async),
        ]
        for answer in answers:
            assert (answer["status"], answer["error"]["code"]) == ("tool_error", "EXECUTION")
            assert words in answer["error"]["message"]
            assert "secret" not in str(answer)


# --- what they are made of ---


def marked(one: BaseTool, tags: list[str] | None = None, **metadata: Any) -> BaseTool:
    return one.model_copy(update={"metadata": metadata, "tags": tags})


def test_metadata_and_tags_of_a_tool(tools: list[BaseTool]):
    stock, refund = tools
    example = {"description": "A nut", "input": {"product": "nut"}}
    stock = marked(stock, ["store"], codecall={"appId": "shop", "tags": ["count"], "examples": [example]})
    refund = marked(refund, ["money"], other=object())
    made = named(create_code_call_tools([stock, refund]))
    search = made["codecall_search"]
    for tag, expected in (("count", "stock"), ("store", "stock"), ("money", "refund")):
        found = search.invoke({"query": "product order", "filter": {"tags": [tag]}})["tools"]
        assert [one["name"] for one in found] == [expected]
    (described,) = made["codecall_describe"].invoke({"tools": ["stock"]})["tools"]
    assert described["appId"] == "shop"
    assert described["usageExamples"][0]["description"] == "A nut"


def test_hints_of_an_mcp_tool_are_its_annotations(tools: list[BaseTool]):
    # As `langchain-mcp-adapters` makes them of a server's tools.
    hints = {"title": None, "readOnlyHint": True, "destructiveHint": None, "_meta": {"codecall": {"tags": ["x"]}}}
    stock = marked(tools[0], None, **hints, hostsHint=object())
    describe = named(create_code_call_tools([stock]))["codecall_describe"]
    (described,) = describe.invoke({"tools": ["stock"]})["tools"]
    assert described["annotations"] == {"readOnlyHint": True}


@pytest.mark.parametrize("wrong", [3, {"tags": 3}, {"tags": [""]}, {"visible": True}, {"examples": [{"input": {}}]}])
def test_wrong_metadata_is_told_with_its_path(tools: list[BaseTool], wrong: Any):
    with pytest.raises(ValueError, match=r'tools\["stock"\]\.metadata\.codecall'):
        create_code_call_tools([marked(tools[0], ["tag"], codecall=wrong)])


def test_tools_that_stay_visible_come_along(tools: list[BaseTool]):
    stock, refund = tools
    visible = marked(stock, codecall={"visibleInListTools": True})
    assert [one.name for one in create_code_call_tools([visible, refund])] == [*NAMES[:3], "stock"]
    left_out = create_code_call_tools(tools, CodeCallOptions(include_tools=lambda info: info.name != "refund"))
    assert left_out[-1] is refund
    disabled = marked(refund, codecall={"enabledInCodeCall": False})
    made = named(create_code_call_tools([stock, disabled]))
    assert list(made) == NAMES[:3]
    answer = made["codecall_execute"].invoke({"script": "return await callTool('refund', { order: 'a' })"})
    assert answer["error"]["code"] == "UnknownTool"
    for approve in ({"stock": True}, lambda name, args: False):
        with pytest.raises(ValueError, match="'stock' stays visible"):
            create_code_call_tools([visible, refund], approve=approve)


def test_a_meta_tool_is_no_tool_of_a_script(tools: list[BaseTool]):
    with pytest.raises(ValueError, match="looks like a meta-tool"):
        create_code_call_tools(create_code_call_tools(tools))
    execute = named(create_code_call_tools(tools))["codecall_execute"]
    answer = execute.invoke({"script": "return await callTool(['codecall_execute'][0], { script: 'return 1' })"})
    assert answer["error"]["code"] == "SELF_REFERENCE"


class Topics(Embeddings):
    """Texts about money stand apart from all others."""

    def __init__(self, broken: bool = False) -> None:
        self.asked: list[str] = []
        self.embedded_tools = threading.Event()
        self.broken = broken

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken:
            raise ConnectionError
        self.asked += texts
        if any("refund" in text for text in texts):
            self.embedded_tools.set()
        return [[1.0, 0.1] if "money" in text or "Sühne" in text else [0.1, 1.0] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def test_embeddings_of_langchain(tools: list[BaseTool]):
    topics = Topics()
    search, *_ = create_code_call_tools(tools, {"search": {"embed": topics}})
    search.invoke({"query": "Sühne"})
    assert topics.embedded_tools.wait(60)
    # What was embedded is there a moment after it was asked for.
    answers = (search.invoke({"query": "Sühne"})["tools"] for _ in range(500))
    assert next(filter(None, answers))[0]["name"] == "refund"
    assert len(topics.asked) == len(set(topics.asked)), "each text is embedded once"


def test_embeddings_that_fail_cost_a_warning(tools: list[BaseTool]):
    search, *_ = create_code_call_tools(tools, {"search": {"embed": Topics(broken=True)}})
    answer = search.invoke({"query": "money for an order"})
    assert answer["tools"][0]["name"] == "refund"
    assert answer["warnings"]


def test_the_hosts_context_wins(tools: list[BaseTool], is_async: bool):
    def context(config: RunnableConfig) -> dict[str, Any]:
        return {"user": config.get("configurable", {})["user"]}

    execute = named(create_code_call_tools(tools, script_context=context))["codecall_execute"]
    given = {"script": "return codecallContext", "context": {"user": "mallory", "page": 2}}
    config: Any = {"configurable": {"user": "ada"}}
    answer = asyncio.run(execute.ainvoke(given, config)) if is_async else execute.invoke(given, config)
    assert answer["result"] == {"user": "ada", "page": 2}


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"vm": {"preset": "fast"}}, r"vm\.preset"),
        ({"mode": "all"}, "mode"),
        ({"search": {"embed": 3}}, r"search\.embed"),
        ({"settings": {"executionPolicy": {"timeoutMs": -1}}}, r"settings\.execution_policy\.timeout_ms"),
        ({"nothing": 1}, "nothing"),
        (3, "options"),
    ],
)
def test_wrong_options(tools: list[BaseTool], options: Any, path: str):
    with pytest.raises(ValueError, match=path):
        create_code_call_tools(tools, options)


def test_other_wrong_things(tools: list[BaseTool]):
    with pytest.raises(ValueError, match="'refnd'"):
        create_code_call_tools(tools, approve={"refnd": True})
    with pytest.raises(ValueError, match="two tools are called 'stock'"):
        create_code_call_tools([*tools, tools[0]])
    with pytest.raises(ValueError, match="pool"):
        create_code_call_tools(tools, pool=3)  # pyright: ignore[reportArgumentType]


def test_a_tool_that_needs_a_graph():
    def whoami(state: Annotated[dict[str, Any], InjectedState]) -> str:
        """Say who."""
        return str(state)

    with pytest.raises(ValueError, match="CodeCallMiddleware"):
        create_code_call_tools([StructuredTool.from_function(whoami)])


def test_approval_needs_a_graph(tools: list[BaseTool], done: list[Any], is_async: bool):
    made = named(create_code_call_tools(tools, INVOKE, approve={"refund": True}))
    script = "try { await callTool('refund', { order: 'a' }) } catch { return 'caught' }"
    for name, given in (
        ("codecall_execute", {"script": script}),
        ("codecall_invoke", {"tool": "refund", "input": {"order": "a"}}),
    ):
        with pytest.raises(CodeModeToolApprovalRequiredError, match="LangGraph"):
            call(made[name], given, is_async)
    assert done == []


def test_a_definition_says_what_a_tool_is_for_once(tools: list[BaseTool]):
    made = named(create_code_call_tools(tools))
    (described,) = made["codecall_describe"].invoke({"tools": ["refund"]})["tools"]
    assert described["description"] == "Give the money for an order back."
    assert not described["inputSchema"].keys() & {"title", "description"}
    answer = made["codecall_execute"].invoke({"script": "return getTool('refund').inputSchema"})
    assert answer["result"] == described["inputSchema"]
