"""Models that say what a test tells them, and agents that are resumed until they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

CONFIG: dict[str, Any] = {"configurable": {"thread_id": "thread"}}
START = {"messages": [HumanMessage("go")]}


class ScriptedModel(GenericFakeChatModel):
    """Says its messages one after the other, and remembers the tools it was shown."""

    shown: list[Any] = []  # noqa: RUF012 - a pydantic field, copied for each model

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        self.shown.append(list(tools))
        return self


def asks(*requests: tuple[str, Mapping[str, Any]]) -> AIMessage:
    """One message of the model with one call for each name and input."""
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": dict(given), "id": f"call_{number}", "type": "tool_call"}
            for number, (name, given) in enumerate(requests)
        ],
    )


def calls(*programs: str) -> AIMessage:
    """One message of the model with one call of codeMode for each program."""
    return asks(*(("codeMode", {"js": js}) for js in programs))


def executes(*scripts: str) -> AIMessage:
    """One message of the model with one call of CodeCall's execute for each script."""
    return asks(*(("codecall_execute", {"script": script}) for script in scripts))


def asking(*messages: AIMessage) -> ScriptedModel:
    """A model that says these messages and then the end; it does not stream."""
    return ScriptedModel(messages=iter([*messages, AIMessage("done")]), shown=[], disable_streaming=True)


def model(*programs: str, said: int = 0) -> ScriptedModel:
    """A model that asks for the programs and then says the end, without the first messages that it has said before."""
    return ScriptedModel(messages=iter([calls(*programs), AIMessage("done")][said:]), shown=[])


def agent(programs: Sequence[str], tools: Sequence[Any], *middleware: Any, **settings: Any) -> Any:
    settings = {"checkpointer": InMemorySaver(), **settings}
    return create_agent(settings.pop("model", None) or model(*programs), tools, middleware=middleware, **settings)


@dataclass
class Session:
    """Runs a graph, blocking or not, and answers its interrupts."""

    graph: Any  # or, in the class below, what builds it around a checkpointer
    is_async: bool = False
    config: dict[str, Any] = field(default_factory=lambda: CONFIG)

    def send(self, given: Any) -> Any:
        if self.is_async:
            return asyncio.run(self.graph.ainvoke(given, self.config))
        return self.graph.invoke(given, self.config)

    def start(self) -> Any:
        return self.send(START)

    def answer(self, answers: Mapping[str, Any]) -> Any:
        return self.send(Command(resume=dict(answers)))

    def finish(self, output: Any, decide: Callable[[Any], Any], *, at_most: int = 30) -> Any:
        """Answer everything that is asked, one interrupt after the other."""
        for _ in range(at_most):
            if "__interrupt__" not in output:
                return output
            first = output["__interrupt__"][0]
            output = self.answer({first.id: decide(first)})
        raise AssertionError("the graph keeps asking")


def results(output: Any) -> list[ToolMessage]:
    """The messages of tools, in the order of the calls."""
    found = [message for message in output["messages"] if isinstance(message, ToolMessage)]
    return sorted(found, key=lambda message: message.tool_call_id)


def content(output: Any) -> str:
    """What the only call of codeMode gave."""
    (message,) = results(output)
    assert message.status == "success", message.content
    return message.content


APPROVE = {"type": "approve"}


@dataclass
class SqliteSession(Session):
    """Like `Session`, with the checkpoint in a file and a graph that is built anew each time, as in a new process."""

    path: str = ""

    def send(self, given: Any) -> Any:
        return asyncio.run(self._asend(given)) if self.is_async else self._send(given)

    def _send(self, given: Any) -> Any:
        with SqliteSaver.from_conn_string(self.path) as saver:
            return self.graph(saver).invoke(given, self.config)

    async def _asend(self, given: Any) -> Any:
        async with AsyncSqliteSaver.from_conn_string(self.path) as saver:
            return await self.graph(saver).ainvoke(given, self.config)
