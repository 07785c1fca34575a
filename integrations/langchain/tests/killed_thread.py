"""A host of a LangGraph thread whose agent runs a program, for tests that kill it at any moment. Forked for each run.

It is given ``folder``, ``kind`` (``sqlite`` or ``postgres``), ``where`` (the file or the connection string), ``mode``
(``sync`` or ``async``), ``face``, ``is_journaled``, ``number`` (how many hosts there were before) and
``kill_after_ms``: so long after the thread has begun to run, or after so many effects as ``after`` says, it is killed.
``effects`` in the folder has what tools did, ``asked`` what a person was asked.
"""

from __future__ import annotations

import asyncio
import functools
import json
import operator
import random
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Any

import langchain.agents
from codemode_langchain import CodeCallMiddleware, CodeModeMiddleware, durable_continuation
from forked_hosts import LaterClock, kill_later, note_down
from langchain.agents import AgentState
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

from codemode import run_code_mode_sync, stores
from codemode.testing.plugin_under_test import CODE_CALL

PROGRAM = """
const done = [];
done.push(await tools.note({ key: "a0" }));
done.push(await tools.note({ key: "a1" }));
done.push(await tools.note({ key: "a2" }));
done.push(await tools.note({ key: "a3" }));
const three = [tools.note({ key: "b0" }), tools.refund({ order: "a" }), tools.ask({ question: "why" })];
done.push(...await Promise.all(three));
done.push(await tools.note({ key: "c0" }));
done.push(await tools.note({ key: "c1" }));
done.push(await tools.note({ key: "c2" }));
return done;
"""
CONFIG: Any = {"configurable": {"thread_id": "the-thread"}}


class Model(GenericFakeChatModel):
    """Asks for the program until it has an answer, whichever host asks."""

    face: str = "mode"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        said = AIMessage("done")
        if not isinstance(messages[-1], ToolMessage):
            name, given = ("codeMode", "js") if self.face == "mode" else ("codecall_execute", "script")
            js = PROGRAM if self.face == "mode" else CODE_CALL.request(PROGRAM)[1]["script"]
            said = AIMessage("", tool_calls=[{"name": name, "args": {given: js}, "id": "call_1", "type": "tool_call"}])
        return ChatResult(generations=[ChatGeneration(message=said)])


class Noted(AgentState[Any]):
    noted: Annotated[list[str], operator.add]


class Noting(AgentMiddleware[Any, Any, Any]):
    state_schema = Noted


class Host:
    """The agent of one process, and its person."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.folder = Path(given["folder"])
        self.chance = random.Random(f"{self.folder.name} {given['number']}")
        self.began = threading.Event()

    def begin(self) -> None:
        if not self.given["after"]:
            self.began.set()

    def did(self, key: str) -> None:
        time.sleep(self.chance.random() / 100)
        note_down(self.folder / "effects", key)
        if len(self.effects()) >= self.given["after"] > 0:
            self.began.set()
        time.sleep(self.chance.random() / 100)

    def effects(self) -> list[str]:
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def tools(self) -> list[Any]:
        @tool
        def note(key: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
            """Note something, in the state too."""
            self.did(key)
            return Command(update={"noted": [key], "messages": [ToolMessage(key, tool_call_id=tool_call_id)]})

        @tool
        def refund(order: str) -> str:
            """Refund."""
            self.did(f"refund {order}")
            return f"refunded {order}"

        @tool
        def ask(question: str) -> str:
            """Ask a person."""
            answer = interrupt(question)
            self.did(f"ask {answer}")
            return answer

        return [note, refund, ask]

    def agent(self, saver: Any) -> Any:
        # As a later host would find it.
        clock = LaterClock(self.given["number"])
        for name in ("SqliteInterruptStore", "PostgresInterruptStore"):
            kind = getattr(stores, name)
            setattr(stores, name, functools.partial(getattr(kind, "func", kind), clock=clock))
        continuation: Any = {"keys": "k" * 32}
        if self.given["is_journaled"]:
            continuation = durable_continuation(saver, keys="k" * 32, tenant="acme")
        settings: Any = {"continuation": continuation}
        hiding: Any = CodeModeMiddleware(approve={"refund": True}, options=settings)
        if self.given["face"] == "call":
            hiding = CodeCallMiddleware(approve={"refund": True}, options={"settings": settings})
        model = Model(messages=iter([]), face=self.given["face"])
        create: Any = langchain.agents.create_agent
        return create(model, self.tools(), middleware=[Noting(), hiding], checkpointer=saver)

    def answer(self, one: Any) -> Any:
        """What a person says who knows what has happened: the file of effects tells."""
        value = one.value
        note_down(self.folder / "asked", json.dumps([one.id, value, self.effects()]))
        if value == "why":
            return "because"
        if value["type"] != "unknown_outcome":
            return {"type": "approve"}
        key = value["args"].get("key") or {"refund": "refund a", "ask": "ask because"}[value["name"]]
        if key not in self.effects():
            return {"type": "approve"}
        note_down(self.folder / "told", key)
        return {"type": "respond", "message": {"refund a": "refunded a", "ask because": "because"}.get(key, key)}

    def answers(self, output: Any) -> Command[Any]:
        """Answers to some of what is asked."""
        asked = output["__interrupt__"]
        some = asked if self.chance.random() < 0.5 else asked[: self.chance.randint(1, len(asked))]
        return Command(resume={one.id: self.answer(one) for one in some})

    def run(self) -> Any:
        with sync_saver(self.given) as saver:
            agent = self.agent(saver)
            known = agent.get_state(CONFIG).values
            self.begin()
            output = agent.invoke(None if known else {"messages": [HumanMessage("go")]}, CONFIG)
            while "__interrupt__" in output:
                output = agent.invoke(self.answers(output), CONFIG)
            return told(output)

    async def arun(self) -> Any:
        async with async_saver(self.given) as saver:
            agent = self.agent(saver)
            known = (await agent.aget_state(CONFIG)).values
            self.begin()
            output = await agent.ainvoke(None if known else {"messages": [HumanMessage("go")]}, CONFIG)
            while "__interrupt__" in output:
                output = await agent.ainvoke(self.answers(output), CONFIG)
            return told(output)


def told(output: Any) -> Any:
    (message,) = [one for one in output["messages"] if isinstance(one, ToolMessage)]
    return {"content": message.content, "status": message.status, "noted": output.get("noted", [])}


@contextmanager
def sync_saver(given: dict[str, Any]) -> Any:
    if given["kind"] == "sqlite":
        with SqliteSaver.from_conn_string(given["where"]) as saver:
            yield saver
        return
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(given["where"]) as saver:
        saver.setup()
        yield saver


@asynccontextmanager
async def async_saver(given: dict[str, Any]) -> Any:
    if given["kind"] == "sqlite":
        async with AsyncSqliteSaver.from_conn_string(given["where"]) as saver:
            yield saver
        return
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    async with AsyncPostgresSaver.from_conn_string(given["where"]) as saver:
        await saver.setup()
        yield saver


def main(given: dict[str, Any]) -> Any:
    """Bring the thread to its end, and return what the program's message says."""
    host = Host(given)
    run_code_mode_sync("return 1", [])  # the first worker is there: what follows takes as long in every host
    kill_later(host.began, given["kill_after_ms"])
    value = asyncio.run(host.arun()) if given["mode"] == "async" else host.run()
    if given["after"]:  # what kills it may begin late
        threading.Event().wait()
    return value
