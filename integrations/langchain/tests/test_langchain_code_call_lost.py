"""CodeCall in an agent: pauses under other rules, over other tools, and after a host has died in a call."""

from __future__ import annotations

from typing import Any

import pytest
from code_call_shop import INVOKE, Shop, answers, session
from codemode_langchain import CodeCallMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from scripted_agent import APPROVE, asking, asks, executes, results
from suite import full_only


@pytest.fixture(params=[False, *full_only(True)], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def shop() -> Shop:
    return Shop()


class Dies(BaseException):
    """Ends the run of the graph, as the end of its process does."""


@pytest.mark.parametrize("way", ["execute", "invoke"])
@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_what_was_lost_in_the_middle_is_asked_about(is_async: bool, way: str, answer: str):
    done: list[str] = []

    @tool
    def write(text: str) -> str:
        """Write."""
        done.append(text)
        if len(done) == 1:
            raise Dies
        return text

    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "execute": ("codecall_execute", {"script": "return await callTool('write', { text: 'a' })"}),
        "invoke": ("codecall_invoke", {"tool": "write", "input": {"text": "a"}}),
    }
    name, args = requests[way]
    own = CodeCallMiddleware(options=INVOKE)
    given = session(asking(asks((name, args))), [write], own, is_async=is_async)
    with pytest.raises(BaseException, match=r"Dies|cancelled|^$"):
        given.start()
    (asked,) = given.send(None)["__interrupt__"]
    assert (asked.value["type"], asked.value["name"], asked.value["args"]) == ("unknown_outcome", name, args)
    assert done == ["a"]
    (said,) = answers(given.answer({asked.id: {"type": answer}}))
    assert done == (["a", "a"] if answer == "approve" else ["a"])
    assert said.get("result") == ("a" if answer == "approve" else None)
    assert said["status"] == ("ok" if answer == "approve" else "tool_error")


def test_other_rules_widen_nothing_for_a_paused_script(shop: Shop, is_async: bool):
    """What a script may call was said when it began; what has left the index since does not run."""
    script = "await callTool('refund', { order: 'a' }); return await callTool(codecallContext.name, { product: 'x' })"
    call = {"script": script, "allowedTools": ["refund"], "context": {"name": "stock"}}
    rules: list[Any] = [{}, {"vm": {"preset": "experimental"}}]
    saver = InMemorySaver()
    first, second = (
        session(
            asking(*messages),
            shop.tools,
            CodeCallMiddleware(options=options, approve={"refund": True}),
            is_async=is_async,
            checkpointer=saver,
        )
        for messages, options in (([asks(("codecall_execute", call))], rules[0]), ([], rules[1]))
    )
    (waiting,) = first.start()["__interrupt__"]
    (answer,) = answers(second.answer({waiting.id: APPROVE}))
    assert (answer["status"], answer["error"]["code"]) == ("tool_error", "ACCESS_DENIED")
    assert shop.done == [("a", 500)]


def test_a_tool_that_has_left_the_index_does_not_run(shop: Shop, is_async: bool):
    saver = InMemorySaver()
    left_out = {"include_tools": lambda info: info.name == "stock"}
    first = session(
        asking(executes("return await callTool('refund', { order: 'a' })")),
        shop.tools,
        CodeCallMiddleware(approve=lambda name, args: name == "refund"),
        is_async=is_async,
        checkpointer=saver,
    )
    (waiting,) = first.start()["__interrupt__"]
    own = CodeCallMiddleware(options=left_out, approve=lambda name, args: name == "refund")
    second = session(asking(), shop.tools, own, is_async=is_async, checkpointer=saver)
    (message,) = results(second.answer({waiting.id: APPROVE}))
    assert "refunded" not in message.content
    assert shop.done == []
