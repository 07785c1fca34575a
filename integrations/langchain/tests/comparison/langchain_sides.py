"""What the scripts of the comparison share: an agent with one package or the other, and a scripted model.

Each script is one row: the first line of its docstring is the question, and ``answer(side)`` finds the answer by
running. ``python approval_review.py langchain-quickjs`` prints it; `make comparison` runs all of them.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import warnings
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if "pytest" not in sys.modules:
    warnings.simplefilter("ignore")  # of the frameworks' imports

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

sys.path.append(str(Path(__file__).parents[3] / "comparison"))
OURS, QUICKJS = "codemode-langchain", "langchain-quickjs"
CONFIG: Any = {"configurable": {"thread_id": "thread"}}
PATIENCE_SECONDS = 60


class Model(GenericFakeChatModel):
    """Says its messages one after the other and then "done"; keeps what it was shown."""

    shown: list[str] = []  # noqa: RUF012 - a pydantic field, copied for each model

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        self.shown.append("\n".join(f"{one.name}\n{one.description}" for one in tools if hasattr(one, "name")))
        return self

    def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        self.shown[-1] += "".join(str(one.content) for one in messages if one.type == "system")
        return super()._generate(messages, *args, **kwargs)


@tool
def clock() -> str:
    """Say what time it is."""
    return "noon"


@dataclass
class Conversation:
    """A graph with one of the packages whose model asks for programs; what it was shown and told."""

    graph: Any
    model: Model
    output: Any = field(default_factory=dict[str, Any])

    async def say(self, given: Any = None, config: Any = CONFIG) -> Conversation:
        """Run the graph: with a message, or with what goes on with it."""
        given = {"messages": [HumanMessage("go")]} if given is None else given
        self.output = await self.graph.ainvoke(given, config)
        return self

    async def decide(self, answer: Any) -> Conversation:
        """Give every interrupt that waits the same answer, or what a function makes of its value."""
        make = answer if callable(answer) else lambda _: answer
        return await self.say(Command(resume={one.id: make(one.value) for one in self.waiting}))

    @property
    def waiting(self) -> list[Any]:
        """The interrupts that wait."""
        return list(self.output.get("__interrupt__", ()))

    @property
    def told(self) -> list[ToolMessage]:
        """The messages of tools."""
        return [one for one in self.output["messages"] if isinstance(one, ToolMessage)]

    @property
    def said(self) -> str:
        """What the model was told last, as text."""
        return str(self.told[-1].content) if self.told else ""

    @property
    def result(self) -> str:
        """The last program's result: langchain-quickjs puts it between tags."""
        found = re.search(r"<result>(.*)</result>", self.said, re.DOTALL)
        return found[1] if found else self.said


class Side:
    """One of the two packages."""

    def __init__(self, name: str) -> None:
        self.name, self.is_ours = name, name == OURS

    def middleware(self, tools: Sequence[Any], **options: Any) -> Any:
        """Its middleware; that of langchain-quickjs is told which tools programs may call."""
        if self.is_ours:
            from codemode_langchain import CodeModeMiddleware

            return CodeModeMiddleware(**options)
        from langchain_quickjs import CodeInterpreterMiddleware

        # Its five seconds count from before the tools are installed, which takes longer on a busy machine.
        return CodeInterpreterMiddleware(ptc=[one.name for one in tools], **{"timeout": 60.0, **options})

    def program(self, js: str, call_id: str = "call", *, is_script: bool = False) -> AIMessage:
        """The model's call of the one tool. Theirs evaluates a script, whose last expression is its result."""
        script = js if is_script else f"await (async () => {{ {js} }})()"
        name, args = ("codeMode", {"js": js}) if self.is_ours else ("eval", {"code": script})
        return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call_id, "type": "tool_call"}])

    def agent(
        self, *said: Any, tools: Sequence[Any] = (), options: Any = None, after: Sequence[Any] = (), **settings: Any
    ) -> Conversation:
        """An agent whose model says this, step by step; `after` is middleware that is listed after."""
        model = self.model(*said)
        tools = [*tools] or [clock]
        settings = {"checkpointer": InMemorySaver(), **settings}
        middleware = [settings.pop("middleware", None) or self.middleware(tools, **(options or {})), *after]
        return Conversation(create_agent(model, tools, middleware=middleware, **settings), model)

    def model(self, *said: Any) -> Model:
        """A model that says this, and then "done" as often as it is asked."""
        steps = [AIMessage(one) if isinstance(one, str) else one for one in said]
        return Model(messages=iter([*steps, *(AIMessage("done") for _ in range(30))]), shown=[], disable_streaming=True)

    async def run(self, js: str, tools: Sequence[Any] = (), **settings: Any) -> Conversation:
        """Run one program in an agent."""
        return await self.agent(self.program(js), tools=tools, **settings).say()

    @contextmanager
    def fresh_pool(self) -> Generator[dict[str, Any]]:
        """Options under which its processes are new ones; the other package has no such option."""
        if not self.is_ours:
            yield {}
            return
        from codemode import PoolOptions, WorkerPool

        pool = WorkerPool(PoolOptions())
        try:
            yield {"pool": pool}
        finally:
            pool.close()


def main(answer: Callable[[Side], Awaitable[str]]) -> None:
    """Print the answer of the side that the command names."""
    print(asyncio.run(answer(Side(sys.argv[1]))), flush=True)
    os._exit(0)  # what still runs, such as a thread of a program that nobody stops, would keep the process
